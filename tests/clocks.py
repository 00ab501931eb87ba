"""A wall clock that a test sets, for processes of their own; the monotonic one goes on as ever."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.workspaces import Place

needs_faketime = pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")


@dataclass(frozen=True, slots=True)
class WallClock:
    """`environment`: for the processes that are to have this clock."""

    hands: Path
    environment: dict[str, str]

    @classmethod
    def of(cls, place: Place, offset: str = "+0d") -> "WallClock":
        preload = subprocess.check_output(["faketime", "-f", "+0d", "printenv", "LD_PRELOAD"], text=True).strip()
        patched, hands = place.root.parent / "patched", place.root.parent / "clock"
        patched.mkdir()  # where the monotonic clock is left alone, faketime breaks the way Python sleeps
        (patched / "sitecustomize.py").write_text(
            "import select, time\ntime.sleep = lambda s: select.select([], [], [], s)\n"
        )
        environment = {
            "LD_PRELOAD": preload,
            "PYTHONPATH": f"{patched}:{place.env['PYTHONPATH']}",
            "FAKETIME_TIMESTAMP_FILE": str(hands),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        clock = cls(hands, environment)
        clock.set(offset)
        return clock

    def set(self, offset: str) -> None:
        """Set it: `-1d` is yesterday."""
        self.hands.write_text(offset)

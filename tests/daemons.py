"""A daemon that a test has started: drop goals, wait for what becomes of them, stop it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.workspaces import DEADLINE, Place, wait_for


def book(*commands: str, front: str = "", lines: str = "") -> str:
    """Return a runbook of these commands, its steps called a, b, c …"""
    head = f"---\n{front}\n---\n" if front else ""
    steps = [f"### {chr(97 + i)}\n```sh\n{command}\n```\n{lines}\n" for i, command in enumerate(commands)]
    return f"{head}# Job\n\n## Steps\n\n{chr(10).join(steps)}"


class Watching:
    """`agentfs watch` in a place, for as long as the block runs. `under`: a program that starts it its own way."""

    def __init__(self, place: Place, *words: str, under: tuple[str, ...] = (), **environment: str) -> None:
        self.place, self.log = place, place.root.parent / "watch.log"
        self.goals = place.root / "goals"
        self._argv = [*under, sys.executable, "-m", "agentfs", "watch", *words]
        self._environment = {**place.env, **environment}

    def __enter__(self) -> Self:
        if not (self.place.root / "agentfs.toml").exists() or not self.goals.exists():
            self.place.agentfs("init")
        with self.log.open("w", encoding="utf-8") as log:
            self.popen = subprocess.Popen(
                self._argv,
                cwd=self.place.root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_to_hear("drop goals into")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)
        assert "Traceback" not in self.said(), self.said()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_to_hear(self, words: str, seconds: float = DEADLINE) -> None:
        try:
            wait_for(lambda: words in self.said() or self.popen.poll() is not None, words, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said()}") from None
        assert words in self.said(), self.said()

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, return the exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(timeout=DEADLINE)

    def drop(self, name: str, text: str) -> None:
        """Put a goal there as `mv` does."""
        beside = self.place.root / f".{name}.beside"
        beside.write_text(text, encoding="utf-8")
        os.rename(beside, self.goals / name)

    def drop_across(self, name: str, text: str) -> None:
        """Put a goal there as `mv` does where goals/ is on a file system of its own."""
        (self.goals / f".{name}.beside").write_text(text, encoding="utf-8")
        os.rename(self.goals / f".{name}.beside", self.goals / name)

    def folder(self, name: str) -> Path:
        """Wait for the run of that name; return its folder."""
        wait_for(lambda: any(self.place.runs.glob(f"????-??-??/{name}/goal.*")), f"the run {name}")
        return self.place.run_folder(name)

    def rejected(self, name: str) -> str:
        """Wait until a goal is rejected; return the reason that stands beside it."""
        reason = self.goals / "rejected" / f"{name}.error.md"
        self.wait_to_hear(f"see goals/rejected/{name}.error.md")
        return reason.read_text(encoding="utf-8")

    def outcome(self, name: str) -> Any:
        """Wait until a run has ended; return its outcome."""
        path = self.folder(name) / "outcome.json"
        try:
            wait_for(path.exists, f"the end of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said()}") from None
        return json.loads(path.read_text(encoding="utf-8"))

"""A daemon that a test has started: drop goals, wait for what becomes of them, stop it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import warm
from tests.workspaces import DEADLINE, Place, wait_for


def book(*commands: str, front: str = "", lines: str = "") -> str:
    """Return a runbook of these commands, its steps called a, b, c …"""
    head = f"---\n{front}\n---\n" if front else ""
    steps = [f"### {chr(97 + i)}\n```sh\n{command}\n```\n{lines}\n" for i, command in enumerate(commands)]
    return f"{head}# Job\n\n## Steps\n\n{chr(10).join(steps)}"


class Watching:
    """`agentfs watch` in a place, for as long as the block runs. `under`: a program that starts it its own way."""

    def __init__(
        self,
        place: Place,
        *words: str,
        under: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        log: str = "watch.log",
        until: str = "drop goals into",
        **environment: str,
    ) -> None:
        self.place, self.log, self._until = place, place.root.parent / log, until
        self.goals = place.root / "goals"
        self._words, self._under = ["watch", *words], under
        self._environment = {**place.env, **(env or {}), **environment}

    def __enter__(self) -> Self:
        if not (self.place.root / "agentfs.toml").exists() or not self.goals.exists():
            self.place.agentfs("init")
        with self.log.open("w", encoding="utf-8") as log, open(os.devnull, "rb") as nothing:
            self.popen = self._begin(nothing.fileno(), log.fileno())
        self.wait_for_output(self._until)
        return self

    def _begin(self, nothing: int, log: int) -> "subprocess.Popen[bytes] | warm.Command":
        if not self._under and warm.can_start(self._environment):
            return warm.Command(self._words, self.place.root, self._environment, (nothing, log, log))
        return subprocess.Popen(
            [*self._under, sys.executable, "-m", "agentfs", *self._words],
            cwd=self.place.root,
            env=self._environment,
            stdin=nothing,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)
        assert "Traceback" not in self.output(), self.output()

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for_output(self, words: str, seconds: float = DEADLINE) -> None:
        self._wait_for(lambda: words in self.output() or self.popen.poll() is not None, words, seconds)
        assert words in self.output(), self.output()

    def _wait_for(self, condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
        try:
            wait_for(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; its output:\n{self.output()}") from None

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
        self._wait_for(lambda: any(self.place.runs.glob(f"????-??-??/{name}/goal.*")), f"the run {name}")
        return self.place.run_folder(name)

    def rejected(self, name: str) -> str:
        """Wait until a goal is rejected; return the reason beside it."""
        reason = self.goals / "rejected" / f"{name}.error.md"
        self.wait_for_output(f"see goals/rejected/{name}.error.md")
        return reason.read_text(encoding="utf-8")

    def outcome(self, name: str, seconds: float = DEADLINE) -> Any:
        """Wait until a run has ended; return its outcome."""
        path = self.folder(name) / "outcome.json"
        self._wait_for(path.exists, f"the end of {name}", seconds)
        return json.loads(path.read_text(encoding="utf-8"))

"""`log -f`: print what happens in a run as it happens: revisions, every line of its logs, its end. Reads only."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.cli.common import print_lines
from agentfs.cli.look import width
from agentfs.cli.reading import plain_json, step_files
from agentfs.core import paths
from agentfs.errors import UserError
from agentfs.regular import reading
from agentfs.views.revisions import entry_line
from agentfs.views.show import log_line, most_of
from agentfs.views.words import inert
from agentfs.watch import FolderWatch

RESCAN_SECONDS = 0.5  # appending to a log raises no event
MOST_BYTES = 1 << 20  # read of one log at a time

Line = tuple[dict[str, Any], str]  # for programs, for people


def follow(folder: Path, page: dict[str, Any], *, json_lines: bool) -> int:
    """Print what has happened, then what happens, until the run has ended."""
    for entry in page["entries"]:
        _print((entry, entry_line(entry)), json_lines=json_lines)
    tail, wake = Tail(folder, most_of(width())), threading.Event()
    tail.begin({entry["revision"] for entry in page["entries"] if entry["kind"] == "revision"})
    folders = [folder, folder / paths.STEPS, folder / paths.REVISIONS]
    ended = any(entry["kind"] == "outcome" for entry in page["entries"][-1:]) and _outcome(folder) is not None
    with FolderWatch([path for path in folders if path.is_dir()], wake.set) as watch:
        while not ended:
            outcome = _outcome(folder)  # first: what is logged before it is printed before it
            for line in tail.news():
                _print(line, json_lines=json_lines)
            if outcome is not None:
                _print((outcome, entry_line(outcome)), json_lines=json_lines)
                break
            if not folder.is_dir():
                raise UserError(f"{folder} is gone")
            wake.wait(RESCAN_SECONDS)
            wake.clear()
            watch.seen()
    return 0


def _print(line: Line, *, json_lines: bool) -> None:
    print_lines([json.dumps(line[0], ensure_ascii=True) if json_lines else line[1]])
    sys.stdout.flush()


def _outcome(folder: Path) -> dict[str, Any] | None:
    found = plain_json(folder / paths.OUTCOME)
    if not isinstance(found, dict):
        return None
    status, at = str(found.get("status")), str(found.get("ended_at"))
    return {"kind": "outcome", "status": status, "detail": f"{status}, {found.get('summary')}", "at": at}


@dataclass(slots=True)
class Tail:
    """Remembers how far a run's revisions and logs have been printed."""

    folder: Path
    most: int | None = None  # of one line
    revisions: set[int] = field(default_factory=set)
    offsets: dict[Path, int] = field(default_factory=dict)

    def begin(self, revisions: set[int]) -> None:
        """Begin now: of attempts that have settled nothing is printed, of those that run all of it."""
        self.revisions = revisions
        for _, _, files in self._attempts():
            if "result" in files and "log" in files:
                self.offsets[files["log"]] = files["log"].stat().st_size

    def news(self) -> Iterator[Line]:
        """Yield what is new since the last time."""
        yield from self._new_revisions()
        for step, attempt, files in self._attempts():
            if "log" in files:
                yield from self._new_lines(step, attempt, files["log"])

    def _attempts(self) -> Iterator[tuple[str, int, dict[str, Path]]]:
        for step, attempts in sorted(step_files(self.folder).items()):
            for number, files in sorted(attempts.items()):
                yield step, number, files

    def _new_revisions(self) -> Iterator[Line]:
        listed = [paths.parse_revision_file(path.name) for path in (self.folder / paths.REVISIONS).glob("*.json")]
        numbers = {found[0] for found in listed if found and found[1] == "record"}
        for number in sorted(numbers - self.revisions):
            record = plain_json(self.folder / paths.REVISIONS / paths.revision_file(number))
            self.revisions.add(number)
            if isinstance(record, dict):
                entry = {"kind": "revision", **record}
                yield entry, entry_line(entry)

    def _new_lines(self, step: str, attempt: int, path: Path) -> Iterator[Line]:
        """Yield the lines that are whole; the rest of one that is being written comes next time."""
        offset = self.offsets.get(path, 0)
        try:
            with reading(path) as file:
                file.seek(offset)
                source = file.read(MOST_BYTES)
        except OSError:
            return
        whole = source[: source.rfind(b"\n") + 1]
        self.offsets[path] = offset + len(whole)
        for line in whole.splitlines():
            if words := log_line(line, self.most):
                entry = {"kind": "log", "step": step, "attempt": attempt, **json.loads(line)}
                yield entry, f"{words[:8]} {inert(step)}.{attempt}{words[8:]}"

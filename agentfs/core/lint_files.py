"""Files that the steps of a plan name: where they cannot be, and who writes over whom. Pure: opens none of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agentfs.core.problems import Problem
from agentfs.core.records import FileCheck, Step
from agentfs.core.references import find
from agentfs.planner.lint import SHAPES, Linted, LintFinding, Surroundings

_FILE_TOOLS = frozenset(("read_file", "write_file", "edit_file", "list_files", "search_files"))
_READS = frozenset(("read_file", "list_files", "search_files", "check"))
_NEAR = 8  # writers of one file before a step that it is compared with
_WRITES = re.compile(r"(?<![0-9&<>-])>>?\s*([A-Za-z0-9_][\w./-]*)")  # the target of a redirection, if it is plain


def misplaced(subject: Linted) -> Iterator[LintFinding]:
    makers = _Deeds.of(subject, _made)
    for name in subject.new:
        step = subject.scheme.steps[name]
        for pointer, path, what in _paths(step):
            if problem := _misplaced(path, what, subject.around):
                yield LintFinding(Problem(*problem, subject.at(name, pointer)))
            elif what == "read_file" and _is_missing(path, step, subject, makers):
                message = f"there is no {path!r} in the working folder, and no earlier step makes it"
                fix = "name a file of the listing, or make it first"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)), hard=False)


def _paths(step: Step) -> Iterator[tuple[str, str, str]]:
    """Yield every path a step names, with its pointer and what is done with it; none that holds a reference."""
    path = (step.input or {}).get("path")
    if step.tool in _FILE_TOOLS and isinstance(path, str) and not find(path):
        yield "/input/path", path, step.tool
    for place, check in enumerate(step.checks or ()):
        if isinstance(check, FileCheck) and not find(check.path):
            yield f"/checks/{place}/path", check.path, "check"


def _misplaced(path: str, what: str, around: Surroundings) -> tuple[str, str] | None:
    fix = "name it relative to the working folder"
    if path.startswith("~"):
        return f"{path!r}: ~ means nothing here", fix
    allowed = (around.workdir, *(around.readable if what in _READS else ()))
    if not any(_lies_in(_absolute(path, around), folder) for folder in allowed):
        return f"{path!r} lies outside the working folder", fix
    inner = _normal(path, around)
    is_folder = path.endswith("/") or inner == "" or inner in around.folders
    if is_folder and what in ("read_file", "write_file", "edit_file"):
        return f"{path!r} is a folder, and {what} takes a file", "name a file; list_files lists a folder"
    if what == "list_files" and inner in around.files:
        return f"{path!r} is a file, and list_files takes a folder", "name its folder, or use read_file"
    return None


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _absolute(path: str, around: Surroundings) -> str:
    """Return a path from the root, without `.` and `..`."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{around.workdir}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _normal(path: str, around: Surroundings) -> str:
    """Return a path in one spelling: relative to the working folder if it lies there."""
    whole = _absolute(path, around)
    return whole.removeprefix(around.workdir.rstrip("/")).lstrip("/") if _lies_in(whole, around.workdir) else whole


@dataclass(frozen=True, slots=True)
class _Deeds:
    """Which steps may have to do with which file, as sets of bits."""

    anything: int  # steps of which nothing is known
    by_path: dict[str, int]

    @staticmethod
    def of(subject: Linted, paths: Callable[[Step], Iterable[str] | None]) -> "_Deeds":
        """Ask each step for its files; None: they may be any."""
        unknown: list[str] = []
        known: dict[str, list[str]] = {}
        for name, step in subject.scheme.steps.items():
            if (found := paths(step)) is None:
                unknown.append(name)
            for path in found or ():
                known.setdefault(_normal(path, subject.around), []).append(name)
        return _Deeds(subject.bits(unknown), {path: subject.bits(names) for path, names in known.items()})

    def with_file(self, path: str) -> int:
        return self.anything | self.by_path.get(path, 0)


def _made(step: Step) -> list[str] | None:
    if step.tool in ("write_file", "edit_file"):
        path = (step.input or {}).get("path")
        return [path] if isinstance(path, str) and not find(path) else None
    return [] if step.tool in SHAPES else None


def _read(step: Step) -> list[str] | None:
    return [path for _, path, what in _paths(step) if what == "read_file"] if step.tool in SHAPES else None


def _is_missing(path: str, step: Step, subject: Linted, makers: _Deeds) -> bool:
    """Whether a file cannot be there: all files are known, and nothing that could make it comes before."""
    inner = _normal(path, subject.around)
    if not subject.around.complete or inner in subject.around.files or inner.startswith("/"):
        return False
    return not subject.before(step.id) & makers.with_file(inner)


# ── two steps, one file ───────────────────────────────────────────────────────────────────────────────────


def overwritten(subject: Linted) -> Iterator[LintFinding]:
    """Two steps that write one file: at the same time, or the second over the first."""
    writers: dict[str, list[str]] = {}
    for name in subject.scheme.listed:
        for path in _written(subject.scheme.steps[name], subject.around):
            writers.setdefault(path, []).append(name)
    new, readers = frozenset(subject.new), _Deeds.of(subject, _read)
    for path, names in writers.items():
        for place, second in enumerate(names):
            for first in names[max(place - _NEAR, 0) : place] if second in new else ():
                if finding := _clash(subject, path, first, second, readers.with_file(path)):
                    yield finding


def _written(step: Step, around: Surroundings) -> list[str]:
    given = step.input or {}
    path, command = given.get("path"), given.get("command")
    if step.tool in ("write_file", "edit_file") and isinstance(path, str) and not find(path):
        return [_normal(path, around)]
    if step.tool == "shell" and isinstance(command, str):
        return sorted({_normal(one, around) for one in _WRITES.findall(command)})
    return []


def _clash(subject: Linted, path: str, first: str, second: str, readers: int) -> LintFinding | None:
    one, other = subject.scheme.steps[first], subject.scheme.steps[second]
    pointer = subject.at(second, "/input")
    if not subject.before(second) & subject.bits((first,)) and not subject.before(first) & subject.bits((second,)):
        message = f"{first!r} and {second!r} may run at the same time, and both write {path!r}"
        fix = f"add {first!r} to the depends_on of {second!r}, or write two files"
        return LintFinding(Problem(message, fix, pointer), hard="shell" not in (one.tool, other.tool))
    whole = other.tool == "write_file" and one.tool in ("write_file", "edit_file")
    if whole and not subject.before(second) & readers:
        message = f"{second!r} writes {path!r} whole: what {first!r} wrote there is lost"
        return LintFinding(
            Problem(message, "write it once, with everything in it, or use edit_file", pointer), hard=False
        )
    return None

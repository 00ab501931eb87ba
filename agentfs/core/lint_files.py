"""Files that the steps of a plan name: where they cannot be, and who writes over whom. Pure: opens none of them."""

import re
from collections.abc import Iterator

from agentfs.core.lint_view import SHAPES, Finding, Linted, Surroundings
from agentfs.core.problems import Problem
from agentfs.core.records import FileCheck, Step
from agentfs.core.references import find

_FILE_TOOLS = frozenset(("read_file", "write_file", "edit_file", "list_files", "search_files"))
_READS = frozenset(("read_file", "list_files", "search_files", "check"))
_WRITES = re.compile(r"(?<![0-9&<>-])>>?\s*([A-Za-z0-9_][\w./-]*)")  # the target of a redirection, if it is plain


def misplaced(subject: Linted) -> Iterator[Finding]:
    for name in subject.new:
        step = subject.scheme.steps[name]
        for pointer, path, what in _paths(step):
            if problem := _misplaced(path, what, subject.around):
                yield Finding(Problem(*problem, subject.at(name, pointer)))
            elif what == "read_file" and _is_missing(path, step, subject):
                message = f"there is no {path!r} in the working folder, and no earlier step makes it"
                mend = "name a file of the listing, or make it first"
                yield Finding(Problem(message, mend, subject.at(name, pointer)), hard=False)


def _paths(step: Step) -> Iterator[tuple[str, str, str]]:
    """Yield every path a step names, with its pointer and what is done with it; none that holds a reference."""
    path = (step.input or {}).get("path")
    if step.tool in _FILE_TOOLS and isinstance(path, str) and not find(path):
        yield "/input/path", path, step.tool
    for place, check in enumerate(step.checks or ()):
        if isinstance(check, FileCheck) and not find(check.path):
            yield f"/checks/{place}/path", check.path, "check"


def _misplaced(path: str, what: str, around: Surroundings) -> tuple[str, str] | None:
    mend = "name it relative to the working folder"
    if path.startswith("~"):
        return f"{path!r}: ~ means nothing here", mend
    allowed = (around.workdir, *(around.readable if what in _READS else ()))
    if not any(_lies_in(_absolute(path, around), folder) for folder in allowed):
        return f"{path!r} lies outside the working folder", mend
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


def _is_missing(path: str, step: Step, subject: Linted) -> bool:
    """Whether a file cannot be there: all files are known, and nothing that could make it comes before."""
    inner = _normal(path, subject.around)
    if not subject.around.complete or inner in subject.around.files or inner.startswith("/"):
        return False
    return not any(_may_make(subject.scheme.steps[one], inner, subject) for one in subject.before(step.id))


def _may_make(step: Step, path: str, subject: Linted) -> bool:
    if step.tool in ("write_file", "edit_file"):
        own = (step.input or {}).get("path")
        return not isinstance(own, str) or bool(find(own)) or _normal(own, subject.around) == path
    return step.tool not in SHAPES


# ── two steps, one file ───────────────────────────────────────────────────────────────────────────────────


def overwritten(subject: Linted) -> Iterator[Finding]:
    """Two steps that write one file: at the same time, or the second over the first."""
    writers: dict[str, list[str]] = {}
    for name in subject.scheme.listed:
        for path in _written(subject.scheme.steps[name], subject.around):
            writers.setdefault(path, []).append(name)
    for path, names in writers.items():
        for place, second in enumerate(names):
            for first in names[:place]:
                if second in subject.new and (finding := _clash(subject, path, first, second)):
                    yield finding


def _written(step: Step, around: Surroundings) -> list[str]:
    given = step.input or {}
    path, command = given.get("path"), given.get("command")
    if step.tool in ("write_file", "edit_file") and isinstance(path, str) and not find(path):
        return [_normal(path, around)]
    if step.tool == "shell" and isinstance(command, str):
        return sorted({_normal(one, around) for one in _WRITES.findall(command)})
    return []


def _clash(subject: Linted, path: str, first: str, second: str) -> Finding | None:
    one, other = subject.scheme.steps[first], subject.scheme.steps[second]
    pointer = subject.at(second, "/input")
    if first not in subject.before(second) and second not in subject.before(first):
        message = f"{first!r} and {second!r} may run at the same time, and both write {path!r}"
        mend = f"add {first!r} to the depends_on of {second!r}, or write two files"
        return Finding(Problem(message, mend, pointer), hard="shell" not in (one.tool, other.tool))
    if other.tool == "write_file" and one.tool in ("write_file", "edit_file") and not _is_read(subject, path, second):
        message = f"{second!r} writes {path!r} whole: what {first!r} wrote there is lost"
        return Finding(
            Problem(message, "write it once, with everything in it, or use edit_file", pointer), hard=False
        )
    return None


def _is_read(subject: Linted, path: str, until: str) -> bool:
    """Whether somebody has looked at a file before it is written again; of what a program reads nothing is known."""
    before = [subject.scheme.steps[name] for name in subject.before(until)]
    return any(
        step.tool not in SHAPES or (step.tool == "read_file" and path in _read_paths(step, subject))
        for step in before
    )


def _read_paths(step: Step, subject: Linted) -> list[str]:
    return [_normal(path, subject.around) for _, path, what in _paths(step) if what == "read_file"]

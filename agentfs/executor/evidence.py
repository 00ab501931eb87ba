"""What a judge is shown: gathered by code, so that a claim is never its own proof. Reads only, within bounds.

output            what is judged
input             what the step was given
tools             what its tools returned, as its log has it
files             those that the condition, the goal or the checks name, as they are now
changes           what was added, changed or removed in the working folder
"""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentfs.agents.running import runs_in, spoken_in
from agentfs.core.excerpts import as_text, head_and_tail
from agentfs.core.paths import spell_path
from agentfs.core.proof import (
    KINDS_OF_CHANGE,
    Changes,
    Piece,
    Snapshot,
    Watched,
    first_word,
    names_in,
    settings_of,
    tests_of,
    words_in,
)
from agentfs.core.records import Check, Failure
from agentfs.core.text import flatten, one_line
from agentfs.storage.files import list_entries, read_lines
from agentfs.storage.safe_open import Refused, hold_folder
from agentfs.tools.base import StepContext
from agentfs.tools.files import read_allowed

MOST_ENTRIES = 10_000  # of a folder that are compared
MOST_FILES, FILE_LENGTH, LARGEST_FILE = 8, 2_000, 256 * 1024
TOOLS_LENGTH, CALL_LENGTH = 6_000, 1_500
MOST_SCRIPTS, LARGEST_SCRIPT = 20, 64 * 1024  # that checks run, and whose words are looked at
CHANGED, TAMPERED, SPOILED = "changed", "tampered", "spoiled"  # events in a log
NOT_PUT_BACK = "a step changed what it may not change, and it has not been put back"
OUTPUT_WORDS = "The output is:"
_NAME = re.compile(r"[\w.+@-]+(?:/[\w.+@-]+)*")
_LEFT_OUT = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv"))


def snapshot(folder: Path, without: Path | None = None) -> Snapshot:
    """Return the files in a folder with size and times, as many as are compared. Links are not followed.

    `without`: a folder in it that is no part of the work, such as the workspace's runs/.
    """
    found: dict[str, tuple[int, int, int]] = {}
    waiting = [""]
    while waiting and len(found) < MOST_ENTRIES:
        parent = waiting.pop()
        for entry in sorted(list_entries(folder / parent), key=lambda entry: entry.name):
            path = f"{parent}/{entry.name}" if parent else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting += [] if entry.name in _LEFT_OUT or folder / path == without else [path]
            elif len(found) < MOST_ENTRIES:
                seen = entry.stat(follow_symlinks=False)
                found[spell_path(path)] = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)  # nobody sets the last
    return found


def folder_of(context: StepContext) -> Snapshot:
    """Return the working folder of an attempt as it is."""
    room = context.confinement
    return snapshot(room.workdir, without=room.workspace / "runs")


def hashes(files: Iterable[Path]) -> dict[str, str]:
    """Return the hash of each file that is there, also behind a link; of a folder, those of the files in it."""
    found = {}
    for path in files:
        inside = (path / name for name in snapshot(path)) if path.is_dir() and not path.is_symlink() else (path,)
        for one in inside:
            with suppress(OSError, Refused):
                found[str(one)] = _hash(Path(os.path.realpath(one)))
    return found


def _hash(path: Path) -> str:
    digest = sha256()
    with hold_folder(str(path.parent)) as folder, os.fdopen(folder.open_file(path.name), "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def changes_in(log: Path) -> Changes:
    """Return what an attempt changed, as its log has it."""
    found = [*changes_in_order(log)]
    return Changes(*(tuple(dict.fromkeys(path for kind, path in found if kind == what)) for what in KINDS_OF_CHANGE))


def changes_in_order(log: Path) -> Iterator[tuple[str, str]]:
    """Yield what became of a file, and which, in the order of the log."""
    for entry in read_lines(log):
        for what in KINDS_OF_CHANGE if entry.get("event") == CHANGED else ():
            listed = entry.get(what)
            yield from ((what, name) for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()


def left_spoiled(logs: Iterable[Path]) -> list[str]:
    """Return the protected files that attempts changed and nobody has put back, or changed, since."""
    left: dict[str, str | None] = {}
    for log in logs:
        for entry in read_lines(log):
            known = entry.get("left") if entry.get("event") == TAMPERED else None
            left |= known if isinstance(known, dict) else {}
    return [path for path, known in left.items() if hashes((Path(path),)).get(path) == known]


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────────────


def output_piece(output: Any, label: str = "The output, which is to be judged") -> Piece:
    return Piece(label, f"{OUTPUT_WORDS} {text}" if (text := as_text(output)).strip() else "")


def tool_pieces(log: Path, label: str = "What the tools returned") -> Iterator[Piece]:
    """Yield what the tools of a loop returned, the last of it in full."""
    calls = [_call(entry) for entry in _calls(log) if entry.get("result")]
    if calls:
        yield Piece(label, head_and_tail("\n".join(calls), TOOLS_LENGTH))


def _calls(log: Path) -> list[Mapping[str, Any]]:
    """Return the calls of a loop or of an agent, with what they returned; what an agent says is none."""
    entries = [*read_lines(log)]
    if spoken := spoken_in(entries):
        ran = runs_in(spoken[1], entries)
        return [{"tool": "ran", "arguments": one.what, "result": one.output, "ok": one.ok} for one in ran]
    return [entry for entry in entries if entry.get("event") == "tool"]


def _call(entry: Mapping[str, Any]) -> str:
    arguments, result = one_line(str(entry.get("arguments")), 300), head_and_tail(str(entry["result"]), CALL_LENGTH)
    failed = "" if entry.get("ok") else " (failed)"
    return f"{entry.get('tool')} {arguments}{failed}:\n{result}"


def file_pieces(texts: Iterable[str], context: StepContext) -> Iterator[Piece]:
    """Yield the files that texts name, as they are."""
    words = (word.rstrip(".") for text in texts for word in _NAME.findall(text))
    names = dict.fromkeys(word for word in words if "." in word or "/" in word)
    shown = 0
    for name in names:
        found = read_allowed(name, context, LARGEST_FILE) if shown < MOST_FILES else None
        if found is None or isinstance(found, Failure):
            continue
        size, content = found
        text = head_and_tail(content.decode("utf-8", "replace"), FILE_LENGTH)
        shown += 1
        yield Piece(f"The file {name}, {size} bytes", f"{name} holds:\n{text}")


def changes_piece(changes: Changes | None) -> Iterator[Piece]:
    if changes is not None:
        lines = [*changes.lines()]
        yield Piece("What changed in the working folder", "\n".join(lines) or "nothing was added, changed or removed")


def quoted_piece(quotes: Sequence[str], log: Path) -> Iterator[Piece]:
    """Yield what the doer quotes, as far as it is in the log of what the tools returned."""
    seen = flatten("\n".join(str(entry.get("result")) for entry in _calls(log)))
    true = [quote for quote in quotes if len(flatten(quote)) >= 3 and flatten(quote) in seen]
    if true:
        yield Piece("What the doer points at in it", "\n".join(true))


# ── what a person's checks rest on ────────────────────────────────────────────────────────────────────────


def protected_files(patterns: Iterable[str], checks: Iterable[Check], workdir: Path) -> tuple[Path, ...]:
    """Return what no model may change: what the goal protects, and the file that a person's check runs."""
    found = [path for pattern in patterns for path in glob.glob(pattern, root_dir=workdir, recursive=True)]
    found += [word for check in checks if (word := first_word(check))]
    return tuple(path for path in _inside(found, workdir) if path.exists())


def _inside(found: Iterable[str], workdir: Path) -> Iterator[Path]:
    paths = (Path(os.path.normpath(workdir / path)) for path in dict.fromkeys(found))
    return (path for path in paths if path != workdir and path.is_relative_to(workdir))


def watched_by(checks: Sequence[Check], context: StepContext) -> Watched:
    """Return what a person's checks rest on: what they name, and what the scripts among that name in turn."""
    workdir = str(context.confinement.workdir)
    found = dict.fromkeys(_relative(word, workdir) for check in checks for word in names_in(check))
    waiting, looked_at = [*found], 0
    while waiting and looked_at < MOST_SCRIPTS:
        content = read_allowed(waiting.pop(0), context, LARGEST_SCRIPT)
        if isinstance(content, Failure) or content[0] > LARGEST_SCRIPT or b"\0" in content[1]:
            continue  # there is none, or it is no script
        looked_at += 1
        text = content[1].decode("utf-8", "replace")
        words = (_relative(word, workdir) for word in words_in(text) if "." in word or "/" in word)
        new = [word for word in dict.fromkeys(words) if word not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return Watched(
        tuple(word for word in found if not word.startswith(("/", "..")) and word != "."),
        tuple(pattern for check in checks for pattern in settings_of(check)),
        tuple(pattern for check in checks for pattern in tests_of(check)),
    )


def _relative(word: str, workdir: str) -> str:
    return os.path.normpath(word.removeprefix(f"{workdir}/"))

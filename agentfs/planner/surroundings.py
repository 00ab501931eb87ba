"""Read what a planner is shown of the world: the working folder, its AGENTS.md, the goal's context. Reads only.

Everything is bounded, and no link leads out of the folder it stands in. What cannot be read is left out, or said.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfs.core.records import Run
from agentfs.planner.goal_context import ContextRule, is_path
from agentfs.planner.lint import Surroundings
from agentfs.planner.prompt import Material
from agentfs.storage.safe_open import Refused, hold_folder
from agentfs.tools.protected import ENV_FILES, WORKSPACE_PARTS

INSTRUCTIONS = "AGENTS.md"
MOST_ENTRIES = 200
DEEPEST = 3  # levels below the working folder
MOST_HEADS, HEAD_LINES, HEAD_WIDTH = 5, 4, 100  # files, lines of each, characters of each
HEAD = "    "  # before each of them in the listing
MOST_BYTES = 64 * 1024  # of one file

_LEFT_OUT = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"))

LookAround = Callable[[Path, Run, Path, str | tuple[str, ...] | None, str], tuple[Material, Surroundings]]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a folder: every entry down to a depth, or the first of them."""

    files: dict[str, int]  # path -> size
    folders: tuple[str, ...]
    complete: bool

    def lines(self, heads: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return a line for each entry; below a file, how it begins."""
        entries = {
            **{f"{folder}/": "" for folder in self.folders},
            **{p: f"  {n} bytes" for p, n in self.files.items()},
        }
        return tuple(line for path in sorted(entries) for line in (f"{path}{entries[path]}", *heads.get(path, ())))


def look_around(
    folder: Path,
    run: Run,
    workspace: Path,
    context: str | tuple[str, ...] | None,
    goal: str = "",
    *,
    mask: Callable[[str], str] = str,
) -> tuple[Material, Surroundings]:
    """Return what a planner is shown, and what lint knows of the same folder.

    `folder`: the run's. `goal`: its text; of the files that it names, the first lines are shown.
    """
    workdir = folder.resolve() / run.workdir
    listing = list_folder(workdir, own=workdir == workspace.resolve())
    items = (context,) if isinstance(context, str) else context or ()
    rule = ContextRule.of(workspace, workdir, run.context_from)
    material = Material(
        context=tuple(_context(item, rule) for item in items),
        listing=listing.lines(_heads(listing, workdir, goal, mask)),
        complete=listing.complete,
        instructions=read_text(workdir, INSTRUCTIONS),
    )
    readable = tuple(str((workspace / one).resolve()) for one in run.read)
    around = Surroundings(
        str(workdir), readable, frozenset(listing.files), frozenset(listing.folders), listing.complete
    )
    return material, around


def _heads(listing: Listing, workdir: Path, goal: str, mask: Callable[[str], str]) -> dict[str, list[str]]:
    named = [path for path in listing.files if path in goal][:MOST_HEADS]
    texts = {path: mask(read_text(workdir, path) or "") for path in named}
    return {
        path: [f"{HEAD}{line[:HEAD_WIDTH]}" for line in text.splitlines()[:HEAD_LINES]]
        for path, text in texts.items()
    }


def list_folder(folder: Path, *, own: bool = False) -> Listing:
    """Return what is in a folder, nearest first; links are listed and not followed. `own`: it is a workspace."""
    files: dict[str, int] = {}
    folders: list[str] = []
    level, complete = [""], True
    for depth in range(DEEPEST + 1):
        below: list[str] = []
        for parent in level:
            for entry in _entries(str(folder / parent)):
                if entry.name in _LEFT_OUT or (own and not parent and _is_ours(entry.name)):
                    complete = False
                    continue
                if len(files) + len(folders) >= MOST_ENTRIES:
                    return Listing(files, tuple(folders), complete=False)
                path = _printable(f"{parent}/{entry.name}" if parent else entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    below.append(f"{parent}/{entry.name}" if parent else entry.name)
                else:
                    files[path] = entry.stat(follow_symlinks=False).st_size
        level = below
        complete = complete and not (depth == DEEPEST and level)
    return Listing(files, tuple(folders), complete)


def _is_ours(name: str) -> bool:
    return name in WORKSPACE_PARTS or name.startswith(ENV_FILES)


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with hold_folder(folder) as held, os.scandir(held.fd) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except (OSError, Refused):
        return  # gone meanwhile, not ours to read, or behind a link


def _printable(path: str) -> str:
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "�" for character in text)


def _context(item: str, rule: ContextRule) -> tuple[str, str]:
    """Return where a piece of context is from, and its text: a file's, if it names one, else itself."""
    if not is_path(item):
        return "From the goal", item
    for place in rule.places:
        if (text := read_text(place, item, rule.may_read)) is not None:
            return f"The file {item}", text
    looks_like_a_file = "/" in item or "." in item
    return "From the goal", f"{item} (there is no such text file)" if looks_like_a_file else item


def read_text(folder: Path, name: str, may_read: Callable[[str], None] | None = None) -> str | None:
    """Return the text of a file that lies in a folder, as far as it goes; None if there is none to read.

    `may_read` is given its real path, and raises to refuse.
    """
    try:
        with (
            hold_folder(str(folder), may_read=may_read) as inside,
            os.fdopen(inside.open_file(name), "rb") as file,
        ):
            source = file.read(MOST_BYTES + 1)
    except (Refused, OSError):
        return None
    if b"\0" in source:
        return None
    more = "\n[… the rest is left out …]" if len(source) > MOST_BYTES else ""
    return source[:MOST_BYTES].decode("utf-8", "replace") + more

"""Read what a planner is shown of the world: the working folder, its AGENTS.md, the goal's context. Reads only.

Everything is bounded, and no link leads out of the folder it is in. What cannot be read is left out, or named.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfs.core.paths import inside, spell_path
from agentfs.core.records import Run
from agentfs.planner.prompt import Material, Surroundings
from agentfs.storage.installation import workspaces_above
from agentfs.storage.safe_open import Refused, hold_folder, resolve_links_of_others
from agentfs.tools.protected import ENV_FILES, WORKSPACE_PARTS

INSTRUCTIONS = "AGENTS.md"
MOST_ENTRIES = 200
DEEPEST = 3  # levels below the working folder
MOST_HEADS, HEAD_LINES, HEAD_WIDTH = 5, 4, 100  # files, lines of each, characters of each
HEAD = "    "  # before each of them in the listing
MOST_BYTES = 64 * 1024  # of one file

_LEFT_OUT = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"))

LookAround = Callable[[Path, Run, Path, str | tuple[str, ...] | None, str], tuple[Material, Surroundings]]


# ── which files a goal's `context` may name: they are sent to a model ───────────────────────────────────
#
# A dropped goal is held to the folders of [goals] workdirs, and to what of them is not the workspace's own. A goal
# that a person runs may name any file of the workspace. Neither may name `.env` files: those are where keys are kept.


_PATH = re.compile(r"[^\s<>|*?\"']{1,300}\Z")


def is_path(item: str) -> bool:
    """Whether a piece of context may be the name of a file; anything else is text."""
    return _PATH.match(item) is not None


def allowed_folders(root: Path, workdirs: tuple[str, ...]) -> dict[str, Path]:
    """Return the folders of [goals] workdirs by name; a link in one that a step may have made is not resolved."""
    return {name: Path(resolve_links_of_others(os.path.join(root.resolve(), name))) for name in workdirs}


def folders_without_links(folders: Mapping[str, Path]) -> tuple[Path, ...]:
    return tuple(folder for folder in folders.values() if folder == folder.resolve())


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Tells what the context of one goal may not name. `folders`: None for a person's own goal."""

    root: Path  # of the workspace
    workdir: Path | None  # None: the run has none yet, and it will be empty
    folders: tuple[Path, ...] | None

    @classmethod
    def of(cls, root: Path, workdir: Path | None, workdirs: tuple[str, ...] | None) -> "ContextRule":
        real = root.resolve()
        if workdirs is None:
            return cls(real, workdir, None)
        return cls(real, workdir, folders_without_links(allowed_folders(root, workdirs)))

    @property
    def places(self) -> Iterator[Path]:
        """Yield where a path is looked for, the nearest first."""
        if self.workdir is not None:
            yield self.workdir
        yield self.root

    def why_not(self, item: str) -> str | None:
        """Return why a piece of context may not be read; None if it may, or is text. What is there now decides."""
        if not is_path(item):
            return None
        spelt = [os.path.normpath(os.path.join(place, item)) for place in self.places]
        there = next((path for path in spelt if os.path.lexists(path)), None)
        if there is not None:
            return self.why_hidden(there) or self.why_hidden(os.path.realpath(there))
        if self.folders is None or (
            inside(spelt[-1], str(self.root)) and not self._why_kept(spelt[-1], str(self.root))
        ):
            return None  # there is no such file: these are words
        return self.why_hidden(spelt[-1])

    def why_hidden(self, path: str) -> str | None:
        """Return why this path, without links in it, may not be read; None if it may."""
        folder = next((one for one in self._readable() if inside(path, one)), None)
        if folder is None:
            return "it lies outside the folders a goal may work in"
        return self._why_kept(path, folder)

    def _why_kept(self, path: str, folder: str) -> str | None:
        """Return why this path in a folder that may be read is kept from models; None if it is not."""
        parts = path[len(folder) :].strip("/").split("/")
        if any(part.startswith(ENV_FILES) for part in parts):
            return f"{ENV_FILES} files hold keys, and are sent to no model"
        if self.folders is not None and (part := _workspace_part(path, folder)):
            return f"{part} belongs to the workspace"
        return None

    def may_read(self, real: str) -> None:
        """Raise Refused if what is open at this real path may not be read."""
        if why := self.why_hidden(real):
            raise Refused("outside", why)

    def _readable(self) -> list[str]:
        """Return the folders that may be read, the innermost first: the rule of the nearest counts."""
        folders = {str(self.root)} if self.folders is None else set(map(str, self.folders))
        return sorted(folders | ({str(self.workdir)} if self.workdir else set()), key=len, reverse=True)


def _workspace_part(path: str, folder: str) -> str | None:
    """Return the part of a workspace that a path lies in, unless the folder that may be read lies in it itself."""
    for root in workspaces_above(path):
        part = path[len(root) :].strip("/").split("/")[0]
        if part in WORKSPACE_PARTS and not inside(folder, os.path.join(root, part)):
            return part
    return None


# ── what a planner is shown ────────────────────────────────────────────────────────────────────────────


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
    named = [path for path in listing.files if path in goal or _folder_of(path) in goal][:MOST_HEADS]
    texts = {path: mask(read_text(workdir, path) or "") for path in named}
    return {
        path: [f"{HEAD}{line[:HEAD_WIDTH]}" for line in text.splitlines()[:HEAD_LINES]]
        for path, text in texts.items()
    }


def _folder_of(path: str) -> str:
    """Return the folder of a path as a goal names it: `notes/`; a file at the top has none that could be named."""
    return f"{os.path.dirname(path)}/" if "/" in path else "\0"


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
    return "".join(character if character.isprintable() else "�" for character in spell_path(path))


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

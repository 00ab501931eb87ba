"""What several commands need: the workspace, its settings, and words on the right stream."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from agentfs.cli.streams import harmless
from agentfs.core.problems import Problem
from agentfs.errors import UserError
from agentfs.workspace import Workspace, find_workspace, is_trusted, was_trusted


def say(words: str, *, colours: bool = False) -> None:
    """Tell a person something: on stderr, where progress goes. `colours`: there may be some of ours in it."""
    print(harmless(words, colours=colours), file=sys.stderr, flush=True)


def print_lines(lines: Iterable[str]) -> int:
    """Print what a command is asked for: on stdout, with nothing in it that a terminal obeys but our colours."""
    for line in lines:
        print(harmless(line, colours=True))
    return 0


def start_folder(arguments: Namespace) -> Path:
    """Return the folder the command speaks of."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise UserError(f"-C {arguments.folder}: there is no such folder")
    return folder.resolve()


def here(arguments: Namespace) -> Workspace:
    """Return the workspace the command speaks of; it must exist."""
    start = start_folder(arguments)
    found = find_workspace(start)
    if found is None:
        raise UserError(f"no workspace at or above {start} (`agentfs init` makes one here)")
    return found


def must_be_trusted(workspace: Workspace) -> None:
    """Raise unless this user made, or trusts, the workspace: what it holds is run."""
    if not is_trusted(workspace.root, environment()):
        why = "was not made by you"
        if was_trusted(workspace.root, environment()):
            why = "is not the folder that you trusted: it was made again or copied, or an older agentfs trusted it"
        raise UserError(
            f"{workspace.root} {why}. Its settings and tools could do anything you can. "
            f"Look at them, then: agentfs trust {workspace.root}"
        )


def trusted_now(names: Sequence[str]) -> str:
    """Return the warning that what was in a folder before it became this user's workspace may run from now on."""
    from agentfs.views.words import inert

    return f"trusted from now on, since it was here already: {inert(', '.join(names))} (look at it)"


def short_path(path: Path) -> str:
    """Return a path as short as it can be typed from here, with nothing in it that a terminal obeys."""
    from agentfs.views.words import inert

    relative = os.path.relpath(path)
    return inert(str(path) if relative.startswith("..") else relative)


def problem_lines_for(stream: TextIO, file: str, problems: Sequence[Problem], source: bytes) -> list[str]:
    """Return what is wrong with a file, as it is printed there."""
    import shutil

    from agentfs.views.problems import problem_lines

    if not stream.isatty():
        return problem_lines(file, problems)
    colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return problem_lines(file, problems, source, shutil.get_terminal_size((80, 24)).columns, colours=colours)


def environment() -> dict[str, str]:
    return dict(os.environ)


def print_json(value: Any) -> None:
    from agentfs.views.words import json_text

    print_lines([json_text(value)])

"""What several commands need: the workspace, words on the right stream, problems of a file."""

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from agentfs.commands import harmless
from agentfs.core import paths
from agentfs.core.problems import Problem, Rejected
from agentfs.core.text import BOLD, RED, columns, cut, cut_front, inert, json_text, paint
from agentfs.errors import BadFile, UserError
from agentfs.storage.safe_open import MOST_SOURCE, read_regular
from agentfs.storage.workspace import Workspace, find_workspace, is_trusted, trust, was_trusted
from agentfs.ui import reading

Listener = Callable[[str], object]
_LISTENERS: ContextVar[tuple[Listener, Listener] | None] = ContextVar("listeners", default=None)


@contextmanager
def listening(spoken: Listener, printed: Listener) -> Iterator[None]:
    """Hand what a command says and prints to these functions while the block runs."""
    token = _LISTENERS.set((spoken, printed))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


def say(words: str, *, colours: bool = False) -> None:
    """Print something for a person on stderr. `colours`: keep our own colours in it."""
    if (listeners := _LISTENERS.get()) is not None:
        listeners[0](words)
        return
    print(harmless(words, colours=colours), file=sys.stderr, flush=True)


def print_lines(lines: Iterable[str]) -> int:
    """Print results on stdout, without anything a terminal obeys but our colours."""
    listeners = _LISTENERS.get()
    for line in lines:
        if listeners is not None:
            listeners[1](line)
        else:
            print(harmless(line, colours=True))
    return 0


def start_folder(arguments: Namespace) -> Path:
    """Return the folder the command is about."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise UserError(f"-C {arguments.folder}: there is no such folder")
    return folder.resolve()


def here(arguments: Namespace) -> Workspace:
    """Return the workspace the command is about; it must exist."""
    start = start_folder(arguments)
    found = find_workspace(start)
    if found is None:
        raise UserError(f"no workspace at or above {start} (`agentfs init` makes one here)")
    return found


def must_be_trusted(workspace: Workspace) -> None:
    """Raise unless this user made, or trusts, the workspace: what it holds will run."""
    if not is_trusted(workspace.root, environment()):
        why = "was not made by you"
        if was_trusted(workspace.root, environment()):
            why = "is not the folder that you trusted: it was made again or copied, or an older agentfs trusted it"
        raise UserError(
            f"{workspace.root} {why}. Its settings and tools could do anything you can. "
            f"Look at them, then: agentfs trust {workspace.root}"
        )


def short_path(path: Path) -> str:
    """Return a path as short as it can be typed from here, with nothing in it that a terminal obeys."""
    relative = os.path.relpath(path)
    return inert(str(path) if relative.startswith("..") else relative)


def problem_lines_for(stream: TextIO, file: str, problems: Sequence[Problem], source: bytes) -> list[str]:
    """Return what is wrong with a file, as lines for this stream."""
    return problem_lines(file, problems, source, width(stream), colours=colours(stream))


def environment() -> dict[str, str]:
    return dict(os.environ)


def print_json(value: Any) -> int:
    return print_lines([json_text(value)])


def print_page(arguments: Namespace, page: Any, lines: Callable[[], Iterable[str]]) -> int:
    """Print a page as JSON where that is asked for, else as lines for a person."""
    return print_json(page) if arguments.json else print_lines(lines())


def typed_values(arguments: Namespace) -> dict[str, Any]:
    """Return the values that `-p NAME=VALUE` and `--params FILE` give; -p wins."""
    from agentfs.core.params import parse_assignments

    from_file = _values_in(arguments) if arguments.params else {}
    try:
        return {**from_file, **parse_assignments(arguments.param or ())}
    except Rejected as rejected:
        raise UserError("; ".join(f"{one.message} ({one.fix})" for one in rejected.problems)) from None


def _values_in(arguments: Namespace) -> dict[str, Any]:
    from agentfs.core.documents import read_json, read_yaml

    name = arguments.params
    try:
        source = read_regular(start_folder(arguments) / name, MOST_SOURCE, links=True)
    except OSError as error:
        raise UserError(f"--params {name}: {error.strerror}") from None
    try:
        document = read_json(source, lenient_bom=True) if name.lower().endswith(".json") else read_yaml(source)
    except Rejected as rejected:
        raise BadFile(name, rejected.problems, source) from None
    if not isinstance(document.value, dict):
        raise BadFile(name, [Problem("the values are no fields", "write each as name: value")], source)
    return document.value


# ── a new workspace ───────────────────────────────────────────────────────────────────────────────────────


_TEMPLATE = """\
# Settings of this workspace. Every key has a default; this file may be empty. See docs/format.md.

# approve = "plan"               # when a person must approve plans: never, plan, always
# on_wait = 'notify-send "$AGENTFS_RUN waits" "$AGENTFS_WHY"'   # run once for each thing that waits for you

[goals]
workdirs = ["."]                 # folders, relative to the workspace, that a goal may work in

[limits]
# parallel = 4                   # attempts at once
# attempts = 2                   # tries at one step

[tools]
# network = "agents"             # let coding agents use the network; true: tools too
# read = ["/srv/templates"]      # more folders the tools may read
# env = ["LANG"]                 # variables the tools may see
"""


def trust_warning(root: Path) -> str:
    """Return a warning of what a folder already holds that could run once it is a trusted workspace."""
    if is_trusted(root, environment()):
        return ""
    from agentfs.tools.registry import sources

    tools = [source.shown for source in sources(root, installed=False)]
    others = (paths.SETTINGS, "prompts", "runs", "goals")
    names = [name for name in others if (root / name).is_file() or any((root / name).glob("*"))] + tools[:5]
    return f"trusted from now on, since it was here already: {inert(', '.join(names))} (look at it)" if names else ""


def init_workspace(root: Path, environment: Mapping[str, str]) -> tuple[Workspace, list[str]]:
    """Make a workspace, or complete one, and trust it; return it with the names of what was made."""
    from agentfs.core.json_schema import all_schemas
    from agentfs.ledger import Ledger, LedgerError
    from agentfs.storage.files import replace, write_new

    made: list[str] = []
    try:
        for folder in (root, root / "goals", root / "schemas", root / "runs"):
            if not folder.is_dir():
                folder.mkdir(parents=True)
                made += [f"{folder.relative_to(root)}/"] if folder != root else []
        if not (root / paths.SETTINGS).exists():
            write_new(root / paths.SETTINGS, _TEMPLATE.encode(), durable=False)  # through no link to nowhere
            made.append(paths.SETTINGS)
        for name, content in all_schemas().items():
            replace(root / "schemas" / name, content)
        Ledger.create(root / "runs").show_plans_by_meaning()
    except LedgerError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot make a workspace in {root}: {error.strerror} ({error.filename})") from None
    trust(root, environment)
    return Workspace(root), made


# ── problems of a file ────────────────────────────────────────────────────────────────────────────────────


_MOST_SHOWN = 20  # problems whose line is shown: what comes then is a long list anyway


def problem_lines(
    file: str, problems: Iterable[Problem], source: bytes = b"", width: int | None = None, *, colours: bool = False
) -> list[str]:
    """Return what is wrong with a file, as lines. `width`: of the terminal; None: no source is shown."""
    from agentfs.core.markdown import lines_of

    written = lines_of(source.decode("utf-8", "replace").removeprefix("\ufeff")) if width else []
    found: list[str] = []
    for number, problem in enumerate(problems):
        head, colon, words = inert(problem.shown(file)).partition(": ")
        found.append(paint(head, BOLD, colours=colours) + colon + words)
        if width and number < _MOST_SHOWN and problem.line <= len(written) and written[problem.line - 1].strip():
            found += _mark(written[problem.line - 1], problem, width, colours=colours)
    return found


def _mark(line: str, problem: Problem, width: int, *, colours: bool) -> list[str]:
    """Return a line of the file with its number, and a mark below the column; long lines are cut around it."""
    margin = len(str(problem.line)) + 7
    before, after = inert(line[: problem.column - 1]), inert(line[problem.column - 1 :])
    room = max(width - margin, 20)
    shown = cut_front(before, max(room // 2, room - columns(after)))
    text = shown + cut(after, room - columns(shown))
    mark = paint("^", RED, colours=colours)
    return [f"    {problem.line} | {text.rstrip()}", f"{'| ':>{margin}}{' ' * columns(shown)}{mark}"]


# ── what cannot be read, and the terminal ─────────────────────────────────────────────────────────────────


def report_unreadable(found: reading.Reading, broken: Iterable[str] = ()) -> int:
    """Say which files of a run cannot be read; return the exit code."""
    return say_all(list(dict.fromkeys([*found.broken, *broken])), f"{found.folder}/")


def say_all(trouble: list[str], where: str = "") -> int:
    """Say what cannot be read; return 2 if there is anything, else 0."""
    for words in trouble:
        say(f"{where}{words}")
    return 2 if trouble else 0


def width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal; None if it is none, where nothing is cut."""
    return shutil.get_terminal_size((80, 24)).columns if (stream or sys.stdout).isatty() else None


def colours(stream: TextIO | None = None) -> bool:
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

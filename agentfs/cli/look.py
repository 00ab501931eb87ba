"""Commands that only look: show, log, tools. They write nothing, take no lock and need no trust."""

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TextIO

from agentfs.cli import reading
from agentfs.cli.common import here, say, short_path
from agentfs.cli.common import print_lines as print_lines  # noqa: PLC0414 - many take it from here
from agentfs.core.problems import did_you_mean
from agentfs.errors import UserError
from agentfs.views.words import inert, json_text


def show(arguments: Namespace) -> int:
    """`agentfs show RUN [STEP]`"""
    from agentfs.views.show import run_lines, step_lines

    workspace = here(arguments)
    found = reading.read_run(workspace.find_run(arguments.run), workspace)
    page = reading.plan_page(found)
    if arguments.step is None:
        print_lines([json_text(page)] if arguments.json else run_lines(page, width(), colours=colours()))
        return tell_broken(found, page["broken"])
    one = reading.step_page(found, page, arguments.step)
    if one is None:
        known = [*(str(step.get("id")) for step in page["steps"]), *reading.step_files(found.folder)]
        fix = did_you_mean(arguments.step, known, f"`agentfs show {found.run}` lists its steps")
        raise UserError(f"{found.run} has no step {inert(arguments.step)!r} ({fix})")
    print_lines([json_text(one)] if arguments.json else step_lines(one, width(), colours=colours()))
    return tell_broken(found, page["broken"])


def log(arguments: Namespace) -> int:
    """`agentfs log RUN [-f]`"""
    from agentfs.cli.entries import entries_of
    from agentfs.views.revisions import log_lines

    workspace = here(arguments)
    folder = workspace.find_run(arguments.run)
    entries, trouble = entries_of(folder, workspace.runs)
    page = {"run": reading.run_id(folder), "runs": str(workspace.runs), "entries": entries, "broken": trouble}
    if arguments.follow:
        from agentfs.cli.following import follow

        return follow(folder, page, json_lines=arguments.json)
    if arguments.json:
        print_lines([json_text(page)])
    elif entries:
        print_lines(log_lines(page, short_path(workspace.runs)))
    else:
        print_lines([f"{page['run']} has no revision yet: there is no plan"])
    return _say_all(trouble)


def tools(arguments: Namespace) -> int:
    """`agentfs tools`"""
    from agentfs.cli.common import environment
    from agentfs.means import catalogue_of
    from agentfs.tools.registry import known_tools
    from agentfs.views.tools import tools_lines

    workspace = here(arguments)
    settings, trouble = reading.settings_of(workspace)
    known = known_tools(workspace.root)
    catalogue = catalogue_of(settings, environment(), known)
    listed = []
    for name, spec in catalogue.tools.items():
        refusal = catalogue.refusal(name)
        listed.append(
            {
                "name": name,
                "summary": spec.summary,
                "effects": spec.effects,
                "repeatable": spec.repeatable,
                "allowed": refusal is None,
                "why": f"{refusal[0]} ({refusal[1]})" if refusal else None,
                "own": name in known.own,
                "input_schema": dict(spec.input_schema),
            }
        )
    print_lines([json_text(listed)] if arguments.json else tools_lines(listed))
    return _say_all([*([f"{trouble}\nthese are the defaults"] if trouble else []), *known.broken])


def complete_runs(arguments: Namespace) -> int:
    """What shell completion calls: the ids of all runs, and the last parts that are short for them."""
    from agentfs.cli.common import start_folder
    from agentfs.workspace import find_workspace

    workspace = find_workspace(start_folder(arguments))
    folders = list(workspace.run_folders()) if workspace else []
    return print_lines([*dict.fromkeys(folder.name for folder in folders), *map(reading.run_id, folders)])


# ── words out ─────────────────────────────────────────────────────────────────────────────────────────────


def tell_broken(found: reading.Reading, broken: Iterable[str] = ()) -> int:
    """Say what of a run does not read; return the exit code that says so too."""
    return _say_all(list(dict.fromkeys([*found.broken, *broken])), f"{found.folder}/")


def _say_all(trouble: list[str], where: str = "") -> int:
    """Say what does not read, and let the exit code say so too."""
    for words in trouble:
        say(f"{where}{words}")
    return 2 if trouble else 0


def width(stream: TextIO | None = None) -> int | None:
    """Return how wide the terminal is; None off a terminal: nothing is cut there."""
    return shutil.get_terminal_size((80, 24)).columns if (stream or sys.stdout).isatty() else None


def colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

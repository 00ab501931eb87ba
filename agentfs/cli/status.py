"""`status`: what the runs of a workspace are doing, or one run step by step. Reads only.

Of ten thousand runs that have ended, only those that get a line are read.
"""

from argparse import Namespace
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentfs.cli import reading
from agentfs.cli.choosing import Listing, list_runs, moment_of, time_of
from agentfs.cli.common import here
from agentfs.cli.look import colours, print_lines, tell_broken, width
from agentfs.cli.reading import ENDS, Glance
from agentfs.errors import UserError
from agentfs.views.words import counted, inert, json_line, json_text
from agentfs.workspace import Workspace

NEWEST = 20  # ended runs that get a line unless more are asked for
_FIRST = {"waiting": 0, "draft": 0, "running": 1, "planning": 1, "paused": 2}  # what a person has to do comes first


def status(arguments: Namespace) -> int:
    """`agentfs status [RUN]`"""
    workspace = here(arguments)
    if arguments.run and (arguments.since or arguments.state):
        raise UserError("--since and --state choose among runs: leave them out, or leave out RUN")
    if arguments.watch:
        return _watch(workspace, arguments)
    if arguments.run:
        return _status_of_one(workspace, arguments)
    return print_lines(_lines_of_all(workspace, arguments, width(), colours=colours()))


def _watch(workspace: Workspace, arguments: Namespace) -> int:
    """Show the table, and again whenever it has changed, until a person has seen enough."""
    import os
    import signal
    import sys
    import threading

    from agentfs.views.screen import Screen, can_draw, wants_colours

    if arguments.json or arguments.run:
        raise UserError("--watch shows the table of runs: leave out RUN and --json")
    if not can_draw(sys.stderr, os.environ.get("TERM", "")):
        raise UserError("--watch needs a terminal (agentfs status prints the table once)")
    enough, coloured = threading.Event(), wants_colours(os.environ)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if number := getattr(signal, name, None):
            signal.signal(number, lambda *_: enough.set())
    screen = Screen(sys.stderr, lambda columns, _: [*_lines_of_all(workspace, arguments, columns, colours=coloured)])
    screen.start()
    enough.wait()
    screen.close(keep=True)
    return 0


def _lines_of_all(workspace: Workspace, arguments: Namespace, columns: int | None, *, colours: bool) -> Iterable[str]:
    since, states = moment_of(arguments, "since"), frozenset(arguments.state or ())
    found = list_runs(workspace.runs)
    over = list(_over(found, since, states))
    more = 0 if arguments.all or arguments.json or since else max(0, len(over) - NEWEST)
    runs = sorted(_glances(workspace, found.open, over[: len(over) - more], states), key=_newest, reverse=True)
    runs.sort(key=lambda one: _FIRST.get(one.state, 3))
    if arguments.json:
        return _json_lines(runs)
    if not runs:
        return _nothing(workspace, found)
    from agentfs.views.status import runs_table

    lines = runs_table([one.as_json() for one in runs], datetime.now(UTC), columns, colours=colours)
    if more:
        lines.append(f"… and {counted(more, 'older run')} that ended (agentfs status --all)")
    return lines


def _over(found: Listing, since: datetime | None, states: frozenset[str]) -> Iterable[str | Glance]:
    """Yield the ended runs that are asked for, newest first: unread, unless what they say decides it."""
    if states and not states & set(ENDS):
        return
    for written, folder in found.ended:
        if since and written < since.timestamp():
            return  # an outcome tells of no later moment than that in which it was written
        if not since and not states:
            yield folder
            continue
        end = reading.ended(folder)
        if end is None:
            yield folder  # it does not read: shown with what is wrong
        elif (not states or end.state in states) and not (since and _ended_before(end, since)):
            yield end


def _ended_before(end: Glance, since: datetime) -> bool:
    moment = time_of(end.at)
    return moment is not None and moment < since


def _glances(
    workspace: Workspace, open_runs: Iterable[Path], over: Iterable[str | Glance], states: frozenset[str]
) -> Iterable[Glance]:
    """Yield what is shown of each run."""
    eyes = reading.Eyes(workspace)
    if not states or states - set(ENDS):
        yield from (seen for folder in open_runs if (seen := eyes.glance(folder)).state in (states or (seen.state,)))
    for one in over:
        seen = one if isinstance(one, Glance) else eyes.glance(Path(one))
        if not states or seen.state in states:
            yield seen


def _newest(one: Glance) -> tuple[str, str]:
    return one.at, one.run


def _nothing(workspace: Workspace, found: Listing) -> list[str]:
    total = len(found.open) + len(found.ended)
    if total:
        return [
            f"no run in {inert(str(workspace.root))} is meant by that; there {_are(total)} (agentfs status --all)"
        ]
    return [f"no runs yet in {inert(str(workspace.root))}", "begin one: agentfs run GOAL"]


def _are(total: int) -> str:
    return f"{'is' if total == 1 else 'are'} {counted(total, 'run')}"


def _json_lines(runs: list[Glance]) -> Iterable[str]:
    """Yield one list, a run to a line: quick to write, and to look through."""
    if not runs:
        return ["[]"]
    lines = [f"  {json_line(one.as_json())}," for one in runs]
    return ["[", *lines[:-1], lines[-1].removesuffix(","), "]"]


def _status_of_one(workspace: Workspace, arguments: Namespace) -> int:
    from agentfs.views.status import run_lines

    found = reading.read_run(workspace.find_run(arguments.run), workspace)
    page = reading.glance_of(found).as_json()
    plan = reading.plan_page(found)
    page["by_step"] = [_step_page(step) for step in [*plan["steps"], *plan["left"]] if "id" in step]
    if arguments.json:
        return print_lines([json_text(page)])
    print_lines([*run_lines(page, width(), colours=colours()), *_what_next(found, page)])
    return tell_broken(found)


def _step_page(step: dict[str, Any]) -> dict[str, Any]:
    said = {"id": step["id"], "state": step["state"], "why": step["because"], "attempt": step["attempt"]}
    return {**said, "left_in": step.get("left_in")}


def _what_next(found: reading.Reading, page: dict[str, Any]) -> list[str]:
    """Return what a person can do about a run that is not over, and who drives it."""
    if page["outcome"] is not None:
        return [f"see it: agentfs show {page['run']}"]
    if page["driven"]:
        return ["it is being driven now"]
    from agentfs.views.closing import NOTHING_DRIVES, what_to_do, who_goes_on

    steps = what_to_do(found.folder, found.state) if found.state else []
    return [*steps, who_goes_on(page["run"], found.folder.parents[2], NOTHING_DRIVES)]

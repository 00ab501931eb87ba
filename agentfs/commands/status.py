"""`status`: what the runs of a workspace are doing, or one run step by step. Reads only.

Of ten thousand runs that have ended, only those that get a line are read.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentfs.commands.common import colours, here, print_json, print_lines, report_unreadable, width
from agentfs.core import paths
from agentfs.core.text import (
    NOT_DRIVEN,
    Cell,
    ago,
    columns,
    counts_words,
    first_line,
    inert,
    json_line,
    left_words,
    mark_of,
    mark_of_run,
    plural,
    shown_run_state,
    state_and_why,
    table,
    wrap_line,
    wrong_first,
)
from agentfs.errors import UserError
from agentfs.storage.workspace import Workspace
from agentfs.ui import reading
from agentfs.ui.reading import ENDS, Glance, Listing, list_runs, moment_of, time_of

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

    from agentfs.ui.screen import Screen, can_draw

    if arguments.json or arguments.run:
        raise UserError("--watch shows the table of runs: leave out RUN and --json")
    if not can_draw(sys.stderr, os.environ.get("TERM", "")):
        raise UserError("--watch needs a terminal (agentfs status prints the table once)")
    enough = threading.Event()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if number := getattr(signal, name, None):
            signal.signal(number, lambda *_: enough.set())
    screen = Screen(sys.stderr, lambda look: [*_lines_of_all(workspace, arguments, look.width, colours=look.colours)])
    screen.start()
    enough.wait()
    screen.close(keep=True)
    return 0


def _lines_of_all(workspace: Workspace, arguments: Namespace, columns: int | None, *, colours: bool) -> Iterable[str]:
    since, states = moment_of(arguments, "since"), frozenset(arguments.state or ())
    found = list_runs(workspace.runs)
    over = list(_over(found, since, states))
    more = 0 if arguments.all or arguments.json or since else max(0, len(over) - NEWEST)
    runs = [*_glances(workspace, found.open, over[: len(over) - more], states)]
    runs.sort(key=lambda one: (one.at, one.run), reverse=True)
    runs.sort(key=lambda one: _FIRST.get(one.state, 3))
    runs = [replace(one, parent=reading.parent_of(workspace.runs / one.run)) if one.outcome else one for one in runs]
    if arguments.json:
        return _json_lines(runs)
    if not runs:
        return _nothing(workspace, found)
    lines = runs_table([*as_tree(runs)], datetime.now(UTC), columns, colours=colours)
    lines += (f"place {line}" for line in reading.RunScanner(workspace).slots_in_use(runs))
    if more:
        lines.append(f"… and {plural(more, 'older run')} that ended (agentfs status --all)")
    return lines


def as_tree(runs: Sequence[Glance]) -> Iterator[dict[str, Any]]:
    """Yield runs as JSON, each with those in it right below, and how deep that is: the first leads its tree."""
    above = {one.run: one.parent for one in runs}
    below: dict[str | None, list[Glance]] = {}
    for one in runs:
        below.setdefault(one.parent if one.parent in above else None, []).append(one)

    def branch(one: Glance, depth: int) -> Iterator[dict[str, Any]]:
        yield {**one.as_json(), "depth": depth}
        for child in below.get(one.run, ()):
            yield from branch(child, depth + 1)

    roots = dict.fromkeys(_root(one.run, above) for one in runs)
    by_run = {one.run: one for one in runs}
    for root in roots:
        yield from branch(by_run[root], 0)


def _root(run: str, above: Mapping[str, str | None]) -> str:
    for _ in range(len(above)):
        if (parent := above[run]) is None or parent not in above:
            break
        run = parent
    return run


def _over(found: Listing, since: datetime | None, states: frozenset[str]) -> Iterable[str | Glance]:
    """Yield the ended runs that are asked for, newest first; they are read only if that decides it."""
    if states and not states & set(ENDS):
        return
    for written, folder in found.ended:
        if since and written < since.timestamp():
            return  # an outcome names no later moment than that in which it was written
        if not since and not states:
            yield folder
            continue
        end = reading.ended(folder)
        if end is None:
            yield folder  # it does not read: shown with what is wrong
        elif (not states or end.state in states) and not (since and (moment := time_of(end.at)) and moment < since):
            yield end


def _glances(
    workspace: Workspace, open_runs: Iterable[Path], over: Iterable[str | Glance], states: frozenset[str]
) -> Iterable[Glance]:
    """Yield what is shown of each run."""
    scanner = reading.RunScanner(workspace)
    if not states or states - set(ENDS):
        yield from (
            seen for folder in open_runs if (seen := scanner.glance(folder)).state in (states or (seen.state,))
        )
    for one in over:
        seen = one if isinstance(one, Glance) else scanner.glance(Path(one))
        if not states or seen.state in states:
            yield seen


def _nothing(workspace: Workspace, found: Listing) -> list[str]:
    where, total = inert(str(workspace.root)), len(found.open) + len(found.ended)
    if total:
        return [f"none of the {plural(total, 'run')} in {where} matches (agentfs status --all lists them)"]
    return [f"no runs yet in {where}", "start one: agentfs run GOAL"]


def _json_lines(runs: list[Glance]) -> Iterable[str]:
    """Yield one list, a run to a line: quick to write, and to look through."""
    if not runs:
        return ["[]"]
    lines = [f"  {json_line(one.as_json())}," for one in runs]
    return ["[", *lines[:-1], lines[-1].removesuffix(","), "]"]


def _status_of_one(workspace: Workspace, arguments: Namespace) -> int:
    found = reading.read_run(workspace.find_run(arguments.run), workspace)
    plan = reading.plan_page(found, workspace)
    page = {**reading.glance_of(found).as_json(), "why": plan["why"]}
    fields = {"id": "id", "state": "state", "why": "because", "attempt": "attempt"}
    page["by_step"] = [
        {**{name: step[key] for name, key in fields.items()}, "left_in": step.get("left_in")}
        for step in [*plan["steps"], *plan["left"]]
        if "id" in step
    ]
    if arguments.json:
        return print_json(page)
    below = runs_below(found.folder, workspace, width(), colours=colours())
    print_lines([*run_lines(page, width(), colours=colours()), *below, *_what_next(found, page)])
    return report_unreadable(found)


def runs_below(folder: Path, workspace: Workspace, columns: int | None, *, colours: bool) -> list[str]:
    """Return a table of the runs that are steps of a run, and of those that are steps of them."""
    scanner, found, seen = reading.RunScanner(workspace), [], {paths.run_id(folder)}
    pending = [folder]
    while pending:
        inside = pending.pop(0)
        for run in reading.children_in(inside):
            if run not in seen and (workspace.runs / run / paths.RUN).is_file():
                seen.add(run)
                pending.append(workspace.runs / run)
                parent = paths.run_id(inside)
                found.append(replace(scanner.glance(workspace.runs / run), parent=parent))
    return runs_table([*as_tree(found)], datetime.now(UTC), columns, colours=colours) if found else []


def _what_next(found: reading.Reading, page: dict[str, Any]) -> list[str]:
    """Return what a person can do about a run, and who drives it."""
    from agentfs.core.attention import places_in_use

    if page["outcome"] is not None:
        return [f"see it: agentfs show {page['run']}"]
    if page["driven"]:
        used = places_in_use(found.state) if found.state else ()
        return [*(f"at {one.in_words()}" for one in used), "it is being driven now"]
    from agentfs.engine.report import NOTHING_DRIVES, what_to_do, who_goes_on

    steps = what_to_do(found.folder, found.state) if found.state else []
    return [*steps, who_goes_on(page["run"], found.folder.parents[2], NOTHING_DRIVES)]


# ── what it prints ────────────────────────────────────────────────────────────────────────────────────────


MOST_WAYS = 3  # that are listed below a run


def runs_table(runs: Sequence[dict[str, Any]], now: datetime, width: int | None, *, colours: bool) -> list[str]:
    """Return a heading and a line per run; below one that waits for a person, what to type."""
    heading: list[Cell] = [(word, None) for word in ("RUN", "STATE", "STEPS", "WHEN", "WHY")]
    rows = [heading, *(_run_row(run, now) for run in runs)]
    first, *lines = table(rows, width, colours=colours)
    return [first, *(part for run, line in zip(runs, lines, strict=True) for part in (line, *_ways(run, width)))]


def _ways(run: dict[str, Any], width: int | None) -> list[str]:
    """Return the commands that go on with a run."""
    ways = run.get("ways") or []
    if len(ways) > MOST_WAYS:
        ways = [*ways[: MOST_WAYS - 1], f"agentfs status {run['run']}"]  # it lists them all
    return [line for way in ways for line in command_lines(inert(way), width)]


def command_lines(command: str, width: int | None) -> list[str]:
    """Return a command as indented lines that a shell reads as one."""
    indent, more = "  ", "      "
    if width is None or columns(command) + len(indent) <= width:
        return [f"{indent}{command}"]
    sign = " \\" if command.startswith("agentfs ") else ""
    first, *rest = wrap_line(command, max(1, width - len(more) - len(sign)))
    parts = [f"{indent}{first}", *(f"{more}{part}" for part in rest)]
    return [*(f"{part}{sign}" for part in parts[:-1]), parts[-1]]


def _run_row(run: dict[str, Any], now: datetime) -> list[Cell]:
    steps = run["steps"]
    return [
        ("  " * run.get("depth", 0) + run["run"], None),
        (shown_run_state(run), mark_of_run("paused" if shown_run_state(run) == NOT_DRIVEN else run["state"]).colour),
        (f"{steps['done']}/{steps['total']}", None),
        (moment(run["at"], now), None),
        (first_line(run["why"]), None),
    ]


def moment(timestamp: str, now: datetime) -> str:
    """Return how long ago something was; empty if that is not known."""
    when = time_of(timestamp)
    return ago((now - when).total_seconds()) if when else ""


def run_lines(page: dict[str, Any], width: int | None, *, colours: bool) -> list[str]:
    """Return each step of a run with its state, and why."""
    rows: list[list[Cell]] = []
    for step in wrong_first(page["by_step"], lambda step: str(step["state"])):
        mark = mark_of(step["state"])
        rows.append(
            [
                (mark.sign, mark.colour),
                (first_line(step["id"]), None),
                (step["state"], mark.colour),
                (f"{first_line(step['why'])}{left_words(step['left_in'])}", None),
            ]
        )
    heading = f"{page['run']}: {state_and_why(shown_run_state(page), counts_words(page['steps']))}"
    room = None if width is None else width - 2
    lines = [heading, *(f"  {line}" for line in table(rows, room, colours=colours, wrap=True))]
    return lines if page["outcome"] is None and page["state"] != "running" else [*lines, first_line(page["why"])]

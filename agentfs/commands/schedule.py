"""`schedule`: the goals in schedules/, when each ran last and runs next, and why a time was left out. Reads only."""

from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentfs.commands.check import Surroundings, surroundings, verdict
from agentfs.commands.common import colours, here, print_json, print_lines, say, width
from agentfs.core.schedule import FIELDS, FOLDER, ScheduledRun
from agentfs.core.table import Cell, table
from agentfs.core.text import inert
from agentfs.daemon.schedules import RunsOfSchedules, due_now, fields_in, read_file, schedule_names
from agentfs.storage.clock import format_moment
from agentfs.storage.locks import is_watched

_SAID = ("skipped", "missed", "queued", "new", "due")


def schedule(arguments: Namespace) -> int:
    """`agentfs schedule`"""
    workspace, now = here(arguments), datetime.now(UTC)
    runs = RunsOfSchedules(workspace.runs)
    names = schedule_names(workspace.root)
    around = surroundings(workspace.root) if names else None
    pages = [_page(name, now, runs, around) for name in names if around]
    if arguments.json:
        print_json(pages)
    elif pages:
        print_lines(table([_HEAD, *(_row(page) for page in pages)], width(), colours=colours(), wrap=True))
    else:
        say(f'there is no schedule: a goal in {FOLDER}/ with `schedule: "0 3 * * *"` is one')
    if pages and not is_watched(workspace.root):
        say("nothing starts them now: `agentfs watch` does")
    return 2 if any(page["problems"] for page in pages) else 0


def _page(name: str, now: datetime, runs: RunsOfSchedules, around: Surroundings) -> dict[str, Any]:
    try:
        file = read_file(around.root, name)
    except OSError as error:
        return _unreadable(name, f"{FOLDER}/{name} cannot be read: {error.strerror}")
    newest, began = due_now(file, now, runs), runs.of(file)
    following = file.schedule.next(now) if file.schedule else None
    judged = verdict(file.path, file.shown, around)
    return {
        "name": file.name,
        "file": file.shown,
        **{one: getattr(fields_in(file), one) for one in FIELDS},
        "last": _last(began[0]) if began else None,
        "next": format_moment(following) if following else None,
        "newest": {
            "time": format_moment(newest.time) if newest.time else None,
            "what": newest.word,
            "why": newest.why,
        },
        "problems": [one.shown(judged.shown) for one in judged.problems],
    }


def _unreadable(name: str, words: str) -> dict[str, Any]:
    page: dict[str, Any] = {"name": Path(name).stem, "file": f"{FOLDER}/{name}", **dict.fromkeys(FIELDS)}
    return {**page, "last": None, "next": None, "newest": None, "problems": [words]}


def _last(run: ScheduledRun) -> dict[str, Any]:
    ended = format_moment(run.ended) if run.ended else None
    return {
        "run": run.run,
        "due": format_moment(run.due),
        "started_at": format_moment(run.started),
        "ended_at": ended,
    }


# ── for people ────────────────────────────────────────────────────────────────────────────────────────────


_HEAD: list[Cell] = [(word, None) for word in ("SCHEDULE", "TIMES", "LAST", "NEXT", "WHY")]


def _row(page: dict[str, Any]) -> list[Cell]:
    last, newest = page["last"], page["newest"] or {}
    ran = f"{_local(last['due'])}{'' if last['ended_at'] else ', under way'}" if last else "never"
    why = page["problems"][0] if page["problems"] else ""
    if not why and newest.get("what") in _SAID:
        reason = f": {newest['why']}" if newest["why"] else ""
        why = f"{_local(newest['time'])} {_WORDS.get(newest['what'], newest['what'])}{reason}"
    times = f"{page['schedule'] or ''} {page['timezone'] or ''}".strip()
    cells = (page["name"], times, ran, _local(page["next"]) if page["next"] else "", why)
    return [(inert(text), None) for text in cells]


_WORDS = {"new": "does not count"}


def _local(stamp: str) -> str:
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")

"""`forget`: remove the files of runs that have ended. Chooses and asks; `agentfs.ledger.forget` does it."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agentfs.commands.common import colours, here, print_lines, say, short_path, width
from agentfs.commands.status import moment
from agentfs.core import paths
from agentfs.core.table import Cell, mark_of_run, table
from agentfs.core.text import inert, json_text, plural, size
from agentfs.daemon.schedules import why_needed
from agentfs.errors import UserError
from agentfs.ledger.forget import Forgetting, Forgotten, Kept, measure
from agentfs.storage.locks import is_driven
from agentfs.storage.workspace import Workspace
from agentfs.ui import reading
from agentfs.ui.reading import list_runs, moment_of, time_of

WAITING = 3  # the exit code that says: a person has to answer
GONE_FOR_GOOD = (
    "logs, files/ and what you put there and did not commit are gone for good; the rest stays in the ledger"
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run to be forgotten."""

    folder: Path
    state: str | None  # None: its outcome does not read
    at: str
    bytes: int

    def as_json(self) -> dict[str, Any]:
        return {"run": paths.run_id(self.folder), "state": self.state, "at": self.at, "bytes": self.bytes}


def forget(arguments: Namespace) -> int:
    """`agentfs forget RUN…` and `agentfs forget --older-than AGE --state STATE --name PATTERN`"""
    workspace = here(arguments)
    named = _is_named(arguments)
    listed = _find_named(workspace, arguments.runs) if named else _select(workspace, arguments)
    found, kept = _keep_for_schedules(listed)
    chosen, unmeasured = _measure(found)
    kept |= unmeasured
    if arguments.dry_run:
        return _report(arguments, workspace, chosen, Forgotten(kept=kept))
    forgetting = _forgetting(workspace)
    forgetting.finish()  # what one that was cut off has left
    if not chosen:
        return _report(arguments, workspace, [], Forgotten(kept=kept))
    if not (named or arguments.yes):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            say(f"{summary(_pages(chosen), 'would be forgotten')}: look with --dry-run, then say --yes")
            return WAITING
        if not _confirm(chosen):
            say("nothing was forgotten")
            return 0
    done = forgetting.forget([one.folder for one in chosen])
    done.kept.update(kept)
    return _report(arguments, workspace, [one for one in chosen if paths.run_id(one.folder) in set(done.gone)], done)


# ── which ─────────────────────────────────────────────────────────────────────────────────────────────────


def _is_named(arguments: Namespace) -> bool:
    """Whether the runs are named one by one; raises unless one of the two ways says which."""
    chooses = [arguments.older_than, arguments.state, arguments.name]
    if arguments.runs and any(chooses):
        raise UserError("name the runs, or choose them by --older-than, --state and --name: not both")
    if not arguments.runs and not any(chooses):
        raise UserError("say which runs: their names, or --older-than 30d, --state done, --name 'tidy*'")
    return bool(arguments.runs)


def _find_named(workspace: Workspace, texts: list[str]) -> list[tuple[Path, reading.Glance | None]]:
    """Return the runs with these names; raises, with all that is wrong, unless every one of them can be forgotten."""
    folders = list(dict.fromkeys(workspace.find_run(text) for text in texts))
    if trouble := [words for folder in folders if (words := _refusal(folder))]:
        raise UserError("\n".join([*trouble, "nothing was forgotten"] if len(folders) > 1 else trouble))
    return [(folder, reading.ended(folder)) for folder in folders]


def _refusal(folder: Path) -> str | None:
    run = paths.run_id(folder)
    if not (folder / paths.OUTCOME).exists():
        return f"{run} has not ended: end it first (agentfs cancel {run})"
    if is_driven(folder):
        return f"{run} is being driven by another agentfs: wait until it has let go of it"
    return None


def _select(workspace: Workspace, arguments: Namespace) -> list[tuple[Path, reading.Glance | None]]:
    """Return the runs that have ended and match every option that was given."""
    before, states, pattern = moment_of(arguments, "older-than"), arguments.state, arguments.name
    found: list[tuple[Path, reading.Glance | None]] = []
    for _, folder in list_runs(workspace.runs).ended:
        run = paths.run_id(folder)
        if pattern and not (fnmatchcase(run, pattern) or fnmatchcase(run.rpartition("/")[2], pattern)):
            continue
        end = reading.ended(folder)  # what it says counts, not when the file was copied here
        if end is None or (states and end.state not in states):
            continue
        if before is None or ((moment := time_of(end.at)) is not None and moment < before):
            found.append((Path(folder), end))
    return found


def _keep_for_schedules(
    found: list[tuple[Path, reading.Glance | None]],
) -> tuple[list[tuple[Path, reading.Glance | None]], dict[str, str]]:
    """Return the runs that may go, and why others stay: without its run, a time of a schedule would be due again."""
    now, kept = datetime.now(UTC), {}
    for folder, _ in found:
        if why := why_needed(folder, now):
            kept[paths.run_id(folder)] = why
    return [one for one in found if paths.run_id(one[0]) not in kept], kept


def _measure(found: list[tuple[Path, reading.Glance | None]]) -> tuple[list[Chosen], dict[str, str]]:
    chosen, kept = [], {}
    for folder, end in found:
        try:
            chosen.append(Chosen(folder, end.state if end else None, end.at if end else "", measure(folder)))
        except Kept as why:
            kept[paths.run_id(folder)] = str(why)
        except OSError as error:
            kept[paths.run_id(folder)] = f"{error.strerror} ({error.filename})"
    return chosen, kept


# ── forget them ───────────────────────────────────────────────────────────────────────────────────────────


def _confirm(chosen: list[Chosen]) -> bool:
    """Ask on the terminal; only a plain yes is one."""
    for line in forget_table(_pages(chosen), datetime.now(UTC), width(sys.stderr), colours=False):
        say(line)
    say(GONE_FOR_GOOD)
    print(f"{summary(_pages(chosen), 'would be forgotten')}. Forget? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _forgetting(workspace: Workspace) -> Forgetting:
    from agentfs.ledger import Ledger, LedgerError, person

    logs = reading.settings_of(workspace)[0].ledger.commit_logs
    try:
        ledger = Ledger.create(workspace.runs)
    except LedgerError as error:
        raise UserError(str(error)) from None
    if trouble := ledger.trouble():
        raise UserError(f"nothing was forgotten: {trouble}")
    return Forgetting(workspace.runs, ledger, person(workspace.runs), logs=logs, say=say)


def _report(arguments: Namespace, workspace: Workspace, gone: list[Chosen], done: Forgotten) -> int:
    pages = _pages(gone)
    if arguments.json:
        page = {
            "dry_run": arguments.dry_run,
            "forgotten": pages,
            "kept": [{"run": run, "why": why} for run, why in done.kept.items()],
            "bytes": sum(one.bytes for one in gone),
            "commits": done.commits,
        }
        print_lines([json_text(page)])
    else:
        print_lines(_lines(arguments, workspace, pages, done))
    for run, why in done.kept.items():
        say(f"{run} is kept: {inert(why)}")
    if done.later:
        say(f"{done.later}; the next `agentfs forget`, `run` or `watch` completes that")
    return 2 if done.kept else 0


def _lines(arguments: Namespace, workspace: Workspace, pages: list[dict[str, Any]], done: Forgotten) -> list[str]:
    if not pages:
        return [] if done.kept else ["no run that has ended matches"]
    most = len(pages) if arguments.dry_run else 20
    lines = forget_table(pages, datetime.now(UTC), width(), colours=colours(), most=most)
    if arguments.dry_run:
        return [*lines, f"{summary(pages, 'would be forgotten')}; nothing was removed", GONE_FOR_GOOD]
    return [*lines, summary(pages, "forgotten"), *again(pages, short_path(workspace.runs), done.commits)]


def _pages(chosen: list[Chosen]) -> list[dict[str, Any]]:
    return [one.as_json() for one in chosen]


# ── what it prints ────────────────────────────────────────────────────────────────────────────────────────


MOST = 20


def forget_table(
    runs: Sequence[dict[str, Any]], now: datetime, width: int | None, *, colours: bool, most: int = MOST
) -> list[str]:
    """Return a line per run, `most` of them at most."""
    heading: list[Cell] = [(word, None) for word in ("RUN", "STATE", "ENDED", "SIZE")]
    rows = [heading, *(_row(run, now) for run in runs[:most])]
    lines = table(rows, width, colours=colours)
    return lines if len(runs) <= most else [*lines, f"… and {len(runs) - most} more"]


def _row(run: dict[str, Any], now: datetime) -> list[Cell]:
    state = run["state"] or "unreadable"
    return [
        (run["run"], None),
        (state, mark_of_run(state).colour),
        (moment(run["at"], now), None),
        (size(run["bytes"]), None),
    ]


def summary(runs: Sequence[dict[str, Any]], words: str) -> str:
    """Return `3 runs WORDS, 120 kB`."""
    return f"{plural(len(runs), 'run')} {words}, {size(sum(run['bytes'] for run in runs))}"


def again(runs: Sequence[dict[str, Any]], where: str, commits: Sequence[str]) -> list[str]:
    """Return the git commands that show what was forgotten and bring it back."""
    run, words = (runs[0]["run"], "what it was: ") if len(runs) == 1 else ("RUN", "what they were:")
    lines = [f"{words}  git -C {where} log -- {run}"]
    if commits:
        commit = commits[-1][:10] if len(commits) == 1 else "COMMIT"
        lines.append(f"have it back:{' ' * (len(words) - 11)}git -C {where} checkout {commit}^ -- {run}")
    return lines

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
from agentfs.core.text import Cell, inert, json_text, mark_of_run, plural, size, table
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

    @property
    def run(self) -> str:
        return paths.run_id(self.folder)

    def as_json(self) -> dict[str, Any]:
        return {"run": self.run, "state": self.state, "at": self.at, "bytes": self.bytes}


def forget(arguments: Namespace) -> int:
    """`agentfs forget RUN…` and `agentfs forget --older-than AGE --state STATE --name PATTERN`"""
    workspace = here(arguments)
    named = _is_named(arguments)
    chosen, kept = _choose(_find_named(workspace, arguments.runs) if named else _select(workspace, arguments))
    if arguments.dry_run:
        return _report(arguments, workspace, chosen, Forgotten(kept=kept))
    forgetting = _forgetting(workspace)
    forgetting.finish()  # what one that was cut off has left
    if not chosen:
        return _report(arguments, workspace, [], Forgotten(kept=kept))
    if not (named or arguments.yes):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            say(f"{_summary(chosen, 'would be forgotten')}: look with --dry-run, then say --yes")
            return WAITING
        if not _confirm(chosen):
            say("nothing was forgotten")
            return 0
    done = forgetting.forget([one.folder for one in chosen])
    done.kept.update(kept)
    gone = set(done.gone)
    return _report(arguments, workspace, [one for one in chosen if one.run in gone], done)


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


def _choose(found: list[tuple[Path, reading.Glance | None]]) -> tuple[list[Chosen], dict[str, str]]:
    """Return the runs that may go, and why others stay: without its run, a time of a schedule would be due again."""
    now, chosen, kept = datetime.now(UTC), [], {}
    for folder, end in found:
        try:
            if why := why_needed(folder, now):
                raise Kept(why)
            chosen.append(Chosen(folder, end.state if end else None, end.at if end else "", measure(folder)))
        except Kept as why_kept:
            kept[paths.run_id(folder)] = str(why_kept)
        except OSError as error:
            kept[paths.run_id(folder)] = f"{error.strerror} ({error.filename})"
    return chosen, kept


# ── forget them ───────────────────────────────────────────────────────────────────────────────────────────


def _confirm(chosen: list[Chosen]) -> bool:
    """Ask on the terminal; only a plain yes is one."""
    for line in _table(chosen, width(sys.stderr), colours=False):
        say(line)
    say(GONE_FOR_GOOD)
    print(f"{_summary(chosen, 'would be forgotten')}. Forget? [y/N] ", end="", file=sys.stderr, flush=True)
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
    if arguments.json:
        page = {
            "dry_run": arguments.dry_run,
            "forgotten": [one.as_json() for one in gone],
            "kept": [{"run": run, "why": why} for run, why in done.kept.items()],
            "bytes": sum(one.bytes for one in gone),
            "commits": done.commits,
        }
        print_lines([json_text(page)])
    elif gone or not done.kept:
        print_lines(_lines(gone, short_path(workspace.runs), done.commits, dry_run=arguments.dry_run))
    for run, why in done.kept.items():
        say(f"{run} is kept: {inert(why)}")
    if done.later:
        say(f"{done.later}; the next `agentfs forget`, `run` or `watch` completes that")
    return 2 if done.kept else 0


# ── what it prints ────────────────────────────────────────────────────────────────────────────────────────


def _lines(gone: list[Chosen], runs: str, commits: Sequence[str], *, dry_run: bool) -> list[str]:
    if not gone:
        return ["no run that has ended matches"]
    if dry_run:
        lines = _table(gone, width(), colours=colours(), most=len(gone))
        return [*lines, f"{_summary(gone, 'would be forgotten')}; nothing was removed", GONE_FOR_GOOD]
    return [*_table(gone, width(), colours=colours()), _summary(gone, "forgotten"), *_again(gone, runs, commits)]


def _table(chosen: Sequence[Chosen], width: int | None, *, colours: bool, most: int = 20) -> list[str]:
    """Return a line per run, `most` of them at most."""
    now = datetime.now(UTC)
    rows: list[list[Cell]] = [[(word, None) for word in ("RUN", "STATE", "ENDED", "SIZE")]]
    for one in chosen[:most]:
        state = one.state or "unreadable"
        colour = mark_of_run(state).colour
        rows.append([(one.run, None), (state, colour), (moment(one.at, now), None), (size(one.bytes), None)])
    lines = table(rows, width, colours=colours)
    return lines if len(chosen) <= most else [*lines, f"… and {len(chosen) - most} more"]


def _summary(chosen: Sequence[Chosen], words: str) -> str:
    """Return `3 runs WORDS, 120 kB`."""
    return f"{plural(len(chosen), 'run')} {words}, {size(sum(one.bytes for one in chosen))}"


def _again(gone: Sequence[Chosen], where: str, commits: Sequence[str]) -> list[str]:
    """Return the git commands that show what was forgotten and bring it back."""
    run, words = (gone[0].run, "what it was: ") if len(gone) == 1 else ("RUN", "what they were:")
    lines = [f"{words}  git -C {where} log -- {run}"]
    if commits:
        commit = commits[-1][:10] if len(commits) == 1 else "COMMIT"
        lines.append(f"have it back:{' ' * (len(words) - 11)}git -C {where} checkout {commit}^ -- {run}")
    return lines

"""What `forget` prints: which runs go, how much room that makes, and how to see them again. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from agentfs.views.marks import RUN_COLOURS
from agentfs.views.status import moment
from agentfs.views.table import Cell, table
from agentfs.views.words import counted, size

MOST = 20


def forget_table(
    runs: Sequence[dict[str, Any]], now: datetime, width: int | None, *, colours: bool, most: int = MOST
) -> list[str]:
    """Return a line per run, as far as they are worth reading."""
    heading: list[Cell] = [(word, None) for word in ("RUN", "STATE", "ENDED", "SIZE")]
    rows = [heading, *(_row(run, now) for run in runs[:most])]
    lines = table(rows, width, colours=colours)
    return lines if len(runs) <= most else [*lines, f"… and {len(runs) - most} more"]


def _row(run: dict[str, Any], now: datetime) -> list[Cell]:
    state = run["state"] or "unreadable"
    return [
        (run["run"], None),
        (state, RUN_COLOURS.get(state)),
        (moment(run["at"], now), None),
        (size(run["bytes"]), None),
    ]


def summary(runs: Sequence[dict[str, Any]], words: str) -> str:
    """Return `3 runs WORDS, 120 kB`."""
    return f"{counted(len(runs), 'run')} {words}, {size(sum(run['bytes'] for run in runs))}"


def again(runs: Sequence[dict[str, Any]], where: str, commits: Sequence[str]) -> list[str]:
    """Return how to see in git what is no longer on disk, and how to have it back."""
    run, words = (runs[0]["run"], "what it was: ") if len(runs) == 1 else ("RUN", "what they were:")
    lines = [f"{words}  git -C {where} log -- {run}"]
    if commits:
        commit = commits[-1][:10] if len(commits) == 1 else "COMMIT"
        lines.append(f"have it back:{' ' * (len(words) - 11)}git -C {where} checkout {commit}^ -- {run}")
    return lines

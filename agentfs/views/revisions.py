"""What `log` prints: every revision with who, why, what changed, its commit, and the git commands to see it."""

import shlex
from collections.abc import Iterator
from typing import Any

from agentfs.views.words import first_line, inert

CHANGES = 12


def log_lines(page: dict[str, Any], runs: str) -> list[str]:
    """Return a run's revisions and outcomes, the newest last."""
    git = f"git -C {inert(shlex.quote(runs))}"
    plan = f"{page['run']}/plan.json"
    lines: list[str] = []
    before: str | None = None
    for entry in page["entries"]:
        changed = before if entry["kind"] == "revision" else None  # an outcome leaves the plan as it was
        lines += [*_entry(entry), *_commands(git, plan, entry["commit"], changed), ""]
        before = entry["commit"] or before
    if page["entries"]:
        lines.append(f"who wrote each line:  {git} blame -- {plan}")
        lines.append(f"all of it:            {git} log -- {page['run']}")
    return lines


def entry_line(entry: dict[str, Any]) -> str:
    """Return a revision, or an outcome, in one line."""
    at = str(entry.get("at"))[11:19]
    if entry["kind"] == "outcome":
        return inert(f"{at} outcome: {first_line(str(entry['detail']))}")
    first = entry.get("trigger") == "first"
    detail = "the first plan" if first else first_line(str(entry.get("detail")))
    return inert(f"{at} revision {entry.get('revision')}: {detail}, by {_who(entry['by'])}")


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    if entry["kind"] == "outcome":
        yield f"outcome: {first_line(str(entry['detail']))}"
        yield f"  when      {entry['at']}"
        return
    detail = "the first plan" if entry["trigger"] == "first" else first_line(str(entry["detail"]))
    yield f"revision {entry['revision']}: {detail}"
    yield f"  when      {entry['at']}"
    yield f"  who       {_who(entry['by'])}"
    yield f"  trigger   {entry['trigger']}" + (f" ({entry['step']})" if entry["step"] else "")
    yield from _listed(
        "changes", [f"{change['step'] or 'the plan'}: {change['what']}" for change in entry["changes"]]
    )
    yield from _listed("evidence", entry["evidence"])


def _who(by: dict[str, Any]) -> str:
    model = f", model {by['model']}" if by.get("model") else ""
    name = "" if by["name"] in ("", by["role"]) else f": {by['name']}"
    return first_line(f"{by['role']}{name}{model}")


def _listed(name: str, words: list[str]) -> Iterator[str]:
    for place, word in enumerate(words[:CHANGES]):
        yield f"  {name if not place else '':<9} {first_line(word)}"
    if len(words) > CHANGES:
        yield f"            … and {len(words) - CHANGES} more"


def _commands(git: str, plan: str, commit: str | None, before: str | None) -> Iterator[str]:
    if commit is None:
        yield "  commit    none yet: it follows when the run is driven"
        return
    yield f"  commit    {commit}"
    yield f"  see it    {git} show {commit[:12]}"
    if before:
        yield f"            {git} diff {before[:12]} {commit[:12]} -- {plan}"

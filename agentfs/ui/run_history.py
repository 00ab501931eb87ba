"""What a run's past says: revisions with their commits, plans compared, what it asked of models. Reads only."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.continuation import with_plan
from agentfs.core.costs import Asked, Conversation, asked_by, asked_in
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import run_id
from agentfs.core.plan_changes import difference, effects
from agentfs.core.plan_diff import effect_words, proposal_page
from agentfs.core.records import Plan, Revision
from agentfs.core.run_state import RunState
from agentfs.core.text import inert
from agentfs.errors import UserError
from agentfs.storage.clock import later
from agentfs.storage.files import read_lines, read_whole
from agentfs.ui.reading import Reading, names_of, plain_object, revision_numbers, time_of

# ── revisions and outcomes ────────────────────────────────────────────────────────────────────────────────


def entries_of(folder: Path, runs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return revisions and outcomes of a run, newest last, and what cannot be read."""
    from agentfs.ledger import Ledger, LedgerCommit, LedgerError

    revisions, trouble = _read_revisions(folder)
    commits: list[LedgerCommit] = []
    try:
        commits = Ledger(runs).history(run_id(folder))[::-1]
    except LedgerError as error:
        trouble.append(str(error))
    entries: list[dict[str, Any]] = []
    for commit in commits:
        numbers = [n for n in commit.trailers.get("Agentfs-Revision", []) if n in revisions]
        entries += [{**revisions.pop(number), "commit": commit.sha} for number in numbers]
        for words in commit.trailers.get("Agentfs-Outcome", []):
            status, detail = words.partition(" ")[0], commit.subject.partition(": ")[2]
            at = commit.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            entries.append({"kind": "outcome", "status": status, "detail": detail, "at": at, "commit": commit.sha})
    entries += [{**found, "commit": None} for found in revisions.values()]
    if not any(entry["kind"] == "outcome" for entry in entries[-1:]) and (pending := outcome_entry(folder)):
        entries.append({**pending, "commit": None})
    return entries, trouble


def _read_revisions(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the revisions by number, and the names of those that cannot be read."""
    from pydantic import ValidationError

    found: dict[str, dict[str, Any]] = {}
    trouble: list[str] = []
    for number in revision_numbers(folder):
        path = folder / paths.REVISIONS / paths.revision_file(number)
        try:
            record = Revision.model_validate_json(read_whole(path))
        except (OSError, ValidationError):
            trouble.append(f"{path} cannot be read: restore it from the ledger")
            continue
        found[str(number)] = {"kind": "revision", **record.model_dump(mode="json", exclude={"format"})}
    return found, trouble


def outcome_entry(folder: Path) -> dict[str, Any] | None:
    """Return the outcome in a run's folder."""
    found = plain_object(folder / paths.OUTCOME)
    if not found:
        return None
    status, at = str(found.get("status")), str(found.get("ended_at"))
    return {"kind": "outcome", "status": status, "detail": f"{status}, {found.get('summary')}", "at": at}


# ── two plans ─────────────────────────────────────────────────────────────────────────────────────────────


Number = int | None  # of a revision; 0: nothing at all; None: plan.json as it is


def diff_page(found: Reading, state: RunState, first: Number, second: Number) -> dict[str, Any]:
    old, new = (plan_of(found, state, number) for number in (first, second))
    if new is None:
        raise UserError(f"there is nothing to compare revision {first} with")
    return compared_plans(found, state, (first, old), (second, new))


def compared_plans(
    found: Reading, state: RunState, before: tuple[Number, Plan | None], after: tuple[Number, Plan]
) -> dict[str, Any]:
    (first, old), (second, new) = before, after
    revision = next((one for one in state.facts.revisions if one.revision == second), None)
    return {
        "run": found.run,
        "from": first,
        "to": second,
        "by": {"role": revision.by.role, "name": revision.by.name, "detail": revision.detail} if revision else None,
        **asdict(difference(old, new)),
        "effects": [asdict(one) for one in effects(state.facts, state.means, new)],
    }


def plan_of(found: Reading, state: RunState, number: Number) -> Plan | None:
    """Return the plan of a revision, or the one in plan.json."""
    from pydantic import ValidationError

    if number == 0:
        return None
    if number is None:
        if state.facts.plan_file.plan is None:
            wrong = [problem.shown(paths.PLAN) for problem in state.facts.plan_file.problems]
            raise UserError("\n".join(["plan.json is not valid, so there is nothing to compare with:", *wrong]))
        return state.facts.plan_file.plan
    path: Path = found.folder / paths.REVISIONS / paths.revision_plan_file(number)
    try:
        return Plan.model_validate_json(read_whole(path))
    except (OSError, ValidationError):
        raise UserError(f"{inert(str(path))} cannot be read: restore it from the ledger") from None


def plan_consequences(state: RunState, source: bytes) -> dict[str, Any]:
    """Return how a plan differs from the last revision's, and what becomes of the steps once it is the next one."""
    plan = Plan.model_validate_json(source)
    facts = with_plan(replace(state.facts, outcome=None), plan, sha256_bytes(source))
    found = [asdict(one) for one in effects(facts, state.means, plan)]
    return {**asdict(difference(state.facts.plan, plan)), "effects": found, "means": effect_words(found)}


def waiting_answer(found: Reading, state: RunState) -> dict[str, Any] | None:
    """Return the planner's answer that waits for a person, and what it would change; None if there is none."""
    one, proposal = state.calls.unapplied, state.facts.proposal
    if one is None or proposal is None or proposal.call != one.number:
        return None
    return proposal_page(found.run, state, proposal)


# ── what was asked of models ──────────────────────────────────────────────────────────────────────────────


def conversations(folder: Path, *, below: bool = True) -> Iterator[Conversation]:
    """Yield everything a run asked of models: the planner's calls in order, then the steps.

    `below`: with what the runs have asked that were steps of it; in a sum of all runs, those count themselves.
    """
    yield from _calls(folder / paths.PLANNING)
    yield from _attempts(folder / paths.STEPS, below=below)


def _calls(planning: Path) -> Iterator[Conversation]:
    found = {parsed.call for name in names_of(planning) if (parsed := paths.parse_call_file(name))}
    for call in sorted(found):
        trigger = plain_object(planning / paths.call_file(call, "call")).get("trigger")
        judged = _read_asked(planning / paths.checks_log_file(call), planning / paths.call_file(call, "checks"))
        yield Conversation(judged, call=call, trigger="goal checks")
        asked = _read_asked(planning / paths.call_file(call, "log"), planning / paths.call_file(call, "answer"))
        yield Conversation(asked, call=call, trigger=trigger if isinstance(trigger, str) else None)


def _attempts(steps: Path, *, below: bool) -> Iterator[Conversation]:
    found = {(parsed.step, parsed.attempt) for name in names_of(steps) if (parsed := paths.parse_step_file(name))}
    for step, attempt in sorted(found):
        log = steps / paths.step_file(step, attempt, "log")
        asked = _read_asked(log, steps / paths.step_file(step, attempt, "result"), below=below)
        yield Conversation(asked, step=step, attempt=attempt)


def _read_asked(log: Path, record: Path, *, below: bool = True) -> tuple[Asked, ...]:
    """Return what a conversation asked, from its log; if that is gone, from the sum in its result."""
    found = plain_object(record)
    if found.get("child") and not below:
        return tuple(asked_in(read_lines(log)))
    is_elsewhere = found.get("child") or found.get("agent")  # its requests are in no log of ours
    if not is_elsewhere and (asked := tuple(asked_in(read_lines(log)))):
        return asked
    return tuple(asked_by(found.get("usage"), _end_of(found)))


def _end_of(record: Mapping[str, Any]) -> str | None:
    """Return when an attempt or a call ended, as its record says."""
    match record:
        case {"ended_at": str() as ended_at}:
            return ended_at
        case {"started_at": str() as began, "duration_s": int() | float() as took} if time_of(began):
            return later(began, took)
        case _:
            return None

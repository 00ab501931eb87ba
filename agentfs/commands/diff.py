"""`diff`: two revisions of a run's plan, compared by meaning. Reads only."""

import re
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentfs.commands.common import colours, here, print_lines, short_path
from agentfs.commands.reading import Reading, read_run
from agentfs.core import paths
from agentfs.core.attention import reason
from agentfs.core.hashing import sha256_bytes
from agentfs.core.plan_changes import difference, effects
from agentfs.core.plan_diff import diff_lines, proposal_lines, proposal_page, stat_line
from agentfs.core.records import Plan, Revision
from agentfs.core.run_state import RunState
from agentfs.core.text import first_line, inert, json_text
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.workspace import Workspace

_RANGE = re.compile(r"([0-9]{1,9})(\.\.([1-9][0-9]{0,8})?)?\Z")
Number = int | None  # of a revision; 0: nothing at all; None: plan.json as it is


def diff(arguments: Namespace) -> int:
    """`agentfs diff RUN [A[..B]]`"""
    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    state = found.planned()
    if arguments.question:
        return _question(arguments, found, state)
    first, second = _chosen(found.run, state, arguments.revisions)
    page = _page(found, state, first, second)
    if arguments.json:
        return print_lines([json_text(page)])
    if arguments.stat:
        return print_lines([f"{found.run}: {stat_line(page)}"])
    return print_lines([*diff_lines(page, colours=colours()), *_unrecorded(found, state, second)])


def _question(arguments: Namespace, found: Reading, state: RunState) -> int:
    """What the answer that waits would change."""
    if arguments.revisions:
        raise UserError("diff takes revisions, or --question")
    one, proposal = state.calls.unapplied, state.facts.proposal
    if one is None or proposal is None or proposal.call != one.number:
        raise UserError(f"{found.run} has no answer waiting: {first_line(reason(state))}")
    page = proposal_page(found.run, state, proposal)
    if arguments.json:
        return print_lines([json_text(page)])
    if arguments.stat:
        return print_lines([f"{found.run}: {stat_line(page)}"])
    return print_lines(proposal_lines(page, colours=colours()))


def _chosen(run: str, state: RunState, text: str | None) -> tuple[Number, Number]:
    """Return which two are meant."""
    last = len(state.facts.revisions)
    if text is None:
        return last - 1, last
    if not (match := _RANGE.match(text)):
        raise UserError(f"{inert(text)!r} names no revisions: write A or A..B, such as 1..{last}")
    first, second = int(match[1]), int(match[3]) if match[3] else None
    for number in (first, second):
        if number is not None and number > last:
            raise UserError(f"{run} has no revision {number} (it has 1 to {last})")
    return first, second


def _page(found: Reading, state: RunState, first: Number, second: Number) -> dict[str, Any]:
    old, new = (_plan(found, state, number) for number in (first, second))
    if new is None:
        raise UserError(f"there is nothing to compare revision {first} with")
    return _compared(found, state, (first, old), (second, new))


def _compared(
    found: Reading, state: RunState, before: tuple[Number, Plan | None], after: tuple[Number, Plan]
) -> dict[str, Any]:
    (first, old), (second, new) = before, after
    revision = _record(state, second)
    return {
        "run": found.run,
        "from": first,
        "to": second,
        "by": {"role": revision.by.role, "name": revision.by.name, "detail": revision.detail} if revision else None,
        **asdict(difference(old, new)),
        "effects": [asdict(one) for one in effects(state.facts, state.means, new)],
    }


def _record(state: RunState, number: Number) -> Revision | None:
    return next((one for one in state.facts.revisions if one.revision == number), None)


def _plan(found: Reading, state: RunState, number: Number) -> Plan | None:
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
        raise UserError(f"{short_path(path)} cannot be read: restore it from the ledger") from None


# ── two plans that git holds against each other ───────────────────────────────────────────────────────────


def between(path: Path, old: bytes, new: bytes, *, colours: bool) -> list[str]:
    """Return how two contents of a plan.json differ; raise if one is no plan, or the run does not read."""
    root = path.parents[3]
    found = read_run(path.parent, Workspace(root))
    state = found.planned()
    plans = [Plan.model_validate_json(source) if source else None for source in (old, new)]
    if plans[1] is None:
        return [f"{found.run}: plan.json is gone"]
    first, second = _numbers(state, sha256_bytes(old) if old else None, sha256_bytes(new))
    return diff_lines(_compared(found, state, (first, plans[0]), (second, plans[1])), colours=colours)


def _numbers(state: RunState, old: str | None, new: str) -> tuple[Number, Number]:
    """Return which revisions have these contents: two that follow each other, else the last; None: it is none."""
    held = {sha: [one.revision for one in state.facts.revisions if one.plan_sha256 == sha] for sha in (old, new)}
    before, after = [0] if old is None else held[old], held[new]
    pairs = [(one - 1, one) for one in after if one - 1 in before]
    return pairs[-1] if pairs else (before[-1] if before else None, after[-1] if after else None)


def _unrecorded(found: Reading, state: RunState, second: Number) -> list[str]:
    """Say that plan.json holds something that is no revision yet."""
    last = state.facts.revisions[-1]
    if second is None or state.facts.plan_file.sha256 == last.plan_sha256:
        return []
    return ["", f"plan.json has been edited since: agentfs diff {found.run} {last.revision}"]

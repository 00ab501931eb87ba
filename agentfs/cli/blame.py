"""`blame`: who set each field of a run's plan, in which revision, and why. Reads only."""

from argparse import Namespace
from typing import Any

from agentfs.cli.common import here
from agentfs.cli.look import colours, print_lines, width
from agentfs.cli.reading import read_run
from agentfs.core.commit_messages import reason_of
from agentfs.core.plan_changes import Origin
from agentfs.core.plan_changes import blame as origins_of
from agentfs.core.problems import did_you_mean
from agentfs.errors import UserError
from agentfs.history import PastPlans
from agentfs.views.blame import blame_lines
from agentfs.views.words import inert, json_text


def blame(arguments: Namespace) -> int:
    """`agentfs blame RUN [STEP]`"""
    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    if found.state is None:
        raise UserError(f"{found.run} does not read: {inert(found.broken[0])}")
    revisions = found.state.facts.revisions
    if not revisions:
        raise UserError(f"{found.run} has no revision yet: there is no plan")
    past = PastPlans(found.folder)
    origins = origins_of((revision, past.plan(revision.revision)) for revision in revisions)
    fields = [*map(_entry, origins)]
    if arguments.step is not None:
        fields = _of_step(fields, arguments.step, found.run)
    page = {"run": found.run, "revision": revisions[-1].revision, "fields": fields}
    unrecorded = found.state.facts.plan_file.sha256 != revisions[-1].plan_sha256
    if arguments.json:
        return print_lines([json_text(page)])
    return print_lines(blame_lines(page, width(), colours=colours(), edited=unrecorded))


def _entry(origin: Origin) -> dict[str, Any]:
    revision = origin.revision
    return {
        "step": origin.step,
        "field": origin.field,
        "by": revision.by.model_dump(mode="json"),
        "revision": revision.revision,
        "call": revision.call,
        "trigger": revision.trigger,
        "why": reason_of(revision),
        "detail": revision.detail,
        "at": revision.at,
    }


def _of_step(fields: list[dict[str, Any]], step: str, run: str) -> list[dict[str, Any]]:
    mine = [entry for entry in fields if entry["step"] == step]
    if not mine:
        known = [str(entry["step"]) for entry in fields if entry["step"]]
        fix = did_you_mean(step, known, f"`agentfs show {run}` lists its steps")
        raise UserError(f"the plan of {run} has no step {inert(step)!r} ({fix})")
    return mine

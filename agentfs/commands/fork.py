"""`restore` and `fork`: an earlier revision becomes the next one, or the first of a new run. No edit is lost."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentfs.commands.common import environment, print_json, print_lines, say
from agentfs.commands.editing import (
    OpenRun,
    changes_a_run,
    exchange_plan,
    named_run,
    open_run,
    reopen,
    revision_bytes,
    say_who_continues,
    validate_plan,
)
from agentfs.commands.reading import revision_numbers, run_id, settings_of
from agentfs.commands.resume import changed_tools, tools_of_today
from agentfs.core import paths
from agentfs.core.continuation import Carried, Choices, carried, takes_plan_along
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.plan_changes import difference, effects
from agentfs.core.plan_diff import changed_lines, effect_lines
from agentfs.core.records import Plan, Run
from agentfs.core.text import counted, inert
from agentfs.engine.forking import Fork, make
from agentfs.engine.means import has_model
from agentfs.errors import UserError
from agentfs.storage.displaced_plans import keep_beside
from agentfs.storage.files import listing, read_whole
from agentfs.storage.locks import is_driven


@changes_a_run
def restore(run: OpenRun, _: Namespace) -> None:
    """`agentfs restore RUN@REV`"""
    if run.revision is None:
        raise UserError(f"which revision? agentfs restore {run.run}@N (`agentfs log {run.run}` lists them)")
    source = revision_bytes(run.folder, run.run, run.revision)
    new = _with_status(run, source)
    plan = validate_plan(run.folder, run.workspace, new, f"revision {run.revision}")
    if not _put(run, new):
        say(f"{run.shown(paths.PLAN)} is as it was in revision {run.revision} already")
        return
    say(f"{run.shown(paths.PLAN)}: restored as it was in revision {run.revision}")
    _say_difference(run, plan)
    reopen(run)


def _with_status(run: OpenRun, source: bytes) -> bytes:
    """Return what to restore: steps and limits as they were. The switch stays as it is, unless it is off for good."""
    present = run.state.facts.plan
    if present is None or present.status == "cancelled":
        return source
    return source if _status(source) == present.status else set_value(source, "/status", present.status)


def _status(source: bytes) -> str:
    return Plan.model_validate_json(source).status


def _put(run: OpenRun, new: bytes) -> bool:
    """Exchange plan.json; return whether it changed. What was there and is in no revision is kept beside it."""
    kept: list[Path] = []

    def edit(present: bytes | None) -> bytes:
        while kept:
            kept.pop().unlink()  # of the last try: plan.json has changed since
        if present != new and (beside := _kept_beside(run, present)):
            kept.append(beside)
        return new

    try:
        changed = exchange_plan(run, edit)
    except UserError:
        for path in kept:
            path.unlink()
        raise
    for path in kept:
        say(f"{run.shown(path.name)}: what was in plan.json, and in no revision")
    return changed


def _kept_beside(run: OpenRun, present: bytes | None) -> Path | None:
    """Keep a plan.json that is in no revision yet, before anything takes its place."""
    revisions = run.folder / paths.REVISIONS
    recorded = (revisions / name for name in listing(revisions) if name.endswith(".plan.json"))
    if present is None or sha256_bytes(present) in {sha256_bytes(read_whole(path)) for path in recorded}:
        return None
    return keep_beside(run.folder, present)


def _say_difference(run: OpenRun, plan: Plan) -> None:
    """Say what changed by meaning, and what that does to work already done."""
    say("\n".join(changed_lines(asdict(difference(run.state.facts.plan, plan)), colours=False)))
    if run.real is None:
        after = open_run(run.workspace, run.folder).state
        say("\n".join(effect_lines([asdict(one) for one in effects(after.facts, after.means, plan)])))


# ── fork ──────────────────────────────────────────────────────────────────────────────────────────────────


def fork(arguments: Namespace) -> int:
    """`agentfs fork RUN[@REV] [--planner M] [--executor M] [--mode M] [--name NAME]`"""
    workspace, folder, revision = named_run(arguments)
    run = open_run(workspace, folder, revision)
    wanted = _fork(run, arguments)
    page = _fork_page(wanted, run)
    if arguments.dry_run:
        say("dry run: this is what it would do; nothing is written")
    else:
        page["run"] = run_id(make(wanted, workspace))
    _say_fork(page, run)
    for words in changed_tools(run.state.facts.settings, wanted.run):
        say(f"as agentfs.toml has it today: {words}")
    if arguments.json:
        print_json(page)
    elif page["run"]:
        print_lines([page["run"]])
    if page["run"]:
        say_who_continues(open_run(workspace, workspace.find_run(page["run"])))
    return 0


def _fork(run: OpenRun, arguments: Namespace) -> Fork:
    """Return the run to be made; what cannot go on in a new run is reported before anything is written."""
    facts = run.state.facts
    if facts.goal.problems:
        raise UserError(f"the goal of {run.run} is not valid: {inert(facts.goal.problems[0].message)} (fix it first)")
    recorded = revision_numbers(run.folder)
    if not recorded:
        raise UserError(f"{run.run} has no plan yet: there is nothing to fork")
    revision = run.revision or recorded[-1]
    source, begins = _begun(revision_bytes(run.folder, run.run, revision)), _begins(run)
    plan = validate_plan(run.folder, run.workspace, source, f"revision {revision}", begins)
    choices = Choices(arguments.planner, arguments.executor, arguments.mode)
    along = takes_plan_along(facts, plan, choices.mode)
    everything = tuple(step.id for step in plan.steps)
    return Fork(
        origin=run.folder,
        run=begins,
        source=paths.fork_source(run.run, revision),
        choices=choices,
        name=paths.run_name(arguments.name or run.folder.name),
        plan=json.loads(source) if along else None,
        carried=carried(facts, run.state.means, plan) if along else Carried({}, (), everything),
    )


def _begins(run: OpenRun) -> Run:
    """Return the settings of a new run: those of the other, with today's tools, and today's models if it had none."""
    settings, models = settings_of(run.workspace)[0], run.state.facts.run.models
    gained = {}
    if models.planner is None and has_model(settings.planner, environment()):
        gained["planner"] = settings.planner.model
    if models.executor is None and has_model(settings.executor, environment()):
        gained["executor"] = settings.executor.model
    began = run.state.facts.run.model_copy(update={"models": models.model_copy(update=gained)})
    return began.with_tools(tools_of_today(run))


def _begun(source: bytes) -> bytes:
    """Return a plan as a new run begins with it: a draft still wants approval, any other has had it.

    What it says of the other run's tools is left out: the new one begins with today's.
    """
    plan = Plan.model_validate_json(source)
    if plan.tools is not None:
        source = remove_value(source, "/tools")
    return source if plan.status in ("draft", "approved") else set_value(source, "/status", "approved")


def _fork_page(fork: Fork, run: OpenRun) -> dict[str, Any]:
    models = fork.run.models
    return {
        "run": None,
        "source": fork.source,
        "mode": fork.choices.mode or run.state.facts.run.mode,
        "planner": fork.choices.planner or models.planner,
        "executor": fork.choices.executor or models.executor,
        "plan": fork.plan is not None,
        "kept": list(fork.carried.attempts),
        "to_run": list(fork.carried.left) if fork.plan is not None else [],
        "workdir": run.state.facts.run.workdir,
    }


def _say_fork(page: dict[str, Any], run: OpenRun) -> None:
    """Say what the new run has, and what it shares with the one it comes from."""
    said = f"{page['run']}: {page['source']}" if page["run"] else f"a {page['source']}"
    if not page["plan"]:
        say(f"{said}, from its goal alone: {page['mode']} begins with a plan of its own")
    else:
        kept, left = ", ".join(page["kept"]), ", ".join(page["to_run"])
        say(f"{said}: keeps {counted(len(page['kept']), 'step')}{f' ({kept})' if kept else ''}")
        say(f"still to run: {left}" if left else "nothing is left to run")
    if page["workdir"] != paths.FILES:
        say(f"both work in {inert(page['workdir'])}: it is not copied")
    elif page["plan"]:
        say("files/ is copied as it is now")
    if is_driven(run.folder):
        say(f"{run.run} is under way: what it does from here on is its own")

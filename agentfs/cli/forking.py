"""`fork`: a new run from any revision of another, with the results that still count."""

import json
from argparse import Namespace
from typing import Any

from agentfs.cli.common import environment, print_json, print_lines, say
from agentfs.cli.editing import Opened, named_run, opened, tell_driver
from agentfs.cli.reading import run_id, settings_of
from agentfs.cli.refreshing import changed_tools, tools_of_today
from agentfs.cli.revising import judged, revision_bytes, revisions_of
from agentfs.core import paths
from agentfs.core.continuation import Carried, Choices, carried, takes_plan_along
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.records import Plan, Run
from agentfs.errors import UserError
from agentfs.forking import Fork, make
from agentfs.holding import is_driven
from agentfs.means import has_model
from agentfs.views.words import counted, inert


def fork(arguments: Namespace) -> int:
    """`agentfs fork RUN[@REV] [--planner M] [--executor M] [--mode M] [--name NAME]`"""
    workspace, folder, revision = named_run(arguments)
    run = opened(workspace, folder, revision)
    wanted = _fork(run, arguments)
    page = _page(wanted, run)
    if arguments.dry_run:
        say("dry run: this is what it would do; nothing is written")
    else:
        page["run"] = run_id(make(wanted, workspace))
    _tell(page, run)
    for words in changed_tools(run.state.facts.settings, wanted.run):
        say(f"as agentfs.toml has it today: {words}")
    if arguments.json:
        print_json(page)
    elif page["run"]:
        print_lines([page["run"]])
    if page["run"]:
        tell_driver(opened(workspace, workspace.find_run(page["run"])))
    return 0


def _fork(run: Opened, arguments: Namespace) -> Fork:
    """Return the run to be made; what cannot go on in a new run is told before anything is written."""
    facts = run.state.facts
    if facts.goal.problems:
        raise UserError(f"the goal of {run.run} is not valid: {inert(facts.goal.problems[0].message)} (fix it first)")
    recorded = revisions_of(run.folder)
    if not recorded:
        raise UserError(f"{run.run} has no plan yet: there is nothing to fork")
    revision = run.revision or recorded[-1]
    source, begins = _begun(revision_bytes(run.folder, run.run, revision)), _begins(run)
    plan = judged(run.folder, run.workspace, source, f"revision {revision}", begins)
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


def _begins(run: Opened) -> Run:
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


def _page(fork: Fork, run: Opened) -> dict[str, Any]:
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


def _tell(page: dict[str, Any], run: Opened) -> None:
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

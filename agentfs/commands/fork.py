"""`restore` and `fork`: an earlier revision becomes the next one, or the first of a new run. No edit is lost."""

import json
import os
import shutil
import stat
from argparse import Namespace
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentfs.commands.common import environment, print_json, print_lines, say, typed_values
from agentfs.commands.editing import (
    OpenRun,
    catalogue_for,
    changes_a_run,
    exchange_plan,
    named_run,
    open_run,
    reopen,
    revision_bytes,
    say_who_continues,
    validate_plan,
)
from agentfs.commands.resume import changed_tools, tools_of_today
from agentfs.core import paths
from agentfs.core.continuation import Carried, Choices, find_carried, first_call, fork_record, takes_plan_along
from agentfs.core.facts import Facts
from agentfs.core.goal_file import parse_goal
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.paths import run_id
from agentfs.core.plan_changes import difference, effects
from agentfs.core.plan_diff import changed_lines, effect_lines
from agentfs.core.records import JsonObject, ModelRole, Order, Plan, Result, Run
from agentfs.core.text import inert, plural
from agentfs.engine.goal_source import GoalSource, values_given
from agentfs.engine.intake import new_folder
from agentfs.engine.means import FileJudge, commands_of, has_model
from agentfs.errors import BadFile, UserError
from agentfs.executor.attempt import render
from agentfs.ledger.git import LedgerError
from agentfs.ledger.worktrees import repository_at
from agentfs.storage.clock import Clock
from agentfs.storage.files import listing, publish, read_whole, sync_folder
from agentfs.storage.locks import is_driven
from agentfs.storage.plan_files import keep_beside
from agentfs.storage.safe_open import copy_regular, names_in
from agentfs.storage.workspace import Workspace, goal_path
from agentfs.tools.secrets import mask_for
from agentfs.ui.reading import revision_numbers, settings_of


@changes_a_run
def restore(run: OpenRun, _: Namespace) -> None:
    """`agentfs restore RUN@REV`"""
    if run.revision is None:
        raise UserError(f"which revision? agentfs restore {run.run}@N (`agentfs log {run.run}` lists them)")
    source = revision_bytes(run.folder, run.run, run.revision)
    new = _with_status(run, source)
    plan = validate_plan(run.folder, run.workspace, new, f"revision {run.revision}")
    if not _put_goal(run, new):
        say(f"{run.shown(paths.PLAN)} is as it was in revision {run.revision} already")
        return
    say(f"{run.shown(paths.PLAN)}: restored as it was in revision {run.revision}")
    _say_difference(run, plan)
    reopen(run)


def _with_status(run: OpenRun, source: bytes) -> bytes:
    """Return the revision with the status the plan has now, unless the run was cancelled."""
    present = run.state.facts.plan
    if present is None or present.status in ("cancelled", Plan.model_validate_json(source).status):
        return source
    return set_value(source, "/status", present.status)


def _put_goal(run: OpenRun, new: bytes) -> bool:
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
    """Say what changed, and what that means for work already done."""
    say("\n".join(changed_lines(asdict(difference(run.state.facts.plan, plan)), colours=False)))
    if run.real is None:
        after = open_run(run.workspace, run.folder).state
        say("\n".join(effect_lines([asdict(one) for one in effects(after.facts, after.means, plan)])))


# ── fork ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Fork:
    """A run to be made."""

    origin: Path
    run: Run  # that it comes from
    source: str
    choices: Choices
    name: str
    plan: JsonObject | None  # None: it begins with the goal alone
    carried: Carried


def fork(arguments: Namespace) -> int:
    """`agentfs fork RUN[@REV] [--planner M] [--executor M] [--mode M] [--name NAME] [-p NAME=VALUE]`"""
    workspace, folder, revision = named_run(arguments)
    run = open_run(workspace, folder, revision)
    wanted = _fork(run, arguments)
    page = _fork_page(wanted, run)
    if arguments.dry_run:
        say("dry run: this is what it would do; nothing is written")
    else:
        page["run"] = run_id(make_run(wanted, workspace))
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
    """Return the run to be made; raise before anything is written if there cannot be one."""
    facts = run.state.facts
    if facts.goal.problems:
        raise UserError(f"the goal of {run.run} is not valid: {inert(facts.goal.problems[0].message)} (fix it first)")
    recorded = revision_numbers(run.folder)
    if not recorded:
        raise UserError(f"{run.run} has no plan yet: there is nothing to fork")
    revision = run.revision or recorded[-1]
    source, begins = _render_run(revision_bytes(run.folder, run.run, revision)), _begins(run)
    facts, begins, source = _with_values(run, arguments, facts, begins, source)
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
        carried=find_carried(facts, run.state.means, plan) if along else Carried({}, (), everything),
    )


def _with_values(
    run: OpenRun, arguments: Namespace, facts: Facts, begins: Run, source: bytes
) -> tuple[Facts, Run, bytes]:
    """Return facts, run record and plan of the new run, with the typed values for parameters in them."""
    if not (typed := typed_values(arguments)):
        return facts, begins, source
    catalogue, path = catalogue_for(begins, run.workspace), goal_path(run.folder)
    content = read_whole(path)
    hide = mask_for(settings_of(run.workspace)[0], environment(), catalogue.tools).text
    goal = GoalSource(content, path.name, run.shown(path.name), begins.source)
    given = values_given(
        parse_goal(content, path.name, catalogue, planned=True), goal, {**(begins.params or {}), **typed}, hide
    )
    if given.problems:
        advice = given.advice.replace(f"run {goal.shown}", f"fork {run.run}", 1)
        raise BadFile(goal.shown, given.problems, content, advice)
    begins = begins.model_copy(update={"params": given.values})
    judge = FileJudge(catalogue_for(begins, run.workspace))
    new = judge.goal(content, path.name, planned=True)
    if json.loads(source).get("goal") == facts.goal.title != new.title:
        source = set_value(source, "/goal", new.title)
    frozen = facts.run.model_copy(update={"params": given.values})
    return replace(facts, run=frozen, goal=new), begins, source


def _begins(run: OpenRun) -> Run:
    """Return the settings of a new run: those of the other, with today's tools, and today's models if it had none."""
    settings, models = settings_of(run.workspace)[0], run.state.facts.run.models
    gained: list[ModelRole] = []
    if models.planner is None and has_model(settings.planner, environment()):
        gained.append("planner")
    if models.executor is None and has_model(settings.executor, environment()):
        gained.append("executor")
    gains: dict[str, Any] = {role: getattr(settings, role).model for role in gained}
    commands = (*(models.commands or ()), *(commands_of(settings, gained) or ()))
    models = models.model_copy(update={**gains, "commands": commands or None})
    began = run.state.facts.run.model_copy(update={"models": models})
    return began.with_tools(tools_of_today(run))


def _render_run(source: bytes) -> bytes:
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
    """Say what the new run keeps, and what it shares with the other."""
    head = f"{page['run']}: {page['source']}" if page["run"] else f"a {page['source']}"
    if not page["plan"]:
        say(f"{head}, from its goal alone: {page['mode']} begins with a plan of its own")
    else:
        kept, left = ", ".join(page["kept"]), ", ".join(page["to_run"])
        say(f"{head}: keeps {plural(len(page['kept']), 'step')}{f' ({kept})' if kept else ''}")
        say(f"still to run: {left}" if left else "nothing is left to run")
    if page["workdir"] != paths.FILES:
        say(f"both work in {inert(page['workdir'])}: it is not copied")
    elif page["plan"]:
        say("files/ is copied as it is now")
    if is_driven(run.folder):
        say(f"{run.run} is under way: what it does from here on is its own")


# ── the new run: the other is only read, and the goal's appearance is the commit point ─────────────────────


def make_run(fork: Fork, workspace: Workspace) -> Path:
    """Make the new run and return its folder; cut anywhere before the end, there is no run."""
    clock = Clock()
    goal = goal_path(fork.origin)
    content = read_whole(goal)
    try:
        repository = repository_at(fork.run.isolation.repository) if fork.run.isolation else None
    except LedgerError as error:
        raise UserError(str(error)) from None
    with new_folder(workspace, clock.day(), fork.name, isolated=repository) as new:
        folder, name = new.path, new.run
        if fork.plan is not None:
            _copy_steps(fork, folder, name)
            if fork.run.workdir == paths.FILES and fork.run.isolation is None:
                copy_files(fork.origin / paths.FILES, folder / paths.FILES)
            call, answer = first_call(sha256_bytes(content), fork.source, fork.plan, fork.carried.evidence)
            publish(folder / paths.PLANNING / paths.call_file(call.call, "call"), render(call), durable=True)
            publish(folder / paths.PLANNING / paths.call_file(call.call, "answer"), render(answer), durable=True)
        run = fork_record(fork.run, name, fork.source, fork.choices, clock.stamp())
        own = fork.run.isolation and fork.run.isolation.model_copy(update={"branch": paths.branch_of(name)})
        run = run.model_copy(update={"goal_sha256": sha256_bytes(content), "isolation": own})
        publish(folder / paths.RUN, render(run), durable=True)
        publish(folder / goal.name, content, durable=True)  # the commit point
    return folder


def _copy_steps(fork: Fork, folder: Path, name: str) -> None:
    """Copy the attempts that still count; they become the new run's, of its first revision."""
    for path in sorted(fork.origin / paths.STEPS / name for name in names_in(fork.origin / paths.STEPS)):
        file = paths.parse_step_file(path.name)
        if file is None or file.attempt > fork.carried.attempts.get(file.step, 0):
            continue
        content = _as_own(path, file.kind, name)
        if content is not None:
            publish(folder / paths.STEPS / path.name, content, durable=file.kind == "result")
    sync_folder(folder / paths.STEPS)


def _as_own(path: Path, kind: paths.StepFileKind, name: str) -> bytes | None:
    """Return a file for the new run; None of an order that was cut short."""
    content = read_whole(path)
    if kind not in ("order", "result"):
        return content
    try:
        record = (Order if kind == "order" else Result).model_validate_json(content)
    except ValidationError:
        return None
    return render(record.model_copy(update={"run": name, "revision": 1}))


def copy_files(source: Path, target: Path) -> None:
    """Copy a working folder as it is now: links as links, without pipes, sockets and devices."""

    def special(folder: str, entries: Collection[str]) -> set[str]:
        return {name for name in entries if not _is_plain(os.path.join(folder, name))}

    shutil.copytree(source, target, symlinks=True, ignore=special, copy_function=copy_regular, dirs_exist_ok=True)


def _is_plain(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # it has gone since it was listed
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)

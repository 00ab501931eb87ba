"""What `resume` changes in a run that is paused, has ended, or waits for more of something, before it is driven."""

import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentfs.commands.common import environment, say
from agentfs.commands.editing import (
    OpenRun,
    changes_a_run,
    edit_plan,
    exchange_plan,
    open_run,
    problems_of,
    remove_outcome,
    set_aside_files,
)
from agentfs.core import paths
from agentfs.core.attention import reason
from agentfs.core.continuation import Aside, find_unanswered, set_aside, still_ends, to_set_aside, with_plan
from agentfs.core.goal_file import parse_goal
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.problems import Rejected
from agentfs.core.proof import acceptance_checks
from agentfs.core.records import Limits, Plan, Run, Tools
from agentfs.core.text import first_line, inert
from agentfs.engine.means import allowed_tools, allowing_own, catalogue_of
from agentfs.errors import BadFile, UserError
from agentfs.storage.files import read_whole
from agentfs.storage.locks import is_watched
from agentfs.storage.workspace import Workspace, goal_path, load_settings
from agentfs.tools.registry import known_tools
from agentfs.ui.reading import read_run

Numbers = Mapping[str, float]  # limit -> a number
TOPPED_UP = ("minutes", "replans", "cost_usd", "requests", "tokens")


@changes_a_run
def take_up_only(run: OpenRun, arguments: Namespace) -> None:
    """Change what holds a run up, and leave it to the process that drives it."""
    more, refresh = top_ups(arguments), arguments.refresh_settings
    if run.real is not None and not run.driven and not _is_held(run, more, refresh=refresh):
        say("it would go on as it is")
        return
    take_up(run, more, refresh=refresh)
    if run.driven and run.real is None:
        driver = "`agentfs watch`" if is_watched(run.workspace.root) else "the process that drives it"
        say(f"{driver} goes on with it")


def top_ups(arguments: Namespace) -> Numbers:
    """Return how much is added to which limit; none with `run --resume`."""
    asked = {name: getattr(arguments, name, None) for name in TOPPED_UP}
    return {name: number for name, number in asked.items() if number is not None}


def take_up_if_held(workspace: Workspace, folder: Path, more: Numbers, *, refresh: bool) -> None:
    """Take up a run that is paused, failed, was cancelled or edited after its end, reached no model, or gets more.

    Any other goes on as it is.
    """
    found = read_run(folder, workspace)
    if found.state is None or found.broken:
        return  # what cannot be read is reported when it is driven
    run = open_run(workspace, folder)
    if _is_held(run, more, refresh=refresh):
        take_up(run, more, refresh=refresh)


def _is_held(run: OpenRun, more: Numbers, *, refresh: bool) -> bool:
    """Whether something has to be changed before the run goes on, or is to be."""
    ended = run.outcome is not None and (run.outcome.status != "done" or _goes_on(run))
    paused = run.outcome is None and run.state.facts.plan is not None and run.plan.status == "paused"
    return bool(refresh or more or ended or paused or (run.outcome is None and _aside(run) != Aside()))


def take_up(run: OpenRun, more: Numbers, *, refresh: bool = False) -> None:
    """Change what holds a run up: tools, status, limits, what failed; then remove its outcome."""
    done = run.outcome is not None and run.outcome.status == "done"
    if done and not _goes_on(run):
        raise UserError(f"{run.run} is done: nothing to resume (agentfs retry {run.run} STEP runs one again)")
    if refresh:
        run = refresh_tools(run)
    aside, limits = Aside() if done else _aside(run), _raise_limits(run, more)
    plan = run.state.facts.plan
    if plan is not None and plan.status == "draft" and aside == Aside() and not refresh:
        raise UserError(f"{run.run} is a draft: agentfs approve {run.run}")
    switched = plan is not None and plan.status in ("paused", "cancelled")
    if not (run.outcome or switched or limits or refresh or aside != Aside()):
        driven = "being driven by another agentfs, and " if run.driven else ""
        raise UserError(f"{run.run} is {driven}neither paused nor ended: {first_line(reason(run.state))}")
    if run.outcome is not None:
        _must_go_on(run, aside, limits)
    files = [paths.step_path(step, number, "again") for step, number in aside.attempts]
    set_aside_files(run, [*files, *(paths.call_path(call, "again") for call in aside.calls)], "resume")
    if switched or limits:
        _edit(run, limits)
    if run.outcome is not None:
        remove_outcome(run)  # last: from here on the run goes on
        if run.outcome.reason == "replan_budget_exhausted" and "replans" not in limits:
            used = run.state.calls.replans
            say(f"its {used} replans are used up: if it needs another it ends the same way (--add-replans N)")


def _goes_on(run: OpenRun) -> bool:
    """Whether a run that is done has something to do: an edit since, or checks, for its folder may have changed."""
    return bool(acceptance_checks(run.state.facts)) or still_ends(run.state.facts, run.state.means) is None


def _aside(run: OpenRun) -> Aside:
    """Return what is tried again: in a run that has not ended, only what no model answered."""
    return to_set_aside(run.state) if run.outcome is not None else find_unanswered(run.state)


def _raise_limits(run: OpenRun, more: Numbers) -> dict[str, int | float]:
    """Return the raised limits: those in force plus what is added."""
    if more and run.state.facts.plan is None:
        raise UserError(f"{run.run} has no plan yet, so there is nowhere to raise its limits")
    raised = {name: getattr(run.state.bounds, name) + number for name, number in more.items()}
    return {name: int(number) if number == int(number) else round(number, 6) for name, number in raised.items()}


def _must_go_on(run: OpenRun, aside: Aside, limits: Mapping[str, int | float]) -> None:
    """Raise if the run would end the same way at once: something else has to change first."""
    facts = set_aside(run.state.facts, aside)
    if facts.plan is not None:
        own = (facts.plan.limits or Limits()).model_copy(update=dict(limits))
        plan = facts.plan.model_copy(update={"status": "approved", "limits": own})
        facts = with_plan(facts, plan, sha256_bytes(b""))
    end = still_ends(facts, run.state.means)
    if end is not None and end.status != "done":
        where = run.shown(paths.PLAN)
        raise UserError(f"{run.run} would end the same way at once: {inert(end.why)} (change {where} first)")


def _edit(run: OpenRun, limits: Mapping[str, int | float]) -> None:
    """Set status and limits in one exchange."""
    was: list[str] = []

    def change(source: bytes, plan: Plan) -> bytes:
        was[:] = [plan.status]
        if plan.status in ("paused", "cancelled"):
            source = set_value(source, "/status", "approved")
        if limits and plan.limits is None:
            return set_value(source, "/limits", dict(limits))
        for name, number in limits.items():
            source = set_value(source, f"/limits/{name}", number)
        return source

    edit_plan(run, change)
    where = run.shown(paths.PLAN)
    if was[0] in ("paused", "cancelled"):
        say(f'{where}: "status" is now "approved" (it was "{was[0]}")')
    for name, number in limits.items():
        say(f'{where}: "{name}" of "limits" is now {number} (it was {getattr(run.state.bounds, name):g})')


# ── --refresh-settings: today's [tools], as an edit of `tools` in plan.json ───────────────────────────────


def refresh_tools(run: OpenRun) -> OpenRun:
    """Lay today's [tools] over those a run has; return the run as it is then."""
    facts, today = run.state.facts, tools_of_today(run)
    differs = {shown for name, shown in _FIELDS.items() if getattr(facts.run, name) != getattr(today, shown)}
    own = today.model_dump(mode="json", include=differs)
    if not _put_edit(run, own):
        say(f"[tools] in agentfs.toml is what {run.run} has already")
        return run
    for words in changed_tools(facts.settings, facts.run.with_tools(today)):
        say(f"{run.shown(paths.PLAN)}: {words}")
    return replace(open_run(run.workspace, run.folder, run.revision), real=run.real)


def changed_tools(before: Run, now: Run) -> list[str]:
    """Return in words how the tool settings of a run differ."""
    values = [(shown, getattr(now, name), getattr(before, name)) for name, shown in _FIELDS.items()]
    return [
        f'"{shown}" of "tools" is now {_show_value(value)} (it was {_show_value(was)})'
        for shown, value, was in values
        if value != was
    ]


def tools_of_today(run: OpenRun) -> Tools:
    """Return today's tool settings for a run, tightened by its goal."""
    known = known_tools(run.workspace.root)
    settings = allowing_own(load_settings(run.workspace.settings, environment()), known)
    goal, tools = goal_path(run.folder), settings.tools
    source = read_whole(goal)
    try:
        parsed = parse_goal(source, goal.name, catalogue_of(settings, environment(), known), planned=True)
    except Rejected as rejected:
        raise BadFile(run.shown(goal.name), rejected.problems, source) from None
    return Tools(allow=allowed_tools(tools, parsed.fields.tools), **{name: getattr(tools, name) for name in _SAME})


_SAME = ("network", "sandbox", "read", "env", "hosts")
_FIELDS = {"tools": "allow", **{name: name for name in _SAME}}  # of run.json, and what [tools] calls it


def _show_value(value: object) -> str:
    return inert(json.dumps(value, ensure_ascii=False))


def _put_edit(run: OpenRun, own: dict[str, Any]) -> bool:
    """Set or remove `tools` in plan.json, which must be valid after that; return whether it changed."""

    def edit(source: bytes | None) -> bytes:
        if source is None:
            raise UserError(f"{run.run} has no plan yet, so there is nowhere to change its settings: begin it again")
        new = _edit_plan(source, own)
        if problems := problems_of(run.folder, run.workspace, new):
            raise BadFile(run.shown(paths.PLAN), problems, new)
        return new

    return exchange_plan(run, edit)


def _edit_plan(source: bytes, own: dict[str, Any]) -> bytes:
    """Return a plan with these tools; as it is where it is no JSON, which is reported when it is validated."""
    try:
        present = json.loads(source).get("tools")
        if own:
            return source if present == own else set_value(source, "/tools", own)
        return source if present is None else remove_value(source, "/tools")
    except (ValueError, AttributeError, RecursionError, Rejected):
        return source

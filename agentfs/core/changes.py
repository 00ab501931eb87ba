"""What differs between two plans, by meaning. Pure."""

from agentfs.core.plan_graph import dependencies
from agentfs.core.records import (
    Change,
    Check,
    CommandCheck,
    FileCheck,
    HttpCheck,
    JudgeCheck,
    OutputCheck,
    Plan,
    Step,
    Tools,
)

REMOVED = "removed"


def changes(old: Plan | None, new: Plan) -> tuple[Change, ...]:
    """Return every difference: steps added, removed, changed field by field, rewired; then the plan's own fields."""
    before = {step.id: step for step in old.steps} if old else {}
    after = {step.id: step for step in new.steps}
    found = [Change(step=step, what=REMOVED) for step in before if step not in after]
    found += [Change(step=step, what="added") for step in after if step not in before]
    rewired = _rewired(old, new) if old else {}
    for step in [step for step in after if step in before]:
        found += [Change(step=step, what=what) for what in _step_changes(before[step], after[step], rewired)]
    return (*found, *(Change(step=None, what=what) for what in _plan_changes(old, new)))


def _step_changes(old: Step, new: Step, rewired: dict[str, str]) -> list[str]:
    fields = [name for name in Step.model_fields if name not in ("id", "depends_on")]
    changed = [f"{name} changed" for name in fields if getattr(old, name) != getattr(new, name)]
    return [*changed, *([rewired[new.id]] if new.id in rewired else [])]


def _rewired(old: Plan, new: Plan) -> dict[str, str]:
    """Return the steps that now follow others; a depends_on that was only spelt out is no change."""
    before, after = dependencies(old), dependencies(new)
    return {
        step: f"now after {', '.join(after[step]) or 'nothing'}"
        for step in after
        if step in before and set(before[step]) != set(after[step])
    }


def _plan_changes(old: Plan | None, new: Plan) -> list[str]:
    if old is None:
        return []
    found = [f"status {old.status} -> {new.status}"] if old.status != new.status else []
    found += ["limits changed"] if old.limits != new.limits else []
    found += [f"check added: {_check(one)}" for one in new.checks or () if one not in (old.checks or ())]
    found += [f"check removed: {_check(one)}" for one in old.checks or () if one not in (new.checks or ())]
    found += _tool_changes(old.tools or Tools(), new.tools or Tools())
    return [*found, *(["goal changed"] if old.goal != new.goal else [])]


def _check(check: Check) -> str:
    match check:
        case CommandCheck():
            return check.run
        case FileCheck():
            return check.path
        case HttpCheck():
            return check.url
        case JudgeCheck():
            return check.condition
        case OutputCheck():
            return "a schema for the output"


def _tool_changes(old: Tools, new: Tools) -> list[str]:
    """Return in so many words what the run's tools may do from now on: whoever reads the ledger has to see it."""
    return [f"tools.{name}: {_said(value)}" for name, value in new if value != getattr(old, name)]


def _said(value: object) -> str:
    if value is None:
        return "as the run began"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)

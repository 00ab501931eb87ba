"""What goals and planners' answers may write more loosely than plan.json. Pure.

Integer ids become strings, `tool: "none"` means `note`, a string `input` fills the tool's one required field,
a string in `checks` or `needs` is a command, `null` is absent. Nothing moves: what was at a JSON pointer is
still there, or inside what is there. What is neither right nor loose is left as it is, for the check to name.
"""

from collections.abc import Mapping
from typing import Any

from agentfs.core.records import Step
from agentfs.core.tool_spec import Catalogue

STEP_KEYS = tuple(Step.model_fields)  # the order of keys in a plan

_RANK = {key: place for place, key in enumerate(STEP_KEYS)}
_ID_LIMIT = 10**63  # an id has at most 63 characters; Python refuses to write out very long numbers


def lenient(value: Any, catalogue: Catalogue) -> Any:
    """Return a goal's or an answer's fields as plan.json would spell them; a bare list is the steps."""
    if isinstance(value, list):
        return lenient_steps(value, catalogue)
    if not isinstance(value, dict):
        return value
    known = _present(value)
    if "checks" in known:
        known["checks"] = lenient_checks(known["checks"])
    if "steps" in known:
        known["steps"] = lenient_steps(known["steps"], catalogue)
    return known


def lenient_steps(steps: Any, catalogue: Catalogue) -> Any:
    """Return steps as plan.json would spell them, each with its `depends_on`: plans written by code have it."""
    if not isinstance(steps, list):
        return steps
    return spelled_out([_step(step, catalogue) if isinstance(step, dict) else step for step in steps])


def spelled_out(steps: list[Any]) -> list[Any]:
    """Return steps that all say what they wait for, without the fields that are null."""
    before: list[Any] = [None, *steps]
    return [_waiting(_present(step), before[at]) if isinstance(step, dict) else step for at, step in enumerate(steps)]


def in_order(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with its keys in the order of plan.json; unknown ones last."""
    return dict(sorted(step.items(), key=lambda item: _RANK.get(item[0], len(_RANK))))


def _step(step: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    known = _present(step)
    if "id" in known:
        known["id"] = _id(known["id"])
    if isinstance(known.get("depends_on"), list):
        known["depends_on"] = [_id(one) for one in known["depends_on"]]
    if known.get("tool") == "none":
        known["tool"] = "note"
        known.setdefault("input", known.get("description", ""))  # what is noted is what the step says
    for name in ("needs", "checks"):
        if name in known:
            known[name] = lenient_checks(known[name])
    return _input(known, catalogue)


def _input(step: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    given, tool = step.get("input"), step.get("tool")
    if isinstance(given, str) and isinstance(tool, str):
        spec = catalogue.tools.get(tool)
        name = spec.text_field if spec else "text"  # of a tool that is not there, the check names the tool alone
        step["input"] = {name: given} if name else given
    return step


def _waiting(step: dict[str, Any], before: Any) -> dict[str, Any]:
    if "depends_on" not in step:
        name = before.get("id") if isinstance(before, dict) else None
        step["depends_on"] = [] if name is None or name == step.get("id") else [name]  # a doubled id is one mistake
    return in_order(step)


def _id(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number and abs(value) < _ID_LIMIT else value


def lenient_checks(checks: Any) -> Any:
    """Return checks as plan.json would spell them: a text is a command."""
    if not isinstance(checks, list):
        return checks
    return [_check(check) for check in checks]


def _check(check: Any) -> Any:
    if isinstance(check, str):
        return {"kind": "command", "run": check}
    return _present(check) if isinstance(check, dict) else check


def _present(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}

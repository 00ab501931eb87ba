"""Values as bytes: one canonical form to hash, and the form in which a plan is written for people. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentfs.core.records import (
    CommandCheck,
    FileCheck,
    HttpCheck,
    JudgeCheck,
    Limits,
    OutputCheck,
    Plan,
    Record,
    Step,
    Tools,
)

PLAN_SCHEMA = "../../../schemas/plan.schema.json"  # from runs/DAY/NAME/plan.json

OVERRIDES: dict[str, type[Record]] = {"limits": Limits, "tools": Tools}  # fields of a plan that only a person sets

_CHECKS: dict[str, type[Record]] = {
    "command": CommandCheck,
    "file": FileCheck,
    "output": OutputCheck,
    "http": HttpCheck,
    "judge": JudgeCheck,
}


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> bytes:
    """Return the one spelling of a JSON value; ValueError if it has none (NaN, a lone surrogate)."""
    return _CANONICAL.encode(value).encode("utf-8")


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of(value: Any) -> str:
    """Return the hash of a JSON value, the same however it was spelt."""
    return sha256_bytes(canonical(value))


def render_plan(plan_value: Mapping[str, Any]) -> bytes:
    """Return a plan as it is written to plan.json: fields in the order of the records, absent ones left out."""
    plan = _fields_in_order(plan_value, Plan)
    for name, record in OVERRIDES.items():
        if isinstance(plan.get(name), Mapping):
            plan[name] = _fields_in_order(plan[name], record)
    plan |= {"checks": _checks(plan["checks"])} if "checks" in plan else {}
    plan["steps"] = [_step(step) for step in plan.get("steps", ())]
    text = json.dumps(plan, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8")


def check_value(check: Record) -> dict[str, Any]:
    """Return a check as plan.json writes it."""
    return check.model_dump(mode="json", by_alias=True, exclude_none=True)


def overrides_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a plan says that only a person may say, beside its status."""
    return {name: plan[name] for name in OVERRIDES if plan.get(name) is not None}


def _step(given: Mapping[str, Any]) -> dict[str, Any]:
    step = _fields_in_order(given, Step)
    for field in ("needs", "checks"):
        if field in step:
            step[field] = _checks(step[field])
    return step | {"when": _checks([step["when"]])[0]} if "when" in step else step


def _checks(given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_fields_in_order(check, _CHECKS[check["kind"]]) for check in given]


def _fields_in_order(given: Mapping[str, Any], record: type[Record]) -> dict[str, Any]:
    """Sort the fields of one record. Only its own nulls are absent: one inside an `input` is the tool's value."""
    return {name: given[name] for name in field_names(record) if given.get(name) is not None}


def field_names(record: type[Record]) -> Iterable[str]:
    """Return the names that a record's fields have on disk."""
    return (field.alias or name for name, field in record.model_fields.items())


# ── steps as plan.json spells them ───────────────────────────────────────────────────────────────────────


STEP_KEYS = tuple(Step.model_fields)  # the order of keys in a plan

_KEY_RANK = {key: place for place, key in enumerate(STEP_KEYS)}


def spell_out(steps: list[Any]) -> list[Any]:
    """Return steps that all say what they wait for, without the fields that are null."""
    before: list[Any] = [None, *steps]
    return [
        _waiting(present_fields(step), before[at]) if isinstance(step, dict) else step
        for at, step in enumerate(steps)
    ]


def in_order(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with its keys in the order of plan.json; unknown ones last."""
    return dict(sorted(step.items(), key=lambda item: _KEY_RANK.get(item[0], len(_KEY_RANK))))


def _waiting(step: dict[str, Any], before: Any) -> dict[str, Any]:
    if "depends_on" not in step:
        name = before.get("id") if isinstance(before, dict) else None
        step["depends_on"] = [] if name is None or name == step.get("id") else [name]  # a doubled id is one mistake
    return in_order(step)


def present_fields(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}

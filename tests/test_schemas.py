"""`schemas/` is what the records say, and any validator can use it.

`python tests/test_schemas.py` writes the files again after a change of a record.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentfs.core.json_schema import RECORDS, all_schemas, file_name, schema_for

FOLDER = Path(__file__).resolve().parent.parent / "schemas"
TIME = "2026-11-16T04:05:06.000000Z"
SHA = "0" * 64
USAGE = {
    "role": "planner",
    "model": "m",
    "requests": 1,
    "input_tokens": 1,
    "cached_tokens": 0,
    "output_tokens": 1,
    "cost_usd": None,
}
STEP: dict[str, Any] = {"id": "a", "tool": "note", "input": {"text": "x"}, "depends_on": [], "why": None}
SAMPLES: dict[str, dict[str, Any]] = {
    "plan": {"$schema": "../../../schemas/plan.schema.json", "goal": "g", "status": "draft", "steps": [STEP]},
    "goal": {"name": "n", "approve": "always", "context": ["a"], "planner": {"model": "m"}, "checks": []},
    "run": {
        "format": "agentfs/run-1",
        "run": "2026-11-16/a",
        "mode": "auto",
        "approve": "never",
        "replan": "on_trigger",
        "split_over": 5,
        "workdir": "files",
        "limits": {"replans": 3},
        "tools": ["note"],
        "network": False,
        "sandbox": "auto",
        "read": [],
        "env": [],
        "models": {"planner": None},
        "source": "goal.md",
        "started_at": TIME,
    },
    "call": {
        "format": "agentfs/call-1",
        "call": 1,
        "revision": 0,
        "trigger": "first",
        "step": None,
        "detail": "",
        "evidence": [],
        "goal_sha256": SHA,
        "base_sha256": None,
    },
    "answer": {"format": "agentfs/answer-1", "call": 1, "verdict": "keep", "usage": USAGE, "duration_s": 0.5},
    "revision": {
        "format": "agentfs/revision-1",
        "revision": 1,
        "call": 1,
        "by": {"role": "runbook", "name": "runbook"},
        "trigger": "first",
        "step": "a",
        "detail": "",
        "evidence": [],
        "base_sha256": None,
        "plan_sha256": SHA,
        "changes": [{"step": None, "what": "first plan"}],
        "at": TIME,
    },
    "order": {
        "format": "agentfs/order-1",
        "run": "2026-11-16/a",
        "step": "a",
        "attempt": 1,
        "revision": 1,
        "key": SHA,
        "after": {"b": 1},
        "description": None,
        "tool": "shell",
        "input": {"command": "x", "env": {"REF_0": "y"}},
        "tools": None,
        "model": None,
        "success_condition": None,
        "checks": [{"kind": "command", "run": "true", "env": {"REF_0": "y"}}],
        "expects": None,
        "timeout_s": 600,
        "repeatable": True,
        "issued_at": TIME,
    },
    "result": {
        "format": "agentfs/result-1",
        "run": "2026-11-16/a",
        "step": "a",
        "attempt": 1,
        "revision": 1,
        "key": SHA,
        "after": {},
        "status": "failed",
        "output": {"any": ["thing"]},
        "error": {"kind": "exit", "message": "m", "hint": None},
        "checks": [{"kind": "file", "ok": True, "detail": ""}],
        "sandbox": "none",
        "started_at": None,
        "ended_at": TIME,
        "duration_s": 0,
    },
    "checks": {
        "format": "agentfs/checks-1",
        "revision": 1,
        "after": {"a": 1},
        "checks": [{"kind": "command", "ok": False, "detail": "d"}],
    },
    "outcome": {
        "format": "agentfs/outcome-1",
        "run": "2026-11-16/a",
        "status": "done",
        "reason": "steps_done",
        "summary": "s",
        "answer": None,
        "steps": {"done": ["a"], "failed": [], "skipped": [], "not_reached": []},
        "revisions": 1,
        "calls": 1,
        "usage": {"planner": USAGE, "executor": None},
        "started_at": TIME,
        "ended_at": TIME,
    },
    "settings": {"mode": "auto", "limits": {"cost_usd": 1}, "tools": {"web_search": {"url": "u"}}},
}
NAMES = list(RECORDS)


def on_disk(name: str) -> Any:
    return json.loads((FOLDER / file_name(name)).read_text(encoding="utf-8"))


def test_the_files_are_what_the_records_say() -> None:
    written = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert written == all_schemas(), "run: python tests/test_schemas.py"


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_that_names_no_host(name: str) -> None:
    Draft202012Validator.check_schema(on_disk(name))
    text = json.dumps(on_disk(name)).replace("https://json-schema.org/draft/2020-12/schema", "")
    assert "$id" in text
    assert ".org" not in text
    assert ".dev" not in text


@pytest.mark.parametrize("name", NAMES)
def test_good_records_are_accepted_by_both_readers(name: str) -> None:
    assert list(Draft202012Validator(on_disk(name)).iter_errors(SAMPLES[name])) == []
    RECORDS[name].model_validate_json(json.dumps(SAMPLES[name]))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_accepted(name: str) -> None:
    record = RECORDS[name].model_validate_json(json.dumps(SAMPLES[name]))
    written = record.model_dump_json(by_alias=True)
    assert RECORDS[name].model_validate_json(written) == record
    assert list(Draft202012Validator(on_disk(name)).iter_errors(json.loads(written))) == []


@pytest.mark.parametrize("name", NAMES)
def test_each_missing_or_unknown_field_is_refused_by_both_readers(name: str) -> None:
    validator = Draft202012Validator(on_disk(name))
    required = [field for field in on_disk(name).get("required", []) if field in SAMPLES[name]]
    for bad in [
        {**SAMPLES[name], "unknown": 1},
        *({key: value for key, value in SAMPLES[name].items() if key != field} for field in required),
    ]:
        assert not validator.is_valid(bad)
        with pytest.raises(ValueError):
            RECORDS[name].model_validate_json(json.dumps(bad))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("order", "after", {"A b": 1}),
        ("order", "after", {"a\n": 1}),
        ("order", "after", {"a": -1}),
        ("order", "key", SHA + "\n"),
        ("order", "issued_at", TIME + "\n"),
        ("call", "step", "a\n"),
        ("call", "base_sha256", "x"),
        ("run", "mode", None),
        ("goal", "mode", "x"),
    ],
)
def test_odd_values_are_refused_by_both_readers(name: str, field: str, value: Any) -> None:
    bad = {**SAMPLES[name], field: value}
    assert not Draft202012Validator(on_disk(name)).is_valid(bad)
    with pytest.raises(ValueError):
        RECORDS[name].model_validate_json(json.dumps(bad))


@pytest.mark.parametrize("name", NAMES)
def test_every_property_is_described_for_people(name: str) -> None:
    schema = schema_for(name)
    for part in [schema, *schema.get("$defs", {}).values()]:
        assert part["description"]
        for field, described in part["properties"].items():
            assert described.get("description"), f"{name}: {field}"


@pytest.mark.parametrize("name", ["plan", "goal"])
def test_null_means_absent_for_every_optional_field(name: str) -> None:
    schema = schema_for(name)
    validator = Draft202012Validator(schema)
    optional = [field for field in schema["properties"] if field not in schema.get("required", [])]
    assert validator.is_valid({**SAMPLES[name], **dict.fromkeys(optional)})


if __name__ == "__main__":
    for file, content in all_schemas().items():
        (FOLDER / file).write_bytes(content)

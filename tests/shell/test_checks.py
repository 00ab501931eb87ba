"""Checks: each kind, holding and not holding."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from agentfs.core.conformance import mismatch
from agentfs.core.proof import Piece
from agentfs.core.records import CheckResult, ResolvedCheck, Sandbox
from agentfs.executor import checks as checks_module
from agentfs.executor.checks import run_checks, surprise
from agentfs.executor.evidence import output_piece
from agentfs.models.base import Unreachable
from agentfs.storage.timing import TIMING
from tests.contexts import RecordedContext, a_context, confined, each_sandbox

CHECK: TypeAdapter[ResolvedCheck] = TypeAdapter(ResolvedCheck)


def run(work: RecordedContext, *checks: dict[str, Any], output: Any = None) -> tuple[CheckResult, ...]:
    return run_checks([CHECK.validate_python(check) for check in checks], work.context, output)


def one(work: RecordedContext, check: dict[str, Any], output: Any = None) -> tuple[bool, str]:
    (result,) = run(work, check, output=output)
    assert (result.kind, result.run) == (check["kind"], check.get("run"))
    return result.ok, result.detail


@each_sandbox
def test_commands(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    (work.workdir / "file").touch()
    assert one(work, {"kind": "command", "run": "test -e file"}) == (True, "exit code 0")
    assert one(work, {"kind": "command", "run": "echo no such luck >&2; false"}) == (
        False,
        "exit code 1: no such luck",
    )
    same = {"kind": "command", "run": 'test "$REF_0" = "a b; exit 1"', "env": {"REF_0": "a b; exit 1"}}
    assert one(work, same) == (True, "exit code 0")


def test_a_command_that_prints_a_lot_leaves_no_file(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=256)
    assert one(work, {"kind": "command", "run": "seq 1 1000"}) == (True, "exit code 0")
    assert not work.context.output_file.exists()


def test_a_command_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "TIMING", replace(TIMING, check=0.3))
    command = {"kind": "command", "run": "echo begun; sleep 61400"}
    more = "no check is given more: let a step do what takes so long, and check what it made"
    (late,) = run(a_context(tmp_path), command)
    assert (late.ok, late.detail, late.hint) == (False, "it did not end within 0.3 s and was killed: begun", more)
    (late,) = run(a_context(tmp_path, deadline_s=0.2), command)
    assert (late.ok, late.detail) == (False, "it did not end within 0.2 s and was killed: begun")
    assert "timeout_s" in (late.hint or "")


@confined
def test_a_command_runs_in_the_sandbox(tmp_path: Path) -> None:
    (found,) = run(a_context(tmp_path, "bubblewrap"), {"kind": "command", "run": "touch /tmp/x"})
    assert (found.ok, "Read-only file system" in found.detail) == (False, True)
    assert "workdir" in (found.hint or "")


@pytest.mark.parametrize(
    ("more", "ok", "detail"),
    [
        ({}, True, "file is as it should be"),
        ({"contains": "two"}, True, "file is as it should be"),
        ({"contains": "four"}, False, r"file does not contain 'four': it holds 'one\ntwo\nthree\n'"),
        ({"matches": "^t.o$"}, True, "file is as it should be"),
        ({"matches": "^tw$"}, False, r"nothing in file matches '^tw$': it holds 'one\ntwo\nthree\n'"),
        ({"path": "long", "contains": "b"}, False, f"long does not contain 'b': it begins with '{'a' * 100}'"),
        ({"path": "empty", "contains": "b"}, False, "empty does not contain 'b': it is empty"),
        ({"matches": "("}, False, "the pattern is not a regular expression: missing ), unterminated subpattern at position 0"),
        ({"min_bytes": 14}, True, "file is as it should be"),
        ({"min_bytes": 15}, False, "file has 14 bytes, fewer than 15"),
        ({"path": "absent"}, False, "there is no absent in the working folder"),
        ({"path": "../x"}, False, "../x leads out of the working folder"),
        ({"path": "folder"}, False, "folder is not a file with content"),
    ],
)  # fmt: skip
def test_files(tmp_path: Path, more: dict[str, Any], detail: str, *, ok: bool) -> None:
    work = a_context(tmp_path)
    (work.workdir / "file").write_text("one\ntwo\nthree\n", encoding="ascii")
    (work.workdir / "long").write_text("a" * 101, encoding="ascii")
    (work.workdir / "empty").touch()
    (work.workdir / "folder").mkdir()
    assert one(work, {"kind": "file", "path": "file"} | more) == (ok, detail)


def test_a_pattern_that_explodes(tmp_path: Path) -> None:
    work = a_context(tmp_path, deadline_s=0.4)
    (work.workdir / "file").write_text("a" * 60 + "!", encoding="ascii")
    started = time.monotonic()
    assert one(work, {"kind": "file", "path": "file", "matches": "(a+)+$"}) == (
        False,
        "matching '(a+)+$' took too long; simplify the pattern",
    )
    assert time.monotonic() - started < 40


@pytest.mark.parametrize(
    ("schema", "output", "problem"),
    [
        ({"type": "object", "required": ["n"]}, {"n": 1}, None),
        ({"type": "object", "required": ["n"]}, {}, "'n' is a required property"),
        ({"properties": {"n": {"maximum": 3}}}, {"n": 4}, "n: 4 is greater than the maximum of 3"),
        (True, 1, None),
        (False, 1, "False schema does not allow 1"),
        ({"type": "objekt"}, {}, "the schema itself is wrong: 'objekt' is not valid under any of the given schemas"),
        ({"pattern": "^a+$"}, "aaa", None),
        ({"pattern": "^a+$"}, "b", "'b' does not match '^a+$'"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "x", "'x' is not of type 'integer'"),
        ({"$ref": "#"}, 1, "the schema refers to itself without end, or the value is nested too deeply"),
    ],
)
def test_outputs(tmp_path: Path, schema: Any, output: Any, problem: str | None) -> None:
    expected = (problem is None, problem or "the output satisfies the schema")
    assert one(a_context(tmp_path), {"kind": "output", "schema": schema}, output) == expected
    assert surprise(schema, output) == problem


def test_a_missing_output_is_not_called_none(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    assert one(work, {"kind": "output", "schema": {"type": "string"}}, None) == (False, "there is no value")
    assert one(work, {"kind": "output", "schema": {"type": "null"}}, None) == (
        True,
        "the output satisfies the schema",
    )


def test_a_schema_fetches_nothing(tmp_path: Path) -> None:
    check = {"kind": "output", "schema": {"$ref": "http://127.0.0.1:9/schema.json"}}
    ok, detail = one(a_context(tmp_path), check, {})
    assert (ok, detail.startswith("the schema refers to something that is not in it")) == (False, True)


DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {"type": "null"}}
EXPLOSIVE: dict[str, tuple[Any, Any]] = {
    "a pattern": ({"pattern": "(a+)+$"}, "a" * 60 + "!"),
    "a pattern for names": ({"patternProperties": {"(a+)+$": {}}}, {"a" * 60 + "!": 1}),
    "a pattern beside names": (
        {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"a" * 60 + "!": 1},
    ),
    "references that double": ({"$ref": "#/$defs/a0", "$defs": DOUBLED}, None),
    "references of another draft": (
        {"$ref": "#/$defs/a0", "$defs": DOUBLED, "$schema": "http://json-schema.org/draft-07/schema#"},
        None,
    ),
    "messages that take all memory": (
        {"anyOf": [{"items": {"anyOf": [{"maxItems": 0}] * 60}}] * 30},
        [["x" * 60_000]] * 100,
    ),
}


@pytest.mark.parametrize("name", EXPLOSIVE)
def test_a_schema_that_explodes(tmp_path: Path, name: str) -> None:
    schema, output = EXPLOSIVE[name]
    work = a_context(tmp_path, deadline_s=0.4)
    started = time.monotonic()
    assert one(work, {"kind": "output", "schema": schema}, output) == (
        False,
        "the schema took too long to judge; simplify its patterns, references and choices",
    )
    assert time.monotonic() - started < 40


def test_a_schema_that_explodes_can_be_stopped(tmp_path: Path) -> None:
    schema, output = EXPLOSIVE["references that double"]
    work = a_context(tmp_path, deadline_s=600)
    threading.Timer(0.5, work.stop.set).start()
    started = time.monotonic()
    stopped = (False, "it was stopped before the schema was judged")
    assert one(work, {"kind": "output", "schema": schema}, output) == stopped
    assert time.monotonic() - started < 40


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([{"a": n} for n in range(20_000)], True),
        ([*({"a": [n]} for n in range(20_000)), {"a": [7]}], False),
        ([1, True, "1", [1], [True], {"1": 1}, None], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
    ],
)
def test_unique_items_are_checked_in_linear_time(items: list[Any], unique: bool) -> None:
    began = time.process_time()
    assert (mismatch({"uniqueItems": True}, items) is None) is unique
    assert time.process_time() - began < 5


def test_a_judge_needs_a_model(tmp_path: Path) -> None:
    check = {"kind": "judge", "condition": "it is good"}

    def some_evidence(_condition: str) -> list[Piece]:
        return [output_piece("good")]

    with pytest.raises(Unreachable, match="there is no model to judge it"):
        run_checks([CHECK.validate_python(check)], a_context(tmp_path).context, "good", some_evidence)


def test_all_run_in_order_whatever_fails(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    results = run(
        work,
        {"kind": "command", "run": "false"},
        {"kind": "file", "path": "made"},
        {"kind": "command", "run": "touch made"},
        {"kind": "file", "path": "made"},
    )
    assert [result.ok for result in results] == [False, False, True, True]


def test_details_hold_no_secrets(tmp_path: Path) -> None:
    work = a_context(tmp_path, environ={"A_KEY": "hush-hush"})
    assert one(work, {"kind": "output", "schema": {"const": 1}}, "hush-hush") == (False, "1 was expected")
    assert one(work, {"kind": "output", "schema": {"type": "integer"}}, "hush-hush") == (
        False,
        "'[secret A_KEY]' is not of type 'integer'",
    )

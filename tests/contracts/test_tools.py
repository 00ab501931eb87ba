"""What every tool keeps to, whichever it is."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentfs.core.config import DEFAULT_TOOLS
from agentfs.core.records import Failure, Sandbox
from agentfs.models.base import ModelError, ModelSession, Request, Unreachable
from agentfs.models.budget import Budget
from agentfs.testing import Scripted
from agentfs.tools.base import Tool, ToolResult
from agentfs.tools.process import ProcessMark
from agentfs.tools.registry import builtins, input_problems, specs
from tests.contexts import RecordedContext, a_context, each_sandbox
from tests.conversations import bounds
from tests.webs import Web, web

SECRET = "hush-hush-1234"
GOOD: dict[str, dict[str, Any]] = {
    "shell": {"command": "cat file"},
    "python": {"code": "print(open('file').read())"},
    "read_file": {"path": "file"},
    "write_file": {"path": "new", "content": "x"},
    "edit_file": {"path": "file", "old": "text", "new": "words"},
    "list_files": {"path": ".", "pattern": "**"},
    "search_files": {"pattern": "text", "path": "."},
    "http_get": {"url": "http://127.0.0.1/page"},  # on the port that `loopback` serves
    "web_search": {"query": "a secret"},
    "summarize": {"text": f"a long text with {SECRET}", "focus": "the point"},
    "note": {"text": f"remember {SECRET}"},
}
FAILING: dict[str, dict[str, Any]] = {
    "shell": {"command": f"echo {SECRET} >&2; exit 1"},
    "python": {"code": "1/0"},
    "read_file": {"path": "../x"},
    "write_file": {"path": "/etc/x", "content": ""},
    "edit_file": {"path": "file", "old": "absent", "new": ""},
    "list_files": {"path": "absent"},
    "search_files": {"pattern": "("},
    "http_get": {"url": "ftp://127.0.0.1/"},
    "web_search": {"query": "trouble"},
    "summarize": {"text": "nobody answers this"},
}
REPEATABLE = {*GOOD} - {"shell", "python", "edit_file"}
each_tool = pytest.mark.parametrize("name", sorted(GOOD))


@pytest.fixture(autouse=True, scope="module")
def loopback() -> Iterator[None]:
    with web(page=lambda page: page.answer(f"a page with {SECRET}".encode()), search=_found) as served:
        GOOD["http_get"]["url"] = f"{served.url}/page"
        ENGINE["url"] = served.url
        yield


ENGINE = {"url": ""}


def _found(page: Web) -> None:
    result = {"title": "Here", "url": "http://example.com", "content": f"it is {SECRET}"}
    body = json.dumps({"results": [result]}) if "trouble" not in page.path else f"trouble with {SECRET}"
    page.answer(body.encode(), kind="application/json")


def tools() -> dict[str, Tool]:
    return builtins(ENGINE["url"])


def prepared(tmp_path: Path, sandbox: Sandbox = "none") -> RecordedContext:
    work = a_context(tmp_path, sandbox, environ={"A_SECRET": SECRET}, network=True, hosts=("127.0.0.1",))
    (work.workdir / "file").write_text(f"text {SECRET}\n", encoding="utf-8")
    line = ModelSession(
        lambda *_: None, Budget(bounds()), work.stop, work.context.deadline
    )  # a log hides secrets as it writes
    return replace(work, context=replace(work.context, model=Scripted(_summary), session=line))


def _summary(request: Request) -> str | ModelError:
    if "nobody" in str(request.messages):
        return Unreachable(Failure(kind="unreachable", message="nobody is there"))
    return f"It says {SECRET}."


def test_every_tool_is_here() -> None:
    elsewhere = {"ask", "run"}  # a person, or a run of its own: tests/stories/test_hand_edits.py, test_child_runs.py
    assert set(builtins()) == {*GOOD, *elsewhere}
    assert set(builtins()) - {"run"} <= set(DEFAULT_TOOLS)
    assert {name: tool.spec for name, tool in builtins().items()} == specs()
    assert all(name == spec.name for name, spec in specs().items())


@each_tool
def test_the_input_is_a_closed_schema(name: str) -> None:
    spec = specs()[name]
    schema = spec.input_schema
    Draft202012Validator.check_schema(schema)
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    required = schema["required"]
    assert set(required) <= set(schema["properties"])
    assert spec.text_field == (required[0] if len(required) == 1 else None)
    assert spec.summary
    assert "\n" not in spec.summary


@each_tool
def test_repeatable_by_default_is_what_changes_nothing_twice(name: str) -> None:
    assert specs()[name].repeatable == (name in REPEATABLE)
    assert specs()[name].needs_model == (name == "summarize")


@each_tool
def test_inputs_are_checked(name: str) -> None:
    spec = specs()[name]
    assert input_problems(spec, GOOD[name]) == []
    assert input_problems(spec, GOOD[name] | {"extra": 1}) == [
        "Additional properties are not allowed ('extra' was unexpected)"
    ]
    for field in spec.input_schema["required"]:
        without = {key: value for key, value in GOOD[name].items() if key != field}
        assert input_problems(spec, without) == [f"'{field}' is a required property"]
    for field in GOOD[name]:
        assert input_problems(spec, GOOD[name] | {field: 7}) == [f"{field}: 7 is not of type 'string'"]


def test_a_plan_cannot_set_variables() -> None:
    assert input_problems(specs()["shell"], {"command": "true", "env": {"LD_PRELOAD": "x"}}) != []
    assert input_problems(specs()["shell"], {"command": "true", "interpreter": "zsh"}) == [
        "interpreter: 'zsh' is not one of ['sh', 'bash']"
    ]


@each_tool
@each_sandbox
def test_it_claims_once_before_its_effect_and_gives_json_without_secrets(
    tmp_path: Path, name: str, sandbox: Sandbox
) -> None:
    work = prepared(tmp_path, sandbox)
    before = sorted(p.read_bytes() for p in work.workdir.iterdir())
    seen: list[bool] = []

    def claim(mark: ProcessMark | None) -> None:
        seen.append(sorted(p.read_bytes() for p in work.workdir.iterdir()) == before)
        assert (mark is not None) == (name in ("shell", "python"))

    result = tools()[name].call(GOOD[name], replace(work.context, claim=claim))
    assert seen == [True]
    assert (result.failure, result.cut) == (None, False)
    assert json.loads(json.dumps(result.output, allow_nan=False)) == result.output
    assert SECRET not in json.dumps([result.output, work.lines])


@pytest.mark.parametrize("name", sorted(FAILING))
def test_a_failure_is_a_record_without_secrets_and_nothing_is_raised(tmp_path: Path, name: str) -> None:
    work = prepared(tmp_path)
    result = tools()[name].call(FAILING[name], work.context)
    assert isinstance(result.failure, Failure)
    assert (result.output, bool(result.failure.message)) == (None, True)
    assert SECRET not in result.failure.model_dump_json()


@each_tool
def test_nothing_happens_when_the_claim_is_taken(tmp_path: Path, name: str) -> None:
    work = prepared(tmp_path)

    def taken(mark: ProcessMark | None) -> None:
        raise FileExistsError("claimed")

    with pytest.raises(FileExistsError, match="claimed"):
        tools()[name].call(GOOD[name], replace(work.context, claim=taken))
    assert {p.name: p.read_text(encoding="utf-8") for p in work.workdir.iterdir()} == {"file": f"text {SECRET}\n"}


@pytest.mark.parametrize("name", ["shell", "python", "read_file", "note", "list_files", "search_files"])
def test_a_long_output_is_cut_the_same_way(tmp_path: Path, name: str) -> None:
    work = a_context(tmp_path, output_bytes=256)
    (work.workdir / "file").write_text("text\n" * 500, encoding="utf-8")
    for n in range(30):
        (work.workdir / f"a-long-name-{n}").touch()
    given: dict[str, Any] = GOOD[name] if name != "note" else {"text": "text " * 500}
    result = tools()[name].call(given, work.context)
    assert isinstance(result, ToolResult)
    assert (result.cut, result.failure) == (True, None)
    head, _, rest = result.output.partition("\n… ")
    gap, _, tail = rest.partition(" …\n")
    cut, _, where = gap.partition(" bytes cut; ")
    whole = work.context.output_file.read_text(encoding="utf-8")
    assert where == "the whole output is in steps/demo.1.output.txt"
    assert (whole.startswith(head), whole.endswith(tail)) == (True, True)
    assert len(head.encode()) + len(tail.encode()) + int(cut) == len(whole.encode())

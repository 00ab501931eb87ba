"""VS Code's own JSON engine helps with plan.json of a real workspace, with nothing but the files that are there."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Limits, Plan, Record, Step, Tools
from tests.npm import node, packages
from tests.workspaces import Place

ENGINE = """
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import engine from 'vscode-json-languageservice';
const asked = [];
const service = engine.getLanguageService({
  workspaceContext: { resolveRelativePath: (relative, resource) => new URL(relative, resource).href },
  schemaRequestService: async uri => {
    asked.push(uri);
    if (!uri.startsWith('file:')) throw new Error('there is no network: ' + uri);
    return readFileSync(fileURLToPath(uri), 'utf-8');
  },
});
service.configure({ validate: true, schemas: [] });
const { uri, text, hover, complete } = JSON.parse(readFileSync(0));
const page = engine.TextDocument.create(uri, 'json', 1, text);
const parsed = service.parseJSONDocument(page);
const results = { asked, hover: {}, complete: {} };
for (const [name, offset] of Object.entries(hover)) {
  const found = await service.doHover(page, page.positionAt(offset), parsed);
  results.hover[name] = found ? [].concat(found.contents).map(one => one.value ?? one).join('') : null;
}
for (const [name, offset] of Object.entries(complete)) {
  const found = await service.doComplete(page, page.positionAt(offset), parsed);
  results.complete[name] = Object.fromEntries(found.items.map(one => [one.label, one.documentation ?? null]));
}
results.problems = (await service.doValidation(page, parsed)).map(one => one.message);
console.log(JSON.stringify(results));
"""
PLAN: dict[str, Any] = {
    "$schema": "../../../schemas/plan.schema.json",
    "goal": "Job",
    "status": "approved",
    "limits": {"minutes": 5},
    "tools": {"network": True},
    "steps": [
        {
            "id": "a",
            "description": "d",
            "why": "w",
            "tool": "shell",
            "input": {"command": "true"},
            "depends_on": [],
            "success_condition": "s",
            "needs": [],
            "checks": [{"kind": "file", "path": "x"}],
            "expects": True,
            "gate": True,
            "on_failure": "stop",
            "timeout_s": 5,
            "max_attempts": 1,
            "retry_wait_s": 1,
            "repeatable": True,
            "skip": "no",
            "model": "m",
            "tools": [],
            "each": "{{steps.list.output}}",
            "when": {"kind": "file", "path": "x"},
            "agent": "codex",
            "place": "cluster",
        },
        {},
    ],
}


@pytest.fixture
def plan(place: Place) -> Path:
    """A plan.json of a run, as agentfs left it."""
    place.agentfs("plan", place.runbook("### a\n```sh\ntrue\n```\n"))
    return place.run_folder() / "plan.json"


def ask(plan: Path, text: str, hover: dict[str, int], complete: dict[str, int]) -> Any:
    given = {"uri": plan.as_uri(), "text": text, "hover": hover, "complete": complete}
    return node(packages("vscode-json-languageservice"), ENGINE, given)


def descriptions(kind: type[Record]) -> dict[str, str | None]:
    return {field.alias or name: field.description for name, field in kind.model_fields.items()}


def unescaped(text: str) -> str:
    return text.replace("\\", "")


def test_every_field_has_a_hover_and_no_network_is_asked(plan: Path, place: Place) -> None:
    value = {**PLAN, "steps": PLAN["steps"][:1]}
    text = json.dumps(value, indent=2)
    fields = {**descriptions(Plan), **descriptions(Step)}
    found = ask(plan, text, {name: text.index(f'"{name}":') + 2 for name in fields}, {})
    assert found["asked"] == [(place.root / "schemas" / "plan.schema.json").as_uri()]
    assert found["problems"] == []
    fields["limits"] = Limits.__doc__  # the engine prefers the description of the kind
    fields["tools"] = Tools.__doc__  # the first one is above the steps
    fields["when"] = "A file that must be there, and perhaps hold something."
    assert {name: unescaped(words) for name, words in found["hover"].items()} == fields
    assert all(words and len(words) > 20 for words in found["hover"].values())


def test_what_may_be_written_is_offered_with_its_meaning(plan: Path) -> None:
    first = {**PLAN["steps"][0], "checks": [{"kind": ""}], "on_failure": ""}
    text = json.dumps({**PLAN, "status": "", "steps": [first, {}]}, indent=2)
    places = {
        "step": text.rindex("{}") + 1,
        "limits": text.index('"minutes"'),
        "status": text.index('"status": ""') + 11,
        "on_failure": text.index('"on_failure": ""') + 15,
        "kind": text.index('"kind": ""') + 9,
        "check": text.index('"kind": ""'),
    }
    found = ask(plan, text, {}, places)["complete"]
    assert found["step"] == descriptions(Step)
    assert {"minutes": None, **found["limits"]}.keys() == descriptions(Limits).keys()
    assert {word for word in found["status"] if word != "null"} == {
        '"draft"',
        '"paused"',
        '"approved"',
        '"cancelled"',
    }
    assert {word for word in found["on_failure"] if word != "null"} == {'"replan"', '"stop"', '"continue"'}
    assert found["kind"].keys() == {'"command"', '"file"', '"output"', '"http"', '"judge"'}
    assert {"run", "path", "schema", "url", "condition"} <= found["check"].keys()


def test_a_slip_is_marked_where_it_is(plan: Path) -> None:
    text = plan.read_text()
    assert ask(plan, text, {}, {})["problems"] == []
    slips = text.replace('"status": "draft"', '"status": "drft"').replace('"tool"', '"tol"')
    found = ask(plan, slips, {}, {})["problems"]
    assert "Value is not accepted." in found[0]
    assert found[1:] == ["Property tol is not allowed."]

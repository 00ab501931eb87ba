"""Throws mutated documents at every reader, and lets through no exception but the documented one (`Rejected`).

    .venv/bin/python -m tests.security.fuzzing            # the whole sweep: 20,000 inputs for each of nine readers
    .venv/bin/python -m tests.security.fuzzing 500 7      # 500 each, another seed

Every input is made from a number, so that a finding can be made again: it is printed, with the input. A reader that takes
longer than a second for one input is a finding too.
"""

import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agentfs.core.documents import read_json, read_toml
from agentfs.core.facts import cut_word, gate_word, words_below
from agentfs.core.goal_file import parse_goal
from agentfs.core.plan_check import check_plan, check_settings
from agentfs.core.problems import Rejected
from agentfs.core.records import Step
from agentfs.core.references import in_step, problems_in_step
from agentfs.core.resolve import Output, resolve_step
from agentfs.core.values import NotJson
from agentfs.executor.conversation import Finish
from agentfs.models.text_protocol import parse_object
from agentfs.planner.answer import PlanContext
from agentfs.planner.evaluation import evaluate_answer
from agentfs.planner.prompt import Surroundings
from tests.builders import CATALOGUE

LONGEST_S = 1.0
ROOM = 1024 * 1024
STEP = {
    "id": "a",
    "description": "d",
    "why": "w",
    "tool": "shell",
    "input": {"command": "echo {{steps.b.output}}"},
    "depends_on": ["b"],
    "success_condition": "it is there",
    "gate": True,
    "timeout_s": 9,
    "max_attempts": 2,
    "checks": [{"kind": "command", "run": "true"}, {"kind": "file", "path": "x", "matches": "a+"}],
    "expects": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "on_failure": "continue",
}
OTHER = {
    "id": "b",
    "tool": "note",
    "input": {"text": "{{goal}}"},
    "depends_on": [],
    "needs": [{"kind": "output", "schema": {}}],
}
PLAN = json.dumps(
    {"$schema": "x", "goal": "g", "status": "approved", "limits": {"cost_usd": 0.5}, "steps": [OTHER, STEP]}
)
RUNBOOK = """---
workdir: shop
approve: plan
checks: [{kind: file, path: x}]
limits: {requests: 3}
---
# Move users

## Steps

### inspect
Find out.
```sh
sqlite3 app.db 'select count(*) from users'
```

### backfill
after: inspect
```python
print({{steps.inspect.output}})
```
check: `test "{{steps.inspect.output}}" = 1`
retries: 1
timeout: 90s
gate

### rollback
on failure of: backfill
```json expects
{"type": "string"}
```
```http
url: http://example.org
```
"""
YAML = """goal: |
  Tidy up
name: "tidy"
tools: [shell, note]
steps:
  - id: a
    tool: note
    input: {text: 'x'}
  - {id: b, tool: shell, input: "echo {step_a_result}"}
"""
TOML = 'mode = "auto"\n[limits]\nreplans = 3\ncost_usd = 5.0\n[tools]\nallow = ["shell"]\nenv = []\n[planner]\nmodel = "x"\n'
ANSWER = json.dumps({"steps": [STEP, OTHER]})
SHELL = "x={{steps.a.output}}; cat <<E\n'\nE\nif [ \"{{steps.a.output.k.0}}\" ]; then printf '%s' {step_a_result}; fi # {{goal}}"
PYTHON = "x = {{steps.a.output}}\nprint(f'{x}', '''a''', {{goal}}) # {{steps.a.file}}\n"
WORDS = (
    *("{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", "\r\n", "\t", " ", "#", "-", "---\n", "```", "~~~", "|", ">", "&a", "*a"),
    *("null", "true", "NaN", "Infinity", "-0", "1e999", "9" * 400, "0x7f", "1_000", ".inf", "2026-11-16", "!!python/object", "<<"),
    *("{{steps.a.output}}", "{{steps.", "{{goal}}", "{step_a_result}", "}}", "$(", "`", "<<E\n", "$((", "${", "[[", "]]", ";;", "case"),
    *("\0", "\ufeff", "\u2028", "\x85", "\x1b[31m", "\u202e", "é", "😀", "\udcff", "\\ud800", "\\u0000", "%s", "../", "/etc/passwd"),
    *('"steps"', '"id"', '"tool"', '"status"', "## Steps\n", "### x\n", "check: `", "after: ", "instead of: a\n", "retries: -1\n"),
    *("[" * 200, "{" * 200, "((" * 100, "a" * 5000, "(a+)+$", "\\Z(?P<", '{"$ref": "#"}', '{"$ref": "http://x"}', "- " * 300),
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """One thing that reads, what it is made to read, and how."""

    name: str
    seeds: tuple[str, ...]
    read: Callable[[str], object]


def _goal(filename: str) -> Callable[[str], object]:
    return lambda text: parse_goal(text.encode("utf-8", "surrogateescape"), filename, CATALOGUE)


def _references(text: str) -> object:
    """Find, judge and resolve the references of a text, as shell, as Python and as plain text."""
    made = []
    for tool, field in (("shell", "command"), ("python", "code"), ("note", "text")):
        step = Step.model_validate({"id": "me", "tool": tool, "input": {field: text}})
        list(in_step(step))
        if not problems_in_step(step, {"a"}):
            outputs = {"a": Output({"k": ["v"]}, cut=False, file="/nowhere")}
            made.append(resolve_step(step, outputs, "the goal", ROOM))
    return made


def _evaluated(text: str) -> object:
    around = Surroundings("/w", (), frozenset(), frozenset(), complete=True)
    return evaluate_answer(text, PlanContext("title"), CATALOGUE, around)


def _finish(text: str) -> object:
    given = parse_object(text)
    given["ok"] = given.get("ok") is True
    given = {key: value for key, value in given.items() if key in ("ok", "output", "evidence")}
    return Finish.of(given), gate_word(text), cut_word(text), words_below(text)


FINISH = json.dumps({"ok": True, "output": '{"a": [1]}', "surprising": None, "blocked": None, "evidence": ["x"]})
READERS = (
    Reader(
        "runbook",
        (RUNBOOK, RUNBOOK.partition("---\n#")[2], "# x\n\n## Steps\n\n### a\n```sh\ntrue\n```\n"),
        _goal("g.md"),
    ),
    Reader("front matter", (RUNBOOK, "---\nname: x\n---\nwords\n"), _goal("g.txt")),
    Reader("goal in JSON", (PLAN, ANSWER, '[{"id": 1}]'), _goal("g.json")),
    Reader("goal in YAML", (YAML, PLAN), _goal("g.yaml")),
    Reader("plan", (PLAN,), lambda text: check_plan(read_json(text.encode("utf-8", "surrogateescape")), CATALOGUE)),
    Reader("references", (SHELL, PYTHON), _references),
    Reader("planner's answer", (ANSWER, f"Here:\n```json\n{ANSWER}\n```", '{"keep": true}'), _evaluated),
    Reader("settings", (TOML,), lambda text: check_settings(read_toml(text.encode("utf-8", "surrogateescape")))),
    Reader("finish and replies", (FINISH, "approve\n\nwords", "again"), _finish),
)
DOCUMENTED = (Rejected, NotJson)


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 10**30, 1.5, 1e308, "", "a", "b", "x" * 300, [], {}, [[]], {"a": {}}, "\ud800", "\0"),
    *({"$ref": "#"}, {"type": []}, {"enum": []}, {"pattern": "("}, ["a", "a"], [None], {"kind": "file"}, {"kind": "x"}, "../x"),
    *("{{steps.a.output}}", "{{steps.zzz.output}}", "{step_b_result}", "$(x)", "approved", "shell", "note", "teleport", ["shell"]),
)  # fmt: skip
NAMES = (
    "id",
    "tool",
    "input",
    "steps",
    "checks",
    "expects",
    "depends_on",
    "gate",
    "status",
    "limits",
    "kind",
    "$ref",
    "zzz",
)


def restructured(value: Any, chance: random.Random) -> Any:
    """Return a JSON value in which one place, wherever it is, holds something else, more, or nothing."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice([*value, *value, chance.choice(NAMES)])
        changed = {**value, name: restructured(value.get(name), chance)}
        return {key: one for key, one in changed.items() if key != name or chance.random() < 0.9}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        inner = restructured(value[at], chance)
        return [*value[:at], inner, *value[at + chance.randrange(2) :]]
    return chance.choice(ODD_VALUES)


def mutated(seed: str, chance: random.Random) -> str:
    """Return a text with a few things cut out, doubled, exchanged or put in; half of the JSON stays JSON."""
    if seed[:1] in "{[" and chance.random() < 0.5:
        value = json.loads(seed)
        for _ in range(chance.choice((1, 1, 2, 4))):
            value = restructured(value, chance)
        return json.dumps(value)
    text = seed
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at, to = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        to = min(to, at + chance.choice((1, 4, 40, 4000)))
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:to] * chance.choice((1, 1, 30)) + text[to:]
            case 2:
                text = (
                    text[:at]
                    + chr(chance.choice((0, 10, 34, 39, 127, 160, 0x2028, chance.randrange(0xD7FF))))
                    + text[to:]
                )
            case _:
                text = text[:at] + chance.choice(WORDS) + text[at if chance.random() < 0.7 else to :]
    return text[:200_000]


def findings(reader: Reader, count: int, seed: int) -> Iterator[str]:
    """Yield what goes wrong in so many inputs."""
    for number in range(count):
        chance = random.Random(f"{seed} {reader.name} {number}")
        text = mutated(chance.choice(reader.seeds), chance)
        began = time.perf_counter()
        try:
            reader.read(text)
        except DOCUMENTED as refused:
            if isinstance(refused, Rejected) and not all(one.shown("f") for one in refused.problems):
                yield f"{reader.name} {number}: refused without a word: {text!r}"
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            yield f"{reader.name} {number}: {text[:2000]!r}\n{traceback.format_exc(limit=-4)}"
        if (seconds := time.perf_counter() - began) > LONGEST_S:
            yield f"{reader.name} {number}: took {seconds:.1f} s: {text[:2000]!r}"


def main() -> int:
    count, seed = (*map(int, sys.argv[1:]), 20_000, 1)[:2] if len(sys.argv) != 2 else (int(sys.argv[1]), 1)
    total = 0
    for reader in READERS:
        began, found = time.monotonic(), list(findings(reader, count, seed))
        print(f"{reader.name}: {count} inputs in {time.monotonic() - began:.0f} s, {len(found)} findings", flush=True)
        for one in found[:5]:
            print(one)
        total += len(found)
    print(f"{count * len(READERS)} inputs, {total} findings")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())

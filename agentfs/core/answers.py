"""What a planner's reply says: text -> one verdict with its steps, words or answer; or every problem. Pure.

A reply is one JSON object in the form of `answer_form`, or looser: a bare list of steps, a verdict alone, JSON in a
fence, prose around it. What the steps say is not judged here, only brought into plan form.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from agentfs.core.documents import read_json
from agentfs.core.goal_file import lenient_checks
from agentfs.core.hashing import OVERRIDES
from agentfs.core.problems import Problem, Rejected
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer_form import MORE, json_value, tool_input

SaidVerdict = Literal["plan", "keep", "finished", "impossible"]

_ASIDE = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)  # what some models say to themselves first
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_MOST_STEPS = 10_000
_PASSES = 4  # times that a text is gone through in search of them
_TRIES = 200  # places at which a value in prose may begin
_DECODER = json.JSONDecoder()
_WORDS = frozenset(("steps", "keep", "finished", "impossible"))
_FIELD_OF = {"plan": "steps", "keep": "keep", "finished": "finished", "impossible": "impossible"}
_FORMS = 'answer with {"steps": […]}, {"keep": true}, {"finished": true, "answer": …} or {"impossible": "why"}'


@dataclass(frozen=True, slots=True)
class Said:
    """A reply, read: one verdict, and what belongs to it."""

    verdict: SaidVerdict
    steps: list[Any] = field(default_factory=list)  # with `plan`: in plan form, as loose as goals may be
    answer: JsonValue = None  # with `finished`
    why: str = ""  # with `impossible`
    checks: list[Any] = field(default_factory=list)  # with `plan`: what is true when the goal is met
    beside: tuple[str, ...] = ()  # fields of a plan that were answered beside the steps, and are a person's


def read_answer(text: str, catalogue: Catalogue) -> Said:
    """Return what a reply says, or raise `Rejected` with why it says nothing that can be used."""
    value = _value(_ASIDE.sub("", text, count=1))
    if isinstance(value, list):
        value = {"steps": value}
    if not isinstance(value, dict):
        raise Rejected([Problem("the answer is neither an object nor a list", _FORMS)])
    given = {name: one for name, one in value.items() if one is not None}
    verdicts = [*_verdicts(given)]
    if (chosen := _FIELD_OF.get(str(given.get("verdict")))) in verdicts:
        verdicts = [chosen]  # said in so many words: whatever else was filled in does not count
    match verdicts:
        case [said]:
            return _said(said, given, catalogue)
        case []:
            raise Rejected([_nothing(given)])
        case _:
            message = f"the answer says {' and '.join(verdicts)} at once"
            raise Rejected([Problem(message, "choose one, and set the others to null")])


def _verdicts(given: dict[str, Any]) -> Iterator[str]:
    if "impossible" in given and given["impossible"] not in (False, ""):
        yield "impossible"
    if given.get("finished") is True:
        yield "finished"
    if given.get("keep") is True:
        yield "keep"
    if given.get("steps", []) != []:
        yield "steps"


def _nothing(given: dict[str, Any]) -> Problem:
    if "steps" in given:
        return Problem("the plan has no steps", "list at least one step, or answer with another verdict", "/steps")
    return Problem("the answer holds neither steps nor a verdict", _FORMS)


def _said(verdict: str, given: dict[str, Any], catalogue: Catalogue) -> Said:
    beside = tuple(name for name in ("status", *OVERRIDES) if name in given)
    match verdict:
        case "keep":
            return Said("keep", beside=beside)
        case "finished":
            return Said("finished", answer=given.get("answer"), beside=beside)
        case "impossible":
            return Said("impossible", why=_why(given["impossible"]), beside=beside)
        case _:
            checks = given.get("checks")
            accepting = [_check(check) for check in lenient_checks(checks)] if isinstance(checks, list) else []
            return Said("plan", steps=_steps(given["steps"], catalogue), checks=accepting, beside=beside)


def _why(given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Rejected([Problem("'impossible' does not say why", 'write {"impossible": "why"}', "/impossible")])
    return given.strip()


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────


def _steps(given: Any, catalogue: Catalogue) -> list[Any]:
    if not isinstance(given, list):
        raise Rejected([Problem("'steps' must be a list of steps", "write [{…}, {…}]", "/steps")])
    if len(given) > _MOST_STEPS:
        fix = "plan in larger steps, or one part of the goal at a time"
        raise Rejected([Problem(f"a plan of {len(given)} steps: {_MOST_STEPS} are the most", fix, "/steps")])
    return [_step(step, catalogue) if isinstance(step, dict) else step for step in given]


def _step(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return a step in plan form: without nulls, with values in place of JSON text."""
    more = given.get(MORE)
    given = {**given, **more} if isinstance(more, dict) else given
    step = {name: one for name, one in given.items() if one is not None and name != MORE}
    tool = step.get("tool")
    if isinstance(tool, str) and tool in catalogue.tools:
        if "input" in step:
            step["input"] = tool_input(step["input"], catalogue.tools[tool])
        if step.get("tools") in ([], [tool]):
            del step["tools"]  # said twice, and meant once
    if "expects" in step:
        step["expects"] = _schema(step["expects"])
    for name in ("needs", "checks"):
        if isinstance(step.get(name), list):
            step[name] = [_check(check) for check in step[name]]
    return step


def _check(check: Any) -> Any:
    if isinstance(check, dict) and "schema" in check:
        return check | {"schema": _schema(check["schema"])}
    return check


def _schema(given: Any) -> Any:
    """Return a JSON Schema that was written as text; the bare name of a type is one too."""
    return {"type": given} if isinstance(given, str) and given in _TYPES else json_value(given)


def read_checks(text: str) -> list[Any]:
    """Return the checks that a reply lists, in plan form; none where it lists none."""
    text = _ASIDE.sub("", text, count=1)
    spans = [text.strip(), *(match[2] for match in _FENCE.finditer(text)), *_within(text)]
    for value in _read(spans)[0]:
        found = value.get("checks") if isinstance(value, dict) else value
        if isinstance(found, list):
            return [_check(check) for check in lenient_checks(found)]
    return []


# ── JSON in a text ────────────────────────────────────────────────────────────────────────────────────────


def _value(text: str) -> Any:
    """Return the JSON value of a reply: the whole text, a fence's, or the largest answer within the prose."""
    if not text.strip():
        raise Rejected([Problem("the reply is empty", _FORMS)])
    spans = [text.strip(), *_fenced(text)]
    readable, troubles = _read(spans)
    for value in (*readable, *_read(_within(text))[0]):
        if _is_answer(value):
            return value
    if readable:
        return readable[0]
    raise troubles[0] if text.lstrip()[:1] in ("{", "[") else Rejected([_no_json()])


def _fenced(text: str) -> list[str]:
    """Return what stands between fences, each between one and the next bare one like it; of many, the first."""
    fences = list(_FENCE.finditer(text))
    closing: dict[str, list[int]] = {}
    for fence in fences:
        if not fence[2].strip(" \t"):
            closing.setdefault(fence[1], []).append(fence.start())
    found: list[str] = []
    at = 0
    for fence in fences:
        ends = closing.get(fence[1], [])
        place = bisect_right(ends, fence.start())
        if fence.start() >= at and place < len(ends) and len(found) < _TRIES:
            found.append(text[fence.end() + 1 : ends[place]])
            at = ends[place] + 1
    return found


def _read(spans: Iterable[str]) -> tuple[list[Any], list[Rejected]]:
    values, troubles = [], []
    for span in spans:
        try:
            values.append(read_json(span.encode("utf-8", "surrogatepass"), lenient_bom=True).value)
        except Rejected as rejected:
            troubles.append(rejected)
    return values, troubles


def _is_answer(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(one, dict) and "id" in one for one in value)
    return isinstance(value, dict) and not _WORDS.isdisjoint(value)


def _no_json() -> Problem:
    return Problem("the reply holds no JSON that can be read", "answer with one JSON object and nothing else")


def _within(text: str) -> list[str]:
    """Return the JSON values that stand in prose, the largest first."""
    found, at, left = [], 0, _PASSES * len(text)  # a value that is never closed is read to the end of the text
    for _ in range(_TRIES):
        if left < 0 or not (opening := _OPENING.search(text, at)):
            break
        try:
            _, at = _DECODER.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            left -= error.pos - opening.start()
            at = opening.end()
        except (ValueError, RecursionError):
            at = opening.end()
        else:
            found.append(text[opening.start() : at])
    return sorted(found, key=len, reverse=True)

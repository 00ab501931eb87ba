"""What a planner's reply says: text -> one verdict with its steps, words or answer; or every problem. Pure.

A reply is one JSON object in the form of `answer_form`, or looser: a bare list of steps, a verdict alone, JSON in a
fence, prose around it. What the steps say is not judged here, only brought into plan form.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from agentfs.core.documents import read_json
from agentfs.core.excerpts import as_text
from agentfs.core.facts import Facts
from agentfs.core.goal_file import lenient_checks, lenient_steps
from agentfs.core.hashing import OVERRIDES, PLAN_SCHEMA, check_value, in_order, overrides_of, spell_out
from agentfs.core.problems import Problem, Rejected
from agentfs.core.proof import wants_acceptance
from agentfs.core.records import Call, JsonObject, Mode, PlanStatus, Trigger
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.answer_form import MORE, json_value, tool_input

ReplyVerdict = Literal["plan", "keep", "finished", "impossible"]

_ASIDE = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)  # what some models say to themselves first
_SHELL_BLOCK = re.compile(r"^```(?:sh|bash|shell)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON_BLOCK = re.compile(r"^```(?:python3?|py)[ \t]*\n(.*?)(?:^```|\Z)", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_MOST_STEPS = 10_000
_ITEM = re.compile(r"\{\{\s*(item|index)\b")
_SHORT = re.compile(r"\{\{\s*([a-z0-9][a-z0-9-]{0,62})(?=\.(?:output|file)\b)")
_PASSES = 4  # times that a text is gone through in search of them
_TRIES = 200  # places at which a value in prose may begin
_DECODER = json.JSONDecoder()
_WORDS = frozenset(("steps", "keep", "finished", "impossible"))
_FIELD_OF = {"plan": "steps", "keep": "keep", "finished": "finished", "impossible": "impossible"}
_FORMS = 'answer with {"steps": […]}, {"keep": true}, {"finished": true, "answer": …} or {"impossible": "why"}'


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, read: one verdict, and what belongs to it."""

    verdict: ReplyVerdict
    steps: list[Any] = field(default_factory=list)  # with `plan`: in plan form, as loose as goals may be
    answer: JsonValue = None  # with `finished`
    why: str = ""  # with `impossible`
    checks: list[Any] = field(default_factory=list)  # with `plan`: what is true when the goal is met
    beside: tuple[str, ...] = ()  # fields of a plan that were answered beside the steps, and are a person's


def read_answer(text: str, catalogue: Catalogue) -> Reply:
    """Return what a reply says, or raise `Rejected` with why it says nothing that can be used."""
    value = _value(_ASIDE.sub("", text, count=1))
    if isinstance(value, list):
        value = {"steps": value}
    if not isinstance(value, dict):
        raise Rejected([Problem("the answer is neither an object nor a list", _FORMS)])
    given = {name: one for name, one in value.items() if one is not None}
    verdicts = [*_verdicts(given)]
    if "impossible" in verdicts and "steps" in verdicts:
        verdicts.remove("impossible")  # it knows a way to try
    if (chosen := _FIELD_OF.get(str(given.get("verdict")))) in verdicts:
        verdicts = [chosen]  # said in so many words: whatever else was filled in does not count
    match verdicts:
        case [said]:
            return _read_reply(said, given, catalogue)
        case []:
            raise Rejected([_nothing(given)])
        case _:
            message = f"the answer says {' and '.join(verdicts)} at once"
            raise Rejected([Problem(message, "choose one, and set the others to null")])


def _verdicts(given: dict[str, Any]) -> Iterator[str]:
    if "impossible" in given and given["impossible"] not in (False, ""):
        yield "impossible"
    for said in ("finished", "keep"):
        if given.get(said) is True or given.get("verdict") == said:
            yield said
    if given.get("steps", []) != []:
        yield "steps"


def _nothing(given: dict[str, Any]) -> Problem:
    if "steps" in given:
        return Problem("the plan has no steps", "list at least one step, or answer with another verdict", "/steps")
    return Problem("the answer holds neither steps nor a verdict", _FORMS)


def _read_reply(verdict: str, given: dict[str, Any], catalogue: Catalogue) -> Reply:
    beside = tuple(name for name in ("status", *OVERRIDES) if name in given)
    match verdict:
        case "keep":
            return Reply("keep", beside=beside)
        case "finished":
            return Reply("finished", answer=given.get("answer"), beside=beside)
        case "impossible":
            return Reply("impossible", why=_why(given["impossible"]), beside=beside)
        case _:
            checks = given.get("checks")
            accepting = [_check(check) for check in lenient_checks(checks)] if isinstance(checks, list) else []
            return Reply("plan", steps=_steps(given["steps"], catalogue), checks=accepting, beside=beside)


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
    ids = (step.get("id") for step in given if isinstance(step, dict))
    names = {one for one in ids if isinstance(one, str)}  # a model may write any value there
    return [_step(_refer(step, names), catalogue) if isinstance(step, dict) else step for step in given]


def _refer(value: Any, names: Collection[str]) -> Any:
    """Return a step, or what is in it, with references that say no more than the id of a step written in full."""
    match value:
        case dict():
            return {name: _refer(one, names) for name, one in value.items()}
        case list():
            return [_refer(one, names) for one in value]
        case str():
            return _SHORT.sub(lambda found: f"{{{{steps.{found[1]}" if found[1] in names else found[0], value)
        case _:
            return value


def _step(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return a step in plan form: without nulls, with values in place of JSON text."""
    more = given.get(MORE)
    for one in more if isinstance(more, list) else [more]:
        given = {**given, **one} if isinstance(one, dict) else given
    step = {name: one for name, one in given.items() if one is not None and name != MORE}
    tool = step.get("tool")
    if isinstance(tool, str) and tool in catalogue.tools:
        if "input" in step:
            step["input"] = tool_input(step["input"], catalogue.tools[tool])
        step.pop("tools", None)  # what a model would get to do it; the tool does it
    if "each" in step and not _uses_item(step):
        del step["each"]  # the same again for every item: a weak model fills in what it is offered
    if "when" in step and isinstance(checks := step.get("checks"), list) and step["when"] in checks:
        del step["when"]  # the same: only if it is done already
    if "expects" in step:
        step["expects"] = _schema(step["expects"])
    for name in ("needs", "checks"):
        if isinstance(step.get(name), list):
            step[name] = [_check(check) for check in step[name]]
    return step


def _uses_item(step: dict[str, Any]) -> bool:
    rest = json.dumps({name: value for name, value in step.items() if name != "each"})
    return _ITEM.search(rest) is not None


def _check(check: Any) -> Any:
    if isinstance(check, dict) and "schema" in check:
        return check | {"schema": _schema(check["schema"])}
    return check


def _schema(given: Any) -> Any:
    """Return a JSON Schema that was written as text; the bare name of a type is one too."""
    return {"type": given} if isinstance(given, str) and given in _TYPES else json_value(given)


def read_checks(text: str) -> list[Any]:
    """Return the checks that a reply lists, as JSON or as the lines of a shell block; none where it lists none."""
    text = _ASIDE.sub("", text, count=1)
    spans = [text.strip(), *(match[2] for match in _FENCE.finditer(text)), *_within(text)]
    for value in _read(spans)[0]:
        found = value.get("checks") if isinstance(value, dict) else value
        if isinstance(found, list):
            return [_check(check) for check in lenient_checks(found)]
    block = _SHELL_BLOCK.search(text)
    lines = (line.strip() for line in block[1].replace("\\\n", " ").splitlines()) if block else ()
    return [{"kind": "command", "run": line} for line in lines if line and not line.startswith("#")]


def read_program(text: str) -> str | None:
    """Return the Python program of a reply that has one and nothing else to run."""
    text = _ASIDE.sub("", text, count=1)
    block = _PYTHON_BLOCK.search(text)
    return block[1] if block and not _SHELL_BLOCK.search(text) else None


# ── JSON in a text ────────────────────────────────────────────────────────────────────────────────────────


def _value(text: str) -> Any:
    """Return the JSON value of a reply: the whole text, a fence's, or the largest answer within the prose."""
    if not text.strip():
        raise Rejected([Problem("the reply is empty", _FORMS)])
    spans = [text.strip(), *_find_fenced(text)]
    readable, troubles = _read(spans)
    for value in (*readable, *_read(_within(text))[0]):
        if _is_answer(value):
            return value
    if readable:
        return readable[0]
    raise troubles[0] if text.lstrip()[:1] in ("{", "[") else Rejected([_no_json()])


def _find_fenced(text: str) -> list[str]:
    """Return what is between fences, each between one and the next bare one like it; of many, the first."""
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
    """Return the JSON values in prose, the largest first."""
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


# ── steps that were answered -> a whole plan: what is finished stays as it is ────────────────────────────


StepValue = dict[str, Any]
_RESULT_LENGTH = 4_000  # characters of one result
UNANSWERABLE: frozenset[Trigger] = frozenset(("first", "next_step", "drift"))  # by `keep`: there is nothing to keep


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The situation when an answer comes: what it is merged into, and what it may say."""

    title: str
    status: PlanStatus = "approved"
    mode: Mode = "split"
    triggers: frozenset[Trigger] = frozenset(("first",))
    plan: JsonObject | None = None  # the present one, in plan form
    done: frozenset[str] = frozenset()  # steps that are done, and still count
    steps: tuple[StepValue, ...] = field(default=())  # the plan's, each with its depends_on
    checks: tuple[JsonObject, ...] = ()  # the plan's own; no answer drops one
    evidence: str = ""  # the goal and the results so far: what prevents it must be there
    wants_checks: bool = False  # a model has to write acceptance checks with this answer

    @property
    def kept(self) -> dict[str, StepValue]:
        """The steps that stay whatever the answer lists: done ones, and those that a person left out."""
        return {step["id"]: step for step in self.steps if step["id"] in self.done or step.get("skip")}

    @property
    def open(self) -> dict[str, StepValue]:
        """The steps that an answer may change or drop."""
        kept = self.kept
        return {step["id"]: step for step in self.steps if step["id"] not in kept}

    @property
    def may_keep(self) -> bool:
        return self.plan is not None and self.triggers.isdisjoint(UNANSWERABLE)

    @property
    def may_finish(self) -> bool:
        return bool(self.done)


def plan_context(call: Call, state: RunState, plan: JsonObject | None) -> PlanContext:
    """Return the situation of a call. `plan`: the last revision's."""
    facts = state.facts
    triggers = frozenset((call.trigger, *(pending.trigger for pending in state.pending)))
    if plan is None:
        first: PlanStatus = "approved" if facts.run.approve == "never" else "draft"
        return PlanContext(
            facts.goal.title,
            first,
            facts.run.mode,
            triggers,
            checks=_goals_own(facts),
            evidence=facts.goal.text,
            wants_checks=wants_acceptance(facts),
        )
    given: Any = plan
    edited = "goal_changed" in triggers
    return PlanContext(
        title=facts.goal.title if edited else given.get("goal") or facts.goal.title,
        status=given["status"],
        mode=facts.run.mode,
        triggers=triggers,
        plan=plan,
        done=frozenset(view.id for view in state.steps.values() if view.status == "done"),
        steps=tuple(spell_out(given["steps"])),
        checks=_goals_own(facts) if edited else tuple(given.get("checks") or ()),
        evidence="\n".join((facts.goal.text, *_results(facts))),
        wants_checks=edited and wants_acceptance(facts),
    )


def _results(facts: Facts) -> Iterator[str]:
    """Yield what the attempts brought, each within bounds."""
    for attempts in facts.attempts.values():
        for result in (one.result for one in attempts if one.result):
            yield as_text(result.output)[:_RESULT_LENGTH]
            yield result.error.message[:_RESULT_LENGTH] if result.error else ""
            yield from (check.detail[:_RESULT_LENGTH] for check in result.checks)


def _goals_own(facts: Facts) -> tuple[JsonObject, ...]:
    """Return the checks that a goal brings, for its plan; a run of the first release looks at the goal itself."""
    return tuple(map(check_value, facts.goal.checks)) if facts.run.proof is not None else ()


def spell_out_steps(listed: Sequence[Any], context: PlanContext, catalogue: Catalogue) -> list[Any]:
    """Return an answer's steps as plan.json would spell them; the first follows what was finished last."""
    before: list[Any] = [{"id": name, "depends_on": []} for name in list(context.kept)[-1:]]
    return list(lenient_steps([*before, *listed], catalogue)[len(before) :])


def merge_steps(listed: Sequence[Any], context: PlanContext) -> JsonObject:
    """Return the plan that an answer's steps make with what is finished."""
    kept = context.kept
    return build_plan([*kept.values(), *(step for step in listed if _id(step) not in kept)], context)


def kept_plan(context: PlanContext) -> JsonObject | None:
    """Return the plan without its unfinished steps; None if there are none to drop."""
    return build_plan(list(context.kept.values()), context) if context.open else None


def build_plan(steps: Sequence[Any], context: PlanContext) -> JsonObject:
    """Return a plan of these steps under the present status and overrides."""
    ids, kept = {_id(step) for step in steps}, context.kept
    plan: dict[str, Any] = {"$schema": PLAN_SCHEMA, "goal": context.title, "status": context.status}
    plan |= overrides_of(context.plan or {})
    plan |= {"checks": [*context.checks]} if context.checks else {}
    plan["steps"] = [_drop_gone(step, ids) if _id(step) in kept else step for step in steps]
    return plan


def _drop_gone(step: StepValue, ids: set[Any]) -> StepValue:
    """Return a finished step that no longer waits for what has left: it has run, so that takes nothing from it."""
    return in_order(step | {"depends_on": [one for one in step["depends_on"] if one in ids]})


def _id(step: Any) -> Any:
    name = step.get("id") if isinstance(step, Mapping) else None
    return name if isinstance(name, str) else None

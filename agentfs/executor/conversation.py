"""A model's conversation about a step: what it is sent, the tools it is offered, and how its arguments are read.

The conversation is kept within bounds. The opening (who it is, what the step is) always stays. When what follows
grows over BUDGET, older outputs and long arguments are replaced by a line that says how much was there, the oldest
first, until half of it is free: so the beginning of a conversation changes rarely, and servers that remember it need
not read it again. The newest turn stays. The sentences are fixed, so that the same conversation reads the same again.
Arguments are read as a person would: what is plainly meant is taken, nothing is guessed. Runs no tool.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentfs.core.excerpts import as_text, fence_text, head_and_tail
from agentfs.core.hashing import sha256_bytes
from agentfs.core.planner_calls import DO
from agentfs.core.records import Failure, Order
from agentfs.core.text import one_line
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.executor.task import LoopRules, Task
from agentfs.models.base import Offer
from agentfs.models.text_protocol import parse_object, parse_truth
from agentfs.prompts import Prompt, load_prompt
from agentfs.tools.base import StepContext, ToolResult
from agentfs.tools.files import read_allowed
from agentfs.tools.output import text_result, value_result
from agentfs.tools.registry import input_problems

# ── the conversation ────────────────────────────────────────────────────────────────────────────────────

Message = dict[str, Any]  # in chat form

BUDGET = 64_000  # characters after the opening
OPENING = 2
SHORT = 300  # what is no longer than this stays as it is


class Conversation:
    """Messages in chat form; grows at its end, and shrinks in its middle."""

    def __init__(self, messages: Iterable[Message], budget: int = BUDGET) -> None:
        self.messages: list[Message] = list(messages)
        self._budget = budget

    def add_message(self, message: Message) -> None:
        """Add a reply of the model."""
        self.messages.append(message)

    def add_result(self, call: str, text: str) -> None:
        """Add what a tool gave back."""
        self.messages.append({"role": "tool", "tool_call_id": call, "content": text})

    def add_note(self, text: str) -> None:
        """Add a note to the model."""
        self.messages.append({"role": "user", "content": text})

    def fit(self) -> tuple[Message, ...]:
        """Return the messages, with room made where there were too many."""
        size = sum(map(_size, self.messages[OPENING:]))
        if size > self._budget:
            for place in range(OPENING, self._newest_turn()):
                before = _size(self.messages[place])
                self.messages[place] = _shorten(self.messages[place])
                size += _size(self.messages[place]) - before
                if size <= self._budget // 2:
                    break
        return tuple(self.messages)

    def _newest_turn(self) -> int:
        places = (place for place, message in enumerate(self.messages) if message["role"] == "assistant")
        return max(places, default=OPENING)


def _size(message: Message) -> int:
    return len(str(message.get("content") or "")) + sum(len(arguments) for arguments in _arguments(message))


def _arguments(message: Message) -> list[str]:
    return [call["function"]["arguments"] for call in message.get("tool_calls", ())]


def _shorten(message: Message) -> Message:
    if message["role"] == "user":
        return message
    shorter = {**message, "content": _stub(message.get("content") or "")}
    if "tool_calls" in message:
        shorter["tool_calls"] = [_shorter_call(call) for call in message["tool_calls"]]
    return shorter


def _shorter_call(call: Message) -> Message:
    """Return a call whose arguments are still JSON: servers read them."""
    function = call["function"]
    if len(function["arguments"]) <= SHORT:
        return call
    said = {"dropped": f"{len(function['arguments'])} characters of arguments, to save room"}
    return {**call, "function": {**function, "arguments": json.dumps(said)}}


def _stub(text: str) -> str:
    if len(text) <= SHORT:
        return text
    return f"(dropped to save room: {len(text)} characters, beginning with: {one_line(text, 100)})"


# ── the opening: nothing of any other step is in it ─────────────────────────────────────────────────────

GOAL_LENGTH, ERROR_LENGTH, MOST_ERRORS = 300, 1500, 3

WHOLE = {"goal", "files"}  # the input of the step `do`


def opening(task: Task, context: StepContext) -> tuple[tuple[Message, ...], str]:
    """Return the messages a loop begins with, and the hash of the prompts they were made from."""
    workspace = context.confinement.workspace
    names = ("executor", "scratchpad") if task.loop.scratchpad else ("executor",)
    system, step = [load_prompt(name, workspace) for name in names], load_prompt("step", workspace)
    message = step_message(task, step)
    who = "".join(prompt.text for prompt in system)
    messages = ({"role": "system", "content": who}, {"role": "user", "content": context.mask.text(message)})
    return messages, sha256_bytes("".join(prompt.sha256 for prompt in (*system, step)).encode())


def step_message(task: Task, step: Prompt) -> str:
    """Return what is said of a step to the one that does it: a model in a loop, or an agent."""
    order, rules = task.order, task.loop
    whole = _whole_goal(order)
    return step.filled(
        step=order.step,
        description=whole or order.description or "do what its input says",
        input=_section("Its input", "" if whole else _input(order)),
        condition=_section("It is done when", order.success_condition or ""),
        earlier=_earlier(rules),
        goal="" if whole else _background(rules),
    )


def _whole_goal(order: Order) -> str:
    """Return the goal where it is the step, and how the files begin that it names: it is said once."""
    goal, files = order.input.get("goal"), order.input.get("files", {})
    if order.step != DO or not isinstance(goal, str) or not isinstance(files, dict) or order.input.keys() - WHOLE:
        return ""
    return "\n\n".join([goal.strip(), *(f"{name} begins:\n{fence_text(str(text))}" for name, text in files.items())])


def _section(name: str, text: str) -> str:
    return f"\n\n{name}:\n{text}" if text else ""


def _input(order: Order) -> str:
    return fence_text(json.dumps(order.input, ensure_ascii=False, indent=2)) if order.input else ""


def _background(rules: LoopRules) -> str:
    goal = one_line(rules.goal, GOAL_LENGTH)
    return f"Background, no work of yours: {goal}\n\n" if goal else ""


def _earlier(rules: LoopRules) -> str:
    if not rules.earlier:
        return ""
    shown = [f"- {head_and_tail(error, ERROR_LENGTH)}" for error in rules.earlier[-MOST_ERRORS:]]
    return "\n".join(["It was tried before, and failed:", *shown, "", ""])


# ── the loop's own sentences ────────────────────────────────────────────────────────────────────────────

WARN_AT, FAIL_AT = 3, 5  # repeats of a call with the same result
PROSE = "That was text, and no tool was called. Call a tool, or `finish` if the step is done."
NOTHING_RUN = "Nothing was run. Reply with one block and no other words."
NOTHING_RUN_OR_DONE = f"{NOTHING_RUN} If the step is done, reply DONE: and the answer."
IN_WORDS = "(it makes no native calls: the conversation begins again, in words)"  # for the log alone
NEXT = "If the step is done, reply DONE: and the answer. If not, reply with the next block."
NEXT_FAILED = "Reply with another block."
CUT = "Your reply was cut short because it was too long, and nothing was run. Say less in one reply."
ALONE = "Refused: you have not seen yet what the other calls of this reply brought. Look at it, then end the step."
MANY = "Nothing was run: too many calls in one reply."
NOTHING_DONE = "Refused: no tool has done anything yet. Do the step first; if it truly needs no tool, end it again."
CONTRADICTION = (
    "Refused: `ok` is true, and `blocked` says why the step cannot be done. Only one can be so: set ok to false, "
    "or blocked to null."
)
PLAN_FIRST = (
    "Refused: first write your plan, by this tool with your own steps: "
    '{"tool": "write_file", "path": "PLAN.md", "content": "- [ ] first step"}. Then other calls are taken.'
)
LAST_TURN = "One turn is left: end the step now, with what you have."
UNCONFINED = (
    "Refused: there is no sandbox here (bubblewrap), and a model may run programs only inside one. "
    'A person can install bubblewrap, or set sandbox = "off" under [tools] in agentfs.toml.'
)


def another_way(*, can_python: bool) -> str:
    """Ask a small model, which repeats itself, for something else: it makes fewer mistakes in Python."""
    example = ", for example with a ```python block" if can_python else ""
    return f"What was run is wrong somewhere. Do it in another way{example}."


def not_accepted(wrong: Iterable[str]) -> str:
    """Say that a claim does not hold: what kind of check failed and what it printed, never how to satisfy it."""
    listed = "\n".join(f"- {one}" for one in wrong)
    return f"Not done yet. The result was checked, and this is not as the goal wants it:\n{listed}\nGo on working."


def unknown(name: str, known: Iterable[str]) -> str:
    return f"There is no tool {name!r}. The tools of this step are: {', '.join(known)}."


def wrong_arguments(problems: Iterable[str]) -> str:
    return f"Nothing was run: the arguments do not fit. {'; '.join(problems)}"


def not_json(problem: str) -> str:
    return f"Nothing was run: the arguments are not a JSON object ({problem})."


def repeat_warning(name: str, count: int) -> str:
    what = f"called `{name}` with these arguments" if name else "said this"
    return (
        f"You have {what} {count} times, and nothing changed. Do something else, or end the step and say what is "
        f"in the way. At the {FAIL_AT}th time the step is taken from you."
    )


def plan_note(plan: str) -> str:
    """Return the note that holds PLAN.md as it is now."""
    return f"{PLAN_NOTE}\n\n{plan}"


PLAN_NOTE = "Your PLAN.md, as it stands now:"


# ── the tools it is offered, and how its arguments are read ───────────────────────────────────────────


FINISH, HAND_OVER = "finish", "hand_over"
MOST_EVIDENCE, EVIDENCE_LENGTH = 20, 2000
OUTPUT_LENGTH = 8_000  # characters of one output that a model is shown, or of why it gave up
_NOTHING = ("", "null", "none", "no", "false", "n/a")  # how models say null in words
_BOUNDS = ("minLength", "maxLength")
_WHY = {"type": ["string", "null"]}

_FINISH_FIELDS: Mapping[str, Any] = {
    "ok": {"type": "boolean", "description": "true: the step is done"},
    "output": {"type": "string", "description": "The answer itself, as text or JSON; with ok false: what went wrong"},
    "surprising": _WHY | {"description": "Why a right result is not what the step expects; or null"},
    "blocked": _WHY | {"description": "What is missing, so that nobody could do the step; or null"},
    "evidence": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Lines of the tools' outputs that show it is done, word for word",
    },
}
# What is offered is closed and complete, as strict servers want it; what is taken is anything that can be understood.
FINISH_FORM: dict[str, Any] = {
    "type": "object",
    "properties": dict(_FINISH_FIELDS),
    "required": list(_FINISH_FIELDS),
    "additionalProperties": False,
}
_TAKEN: dict[str, Any] = {
    "type": "object",
    "required": ["ok"],
    "properties": {"ok": {"type": "boolean"}, "output": {}, "surprising": {}, "blocked": {}, "evidence": {}},
}
FINISH_SPEC = ToolSpec(FINISH, "End the step. Call it alone", _TAKEN, "none", repeatable=True)


def fits_finish(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments of `finish`, in words."""
    return input_problems(FINISH_SPEC, given)


def hand_over_spec(split_over: int) -> ToolSpec:
    """Return the tool by which a model gives a goal to the planner."""
    return ToolSpec(
        HAND_OVER,
        f"Give up the goal to a planner: it takes more than {split_over} pieces of work, or you are stuck",
        {
            "type": "object",
            "properties": {
                "why": {"type": "string", "minLength": 1, "description": "Why, and what you found so far"}
            },
            "required": ["why"],
            "additionalProperties": False,
        },
        "none",
        repeatable=True,
    )


def offers(specs: Mapping[str, ToolSpec]) -> tuple[Offer, ...]:
    """Return the tools as a model is shown them."""
    return tuple(
        Offer(name, spec.summary, _brief(FINISH_FORM if name == FINISH else spec.input_schema))
        for name, spec in specs.items()
    )


def _brief(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the bounds of its fields: they are checked, and small models read slowly."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    kept = {
        name: {key: value for key, value in field.items() if key not in _BOUNDS} for name, field in fields.items()
    }
    return {**schema, "properties": kept}


def finish_arguments(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `finish` with an `ok`: who gives an output, and names nothing missing, means done."""
    if given.get("ok") is not None or not given.keys() & {"output", "blocked"}:
        return given
    return {**given, "ok": _why(given.get("blocked")) is None}


@dataclass(frozen=True, slots=True)
class Finish:
    """How a model says a step ended."""

    ok: bool
    output: Any
    surprising: str | None
    blocked: str | None
    evidence: tuple[str, ...]

    @staticmethod
    def of(given: Mapping[str, Any]) -> "Finish":
        """Return it from the arguments of `finish`, which fit."""
        evidence = given.get("evidence") or []
        listed = evidence if isinstance(evidence, list) else [evidence]
        return Finish(
            given["ok"],
            _output(given.get("output")),
            _why(given.get("surprising")),
            _why(given.get("blocked")),
            tuple(head_and_tail(as_text(item), EVIDENCE_LENGTH) for item in listed[:MOST_EVIDENCE]),
        )

    def result(self, kind: Literal["model", "agent"], context: StepContext) -> ToolResult:
        """Return what the step came to by these words; `kind`: whose they are."""
        if self.blocked:
            return ToolResult(blocked=self.blocked, evidence=self.evidence)
        if not self.ok:
            words = as_text(self.output or f"the {kind} gave up and did not say why")
            failure = Failure(kind=kind, message=head_and_tail(words, OUTPUT_LENGTH))
            return ToolResult(failure=failure, evidence=self.evidence)
        give = text_result if isinstance(self.output, str) else value_result
        return replace(give(self.output, context), surprise=self.surprising, evidence=self.evidence)


def _output(given: Any) -> Any:
    """Return the value that an output is: the object or array its text says, else the text."""
    if not isinstance(given, str):
        return given
    if not given.lstrip().startswith(("{", "[")):
        return given
    try:
        return json_value(given)
    except NotJson:
        return given


def _why(given: Any) -> str | None:
    text = as_text(given).strip() if given else ""
    return None if text.casefold() in _NOTHING else text


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────────

# said beside the arguments of a call, and of no effect on what it does
_REMARKS = frozenset({"comment", "description", "explanation", "reason", "reasoning", "thought", "thoughts", "why"})


def fit_arguments(spec: ToolSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the tool takes them, as far as they plainly mean that.

    Null and an empty text are nothing where nothing may be given; an empty path is the working folder; "true" is
    true; remarks about a call are no part of it. Whatever else does not fit is left as it is, and told.
    """
    fields, required = spec.input_schema.get("properties", {}), spec.input_schema.get("required", ())
    return {
        name: _as_typed(fields.get(name, {}), "." if name == "path" and value == "" else value)
        for name, value in given.items()
        if not (name not in required and _is_nothing(fields.get(name, {}), value))
        and not (name not in fields and name in _REMARKS)
    }


def _is_nothing(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value says nothing where a field of that schema may be left out."""
    if value is None:
        return "null" not in _types(schema) and bool(_types(schema) or "enum" in schema)
    return value == "" and (schema.get("minLength", 0) > 0 or "enum" in schema)


def _as_typed(schema: Mapping[str, Any], value: Any) -> Any:
    if "boolean" in _types(schema) and "string" not in _types(schema):
        return parse_truth(value)
    if "integer" in _types(schema) and isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    given = schema.get("type", ())
    return (given,) if isinstance(given, str) else tuple(given)


# ── PLAN.md: always in the run's own folder, wherever its tools work ────────────────────────────────────

PLAN = "PLAN.md"
LENGTH, LARGEST = 8_000, 1024 * 1024


def is_plan(given: Mapping[str, object]) -> bool:
    """Whether a call speaks of the plan."""
    return given.get("path") in (PLAN, f"./{PLAN}")


def writes_plan(tool: str, arguments: str) -> bool:
    """Whether a call writes the plan, whole."""
    try:
        return tool == "write_file" and is_plan(parse_object(arguments))
    except NotJson:
        return False


def at_plan(context: StepContext) -> StepContext:
    """Return a context where the plan is."""
    return replace(context, confinement=replace(context.confinement, workdir=context.confinement.run_files))


def plan_shown(context: StepContext) -> str | None:
    """Return the plan as it is now, as a model is shown it; None if it has not been written."""
    found = read_allowed(PLAN, at_plan(context), LARGEST)
    if isinstance(found, Failure):
        return None
    return fence_text(context.mask.text(head_and_tail(found[1].decode("utf-8", "replace"), LENGTH)))

"""Everything that a model is sent while it does a step: the opening, the conversation, the loop's own sentences.

The conversation is kept within bounds. The opening (who it is, what the step is) always stays. When what follows
grows over BUDGET, older outputs and long arguments are replaced by a line that says how much was there, the oldest
first, until half of it is free: so the beginning of a conversation changes rarely, and servers that remember it need
not read it again. The newest turn stays. The sentences are fixed, so that the same conversation reads the same again.
"""

import json
from collections.abc import Iterable
from typing import Any

from agentfs.core.excerpts import fence_text, head_and_tail, one_line
from agentfs.core.hashing import sha256_bytes
from agentfs.core.planner_calls import DO
from agentfs.core.records import Order
from agentfs.executor.task import LoopRules, Task
from agentfs.prompts import Prompt, load_prompt
from agentfs.tools.base import StepContext

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

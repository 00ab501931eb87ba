"""The questions people are asked: their words, and how the question of an `ask` is written.

What models and tools say in a question is shown, and renders as no more.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.records import Call, JsonObject, Order, Result
from agentfs.core.steps import ended_words
from agentfs.core.text import block, fence, first_line, in_markdown, inert, json_text
from agentfs.executor.attempt_log import QUESTION, AttemptLog
from agentfs.executor.task import Asked
from agentfs.storage.files import StepsFolder
from agentfs.tools.base import StepContext

SHOWN = 4000  # characters of one value of an order, as it is shown to be read
_VARIABLE = re.compile(r"\$\{(REF_[0-9]+)\}")
_QUOTED = re.compile(r'[\\"$`]')  # what means something within double quotes
ASK_LINE = "<!-- ask -->"  # the last line: a reply to it decides nothing but what is asked
ANSWER_LINE = "Answer by a file named `"  # begins the part of a question that says how a file answers it
_HOW = """Answer by a file named `{reply}` beside this one. Its first line decides, and must be exactly one of:

{words}

Anything else keeps waiting.
"""
_YES = (
    "the plan at the end of this file is put into effect: where you and the answer changed the same, the "
    "answer's side counts; all else of yours stays"
)
_NO = {
    "planner": "it is not; the planner is asked again, with your words below it",
    "runbook": "it is not: the plan stays as it is, and this edit of the goal changes nothing",
}
_HEADS = {
    "planner": "The planner has answered, and a person has to look at it:",
    "runbook": "The goal was edited, and a person has to look at what that changes:",
}
By = Literal["planner", "runbook"]
_COMMANDS = """The same by command:

- `agentfs diff {run} --question`
- `agentfs approve {run} planning/{call}`
- `agentfs reject {run} planning/{call} --because TEXT`

Or edit plan.json yourself: a yes is for the changes shown above. If they come to be others, you are asked
again, or not at all if nothing is left to ask."""


def _how(reply: str, words: dict[str, str]) -> str:
    listed = "\n".join(f"- `{word}`: {meaning}" for word, meaning in words.items())
    return _HOW.format(reply=reply, words=listed)


def gate(
    order: Order,
    reply: str,
    before: Result | None = None,
    why: str | None = None,
    items: Sequence[Order] = (),
    touches: str = "",
) -> str:
    """Return a gate's question, bound to its key: what the last attempt came to, what would run, and why.

    `items`: the orders of a step that goes through a list, in the place of its own. `touches`: what that may touch,
    where it is not what [tools] says.
    """
    orders = items or (order,)
    shown = "\n".join(json_text(one.model_dump(mode="json", by_alias=True)) for one in orders)  # no sign hides any
    parts = [
        *_asks_to_run(order, before),
        *([in_markdown(first_line(order.description))] if order.description else []),
        *([f"Why: {in_markdown(first_line(why))}"] if why else []),
        *(_does(one, f"{one.step} would" if items else "It would") for one in orders),
        *([f"What that may touch: {in_markdown(touches)}"] if touches else []),
        _how(reply, {"approve": f"{_the_orders(items)} given", "reject": "it is not; words below it say why"}),
        f"{'The orders' if items else 'The order'} in full:\n\n```json\n{shown}\n```",
        f"<!-- key: {order.key} -->",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _the_orders(items: Sequence[Order]) -> str:
    return f"the {len(items)} orders below are" if len(items) > 1 else "the order below is"


def _asks_to_run(order: Order, before: Result | None) -> Iterator[str]:
    """Yield what is asked; after an attempt that came to nothing, that comes first."""
    if before is None or before.status == "done":
        yield f"# May {order.step} run{'' if before is None else ' again'}?"
        return
    yield f"# {order.step} {in_markdown(inert(ended_words(before)))}"
    if before.error and (rest := block(before.error.message)[1:]):
        yield fence(rest)
    if before.error and before.error.hint:
        yield f"Hint: {in_markdown(first_line(before.error.hint))}"
    yield f"That was attempt {before.attempt}. May it run again, as attempt {order.attempt}?"


def _does(order: Order, begin: str) -> str:
    """Return what an order has done, as a person would read it: values in their places, nothing as JSON."""
    if order.tool == "shell":
        head, text = f"{begin} run (`{order.input.get('interpreter') or 'sh'}`):", _command(order.input)
    elif order.tool == "python":
        head, text = f"{begin} run (`python`):", _shorten(str(order.input.get("code", "")))
    elif order.tool is not None:
        head, text = f"{begin} call the tool `{order.tool}` with:", _fields(order.input)
    else:
        head, text = f"{begin} be done by {_doer(order)}:", order.description or "no description"
        text += f"\n\n{_fields(order.input)}" if order.input else ""
    return f"{head}\n\n{fence(block(text))}"


def _doer(order: Order) -> str:
    if order.agent is not None:
        return f"the coding agent `{order.agent}`, with tools of its own{' and the network' if order.network else ''}"
    tools = ", ".join(f"`{tool}`" for tool in order.tools or ()) or "no tool"
    return f"a model, with {tools}"


def _command(given: JsonObject) -> str:
    """Return shell text with the values of its variables in their places. They are all in double quotes."""
    env = given.get("env")
    values = {name: _shorten(str(value)) for name, value in env.items()} if isinstance(env, dict) else {}

    def value(match: re.Match[str]) -> str:
        return _QUOTED.sub(r"\\\g<0>", values[match[1]]) if match[1] in values else match[0]

    return _VARIABLE.sub(value, str(given.get("command", "")))


def _fields(given: JsonObject) -> str:
    """Return an input field by field; text as it is, indented if it has several lines."""
    return "\n".join(f"{name}:{_field(value)}" for name, value in given.items()) or "nothing"


def _field(value: JsonValue) -> str:
    text = _shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f" {text}" if "\n" not in text else "\n" + "\n".join(f"    {line}" for line in text.splitlines())


def _shorten(text: str) -> str:
    """Return a text with its middle left out if it is long: the order below has all of it."""
    left = len(text) - SHOWN
    return text if left <= 0 else f"{text[: SHOWN // 2]}[… {left} characters, see below …]{text[-SHOWN // 2 :]}"


def cut_off(order: Order | None, step: str, reply: str) -> str:
    """Return the question about an attempt that was cut off and may not simply run again."""
    words = {
        "again": "run it once more",
        "done": "it did its work; the lines below are its output",
        "failed": "it did not; the lines below say why",
    }
    does = ""
    if order is not None:
        does = f"\n{_does(order, 'It was to')}\n\nIts input in full:\n\n```json\n{json_text(order.input)}\n```\n"
    return (
        f"# What became of {step}?\n\n"
        "It was cut off before it could say how it ended, and it is not repeatable: running it again might do "
        f"its work twice. Look at what it left behind.\n{does}\n{_how(reply, words)}"
    )


def ask(step: str, question: str, reply: str) -> str:
    """Return the question of an `ask`: a step of its own, or a call by the model that does a step."""
    how = f"{ANSWER_LINE}{reply}` beside this one: all of it is the answer."
    return f"# {step} asks\n\n{fence(block(question))}\n\n{how}\n\n{ASK_LINE}\n"


def proposal(
    call: Call, words: str, page: dict[str, Any], plan: bytes, reply: str, key: str, by: By = "planner"
) -> str:
    """Return the question about an answer that has to be looked at: bound to the changes it shows."""
    from agentfs.core.plan_diff import conflict_lines, diff_lines, reason_lines

    conflicts = list(conflict_lines(page))[1:]
    parts = [
        f"# Go on after {call.trigger.replace('_', ' ')}?",
        fence(block(words)),
        _HEADS[by],
        "\n".join(reason_lines(page)),
        f"## What you and the answer want otherwise\n\n{fence(conflicts)}" if conflicts else "",
        f"## What would change\n\n{fence(diff_lines(page, colours=False))}",
        f"## How to settle it\n\n{_how(reply, {'approve': _YES, 'reject': _NO[by]})}",
        _COMMANDS.format(run=page["run"], call=call.call),
        "\n".join(["See:", *(f"- {path}" for path in call.evidence)]) if call.evidence else "",
        f"## The plan as it would be\n\n```json\n{json_text(json.loads(plan))}\n```",
        f"<!-- key: {key} -->",
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def surprise(call: Call, text: str, reply: str) -> str:
    """Return the question about a surprise that a runbook has no answer to."""
    evidence = "\n".join(f"- {path}" for path in call.evidence)
    how = _how(reply, {"approve": "go on", "reject": "do not; words below it say why"})
    return f"# Go on after {call.trigger.replace('_', ' ')}?\n\n{fence(block(text))}\n\nSee:\n{evidence}\n\n{how}"


# ── an attempt that asks ──────────────────────────────────────────────────────────────────────────────────


def wait_with(asked: Asked, order: Order, log: AttemptLog, context: StepContext, seconds: float) -> Asked:
    """Write a question that a loop asks; the conversation is safe in the log before the question is there."""
    count = next_question(order, context.steps_folder)
    log.write(QUESTION, {**asked.memory, "count": count, "seconds": seconds})
    log.sync()
    put_question(order, asked.question, count, context)
    return replace(asked, count=count)


def next_question(order: Order, steps_folder: StepsFolder) -> int:
    """Return the number that the next question of an attempt gets; a gate may have had the first."""
    count = 1
    while os.path.exists(f"{steps_folder.folder}/{paths.step_file(order.step, order.attempt, 'question', count)}"):
        count += 1
    return count


def put_question(order: Order, question: str, count: int, context: StepContext) -> None:
    """Make the question appear beside its order: the commit point of waiting."""
    reply = paths.step_file(order.step, order.attempt, "reply", count)
    text = ask(order.step, context.mask.text(question), reply)
    name = paths.step_file(order.step, order.attempt, "question", count)
    context.steps_folder.put(name, text.encode("utf-8", "replace"), durable=True)

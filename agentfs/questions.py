"""The questions people are asked. Words only; what models and tools say in them is shown, and renders as no more."""

import json
from typing import Any

from agentfs.core.records import Call, Order
from agentfs.views.words import block, fenced, first_line, in_markdown, json_text

ASK_LINE = "<!-- ask -->"  # the last line: a reply to it decides nothing but what is asked
_HOW = """Answer by a file named `{reply}` beside this one. Its first line decides, and must be exactly one of:

{words}

Anything else keeps waiting.
"""
_ANSWER_WORDS = {
    "approve": "the plan at the end of this file is put into effect: where you and the answer changed the same, the "
    "answer's side counts; all else of yours stays",
    "reject": "it is not; the planner is asked again, with your words below it",
}
_COMMANDS = """The same by command:

- `agentfs diff {run} --question`
- `agentfs approve {run} planning/{call}`
- `agentfs reject {run} planning/{call} --because TEXT`

Or edit plan.json yourself: a yes is for the changes shown above. If they come to be others, the question is
put anew, or falls away if nothing is left to ask."""


def _how(reply: str, words: dict[str, str]) -> str:
    listed = "\n".join(f"- `{word}`: {meaning}" for word, meaning in words.items())
    return _HOW.format(reply=reply, words=listed)


def gate(order: Order, reply: str) -> str:
    """Return a gate's question: the resolved order in full, bound to its key."""
    shown = json_text(order.model_dump(mode="json", by_alias=True))  # no sign in it hides what is approved
    how = _how(reply, {"approve": "the order below is given", "reject": "it is not; words below it say why"})
    return f"# May {order.step} run?\n\n{how}\n```json\n{shown}\n```\n\n<!-- key: {order.key} -->\n"


def cut_off(order: Order | None, step: str, reply: str) -> str:
    """Return the question about an attempt that was cut off and may not simply run again."""
    words = {
        "again": "run it once more",
        "done": "it did its work; the lines below are its output",
        "failed": "it did not; the lines below say why",
    }
    does = ""
    if order is not None:
        shown = json_text(order.input)
        described = in_markdown(first_line(order.description or "no description"))
        what = f"run `{order.tool}`" if order.tool else f"be done by a model ({described})"
        does = f"\nIt was to {what} with:\n\n```json\n{shown}\n```\n"
    return (
        f"# What became of {step}?\n\n"
        "It was cut off before it could say how it ended, and it is not repeatable: running it again might do "
        f"its work twice. Look at what it left behind.\n{does}\n{_how(reply, words)}"
    )


def ask(step: str, question: str, reply: str) -> str:
    """Return the question of an `ask`: a step of its own, or a call by the model that does a step."""
    how = f"Answer by a file named `{reply}` beside this one: all of it is the answer."
    return f"# {step} asks\n\n{fenced(block(question))}\n\n{how}\n\n{ASK_LINE}\n"


def proposal(call: Call, words: str, page: dict[str, Any], plan: bytes, reply: str, key: str) -> str:
    """Return the question about a planner's answer that has to be looked at: bound to the changes it shows."""
    from agentfs.views.diff import diff_lines
    from agentfs.views.proposal import conflict_lines, reason_lines

    conflicts = list(conflict_lines(page))[1:]
    parts = [
        f"# Go on after {call.trigger.replace('_', ' ')}?",
        fenced(block(words)),
        "The planner has answered, and a person has to look at it:",
        "\n".join(reason_lines(page)),
        f"## What you and the answer want otherwise\n\n{fenced(conflicts)}" if conflicts else "",
        f"## What would change\n\n{fenced(diff_lines(page, colours=False))}",
        f"## How to settle it\n\n{_how(reply, _ANSWER_WORDS)}",
        _COMMANDS.format(run=page["run"], call=call.call),
        "\n".join(["See:", *(f"- {path}" for path in call.evidence)]) if call.evidence else "",
        f"## The plan as it would be\n\n```json\n{json_text(json.loads(plan))}\n```",
        f"<!-- key: {key} -->",
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def answer(call: Call, text: str, reply: str) -> str:
    """Return the question about a planner's answer."""
    evidence = "\n".join(f"- {path}" for path in call.evidence)
    how = _how(reply, {"approve": "go on", "reject": "do not; words below it say why"})
    return f"# Go on after {call.trigger.replace('_', ' ')}?\n\n{fenced(block(text))}\n\nSee:\n{evidence}\n\n{how}"

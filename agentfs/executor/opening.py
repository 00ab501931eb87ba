"""The first two messages of a loop: who the model is, and its step. Nothing of any other step is in them."""

import json

from agentfs.core.canonical import sha256_bytes
from agentfs.core.cutting import fenced, head_and_tail, one_line
from agentfs.core.records import Order
from agentfs.executor.conversation import Message
from agentfs.executor.desk import Desk
from agentfs.prompts import load_prompt
from agentfs.tools.base import Mask

GOAL_LENGTH, ERROR_LENGTH, MOST_ERRORS = 300, 1500, 3


def opening(order: Order, desk: Desk, mask: Mask) -> tuple[tuple[Message, ...], str]:
    """Return the messages a loop begins with, and the hash of the prompts they were made from."""
    names = ("executor", "scratchpad") if desk.scratchpad else ("executor",)
    system, step = [load_prompt(name, desk.workspace) for name in names], load_prompt("step", desk.workspace)
    told = step.filled(
        step=order.step,
        description=order.description or "(what to do is in the input)",
        input=_input(order),
        condition=order.success_condition or "(nothing is said of it: use your judgement)",
        earlier=_earlier(desk),
        goal=one_line(desk.goal, GOAL_LENGTH) or "(none)",
    )
    who = "".join(prompt.text for prompt in system)
    messages = ({"role": "system", "content": who}, {"role": "user", "content": mask.text(told)})
    return messages, sha256_bytes("".join(prompt.sha256 for prompt in (*system, step)).encode())


def _input(order: Order) -> str:
    return fenced(json.dumps(order.input, ensure_ascii=False, indent=2)) if order.input else "(none)"


def _earlier(desk: Desk) -> str:
    if not desk.earlier:
        return "(this is the first)"
    shown = [f"- {head_and_tail(error, ERROR_LENGTH)}" for error in desk.earlier[-MOST_ERRORS:]]
    return "\n".join(["It was tried before, and failed:", *shown])

"""The first two messages of a loop: who the model is, and its step. Nothing of any other step is in them."""

import json

from agentfs.core.excerpts import fenced, head_and_tail, one_line
from agentfs.core.hashing import sha256_bytes
from agentfs.core.mask import Mask
from agentfs.core.planner_calls import DO
from agentfs.core.records import Order
from agentfs.executor.conversation import Message
from agentfs.executor.desk import Desk
from agentfs.prompts import load_prompt

GOAL_LENGTH, ERROR_LENGTH, MOST_ERRORS = 300, 1500, 3

WHOLE = {"goal", "files"}  # the input of the step `do`


def opening(order: Order, desk: Desk, mask: Mask) -> tuple[tuple[Message, ...], str]:
    """Return the messages a loop begins with, and the hash of the prompts they were made from."""
    names = ("executor", "scratchpad") if desk.scratchpad else ("executor",)
    system, step = [load_prompt(name, desk.workspace) for name in names], load_prompt("step", desk.workspace)
    whole = _whole_goal(order)
    told = step.filled(
        step=order.step,
        description=whole or order.description or "do what its input says",
        input=_section("Its input", "" if whole else _input(order)),
        condition=_section("It is done when", order.success_condition or ""),
        earlier=_earlier(desk),
        goal="" if whole else _background(desk),
    )
    who = "".join(prompt.text for prompt in system)
    messages = ({"role": "system", "content": who}, {"role": "user", "content": mask.text(told)})
    return messages, sha256_bytes("".join(prompt.sha256 for prompt in (*system, step)).encode())


def _whole_goal(order: Order) -> str:
    """Return the goal where it is the step, and how the files begin that it names: it is said once."""
    goal, files = order.input.get("goal"), order.input.get("files", {})
    if order.step != DO or not isinstance(goal, str) or not isinstance(files, dict) or order.input.keys() - WHOLE:
        return ""
    return "\n\n".join([goal.strip(), *(f"{name} begins:\n{fenced(str(text))}" for name, text in files.items())])


def _section(name: str, text: str) -> str:
    return f"\n\n{name}:\n{text}" if text else ""


def _input(order: Order) -> str:
    return fenced(json.dumps(order.input, ensure_ascii=False, indent=2)) if order.input else ""


def _background(desk: Desk) -> str:
    goal = one_line(desk.goal, GOAL_LENGTH)
    return f"Background, no work of yours: {goal}\n\n" if goal else ""


def _earlier(desk: Desk) -> str:
    if not desk.earlier:
        return ""
    shown = [f"- {head_and_tail(error, ERROR_LENGTH)}" for error in desk.earlier[-MOST_ERRORS:]]
    return "\n".join(["It was tried before, and failed:", *shown, "", ""])

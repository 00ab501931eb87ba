"""A problem of a plan nobody has as a file, in words: by the step's id, not by a place in a list. Pure."""

from typing import Any

from agentfs.core.problems import Problem, pointer_tokens, show_value
from agentfs.core.records import JsonObject


def in_words(problem: Problem, plan: JsonObject | None) -> str:
    """Return a problem as a planner can follow it: by the step's id, not by its place in a list it never saw."""
    where = _where(pointer_tokens(problem.pointer), plan) if problem.pointer else _line(problem)
    fix = f" -> {problem.fix}" if problem.fix else ""
    return f"{where}{': ' if where else ''}{problem.message}{fix}"


def _where(tokens: list[str], plan: JsonObject | None) -> str:
    steps: Any = (plan or {}).get("steps", [])
    if len(tokens) > 1 and tokens[0] == "steps" and tokens[1].isdigit() and int(tokens[1]) < len(steps):
        step = steps[int(tokens[1])]
        name = step.get("id") if isinstance(step, dict) else None
        named = f"step {name!r}" if isinstance(name, str) else f"the step {show_value(step)}"
        return ", ".join(filter(None, [named, ".".join(tokens[2:])]))
    return ".".join(tokens)


def _line(problem: Problem) -> str:
    return f"line {problem.line}, column {problem.column}" if (problem.line, problem.column) != (1, 1) else ""

"""What a person's reply means: the first line decides, exactly; anything else is not an answer. Pure."""

from typing import Literal

GateWord = Literal["approve", "reject"]
CutWord = Literal["again", "done", "failed"]


def _first_line(reply: str) -> str:
    lines = reply.splitlines()
    return lines[0].strip().casefold() if lines else ""


def gate_word(reply: str | None) -> GateWord | None:
    """Return the decision of a reply to a gate or to a planner's answer; None keeps waiting."""
    match _first_line(reply or ""):
        case "approve":
            return "approve"
        case "reject":
            return "reject"
        case _:
            return None


def cut_word(reply: str | None) -> CutWord | None:
    """Return the decision of a reply about an attempt that was cut off; None keeps waiting."""
    match _first_line(reply or ""):
        case "again":
            return "again"
        case "done":
            return "done"
        case "failed":
            return "failed"
        case _:
            return None


def words_below(reply: str) -> str:
    """Return what a person wrote under the deciding line."""
    return "\n".join(reply.splitlines()[1:]).strip()

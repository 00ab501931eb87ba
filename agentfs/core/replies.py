"""What a person's reply means: the first line decides, exactly; anything else is not an answer. Pure."""

from typing import Literal, get_args

from agentfs.core.excerpts import one_line

GateWord = Literal["approve", "reject"]
CutWord = Literal["again", "done", "failed"]
GATE_WORDS: tuple[str, ...] = get_args(GateWord)
CUT_WORDS: tuple[str, ...] = get_args(CutWord)
SHOWN = 40  # characters of a reply that does not count


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


def uncounted(reply: str | None, words: tuple[str, ...]) -> str | None:
    """Return that a reply settles nothing, and which words on its first line would; None: there is no reply."""
    if reply is None:
        return None
    counting = f"{', '.join(words[:-1])} or {words[-1]}"
    said = one_line((reply.splitlines() or [""])[0], SHOWN)
    if not said:
        return f"the reply's first line is empty: write {counting} there"
    return f"the reply begins with {said!r}, not with {counting}"


def words_below(reply: str) -> str:
    """Return what a person wrote under the deciding line."""
    return "\n".join(reply.splitlines()[1:]).strip()

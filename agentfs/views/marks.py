"""How a state looks: its mark, its colour, its place in a list. Pure, and quick to import."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mark:
    """A sign for a state, one for terminals that know only ASCII, and a colour by its ANSI number."""

    sign: str
    plain: str
    colour: int | None = None


GOOD, BAD, _PERSON, _BUSY, _QUIET = 32, 31, 33, 36, None
WRONG = frozenset(("failed", "blocked", "rejected"))

MARKS: dict[str, Mark] = {
    "waiting": Mark("·", ".", _QUIET),
    "ready": Mark("○", "o", _QUIET),
    "gated": Mark("?", "?", _PERSON),
    "ordered": Mark("▸", ">", _BUSY),
    "running": Mark("▸", ">", _BUSY),
    "done": Mark("✓", "+", GOOD),
    "failed": Mark("✗", "x", BAD),
    "blocked": Mark("✗", "x", BAD),
    "interrupted": Mark("!", "!", _PERSON),
    "rejected": Mark("✗", "x", BAD),
    "skipped": Mark("-", "-", _QUIET),
    "stale": Mark("○", "o", _QUIET),
}
RUN_SIGNS: dict[str, tuple[str, str]] = {
    "planning": ("▸", ">"),
    "draft": ("?", "?"),
    "running": ("▸", ">"),
    "waiting": ("?", "?"),
    "paused": ("‖", "="),
    "done": ("✓", "+"),
    "failed": ("✗", "x"),
    "cancelled": ("✗", "x"),
}
RUN_COLOURS: dict[str, int | None] = {
    "planning": _BUSY,
    "draft": _PERSON,
    "running": _BUSY,
    "waiting": _PERSON,
    "paused": _PERSON,
    "done": GOOD,
    "failed": BAD,
    "cancelled": BAD,
}
BOLD, DIM = 1, 2  # in the place of a colour
UNKNOWN = Mark("?", "?")


def mark_of(state: str) -> Mark:
    return MARKS.get(state, UNKNOWN)


def mark_of_run(state: str) -> Mark:
    return Mark(*RUN_SIGNS[state], RUN_COLOURS[state]) if state in RUN_SIGNS else UNKNOWN


def wrong_first(steps: Iterable[T], state: Callable[[T], str]) -> list[T]:
    """Return steps as people are shown them: what went wrong first, the rest in its order."""
    return sorted(steps, key=lambda step: state(step) not in WRONG)


def painted(text: str, colour: int | None, *, colours: bool) -> str:
    """Return text in a colour, where colours are wanted."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colours and colour is not None else text

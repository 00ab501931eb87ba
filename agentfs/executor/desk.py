"""What a model's part in an attempt needs, beside the order: which model, what it may know, how far it may go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core.records import JsonObject
from agentfs.models.base import Model, ignore_progress
from agentfs.models.budget import Budget

if TYPE_CHECKING:
    from agentfs.tools.base import Bench

MAX_TURNS = 20
Hears = Callable[[str], Callable[[int], None]]  # whose conversation -> what is told how many characters have come
Accept = Callable[["Bench", Any], Sequence[str]]  # where, the output -> what is wrong, in words for the doer
Choose = Callable[[str | None], Model | None]  # a model by its name; None: the executor's. None back: there is none


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a model sits down to do one step. It holds nothing of any other step."""

    choose: Choose
    meter: Budget
    workspace: Path  # whose prompts/ come first
    hears: Hears = lambda _whose: ignore_progress
    goal: str = ""  # one line of background
    earlier: tuple[str, ...] = ()  # what went wrong in earlier attempts at this very step
    max_turns: int = MAX_TURNS
    may_hand_over: bool = False  # the step `do` of agentfs's own plan: what goes wrong in its loop is drift
    split_over: int = 5  # it should hand over what takes more pieces of work than this
    scratchpad: bool = False  # it must write PLAN.md first, and is shown it every turn
    accept: Accept | None = None  # what the plan's checks find wrong when the loop says that it is done
    unconfined: bool = False  # sandbox = "off": a person lets a model run programs with no sandbox


@dataclass(frozen=True, slots=True)
class Asked:
    """A loop that a person must answer before it goes on: what is asked, and what the log must remember of it."""

    question: str
    memory: JsonObject
    count: int = 1  # of the question, once it is written

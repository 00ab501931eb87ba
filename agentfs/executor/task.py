"""What an executor is given beside its context, and how it may answer other than by a result. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentfs.agents.presets import Agent
from agentfs.core.records import Check, Failure, JsonObject, Order, ResolvedCheck, Result
from agentfs.models.base import LimitReached, ModelError, Stopped, Unreachable
from agentfs.models.budget import Budget
from agentfs.tools.base import StepContext

MAX_TURNS = 20


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The plan's own checks, which hold before a loop may say that it is done. A judge is asked only at the end."""

    checks: tuple[ResolvedCheck, ...]
    hidden: tuple[bool, ...]  # a model wrote it: the one that does the work is not shown its command
    written: frozenset[str]  # checks, hashed, that a model wrote: they change nothing


@dataclass(frozen=True, slots=True)
class LoopRules:
    """How a model does a step: what it may know, and how far it may go. Nothing of any other step is in it."""

    goal: str = ""  # one line of background
    earlier: tuple[str, ...] = ()  # what went wrong in earlier attempts at this very step
    max_turns: int = MAX_TURNS
    may_hand_over: bool = False  # the step `do` of agentfs's own plan: what goes wrong in its loop is drift
    split_over: int = 5  # it should hand over what takes more pieces of work than this
    scratchpad: bool = False  # it must write PLAN.md first, and is shown it every turn
    acceptance: Acceptance | None = None
    unconfined: bool = False  # sandbox = "off": a person lets a model run programs with no sandbox


@dataclass(frozen=True, slots=True)
class ProofRules:
    """What is looked at because a model has a part in an attempt: it is not believed on its word."""

    names_in: tuple[str, ...] = ()  # texts that may name files which a judge should see
    unproven: tuple[ResolvedCheck, ...] = ()  # a planner's checks
    unseen: tuple[ResolvedCheck, ...] = ()  # of them: to be run before this attempt, to see if they can fail
    held: frozenset[str] = frozenset()  # checks, hashed, that held before an earlier attempt
    protect: tuple[str, ...] = ()  # paths and globs of what the step may not change
    protected: tuple[Path, ...] = ()  # what that is now, with the files that a person's checks run
    persons: tuple[Check, ...] = ()  # checks of a person: what they name is watched
    spoiled: tuple[str, ...] = ()  # protected files, as an earlier attempt left them: nobody has put them back


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Which agent does a step, and what it may take."""

    agent: Agent
    budget: Budget
    environment: Mapping[str, str] = field(default_factory=dict)  # whose variables it gets, by name
    news: Callable[[str], None] = lambda _words: None


class Keeping(Protocol):
    """Who keeps what a step changed, in a run with a worktree of its own."""

    def snapshot(self) -> str: ...

    def commit(self, order: Order, tree: str) -> str | None: ...

    def remember_left(self, log: Callable[[str, dict[str, str]], None]) -> None: ...

    def settle(self, result: Result, tree: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """An order, and the rules by which it is carried out."""

    order: Order
    loop: LoopRules = field(default_factory=LoopRules)
    proof: ProofRules | None = None  # None: a tool does a person's own step, or the run is of the first release
    retry_wait_s: float = 0.0  # before another try, if this one fails
    keeping: Keeping | None = None  # in an isolated run
    agent: AgentRules | None = None  # the coding agent that does it; None: a tool or a model does


@dataclass(frozen=True, slots=True)
class Asked:
    """A loop that a person must answer before it goes on: what is asked, and what the log must remember of it."""

    question: str
    memory: JsonObject
    count: int = 1  # of the question, once it is written


def no_model(name: str | None) -> Failure:
    """Return why a step that a model should do cannot be done."""
    message = f"there is no model {name!r} to do it" if name else "there is no model to do it"
    return Failure(kind="unreachable", message=message, hint="set OPENAI_API_KEY, or base_url under [executor]")


def failure_of(error: ModelError, context: StepContext) -> Failure:
    """Return what to write down when a model gave no reply."""
    match error:
        case LimitReached():
            kind = "limit"
        case Stopped():
            return context.why_over() or error.failure.model_copy(update={"kind": "interrupted"})
        case Unreachable():
            kind = "unreachable"
        case _:
            kind = "model"
    return error.failure.model_copy(update={"kind": kind})

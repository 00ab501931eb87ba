"""What the files of one run say, as values, and what a worker reports, which is laid over them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, assert_never, get_args

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.problems import Problem
from agentfs.core.records import Answer, Call, Check, GoalChecks, Order, Outcome, Plan, Result, Revision, Run, Tools
from agentfs.core.text import one_line

ASK = "ask"  # the one tool that a person carries out: its attempt waits as files, and takes no place
RUN = "run"  # the one tool that is a run of its own: its attempt waits for the end of that, as files too
DEEPEST = 4  # runs in runs
Above = Literal["paused", "cancelled"]  # what the runs that a run is in hold it to


@dataclass(frozen=True, slots=True)
class Talk:
    """A question put to a person, and the reply beside it."""

    count: int = 1
    key: str | None = None  # what a yes is bound to: the order that a gate shows, or the changes an answer would make
    reply: str | None = None
    ask: bool = False  # an `ask` put it: the reply is an answer to that, and decides nothing else
    taken: bool = False  # the attempt has gone on with the reply


@dataclass(frozen=True, slots=True)
class Claim:
    """What the first line of a log says of its order; read only where there is no order to read."""

    key: str | None = None  # None: a log of the first release, or torn
    repeatable: bool = False
    place: str | None = None  # where it ran; None: where its driver did
    host: str | None = None  # the machine


@dataclass(frozen=True, slots=True)
class Child:
    """The run that an attempt is, as the attempt's log names it."""

    run: str
    begun: bool = False  # it was made: if it is not there now, it was deleted
    there: bool = False
    outcome: Outcome | None = None

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or (self.begun and not self.there)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Everything under `steps/` that carries one step's id and one number."""

    number: int
    order: Order | None = None
    torn: bool = False  # the order is there, but empty or cut short
    claimed: bool = False
    claim: Claim | None = None  # of one that was claimed, has no result, and whose order is gone or torn
    result: Result | None = None
    talks: tuple[Talk, ...] = ()
    again: bool = False  # a person set this attempt aside
    child: Child | None = None  # of the tool `run`, while it has no result

    @property
    def is_unfinished(self) -> bool:
        return self.result is None and (self.order is not None or self.torn or self.claimed)

    @property
    def asks(self) -> Talk | None:
        """The question of an `ask` it waits with: as files, so that nobody need be running."""
        if self.result is not None or not self.claimed or not self.talks or self.order is None:
            return None
        last = self.talks[-1]
        mine = self.order.tool in (None, ASK) and last.key is None and not last.taken
        return last if mine else None


@dataclass(frozen=True, slots=True)
class PlannerCall:
    """Everything under `planning/` that carries one number."""

    number: int
    call: Call | None = None
    answer: Answer | None = None
    tries: tuple[str, ...] = ()  # sha256 of each N.plan.K.json
    talks: tuple[Talk, ...] = ()  # a person was asked about the answer; again, if the plan changed before the yes
    checks: GoalChecks | None = None
    again: bool = False  # a person set this call, or these checks, aside
    words: str | None = None  # what a person asked for: replan.md, as this call took it


@dataclass(frozen=True, slots=True)
class PlanFile:
    """plan.json as it is now, which a person may have changed since the last revision."""

    sha256: str | None = None  # None: there is none
    plan: Plan | None = None  # None: missing or invalid
    problems: tuple[Problem, ...] = ()
    being_saved: bool = False  # there is something newer, which its writer has not finished


@dataclass(frozen=True, slots=True)
class GoalFile:
    """The goal as it is now: the last good one, if a person's edit of it does not parse."""

    sha256: str
    text: str
    title: str
    checks: tuple[Check, ...] = ()  # the goal's own
    protect: tuple[str, ...] = ()  # paths and globs that no model may change
    has_steps: bool = False  # a runbook, or a plan of the person's own: it answers for itself
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """What a person and an answer want otherwise. Without a field it is about the step as a whole, in words."""

    step: str
    field: str | None
    base: JsonValue
    mine: JsonValue
    theirs: JsonValue

    @property
    def place(self) -> str:
        return self.step if self.field is None else f"{self.step}.{self.field}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits to be put into effect."""

    call: int
    revision: int  # the one it was laid over; 0: there was none
    bond: str  # what a yes is bound to: the changes of steps that it makes; empty where none is needed
    source: bytes  # the plan to install
    plan: Plan | None  # the same, read; None: it does not pass the check, and cannot be installed
    conflicts: tuple[Conflict, ...] = ()  # where it has the answer's side against a person's
    touched: tuple[str, ...] = ()  # what a person set by hand, and it changes or drops
    reasons: tuple[str, ...] = ()  # why a person is asked; none: it needs no yes
    changes_nothing: bool = False  # it is what is there already


# What a state rests on beside attempts: what is the same object as long as it has not changed, and what is compared.
_SAME = ("plan", "calls", "goal", "revisions", "run", "proposal", "held")
_EQUAL = ("replan", "asking", "answerable", "cleanable", "whole")
Trail = tuple["Trail", str] | tuple[()]  # the steps touched one after the other; the latest is outermost


@dataclass(frozen=True, slots=True)
class Facts:
    """The files of one run at one moment."""

    run: Run
    goal: GoalFile
    plan_file: PlanFile = PlanFile()
    plan: Plan | None = None  # of the last revision
    revisions: tuple[Revision, ...] = ()
    calls: tuple[PlannerCall, ...] = ()
    attempts: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    outcome: Outcome | None = None
    notes: Mapping[str, str] = field(default_factory=dict)  # plan.error.md and goal.error.md, if they are there
    replan: str | None = None  # what replan.md says, while it is there
    asking: bool = False  # replan.md is there, and its writer has not finished
    broken: tuple[str, ...] = ()  # files of ours that do not read, in words
    above: Above | None = None  # of a run in a run: the runs above it are paused, or cancelled
    answerable: frozenset[str] = frozenset()  # steps whose failure the runbook has an answer to
    cleanable: frozenset[str] = frozenset()  # steps whose rejection it has a clean-up for
    held: frozenset[tuple[str, str]] = (
        frozenset()
    )  # of steps with `each`: those whose condition this process saw hold
    whole: Mapping[str, JsonValue] = field(default_factory=dict)  # by result: outputs that were cut and `each` needs
    proposal: Proposal | None = None  # what the answer that is not in effect comes to
    # Where these facts came from, so that telling what changed since earlier ones need not look at every attempt.
    origin: object = field(default_factory=object, compare=False, repr=False)
    trail: Trail = field(default=(), compare=False, repr=False)

    @property
    def settings(self) -> Run:
        """The settings in force: those the run began with, and what a person has changed of them in the plan."""
        return self.run if self.own_tools is None else self.run.with_tools(self.own_tools)

    @property
    def own_tools(self) -> Tools | None:
        """What the plan in force says of the run's tools, in the place of what it began with."""
        return self.plan.tools if self.plan else None

    def touched_since(self, then: "Facts") -> frozenset[str] | None:
        """Return the steps whose attempts are not what they were; None if more than attempts has changed."""
        if any(getattr(self, name) is not getattr(then, name) for name in _SAME):
            return None
        if any(getattr(self, name) != getattr(then, name) for name in _EQUAL):
            return None
        if (self.outcome is None) != (then.outcome is None):
            return None
        if self.origin is then.origin and (touched := _walk_back(self.trail, then.trail)) is not None:
            return touched
        steps = self.attempts.keys() | then.attempts.keys()
        return frozenset(step for step in steps if self.attempts.get(step) is not then.attempts.get(step))

    def with_attempt(self, step: str, attempt: Attempt) -> "Facts":
        """Return these facts with one attempt added or replaced."""
        others = tuple(a for a in self.attempts.get(step, ()) if a.number != attempt.number)
        mine = tuple(sorted((*others, attempt), key=lambda a: a.number))
        return replace(self, attempts={**self.attempts, step: mine}, trail=(self.trail, step))

    def attempt(self, step: str, number: int) -> Attempt:
        """Return an attempt; an empty one if nothing of it is on disk."""
        return next((a for a in self.attempts.get(step, ()) if a.number == number), Attempt(number))

    def with_call(self, call: PlannerCall) -> "Facts":
        """Return these facts with one call added or replaced."""
        others = tuple(c for c in self.calls if c.number != call.number)
        return replace(self, calls=tuple(sorted((*others, call), key=lambda c: c.number)))

    def planner_call(self, number: int) -> PlannerCall:
        """Return a call; an empty one if nothing of it is on disk."""
        return next((c for c in self.calls if c.number == number), PlannerCall(number))


def _walk_back(trail: Trail, then: Trail) -> frozenset[str] | None:
    """Return the steps touched on the way from an earlier trail to this one; None if it is not on the way."""
    steps = set()
    while trail is not then:
        if not trail:
            return None
        trail, step = trail
        steps.add(step)
    return frozenset(steps)


# ── what a reply means: its first line decides, exactly; anything else is no answer ──────────────────────


GateWord = Literal["approve", "reject"]
CutWord = Literal["again", "done", "failed"]
GATE_WORDS: tuple[GateWord, ...] = get_args(GateWord)
CUT_WORDS: tuple[CutWord, ...] = get_args(CutWord)
W = TypeVar("W", bound=str)
_SHOWN = 40  # characters of a reply that does not count


def gate_word(reply: str | None) -> GateWord | None:
    """Return the decision of a reply to a gate or to a planner's answer; None keeps waiting."""
    return _decision(reply, GATE_WORDS)


def cut_word(reply: str | None) -> CutWord | None:
    """Return the decision of a reply about an attempt that was cut off; None keeps waiting."""
    return _decision(reply, CUT_WORDS)


def _decision(reply: str | None, words: tuple[W, ...]) -> W | None:
    first = next(iter((reply or "").splitlines()), "").strip().casefold()
    return next((word for word in words if word == first), None)


def explain_uncounted(reply: str | None, words: tuple[str, ...]) -> str | None:
    """Return that a reply settles nothing, and which words on its first line would; None: there is no reply."""
    if reply is None:
        return None
    counting = f"{', '.join(words[:-1])} or {words[-1]}"
    said = one_line((reply.splitlines() or [""])[0], _SHOWN)
    if not said:
        return f"the reply's first line is empty: write {counting} there"
    return f"the reply begins with {said!r}, not with {counting}"


def words_below(reply: str) -> str:
    """Return what a person wrote under the deciding line."""
    return "\n".join(reply.splitlines()[1:]).strip()


# ── the notes beside files that a person made invalid ────────────────────────────────────────────────────


def wanted_notes(facts: Facts) -> dict[str, str | None]:
    """Return what each note should say now; None: it should not be there."""
    plan, goal = facts.plan_file.problems, facts.goal.problems
    return {
        paths.PLAN_ERROR: plan_error(plan) if plan else None,
        paths.GOAL_ERROR: _goal_error(goal) if goal else None,
    }


def plan_error(problems: Sequence[Problem]) -> str:
    """Return what is wrong with plan.json, for the person who has it open."""
    holds = "The last revision holds: what runs goes on, nothing new starts."
    return _note(paths.PLAN, problems, holds)


def _goal_error(problems: Sequence[Problem]) -> str:
    return _note("the goal", problems, "The last good one holds, and the run goes on with it.")


def _note(file: str, problems: Sequence[Problem], holds: str) -> str:
    listed = "\n".join(f"    {problem.shown(file)}" for problem in problems)  # indented: it renders as text
    return f"# {file} is not valid\n\n{listed}\n\n{holds} Fix the file and save it; this note is then removed.\n"


# ── what a worker reports when it is done ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OrderIssued:
    """An order is on disk."""

    order: Order


@dataclass(frozen=True, slots=True)
class OrderTaken:
    """Another process has claimed the order."""

    order: Order


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """An attempt has its result; `order` is None where it never got one."""

    result: Result
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class AttemptAsked:
    """An attempt waits with a question for a person, and takes no place until it is answered."""

    order: Order
    count: int


@dataclass(frozen=True, slots=True)
class ChildNamed:
    """The log of an attempt names the run that it is; `begun`: that is there, too."""

    order: Order
    child: str
    begun: bool


@dataclass(frozen=True, slots=True)
class ConditionHeld:
    """The condition of a step with `each` holds; the first order of an item says so on disk."""

    step: str
    key: str


@dataclass(frozen=True, slots=True)
class GateAsked:
    """The question of a gate is on disk; a yes is bound to the key of the order that it shows."""

    step: str
    attempt: int
    count: int
    key: str


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The planner has answered a call."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class ChecksFinished:
    """The goal's checks have been run."""

    call: int
    checks: GoalChecks


@dataclass(frozen=True, slots=True)
class Nothing:
    """The job was stopped, and what it found says nothing."""


Report = (
    OrderIssued
    | OrderTaken
    | AttemptFinished
    | AttemptAsked
    | ChildNamed
    | GateAsked
    | ConditionHeld
    | CallAnswered
    | ChecksFinished
    | Nothing
)


def apply(report: Report, facts: Facts) -> Facts:
    """Return the facts with what a worker reports, as reading its files would."""
    match report:
        case OrderIssued(order=order):
            return _change(facts, order, order=order)
        case OrderTaken(order=order):
            return _change(facts, order, order=order, claimed=True)
        case AttemptFinished(result=result, order=None):
            return _change(facts, result, result=result)
        case AttemptFinished(result=result, order=order):
            return _change(facts, result, order=order, claimed=True, result=result)
        case AttemptAsked(order=order, count=count):
            talks = (*facts.attempt(order.step, order.attempt).talks, Talk(count, ask=True))
            return _change(facts, order, order=order, claimed=True, talks=talks)
        case ChildNamed(order=order, child=child, begun=begun):
            return _change(facts, order, order=order, claimed=True, child=Child(child, begun, there=begun))
        case GateAsked(step=step, attempt=number, count=count, key=key):
            earlier = tuple(talk for talk in facts.attempt(step, number).talks if talk.count < count)
            return _change(facts, report, talks=(*earlier, Talk(count, key)))
        case ConditionHeld(step=step, key=key):
            return replace(facts, held=facts.held | {(step, key)})
        case CallAnswered(answer=answer):
            return facts.with_call(replace(facts.planner_call(answer.call), answer=answer))
        case ChecksFinished(call=call, checks=checks):
            return facts.with_call(replace(facts.planner_call(call), checks=checks))
        case Nothing():
            return facts
        case _:
            assert_never(report)


def _change(facts: Facts, which: Order | Result | GateAsked, **fields: Any) -> Facts:
    """Return the facts with some fields of an attempt changed."""
    return facts.with_attempt(which.step, replace(facts.attempt(which.step, which.attempt), **fields))

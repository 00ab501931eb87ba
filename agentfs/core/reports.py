"""What a worker reports when it is done: a value, and the one function that lays it over the facts. Pure."""

from dataclasses import dataclass, replace
from typing import Any, assert_never

from agentfs.core.facts import Child, Facts, Talk
from agentfs.core.records import Answer, GoalChecks, Order, Result


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

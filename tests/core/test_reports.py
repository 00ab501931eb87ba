"""What workers report, laid over the facts: each as reading the files would have it."""

from dataclasses import replace

from agentfs.core.facts import (
    Attempt,
    AttemptAsked,
    AttemptFinished,
    CallAnswered,
    ChecksFinished,
    GateAsked,
    Nothing,
    OrderIssued,
    OrderTaken,
    PlannerCall,
    Talk,
    apply,
)
from agentfs.core.records import Answer, GoalChecks
from agentfs.core.run_state import derive
from tests.builders import a_call, a_plan, a_result, a_step, an_order, facts, means

GIVEN = facts(a_plan(a_step("a"), a_step("b")))
VIEW = derive(GIVEN, means()).steps["a"]
ORDER, RESULT = an_order(VIEW), a_result(VIEW, "done")


def test_an_attempt_from_its_order_to_its_result() -> None:
    issued = apply(OrderIssued(ORDER), GIVEN)
    assert issued.attempts == {"a": (Attempt(1, order=ORDER),)}
    taken = apply(OrderTaken(ORDER), issued)
    assert taken.attempts == {"a": (Attempt(1, order=ORDER, claimed=True),)}
    asked = apply(AttemptAsked(ORDER, 1), taken)
    assert asked.attempts == {"a": (Attempt(1, order=ORDER, claimed=True, talks=(Talk(1, ask=True),)),)}
    done = apply(AttemptFinished(RESULT, ORDER), taken)
    assert done.attempts == {"a": (Attempt(1, order=ORDER, claimed=True, result=RESULT),)}
    assert done.touched_since(GIVEN) == frozenset({"a"}), "only that step is looked at again"


def test_a_result_without_an_order_claims_nothing() -> None:
    blocked = a_result(VIEW, "blocked")
    assert apply(AttemptFinished(blocked), GIVEN).attempts == {"a": (Attempt(1, result=blocked),)}


def test_a_gate_asked_again_replaces_what_a_reader_saw_of_it() -> None:
    first = apply(GateAsked("a", 1, 1, "1" * 64), GIVEN)
    assert first.attempts == {"a": (Attempt(1, talks=(Talk(1, "1" * 64),)),)}
    again = apply(GateAsked("a", 1, 1, "2" * 64), first)
    assert again.attempts == {"a": (Attempt(1, talks=(Talk(1, "2" * 64),)),)}
    second = apply(GateAsked("a", 1, 2, "3" * 64), again)
    assert second.attempts == {"a": (Attempt(1, talks=(Talk(1, "2" * 64), Talk(2, "3" * 64))),)}


def test_answers_and_checks_belong_to_their_call() -> None:
    answer = Answer(call=2, verdict="keep", duration_s=0.0)
    called = GIVEN.with_call(PlannerCall(2, a_call(2)))
    assert apply(CallAnswered(answer), called).planner_call(2) == PlannerCall(2, a_call(2), answer)
    checks = GoalChecks(revision=1, after={"a": 1, "b": 1}, checks=())
    assert apply(ChecksFinished(2, checks), called).planner_call(2) == PlannerCall(2, a_call(2), checks=checks)
    assert apply(Nothing(), called) is called


def test_what_others_did_meanwhile_stays() -> None:
    """A report is laid over the facts of the moment it is taken, not of the moment its job began."""
    began = apply(OrderIssued(ORDER), GIVEN)
    meanwhile = replace(began, replan="another plan, please").with_attempt("b", Attempt(1, result=RESULT))
    found = apply(AttemptFinished(RESULT, ORDER), meanwhile)
    assert (found.replan, found.attempts["b"]) == (meanwhile.replan, meanwhile.attempts["b"])

"""What a process is already doing, beside the files: given these jobs, then these actions."""

from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import Action, EndRun, IssueOrder, JobKey, StartAttempt, StopAttempt, StopJobs, Wait
from agentfs.core.decide import decide
from agentfs.core.facts import Attempt, Facts
from agentfs.core.outcome import outcome_of
from agentfs.core.records import CommandCheck
from agentfs.core.run_state import derive
from agentfs.core.underway import NEVER_BEGAN, Underway
from tests.builders import NOW, a_plan, a_result, a_step, an_order, facts, means

WIDE = a_plan(*(a_step(name, depends_on=[]) for name in "abcd"))
UNDER_WAY = Wait("attempt", "work is under way")


def jobs(*keys: JobKey, stopping: bool = False, **more: Any) -> Underway:
    return Underway(dict.fromkeys(keys, stopping), **more)


def attempt(step: str, number: int = 1) -> JobKey:
    return JobKey("attempt", step, number)


def decided(given: Facts, underway: Underway, places: int = 4) -> list[Action]:
    return decide(derive(given, means()), places, NOW, underway)


def started(actions: list[Action]) -> list[str]:
    return [action.view.id for action in actions if isinstance(action, IssueOrder | StartAttempt)]


def ordered(given: Facts, *steps: str, claimed: bool = False) -> Facts:
    for step in steps:
        view = derive(given, means()).steps[step]
        given = given.with_attempt(step, Attempt(1, order=an_order(view), claimed=claimed))
    return given


def with_results(given: Facts) -> Facts:
    for step in given.plan.steps if given.plan else ():
        result = a_result(derive(given, means()).steps[step.id], "done")
        given = given.with_attempt(step.id, Attempt(1, claimed=True, result=result))
    return given


def test_an_order_that_is_carried_out_is_not_given_again() -> None:
    """Its needs are being checked, or its claim is not in the facts yet: the files alone would have it start."""
    assert started(decided(facts(WIDE), jobs(attempt("a")))) == ["b", "c", "d"]
    assert started(decided(ordered(facts(WIDE), "a"), jobs(attempt("a")))) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("places", "running", "more"),
    [(4, "", "abcd"), (2, "", "ab"), (2, "a", "b"), (2, "ab", ""), (1, "ab", ""), (3, "ab", "c")],
)
def test_what_runs_takes_its_place_once(places: int, running: str, more: str) -> None:
    under_way = jobs(*map(attempt, running))
    found = decided(facts(WIDE), under_way, places)
    assert started(found) == list(more)
    assert more or found == [UNDER_WAY]


def test_a_call_of_the_planner_takes_no_place() -> None:
    assert started(decided(facts(WIDE), jobs(JobKey("call", "", 2)), 2)) == ["a", "b"]


def test_nothing_new_starts_in_a_process_that_is_about_to_stop() -> None:
    assert decided(facts(WIDE), jobs(draining=True)) == [Wait("attempt", "every place for an attempt is taken")]
    assert decided(facts(), jobs(draining=True)) == [UNDER_WAY]
    done = with_results(facts(WIDE))
    assert decided(done, jobs(draining=True)) == [UNDER_WAY], "the next driver ends it"


def test_what_is_no_longer_wanted_is_stopped_once_even_then() -> None:
    cancelled = ordered(facts(replace_status(WIDE, "cancelled")), "a", claimed=True)
    why = "the plan's status is cancelled"
    being_ended = Wait("attempt", "what runs is being ended")
    for draining in (False, True):
        found = decided(cancelled, jobs(attempt("a"), draining=draining))
        assert found == [StopAttempt("a", 1, "cancelled", why), being_ended]
        assert decided(cancelled, jobs(attempt("a"), stopping=True, draining=draining)) == [being_ended]


def replace_status(plan: Any, status: str) -> Any:
    return plan.model_copy(update={"status": status})


def test_an_order_that_a_dead_driver_left_does_not_hold_up_a_paused_run() -> None:
    left = ordered(facts(replace_status(WIDE, "paused")), "a")
    assert decided(left, Underway()) == [StopAttempt("a", 1, "interrupted", NEVER_BEGAN)]
    waits = [Wait("attempt", "the plan is paused: resume it")]
    assert decided(left, jobs(attempt("b"))) == waits, "something is under way: it may be this one"
    assert decided(left, jobs(draining=True)) == waits
    assert decide(derive(left, means()), 4, NOW) == waits, "seen from outside another process may have it"


def test_no_run_ends_under_checks_of_its_own() -> None:
    """What a step needs is being checked when the run has to end: nobody is asked anything after the end."""
    needs = [CommandCheck(kind="command", run="true").model_dump()]
    plan = a_plan(
        a_step("a", depends_on=[], on_failure="stop", max_attempts=1), a_step("b", depends_on=[], needs=needs)
    )
    given = facts(plan)
    failed = a_result(derive(given, means()).steps["a"], "failed")
    given = given.with_attempt("a", Attempt(1, claimed=True, result=failed))
    (end,) = decided(given, Underway())
    assert isinstance(end, EndRun)
    for key in (attempt("b"), JobKey("gate", "b", 1)):
        assert decided(given, jobs(key)) == [StopJobs((key,), "the run ends")]
        assert decided(given, jobs(key, stopping=True)) == [UNDER_WAY]
    call = JobKey("call", "", 2)
    assert decided(given, jobs(call)) == [end], "nothing comes of a call then"


def test_no_run_ends_while_a_person_writes_a_wish() -> None:
    done = with_results(facts(WIDE))
    assert decided(done, Underway(asking=True)) == [Wait("attempt", "replan.md is being saved")]
    assert [type(one) for one in decided(done, Underway())] == [EndRun]
    assert started(decided(facts(WIDE), Underway(asking=True))) == ["a", "b", "c", "d"]


def test_what_still_runs_is_stopped_after_the_end() -> None:
    done = with_results(facts(WIDE))
    state = derive(done, means())
    (end,) = decide(state, 1)
    assert isinstance(end, EndRun)
    outcome = outcome_of(state, end, NOW)
    ended, rest = replace(done, outcome=outcome), Wait("nothing", f"the run has ended: {outcome.summary}")
    call = JobKey("call", "", 2)
    assert decided(ended, jobs(call)) == [StopJobs((call,), "the run has ended"), rest]
    assert decided(ended, jobs(call, stopping=True)) == [rest]
    assert decided(ended, Underway()) == [rest]

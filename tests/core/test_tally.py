"""The steps of a run as people count them."""

from dataclasses import replace

import pytest

from agentfs.core.actions import EndRun
from agentfs.core.facts import Attempt, Facts, PlannerCall
from agentfs.core.outcome import Tally, left_steps, outcome_of, steps_by_end, tally
from agentfs.core.records import Answer, Failure, Plan, StepsByEnd
from agentfs.core.run_state import derive
from tests.builders import a_call, a_plan, a_result, a_revision, a_step, an_order, facts, means

NOW = "2026-11-16T10:00:00.000000Z"
FIRST = a_plan(a_step("build"), a_step("upload"), a_step("announce"))
SECOND = a_plan(a_step("build"), a_step("upload-slowly"), a_step("announce"))
CLEAN_UP = a_plan(a_step("build"), a_step("take-down"))


def tried(given: Facts, step: str, *ends: str) -> Facts:
    """Attempts of a step of the plan in force, one per end; each failure has a reason of several lines."""
    for number, status in enumerate(ends, start=len(given.attempts.get(step, ())) + 1):
        view = derive(given, means()).steps[step]
        why = (
            Failure(kind="exit", message=f"exit code {number}: no luck\nmuch\nno luck") if status != "done" else None
        )
        result = a_result(view, status, number, error=why)  # type: ignore[arg-type]
        given = given.with_attempt(step, Attempt(number, order=an_order(view), claimed=True, result=result))
    return given


def revised(given: Facts, plan: Plan, step: str, verdict: str = "plan") -> Facts:
    """The next revision, made by the call after a step failed."""
    number = len(given.revisions) + 1
    call = PlannerCall(
        number,
        call=a_call(number, trigger="step_failed", step=step, evidence=(f"steps/{step}.1.result.json",)),
        answer=Answer(call=number, verdict=verdict, plan={"steps": []}, duration_s=0.0),  # type: ignore[arg-type]
    )
    revision = a_revision(number, plan, given.plan, call=number, step=step, trigger="step_failed")
    return replace(
        given.with_call(call), plan=plan, revisions=(*given.revisions, revision), plan_file=facts(plan).plan_file
    )


def replaced() -> Facts:
    return revised(tried(tried(facts(FIRST), "build", "done"), "upload", "failed"), SECOND, "upload")


def given_up() -> Facts:
    return revised(tried(replaced(), "upload-slowly", "failed", "failed"), CLEAN_UP, "upload-slowly", "impossible")


def test_a_step_that_was_replaced_does_not_count_but_is_named() -> None:
    state = derive(tried(tried(replaced(), "upload-slowly", "done"), "announce", "done"), means())
    assert tally(state) == Tally(done=3, failed=0, skipped=0, total=3)
    assert [(one.id, one.status, one.why, one.attempt, one.left) for one in left_steps(state)] == [
        ("upload", "failed", "exit code 1: no luck", 1, 2)
    ]
    outcome = outcome_of(state, EndRun("done", "steps_done", "so"), NOW)
    assert outcome.summary == "3 of 3 steps done; failed on the way: upload"
    assert outcome.steps == StepsByEnd(
        done=("build", "upload-slowly", "announce"), failed=("upload",), skipped=(), not_reached=()
    )


def test_where_the_goal_was_given_up_every_step_counts() -> None:
    state = derive(tried(given_up(), "take-down", "done"), means())
    assert steps_by_end(state) == StepsByEnd(
        done=("build", "take-down"), failed=("upload", "upload-slowly"), skipped=(), not_reached=("announce",)
    )
    assert tally(state).words == "2 of 5 steps done, 2 failed"
    assert [(one.id, one.status, one.why, one.left) for one in left_steps(state)] == [
        ("upload", "failed", "exit code 1: no luck", 2),
        ("upload-slowly", "failed", "exit code 2: no luck", 3),
        ("announce", "waiting", "it was not reached", 3),
    ]


def test_a_run_that_failed_counts_what_failed_on_the_way() -> None:
    given = tried(replaced(), "upload-slowly", "failed", "failed")
    assert tally(derive(given, means())) == Tally(done=1, failed=1, skipped=0, total=3)
    outcome = outcome_of(derive(given, means()), EndRun("failed", "step_failed", "upload-slowly failed"), NOW)
    assert outcome.summary == "upload-slowly failed; 1 of 4 steps done, 2 failed"
    ended = derive(replace(given, outcome=outcome), means())
    assert tally(ended).as_json() == {"done": 1, "failed": 2, "skipped": 0, "total": 4}


def test_skipped_is_not_done() -> None:
    given = tried(facts(a_plan(a_step("a"), a_step("b", skip="not today"))), "a", "done")
    assert tally(derive(given, means())).words == "1 of 2 steps done, 1 skipped"
    outcome = outcome_of(derive(given, means()), EndRun("done", "steps_done", "so"), NOW)
    assert outcome.summary == "1 of 2 steps done, 1 skipped"


@pytest.mark.parametrize(
    ("ends", "status", "failed"),
    [
        (("done",), "done", ()),
        (("failed", "done"), "done", ()),
        (("failed", "interrupted"), "failed", ("upload",)),  # stopped when it left: it had failed before
        (("interrupted",), "interrupted", ()),
    ],
)
def test_a_step_that_left_is_what_it_was(ends: tuple[str, ...], status: str, failed: tuple[str, ...]) -> None:
    state = derive(revised(tried(facts(FIRST), "upload", *ends), SECOND, "upload"), means())
    assert [one.status for one in left_steps(state)] == [status]
    assert steps_by_end(state).failed == failed

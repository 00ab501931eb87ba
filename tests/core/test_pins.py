"""Which fields are a person's: from their edit on, until another author's revision changes them."""

from agentfs.core.plan_merge import plan_without_edits
from agentfs.core.records import Author, Plan, Revision, Step
from tests.builders import a_plan, a_revision, a_step, hand_edited_fields

PERSON, PLANNER = Author(role="person", name="Ada"), Author(role="planner", name="planner")


def history(*plans: tuple[str, Plan]) -> list[tuple[Revision, Plan]]:
    """Revisions of these plans; each says who made it."""
    return [
        (a_revision(number, plan, trigger=trigger, by=PERSON if trigger == "edited" else PLANNER), plan)
        for number, (trigger, plan) in enumerate(plans, start=1)
    ]


A, B = a_step("a", depends_on=[]), a_step("b", depends_on=["a"], why="so")
FIRST = ("first", a_plan(A, B))


def test_nothing_is_a_persons_before_they_edit() -> None:
    assert hand_edited_fields(history(FIRST)) == {}
    assert hand_edited_fields(history(FIRST, ("step_failed", a_plan(A)))) == {}


def test_what_an_edit_changed_is() -> None:
    edited = a_plan(
        a_step("a", depends_on=[], input={"text": "mine"}, gate=True), a_step("b", depends_on=[]), status="paused"
    )
    assert hand_edited_fields(history(FIRST, ("edited", edited))) == {
        "a": {"input", "gate"},
        "b": {"depends_on", "why"},
    }


def test_a_step_they_added_is_theirs_as_a_whole() -> None:
    edited = a_plan(A, B, a_step("c", depends_on=["b"], why="mine"))
    assert hand_edited_fields(history(FIRST, ("edited", edited))) == {"c": {"tool", "input", "why", "depends_on"}}
    assert hand_edited_fields(history(("edited", a_plan(A)))) == {"a": {"tool", "input", "depends_on"}}


def test_status_and_limits_are_no_fields_of_a_step() -> None:
    assert hand_edited_fields(history(FIRST, ("edited", a_plan(A, B, status="paused", limits={"replans": 9})))) == {}


def test_what_another_changed_since_is_no_longer() -> None:
    mine = a_plan(a_step("a", depends_on=[], input={"text": "mine"}, why="mine"), B)
    theirs = a_plan(a_step("a", depends_on=[], input={"text": "theirs"}, why="mine"), B)
    assert hand_edited_fields(history(FIRST, ("edited", mine), ("asked", theirs))) == {"a": {"why"}}
    assert hand_edited_fields(history(FIRST, ("edited", mine), ("asked", a_plan(A, B)))) == {}


def test_a_step_that_left_takes_its_pins_along() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    back = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    assert hand_edited_fields(history(FIRST, ("edited", mine), ("asked", a_plan(A)), ("asked", back))) == {}
    assert hand_edited_fields(history(FIRST, ("edited", mine), ("edited", a_plan(A)))) == {}


# ── the plan as nobody edited it ──────────────────────────────────────────────────────────────────────────

MINE, C = a_step("b", depends_on=["a"], why="mine"), a_step("c", depends_on=["b"], why="mine")
HAND = ("edited", a_plan(A, MINE, C))
GATED = a_step("a", depends_on=[], gate=True)


def without_edits(*plans: tuple[str, Plan], by: Author = PLANNER) -> list[Step]:
    rebuilt = [
        (one.model_copy(update={"by": by} if one.trigger != "edited" else {}), plan) for one, plan in history(*plans)
    ]
    found = plan_without_edits(rebuilt)
    return sorted(found.steps, key=lambda step: step.id) if found else []


def test_the_plan_without_edits_has_the_changes_of_everybody_else() -> None:
    assert without_edits(FIRST) == [A, B]
    assert without_edits(FIRST, HAND) == [A, B]
    assert without_edits(FIRST, HAND, ("goal_changed", a_plan(GATED, MINE, C))) == [GATED, B]
    said_yes = a_step("b", depends_on=["a"], why="theirs")
    assert without_edits(FIRST, HAND, ("goal_changed", a_plan(A, said_yes, C))) == [A, said_yes]
    assert without_edits(FIRST, ("edited", a_plan(A)), ("goal_changed", a_plan(GATED))) == [GATED, B]


def test_what_a_runbooks_fallback_rewires_stays_a_persons() -> None:
    runbook = Author(role="runbook", name="goal")
    waits = a_step("c", depends_on=["b"], why="so")
    first, hand = (
        ("first", a_plan(A, B, waits)),
        ("edited", a_plan(A, B, a_step("c", depends_on=["a", "b"], why="so"))),
    )
    slow = a_step("b-slowly", depends_on=["a"])
    fell_back = ("step_failed", a_plan(A, slow, a_step("c", depends_on=["a", "b-slowly"], why="so")))
    assert without_edits(first, hand, fell_back, by=runbook) == [A, slow, waits]
    added = ("step_failed", a_plan(A, slow, a_step("c", depends_on=["b-slowly"], why="mine")))
    assert without_edits(FIRST, HAND, added, by=runbook) == [A, slow], "a step of their own is not the goal's"


def test_a_plan_that_a_person_began_with_is_the_base_of_all_that_follows() -> None:
    assert without_edits(("edited", a_plan(A, B)), ("goal_changed", a_plan(GATED, B))) == [GATED, B]
    assert plan_without_edits([]) is None

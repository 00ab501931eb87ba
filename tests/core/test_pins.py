"""Which fields are a person's: from their edit on, until somebody else's revision changes them."""

from agentfs.core.pins import pinned
from agentfs.core.records import Author, Plan, Revision
from tests.builders import a_plan, a_revision, a_step

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
    assert pinned(history(FIRST)) == {}
    assert pinned(history(FIRST, ("step_failed", a_plan(A)))) == {}


def test_what_an_edit_changed_is() -> None:
    edited = a_plan(
        a_step("a", depends_on=[], input={"text": "mine"}, gate=True), a_step("b", depends_on=[]), status="paused"
    )
    assert pinned(history(FIRST, ("edited", edited))) == {"a": {"input", "gate"}, "b": {"depends_on", "why"}}


def test_a_step_they_added_is_theirs_as_a_whole() -> None:
    edited = a_plan(A, B, a_step("c", depends_on=["b"], why="mine"))
    assert pinned(history(FIRST, ("edited", edited))) == {"c": {"tool", "input", "why", "depends_on"}}
    assert pinned(history(("edited", a_plan(A)))) == {"a": {"tool", "input", "depends_on"}}


def test_status_and_limits_are_no_fields_of_a_step() -> None:
    assert pinned(history(FIRST, ("edited", a_plan(A, B, status="paused", limits={"replans": 9})))) == {}


def test_what_another_changed_since_is_no_longer() -> None:
    mine = a_plan(a_step("a", depends_on=[], input={"text": "mine"}, why="mine"), B)
    theirs = a_plan(a_step("a", depends_on=[], input={"text": "theirs"}, why="mine"), B)
    assert pinned(history(FIRST, ("edited", mine), ("asked", theirs))) == {"a": {"why"}}
    assert pinned(history(FIRST, ("edited", mine), ("asked", a_plan(A, B)))) == {}


def test_a_step_that_left_takes_its_pins_along() -> None:
    mine = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    back = a_plan(A, a_step("b", depends_on=["a"], why="mine"))
    assert pinned(history(FIRST, ("edited", mine), ("asked", a_plan(A)), ("asked", back))) == {}
    assert pinned(history(FIRST, ("edited", mine), ("edited", a_plan(A)))) == {}

"""Who set each field of a plan: the last revision that changed it."""

from agentfs.core.plan_changes import blame
from agentfs.core.records import Plan, Revision
from tests.builders import a_plan, a_revision, a_step

A, B = a_step("a", depends_on=[]), a_step("b", depends_on=["a"], why="so", input={"text": "b", "more": 1})


def history(*plans: Plan) -> list[tuple[Revision, Plan]]:
    return [(a_revision(number, plan), plan) for number, plan in enumerate(plans, start=1)]


def origins(*plans: Plan) -> dict[str, int]:
    return {f"{origin.step}.{origin.field}": origin.revision.revision for origin in blame(history(*plans))}


def test_a_first_plan_is_all_of_one_hand_and_in_order() -> None:
    first = a_plan(A, B, goal="Title", limits={"minutes": 5.0, "replans": 1}, tools={"network": True})
    assert list(origins(first).items()) == [
        ("None.goal", 1),
        ("None.status", 1),
        ("None.limits.replans", 1),
        ("None.limits.minutes", 1),
        ("None.tools.network", 1),
        ("a.tool", 1),
        ("a.input.text", 1),
        ("a.depends_on", 1),
        ("b.why", 1),
        ("b.tool", 1),
        ("b.input.text", 1),
        ("b.input.more", 1),
        ("b.depends_on", 1),
    ]
    assert blame([]) == ()


def test_what_changed_is_the_changers_and_what_went_is_nobodys() -> None:
    second = a_plan(
        A, a_step("b", depends_on=[], input={"text": "B", "more": 1}), status="paused", limits={"replans": 2}
    )
    third = a_plan(a_step("c", depends_on=[]), A, a_step("b", depends_on=[], input={"text": "B", "more": 1}))
    assert origins(a_plan(A, B), second, third) == {
        "None.status": 3,
        "c.tool": 3,
        "c.input.text": 3,
        "c.depends_on": 3,
        "a.tool": 1,
        "a.input.text": 1,
        "a.depends_on": 1,
        "b.tool": 1,
        "b.input.text": 2,
        "b.input.more": 1,
        "b.depends_on": 2,
    }


def test_a_step_that_left_and_came_back_is_another_one() -> None:
    assert origins(a_plan(A, B), a_plan(A), a_plan(A, B))["b.why"] == 3
    assert origins(a_plan(A, B), a_plan(A, a_step("b", input={"text": "b", "more": 1}, why="so"))) == origins(
        a_plan(A, B)
    )

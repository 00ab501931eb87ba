"""Two plans compared by meaning, and what the second does to work already done."""

from agentfs.core.facts import Attempt, Facts
from agentfs.core.plan_changes import Difference, Effect, FieldChange, Rewired, StepDifference, difference, effects
from agentfs.core.records import Step
from agentfs.core.run_state import derive
from tests.builders import PureWorld, a_plan, a_step, an_order, facts, means

OLD = a_plan(a_step("a"), a_step("b"), a_step("c", depends_on=["a"]))


def done(plan_facts: Facts) -> Facts:
    """Return the facts once everything has been done."""
    played, _ = PureWorld().play(plan_facts)
    return played


def test_nothing_differs_from_itself() -> None:
    assert difference(OLD, OLD) == Difference()


def test_what_is_only_spelt_out_is_no_difference() -> None:
    spelt = a_plan(a_step("a", depends_on=[]), a_step("b", depends_on=["a"]), a_step("c", depends_on=["a"]))
    assert difference(OLD, spelt) == Difference()


def test_the_first_plan_adds_everything() -> None:
    plan = a_plan(a_step("a", description="say"), a_step("b", gate=True))
    assert difference(None, plan) == Difference(
        (),
        (
            StepDifference(
                "a",
                "added",
                (
                    FieldChange("description", None, "say"),
                    FieldChange("tool", None, "note"),
                    FieldChange("input.text", None, "a"),
                ),
                Rewired((), ()),
            ),
            StepDifference(
                "b",
                "added",
                (
                    FieldChange("tool", None, "note"),
                    FieldChange("input.text", None, "b"),
                    FieldChange("gate", None, True),
                ),
                Rewired((), ("a",)),
            ),
        ),
    )


def test_steps_leave_come_change_and_are_put_after_others() -> None:
    new = a_plan(
        a_step("a", input={"text": "x", "more": 1}, timeout_s=5), a_step("d"), a_step("c", depends_on=["a", "d"])
    )
    found = difference(OLD, new)
    assert found.of("removed") == ("b",)
    assert found.of("added") == ("d",)
    assert found.steps[1:] == (
        StepDifference(
            "a",
            "changed",
            (
                FieldChange("input.text", "a", "x"),
                FieldChange("input.more", None, 1),
                FieldChange("timeout_s", None, 5.0),
            ),
        ),
        StepDifference(
            "d",
            "added",
            (FieldChange("tool", None, "note"), FieldChange("input.text", None, "d")),
            Rewired((), ("a",)),
        ),
        StepDifference("c", "changed", (), Rewired(("a",), ("a", "d"))),
    )


def test_a_reference_is_a_dependency_too() -> None:
    new = a_plan(a_step("a"), a_step("b"), a_step("c", depends_on=["a"], input={"text": "{{steps.b.output}}"}))
    assert difference(OLD, new).steps == (
        StepDifference(
            "c", "changed", (FieldChange("input.text", "c", "{{steps.b.output}}"),), Rewired(("a",), ("a", "b"))
        ),
    )


def test_the_plans_own_fields() -> None:
    new = a_plan(*OLD.steps, status="paused", goal="other", limits={"minutes": 5}, tools={"read": ["/srv"]})
    assert difference(OLD, new).plan == (
        FieldChange("goal", None, "other"),
        FieldChange("status", "approved", "paused"),
        FieldChange("limits.minutes", None, 5.0),
        FieldChange("tools.read", None, ["/srv"]),
    )


def test_true_is_not_one() -> None:
    old, new = (a_plan(a_step(input={"n": value})) for value in (1, True))
    assert difference(old, new).steps == (StepDifference("a", "changed", (FieldChange("input.n", 1, True),)),)


# ── what it means ─────────────────────────────────────────────────────────────────────────────────────────


def fates(given: Facts, *steps: Step) -> dict[str, str]:
    plan = a_plan(*steps)
    return {one.step: one.fate for one in effects(given, means(), plan)}


def test_an_edit_reruns_that_step_and_what_depends_on_it() -> None:
    given = done(facts(OLD))
    assert given.outcome is not None
    changed = a_plan(a_step("a"), a_step("b", input={"text": "new"}), a_step("c", depends_on=["a"]), a_step("d"))
    assert effects(given, means(), changed) == (
        Effect("a", "kept", "attempt 1 succeeded"),
        Effect("b", "again", "the step, or one before it, has changed"),
        Effect("c", "kept", "attempt 1 succeeded"),
        Effect("d", "first", "it is ready"),
    )
    assert fates(given, a_step("a", input={"text": "new"}), a_step("b"), a_step("c", depends_on=["a"])) == {
        "a": "again",
        "b": "again",
        "c": "again",
    }


def test_what_is_left_out_and_what_has_failed() -> None:
    given = PureWorld(fate=lambda step, _: "failed" if step == "b" else "done").play(facts(OLD))[0]
    assert fates(given, a_step("a", skip="no"), a_step("b"), a_step("c", depends_on=[])) == {
        "a": "skipped",
        "b": "failed",
        "c": "kept",
    }


def test_what_runs_goes_on_or_is_stopped() -> None:
    given = facts(a_plan(a_step("a")))
    order = an_order(derive(given, means()).steps["a"])
    given = given.with_attempt("a", Attempt(1, order=order, claimed=True))
    assert fates(given, a_step("a")) == {"a": "on"}
    assert fates(given, a_step("a", input={"text": "new"})) == {"a": "stopped"}

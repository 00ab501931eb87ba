"""What a runbook answers to each trigger: whole plans, whole verdicts."""

from typing import Any

import pytest

from agentfs.core.documents import Document
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.plan_check import check_plan
from agentfs.core.records import JsonObject, Trigger
from agentfs.planner.without_model import RunbookAnswer, Situation, answer, answers, cleanups, first_plan
from tests.core.goal_samples import CATALOGUE, parsed, runbook, sh

KEEP = RunbookAnswer("keep", "The goal's own steps hold no answer to this: the plan stays as it is.")

SHOP = parsed(
    runbook(
        sh("look", "ls"),
        sh("look-again", "find", "instead of: look"),
        sh("copy", "cp {{steps.look.output}} x", "check: `test -s {{steps.look.file}}`"),
        sh("copy-slowly", "dd if={{steps.look.output}}", "instead of: copy"),
        sh("copy-by-hand", "cat {{steps.look.output}}", "instead of: copy-slowly"),
        sh("copy-at-last", "true", "instead of: copy"),
        sh("wipe", "rm x", "on failure of: copy"),
        sh("sweep", "rm -r {{steps.look.output}}", "on failure of: copy"),
        sh("dust", "rm y", "on failure of: copy-slowly"),
        sh("tell", "echo {{steps.copy.output}} {step_copy_result}", "after: look, copy"),
    )
)


def step(name: str, command: str, *depends_on: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": "shell", "input": {"command": command}, "depends_on": list(depends_on)} | more


def plan(*steps: dict[str, Any], **more: Any) -> JsonObject:
    head: JsonObject = {"$schema": "../../../schemas/plan.schema.json", "goal": "Goal", "status": "approved"}
    return head | more | {"steps": list(steps)}


LOOK = step("look", "ls")
COPY = step(
    "copy",
    "cp {{steps.look.output}} x",
    "look",
    checks=[{"kind": "command", "run": "test -s {{steps.look.file}}"}],
)
TELL = step("tell", "echo {{steps.copy.output}} {step_copy_result}", "look", "copy")
FIRST = plan(LOOK, COPY, TELL)


def answer_of(goal: ParsedGoal, now: JsonObject, trigger: Trigger = "step_failed", **situation: Any) -> RunbookAnswer:
    """Return the answer, whose plan passes the check that every plan passes."""
    answered = answer(goal, trigger, Situation(plan=now, **situation))
    if answered.plan is not None:
        check_plan(Document(answered.plan), CATALOGUE)
    return answered


def test_first_is_the_plan_of_the_goal() -> None:
    answered = answer(SHOP, "first", Situation(status="draft"))
    assert answered == RunbookAnswer("plan", "The goal brings its own plan: 3 steps.", FIRST | {"status": "draft"})
    assert answered.plan is not None
    assert list(answered.plan) == ["$schema", "goal", "status", "steps"]


def test_a_goal_in_words_has_no_plan_to_give() -> None:
    with pytest.raises(ValueError, match="a goal in words brings no plan"):
        first_plan(parsed("Tidy up."), "approved")


def test_an_alternative_takes_the_place_of_the_failed_step_and_of_its_name() -> None:
    assert answer_of(SHOP, FIRST, done=frozenset({"look"}), used=frozenset({"look", "copy"}), failed=("copy",)) == (
        RunbookAnswer(
            "plan",
            "'copy' failed: 'copy-slowly' takes its place.",
            plan(
                LOOK,
                step("copy-slowly", "dd if={{steps.look.output}}", "look"),
                step("tell", "echo {{steps.copy-slowly.output}} {step_copy-slowly_result}", "look", "copy-slowly"),
            ),
        )
    )


@pytest.mark.parametrize("trigger", ["step_failed", "repeated_failure", "step_unreachable", "asked"])
def test_every_way_to_fail_has_the_same_answer(trigger: Trigger) -> None:
    answered = answer_of(SHOP, FIRST, trigger, used=frozenset({"look"}), failed=("look",))
    assert answered.answer == "'look' failed: 'look-again' takes its place."


def test_the_own_alternatives_of_an_alternative_come_before_the_others_of_the_first() -> None:
    now, used, order = FIRST, {"look", "copy"}, []
    failed = "copy"
    while (
        answered := answer_of(SHOP, now, done=frozenset({"look"}), used=frozenset(used), failed=(failed,))
    ).verdict == "plan":
        assert answered.plan is not None
        now = answered.plan
        steps: Any = now["steps"]
        failed = steps[1]["id"]
        used.add(failed)
        order.append(failed)
    assert order == ["copy-slowly", "copy-by-hand", "copy-at-last"]
    assert answered == RunbookAnswer(
        "impossible",
        "'copy-at-last' failed, and nothing can take its place. Clean-up: 'wipe', 'sweep'.",
        plan(
            LOOK,
            step("wipe", "rm x", "look", on_failure="continue"),
            step("sweep", "rm -r {{steps.look.output}}", "wipe"),
        ),
    )


def test_a_rejected_step_is_not_replaced_and_its_clean_ups_run() -> None:
    done, used, no = frozenset({"look"}), frozenset({"look", "copy"}), frozenset({"copy"})
    answered = answer_of(SHOP, FIRST, "step_unreachable", done=done, used=used, failed=("copy",), rejected=no)
    assert answered == RunbookAnswer(
        "impossible",
        "A person rejected 'copy': nothing takes its place. Clean-up: 'wipe', 'sweep'.",
        plan(
            LOOK,
            step("wipe", "rm x", "look", on_failure="continue"),
            step("sweep", "rm -r {{steps.look.output}}", "wipe"),
        ),
    )


def test_what_failed_beside_a_rejected_step_is_not_replaced_either() -> None:
    no = frozenset({"copy"})
    answered = answer_of(SHOP, FIRST, "step_unreachable", used=frozenset(), failed=("look", "copy"), rejected=no)
    assert answered.verdict == "impossible"
    assert answered.answer == (
        "A person rejected 'copy': nothing takes its place. 'look' failed. Clean-up: 'wipe'. "
        "Clean-up 'sweep' is left out: it uses the result of 'look', which is not done."
    )


def test_which_steps_have_an_answer_to_a_failure_and_which_to_a_no() -> None:
    assert answers(SHOP, ()) == {"look", "look-again", "copy", "copy-slowly", "copy-by-hand", "copy-at-last"}
    assert cleanups(SHOP, ()) == {"copy", "copy-slowly", "copy-by-hand", "copy-at-last"}
    assert cleanups(SHOP, ("wipe", "sweep")) == {"copy-slowly", "copy-by-hand"}


def test_the_clean_up_of_an_alternative_comes_before_that_of_the_first() -> None:
    now = plan(LOOK, step("copy-slowly", "true", "look"))
    used = frozenset({"look", "copy", "copy-slowly", "copy-by-hand", "copy-at-last"})
    answered = answer_of(SHOP, now, done=frozenset({"look"}), used=used, failed=("copy-slowly",))
    assert answered.answer == (
        "'copy-slowly' failed, and nothing can take its place. Clean-up: 'dust', 'wipe', 'sweep'."
    )


def test_fallbacks_refer_to_what_took_the_place_of_what_they_were_written_against() -> None:
    now = answer_of(SHOP, FIRST, used=frozenset({"look"}), failed=("look",)).plan
    assert now is not None
    used = frozenset({"look", "look-again", "copy"})
    replaced = answer_of(SHOP, now, done=frozenset({"look-again"}), used=used, failed=("copy",)).plan
    assert replaced == plan(
        step("look-again", "find"),
        step("copy-slowly", "dd if={{steps.look-again.output}}", "look-again"),
        step("tell", "echo {{steps.copy-slowly.output}} {step_copy-slowly_result}", "look-again", "copy-slowly"),
    )
    used |= {"copy-slowly", "copy-by-hand", "copy-at-last"}
    ended = answer_of(SHOP, replaced, done=frozenset({"look-again"}), used=used, failed=("copy-slowly",)).plan
    assert ended is not None
    steps: Any = ended["steps"]
    assert steps[-1] == step("sweep", "rm -r {{steps.look-again.output}}", "wipe")


def test_a_step_that_a_person_put_back_is_referred_to_by_its_own_name() -> None:
    now = plan(LOOK, step("look-again", "find"), COPY)
    answered = answer_of(SHOP, now, used=frozenset({"copy"}), failed=("copy",))
    assert answered.plan is not None
    steps: Any = answered.plan["steps"]
    assert steps[2] == step("copy-slowly", "dd if={{steps.look.output}}", "look")


def test_a_clean_up_that_needs_what_is_not_there_is_left_out() -> None:
    used = frozenset({"copy", "copy-slowly", "copy-by-hand", "copy-at-last"})
    assert answer_of(SHOP, FIRST, used=used, failed=("copy",)) == RunbookAnswer(
        "impossible",
        "'copy' failed, and nothing can take its place. Clean-up: 'wipe'. "
        "Clean-up 'sweep' is left out: it uses the result of 'look', which is not done.",
        plan(step("wipe", "rm x")),
    )


def test_where_there_is_no_clean_up_there_is_no_plan() -> None:
    assert answer_of(SHOP, FIRST, failed=("tell",)) == RunbookAnswer(
        "impossible", "'tell' failed, and nothing can take its place."
    )


def test_several_failures_are_answered_together() -> None:
    goal = parsed(
        runbook(
            sh("a", "1", "after: nothing"),
            sh("b", "1", "after: nothing"),
            sh("c", "1", "after: a, b"),
            sh("a2", "2", "instead of: a"),
            sh("b2", "2", "instead of: b"),
            sh("undo", "3", "on failure of: b2"),
        )
    )
    now = first_plan(goal, "approved")
    answered = answer_of(goal, now, used=frozenset({"a", "b"}), failed=("a", "b"))
    assert answered == RunbookAnswer(
        "plan",
        "'a' failed: 'a2' takes its place. 'b' failed: 'b2' takes its place.",
        plan(step("a2", "2"), step("b2", "2"), step("c", "1", "a2", "b2")),
    )
    assert answered.plan is not None
    assert answer_of(
        goal, answered.plan, used=frozenset({"a", "b", "a2", "b2"}), failed=("a2", "b2")
    ) == RunbookAnswer(
        "impossible",
        "'a2', 'b2' failed, and nothing can take their place. Clean-up: 'undo'.",
        plan(step("undo", "3")),
    )


def test_done_steps_stay_as_they_are_but_for_waiting_for_what_leaves() -> None:
    goal = parsed(
        runbook(
            sh("a", "1", "after: nothing", "on failure: continue"),
            sh("b", "1", "why: it must be"),
            sh("c", "1"),
            sh("undo", "3", "on failure of: c"),
        )
    )
    answered = answer_of(goal, first_plan(goal, "approved"), done=frozenset({"b"}), failed=("c",))
    assert answered.plan == plan(step("b", "1", why="it must be"), step("undo", "3", "b"))


def test_an_edited_plan_keeps_its_edits_and_what_was_implied_is_spelled_out() -> None:
    look = {key: value for key, value in LOOK.items() if key != "depends_on"}
    now = plan(
        look | {"why": None},
        {"id": "mine", "tool": "note", "input": {"text": "x"}},
        status="paused",
        limits={"replans": 9},
    )
    answered = answer_of(SHOP, now, failed=("look",))
    mine = {"id": "mine", "tool": "note", "input": {"text": "x"}, "depends_on": ["look-again"]}
    assert answered.plan == plan(step("look-again", "find"), mine, status="paused", limits={"replans": 9})


def test_a_step_that_has_left_the_plan_needs_no_answer() -> None:
    assert answer_of(SHOP, plan(LOOK), failed=("copy",)) == KEEP


@pytest.mark.parametrize("trigger", ["asked", "goal_checks_failed", "every_step"])
def test_to_anything_else_a_runbook_has_nothing_to_say(trigger: Trigger) -> None:
    assert answer_of(SHOP, FIRST, trigger) == KEEP


def test_a_surprise_is_a_question() -> None:
    text = runbook("### count", "```sh", "wc -l", "```", "```json expects", '{"maximum": 9}', "```")
    goal = parsed(text)
    answered = answer_of(
        goal, first_plan(goal, "approved"), "unexpected_state", surprises={"count": "90 is more than 9"}
    )
    assert answered == RunbookAnswer(
        "keep",
        KEEP.answer,
        question="""\
Step 'count' is done, but its result is not what was expected.

Expected:

```json
{
  "maximum": 9
}
```

Came: 90 is more than 9

The runbook has no answer to this. Reply `approve` to go on as planned, `reject` to end the run as failed.
""",
    )


def test_a_surprise_beside_a_failure_is_asked_too() -> None:
    answered = answer_of(SHOP, FIRST, failed=("look",), surprises={"copy": "too much", "gone": "left the plan"})
    assert answered.verdict == "plan"
    assert answered.question is not None
    assert answered.question.startswith(
        "Step 'copy' is done, but its result is not what was expected.\n\nCame: too much\n"
    )
    assert "gone" not in answered.question


def test_a_schema_of_many_pages_is_cut_in_the_question() -> None:
    now = plan(LOOK | {"expects": {"enum": ["x" * 5000]}})
    answered = answer_of(SHOP, now, "unexpected_state", surprises={"look": "y"})
    assert answered.question is not None
    assert len(answered.question) < 4400
    assert "\n…\n```" in answered.question


# ── an edited goal ────────────────────────────────────────────────────────────────────────────────────────

EDITED = runbook(sh("look", "ls -l"), sh("copy", "cp"), sh("copy-slowly", "dd", "instead of: copy"), sh("new", "1"))


def test_an_edited_goal_is_the_plan_under_the_present_status_and_overrides() -> None:
    now = plan(LOOK, COPY, status="paused", limits={"replans": 5}, tools={"network": True})
    answered = answer_of(parsed(EDITED), now, "goal_changed", done=frozenset({"look"}))
    assert answered == RunbookAnswer(
        "plan",
        "The goal was edited: its steps are the plan.",
        plan(
            step("look", "ls -l"),
            step("copy", "cp", "look"),
            step("new", "1", "copy"),
            status="paused",
            limits={"replans": 5},
            tools={"network": True},
        ),
    )
    assert answered.plan is not None
    assert list(answered.plan) == ["$schema", "goal", "status", "limits", "tools", "steps"]


@pytest.mark.parametrize(
    ("command", "done", "second"),
    [
        ("dd", {"look", "copy-slowly"}, "copy-slowly"),
        ("dd", {"look"}, "copy"),
        ("dd of=elsewhere", {"look", "copy-slowly"}, "copy"),
    ],
)
def test_an_alternative_that_is_done_and_unchanged_keeps_its_place(command: str, done: set[str], second: str) -> None:
    now = plan(LOOK, step("copy-slowly", command, "look"))
    answered = answer_of(parsed(EDITED), now, "goal_changed", done=frozenset(done))
    assert answered.plan is not None
    steps: Any = answered.plan["steps"]
    assert [(one["id"], one["depends_on"]) for one in steps] == [
        ("look", []),
        (second, ["look"]),
        ("new", [second]),
    ]


# ── which failures have an answer ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("used", "ids"),
    [
        (set(), {"look", "look-again", "copy", "copy-slowly", "copy-by-hand", "copy-at-last"}),
        ({"look-again"}, {"copy", "copy-slowly", "copy-by-hand", "copy-at-last"}),
        (
            {"look-again", "copy-slowly", "copy-by-hand", "copy-at-last", "wipe", "sweep"},
            {"copy-slowly", "copy-by-hand"},
        ),
        ({"look-again", "copy-slowly", "copy-by-hand", "copy-at-last", "wipe", "sweep", "dust"}, set()),
    ],
)
def test_a_failure_has_an_answer_while_a_fallback_is_unused(used: set[str], ids: set[str]) -> None:
    assert answers(SHOP, used) == ids


def test_a_plan_without_fallbacks_has_no_answer_to_any_failure() -> None:
    goal = parsed('[{"id": 1, "tool": "note", "input": "x"}]', "goal.json")
    assert answers(goal, ()) == frozenset()
    assert answer_of(goal, first_plan(goal, "approved"), failed=("1",)) == RunbookAnswer(
        "impossible", "'1' failed, and nothing can take its place."
    )

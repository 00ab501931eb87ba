"""`each`: one attempt per item. Given these lists and files, then these states; and every small world with one."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from agentfs.core.actions import AskPerson, EndRun, GatherItems, IssueOrder, Wait
from agentfs.core.decide import decide
from agentfs.core.each import gather_items, item_slug, progress, slugs
from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.outcome import outcome_of, steps_by_end
from agentfs.core.proof import steps_to_check
from agentfs.core.records import Answer, Proof, Step
from agentfs.core.run_state import derive
from agentfs.core.steps import StepView
from tests.builders import NOW, PureWorld, a_plan, a_result, a_step, an_order, facts, means

LIST = a_step("list", depends_on=[])


def an_each(**fields: Any) -> Step:
    given = {"each": "{{steps.list.output}}", "depends_on": ["list"], "input": {"text": "do {{item}}"}, **fields}
    return a_step("do", **given)


def with_list(value: Any, *more: Step, number: int = 1, given: Facts | None = None, **fields: Any) -> Facts:
    given = given or facts(a_plan(LIST, an_each(**fields), *more))
    view = derive(given, means()).steps["list"]
    return given.with_attempt(
        "list", Attempt(number, claimed=True, result=a_result(view, "done", number, output=value))
    )


def do(given: Facts) -> StepView:
    return derive(given, means()).steps["do"]


def ended(given: Facts, item: str, status: Any = "done", number: int = 1, **more: Any) -> Facts:
    view = derive(given, means()).view(item)
    assert view is not None, item
    output = None if status != "done" else f"{item} is done"
    result = a_result(view, status, number, **{"output": output, **more})
    return given.with_attempt(item, Attempt(number, claimed=True, result=result))


def gather(given: Facts) -> Facts:
    """Write the step's own result, as the engine does."""
    view = do(given)
    assert view.move == "gather"
    is_done, _ = gather_items(view)
    items = {one.id.partition("~")[2]: one.attempt for one in view.items}
    outputs = [one.result.output if one.result else None for one in view.items] if is_done else None
    result = a_result(view, "done" if is_done else "failed", items=items, output=outputs)
    return given.with_attempt("do", Attempt(view.next, result=result))


@pytest.mark.parametrize(
    ("item", "slug"),
    [
        ("north", "north"),
        ("a" * 24, "a" * 24),
        ("a" * 25, "aaaaaaaaaaaaaaa-6283ae8e"),
        ("North", "north-f94cb813"),
        (3, "3"),
        (None, "null"),
        ({"id": "north", "size": 1}, "north"),
        ({"name": "south"}, "south"),
        ({"x": 1}, "x-1-5041bf1f"),
        (["p", "q"], "p-q-8a975240"),
        ("", "12ae32cb"),
        ("日本", "riben-ac3da3e9"),
    ],
)
def test_an_item_is_called_by_its_text_where_that_is_a_name(item: Any, slug: str) -> None:
    assert item_slug(item) == slug


def test_no_two_items_have_one_name() -> None:
    assert slugs(["a", "a", "a-2", "b"]) == ["a", "a-2", "a-2-2", "b"]
    many = slugs(["x"] * 50 + [f"Long Name {n}" for n in range(50)])
    assert len(set(many)) == 100


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (["a", "b"], ["do~a", "do~b"]),
        ("a\n\n b \n", ["do~a"]),
        ([{"id": "x"}, 7], ["do~x", "do~7"]),
        ([], []),
    ],
)
def test_a_list_or_the_lines_of_a_text(output: Any, names: list[str]) -> None:
    found = [one.id for one in do(with_list(output)).items]
    assert found[: len(names)] == names


def test_items_get_orders_and_the_step_says_how_far_it_is() -> None:
    given = with_list(["a", "b", "c"])
    actions = decide(derive(given, means()), 8)
    assert [(type(one).__name__, one.view.id) for one in actions if isinstance(one, IssueOrder)] == [
        ("IssueOrder", "do~a"),
        ("IssueOrder", "do~b"),
        ("IssueOrder", "do~c"),
    ]
    given = ended(ended(given, "do~a"), "do~b", "failed")
    given = ended(given, "do~b", "failed", 2)
    assert (do(given).status, do(given).why) == ("running", "1/3, 1 failed")


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        ((), ("waiting", "0/3")),
        (("do~a",), ("interrupted", "1/3")),
        (("do~a", "do~b", "do~c"), ("interrupted", "3/3")),
    ],
)
def test_nothing_runs_in_a_run_that_has_ended(items: tuple[str, ...], shown: tuple[str, str]) -> None:
    given = with_list(["a", "b", "c"])
    for item in items:
        given = ended(given, item)
    before = derive(given, means())
    over = replace(given, outcome=outcome_of(before, EndRun("cancelled", "cancelled", "a person cancelled it"), NOW))
    state = derive(over, means(), before)
    assert before.steps["do"].status == "running"
    assert (state.steps["do"].status, state.steps["do"].why) == shown
    assert state.steps == derive(over, means()).steps, "from scratch it is the same"
    assert steps_by_end(state) == steps_by_end(before), "what the outcome counts is not counted otherwise after it"
    assert derive(given, means(), state).steps == before.steps, "it goes on as if it had not ended"


def test_a_list_done_again_and_cut_off_is_counted_as_its_outcome_does() -> None:
    given = gather(ended(ended(with_list(["a", "b"]), "do~a"), "do~b"))
    again = replace(given.attempt("do~b", 1), again=True)
    before = derive(given.with_attempt("do~b", again), means())
    assert before.steps["do"].status == "running"
    outcome = outcome_of(before, EndRun("cancelled", "cancelled", "a person cancelled it"), NOW)
    state = derive(replace(before.facts, outcome=outcome), means())
    assert (state.steps["do"].status, steps_by_end(state)) == ("interrupted", outcome.steps)


@pytest.mark.parametrize(("depends_on", "status"), [([], "done"), (["list"], "stale")])
def test_a_written_list_in_the_place_of_a_steps_output_keeps_items_that_follow_nothing_more(
    depends_on: list[str], status: str
) -> None:
    given = ended(ended(with_list(["a", "b"]), "do~a"), "do~b")
    plan = a_plan(LIST, an_each(each=["a", "b"], depends_on=depends_on))
    assert [one.status for one in do(replace(given, plan=plan)).items] == [status, status]


def test_what_an_item_does_holds_the_item() -> None:
    given = with_list([{"path": "x.csv"}, {"path": "y.csv"}], input={"text": "{{index}}: {{item.path}}"})
    texts = [one.resolved.input["text"] for one in do(given).items if one.resolved]
    assert texts == ["0: x.csv", "1: y.csv"]
    keys = {one.key for one in do(with_list(["a", "b"], input={"text": "the same"})).items}
    assert len(keys) == 2, "the item is in the key, though nothing names it"


def test_when_all_have_ended_there_is_one_result() -> None:
    given = ended(ended(with_list(["a", "b"]), "do~a"), "do~b")
    (action,) = decide(derive(given, means()), 4)[:1]
    assert isinstance(action, GatherItems)
    done = do(gather(given))
    assert (done.status, done.satisfied, done.result and done.result.output) == (
        "done",
        True,
        ["do~a is done", "do~b is done"],
    )


def test_an_empty_list_is_done() -> None:
    given = with_list([])
    assert do(given).move == "gather"
    assert do(gather(given)).status == "done"


@pytest.mark.parametrize(
    ("policy", "failed", "status", "satisfied"),
    [(None, "a", "failed", False), ("continue", "a", "done", True), ("continue", "ab", "failed", True)],
)
def test_failed_items(policy: Any, failed: str, status: str, satisfied: bool) -> None:
    given = with_list(["a", "b"], on_failure=policy, max_attempts=1)
    for name in "ab":
        given = ended(given, f"do~{name}", "failed" if name in failed else "done")
    view = do(gather(given))
    assert (view.status, view.satisfied) == (status, satisfied)
    if status == "done":
        assert view.result is not None
        assert view.result.output == [None, "do~b is done"]


def test_the_planner_and_stop_wait_until_every_item_has_ended() -> None:
    for policy, answers in (("stop", "EndRun"), (None, "CallPlanner")):
        given = with_list(["a", "b"], on_failure=policy, max_attempts=1)
        given = ended(given, "do~a", "failed")
        state = derive(replace(given, goal=replace(given.goal, has_steps=False)), means(planner=True))
        assert [type(one).__name__ for one in decide(state, 4)] == ["IssueOrder"]
        given = gather(ended(given, "do~b"))
        state = derive(replace(given, goal=replace(given.goal, has_steps=False)), means(planner=True))
        assert [type(one).__name__ for one in decide(state, 4)] == [answers]


def test_a_changed_list_runs_what_is_new_and_nothing_else() -> None:
    given = gather(ended(ended(with_list(["a", "b"]), "do~a"), "do~b"))
    longer = with_list(["b", "a", "c"], number=2, given=given)
    assert {one.id: one.status for one in do(longer).items} == {"do~b": "done", "do~a": "done", "do~c": "ready"}
    shorter = with_list(["a"], number=2, given=given)
    assert do(shorter).move == "gather"
    assert do(with_list(["a", "b"], number=2, given=given)).status == "done", "the same list again: nothing runs"


def test_an_item_that_has_left_the_list_while_it_runs_is_stopped() -> None:
    given = with_list(["a", "b"])
    view = derive(given, means()).view("do~b")
    assert view is not None
    given = given.with_attempt("do~b", Attempt(1, order=an_order(view), claimed=True))
    state = derive(with_list(["a"], number=2, given=given), means())
    assert [stray.step for stray in state.strays] == ["do~b"]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (7, "each takes a list or text, not 7"),
        ({"a": 1}, "each takes a list or text, not an object"),
        (None, "each takes a list or text, not null"),
        (["x"] * 100_000, "the list has 100000 items, more than limits.items (1000): raise it in plan.json"),
        (["x"] * 1001, "the list has 1001 items, more than limits.items (1000): raise it in plan.json"),
    ],
)
def test_what_is_no_list_is_unreachable(output: Any, why: str) -> None:
    view = do(with_list(output))
    assert (view.status, view.trigger, view.why) == ("blocked", "step_unreachable", why)


def test_an_item_too_large_for_a_shell_is_reported_with_its_name() -> None:
    given = with_list(["small", "x" * 1_000_000], tool="shell", input={"command": "echo {{item}}"})
    view = do(given)
    assert view.status == "blocked"
    assert "too many for a shell" in view.why
    assert view.why.startswith("do~xxxxxxxxxxxxxxx-")


def test_a_gate_is_the_steps_and_bound_to_all_keys() -> None:
    given = with_list(["a", "b"], gate=True)
    (asked,) = decide(derive(given, means()), 4)
    assert isinstance(asked, AskPerson)
    assert asked.view.id == "do"
    yes = given.with_attempt("do", Attempt(1, talks=(Talk(key=do(given).key, reply="approve"),)))
    assert [type(one).__name__ for one in decide(derive(yes, means()), 4)] == ["IssueOrder", "IssueOrder"]
    longer = with_list(["a", "b", "c"], number=2, given=yes)
    (again,) = decide(derive(longer, means()), 4)
    assert isinstance(again, AskPerson), "another list is another question"


def test_progress_in_words() -> None:
    given = with_list([str(n) for n in range(200)], max_attempts=1)
    for n in range(200):
        given = ended(given, f"do~{n}", "failed" if n < 3 else "done")
    assert progress(do(given).items) == "197/200, 3 failed"
    assert gather_items(do(given)) == (
        False,
        "197/200, 3 failed: do~0: it was failed; do~1: it was failed; do~2: it was failed",
    )


def test_looking_again_at_one_item_is_the_same_as_looking_at_all() -> None:
    given = with_list([str(n) for n in range(6)])
    state = derive(given, means())
    for n in (3, 1, 5, 0, 2, 4):
        given = ended(given, f"do~{n}", "failed" if n == 1 else "done")
        state = derive(given, means(), state)
        fresh = derive(given, means())
        assert state.steps == fresh.steps
        assert {name: found for name, found in state.table.places.items() if found} == fresh.table.places


POLICIES: list[dict[str, Any]] = [
    {},
    {"gate": True},
    {"on_failure": "continue"},
    {"on_failure": "stop", "max_attempts": 1},
    {"repeatable": False},
    {"when": {"kind": "command", "run": "true"}},
    {"when": {"kind": "command", "run": "true"}, "gate": True},
]


@pytest.mark.parametrize("policy", range(len(POLICIES)))
@pytest.mark.parametrize("planner", [True, False])
def test_every_small_world_with_a_list_comes_to_rest(policy: int, planner: bool) -> None:
    """Whatever becomes of each item, the run ends or waits for a person; dependents see one result."""
    fates = ("done", "failed", "interrupted", "blocked")
    for size in range(3):
        for fate in itertools.product(fates, repeat=size):
            for false in (False, True):
                items = {f"do~{name}": one for name, one in zip("ab", fate, strict=False)}
                after = a_step("after", depends_on=["do"], input={"text": "{{steps.do.output}}"})
                given = with_list(list("ab"[:size]), after, **POLICIES[policy])
                given = replace(given, goal=replace(given.goal, has_steps=not planner))
                world = PureWorld(
                    lambda step, _number, items=items: items.get(step, "done"),  # type: ignore[misc]
                    planner=planner,
                    false=frozenset({"do"} if false else ()),
                    yes=True,
                )
                end, actions = world.play(given, turns=120)
                (wait,) = actions
                assert isinstance(wait, Wait)
                assert (end.outcome is not None) == (wait.on == "nothing"), (fate, false)
                if end.outcome and end.outcome.status == "done" and not false:
                    assert end.attempts["do"][-1].result is not None


def test_checks_of_items_are_run_again_before_a_planned_run_is_done() -> None:
    check = {"kind": "file", "path": "{{item}}.txt"}
    plan = a_plan(LIST, an_each(checks=[check]))
    started = facts(plan, has_steps=False)
    run = started.run.model_copy(update={"proof": Proof()})
    answer = Answer(
        call=1,
        verdict="plan",
        plan=plan.model_dump(mode="json", by_alias=True, exclude_none=True),
        duration_s=0.0,
    )
    started = replace(started, run=run).with_call(replace(started.planner_call(1), answer=answer))
    given = with_list(["north", "south"], given=started)
    given = gather(ended(ended(given, "do~north"), "do~south"))
    again = steps_to_check(derive(given, means(planner=True)))
    assert [(step.id, [one.kind for one in step.checks or ()]) for step in again] == [
        ("do~north", ["file"]),
        ("do~south", ["file"]),
    ], "each item's, and not the step's own, in which {{item}} means nothing"

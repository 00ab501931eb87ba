"""Two edits of one plan, merged: what one side touched is kept, what both touched is a conflict."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentfs.core.documents import read_json
from agentfs.core.facts import Conflict
from agentfs.core.hashing import render_plan
from agentfs.core.plan_check import check_plan
from agentfs.core.plan_merge import FIELDS, Merged, merge, same, steps_of
from agentfs.core.planner_calls import waiting_answer
from agentfs.core.problems import Rejected
from agentfs.core.records import Author, JsonObject, Plan
from tests.builders import CATALOGUE, a_call, a_plan, a_revision, a_step, facts, judged, plan_sha
from tests.sweeps import size

A, B, C = a_step("a", depends_on=[]), a_step("b", depends_on=["a"]), a_step("c", depends_on=["b"])
BASE = a_plan(A, B, C, goal="the title")


def changed(step: Any, **fields: Any) -> Any:
    return a_step(step.id, **{"depends_on": list(step.depends_on), **fields})


def steps(merged: Merged) -> dict[str, Any]:
    return steps_of(read(merged.plan)) if merged.plan["steps"] else {}  # each side may remove what the other leaves


def read(value: JsonObject) -> Plan:
    return Plan.model_validate_json(render_plan(value))


# ── a table ───────────────────────────────────────────────────────────────────────────────────────────────


def test_each_side_keeps_the_fields_it_changed() -> None:
    mine = a_plan(
        A,
        changed(B, why="mine"),
        C,
        status="paused",
        limits={"minutes": 5.0, "cost_usd": 1.5},
        tools={"read": ["/srv"]},
        goal="Mine",
    )
    theirs = a_plan(A, changed(B, input={"text": "theirs"}, timeout_s=5), C, goal="Theirs")
    merged = merge(BASE, mine, theirs)
    assert merged == Merged(
        {
            "$schema": "../../../schemas/plan.schema.json",
            "goal": "Mine",
            "status": "paused",
            "limits": {"cost_usd": 1.5, "minutes": 5},
            "tools": {"read": ["/srv"]},
            "steps": [
                {"id": "a", "tool": "note", "input": {"text": "a"}, "depends_on": []},
                {
                    "id": "b",
                    "why": "mine",
                    "tool": "note",
                    "input": {"text": "theirs"},
                    "depends_on": ["a"],
                    "timeout_s": 5,
                },
                {"id": "c", "tool": "note", "input": {"text": "c"}, "depends_on": ["b"]},
            ],
        }
    )


def test_a_list_and_a_condition_are_fields_like_any_other() -> None:
    listed, when = {"each": ["x", "y"], "input": {"text": "{{item}}"}}, {"kind": "command", "run": "true"}
    mine, theirs = a_plan(A, changed(B, **listed), C), a_plan(A, changed(B, when=when), changed(C, when=when))
    merged = merge(BASE, mine, theirs)
    assert merged.conflicts == ()
    wanted = a_plan(A, changed(B, **listed, when=when), changed(C, when=when))
    assert read(merged.plan).steps == wanted.steps
    other = merge(BASE, mine, a_plan(A, changed(B, each=["z"], input={"text": "{{item}}"}), C))
    assert [conflict.place for conflict in other.conflicts] == ["b.each"]


def test_the_title_is_the_answers_unless_the_person_wrote_another() -> None:
    assert merge(BASE, BASE, a_plan(A, B, C, goal="Theirs")).plan["goal"] == "Theirs"
    assert "goal" not in merge(BASE, a_plan(A, B, C), BASE).plan


def test_what_both_changed_is_a_conflict_and_has_the_answers_side() -> None:
    mine, theirs = a_plan(A, changed(B, why="mine"), C), a_plan(A, changed(B, why="theirs"), C)
    merged = merge(BASE, mine, theirs)
    assert merged.conflicts == (Conflict("b", "why", None, "mine", "theirs"),)
    assert steps(merged)["b"]["why"] == "theirs"
    assert merge(BASE, mine, mine).conflicts == ()
    unset = a_plan(A, changed(B, tool=None, input=None), C)
    gone = merge(a_plan(A, changed(B, why="so"), C), a_plan(A, changed(B, why="mine"), C), unset)
    assert [conflict.place for conflict in gone.conflicts] == ["b.why"]
    assert steps(gone)["b"] == {"id": "b", "depends_on": ["a"]}


def test_what_a_step_waits_for_has_no_order_and_may_be_implicit() -> None:
    base = a_plan(A, B, a_step("c", depends_on=["a", "b"]))
    mine = a_plan(A, a_step("b"), a_step("c", depends_on=["b", "a"], why="mine"))
    merged = merge(base, mine, a_plan(A, B, a_step("c", depends_on=["a"])))
    assert (merged.conflicts, steps(merged)["c"]["depends_on"]) == ((), ["a"])


def test_a_step_that_one_side_changed_and_the_other_removed_is_a_conflict() -> None:
    without, edited = a_plan(A, B), a_plan(A, B, changed(C, why="mine"))
    kept = merge(BASE, without, edited)
    assert (kept.conflicts, list(steps(kept))) == (
        (Conflict("c", None, None, "removed", "changed"),),
        ["a", "b", "c"],
    )
    dropped = merge(BASE, edited, without)
    assert (dropped.conflicts, list(steps(dropped))) == (
        (Conflict("c", None, None, "changed", "removed"),),
        ["a", "b"],
    )
    assert dropped.conflicts[0].place == "c"
    for one, other in ((without, BASE), (BASE, without), (without, without)):
        assert merge(BASE, one, other) == Merged(merge(BASE, without, BASE).plan)


def test_a_step_that_both_added_is_a_conflict_unless_it_is_the_same() -> None:
    mine, theirs = a_step("d", depends_on=["c"], why="mine"), a_step("d", depends_on=["c"], gate=True)
    merged = merge(BASE, a_plan(A, B, C, mine), a_plan(A, B, C, theirs))
    assert [conflict.place for conflict in merged.conflicts] == ["d.why", "d.gate"]
    assert "why" not in steps(merged)["d"]
    assert merge(BASE, a_plan(A, B, C, mine), a_plan(A, B, C, mine)).conflicts == ()


def test_new_steps_come_after_the_ones_they_follow() -> None:
    x, y, z, m = (a_step(name, depends_on=[]) for name in "xyzm")
    merged = merge(BASE, a_plan(C, m, A, B), a_plan(x, A, y, z, B))
    assert list(steps(merged)) == ["x", "m", "a", "y", "z", "b"]


def test_what_the_answer_needs_and_the_person_removed_comes_back_with_what_it_needs() -> None:
    mine = a_plan(a_step("d", depends_on=[]))
    base = a_plan(A, B, a_step("d", depends_on=[]))
    new = a_step("e", depends_on=[], input={"text": "{{steps.b.output}}"})
    merged = merge(base, mine, a_plan(A, B, a_step("d", depends_on=[]), new))
    assert merged.conflicts == (
        Conflict("b", None, None, "removed", "needed by e"),
        Conflict("a", None, None, "removed", "needed by b"),
    )
    assert set(steps(merged)) == {"a", "b", "d", "e"}


def test_what_waits_for_a_step_that_the_answer_dropped_no_longer_does() -> None:
    mine = a_plan(A, B, C, a_step("d", depends_on=["c", "b"]))
    merged = merge(BASE, mine, a_plan(A, B))
    assert merged.conflicts == (Conflict("d", "depends_on", None, ["c", "b"], ["b"]),)
    assert steps(merged)["d"]["depends_on"] == ["b"]


def test_a_whole_step_is_taken_where_both_changed_it() -> None:
    mine = a_plan(A, changed(B, tool="shell"), changed(C, why="mine"))
    theirs = a_plan(A, changed(B, input={"text": "theirs"}), C)
    merged = merge(BASE, mine, theirs, whole_steps=True)
    assert [conflict.place for conflict in merged.conflicts] == ["b.tool", "b.input"]
    assert steps(merged)["b"]["tool"] == "note"
    assert steps(merged)["c"]["why"] == "mine", "only one of them changed it"


# ── any two edits ─────────────────────────────────────────────────────────────────────────────────────────

NAMES = list("abcde")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "why": st.sampled_from([None, "one", "two"]),
    "gate": st.sampled_from([None, True, False]),
    "timeout_s": st.sampled_from([None, 5, 5.5]),
    "input": st.sampled_from([{"text": "one"}, {"text": "two"}, {"text": "{{steps.a.output}}"}, {"text": "{{steps.b.output}}"}]),
    "tools": st.sampled_from([None, ["note"]]),
    "checks": st.sampled_from([None, [{"kind": "command", "run": "true"}]]),
    "depends_on": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
}  # fmt: skip
Steps = dict[str, dict[str, Any]]


@st.composite
def edits(draw: st.DrawFn, before: Steps) -> Steps:
    """An edit of some steps: fields set or unset, steps removed and added, and what is left put in any order."""
    after = {name: dict(step) for name, step in before.items()}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4)):
        match draw(st.sampled_from(["set", "set", "set", "remove"])):
            case "remove":
                after.pop(name, None)
            case _:
                field = draw(st.sampled_from(list(VALUES)))
                fresh = {"id": name, "tool": "note", "input": {"text": "new"}, "depends_on": []}
                after.setdefault(name, fresh)[field] = draw(VALUES[field])
    order = draw(st.permutations(list(after)))
    return {name: after[name] for name in order}


def valid(given_steps: Steps) -> Plan:
    """The plan of these steps; others are not looked at."""
    for step in given_steps.values():
        step["depends_on"] = [name for name in step["depends_on"] if name in given_steps and name != step["id"]]
    assume(given_steps)
    try:
        return check_plan(
            read_json(render_plan({"status": "approved", "steps": list(given_steps.values())})), CATALOGUE
        )
    except Rejected:
        assume(False)
        raise


@st.composite
def three_plans(draw: st.DrawFn) -> tuple[Plan, Plan, Plan]:
    """A plan, and two edits of it."""
    first: Steps = {}
    for place, name in enumerate(NAMES[: draw(st.integers(1, 4))]):
        first[name] = {"id": name, "tool": "note", "input": {"text": name}, "depends_on": NAMES[:place][-1:]}
    base = draw(edits(first))
    return valid(base), valid(draw(edits(base))), valid(draw(edits(base)))


@settings(max_examples=size(75, 1500), deadline=None)
@given(three_plans())
def test_what_one_side_touched_is_kept_and_what_both_touched_is_a_conflict(plans: tuple[Plan, Plan, Plan]) -> None:
    base, mine, theirs = plans
    was, own, new = map(steps_of, plans)
    merged = merge(base, mine, theirs)
    after, places = steps(merged), {conflict.place for conflict in merged.conflicts}
    put_right = {conflict.step for conflict in merged.conflicts}
    for name in was.keys() | own.keys() | new.keys():
        sides = [side.get(name) for side in (was, own, new)]
        if name in was and name in own and name in new:
            for field in FIELDS:
                before, here, there = (step[field] if step and field in step else None for step in sides)
                touched_here, touched_there = not same(field, before, here), not same(field, before, there)
                both = touched_here and touched_there and not same(field, here, there)
                now = after[name].get(field)
                if both:
                    assert f"{name}.{field}" in places
                elif field != "depends_on" or name not in put_right:
                    assert same(field, now, here if touched_here else there)
        elif name not in was and (name in own) != (name in new):
            assert {**after[name], "depends_on": []} == {**(own.get(name) or new[name]), "depends_on": []}, "added"
        elif name in was and name not in put_right:
            left = own.get(name) or new.get(name)
            assert name not in after, "removed by one side, and left alone by the other"
            assert left is None or all(same(field, was[name].get(field), left.get(field)) for field in FIELDS)


@settings(max_examples=size(50, 1000), deadline=None)
@given(three_plans())
def test_merging_is_the_same_from_both_sides(plans: tuple[Plan, Plan, Plan]) -> None:
    base, mine, theirs = plans
    one, other = merge(base, mine, theirs), merge(base, theirs, mine)
    assert (not one.conflicts) == (not other.conflicts) or _needs_what_left(one) or _needs_what_left(other)
    if not one.conflicts and not other.conflicts:
        assert _by_meaning(one) == _by_meaning(other)
    assert _both_changed(one) == {(place, theirs, mine) for place, mine, theirs in _both_changed(other)}
    for given_plan in plans:
        assert steps(merge(base, given_plan, base)) == steps_of(given_plan)
        assert _by_meaning(merge(base, base, given_plan)) == _meaning(steps_of(given_plan))
        again = merge(base, given_plan, given_plan)
        assert (again.conflicts, steps(again)) == ((), steps_of(given_plan))


def _both_changed(merged: Merged) -> set[tuple[str, str, str]]:
    """What both sides changed, each their own way; what follows from steps that left is tested above."""
    found = [one for one in merged.conflicts if one.field != "depends_on" and "needed" not in str(one.theirs)]
    return {(one.place, str(one.mine), str(one.theirs)) for one in found}


def _needs_what_left(merged: Merged) -> bool:
    """Where a step needs one that left, which side has to give way depends on which side is the person's."""
    return any(
        str(conflict.theirs).startswith("needed") or conflict.field == "depends_on" for conflict in merged.conflicts
    )


def _by_meaning(merged: Merged) -> dict[str, Any]:
    return _meaning(steps(merged))


def _meaning(of: dict[str, Any]) -> dict[str, Any]:
    return {name: {**step, "depends_on": set(step["depends_on"])} for name, step in of.items()}


@settings(max_examples=size(50, 1000), deadline=None)
@given(three_plans())
def test_what_an_answer_comes_to_is_a_valid_plan_and_in_conflict_it_is_a_question(
    plans: tuple[Plan, Plan, Plan],
) -> None:
    from dataclasses import replace

    from agentfs.core.records import Answer

    base, mine, theirs = plans
    run = facts(base, has_steps=False)
    edit = a_revision(2, mine, base, by=Author(role="person", name="Ada"))
    call = a_call(2, revision=1, trigger="asked", base_sha256=plan_sha(base))
    value = theirs.model_dump(mode="json", by_alias=True, exclude_none=True)
    answer = Answer(call=2, verdict="plan", plan=value, duration_s=0.0)
    run = replace(
        run, plan=mine, revisions=(*run.revisions, edit) if plan_sha(mine) != plan_sha(base) else run.revisions
    )
    run = judged(run.with_call(replace(run.planner_call(2), call=call, answer=answer)))
    assert waiting_answer(run) is not None
    proposal = run.proposal
    assert proposal is not None
    assert proposal.plan is not None
    assert check_plan(read_json(proposal.source), CATALOGUE) == proposal.plan
    assert not merge(base, mine, theirs).conflicts or proposal.reasons
    if not proposal.reasons:
        assert proposal.plan.status == mine.status
        own, new, after = (steps_of(plan) for plan in (mine, base, proposal.plan))
        for name, step in own.items():
            for field in (
                field for field in FIELDS if not same(field, new.get(name, {}).get(field), step.get(field))
            ):
                if field != "depends_on":
                    assert same(field, after[name].get(field), step.get(field)), "what a person set is still set"

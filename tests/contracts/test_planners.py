"""What a planner on a model keeps to, whatever the model says or the endpoint does."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfs.core.documents import Document
from agentfs.core.facts import Attempt, Facts
from agentfs.core.goal_file import ParsedGoal, parse_goal
from agentfs.core.hashing import render_plan
from agentfs.core.plan_check import check_plan
from agentfs.core.records import Answer, Author, Call, Failure
from agentfs.core.run_state import Bounds, derive
from agentfs.models.base import (
    Garbled,
    LimitReached,
    ModelError,
    ModelSession,
    Refused,
    Reply,
    Stopped,
    ToolCall,
    Unreachable,
)
from agentfs.models.budget import Budget, usage_of
from agentfs.planner import Planner
from agentfs.planner.evaluation import UNSHOWN, Evaluation
from agentfs.planner.model import ANOTHER_WAY, RECONSIDER, ModelPlanner, repair
from agentfs.prompts import load_prompt
from agentfs.testing import Scripted
from tests.builders import GOAL, a_call, a_plan, a_result, a_revision, a_step, facts, means
from tests.core.planning_samples import CATALOGUE, by_model, read, shell, step, write
from tests.sweeps import size

GOOD = {"steps": [shell("count", "grep -c x a.txt"), write("tell", "n.txt", "{{steps.count.output}}")]}
PROMPT = load_prompt("planner", None)
BOUNDS = Bounds(3, 2, 4, 200, 300, 2_000_000, 5.0, 120.0, 1000, 65536)


def prompts_sent(model: Scripted) -> list[str]:
    """Return the last message of each request."""
    return [str(request.messages[-1]["content"]) for request in model.requests]


@dataclass
class Scene:
    """A run's folder with a planner that has the floor."""

    folder: Path
    given: Facts
    model: Scripted
    log: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    goal: ParsedGoal = field(default_factory=lambda: parse_goal(b"the goal", "goal.md", CATALOGUE))

    @property
    def planner(self) -> ModelPlanner:
        return ModelPlanner(self.model, PROMPT, CATALOGUE, lambda _sha: self.goal, self.folder)

    def answer(self, call: Call | None = None) -> Answer:
        line = ModelSession(
            lambda event, fields: self.log.append((event, fields)), Budget(BOUNDS), threading.Event(), 1e18
        )
        state = derive(self.given, means(planner=True))
        return self.planner.answer(
            call or a_call(1), state, self.folder, line, lambda checks, **_: tuple(None for _ in checks)
        )


def scene(tmp_path: Path, *replies: Any, **more: Any) -> Scene:
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files/a.txt").write_text("x\n", encoding="utf-8")
    return Scene(tmp_path, facts(has_steps=False), Scripted(*replies, name="parrot-1", cost_usd=0.01), **more)


def midway(tmp_path: Path, *replies: Any) -> Scene:
    """A run whose first step is done, whose second failed, and whose third a person edited."""
    first = a_plan(a_step("a", depends_on=[]), a_step("b", depends_on=["a"]), a_step("c", depends_on=["b"]))
    plan = first.model_copy(update={"steps": (*first.steps[:2], first.steps[2].model_copy(update={"why": "mine"}))})
    (tmp_path / "revisions").mkdir()
    for number, one in enumerate((first, plan), start=1):
        value = one.model_dump(mode="json", by_alias=True, exclude_none=True)
        (tmp_path / f"revisions/{number}.plan.json").write_bytes(render_plan(value))
    given_facts = replace(facts(plan, has_steps=False), revisions=(a_revision(1, first), a_revision(2, plan, first)))
    for name, status in (("a", "done"), ("b", "failed")):
        view = derive(given_facts, means(planner=True)).steps[name]
        result = a_result(view, status, output="planted-word")  # type: ignore[arg-type]
        given_facts = given_facts.with_attempt(name, Attempt(1, claimed=True, result=result))
    return replace(scene(tmp_path, *replies), given=given_facts)


ASKED = a_call(2, trigger="asked", detail="another way, please", revision=2)


# ── an answer ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_good_plan_is_the_answer(tmp_path: Path) -> None:
    it = scene(tmp_path, GOOD)
    answer = it.answer()
    plan: Any = answer.plan
    assert (answer.verdict, answer.error, answer.prompt_sha256, answer.usage) == (
        "plan",
        None,
        PROMPT.sha256,
        usage_of("planner", "parrot-1", cost_usd=0.01),
    )
    assert answer.call == 1
    assert answer.duration_s >= 0
    assert [plan["status"], plan["goal"], *(one["depends_on"] for one in plan["steps"])] == [
        "approved", "the goal", [], ["count"],
    ]  # fmt: skip
    check_plan(Document(plan), CATALOGUE)
    assert [event for event, _ in it.log] == ["request", "reply"]


def test_it_is_a_planner_that_takes_time(tmp_path: Path) -> None:
    planner: Planner = scene(tmp_path).planner
    assert planner.author(a_call(1), facts()) == Author(role="planner", name="planner", model="parrot-1")
    assert planner.takes_time(a_call(1), facts())


def test_what_it_is_asked(tmp_path: Path) -> None:
    it = scene(tmp_path, GOOD, goal=parse_goal(b"---\ncontext: mind the gap\n---\nthe goal", "goal.md", CATALOGUE))
    (tmp_path / "files/AGENTS.md").write_text("Use tabs.", encoding="utf-8")
    it.answer()
    request = it.model.requests[0]
    assert (request.role, request.offers) == ("planner", ())
    assert request.form is not None
    assert request.form.name == "answer"
    assert list(request.form.schema["properties"]) == ["steps", "impossible"]  # type: ignore[arg-type]
    system, user = request.messages
    assert system == {"role": "system", "content": PROMPT.text}
    for words in ("# Goal\n\nthe goal", "mind the gap", "a.txt  2 bytes", "Use tabs."):
        assert words in str(user["content"])


def test_a_replan_knows_what_happened_and_keeps_what_is_done(tmp_path: Path) -> None:
    it = midway(tmp_path, [step("d")])
    answer = it.answer(ASKED)
    steps: Any = answer.plan["steps"] if answer.plan else []
    assert [(one["id"], one["depends_on"]) for one in steps] == [("a", []), ("d", ["a"])]
    words = prompts_sent(it.model)[0]
    assert "- c: why" in words
    assert "another way, please" in words
    assert "planted-word" in words
    assert list(it.model.requests[0].form.schema["properties"]) == [  # type: ignore[union-attr,arg-type]
        "steps", "verdict", "answer", "impossible",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "verdict", "answer"),
    [
        ({"keep": True}, "keep", None),
        ({"finished": True, "answer": 53}, "finished", 53),
        ({"impossible": "no"}, "impossible", "no"),
    ],
)
def test_verdicts(tmp_path: Path, reply: Any, verdict: str, answer: Any) -> None:
    answered = midway(tmp_path, reply).answer(ASKED)
    assert (answered.verdict, answered.answer, answered.error) == (verdict, answer, None)
    assert (answered.plan is not None) == (verdict == "finished")


def test_an_answer_may_come_as_the_arguments_of_a_call(tmp_path: Path) -> None:
    answer = scene(tmp_path, Reply("", (ToolCall("1", "answer", json.dumps(GOOD)),))).answer()
    assert answer.verdict == "plan"


# ── repairs ───────────────────────────────────────────────────────────────────────────────────────────────

BAD = {"steps": [step("a", success_condition=""), write("w", "b.txt", "{{a}}")]}


def test_what_is_wrong_is_reported_and_fixed(tmp_path: Path) -> None:
    it = scene(tmp_path, BAD, GOOD)
    answer = it.answer()
    assert (answer.verdict, answer.usage.requests if answer.usage else 0) == ("plan", 2)
    assert prompts_sent(it.model)[1] == (
        "Your answer cannot be used yet:\n"
        "1. step 'a', success_condition: the step 'a' has no success_condition -> say what is true of the files or the "
        "output when it succeeded, so that it can be checked\n"
        "2. step 'w', input.content: {{a}} would reach the tool as it is: it is not a reference -> write "
        "{{steps.ID.output}} with the id of the step whose output is meant\n\n"
        "Send the whole answer again in the same form, with this put right. Nothing but the JSON object."
    )
    assert it.model.requests[1].messages[2] == {"role": "assistant", "content": json.dumps(BAD)}


def test_a_model_that_repeats_itself_is_asked_without_its_replies(tmp_path: Path) -> None:
    it = scene(tmp_path, BAD, BAD, GOOD)
    assert it.answer().verdict == "plan"
    first, _, third = (request.messages for request in it.model.requests)
    assert third[:2] == first
    assert [one["role"] for one in third[2:]] == ["user"]
    assert "has no success_condition" in str(third[2]["content"])
    assert str(third[2]["content"]).endswith(ANOTHER_WAY)


def test_two_repairs_then_the_call_has_failed(tmp_path: Path) -> None:
    many = {"steps": [step(f"s{n}", success_condition="") for n in range(5)]}
    it = scene(tmp_path, "I would rather not.", BAD, many, GOOD)
    answer = it.answer()
    missing = "has no success_condition -> say what is true of the files or the output when it succeeded, so that it can be checked"
    assert (answer.verdict, answer.plan, len(it.model.requests)) == ("failed", None, 3)
    assert answer.error == Failure(
        kind="model",
        message="the planner's answer cannot be used, after 2 turns to put it right: "
        + "; ".join(f"step 's{n}', success_condition: the step 's{n}' {missing}" for n in range(3))
        + "; and 2 more",
        hint="the conversation is in planning/1.log.jsonl; try again with `agentfs replan`, or another model under [planner]",
    )


def test_a_reply_that_was_cut_off_is_sent_back_as_such(tmp_path: Path) -> None:
    it = scene(tmp_path, Reply('{"steps": [{"id": "a", "too', finish="length"), GOOD)
    assert it.answer().verdict == "plan"
    assert prompts_sent(it.model)[1].startswith("Your reply was cut off: it was too long. Answer again, shorter")


def test_a_long_reply_is_not_sent_back_whole(tmp_path: Path) -> None:
    it = scene(tmp_path, "word " * 20_000, GOOD)
    it.answer()
    assert len(str(it.model.requests[1].messages[2]["content"])) < 21_000


def test_many_problems_are_not_all_listed() -> None:
    words = repair(Evaluation(hard=tuple(f"p{n}" for n in range(25))), Reply())
    assert words.splitlines()[20:22] == ["20. p19", "and 5 more of the kind"]


DOUBTFUL = {"steps": [read("look", "a.txt"), step("n")]}
DOUBT = "step 'look': nobody uses the output of 'look': no later step refers to it -> write {{steps.look.output}} where it is needed, or leave the step out"


def test_a_doubt_is_not_worth_a_turn_of_its_own(tmp_path: Path) -> None:
    it = scene(tmp_path, DOUBTFUL)
    assert (it.answer().verdict, len(it.model.requests)) == ("plan", 1)
    assert it.log[-1] == ("accepted", {"although": [DOUBT]})


IMPOSSIBLE = {"impossible": "I could not do it"}


def test_that_it_is_impossible_must_be_shown_and_is_sent_back_once(tmp_path: Path) -> None:
    it = scene(tmp_path, IMPOSSIBLE, GOOD)
    assert (it.answer().verdict, len(it.model.requests)) == ("plan", 2)
    assert UNSHOWN in prompts_sent(it.model)[1]
    it = scene(tmp_path, IMPOSSIBLE, IMPOSSIBLE)
    assert (it.answer().verdict, len(it.model.requests)) == ("impossible", 2)


def test_giving_up_instead_of_correcting_a_plan_is_sent_back_once(tmp_path: Path) -> None:
    it = scene(tmp_path, BAD, {"impossible": "no way: the goal"}, GOOD)
    assert (it.answer().verdict, len(it.model.requests)) == ("plan", 3)
    assert RECONSIDER in prompts_sent(it.model)[2] or UNSHOWN in prompts_sent(it.model)[2]


def test_a_doubt_after_a_repair_is_let_pass(tmp_path: Path) -> None:
    it = scene(tmp_path, BAD, DOUBTFUL)
    assert (it.answer().verdict, len(it.model.requests)) == ("plan", 2)
    assert it.log[-1] == ("accepted", {"although": [DOUBT]})


@pytest.mark.parametrize("worse", [(BAD, "no"), (Garbled(Failure(kind="model", message="cut")),)])
def test_what_was_good_enough_before_is_taken_if_it_only_gets_worse(tmp_path: Path, worse: tuple[Any, ...]) -> None:
    it = scene(tmp_path, IMPOSSIBLE, *worse)
    answer = it.answer()
    assert (answer.verdict, answer.answer) == ("impossible", IMPOSSIBLE["impossible"])
    assert it.log[-1] == ("accepted", {"although": [UNSHOWN]})


# ── no answer ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "verdict", "kind"),
    [
        (Unreachable(Failure(kind="key", message="wrong key", hint="set it")), "failed", "unreachable"),
        (Refused(Failure(kind="refused", message="I will not")), "failed", "refused"),
        (Garbled(Failure(kind="model", message="no finish_reason")), "failed", "model"),
        (ModelError(Failure(kind="model", message="?")), "failed", "model"),
        (LimitReached(Failure(kind="limits", message="no room")), "interrupted", "limit"),
        (Stopped(Failure(kind="interrupted", message="stopped")), "interrupted", "interrupted"),
    ],
)
@pytest.mark.parametrize("before", [(), (BAD,)])
def test_no_reply_is_an_answer_too(
    tmp_path: Path, error: ModelError, verdict: str, kind: str, before: tuple[Any, ...]
) -> None:
    answer = scene(tmp_path, *before, error).answer()
    assert (answer.verdict, answer.error) == (verdict, error.failure.model_copy(update={"kind": kind}))
    assert answer.usage is not None
    assert answer.usage.requests == len(before) + 1


def test_being_stopped_while_putting_right_takes_nothing(tmp_path: Path) -> None:
    answer = scene(tmp_path, IMPOSSIBLE, Stopped(Failure(kind="interrupted", message="stopped"))).answer()
    assert (answer.verdict, answer.plan) == ("interrupted", None)


# ── anything at all ───────────────────────────────────────────────────────────────────────────────────────

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "tool", "input", "steps", "keep", "answer", "finished", "impossible", "checks"]),
            inner,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=size(25, 1000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(JSON, min_size=3, max_size=3))
def test_any_three_replies_make_an_answer(tmp_path: Path, replies: list[Any]) -> None:
    answer = scene(tmp_path, *replies).answer()
    assert Answer.model_validate_json(answer.model_dump_json(by_alias=True)) == answer
    assert answer.verdict in ("plan", "impossible", "failed")
    assert (answer.verdict == "failed") == (answer.error is not None)


def test_the_examples_of_the_prompt_are_good_plans(tmp_path: Path) -> None:
    """Each example is accepted as written: a planner that copies one is right."""
    blocks = [f'{{"steps": [\n{part.split(chr(10) * 2)[0]}' for part in PROMPT.text.split('\n{"steps": [\n')[1:]]
    assert len(blocks) == 1
    for name in ("a.log", "b.log", "src/x.py"):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text("x", encoding="utf-8")
    for block in blocks:
        it = scene(tmp_path, block)
        assert it.answer().verdict == "plan"
        assert [event for event, _ in it.log] == ["request", "reply"]


def test_the_prompt_of_the_workspace_is_used_instead(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/planner.md").write_text("Plan.", encoding="utf-8")
    own = load_prompt("planner", tmp_path)
    it = scene(tmp_path, GOOD)
    planner = replace(it.planner, prompt=own)
    line = ModelSession(lambda _event, _fields: None, Budget(BOUNDS), threading.Event(), 1e18)
    answer = planner.answer(
        a_call(1, goal_sha256=GOAL), derive(it.given, means(planner=True)), tmp_path, line, lambda _, **__: ()
    )
    assert answer.prompt_sha256 == own.sha256 != PROMPT.sha256
    assert it.model.requests[0].messages[0] == {"role": "system", "content": "Plan."}


def test_a_model_step_without_tools_is_repaired(tmp_path: Path) -> None:
    it = scene(tmp_path, {"steps": [by_model("m", tools=...)]}, {"steps": [by_model("m")]})
    assert it.answer().verdict == "plan"
    assert "names no 'tools'" in prompts_sent(it.model)[1]

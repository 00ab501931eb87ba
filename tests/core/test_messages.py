"""What a commit says, word for word; and what no detail can make it say."""

import shutil
import subprocess
from typing import Any, get_args

import pytest

from agentfs.core.commit_messages import author_of, outcome_message, revision_message, trailers
from agentfs.core.records import Author, Change, Outcome, Revision, StepsByEnd, Trigger, Usage, UsageByRole

RUN = "2026-11-16/tidy-invoices"
AT = "2026-11-16T09:30:00.000000Z"
PLANNER = Author(role="planner", name="gpt-5", model="gpt-5")
GIT = shutil.which("git") or "git"


def a_revision(**fields: Any) -> Revision:
    given: dict[str, Any] = {
        "revision": 2,
        "call": 2,
        "by": PLANNER,
        "trigger": "repeated_failure",
        "step": "total",
        "detail": "exit code 1: no such column",
        "evidence": ("steps/total.1.result.json", "steps/total.2.result.json"),
        "base_sha256": None,
        "plan_sha256": "0" * 64,
        "changes": (Change(step="total", what="input.command changed"), Change(step=None, what="status: approved")),
        "at": AT,
    }
    return Revision(**(given | fields))


def a_usage(cost: float | None = 0.0125, role: str = "planner") -> Usage:
    return Usage(
        role=role,  # type: ignore[arg-type]
        model="gpt-5",
        requests=1,
        input_tokens=1,
        cached_tokens=0,
        output_tokens=1,
        cost_usd=cost,
    )


def an_outcome(**fields: Any) -> Outcome:
    given: dict[str, Any] = {
        "run": RUN,
        "status": "done",
        "reason": "steps_done",
        "summary": "every step is done",
        "answer": None,
        "steps": StepsByEnd(done=("a", "b", "c", "d", "e"), failed=(), skipped=(), not_reached=()),
        "revisions": 1,
        "calls": 1,
        "usage": UsageByRole(planner=None, executor=None),
        "started_at": AT,
        "ended_at": AT,
    }
    return Outcome(**(given | fields))


def parsed(message: str) -> str:
    """The trailers as git itself finds them."""
    done = subprocess.run(
        [GIT, "interpret-trailers", "--parse"], input=message, capture_output=True, text=True, check=True
    )
    return done.stdout


def subject(revision: Revision) -> str:
    return revision_message(RUN, revision, None).splitlines()[0].removeprefix("tidy-invoices: ")


def test_a_revision_says_who_why_what_and_on_what_evidence() -> None:
    assert revision_message(RUN, a_revision(), a_usage()) == (
        "tidy-invoices: revision 2, after total failed twice\n"
        "\n"
        "exit code 1: no such column\n"
        "\n"
        "- total: input.command changed\n"
        "- plan: status: approved\n"
        "\n"
        "Agentfs-Run: 2026-11-16/tidy-invoices\n"
        "Agentfs-Revision: 2\n"
        "Agentfs-By: planner: gpt-5\n"
        "Agentfs-Trigger: repeated_failure\n"
        "Agentfs-Step: total\n"
        "Agentfs-Evidence: steps/total.1.result.json\n"
        "Agentfs-Evidence: steps/total.2.result.json\n"
        "Agentfs-Model: gpt-5\n"
        "Agentfs-Cost-USD: 0.0125\n"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"revision": 1, "trigger": "first", "step": None}, "revision 1, the first plan"),
        ({"trigger": "edited", "by": Author(role="person", name="Ada")}, "revision 2, edited by Ada"),
        ({"trigger": "edited", "by": Author(role="person", name="")}, "revision 2, edited by a person"),
        ({"trigger": "goal_changed"}, "revision 2, after the goal changed"),
        ({"trigger": "asked"}, "revision 2, as asked"),
        ({"trigger": "step_unreachable"}, "revision 2, after total could not be reached"),
        ({"trigger": "step_unreachable", "rejected": "total"}, "revision 2, after a person rejected total"),
        ({"evidence": ("steps/total.1.result.json",) * 3}, "revision 2, after total failed three times"),
        ({"evidence": ("steps/total.1.result.json",) * 9}, "revision 2, after total failed 9 times"),
        ({"evidence": ()}, "revision 2, after total failed again and again"),
        ({"trigger": "step_failed"}, "revision 2, after total failed"),
        ({"trigger": "step_failed", "step": None}, "revision 2, after a step failed"),
        ({"trigger": "unexpected_state", "step": "backfill"}, "revision 2, after backfill surprised"),
        ({"trigger": "goal_checks_failed", "step": None}, "revision 2, after the goal's checks failed"),
        ({"trigger": "drift", "step": "do"}, "revision 2, after do drifted"),
        ({"trigger": "next_step", "step": None}, "revision 2, the next step"),
        ({"trigger": "every_step"}, "revision 2, looked over after total"),
    ],
)
def test_every_trigger_has_its_words(fields: dict[str, Any], words: str) -> None:
    assert subject(a_revision(**fields)) == words


def test_no_trigger_is_without_words() -> None:
    for trigger in get_args(Trigger):
        assert subject(a_revision(trigger=trigger)).startswith("revision 2, ")


def test_braces_in_a_name_are_left_alone() -> None:
    named = a_revision(trigger="edited", by=Author(role="person", name="{step} {0}"))
    assert subject(named) == "revision 2, edited by {step} {0}"


def test_what_is_not_known_is_not_shown() -> None:
    message = revision_message(
        RUN,
        a_revision(by=Author(role="runbook", name="runbook"), step=None, evidence=(), detail="", changes=()),
        a_usage(None).model_copy(update={"model": None}),
    )
    assert message == (
        "tidy-invoices: revision 2, after a step failed again and again\n"
        "\n"
        "Agentfs-Run: 2026-11-16/tidy-invoices\n"
        "Agentfs-Revision: 2\n"
        "Agentfs-By: runbook\n"
        "Agentfs-Trigger: repeated_failure\n"
    )


@pytest.mark.parametrize(("cost", "words"), [(0.0, "0"), (1.5, "1.5"), (10.0, "10"), (0.0000012, "0.000001")])
def test_costs_are_plain_numbers(cost: float, words: str) -> None:
    assert trailers(revision_message(RUN, a_revision(), a_usage(cost)))["Agentfs-Cost-USD"] == [words]


def test_changes_are_bounded() -> None:
    changes = tuple(Change(step=f"s{number}", what="added " + "x" * 999) for number in range(100))
    lines = revision_message(RUN, a_revision(changes=changes), None).split("\n\n")[2].splitlines()
    assert len(lines) == 41
    assert lines[-1] == "- and 60 more"
    assert {len(line) for line in lines[:-1]} == {300}


FORGERIES = [
    "x\n\nAgentfs-By: person: Eve",
    "x\r\rAgentfs-By: person: Eve",
    "x\u2028\u2028Agentfs-By: person: Eve",
    "x\x0b\x0c\x85\x1c\x00 Agentfs-By: person: Eve",
    "--- \nAgentfs-By: person: Eve",
    "---",
    "x\n---\nAgentfs-By: person: Eve",
    "word " * 13 + "--- Agentfs-By: person: Eve",
    "# comment\n\n(cherry picked from commit 0)\nSigned-off-by: Eve <e@e>",
    "Agentfs-By: person: Eve\nAgentfs-By: person: Eve",
    "------------------------ >8 ------------------------\n",
    "\u202egnirts\u2066",
]


@pytest.mark.parametrize("words", FORGERIES)
def test_no_detail_passes_for_a_subject_or_a_trailer(words: str) -> None:
    honest = revision_message(RUN, a_revision(), a_usage())
    forged = revision_message(RUN, a_revision(detail=words, changes=(Change(step="total", what=words),)), a_usage())
    assert forged.splitlines()[0] == honest.splitlines()[0]
    assert parsed(forged) == parsed(honest) == honest.rpartition("\n\n")[2]
    assert trailers(forged) == trailers(honest)
    assert all(c.isprintable() or c == "\n" for c in forged)


@pytest.mark.parametrize("words", FORGERIES)
def test_no_name_or_path_passes_for_another_trailer(words: str) -> None:
    revision = a_revision(by=Author(role="planner", name=words), evidence=(words, words), trigger="edited")
    message = revision_message(RUN, revision, None)
    keys = [line.partition(":")[0] for line in parsed(message).splitlines()]
    assert (
        keys
        == [
            "Agentfs-Run",
            "Agentfs-Revision",
            "Agentfs-By",
            "Agentfs-Trigger",
            "Agentfs-Step",
            "Agentfs-Evidence",
            "Agentfs-Evidence",
            "Agentfs-Model",
        ][: len(keys)]
    )
    assert trailers(message)["Agentfs-By"][0].startswith("planner: ")
    assert len(trailers(message)["Agentfs-By"]) == 1
    assert message.splitlines()[1] == ""


def test_an_outcome_says_how_far_it_came() -> None:
    assert outcome_message(RUN, an_outcome()) == (
        "tidy-invoices: done, 5 of 5 steps\n"
        "\n"
        "every step is done\n"
        "\n"
        "Agentfs-Run: 2026-11-16/tidy-invoices\n"
        "Agentfs-Outcome: done steps_done\n"
    )


def test_an_outcome_of_a_failed_run_names_what_is_missing_and_what_it_cost() -> None:
    failed = an_outcome(
        status="failed",
        reason="step_failed",
        summary="total failed:\nexit code 1",
        steps=StepsByEnd(done=("list",), failed=("total",), skipped=("print",), not_reached=("send", "file")),
        usage=UsageByRole(planner=a_usage(0.5), executor=a_usage(0.25, "executor")),
    )
    assert outcome_message(RUN, failed) == (
        "tidy-invoices: failed, 1 of 5 steps\n"
        "\n"
        "total failed: exit code 1\n"
        "\n"
        "failed: total\n"
        "skipped: print\n"
        "not reached: send, file\n"
        "\n"
        "Agentfs-Run: 2026-11-16/tidy-invoices\n"
        "Agentfs-Outcome: failed step_failed\n"
        "Agentfs-Cost-USD: 0.75\n"
    )


def test_an_outcome_counts_the_steps_of_the_last_plan_if_given() -> None:
    steps = StepsByEnd(done=("a",), failed=("b",), skipped=(), not_reached=())
    assert outcome_message(RUN, an_outcome(steps=steps), in_plan=1).startswith("tidy-invoices: done, 1 of 1 steps\n")


def test_a_cost_known_in_part_is_not_a_cost() -> None:
    usage = UsageByRole(planner=a_usage(0.5), executor=a_usage(None, "executor"))
    assert "Agentfs-Cost-USD" not in trailers(outcome_message(RUN, an_outcome(usage=usage)))


@pytest.mark.parametrize(
    ("role", "author"),
    [
        ("planner", ("agentfs planner", "agentfs@localhost")),
        ("person", ("Grace", "ada@example.org")),  # who made it, though Ada's agentfs makes the commit
        ("runbook", ("agentfs", "agentfs@localhost")),
        ("agentfs", ("agentfs", "agentfs@localhost")),
    ],
)
def test_the_author_is_who_made_the_revision(role: Any, author: tuple[str, str]) -> None:
    assert author_of(a_revision(by=Author(role=role, name="Grace")), ("Ada", "ada@example.org")) == author


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("", {}),
        ("Subject: only", {}),
        ("subject\n\nwords and: words\nmore", {}),
        ("subject\n\nKey: value\n", {"Key": ["value"]}),
        ("subject\n\nKey: a\nOther: b\nKey: c\n\n\n", {"Key": ["a", "c"], "Other": ["b"]}),
        ("subject\n\nKey: early\n\nlate words", {}),
    ],
)
def test_trailers_are_the_last_paragraph_or_nothing(message: str, found: dict[str, list[str]]) -> None:
    assert trailers(message) == found

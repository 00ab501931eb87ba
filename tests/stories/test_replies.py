"""What a person replies: one that does not count is pointed out, several runs are approved at once, one question needs no name."""

import json
import signal

import pytest

from tests.daemons import Watching
from tests.workspaces import Place, end, wait_for

GATE = "### send\n```sh\necho sent\n```\ngate\n"
ASK = '### which\n```ask\n{"question": "Which colour?"}\n```\n'
CUT = "### slow\nnot repeatable\n```sh\ntouch begun; sleep 600\n```\n"
SURPRISE = '### fill\n```sh\necho 5\n```\n```json expects\n{"const": "6"}\n```\n'


def answer(place: Place, name: str, text: str, run: str = "job") -> None:
    (place.run_folder(run) / name).write_text(text)


@pytest.mark.parametrize(
    ("book", "file", "reply", "words"),
    [
        (GATE, "steps/send.1.reply.md", "yes\n", "the reply begins with 'yes', not with approve or reject"),
        (
            GATE,
            "steps/send.1.reply.md",
            "\napprove\n",
            "the reply's first line is empty: write approve or reject there",
        ),
        (SURPRISE, "planning/2.reply.md", "ok go\n", "the reply begins with 'ok go', not with approve or reject"),
    ],
    ids=["a gate", "an empty line", "a planner's answer"],
)
def test_a_reply_that_does_not_count_is_pointed_out(
    place: Place, book: str, file: str, reply: str, words: str
) -> None:
    place.agentfs("run", place.runbook(book), code=3)
    answer(place, file, reply)
    assert words in place.agentfs("status").stdout
    assert words in place.agentfs("status", "job").stdout
    assert words in json.loads(place.agentfs("status", "--json").stdout)[0]["why"]
    assert words in place.agentfs("resume", "job", code=3).stderr
    assert words in (place.run_folder() / "STATUS.md").read_text()
    place.agentfs("approve", "job")
    assert words not in place.agentfs("status", "job").stdout
    place.agentfs("resume", "job")


def test_one_about_an_attempt_that_was_cut_off(place: Place) -> None:
    process = place.begin("run", place.runbook(CUT))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    end(process)
    place.agentfs("resume", "job", code=3)
    answer(place, "steps/slow.1.reply.md", "it worked\n")
    output = place.agentfs("status", "job").stdout
    assert "the reply begins with 'it worked', not with again, done or failed" in output


def test_watch_and_its_status_page_point_it_out(place: Place) -> None:
    words = "the reply begins with 'yes', not with approve or reject"
    with Watching(place) as daemon:
        daemon.drop("job.md", f"# Job\n\n## Steps\n\n{GATE}")
        daemon.wait_for_output("job: waits: ")
        answer(place, "steps/send.1.reply.md", "yes\n")
        daemon.wait_for_output(words)
        assert words in place.agentfs("status").stdout
        assert words in place.agentfs("status", "job").stdout
        page = place.run_folder() / "STATUS.md"
        wait_for(lambda: words in page.read_text(), "the page")
        answer(place, "steps/send.1.reply.md", "approve\n")
        assert daemon.outcome("job")["status"] == "done"


def test_run_points_it_out_while_other_steps_run(place: Place) -> None:
    slow = "### slow\nafter: nothing\n```sh\ntouch begun; while ! test -e go; do sleep 0.02; done\n```\n"
    process = place.begin("run", place.runbook(GATE + slow))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    wait_for((place.run_folder() / "steps" / "send.1.question.md").exists, "the question")
    answer(place, "steps/send.1.reply.md", "yes\n")
    wait_for(lambda: "'yes'" in (place.run_folder() / "STATUS.md").read_text(), "the page")
    (place.run_folder() / "files" / "go").touch()
    code, _, output = end(process, signal.SIGCONT)
    assert code == 3
    words = "send: the reply begins with 'yes', not with approve or reject"
    assert output.index(words) < output.index("slow: done")


# ── several runs ──────────────────────────────────────────────────────────────────────────────────────────


def several(place: Place, *names: str, book: str = GATE) -> None:
    for name in names:
        place.agentfs("run", place.runbook(book, name=f"{name}.md"), code=3)


def reply_of(place: Place, run: str, step: str = "send") -> str:
    path = place.run_folder(run) / "steps" / f"{step}.1.reply.md"
    return path.read_text() if path.exists() else ""


def test_several_runs_are_approved_at_once(place: Place) -> None:
    several(place, "one", "two", "three")
    output = place.agentfs("approve", "one", "two", "three").stderr
    assert [reply_of(place, run) for run in ("one", "two", "three")] == ["approve\n"] * 3
    assert output.count("nothing drives it") == 3


def test_several_runs_are_rejected_for_the_same_reason(place: Place) -> None:
    several(place, "one", "two")
    place.agentfs("reject", "one", "two", "--because", "not today")
    assert [reply_of(place, run) for run in ("one", "two")] == ["reject\nnot today\n"] * 2


def test_if_one_of_them_asks_nothing_none_is_approved(place: Place) -> None:
    several(place, "one", "two")
    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n", name="over.md"))
    refused = place.agentfs("approve", "one", "over", "two", code=2).stderr
    assert "over has ended" in refused
    assert [reply_of(place, run) for run in ("one", "two")] == ["", ""]


def test_a_word_behind_a_run_is_its_step_first(place: Place) -> None:
    """A run may be called as a step of another."""
    both = GATE + GATE.replace("### send", "### sign\nafter: nothing")
    place.agentfs("run", place.runbook(both, name="job.md"), code=3)
    several(place, "sign")
    place.agentfs("approve", "job", "sign")
    assert (reply_of(place, "job", "sign"), reply_of(place, "sign")) == ("approve\n", "")
    place.agentfs("approve", "sign", "job")
    assert (reply_of(place, "job"), reply_of(place, "sign")) == ("approve\n", "approve\n")


def test_a_step_that_does_not_exist_is_reported(place: Place) -> None:
    several(place, "one")
    refused = place.agentfs("approve", "one", "sned", code=2).stderr
    assert "did you mean 'send'?" in refused


def test_a_dry_run_of_several_writes_nothing(place: Place) -> None:
    several(place, "one", "two")
    output = place.agentfs("approve", "one", "two", "--dry-run").stderr
    assert output.count("send.1.reply.md: approve") == 2
    assert [reply_of(place, run) for run in ("one", "two")] == ["", ""]


# ── one question ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_one_open_question_needs_no_step(place: Place) -> None:
    place.agentfs("run", place.runbook(ASK), code=3)
    assert "agentfs reply" in place.agentfs("status", "job").stdout
    place.agentfs("reply", "job", "dark blue")
    assert place.agentfs("resume", "job").stdout == "dark blue\n"


def test_with_two_open_it_says_which(place: Place) -> None:
    two = ASK + ASK.replace("### which", "### where\nafter: nothing")
    place.agentfs("run", place.runbook(two), code=3)
    refused = place.agentfs("reply", "job", "blue", code=2).stderr
    assert "waits for 2 answers; say which:" in refused
    assert "reply" in refused
    place.agentfs("reply", "job", "where", "there")
    place.agentfs("reply", "job", "blue")
    place.agentfs("resume", "job")


def test_a_gate_is_answered_in_words_too(place: Place) -> None:
    place.agentfs("run", place.runbook(GATE), code=3)
    assert "begin with exactly one of: approve, reject" in place.agentfs("reply", "job", "yes", code=2).stderr
    place.agentfs("reply", "job", "-", input="approve\n")
    assert reply_of(place, "job") == "approve\n"

"""On a terminal `run` asks there what the run asks, writes the reply that a person would write, and goes on."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.terminals import OnTerminal
from tests.workspaces import Place, end, wait_for

BUILD = "### build\nBuild it.\n```sh\necho v7\n```\n"
SEND = '### send\ngate\n```sh\necho "sent {{steps.build.output}}" | tee -a sent\n```\n'
BESIDE = "### beside\nafter: nothing\n```sh\nwhile ! test -e go; do sleep 0.05; done; touch went\n```\n"
ASK = '### who\n```ask\nquestion: |\n  Who gets it?\n  A name.\n```\n### tell\n```sh\necho "to {{steps.who.output}}"\n```\n'
CHOICES = "yes, no [why], show, edit, later"


def at(place: Place, *words: str, columns: int = 80, rows: int = 40, **environment: str) -> OnTerminal:
    """A command that a person has started on their terminal."""
    variables = {name: value for name, value in place.env.items() if name != "COLUMNS"} | environment
    return OnTerminal(list(words), place.root, variables, columns, rows, keyboard=True)


def running(place: Place, steps: str, front: str = "", **more: Any) -> OnTerminal:
    return at(place, "run", place.runbook(steps, front), **more)


def after(words: str, screen: list[str]) -> list[str]:
    """Return the lines from the one that begins so."""
    return screen[next(place for place, line in enumerate(screen) if line.startswith(words)) :]


def reply(place: Place, name: str) -> str:
    return (place.run_folder() / name).read_text()


def editor(place: Place, script: str) -> str:
    """Return an editor that a script stands in for; $1 is the file."""
    path = place.home / "my editor"
    path.write_text(f"#!/bin/sh\ntest -t 0 && test -t 1 || exit 9\n{script}\n")
    path.chmod(0o755)
    return f"'{path}'"


# ── gates ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_yes_is_the_reply_that_lets_a_gated_step_run(place: Place) -> None:
    with running(place, BUILD + SEND) as shown:
        screen = shown.wait_to_see(f"send: {CHOICES}", ">")
        asked = ["May send run?", "", "It would run (`sh`):", "", '    echo "sent v7" | tee -a sent', ""]
        assert after("May send run?", screen)[:6] == asked
        shown.enter("yes")
        code, out = shown.wait()
    assert (code, out) == (0, "sent v7\n")
    assert reply(place, "steps/send.1.reply.md") == "approve\n"
    assert "steps/send.1.reply.md: approve" in shown.terminal.everything
    assert not any(CHOICES in line for line in shown.terminal.everything)  # a prompt that is answered goes
    assert shown.echoes
    assert shown.terminal.shows_cursor()


def test_a_no_takes_words(place: Place) -> None:
    with running(place, BUILD + SEND) as shown:
        shown.wait_to_see(CHOICES)
        shown.enter("no not before Monday")
        assert shown.wait() == (1, "")
    assert reply(place, "steps/send.1.reply.md") == "reject\nnot before Monday\n"
    assert place.read("outcome.json")["reason"] == "rejected"


@pytest.mark.parametrize("keys", ["later\r", "\x04"])
def test_what_is_left_for_later_waits_as_it_does_without_a_terminal(place: Place, keys: str) -> None:
    with running(place, BUILD + SEND) as shown:
        shown.wait_to_see(CHOICES)
        shown.type(keys)
        assert shown.wait() == (3, "")
    assert not (place.run_folder() / "steps" / "send.1.reply.md").exists()
    run = place.read("run.json")["run"]
    assert f"  or type: agentfs approve {run}" in shown.terminal.everything
    assert shown.terminal.everything[-1] == f"then: agentfs resume {run}"
    assert shown.echoes
    with at(place, "run", "--resume", "job") as again:
        again.wait_to_see(CHOICES)
        again.enter("yes")
        assert again.wait() == (0, "sent v7\n")


def test_show_prints_the_question_in_full_and_what_is_no_answer_says_what_is(place: Place) -> None:
    with running(place, BUILD + SEND, rows=100) as shown:
        shown.wait_to_see(CHOICES)
        shown.enter("yes, but on Monday")  # a yes with a condition is none
        shown.wait_to_see("Type one of:", "  no       do not; words after it say why")
        shown.enter("show")
        screen = shown.wait_to_see("The order in full:", '      "tool": "shell",', CHOICES)
        assert "- `approve`: the order below is given" in screen
        assert not (place.run_folder() / "steps" / "send.1.reply.md").exists()
        shown.enter("later")
        assert shown.wait()[0] == 3


def test_a_yes_is_for_what_was_shown_and_a_changed_order_is_asked_about_again(place: Place) -> None:
    script = """sed -i 's/"echo ..sent/"echo \\\\"SENT/' "$1" """
    with running(place, BUILD + SEND, EDITOR=editor(place, script)) as shown:
        shown.wait_to_see(CHOICES)
        shown.enter("edit")
        shown.wait_to_see('    echo "SENT v7" | tee -a sent', CHOICES)
        assert "send: what was asked has changed" in shown.terminal.everything
        shown.enter("yes")
        assert shown.wait() == (0, "SENT v7\n")
    assert "steps/send.1.reply.md" not in place.tree()  # the first question was never answered
    assert reply(place, "steps/send.2.reply.md") == "approve\n"
    assert place.read("revisions/2.json")["trigger"] == "edited"


def test_what_runs_beside_goes_on_while_a_person_thinks(place: Place) -> None:
    more = "### after\nafter: beside\n```sh\ntouch later\n```\n"
    with running(place, BUILD + SEND + BESIDE + more) as shown:
        shown.wait_to_see(CHOICES, "beside  running")
        shown.type("no, I th")
        shown.wait_to_see("> no, I th")
        files = place.run_folder() / "files"
        (files / "go").touch()
        wait_for((files / "later").exists, "the step after the one beside")
        screen = shown.wait_to_see("✓ after   done", "> no, I th", CHOICES)
        assert sum("✓ beside" in line for line in screen) == 1  # nothing is smeared
        shown.type("\x15")  # Ctrl-U
        shown.enter("yes")
        assert shown.wait()[0] == 0


@pytest.mark.parametrize("by", ["file", "command"])
def test_an_answer_from_elsewhere_withdraws_the_prompt(place: Place, by: str) -> None:
    with running(place, BUILD + SEND) as shown:
        shown.wait_to_see(CHOICES)
        shown.type("no")
        if by == "file":
            (place.run_folder() / "steps" / "send.1.reply.md").write_text("approve\nfrom my phone\n")
        else:
            place.agentfs("approve", "job")
        assert shown.wait() == (0, "sent v7\n")
    message = "send was answered elsewhere (steps/send.1.reply.md: approve)"
    assert message in shown.terminal.everything


def test_what_is_typed_before_a_question_is_seen_answers_nothing(place: Place) -> None:
    first = "### first\n```sh\nwhile ! test -e go; do sleep 0.05; done\n```\n"
    with running(place, first + BUILD + SEND) as shown:
        shown.wait_to_see("first  running")
        shown.enter("yes")
        (place.run_folder() / "files" / "go").touch()
        shown.wait_to_see(CHOICES)
        shown.enter("later")  # comes after the other, which would have answered
        assert shown.wait()[0] == 3
    assert not (place.run_folder() / "steps" / "send.1.reply.md").exists()


def test_two_gates_are_asked_one_after_the_other_and_a_yes_is_for_one(place: Place) -> None:
    two = SEND.replace("send", "first") + SEND.replace("### send", "### second\nafter: build")
    with running(place, BUILD + two) as shown:
        shown.wait_to_see("first: yes")
        shown.type("yes\ryes\r")  # both typed for what is seen
        shown.wait_to_see("second: yes")
        shown.enter("no")
        assert shown.wait()[0] == 1
    assert (reply(place, "steps/first.1.reply.md"), reply(place, "steps/second.1.reply.md")) == (
        "approve\n",
        "reject\n",
    )


def test_control_c_at_the_prompt_stops_the_run_as_ever(place: Place) -> None:
    with running(place, BUILD + SEND) as shown:
        shown.wait_to_see(CHOICES)
        shown.type("\x03")
        assert shown.wait() == (130, "")
    assert shown.terminal.everything[-1] == f"stopped; go on with: agentfs resume {place.read('run.json')['run']}"
    assert shown.echoes


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draft_is_shown_and_approved(place: Place) -> None:
    with running(place, BUILD + SEND.replace("gate\n", ""), "approve: plan") as shown:
        screen = shown.wait_to_see(f"plan.json: {CHOICES}")
        assert after("May this plan", screen)[:6] == [
            "May this plan be carried out? 2 steps:",
            "",
            "  build  Build it.",
            "           echo v7",
            "  send",
            '           echo "sent {{steps.build.output}}" | tee -a sent',
        ]
        shown.enter("no")
        shown.wait_to_see("your own plan is changed, not rejected: edit, or: agentfs cancel")
        shown.enter("yes")
        assert shown.wait() == (0, "sent v7\n")
    assert 'plan.json: "status" is now "approved" (it was "draft")' in shown.terminal.everything
    assert place.read("plan.json")["status"] == "approved"


def test_a_draft_that_changes_is_asked_about_again_and_an_edit_may_approve_it(place: Place) -> None:
    script = """sed -i 's/echo v7/echo v8/' "$1" """
    with running(place, BUILD, "approve: plan", EDITOR="false", VISUAL=editor(place, script)) as shown:
        shown.wait_to_see("           echo v7", CHOICES)
        shown.enter("edit")
        shown.wait_to_see("           echo v8", CHOICES)
        assert "plan.json has changed" in shown.terminal.everything
        plan = place.run_folder() / "plan.json"
        plan.write_text(plan.read_text().replace('"draft"', '"approved"'))
        assert shown.wait() == (0, "v8\n")
    assert 'plan.json: "status" was set to "approved" elsewhere' in shown.terminal.everything


def test_plan_makes_a_plan_and_asks_nothing(place: Place) -> None:
    with at(place, "plan", place.runbook(BUILD)) as shown:
        assert shown.wait()[0] == 0
    assert CHOICES not in shown.raw


# ── asks, and what was cut off ────────────────────────────────────────────────────────────────────────────


def test_the_answer_to_an_ask_is_typed(place: Place) -> None:
    with running(place, ASK) as shown:
        screen = shown.wait_to_see("who: type the answer, or /show, /edit, /later")
        assert after("who asks", screen)[:4] == ["who asks", "", "    Who gets it?", "    A name."]
        shown.enter("")
        shown.wait_to_see("TEXT     all of it is the answer")
        shown.type("Adxa Love")
        shown.wait_to_see("> Adxa Love")
        shown.type("\x1b[D" * 6 + "\x7f\x05lace")  # back to the x, away with it, on at the end
        shown.wait_to_see("> Ada Lovelace")
        shown.enter("")
        assert shown.wait() == (0, "to Ada Lovelace\n")
    assert reply(place, "steps/who.1.reply.md") == "Ada Lovelace\n"


def test_the_answer_to_an_ask_is_pasted_or_written_in_an_editor(place: Place) -> None:
    twice = ASK.partition("### tell")[0]
    with running(
        place, twice + twice.replace("who", "whom"), EDITOR=editor(place, 'printf "a\\nb\\n" > "$1"')
    ) as shown:
        shown.wait_to_see("who: type the answer")
        shown.type("\x1b[200~one\rtwo\x1b[201~")
        shown.wait_to_see("> one␊two")  # nothing is sent before Enter
        shown.enter("")
        shown.wait_to_see("whom: type the answer")
        shown.enter("/edit")
        assert shown.wait() == (0, "a\nb\n")
    assert reply(place, "steps/who.1.reply.md") == "one\ntwo\n"
    assert reply(place, "steps/whom.1.reply.md") == "a\nb\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("true", "the reply is empty; nothing is sent"),
        ('echo x > "$1"; exit 1', "the editor failed; nothing is sent"),
    ],
)
def test_an_editor_that_writes_nothing_sends_nothing(place: Place, script: str, message: str) -> None:
    with running(place, ASK, EDITOR=editor(place, script)) as shown:
        shown.wait_to_see("who: type the answer")
        shown.enter("/edit")
        shown.wait_to_see(message, "who: type the answer")
        shown.enter("/later")
        assert shown.wait()[0] == 3


def test_without_an_editor_it_says_what_to_set(place: Place) -> None:
    with running(place, ASK, EDITOR="no-such-editor -w") as shown:
        shown.wait_to_see("who: type the answer")
        shown.enter("/edit")
        shown.wait_to_see("there is no editor 'no-such-editor -w': set VISUAL or EDITOR", "who: type the answer")
        shown.enter("/later")
        assert shown.wait()[0] == 3


def test_what_became_of_a_step_that_was_cut_off_is_asked(place: Place) -> None:
    steps = "### send\nnot repeatable\n```sh\ntouch begun; sleep 60\n```\n### tell\n```sh\necho {{steps.send.output}}\n```\n"
    driver = place.begin("run", place.runbook(steps))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step to begin")
    os.kill(driver.pid, signal.SIGKILL)
    end(driver, signal.SIGKILL)
    with at(place, "run", "--resume", "job") as shown:
        screen = shown.wait_to_see("send: again, done [output], failed [why], show, edit, later")
        assert "What became of send?" in screen
        shown.enter("yes")
        shown.wait_to_see("Type one of:", "  again    run it once more")
        shown.enter("done it went out")
        assert shown.wait() == (0, "it went out\n")
    assert reply(place, "steps/send.1.reply.md") == "done\nit went out\n"


# ── planners, and surprises ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def shell(name: str, command: str, **fields: Any) -> dict[str, Any]:
    words = {
        "description": f"do {name}",
        "tool": "shell",
        "success_condition": f"the command of {name} prints its file",
    }
    return {"id": name, **words, "input": {"command": command}, "depends_on": [], **fields}


def planned(place: Place, server: ScriptedServer, *words: str) -> OnTerminal:
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    return at(place, "run", place.goal("Tidy the shop\n"), "--mode", "split", *words)


def test_a_planners_draft_that_is_rejected_is_drafted_again(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("one", "echo 1")]})
    server.plan({"steps": [shell("one", "echo 2")]})
    with planned(place, server, "--approve", "plan") as shown:
        shown.wait_to_see("         echo 1", CHOICES)
        shown.enter("no two is better")
        shown.wait_to_see("         echo 2", CHOICES)
        shown.enter("yes")
        assert shown.wait() == (0, "2\n")
    assert reply(place, "planning/2.asked.md") == "two is better\n"


def test_an_answer_that_needs_a_yes_is_asked_about(place: Place, server: ScriptedServer) -> None:
    server.plan({"steps": [shell("one", "exit 3", max_attempts=1)]})
    server.plan({"steps": [shell("two", "echo fixed")]})
    with planned(place, server, "--approve", "always") as shown:
        shown.wait_to_see("May this plan be carried out? 1 step:", CHOICES)
        shown.enter("yes")
        screen = shown.wait_to_see("Go on after step failed?", f"planning/2: {CHOICES}")
        assert any("echo fixed" in line for line in screen)
        assert not any("reply.md" in line for line in screen)
        shown.enter("yes")
        assert shown.wait() == (0, "fixed\n")
    assert reply(place, "planning/2.reply.md") == "approve\n"


def test_a_surprise_that_nothing_answers_is_asked_about(place: Place) -> None:
    expects = '```json expects\n{"properties": {"rows": {"minimum": 1}}}\n```\n'
    with running(place, f"### count\n```sh\necho '{json.dumps({'rows': 0})}'\n```\n{expects}{BUILD}") as shown:
        shown.wait_to_see("Go on after unexpected state?", f"planning/2: {CHOICES}")
        shown.enter("yes")
        assert shown.wait() == (0, "v7\n")


# ── other terminals ───────────────────────────────────────────────────────────────────────────────────────


def test_a_terminal_that_cannot_draw_is_asked_in_lines(place: Place) -> None:
    with running(place, BUILD + SEND, TERM="dumb") as shown:
        shown.wait_to_see(f"send: {CHOICES}", "> ".rstrip())
        shown.enter("what?")
        shown.wait_to_see("Type one of:")
        shown.enter("yes")
        assert shown.wait() == (0, "sent v7\n")
    assert "\x1b" not in shown.raw


def test_nothing_is_asked_where_the_answer_could_not_be_typed(place: Place) -> None:
    with OnTerminal(["run", place.runbook(BUILD + SEND)], place.root, place.env) as shown:
        assert shown.wait()[0] == 3
    assert CHOICES not in shown.raw


def test_a_small_terminal_shows_the_prompt_all_the_same(place: Place) -> None:
    with running(place, BUILD + SEND, columns=40, rows=8) as shown:
        screen = shown.wait_to_see(f"send: {CHOICES}", ">")
        shown.type("yes and a line that is longer than the terminal is wide")
        screen = shown.wait_to_see("terminal is wide")
        assert screen[-1].startswith("> …")
        assert screen[-2] == f"send: {CHOICES}"
        shown.type("\x15")
        shown.enter("yes")
        assert shown.wait()[0] == 0


def test_what_a_question_holds_is_not_obeyed(place: Place) -> None:
    question = "Wipe \x1b[2J\x1b]0;title\x07 it?\u202e"
    goal = {"goal": "x", "steps": [{"id": "who", "tool": "ask", "input": {"question": question}}]}
    (place.root / "job.json").write_text(json.dumps(goal))
    with at(place, "run", "job.json") as shown:
        shown.wait_to_see("Wipe ␛[2J␛]0;title␇ it?<U+202E>")
        shown.enter("/show")
        shown.wait_to_see("Answer by a file named `who.1.reply.md`")
        shown.type("\x1b]0;x\x07no")
        shown.enter("")
        assert shown.wait()[0] == 0

"""A person's part in a run, act by act: what is on disk afterwards, what the ledger says, and what changed by meaning."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

BOOK = "### a\n```sh\necho a\n```\n### b\ngate\n```sh\necho b\n```\n### c\n```sh\necho c\n```\n"
BEGUN = ["STATUS.md", "goal.md", "plan.json", "planning/1.json", "planning/1.plan.1.json", "planning/1.result.json",
         "revisions/1.json", "revisions/1.plan.json", "run.json"]  # fmt: skip
A_DONE = ["steps/a.1.json", "steps/a.1.log.jsonl", "steps/a.1.result.json"]
FIRST = "agentfs job: revision 1, the first plan"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.env |= {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    return place


def tree(place: Place, *more: str) -> bool:
    """Whether the run holds what every run holds, and this."""
    assert place.tree() == sorted([*BEGUN, *more])
    return True


def changed(place: Place, *words: str) -> list[str]:
    """What `diff` says, without its heading."""
    return [str(line) for line in place.agentfs("diff", "job", *words).stdout.splitlines()[1:] if line]


def edit(place: Place, change: Callable[[Any], None]) -> None:
    plan = place.run_folder() / "plan.json"
    value = json.loads(plan.read_text())
    change(value)
    plan.write_text(json.dumps(value, indent=1))


def go_on(place: Place, code: int = 0) -> str:
    return str(place.agentfs("run", "--resume", "job", code=code).stdout)


# ── one act, by file or by command ────────────────────────────────────────────────────────────────────────


def status(word: str) -> Callable[[Place], None]:
    return lambda place: edit(place, lambda plan: plan.update(status=word))


def reply(text: str) -> Callable[[Place], None]:
    def act(place: Place) -> None:
        (place.run_folder() / "steps" / "b.1.reply.md").write_text(text)

    return act


def command(*words: str) -> Callable[[Place], None]:
    return lambda place: place.agentfs(*words) and None


def skip(place: Place) -> None:
    edit(place, lambda plan: plan["steps"][1].update(skip="not today"))


def again(place: Place) -> None:
    (place.run_folder() / "steps" / "a.1.again.md").write_text("")


ASKED = ["steps/b.1.question.md"]
B_DONE = ["steps/b.1.json", "steps/b.1.log.jsonl", "steps/b.1.reply.md", "steps/b.1.result.json"]
C_DONE = ["steps/c.1.json", "steps/c.1.log.jsonl", "steps/c.1.result.json"]
SECOND = ["revisions/2.json", "revisions/2.plan.json"]
ACTS: dict[str, tuple[Callable[[Place], None], Callable[[Place], None], int, list[str], list[str], list[str]]] = {
    "cancel": (
        status("cancelled"),
        command("cancel", "job"),
        1,
        [*SECOND, "outcome.json"],
        ["Ada job: revision 2, edited by Ada", "agentfs job: cancelled, 1 of 3 steps"],
        ["  status: approved -> cancelled", "still to run: b, c", "kept: a"],
    ),
    "skip": (
        skip,
        command("skip", "job", "b", "--because", "not today"),
        0,
        [*SECOND, *C_DONE, "outcome.json"],
        ["Ada job: revision 2, edited by Ada", "agentfs job: done, 2 of 3 steps"],
        ["~ b  changed", "    skip: nothing -> not today", "left out: b", "kept: a, c"],
    ),
    "approve": (
        reply("approve\n"),
        command("approve", "job", "b"),
        0,
        [*B_DONE, *C_DONE, "outcome.json"],
        ["agentfs job: done, 3 of 3 steps"],
        [],
    ),
    "reject": (
        reply("reject\nnot this way\n"),
        command("reject", "job", "b", "--because", "not this way"),
        1,
        ["steps/b.1.reply.md", "steps/b.1.result.json", "outcome.json"],
        ["agentfs job: failed, 1 of 3 steps"],
        [],
    ),
    "retry": (
        again,
        command("retry", "job", "a"),
        3,
        ["steps/a.1.again.md", "steps/a.2.json", "steps/a.2.log.jsonl", "steps/a.2.result.json"],
        [],
        [],
    ),
}


@pytest.mark.parametrize("by", ["file", "command"])
@pytest.mark.parametrize("act", ACTS)
def test_an_act_by_file_is_the_same_by_command(place: Place, act: str, by: str) -> None:
    by_file, by_command, code, files, commits, difference = ACTS[act]
    place.agentfs("run", place.runbook(BOOK), code=3)
    (by_file if by == "file" else by_command)(place)
    if (act, by) != ("cancel", "command"):  # which ends the run itself
        go_on(place, code)
    assert tree(place, *A_DONE, *ASKED, *files)
    assert place.log() == [FIRST, *commits]
    if difference:
        assert changed(place) == difference
    place.ledger_is_sound()


# ── approving what was looked at ──────────────────────────────────────────────────────────────────────────


def test_an_approval_is_for_the_revision_that_was_looked_at(place: Place) -> None:
    place.agentfs("plan", place.runbook("### a\n```sh\necho a\n```\n"))
    edit(place, lambda plan: plan["steps"][0]["input"].update(command="echo A"))
    output = place.agentfs("approve", "job@1", code=2).stderr
    assert "revision 1" in output
    assert place.read("plan.json")["status"] == "draft"
    go_on(place, 3)
    output = place.agentfs("approve", "job@1", code=2).stderr
    assert "has changed since revision 1: look at it first (agentfs diff" in output
    place.agentfs("approve", "job@2")
    assert go_on(place) == "A\n"
    assert tree(
        place, *(f"revisions/{n}{kind}.json" for n in (2, 3) for kind in ("", ".plan")), *A_DONE, "outcome.json"
    )
    assert place.log() == [
        FIRST,
        "Ada job: revision 2, edited by Ada",
        "Ada job: revision 3, edited by Ada",
        "agentfs job: done, 1 of 1 steps",
    ]
    assert changed(place, "1..3") == [
        "  status: draft -> approved",
        "~ a  changed",
        "    input.command: echo a -> echo A",
        "kept: a",
    ]


def test_a_yes_to_an_older_order_is_no_yes_to_the_next(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK), code=3)
    edit(place, lambda plan: plan["steps"][1]["input"].update(command="rm -rf everything"))
    reply("approve\n")(place)
    assert go_on(place, 3) == ""
    assert tree(place, *A_DONE, *ASKED, *SECOND, "steps/b.1.reply.md", "steps/b.2.question.md")
    assert "rm -rf everything" in (place.run_folder() / "steps" / "b.2.question.md").read_text()
    assert changed(place) == [
        "~ b  changed",
        "    input.command: echo b -> rm -rf everything",
        "still to run: b, c",
        "kept: a",
    ]


# ── with a planner ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server(place: Place) -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        yield server


def shell(name: str, text: str, *after: str, **fields: Any) -> dict[str, Any]:
    words = {"description": f"do {name}", "success_condition": f"the command of {name} prints its file"}
    return {"id": name, **words, "tool": "shell", "input": {"command": text}, "depends_on": list(after), **fields}


def begin(place: Place, server: ScriptedServer, *words: str, code: int = 3) -> None:
    server.plan(
        {"steps": [shell("a", "echo a"), shell("b", "cat none", "a", max_attempts=1), shell("c", "echo c", "b")]}
    )
    place.agentfs("run", place.goal("Tell c\n"), "--mode", "split", *words, code=code)


def test_always_asks_again_only_when_unfinished_steps_change(place: Place, server: ScriptedServer) -> None:
    begin(place, server, "--approve", "always")
    place.agentfs("approve", "job")
    server.plan({"keep": True})
    server.plan({"steps": [shell("b", "echo fixed", "a"), shell("c", "echo c", "b")]})
    go_on(place, 3)
    calls = sorted(path.name for path in place.run_folder().glob("planning/*.question*.md"))
    assert calls == ["3.question.md"], "to keep the plan is no change of it"
    assert changed(place, "--question")[-6:] == [
        '- every answer that changes steps is looked at (approve = "always")',
        "~ b  changed",
        "    input.command: cat none -> echo fixed",
        "    max_attempts: 1 -> nothing",
        "still to run: b, c",
        "kept: a",
    ]
    place.agentfs("approve", "job")
    assert go_on(place) == "c\n"
    assert place.log() == [
        "agentfs planner job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs planner job: revision 3, after b failed",
        "agentfs job: done, 3 of 3 steps",
    ]


def test_what_i_set_stays_set_until_i_say_otherwise(place: Place, server: ScriptedServer) -> None:
    server.plan(
        {"steps": [shell("a", "echo a"), shell("b", "cat none", "a", max_attempts=1), shell("c", "echo c", "b")]}
    )
    place.agentfs("plan", place.goal("Tell c\n"), "--mode", "split")
    edit(place, lambda plan: plan["steps"][2]["input"].update(command="echo mine"))
    place.agentfs("approve", "job")
    server.plan({"steps": [shell("b", "echo fixed", "a"), shell("c", "echo theirs", "b")]})
    go_on(place, 3)
    assert "- c: input" in json.dumps(server.requests[-1]["messages"]), "the planner's prompt names the edit"
    assert "- it changes what you set by hand: c.input" in changed(place, "--question")
    assert "Ada" in blamed(place, "c", "input")
    place.agentfs("approve", "job")
    assert go_on(place) == "theirs\n"
    assert "planner" in blamed(place, "c", "input"), "a yes frees it"
    assert place.log() == [
        "agentfs planner job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs planner job: revision 3, after b failed",
        "agentfs job: done, 3 of 3 steps",
    ]


def blamed(place: Place, step: str, field: str) -> str:
    lines = str(place.agentfs("blame", "job", step).stdout).splitlines()
    return next(line for line in lines if field in line)

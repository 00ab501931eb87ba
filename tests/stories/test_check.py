"""`check`, `run` and `watch` judge alike, and say where and what to write; a run that is refused leaves nothing behind."""

import json
import os
from pathlib import Path

import pytest

from agentfs.core.config import Settings
from agentfs.core.step_lines import LINES
from agentfs.daemon.inbox import Inbox
from agentfs.engine.means import catalogue_of
from agentfs.errors import BadFile, NoModel
from agentfs.storage.workspace import Workspace
from tests.terminals import OnTerminal
from tests.workspaces import Place

STEP = "### a\n```sh\necho a\n```\n"
TIGHTEN = "(a goal may only tighten the settings; change agentfs.toml, or use a flag)"


def book(steps: str = STEP, front: str = "") -> str:
    return (f"---\n{front}\n---\n" if front else "") + f"# Job\n\n## Steps\n\n{steps}"


BAD = {
    "a workdir that is not there": (
        book(front="workdir: nowhere"),
        ["job.md:2:1: workdir: there is no folder 'nowhere' in {root} (make it first) [/workdir]"],
    ),
    "a workdir that may not be used": (
        book(front="name: x\nworkdir: ../.."),
        [
            (
                "job.md:3:1: workdir: '../..' lies outside the folders a goal may work in (.) "
                "(add its folder to workdirs under [goals] in agentfs.toml, or use --workdir) [/workdir]"
            )
        ],
    ),
    "limits that loosen": (
        book(front="limits:\n  replans: 1\n  attempts: 99"),
        [f"job.md:4:3: limits.attempts: 99 is more than 2 {TIGHTEN} [/limits/attempts]"],
    ),
    "a tool that is not allowed": (
        book(front="tools:\n- shell\n- teleport"),
        [f"job.md:4:3: tools: 'teleport' is not in [tools] allow {TIGHTEN} [/tools/1]"],
    ),
    "all at once": (
        book("### a\n```teleport\nx\n```\ncheck `false`\n", front="workdir: nowhere\nlimits: {attempts: 99}"),
        [
            "job.md:2:1: workdir: there is no folder 'nowhere' in {root} (make it first) [/workdir]",
            f"job.md:3:10: limits.attempts: 99 is more than 2 {TIGHTEN} [/limits/attempts]",
            "job.md:10:4: there is no tool 'teleport' (the tools are ",
            (
                "job.md:13:1: 'check `false`' is not a line a step can hold (write check: `false`; if it is prose, begin it "
                "with another word) [/steps/0/checks]"
            ),
        ],
    ),
    "a wrong reference": (
        book("### a\n```sh\necho 1\n  echo {{steps.b.output}}\n```\n"),
        [
            (
                "job.md:8:8: {{steps.b.output}} refers to a step that is not in the plan (there is no other step) "
                "[/steps/0/input/command]"
            )
        ],
    ),
    "a step for a model": (
        book("### a\nFind the culprit.\n"),
        [
            (
                "job.md:5:5: the step 'a' names no tool, and there is no model to do it (name a tool, or set OPENAI_API_KEY "
                "(or base_url under [executor] in agentfs.toml)) [/steps/0]"
            )
        ],
    ),
    "nearly a runbook": (
        f"# Job\n\n##Steps\n\n{STEP}",
        [
            (
                "job.md:3:1: '##Steps' does not begin the steps (write ## Steps: two signs, a blank, the word, "
                "at the start of the line) [/steps]"
            )
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_the_three_say_the_same(place: Place, name: str) -> None:
    text, wanted = BAD[name]
    place.goal(text)
    wanted = [line.replace("{root}", str(place.root)) for line in wanted]
    code, checked, _ = place.looks("check", "job.md")
    assert code == 2
    assert len(checked.splitlines()) == len(wanted)
    assert all(line.startswith(begin) for line, begin in zip(checked.splitlines(), wanted, strict=True)), checked
    code, _, ran = place.looks("run", "job.md")
    assert (code, ran.removeprefix("agentfs: ")) == (2, checked)
    assert sorted(os.listdir(place.root)) == ["job.md"]  # no workspace is made for a goal that is refused
    assert dropped(place.root, "job.md") == checked.splitlines()


def dropped(root: Path, name: str) -> list[str]:
    """Return what `watch` finds wrong with a goal."""
    goals = root / "goals"
    goals.mkdir()
    (root / name).rename(goals / name)
    inbox = Inbox(Workspace(root), Settings(), catalogue_of(Settings(), {}), planner=False)
    with pytest.raises((BadFile, NoModel)) as caught:
        inbox.taking(goals / name)
    return str(caught.value).splitlines()


def test_a_goal_in_words_needs_a_model(place: Place) -> None:
    place.goal("---\napprove: never\n---\nTidy the invoices.\n", "words.md")
    output = (
        "words.md:1:1: this goal has no steps, and no model is configured to plan it (write the steps yourself: a `## Steps` "
        "section, `### id` for each, below it a fenced command or `agent: NAME`; or configure a model: set OPENAI_API_KEY, or "
        "base_url under [planner] in agentfs.toml)\n"
    )
    assert place.looks("check", "words.md") == (4, output, "")
    code, _, ran = place.looks("run", "words.md")
    assert (code, ran.splitlines()[0]) == (
        4,
        "words.md: this goal has no steps, and no model is configured to plan it. Two ways out:",
    )
    assert sorted(os.listdir(place.root)) == ["words.md"]
    model = {"OPENAI_API_KEY": "none"}
    note = "dropped into goals/ it is refused: approve: 'never' is looser than 'plan'"
    assert place.looks("check", "words.md", env=model) == (0, "", f"words.md: ok for `run`; {note}\n")
    dropped(place.root, "words.md")
    code, refused, _ = place.looks("check", "goals/words.md", env=model)
    assert (code, refused.split(" (")[0]) == (2, "goals/words.md:2:1: approve: 'never' is looser than 'plan'")


def test_a_file_that_is_not_a_goal_is_reported_as_such(place: Place) -> None:
    place.looks("init")
    for name in ("notes.pdf", "goals/notes.pdf"):
        (place.root / name).write_text("x")
    (place.root / "goals" / "link.md").symlink_to("/etc/passwd")
    os.mkfifo(place.root / "goals" / "pipe.md")
    names = ("notes.pdf", "goals/notes.pdf", "goals/link.md", "goals/pipe.md", "missing.md", ".")
    code, output, _ = place.looks("check", *names)
    assert (code, [line.partition(" (")[0] for line in output.splitlines()]) == (
        2,
        [
            "notes.pdf:1:1: this is not a goal, a plan or settings",
            "goals/notes.pdf:1:1: this is not a goal, a plan or settings",
            "goals/link.md:1:1: it is a symbolic link, not a file",
            "goals/pipe.md:1:1: it is a named pipe, not a file",
            "missing.md:1:1: cannot be read: No such file or directory",
            ".:1:1: cannot be read: Is a directory",
        ],
    )


def test_a_goal_is_not_ok_where_the_settings_are_wrong(place: Place) -> None:
    place.looks("init")
    place.goal(book())
    (place.root / "agentfs.toml").write_text("[limits]\nattemps = 3\n")
    code, output, ok = place.looks("check", "job.md")
    assert (code, ok) == (2, "job.md: ok\n")
    assert output.startswith(f"{place.root}/agentfs.toml:2:1: ")
    assert place.looks("check", "--json", "job.md")[1].count('"pointer": "/limits/attemps"') == 1


def test_a_file_of_a_run_is_judged_by_what_the_run_began_with(place: Place) -> None:
    place.agentfs("run", place.runbook(STEP, "tools: [shell]"))
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace('"shell"', '"note"').replace('"command"', '"text"'))
    (place.root / "plan.json").write_text(plan.read_text())
    assert place.looks("check", "plan.json")[0] == 0
    code, output, _ = place.looks("check", "--json", str(plan))
    (problem,) = json.loads(output)
    assert (code, problem["pointer"], problem["message"]) == (
        2,
        "/steps/0/tool",
        "the tool 'note' is not allowed in this run",
    )
    goal = plan.with_name("goal.md")
    goal.write_text(goal.read_text() + "check `false`\n")
    assert place.looks("check", str(goal))[0] == 2


@pytest.mark.parametrize("words", [("run", "nosuch.md"), ("plan", "nosuch.md"), ("run", "--resume", "nosuch")])
def test_what_is_not_there_makes_no_workspace(place: Place, words: tuple[str, ...]) -> None:
    code, _, output = place.looks(*words)
    assert code == 2
    assert output.startswith("agentfs: ")
    assert os.listdir(place.root) == []


def test_a_terminal_shows_the_line_that_is_wrong(place: Place) -> None:
    place.goal(book(STEP + "after: b\n\tcheck: `\u65e5\u672c \x1b[31m`\n"))
    with OnTerminal(["run", "job.md"], place.root, place.env, columns=60) as shown:
        assert shown.wait()[0] == 2
    assert [line for line in shown.terminal.everything if " | " in line] == [
        "    9 | after: b",
        "      |        ^",
        "    10 |  check: `\u65e5\u672c \u241b[31m`",
        "       |  ^",
    ]


def test_the_help_lists_every_line_a_step_may_hold(place: Place) -> None:
    code, output, _ = place.looks("check", "--help")
    _, _, lines = output.partition("may hold:\n")
    width = max(len(form.shown) for form in LINES)
    rows = [(line[2 : 2 + width].rstrip(), line[2 + width : 4 + width]) for line in lines.splitlines()]
    assert (code, [name for name, _ in rows if name]) == (0, [form.shown for form in LINES])
    assert {gap for _, gap in rows} == {"  "}
    assert max(map(len, lines.splitlines())) <= 100

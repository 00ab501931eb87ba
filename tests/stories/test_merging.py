"""A person edits plan.json while the planner thinks: their edit wins, the answer is merged with it, or it is a question."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer, replies
from agentfs.testing.replies import Body, ScriptedReply
from tests.warm import Command
from tests.workspaces import DEADLINE, Place, wait_for

ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
Steps = list[dict[str, Any]]


@dataclass
class SlowPlanner:
    """A planner that answers on a signal of the test."""

    place: Place
    server: ScriptedServer
    go: threading.Event = field(default_factory=threading.Event)
    answers: list[Any] = field(default_factory=list)

    def answer(self, _request: Body) -> ScriptedReply:
        value = self.answers.pop(0)
        assert self.go.wait(DEADLINE)
        return replies.plan(value)

    @property
    def folder(self) -> Path:
        return self.place.run_folder()

    def edit(self, change: Callable[[Any], None]) -> None:
        """Save plan.json as a person does, and wait until that is a revision."""
        plan, before = self.folder / "plan.json", self.revisions()
        value = json.loads(plan.read_text())
        change(value)
        plan.write_text(json.dumps(value, indent=1))
        wait_for(lambda: self.revisions() == before + 1, "the revision")

    def revisions(self) -> int:
        return len([path for path in self.folder.glob("revisions/*.json") if path.name.count(".") == 1])

    def steps(self) -> dict[str, Any]:
        return {step["id"]: step for step in self.place.read("plan.json")["steps"]}

    def question(self, name: str = "2.question.md") -> str:
        path = self.folder / "planning" / name
        wait_for(path.exists, name)
        return path.read_text()


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[SlowPlanner]:
    with ScriptedServer() as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests", **ADA}
        planner = SlowPlanner(place, server)
        server.answer = planner.answer
        yield planner
        planner.go.set()


def shell(name: str, command: str, *after: str, **fields: Any) -> dict[str, Any]:
    """A step as a planner writes one."""
    return {
        "id": name,
        "description": f"do {name}",
        "tool": "shell",
        "input": {"command": command},
        "success_condition": f"the command of {name} prints its file",
        "depends_on": list(after),
        **fields,
    }


FIRST = [
    shell("make", "echo made >> effects; echo ok"),
    shell("load", "cat nothing.txt", "make", max_attempts=1),
    shell("tell", "echo hello; cat effects", "load"),
]
LOADED = [shell("load-2", "echo loaded >> effects; echo loaded", "make"), shell("tell", "cat effects", "load-2")]


def begin(planner: SlowPlanner, *words: str, second: Any = None) -> "subprocess.Popen[str] | Command":
    """Begin a run and wait until its second call is on its way."""
    planner.server.plan({"steps": FIRST})
    planner.answers.append({"steps": LOADED} if second is None else second)
    process = planner.place.begin("run", planner.place.goal("Tell what was loaded\n"), "--mode", "split", *words)
    wait_for(lambda: len(planner.server.requests) == 2, "the second call")
    return process


def wait(process: "subprocess.Popen[str] | Command", code: int = 0) -> str:
    """Wait until the command ends by itself; return what it printed."""
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out


def test_edits_of_other_fields_are_merged_and_nobody_is_asked(planner: SlowPlanner) -> None:
    process = begin(planner)

    def change(plan: Any) -> None:
        plan["limits"] = {"replans": 7}
        plan["steps"][2] |= {"why": "Ada wants to see it", "timeout_s": 5}
        plan["steps"].append({"id": "sweep", "tool": "shell", "input": {"command": "echo swept; cat effects"}})

    planner.edit(change)
    planner.go.set()
    assert wait(process) == "swept\nmade\nloaded\n"
    plan = planner.place.read("plan.json")
    assert [step["id"] for step in plan["steps"]] == ["make", "load-2", "tell", "sweep"]
    assert plan["limits"] == {"replans": 7}
    tell = {**LOADED[1], "why": "Ada wants to see it", "timeout_s": 5}
    assert planner.steps()["tell"] == tell, "the command is the planner's, the rest is Ada's"
    assert planner.steps()["sweep"]["depends_on"] == ["tell"]
    assert planner.place.log() == [
        "agentfs planner job: revision 1, the first plan",
        "Ada job: revision 2, edited by Ada",
        "agentfs planner job: revision 3, after load failed",
        "agentfs job: done, 4 of 4 steps",
    ]
    revision = planner.place.read("revisions/3.json")
    assert (revision["call"], revision["by"]["role"]) == (2, "planner")
    assert revision["base_sha256"] == planner.place.read("revisions/2.json")["plan_sha256"]
    assert revision["changes"] == [
        {"step": "load", "what": "removed"},
        {"step": "load-2", "what": "added"},
        {"step": "tell", "what": "input changed"},
        {"step": "tell", "what": "now after load-2"},
    ]
    installed = (planner.folder / "planning" / "2.plan.1.json").read_bytes()
    assert (planner.folder / "revisions" / "3.plan.json").read_bytes() == installed
    assert len(planner.server.requests) == 2, "it was not asked again"
    assert not list(planner.folder.glob("planning/*.question*.md"))
    planner.place.ledger_is_sound()
    planner.place.agentfs("replay", "job")


@pytest.fixture
def conflict(planner: SlowPlanner) -> SlowPlanner:
    """Ada and the planner both changed the command of `tell`; the run waits."""
    process = begin(planner)

    def change(plan: Any) -> None:
        plan["steps"][2]["input"]["command"] = "echo Ada; cat effects"
        plan["steps"][2]["why"] = "Ada's"

    planner.edit(change)
    planner.go.set()
    assert wait(process, 3) == ""
    return planner


def test_what_both_changed_is_a_question_that_shows_both(conflict: SlowPlanner) -> None:
    place, question = conflict.place, conflict.question()
    assert "- you and the answer changed the same: tell.input\n" in question
    assert '! tell  input\n    it was: {"command": "echo hello; cat effects"}\n' in question
    assert '    yours: {"command": "echo Ada; cat effects"}\n    the answer: {"command": "cat effects"}\n' in question
    assert "- load  removed\n" in question
    assert "+ load-2  added\n" in question
    assert "    input.command: echo Ada; cat effects -> cat effects\n" in question
    assert "kept: make\n" in question
    run = f"{conflict.folder.parent.name}/job"
    assert f"`agentfs approve {run} planning/2`" in question
    status = (conflict.folder / "STATUS.md").read_text()
    assert "planning/2.question.md" in status
    assert conflict.steps()["tell"]["input"] == {"command": "echo Ada; cat effects"}, "nothing is installed yet"
    output = place.agentfs("diff", "job", "--question").stdout.splitlines()
    assert output[:2] == [
        f"{run}: revision 2 -> the answer of call 2",
        "- you and the answer changed the same: tell.input",
    ]
    assert "~ tell  changed" in output
    stat = place.agentfs("diff", "job", "--question", "--stat").stdout
    assert (
        stat == f"{run}: revision 2 -> the answer of call 2: 1 added, 1 removed, 1 changed; 0 steps again, 1 kept\n"
    )
    page = json.loads(place.agentfs("diff", "job", "--question", "--json").stdout)
    assert page["question"] == {
        "call": 2,
        "path": "planning/2.question.md",
        "reasons": ["you and the answer changed the same: tell.input"],
        "conflicts": [
            {
                "step": "tell",
                "field": "input",
                "base": {"command": "echo hello; cat effects"},
                "mine": {"command": "echo Ada; cat effects"},
                "theirs": {"command": "cat effects"},
            }
        ],
        "by_hand": [],
    }
    assert "diff takes revisions, or --question" in place.agentfs("diff", "job", "1", "--question", code=2).stderr


def test_a_yes_takes_the_answers_side_and_keeps_the_rest_of_mine(conflict: SlowPlanner) -> None:
    place = conflict.place
    place.agentfs("approve", "job")
    assert place.agentfs("run", "--resume", "job").stdout == "made\nloaded\n"
    assert conflict.steps()["tell"] == {**LOADED[1], "why": "Ada's"}
    assert place.log()[1:] == [
        "Ada job: revision 2, edited by Ada",
        "agentfs planner job: revision 3, after load failed",
        "agentfs job: done, 3 of 3 steps",
    ]
    assert "has no answer waiting" in place.agentfs("diff", "job", "--question", code=2).stderr
    tree = [path for path in place.tree() if path.startswith("planning/2.")]
    assert tree == [
        "planning/2.json",
        "planning/2.log.jsonl",
        "planning/2.plan.1.json",
        "planning/2.question.md",
        "planning/2.reply.md",
        "planning/2.result.json",
    ]
    place.ledger_is_sound()


def test_a_no_asks_the_planner_again_with_the_words(conflict: SlowPlanner) -> None:
    place = conflict.place
    place.agentfs("reject", "job", "--because", "leave tell alone")
    mine = {**conflict.steps()["tell"], "depends_on": ["load-3"]}
    conflict.answers.append({"steps": [shell("load-3", "echo 3 >> effects", "make"), mine]})
    assert place.agentfs("run", "--resume", "job").stdout == "Ada\nmade\n3\n"
    sent = json.dumps(conflict.server.requests[-1]["messages"])
    assert "leave tell alone" in sent
    assert "- tell: input, why" in sent, "the prompt names what Ada set"
    assert place.read("planning/3.json")["trigger"] == "asked"
    assert place.read("planning/3.json")["evidence"] == ["planning/2.reply.md", "steps/load.1.result.json"]
    assert conflict.steps()["tell"]["input"] == {"command": "echo Ada; cat effects"}
    place.agentfs("replay", "job")


def test_a_yes_is_for_the_changes_that_were_shown(conflict: SlowPlanner) -> None:
    """Ada edits again after she was asked: the yes to the first question does not apply, a second one is put."""
    place, plan = conflict.place, conflict.folder / "plan.json"
    (conflict.folder / "planning" / "2.reply.md").write_text("approve\n")
    plan.write_text(plan.read_text().replace("echo Ada; cat", "echo Lovelace; cat"))
    output = place.agentfs("approve", "job", code=2).stderr
    assert "the plan has changed since planning/2.question.md was asked: asking again" in output
    err = place.agentfs("run", "--resume", "job", code=3).stderr
    assert "the plan has changed since planning/2.question.md was asked: asking again" in err
    assert "Lovelace" in conflict.question("2.question-2.md")
    status = (conflict.folder / "STATUS.md").read_text()
    assert "the yes in planning/2.reply.md does not apply: the plan has changed since it was asked for" in status
    assert "Lovelace" in json.dumps(conflict.steps()["tell"])
    place.agentfs("approve", "job")
    assert (conflict.folder / "planning" / "2.reply-2.md").read_text() == "approve\n"
    assert place.agentfs("run", "--resume", "job").stdout == "made\nloaded\n"
    assert len(conflict.server.requests) == 2, "the planner was not asked again"
    assert [line.partition(":")[0] for line in place.log()][1:3] == ["Ada job", "Ada job"]
    place.agentfs("replay", "job")


def test_to_pause_and_to_edit_something_else_takes_no_yes_back(conflict: SlowPlanner) -> None:
    place, plan = conflict.place, conflict.folder / "plan.json"
    plan.write_text(plan.read_text().replace("do make", "make it"))
    place.agentfs("approve", "job")
    place.agentfs("pause", "job")
    place.agentfs("run", "--resume", "job")
    assert place.read("plan.json")["status"] == "approved"
    assert conflict.steps()["make"]["description"] == "make it"
    assert conflict.steps()["tell"]["input"] == {"command": "cat effects"}
    assert not (conflict.folder / "planning" / "2.question-2.md").exists()


def test_an_edit_that_settles_the_question_lets_the_answer_in(conflict: SlowPlanner) -> None:
    place, plan = conflict.place, conflict.folder / "plan.json"
    plan.write_text(plan.read_text().replace("echo Ada; cat effects", "cat effects"))
    assert place.agentfs("run", "--resume", "job").stdout == "made\nloaded\n"
    assert conflict.steps()["tell"]["why"] == "Ada's"
    assert not (conflict.folder / "planning" / "2.question-2.md").exists()


def test_a_plan_edited_into_the_very_answer_is_a_revision_of_the_answer_too(conflict: SlowPlanner) -> None:
    place, plan = conflict.place, conflict.folder / "plan.json"
    value = place.read("plan.json")
    value["steps"] = [value["steps"][0], LOADED[0], {**LOADED[1], "why": "Ada's"}]
    plan.write_text(json.dumps(value))
    assert place.agentfs("run", "--resume", "job").stdout == "made\nloaded\n"
    assert plan.read_text() == json.dumps(value), "nothing is reformatted"
    assert place.read("revisions/4.json")["changes"] == []
    assert place.log()[2:4] == [
        "Ada job: revision 3, edited by Ada",
        "agentfs planner job: revision 4, after load failed",
    ]
    place.agentfs("replay", "job")


# ── steps that come and go ────────────────────────────────────────────────────────────────────────────────


def test_a_step_that_the_answer_drops_and_the_person_changed_is_a_question(planner: SlowPlanner) -> None:
    process = begin(planner)
    planner.edit(lambda plan: plan["steps"][1]["input"].update(command="echo mine >> effects"))
    planner.go.set()
    wait(process, 3)
    assert "! load  you changed it; the answer removed it\n" in planner.question()
    planner.place.agentfs("reject", "job", "--because", "it works now")
    planner.answers.append({"keep": True})
    assert planner.place.agentfs("run", "--resume", "job").stdout == "hello\nmade\nmine\n"


def test_a_step_that_the_person_removed_stays_away_unless_the_answer_needs_it(planner: SlowPlanner) -> None:
    process = begin(planner, second={"steps": [LOADED[0], FIRST[2] | {"depends_on": ["load-2"]}]})

    def change(plan: Any) -> None:
        del plan["steps"][2]

    planner.edit(change)
    planner.go.set()
    wait(process, 3)
    assert "! tell  you removed it; the answer changed it\n" in planner.question()
    planner.place.agentfs("approve", "job")
    assert planner.place.agentfs("run", "--resume", "job").stdout == "hello\nmade\nloaded\n"


def test_a_step_added_behind_one_that_the_answer_drops(planner: SlowPlanner) -> None:
    process = begin(planner)
    mine = {"id": "after", "tool": "shell", "input": {"command": "echo after"}, "depends_on": ["load", "make"]}
    planner.edit(lambda plan: plan["steps"].append(mine))
    planner.go.set()
    wait(process, 3)
    question = planner.question()
    assert "you and the answer changed the same: after.depends_on\n" in question
    assert '    yours: ["load", "make"]\n    the answer: ["make"]\n' in question
    planner.place.agentfs("approve", "job")
    planner.place.agentfs("run", "--resume", "job")
    assert planner.steps()["after"]["depends_on"] == ["make"]


def test_edits_that_do_not_go_together_with_the_answer_are_a_question(planner: SlowPlanner) -> None:
    process = begin(planner, second={"steps": [*LOADED, shell("end", "echo end", "tell")]})
    mine = {"id": "use", "tool": "shell", "input": {"command": "echo {{steps.load.output}}"}, "depends_on": []}
    planner.edit(lambda plan: plan["steps"].append(mine))
    planner.go.set()
    wait(process, 3)
    question = planner.question()
    assert "- your edits and the answer do not go together: step 'use', input.command: " in question
    assert "- use  removed\n" in question
    planner.place.agentfs("approve", "job")
    assert planner.place.agentfs("run", "--resume", "job").stdout == "end\n"
    assert list(planner.steps()) == ["make", "load-2", "tell", "end"]


# ── what a person set stays set ───────────────────────────────────────────────────────────────────────────


def test_what_a_person_set_before_the_call_is_asked_about_and_a_yes_frees_it(planner: SlowPlanner) -> None:
    place, server = planner.place, planner.server
    planner.go.set()
    server.plan({"steps": [shell("make", "echo made", gate=True), shell("tell", "echo hello", "make")]})
    place.agentfs("run", place.goal("Tell\n"), "--mode", "split", code=3)
    plan = planner.folder / "plan.json"
    plan.write_text(plan.read_text().replace("echo hello", "echo ADA"))
    server.plan({"steps": [shell("make", "echo made", gate=True), shell("tell", "echo planned", "make")]})
    place.agentfs("replan", "job")
    place.agentfs("run", "--resume", "job", code=3)
    assert "- it changes what you set by hand: tell.input\n" in planner.question()
    assert "Leave these fields as they are" in json.dumps(server.requests[-1]["messages"])
    place.agentfs("approve", "job", "planning/2")
    place.agentfs("run", "--resume", "job", code=3)
    assert planner.steps()["tell"]["input"] == {"command": "echo planned"}
    server.plan({"steps": [shell("make", "echo made", gate=True), shell("tell", "echo freely", "make")]})
    place.agentfs("replan", "job")
    place.agentfs("run", "--resume", "job", code=3)
    assert planner.steps()["tell"]["input"] == {"command": "echo freely"}, "it was freed: nobody is asked"
    assert not (planner.folder / "planning" / "3.question.md").exists()


def test_a_step_that_a_person_added_is_not_dropped_without_a_yes(planner: SlowPlanner) -> None:
    place, server = planner.place, planner.server
    planner.go.set()
    server.plan({"steps": [shell("make", "echo made", gate=True)]})
    place.agentfs("run", place.goal("Tell\n"), "--mode", "split", code=3)
    value = place.read("plan.json")
    value["steps"].append({"id": "mine", "tool": "note", "input": {"text": "mine"}})
    (planner.folder / "plan.json").write_text(json.dumps(value))
    server.plan({"steps": [shell("other", "echo other", gate=True)]})
    place.agentfs("replan", "job")
    place.agentfs("run", "--resume", "job", code=3)
    assert "- it changes what you set by hand: mine\n" in planner.question()
    place.agentfs("reject", "job", "planning/2", "--because", "mine stays")
    kept = {**value["steps"][1], "depends_on": ["other"], "success_condition": "it says mine"}
    server.plan({"steps": [shell("other", "echo other", gate=True), kept]})
    place.agentfs("run", "--resume", "job", code=3)
    assert "it changes what you set by hand: mine.depends_on" not in planner.folder.joinpath("STATUS.md").read_text()
    assert planner.steps().keys() >= {"mine"}


# ── nothing is lost ───────────────────────────────────────────────────────────────────────────────────────


def test_a_goal_changed_while_the_planner_thinks_makes_its_answer_worthless(planner: SlowPlanner) -> None:
    process = begin(planner)
    planner.answers.append({"steps": [shell("fresh", "echo fresh")]})
    (planner.folder / "goal.md").write_text("Something else\n")
    planner.edit(lambda plan: plan["steps"][2].update(why="Ada's"))
    planner.go.set()
    wait(process, 3)
    assert place_triggers(planner) == ["first", "step_failed", "goal_changed"]
    assert "- it changes what you set by hand: tell\n" in planner.question("3.question.md")
    planner.place.agentfs("approve", "job")
    assert planner.place.agentfs("run", "--resume", "job").stdout == "fresh\n"


def place_triggers(planner: SlowPlanner) -> list[str]:
    calls = sorted(path for path in planner.folder.glob("planning/*.json") if path.name.count(".") == 1)
    return [json.loads(path.read_text())["trigger"] for path in calls]


CUTS: dict[str, list[str]] = {
    "before anything": [],
    "before the exchange": ["planning/2.plan.1.json"],
    "at the commit point": ["planning/2.plan.1.json", "plan.json"],
    "before the number": ["planning/2.plan.1.json", "plan.json", "revisions/3.plan.json"],
    "before the commit": ["planning/2.plan.1.json", "plan.json", "revisions/3.plan.json", "revisions/3.json"],
}


def test_cut_off_anywhere_the_next_driver_knows_the_merged_plan_for_the_planners(
    conflict: SlowPlanner, tmp_path: Path
) -> None:
    """As a kill -9 leaves it after each write: what the finished run wrote so far, laid over what was there before."""
    place, folder = conflict.place, conflict.folder
    place.agentfs("approve", "job")
    shutil.copytree(place.root, tmp_path / "before")
    place.agentfs("run", "--resume", "job")
    after = {name: (folder / name).read_bytes() for name in CUTS["before the commit"]}
    log = place.log()
    for cut, written in CUTS.items():
        shutil.rmtree(place.root)
        shutil.copytree(tmp_path / "before", place.root)
        for name in written:
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_bytes(after[name])
        place.agentfs("trust", str(place.root))
        assert place.agentfs("run", "--resume", "job").stdout == "made\nloaded\n", cut
        assert {name: (folder / name).read_bytes() for name in after if name != "revisions/3.json"} == {
            name: content for name, content in after.items() if name != "revisions/3.json"
        }, cut
        assert place.log() == log, cut
        assert place.read("revisions/3.json")["call"] == 2, cut

"""`restore` and `--dry-run` from outside: an earlier plan becomes the next revision, and a change can be tried first."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.workspaces import Place

ADA = {"GIT_AUTHOR_NAME": "Ada"}
BOOK = "### a\n```sh\necho a\n```\n### b\n```sh\necho b\n```\n### c\nafter: a\n```sh\necho c\n```\n"


def edit(place: Place, old: str, new: str) -> None:
    """Change plan.json as a person would."""
    plan = place.run_folder() / "plan.json"
    text = plan.read_text(encoding="utf-8")
    assert old in text
    plan.write_text(text.replace(old, new), encoding="utf-8")


def everything(place: Place) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the run with its content."""
    folder = place.run_folder()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


@pytest.fixture
def edited(place: Place) -> str:
    """A run that is done, with a second revision by a person; return its id."""
    place.agentfs("run", place.runbook(BOOK))
    edit(place, "echo b", "echo B")
    place.agentfs("retry", "job", "b")
    place.agentfs("run", "--resume", "job", env=ADA)
    return f"{place.run_folder().parent.name}/job"


def test_an_earlier_plan_becomes_the_next_revision(place: Place, edited: str) -> None:
    done = place.agentfs("restore", "job@1", env=ADA)
    at = f"runs/{edited}"
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{at}/plan.json: restored as it was in revision 1",
        "",
        "~ b  changed",
        "    input.command: echo B -> echo b",
        "",
        "reruns 1 step, keeps 2:",
        "  runs again:",
        "    b: the step, or one before it, has changed",
        "  kept: a, c",
        f"{at}/outcome.json: removed, the run goes on",
        f"nothing drives it; go on with: agentfs resume {edited}",
    ]
    folder = place.run_folder()
    assert (folder / "plan.json").read_bytes() == (folder / "revisions/1.plan.json").read_bytes()
    place.agentfs("run", "--resume", "job", env=ADA)
    assert place.log() == [
        "agentfs job: revision 1, the first plan",
        "agentfs job: done, 3 of 3 steps",
        "Ada job: revision 2, edited by Ada",
        "agentfs job: done, 3 of 3 steps",
        "Ada job: revision 3, edited by Ada",
        "agentfs job: done, 3 of 3 steps",
    ]
    assert (folder / "revisions/3.plan.json").read_bytes() == (folder / "revisions/1.plan.json").read_bytes()
    assert "is as it was in revision 1 already" in place.agentfs("restore", "job@1").stderr
    place.ledger_is_sound()


def test_the_switch_stays_as_it_is_but_a_cancelled_run_comes_back(place: Place) -> None:
    place.agentfs("plan", place.runbook(BOOK), code=0)
    assert place.read("plan.json")["status"] == "draft"
    place.agentfs("approve", "job")
    edit(place, "echo b", "echo B")
    place.agentfs("run", "--resume", "job")
    place.agentfs("retry", "job", "a")
    place.agentfs("pause", "job")
    place.agentfs("restore", "job@1")
    assert (place.read("plan.json")["status"], place.read("plan.json")["steps"][1]["input"]) == (
        "paused",
        {"command": "echo b"},
    )
    place.agentfs("cancel", "job")
    assert place.read("outcome.json")["status"] == "cancelled"
    assert "outcome.json: removed, the run goes on" in place.agentfs("restore", "job@2").stderr
    assert place.read("plan.json")["status"] == "approved"


def test_what_is_in_no_revision_is_kept_beside(place: Place, edited: str) -> None:
    plan = place.run_folder() / "plan.json"
    plan.write_text("{ half", encoding="utf-8")
    output = place.agentfs("restore", "job@2").stderr
    assert f"runs/{edited}/plan.saved-1.json: what was in plan.json, and in no revision" in output
    assert (place.run_folder() / "plan.saved-1.json").read_text(encoding="utf-8") == "{ half"
    assert plan.read_bytes() == (place.run_folder() / "revisions/2.plan.json").read_bytes()
    os.unlink(plan)
    place.agentfs("restore", "job@1")
    assert plan.read_bytes() == (place.run_folder() / "revisions/1.plan.json").read_bytes()
    assert not (place.run_folder() / "plan.saved-2.json").exists()


def test_mistakes_are_reported_and_write_nothing(place: Place, edited: str) -> None:
    before = dict(everything(place))
    assert f"which revision? agentfs restore {edited}@N" in place.agentfs("restore", "job", code=2).stderr
    assert f"{edited} has no revision 9 (it has 1 to 2)" in place.agentfs("restore", "job@9", code=2).stderr
    run = place.read("run.json")
    (place.run_folder() / "run.json").write_text(json.dumps({**run, "tools": ["note"]}), encoding="utf-8")
    output = place.agentfs("restore", "job@1", code=2).stderr
    assert "revision 1:" in output
    assert "shell" in output
    (place.run_folder() / "run.json").write_bytes(before["run.json"])
    assert dict(everything(place)) == before


@pytest.mark.parametrize(
    ("words", "means"),
    [
        (["restore", "job@1"], "reruns 1 step, keeps 2:"),
        (["retry", "job", "a"], "reruns 3 steps, keeps 0:"),
        (["skip", "job", "a", "--because", "no need"], '"skip" of a is now "no need"'),
    ],
)
def test_a_dry_run_says_what_would_happen_and_writes_nothing(
    place: Place, edited: str, words: list[str], means: str
) -> None:
    before = dict(everything(place))
    done = place.agentfs(*words, "--dry-run")
    assert done.stdout == ""
    assert done.stderr.startswith("dry run: this is what it would do; nothing is written\n")
    assert means in done.stderr
    assert f"runs/{edited}/" in done.stderr
    assert "/tmp/" not in done.stderr.replace(str(place.root), "")
    assert dict(everything(place)) == before


def test_a_dry_run_of_what_settles_a_draft_and_a_gate(place: Place) -> None:
    place.agentfs("plan", place.runbook("### a\n```sh\necho a\n```\ngate\n"))
    before = dict(everything(place))
    output = place.agentfs("approve", "job", "--dry-run").stderr
    assert '"status" is now "approved" (it was "draft")' in output
    assert "it would then be running" in output
    assert "it would then be cancelled" in place.agentfs("cancel", "job", "--dry-run").stderr
    assert dict(everything(place)) == before
    place.agentfs("approve", "job")
    place.agentfs("run", "--resume", "job", code=3)
    before = dict(everything(place))
    for words in (["approve", "job"], ["reject", "job"], ["reply", "job", "a", "reject"], ["pause", "job"]):
        place.agentfs(*words, "--dry-run")
    assert dict(everything(place)) == before
    place.agentfs("pause", "job")
    before = dict(everything(place))
    assert '"status" is now "approved"' in place.agentfs("resume", "job", "--dry-run").stderr
    assert dict(everything(place)) == before


def test_a_plan_is_held_against_a_run_before_it_is_saved(place: Place, edited: str) -> None:
    value = place.read("plan.json")
    value["steps"][0]["input"]["command"] = "echo other"
    value["steps"].append({"id": "d", "tool": "note", "input": {"text": "d"}, "depends_on": []})
    (place.root / "next.json").write_text(json.dumps(value), encoding="utf-8")
    before = dict(everything(place))
    shown = place.agentfs("check", "--against", "job", "next.json").stdout
    assert shown.splitlines() == [
        f"next.json: ok as the plan of {edited}",
        "",
        "~ a  changed",
        "    input.command: echo a -> echo other",
        "",
        "+ d  added",
        "    after nothing",
        "    tool: note",
        "    input.text: d",
        "",
        "reruns 3 steps, keeps 0:",
        "  runs again:",
        "    a: the step, or one before it, has changed",
        "    b: waits for a",
        "    c: waits for a",
        "  still to run: d",
    ]
    plan = place.run_folder() / "plan.json"
    saved = plan.read_bytes()
    plan.write_text(json.dumps(value), encoding="utf-8")
    once_there = place.agentfs("check", "--against", "job", str(plan)).stdout
    assert once_there.splitlines()[1:] == shown.splitlines()[1:], "saved, but no revision yet: the same is shown"
    plan.write_bytes(saved)
    page = json.loads(place.agentfs("check", "--against", "job", "next.json", "--json").stdout)
    assert (page["run"], page["problems"], page["means"]) == (edited, [], "reruns 3 steps, keeps 0")
    assert [(one["step"], one["fate"]) for one in page["effects"]] == [
        ("a", "again"),
        ("b", "again"),
        ("c", "again"),
        ("d", "first"),
    ]
    (place.root / "next.json").write_text(json.dumps({**value, "status": "on"}), encoding="utf-8")
    assert place.agentfs("check", "--against", "job", "next.json", code=2).stdout.startswith("next.json:1:")
    page = json.loads(place.agentfs("check", "--against", "job", "next.json", "--json", code=2).stdout)
    assert [problem["pointer"] for problem in page["problems"]] == ["/status"]
    assert "gone.json: No such file" in place.agentfs("check", "--against", "job", "gone.json", code=2).stderr
    assert "takes one FILE" in place.agentfs("check", "--against", "job", "a.json", "b.json", code=2).stderr
    assert dict(everything(place)) == before

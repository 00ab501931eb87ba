"""The examples that need models, played by their scripts: what they print, what they leave, and what their READMEs claim."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces import DEADLINE, Place

EXAMPLES = Path(__file__).parents[2] / "examples"
GOAL = ("agentfs", "run", "goal.md")


def copied(example: str, tmp_path: Path) -> Place:
    """Return an example in a workspace of its own, where `agentfs` is the installed command."""
    place = Place(tmp_path)
    shutil.copytree(EXAMPLES / example, place.root, dirs_exist_ok=True)
    place.env["PATH"] = f"{Path(sys.executable).parent}:{place.env['PATH']}"
    for setting in ("AGENTFS_PROOF_ACCEPTANCE", "AGENTFS_EXECUTOR_REPAIR"):  # as a person runs it: with the defaults
        place.env.pop(setting)
    return place


def typed(place: Place, *command: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command, cwd=place.root, env=place.env, capture_output=True, text=True, timeout=DEADLINE * 2, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def played(place: Place, *command: str) -> str:
    """Run a command while the example's script plays the models, to its end; return what it printed."""
    done = typed(place, sys.executable, "-m", "agentfs.testing", "script.yaml", *command)
    assert done.returncode == 0, done.stderr
    assert "the script was played to its end: " in done.stderr, "every reply was asked for, and nothing beyond"
    return done.stdout


def ids(plan: Any) -> list[str]:
    return [step["id"] for step in plan["steps"]]


def triggers(place: Place, name: str) -> list[str]:
    calls = sorted(place.run_folder(name).glob("planning/[0-9].json"))
    return [place.read(f"planning/{path.name}", name)["trigger"] for path in calls]


def test_arithmetic_goes_step_by_step(tmp_path: Path) -> None:
    place = copied("arithmetic", tmp_path)
    assert played(place, "./run") == "Step 1: multiply = 48\nStep 2: add = 53\nFinal answer: 53\n"
    assert triggers(place, "arithmetic") == ["first", "next_step", "next_step"]
    assert place.read("planning/2.json", "arithmetic")["evidence"] == ["steps/multiply.1.result.json"]
    assert place.read("steps/add.1.json", "arithmetic")["input"] == {"a": 48, "b": 5}
    assert place.log() == [
        "agentfs planner arithmetic: revision 1, the first plan",
        "agentfs planner arithmetic: revision 2, the next step",
        "agentfs arithmetic: done, 2 of 2 steps",
    ]
    assert place.tree("arithmetic") == [
        "STATUS.md",
        "goal.md",
        "outcome.json",
        "plan.json",
        *sorted(
            [
                *(f"planning/{n}.{kind}" for n in (1, 2, 3) for kind in ("json", "log.jsonl", "result.json")),
                *(f"planning/{n}.plan.1.json" for n in (1, 2)),
                *(f"planning/{name}" for name in ("4.checks.json", "4.checks.log.jsonl", "context.md")),
            ]
        ),
        *(f"revisions/{n}.{kind}" for n in (1, 2) for kind in ("json", "plan.json")),
        "run.json",
        *(f"steps/{step}.1.{kind}" for step in ("add", "multiply") for kind in ("json", "log.jsonl", "result.json")),
    ]
    place.ledger_is_sound()


def unit_tests(place: Place) -> str:
    command = (sys.executable, "-m", "unittest", "discover", "-s", "tests")
    return subprocess.run(
        command, cwd=place.root / "shop", capture_output=True, text=True, timeout=DEADLINE, check=False
    ).stderr


def test_the_bug_is_fixed_in_three_files_and_its_tests_decide(tmp_path: Path) -> None:
    place = copied("bug-fix", tmp_path)
    assert "FAILED (failures=5)" in unit_tests(place)
    words = "Amounts are whole cents in money.py, cart.py and invoice.py; every test passes.\n"
    assert played(place, *GOAL) == words
    passing = unit_tests(place)
    assert ("Ran 7 tests" in passing, passing.endswith("\nOK\n")) == (True, True), passing

    kept = {path.name: path.read_bytes() for path in (EXAMPLES / "bug-fix/shop").rglob("*.py")}
    now = {path.name: path.read_bytes() for path in (place.root / "shop").rglob("*.py")}
    assert sorted(name for name in kept if kept[name] != now[name]) == ["cart.py", "invoice.py", "money.py"]
    claim = place.read("steps/cart.1.result.json", "bug-fix")
    assert (claim["status"], claim["output"], claim["error"]["kind"]) == ("failed", "total is rounded", "check")
    assert "94 != 95" in claim["error"]["message"]
    assert place.read("steps/cart.2.result.json", "bug-fix")["status"] == "done"
    log = (place.run_folder("bug-fix") / "steps/cart.2.log.jsonl").read_text()
    assert ("94 != 95" in log, "money.py counts in cents" in log) == (True, False)
    checks = place.read("planning/2.checks.json", "bug-fix")["checks"]
    assert [(check["kind"], check["ok"]) for check in checks] == [("command", True), ("command", True)]
    assert place.log() == [
        "agentfs planner bug-fix: revision 1, the first plan",
        "agentfs bug-fix: done, 4 of 4 steps",
    ]


def test_the_report_joins_what_was_searched_at_once(tmp_path: Path) -> None:
    place = copied("renewable-report", tmp_path)
    assert json.loads(played(place, "./run"))["path"] == "report.md"
    report = (place.root / "report.md").read_text(encoding="utf-8")
    assert [line for line in report.splitlines() if line.startswith("#")] == [
        "# Where renewable energy stands",
        "## Solar",
        "## Wind",
        "## Storage",
    ]
    run = "renewable-report"
    topics = {"solar": "roofs", "wind": "ports", "storage": "pumped"}
    assert [place.read(f"steps/search-{topic}.1.json", run)["after"] for topic in topics] == [{}, {}, {}]
    pages = {topic: place.read(f"steps/search-{topic}.1.result.json", run)["output"] for topic in topics}
    for topic, word in topics.items():
        summary = place.read(f"steps/{topic}.1.result.json", run)["output"]
        assert (summary in report, word in summary) == (True, True)
        assert [one["url"].partition("://")[2] in summary for one in pages[topic] if topic in one["url"]] == [
            True,
            True,
        ]
        logs = (place.run_folder(run) / f"steps/{topic}.1.log.jsonl").read_text(encoding="utf-8")
        assert [other for other in topics.values() if other in logs] == [word], "a summary sees its own pages"
    assert place.read("outcome.json", run)["usage"]["executor"]["requests"] == 3
    assert place.log() == [
        "agentfs planner renewable-report: revision 1, the first plan",
        "agentfs renewable-report: done, 7 of 7 steps",
    ]


def test_the_report_asks_ones_own_engine_where_there_is_one(tmp_path: Path) -> None:
    place = copied("renewable-report", tmp_path)
    place.env["AGENTFS_TOOLS_WEB_SEARCH_URL"] = "http://127.0.0.1:9"
    done = typed(place, sys.executable, "-m", "agentfs.testing", "script.yaml", "./run")
    assert done.returncode != 0
    assert place.read("steps/search-wind.1.result.json", "renewable-report")["error"]["kind"] == "http"
    assert "engine.py plays one" not in done.stderr


def exports(folder: Path) -> str:
    """Return how many files exports of whole pages make, or how they fail."""
    code = "from export import export; print([export([{'id': '1'}] * n, lambda *_: None) for n in (500, 1000, 2500)])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    return done.stdout or done.stderr.splitlines()[-1]


def test_the_audit_gathers_what_the_logs_lack(tmp_path: Path) -> None:
    place, run = copied("support-audit", tmp_path), "support-audit"
    words = "Root cause: one page too many where rows fill their pages exactly. See report.md and fix.patch.\n"
    assert played(place, *GOAL) == words
    assert ids(place.read("revisions/1.plan.json", run)) == ["collect", "inspect", "cause", "patch"]
    assert ids(place.read("revisions/2.plan.json", run)) == ["collect", "gather", "inspect", "cause", "patch"]
    revision = place.read("revisions/2.json", run)
    assert (revision["by"]["role"], revision["trigger"], revision["step"], revision["evidence"]) == (
        *("planner", "unexpected_state", "collect"),
        ["steps/collect.1.result.json"],
    )
    collected = place.read("steps/collect.1.result.json", run)
    assert (collected["status"], collected["surprising"], "IndexError" in collected["output"]) == (
        "done",
        True,
        False,
    )
    assert "job 7731: IndexError" in place.read("steps/gather.1.result.json", run)["output"]
    assert "job 7731: IndexError" in place.read("steps/inspect.1.json", run)["input"]["worker"]
    assert sorted(path.name for path in place.run_folder(run).glob("steps/*.2.*")) == [], "nothing was done twice"
    assert place.log() == [
        "agentfs planner support-audit: revision 1, the first plan",
        "agentfs planner support-audit: revision 2, after collect surprised",
        "agentfs support-audit: done, 5 of 5 steps",
    ]


def test_the_patch_of_the_audit_fixes_what_it_says(tmp_path: Path) -> None:
    place = copied("support-audit", tmp_path)
    played(place, *GOAL)
    assert "## Root cause" in (place.root / "report.md").read_text(encoding="utf-8")
    app = place.root / "app"
    assert (app / "export.py").read_bytes() == (EXAMPLES / "support-audit/app/export.py").read_bytes()
    assert exports(app) == "IndexError: list index out of range"
    assert typed(place, "git", "apply", "fix.patch").returncode == 0
    assert exports(app) == "[1, 2, 5]\n"


@pytest.mark.parametrize("example", ["arithmetic", "renewable-report", "support-audit", "bug-fix"])
def test_an_example_has_no_settings_and_nothing_made(example: str) -> None:
    kept = {path.name for path in (EXAMPLES / example).iterdir()}
    assert {"goal.md", "README.md", "script.yaml"} <= kept
    assert kept.isdisjoint({"agentfs.toml", "runs", "goals", "schemas"})


# ── the player ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("- says: hello\n", 1, "1 of the script were never asked for"),
        ("hello: 1\n", 2, "a script is a list of replies"),
        ("- sings: hello\n", 2, "reply 1 is none: there is no field 'sings': it may hold to, when and one of plan"),
        ("- to: planner\n", 2, "reply 1 is none: it must hold one of plan, calls, says"),
        ("- hello\n", 2, "reply 1 is none"),
        ("- {says: [}\n", 2, "script.yaml:1:"),
    ],
)
def test_a_script_that_is_none_or_is_not_used_up(tmp_path: Path, script: str, code: int, words: str) -> None:
    place = Place(tmp_path)
    (place.root / "script.yaml").write_text(script)
    done = typed(place, sys.executable, "-m", "agentfs.testing", "script.yaml", "true")
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_more_was_asked_than_the_script_holds(tmp_path: Path) -> None:
    place = copied("arithmetic", tmp_path)
    (place.root / "script.yaml").write_text("[]")
    done = typed(place, sys.executable, "-m", "agentfs.testing", "script.yaml", *GOAL)
    assert done.returncode == 4, done.stderr
    assert "the script has no answer to this request" in done.stderr


def test_control_c_is_for_the_command_and_shows_no_traceback(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "script.yaml").write_text("[]")
    place.agentfs("init")
    words = [sys.executable, "-m", "agentfs.testing", "script.yaml", sys.executable, "-m", "agentfs", "watch"]
    process = subprocess.Popen(
        words, cwd=place.root, env=place.env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        assert process.stderr is not None
        first = process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output = first + process.stderr.read()
        assert process.wait(timeout=DEADLINE) == 130
    assert output.splitlines()[-1] == "stopped; `agentfs watch` goes on from here"
    assert "Traceback" not in output


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "script.yaml").write_text("[]")
    done = typed(place, sys.executable, "-m", "agentfs.testing", "script.yaml", "./nothing")
    assert (done.returncode, done.stderr) == (
        2,
        "agentfs.testing: ./nothing cannot be run: No such file or directory\n",
    )
    assert typed(place, sys.executable, "-m", "agentfs.testing").returncode == 2


def test_the_demo_takes_every_example_there_is() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    there = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert [name for name in there if f"[{name}]({name}/README.md)" not in listed] == []
    assert [
        name
        for name in there
        if (EXAMPLES / name / "run").exists() and not os.access(EXAMPLES / name / "run", os.X_OK)
    ] == []

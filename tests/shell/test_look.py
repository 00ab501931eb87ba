"""status, show, log and tools over real workspaces: they read, they never write, and every mistake gets words."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentfs.commands import main
from agentfs.storage.locks import is_driven, locked

GOAL = """\
# Count words

## Steps

### make
Write a file.
```sh
echo one two three > words.txt
```

### count
```sh
wc -w < words.txt
```
"""
FAILING = """\
# Two ways

## Steps

### try
```sh
printf 'no \\033[31mroom\\033[0m [bold]here[/bold]\\n' >&2; exit 4
```
retries: 1

### tell
```note
It went well.
```
"""
GATED = """\
# Ask first

## Steps

### send
gate
```note
sent
```
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    root = tmp_path / "work"
    root.mkdir()
    monkeypatch.chdir(root)
    assert main(["init"]) == 0
    return root


def run(name: str, text: str) -> Path:
    Path(f"{name}.md").write_text(text, encoding="utf-8")
    main(["run", f"{name}.md"])
    return next(Path("runs").glob(f"*/{name}")).resolve()


def output(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(command)) == code
    return capsys.readouterr().out


def output_json(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> Any:
    return json.loads(output(capsys, *command, "--json", code=code))


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main(list(command)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_an_empty_workspace_says_how_to_begin(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "status") == f"no runs yet in {workspace}\nstart one: agentfs run GOAL\n"
    assert output_json(capsys, "status") == []


def test_status_lists_runs_in_eighty_columns_of_a_terminal_and_whole_elsewhere(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("count", GOAL)
    failed = run("two-ways", FAILING)
    assert output(capsys, "status").splitlines()[1].endswith("[bold]here[/bold]; 0 of 2 steps done, 1 failed")
    monkeypatch.setattr("agentfs.commands.status.width", lambda: 80)
    lines = output(capsys, "status").splitlines()
    assert lines[0].split() == ["RUN", "STATE", "STEPS", "WHEN", "WHY"]
    assert [line.split()[1:3] for line in lines[1:]] == [["failed", "0/2"], ["done", "2/2"]]
    assert max(map(len, lines)) <= 80
    day = failed.parent.name
    found = output_json(capsys, "status")
    assert [set(one) for one in found] == [{"run", "state", "steps", "why", "outcome", "at", "driven", "ways"}] * 2
    assert found[1]["run"] == f"{day}/count"
    assert found[1]["steps"] == {"done": 2, "failed": 0, "skipped": 0, "total": 2}
    assert found[0]["outcome"] == json.loads((failed / "outcome.json").read_bytes())


def test_status_of_ended_runs_imports_nothing_heavy(workspace: Path) -> None:
    run("count", GOAL)
    code = (
        "import sys; from agentfs.commands import main; main(['status'])\n"
        "print(sorted({'pydantic', 'rich', 'jsonschema', 'git', 'gitdb', 'watchdog', 'yaml'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert printed.stdout.splitlines()[-1] == "[]"


def test_only_the_newest_ended_runs_are_listed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = run("count", GOAL)
    for number in range(2, 25):
        copy = kept.parent / f"count-{number}"
        copy.mkdir()
        for name in ("run.json", "outcome.json", "plan.json"):
            (copy / name).write_bytes((kept / name).read_bytes())
    lines = output(capsys, "status").splitlines()
    assert len(lines) == 22
    assert lines[-1] == "… and 4 older runs that ended (agentfs status --all)"
    assert len(output(capsys, "status", "--all").splitlines()) == 25


def test_a_waiting_run_says_what_to_do(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("ask", GATED)
    one = output_json(capsys, "status", "ask")
    assert {key: one[key] for key in ("state", "steps", "outcome", "driven")} == {
        "state": "waiting",
        "steps": {"done": 0, "failed": 0, "skipped": 0, "total": 1},
        "outcome": None,
        "driven": False,
    }
    assert one["by_step"] == [
        {"id": "send", "state": "gated", "why": "needs approval", "attempt": 0, "left_in": None}
    ]
    assert output(capsys, "status", "ask").splitlines()[2:] == [
        f"  read {folder}/steps/send.1.question.md",
        f"  answer in {folder}/steps/send.1.reply.md: approve or reject, on its first line",
        f"  or type: agentfs approve {folder.parent.name}/ask",
        f"nothing drives it; go on with: agentfs resume {folder.parent.name}/ask",
    ]


def test_a_driven_run_is_known_by_its_lock_which_is_left_alone(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run("ask", GATED)
    assert not is_driven(folder)
    with locked(folder) as mine:
        assert mine
        assert is_driven(folder)
        assert output_json(capsys, "status")[0]["driven"] is True
        assert output(capsys, "status", "ask").splitlines()[-1] == "it is being driven now"
    assert not is_driven(folder)


def test_a_draft_is_a_draft(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("later.md").write_text(GOAL, encoding="utf-8")
    main(["plan", "later.md"])
    assert output_json(capsys, "status")[0]["state"] == "draft"
    assert 'set "status" to "approved"' in output(capsys, "status", "later")


def test_looking_writes_nothing_and_needs_no_trust(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("count", GOAL)
    run("ask", GATED)
    (workspace / "tools").mkdir()
    (workspace / "tools" / "mine.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))
    before = {path: path.lstat().st_mtime_ns for path in workspace.rglob("*")}
    for command in (
        ["status"],
        ["status", "ask"],
        ["show", "count"],
        ["show", "ask", "send"],
        ["log", "ask"],
        ["tools"],
    ):
        output(capsys, *command)
        output_json(capsys, *command)
    assert {path: path.lstat().st_mtime_ns for path in workspace.rglob("*")} == before


def test_show_tells_the_plan_with_outputs(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("count", GOAL)
    lines = output(capsys, "show", "count").splitlines()
    assert lines[0] == f"{folder.parent.name}/count: done, 2 of 2 steps (claimed, not checked)"
    assert lines[-3:] == [lines[-3], "    shell   wc -w < words.txt", "    output  3"]
    page = output_json(capsys, "show", "count")
    plan = json.loads((folder / "plan.json").read_bytes())
    result = json.loads((folder / "steps/count.1.result.json").read_bytes())
    assert page["steps"][1] == {
        **plan["steps"][1],
        "state": "done",
        "because": "attempt 1 succeeded",
        "attempt": 1,
        "output": "3",
        "result": result,
    }
    assert {key: page[key] for key in ("goal", "status", "state", "broken")} == {
        "goal": "Count words",
        "status": "approved",
        "state": "done",
        "broken": [],
    }


def test_show_a_step_tells_every_attempt_inert(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("two-ways", FAILING)
    shown = output(capsys, "show", "two-ways", "try")
    assert "\x1b" not in shown
    assert "  error (exit): exit code 4: no room [bold]here[/bold]" in shown.splitlines()
    assert [line for line in shown.splitlines() if line.startswith("attempt")] == ["attempt 1", "attempt 2"]
    assert f"    {folder}/steps/try.2.result.json" in shown.splitlines()
    page = output_json(capsys, "show", "two-ways", "try")
    assert [one["attempt"] for one in page["attempts"]] == [1, 2]
    assert page["attempts"][0]["order"] == json.loads((folder / "steps/try.1.json").read_bytes())


def test_log_gives_git_commands_that_work(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("ask", GATED)
    plan = json.loads((folder / "plan.json").read_bytes())
    plan["steps"][0]["input"]["text"] = "sent twice"
    (folder / "plan.json").write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
    main(["run", "--resume", "ask"])
    text = output(capsys, "log", "ask")
    entries = output_json(capsys, "log", "ask")["entries"]
    assert [(e["kind"], e["revision"], e["by"]["role"], e["trigger"]) for e in entries] == [
        ("revision", 1, "runbook", "first"),
        ("revision", 2, "person", "edited"),
    ]
    first, second = (entry["commit"][:12] for entry in entries)
    path = f"{folder.parent.name}/ask/plan.json"
    assert f"git -C runs diff {first} {second} -- {path}" in text
    commands = [line[line.index("git -C") :] for line in text.splitlines() if "git -C" in line]
    assert len(commands) == 5
    for command in commands:
        printed = subprocess.run(command.split(), check=True, capture_output=True, text=True)
        assert printed.stdout != ""


def test_log_says_where_a_commit_is_still_owed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ask", GATED)
    (workspace / "runs/.git/refs/heads/main").unlink()
    text = output(capsys, "log", "ask")
    assert "  commit    none yet: it follows when the run is driven" in text.splitlines()
    assert output_json(capsys, "log", "ask")["entries"][0]["commit"] is None


def test_log_tells_the_outcome(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("count", GOAL)
    last = output_json(capsys, "log", "count")["entries"][-1]
    assert (last["kind"], last["status"], last["detail"]) == ("outcome", "done", "done, 2 of 2 steps")


def test_tools_say_what_they_take_and_whether_they_may(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "agentfs.toml").write_text('[tools]\nallow = ["note"]\n', encoding="utf-8")
    text = output(capsys, "tools")
    assert "shell: Run shell text in the working folder; the first command that fails ends it" in text
    assert "command*" in text
    found = {tool["name"]: tool for tool in output_json(capsys, "tools")}
    assert (found["note"]["allowed"], found["note"]["why"]) == (True, None)
    assert (
        found["shell"]["why"]
        == "the tool 'shell' is not allowed in this run (add shell to allow under [tools] in agentfs.toml)"
    )
    assert found["note"]["input_schema"]["required"] == ["text"]


def test_mistakes_are_reported_in_a_line(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("count", GOAL)
    runs = workspace / "runs"
    assert refused(capsys, "show", "conut") == f"agentfs: there is no run 'conut' in {runs} (did you mean 'count'?)\n"
    assert refused(capsys, "show", "count", "cuont") == (
        f"agentfs: {folder.parent.name}/count has no step 'cuont' (did you mean 'count'?)\n"
    )
    assert refused(capsys, "-C", "/", "status").startswith("agentfs: no workspace at or above /")
    assert "there is no such folder" in refused(capsys, "-C", "/nowhere", "status")


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["stats"])
    assert left.value.code == 2
    assert capsys.readouterr().err == (
        "agentfs: there is no command 'stats', did you mean 'status'? (try `agentfs --help`)\n"
    )


@pytest.mark.parametrize(
    ("broken", "content"),
    [
        ("run.json", "{"),
        ("revisions/1.json", "[]"),
        ("outcome.json", "{}"),
        ("steps/make.1.result.json", "nonsense"),
        ("plan.json", "{\n"),
    ],
)
def test_a_broken_file_is_named_and_the_rest_is_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str], broken: str, content: str
) -> None:
    folder = run("count", GOAL)
    run("other", GOAL)
    (folder / broken).write_text(content, encoding="utf-8")
    assert len(output(capsys, "status").splitlines()) == 3
    capsys.readouterr()
    code = main(["show", "count"])
    printed = capsys.readouterr()
    assert (code, Path(broken).name in printed.err) == (2, True)
    assert "count" in printed.out
    assert "Traceback" not in printed.err


def test_a_missing_goal_file_does_not_hide_the_steps(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("ask", GATED)
    (folder / "goal.md").unlink()
    assert output_json(capsys, "status")[0]["why"] == "there is no goal file"
    capsys.readouterr()
    assert main(["show", "ask"]) == 2
    printed = capsys.readouterr()
    assert "send" in printed.out
    assert "there is no goal file" in printed.err

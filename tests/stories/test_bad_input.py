"""Every mistake gets a clear word, the right exit code, and loses nothing."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces import Place, end, path_without, wait_for


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("### a\n```shell-ish\nx\n```\n", "job.md:6:4: "),
        ("### a\n```sh\nx\n```\nafter: b\n", "job.md:9:8: "),
        ("### a\n```sh\nx\n```\n### a\n```sh\ny\n```\n", "job.md:9:5: "),
        ("### a\n```sh\necho '{{steps.b.output}}'\n```\n### b\n```sh\ny\n```\n", "job.md:7:"),
        ("### a\n```sh\nx\n```\nretries: many\n", "job.md:9:"),
        ("### A step\n```sh\nx\n```\n", "job.md:5:5: "),
        ("### a\n```sh\nx\n```\ncheck `false`\n", "job.md:9:1: "),
        ("### a\n```sh\nx\n```\n> **Check** - `false`\n", "job.md:9:5: "),
        ("###a\n```sh\nx\n```\n", "job.md:5:1: "),
        ("### a\n```sh\nx\n\n### b\n```sh\ny\n```\n", "job.md:6:4: "),
        ("", "job.md:3:"),
    ],
)
def test_a_bad_runbook_is_refused_with_its_line(place: Place, steps: str, message: str) -> None:
    refused = place.agentfs("run", place.runbook(steps), code=2)
    assert message in refused.stderr
    assert "(" in refused.stderr
    assert not list(place.runs.glob("????-*"))
    code, output, _ = place.looks("check", "job.md")
    assert (code, message in output) == (2, True)


def test_a_goal_without_steps_or_model_is_reported_with_both_ways_out(place: Place) -> None:
    refused = place.agentfs("run", "Tidy the invoices", code=4)
    assert "OPENAI_API_KEY" in refused.stderr
    assert "## Steps" in refused.stderr
    assert not list(place.runs.glob("????-*"))


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ("limits:\n  attempts: 99", "job.md:3:3: limits.attempts: 99 is more than 2"),
        ("tools: [shell, launch]", "'launch'"),
        ("workdir: ../elsewhere", "job.md:2:1: workdir: '../elsewhere' lies outside"),
        ("workdir: nowhere", "there is no folder 'nowhere'"),
        ("colour: blue", "colour"),
        ("mode: quickly", "quickly"),
    ],
)
def test_front_matter_may_only_tighten(place: Place, front: str, words: str) -> None:
    refused = place.agentfs("run", place.runbook("### a\n```sh\necho\n```\n", front), code=2)
    assert words in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "missing.md"), "missing.md: No such file or directory"),
        (("run", "."), ". is a folder, not a goal file"),
        (("run",), "run takes a GOAL, or --resume RUN"),
        (("run", "x.md", "--resume", "y"), "run takes a GOAL, or --resume RUN"),
        (("run", "--resume", "nothing"), "no workspace at or above"),
        (("-C", "/nowhere", "status"), "there is no such folder"),
        (("run", "misspelt/a.md"), "agentfs: misspelt/a.md: No such file or directory\n"),
        (("run", "aa.md"), "aa.md: No such file or directory (did you mean 'a.md'?)\n"),
        (("run", "a"), "there is no file a (did you mean 'a.md'?)\n"),
        (("dance",), "there is no command 'dance'"),
        (
            ("run", "count", "the", "rows"),
            "arguments: the rows; put a goal in words between quotes (try `agentfs run",
        ),
        (("--json", "status"), "--json goes after the command: agentfs status --json (try `agentfs status --help`)"),
        (("status", "--jsn"), "arguments: --jsn, did you mean '--json'? (try `agentfs status --help`)"),
        (("status", "a", "b"), "unrecognized arguments: b (try `agentfs status --help`)"),
        (("--jsn",), "unrecognized arguments: --jsn (try `agentfs --help`)"),
        (("run", "a.md", "--workdir", "nowhere"), "there is no such folder"),
        (("trust", "."), "is not a workspace (no agentfs.toml)"),
    ],
)
def test_mistakes_on_the_command_line(place: Place, words: tuple[str, ...], message: str) -> None:
    place.runbook("### a\n```sh\necho\n```\n", name="a.md")
    assert message in place.agentfs(*words, code=2).stderr


def test_bad_settings_name_their_line(place: Place) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('mode = "auto"\n[limits]\nparalel = 3\nattempts = "two"\n')
    refused = place.agentfs("run", place.runbook("### a\n```sh\necho\n```\n"), code=2)
    assert "agentfs.toml:3:1: " in refused.stderr
    assert "parallel" in refused.stderr
    assert "agentfs.toml:4:" in refused.stderr
    assert "agentfs.toml:3:1: " in place.agentfs("check", "agentfs.toml", code=2).stdout


def test_settings_from_the_environment(place: Place) -> None:
    name = place.runbook("### a\n```sh\nexit 1\n```\n")
    place.agentfs("run", name, code=1, env={"AGENTFS_LIMITS_ATTEMPTS": "1"})
    assert "steps/a.2.json" not in place.tree()
    refused = place.agentfs("run", name, code=2, env={"AGENTFS_LIMITS_ATEMPTS": "1"})
    assert "did you mean 'AGENTFS_LIMITS_ATTEMPTS'" in refused.stderr


def _one_step(place: Place, command: str, *lines: str, code: int = 1) -> dict[str, Any]:
    """Run one shell step that must fail, and return its first result."""
    place.agentfs("run", place.runbook(f"### a\n```sh\n{command}\n```\n" + "\n".join(lines)), code=code)
    result = place.read("steps/a.1.result.json")
    assert isinstance(result, dict)
    return result


def test_a_tool_that_hangs_is_ended_with_its_children(place: Place) -> None:
    result = _one_step(place, "sleep 1000 & sleep 1000", "timeout: 1s", "retries: 0")
    assert result["error"] == {
        "kind": "timeout",
        "message": "it did not end within 1 s and was killed",
        "hint": 'give it more time: the line `timeout: 2s` in the runbook, or "timeout_s": 2 in plan.json',
    }


def test_a_tool_that_prints_far_too_much_is_ended(place: Place) -> None:
    result = _one_step(place, "cat /dev/zero", "retries: 0")
    assert result["error"]["kind"] == "output"
    assert "256 MiB" in result["error"]["message"]


def test_a_tool_that_leaves_children_behind_does_not_hang_the_run(place: Place) -> None:
    done = place.agentfs("run", place.runbook("### a\n```sh\nsleep 1000 & echo started\n```\n"))
    assert done.stdout == "started\n"


def test_a_tool_that_ends_by_a_signal(place: Place) -> None:
    result = _one_step(place, "kill -9 $$", "retries: 0")
    assert "SIGKILL" in result["error"]["message"]


def test_a_tool_that_writes_invalid_utf8(place: Place) -> None:
    done = place.agentfs("run", place.runbook("### a\n```sh\nprintf 'caf\\351'\n```\n"))
    assert done.stdout.startswith("caf\ufffd")
    assert (place.run_folder() / "steps" / "a.1.output.txt").read_bytes() == b"caf\xe9"


def test_a_secret_reaches_no_tool_and_no_file(place: Place) -> None:
    secret = "hunter2-very-long"
    steps = "### a\n```sh\nenv; echo " + secret + "\n```\n"
    done = place.agentfs("run", place.runbook(steps), env={"SHOP_API_TOKEN": secret})
    assert secret not in done.stdout
    written = [path for path in place.run_folder().rglob("*") if path.is_file() and path.parent.name == "steps"]
    assert [path.name for path in written if secret in path.read_text() and not path.name.endswith(".1.json")] == []


def test_without_bubblewrap_a_person_is_warned(place: Place, tmp_path: Path) -> None:
    bare = path_without(tmp_path, "bwrap")
    done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"), env={"PATH": bare})
    assert done.stdout == "hi\n"
    assert "WARNING: no sandbox" in done.stderr
    assert place.read("steps/a.1.result.json")["sandbox"] == "none"
    refused = place.agentfs("run", "job.md", code=2, env={"PATH": bare, "AGENTFS_TOOLS_SANDBOX": "require"})
    assert len(list(place.runs.glob("????-*/*"))) == 1
    assert 'sandbox = "require"' in refused.stderr


def test_without_git_runs_go_on_and_the_ledger_follows_once_it_is_there(place: Place, tmp_path: Path) -> None:
    bare = path_without(tmp_path, "git")
    done = place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"), env={"PATH": bare})
    assert done.stdout == "hi\n"
    assert "revisions are not committed: git is not installed" in done.stderr
    place.agentfs("run", "--resume", "job")
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 1 of 1 steps"]


# ── the ledger in a bad state ─────────────────────────────────────────────────────────────────────────────

BOOK = "### a\n```sh\necho hi\n```\n"


def test_runs_that_is_no_repository_becomes_one(place: Place) -> None:
    place.agentfs("init")
    subprocess.run(["rm", "-rf", str(place.runs / ".git")], check=True)  # and with it what the workspace is known by
    assert f"agentfs trust {place.root}" in place.agentfs("run", place.runbook(BOOK), code=2).stderr
    place.agentfs("trust", str(place.root))
    place.agentfs("run", place.runbook(BOOK))
    assert len(place.log()) == 2


def test_a_bare_repository_is_refused_in_words(place: Place) -> None:
    place.agentfs("init")
    place.git("config", "core.bare", "true")
    refused = place.agentfs("run", place.runbook(BOOK), code=2)
    assert ".git is marked as bare: run `git -C " in refused.stderr
    assert not list(place.runs.glob("????-*/*/plan.json"))


def test_a_rebase_under_way_is_left_alone(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    (place.runs / ".git" / "rebase-merge").mkdir()
    place.agentfs("run", "job.md")
    assert len(place.log()) == 4
    (place.runs / ".git" / "rebase-merge").rmdir()
    place.git("fsck", "--strict")
    place.agentfs("run", "--resume", "job")
    place.agentfs("run", "--resume", "job-2")
    place.ledger_is_sound()


def test_an_index_lock_held_by_a_person_delays_the_index_and_nothing_else(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    lock = place.runs / ".git" / "index.lock"
    lock.write_text("")
    done = place.agentfs("run", "job.md")
    assert done.stdout == "hi\n"
    assert len(place.log()) == 4
    assert lock.exists()
    lock.unlink()
    place.agentfs("run", "--resume", "job-2")
    place.ledger_is_sound()


def test_a_branch_lock_held_by_a_person_delays_the_commit_and_nothing_else(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    lock = place.runs / ".git" / "refs" / "heads" / "main.lock"
    lock.write_text("")
    process = place.begin("run", "job.md")
    wait_for(lambda: any(place.runs.glob("*/job-2/outcome.json")), "the run to end")
    assert len(place.log()) == 2
    lock.unlink()
    assert end(process, signal.SIGCONT)[0] == 0
    assert len(place.log()) == 4
    place.ledger_is_sound()


def test_a_branch_moved_by_a_person_is_built_upon(place: Place) -> None:
    place.agentfs("run", place.runbook(BOOK))
    place.git("-c", "user.name=P", "-c", "user.email=p@x", "commit", "--allow-empty", "-m", "mine")
    place.agentfs("run", "job.md")
    assert place.log()[2] == "P mine"
    assert len(place.log()) == 5
    place.ledger_is_sound()


# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_workspace_that_cannot_be_written(place: Place) -> None:
    blocked = place.root / "file"
    blocked.write_text("")
    assert "cannot make a workspace" in place.agentfs("init", "file/inside", code=2).stderr


def test_an_untrusted_workspace_runs_nothing(place: Place) -> None:
    place.agentfs("init")
    stranger = {"HOME": str(place.root), "XDG_STATE_HOME": str(place.root / "state")}
    refused = place.agentfs("run", place.runbook(BOOK), code=2, env=stranger)
    assert f"agentfs trust {place.root}" in refused.stderr
    place.agentfs("trust", ".", env=stranger)
    assert place.agentfs("run", "job.md", env=stranger).stdout == "hi\n"


def test_check_tells_everything_at_once(place: Place) -> None:
    plan = {"status": "aproved", "steps": [{"id": "a", "tool": "shel"}, {"id": "a", "depends_on": ["b"], "x": 1}]}
    (place.root / "plan.json").write_text(json.dumps(plan, indent=2))
    found = place.agentfs("check", "plan.json", code=2).stdout.splitlines()
    assert len(found) == 3
    assert all(line.startswith("plan.json:") for line in found)
    problems = json.loads(place.agentfs("check", "--json", "plan.json", code=2).stdout)
    assert {"file", "line", "column", "pointer", "message", "fix"} == problems[0].keys()

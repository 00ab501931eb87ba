"""`agentfs doctor`: what is wrong, where, and how to fix it; it changes nothing and runs nothing that lies around."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agentfs.doctor.machine import other_distributions
from agentfs.executor.attempt_log import marks_in
from agentfs.tools.process import find_survivors, mark_of
from tests.webs import Web, web
from tests.workspaces import Place, end, path_without, wait_for

pytestmark = pytest.mark.disk
TRAP = "import pathlib\npathlib.Path({!r}).touch()\nfrom agentfs.tools.user_tools import tool\n"


OWN = str(Path(sys.executable).parent)  # first on PATH: another agentfs may be installed on this machine


@pytest.fixture(autouse=True)
def own_program_first(place: Place) -> None:
    place.env["PATH"] = f"{OWN}:{place.env['PATH']}"


@pytest.fixture
def made(place: Place) -> Place:
    place.agentfs("init")
    return place


def found(place: Place, code: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Run it; return what is not fine."""
    page = json.loads(place.agentfs("doctor", "--json", code=code, **more).stdout)
    assert page["well"] is (code == 0)
    assert all(one["fix"] for one in page["findings"] if one["grade"] == "wrong")
    return [one for one in page["findings"] if one["grade"] != "fine" and "no model: " not in one["what"]]


def grades(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["about"], one["grade"]) for one in findings]


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Everything below a folder: what it is, when it changed, what it holds."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns if path.name not in ("runs", "goals") else 0,  # where the trial folder was
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def test_a_good_workspace_is_well_and_nothing_is_left_behind(made: Place) -> None:
    made.agentfs("run", made.runbook("### a\n```sh\necho x\n```\n"))
    before = snapshot(made.root)
    done = made.agentfs("doctor")
    assert done.stdout.splitlines()[-1] == "all is well, 2 notes"  # no planner, no executor
    assert "events arrive" in done.stdout
    assert "git fsck finds no damage" in done.stdout
    assert done.stderr == ""
    assert snapshot(made.root) == before


def test_outside_any_workspace_the_machine_is_looked_at(place: Place) -> None:
    done = place.agentfs("doctor")
    assert "only the machine was looked at" in done.stderr
    assert "ledger" not in done.stdout
    assert os.listdir(place.root) == []


def test_nothing_that_was_planted_runs_and_no_endpoint_of_a_strangers_gets_a_key(place: Place) -> None:
    sprung = place.root.parent / "sprung"
    place.agentfs("init", env={"XDG_STATE_HOME": str(place.root.parent / "another-user")})
    (place.root / "tools").mkdir()
    (place.root / "tools" / "evil.py").write_text(TRAP.format(str(sprung)))
    trap = place.root.parent / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    hooks = place.runs / ".git" / "hooks"
    hooks.mkdir()
    for key in (
        "core.fsmonitor",
        "core.pager",
        "gpg.program",
        "core.sshCommand",
        "gc.recentObjectsHook",
        "alias.fsck",
    ):
        place.git("config", key, str(trap) if key != "alias.fsck" else f"!{trap}")
    with web(models=lambda page: page.answer(b"{}")) as server:
        (place.root / "agentfs.toml").write_text(
            f'[planner]\nbase_url = "{server.url}"\n[executor]\nkind = "command"\ncommand = ["{trap}"]\n'
        )
        findings = found(place, env={"OPENAI_API_KEY": "sk-secret"})
        assert server.asked == []
        assert grades(findings) == [("trust", "remark"), ("[planner]", "remark")]
        place.agentfs("trust", ".")
        assert grades(found(place, env={"OPENAI_API_KEY": "sk-secret"})) == [("[planner]", "remark")]
        assert server.asked == ["/models"]
    assert not sprung.exists()


def answers(body: str, status: int = 200) -> dict[str, Any]:
    return {"models": lambda page: page.answer(body.encode(), status=status, kind="application/json")}


HAS_BOTH = '{"data": [{"id": "gpt-5"}, {"id": "gpt-5-mini"}]}'


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        (HAS_BOTH, 200, 0, None),
        ('{"data": [{"id": "llama"}]}', 200, 0, "does not list gpt-5; it has llama"),
        ('{"error": "x"}', 404, 0, "lists no models (404)"),
        ('{"error": {"message": "bad key sk-secret-1"}}', 401, 2, "refuses the key in OPENAI_API_KEY (401 bad key [secr"),
        ('{"error": "overloaded"}', 503, 2, "is not able to answer (503 overloaded)"),
        ("<!doctype html><p>hello", 200, 2, "answers with a web page"),
    ],
)  # fmt: skip
def test_endpoints_are_asked_for_their_models_and_for_nothing_else(
    made: Place, body: str, status: int, code: int, words: str | None
) -> None:
    with web(**answers(body, status)) as server:
        (made.root / "agentfs.toml").write_text(f'[planner]\nbase_url = "{server.url}"\n')
        env = {"OPENAI_API_KEY": "sk-secret-1", "AGENTFS_EXECUTOR_API_KEY_ENV": "NONE"}
        done = made.agentfs("doctor", "--json", code=code, env=env)
    assert server.asked == ["/models"]
    assert "sk-secret-1" not in done.stdout
    (planner,) = [one for one in json.loads(done.stdout)["findings"] if one["about"] == "[planner]"]
    assert planner["grade"] == ("fine" if words is None else "wrong" if code else "remark")
    assert words is None or words in planner["what"]


def test_an_endpoint_that_is_not_there_and_a_program_that_is_not(made: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (made.root / "agentfs.toml").write_text(
        f'[planner]\nbase_url = "http://127.0.0.1:{port}/v1"\n[executor]\nkind = "command"\ncommand = ["no-such"]\n'
    )
    planner, executor = found(made, code=2)
    assert "cannot be reached: " in planner["what"]
    assert "base_url under [planner]" in planner["fix"]
    assert executor["what"] == "the program 'no-such' is not found"


def test_everything_that_is_wrong_is_reported_at_once_with_its_fix(made: Place) -> None:
    made.agentfs("run", made.runbook("### a\n```sh\necho x\n```\n"))
    (made.root / "schemas" / "plan.schema.json").write_text("{}")
    (made.root / "schemas" / "goal.schema.json").unlink()
    (made.root / "agentfs.toml").write_text('mood = "bad"\n[tools]\nsandbox = "maybe"\n')
    (made.root / "tools").mkdir()
    (made.root / "tools" / "torn.py").write_text("def torn(:\n")
    git = made.runs / ".git"
    (git / "index.lock").touch()
    (git / "agentfs" / "999999.1.1").touch()
    blob = made.git("rev-parse", "main:" + str(made.run_folder().relative_to(made.runs)) + "/plan.json").strip()
    (git / "objects" / blob[:2] / blob[2:]).chmod(0o644)
    (git / "objects" / blob[:2] / blob[2:]).write_bytes(b"")
    (git / "HEAD").write_text(made.git("rev-parse", "main"))
    (git / "refs" / "replace").mkdir()
    (git / "refs" / "replace" / blob).write_text(f"{blob}\n")
    (made.root / "goals" / "rejected").mkdir()
    (made.root / "goals" / "rejected" / "job.md").touch()
    findings = found(made, code=2)
    kinds = grades(findings)
    assert [kind for kind, _ in zip(kinds, [0] * 6, strict=False)] == [
        ("settings", "wrong"),
        ("settings", "wrong"),
        ("schemas", "wrong"),
        ("tools", "wrong"),
        ("goals/", "remark"),
        ("ledger", "wrong"),
    ]
    words = "\n".join(one["what"] for one in findings)
    for part in (
        "agentfs.toml:1:1: ", "agentfs.toml:3:", "1 are missing, 1 are of another version or edited",
        "tools/torn.py could not be loaded: line 1", "refs/replace/", "git fsck: ", "index.lock exists",
        "1 claim of processes that are gone", "HEAD is not on main",
    ):  # fmt: skip
        assert part in words, part
    assert (git / "index.lock").exists()
    assert (git / "agentfs" / "999999.1.1").exists()


def _beside_claims(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is found beside a commit that the killed driver may have been making."""
    return [one for one in findings if " of processes that are gone" not in one["what"]]


def test_attempts_that_claim_to_run_with_nobody_driving_them(made: Place) -> None:
    job = made.runbook("### a\nrepeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.02; done\n```\n")
    running = made.begin("run", job, env={"AGENTFS_TOOLS_SANDBOX": "off"})
    wait_for(lambda: any(made.runs.glob("*/job/files/begun")), "the step")
    assert grades(found(made, env={"AGENTFS_TOOLS_SANDBOX": "off"})) == [("sandbox", "remark")]
    end(running, signal.SIGKILL)
    log = made.run_folder() / "steps" / "a.1.log.jsonl"
    wait_for(lambda: not any(map(find_survivors, marks_in(log))), "what ran to end with it")
    (stale,) = _beside_claims(found(made))
    assert (stale["grade"], stale["what"].partition(": ")[2]) == (
        "remark",
        "1 attempt claimed, but no process drives it",
    )
    assert f"agentfs resume {made.run_folder().parent.name}/job" in stale["fix"]
    survivor = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        mark = mark_of(survivor.pid)
        assert mark is not None
        with log.open("a") as file:
            file.write(json.dumps({"event": "program", **asdict(mark)}) + "\n")
        (left,) = _beside_claims(found(made, code=2))
    finally:
        survivor.kill()
        survivor.wait()
    assert left["what"].endswith(f"; still running: {survivor.pid}")
    (made.run_folder() / "files" / "go").touch()
    made.agentfs("run", "--resume", "job")
    assert found(made) == []


def test_a_machine_without_git_and_one_without_a_sandbox(made: Place, tmp_path: Path) -> None:
    for program, kind in (("git", "remark"), ("bwrap", "wrong")):
        (tmp_path / program).mkdir()
        path = path_without(tmp_path / program, program)
        findings = found(made, code=0 if kind == "remark" else 2, env={"PATH": f"{OWN}:{path}"})
        assert grades(findings)[0] == ("git" if program == "git" else "sandbox", kind)
        assert "sudo apt install" in findings[0]["fix"]


def test_another_program_called_agentfs_is_named_if_it_comes_first(made: Place, tmp_path: Path) -> None:
    other, ran = tmp_path / "other" / "agentfs", tmp_path / "ran"
    other.parent.mkdir()
    other.write_text(f"#!/bin/sh\ntouch {ran}\n")
    other.chmod(0o755)
    path = made.env["PATH"]
    (finding,) = found(made, env={"PATH": f"{other.parent}:{path}"})
    assert (finding["about"], finding["grade"]) == ("agentfs", "remark")
    assert finding["what"] == f"another program comes first on PATH: `agentfs` starts {other}"
    assert "type `agentfs-plan`" in finding["fix"]
    assert found(made, env={"PATH": f"{OWN}:{other.parent}:{path}"}) == []
    link = tmp_path / "link" / "agentfs"  # as pipx and uv make one
    link.parent.mkdir()
    link.symlink_to(f"{OWN}/agentfs")
    assert found(made, env={"PATH": f"{link.parent}:{other.parent}:{path}"}) == []
    assert not ran.exists()


def test_another_distribution_with_a_module_of_the_same_name_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert list(other_distributions()) == []
    for name in ("agentfs", "agentfs-plan"):
        metadata = tmp_path / f"{name.replace('-', '_')}-9.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
        (metadata / "top_level.txt").write_text("agentfs\n")
    (finding,) = other_distributions()
    assert (finding.about, finding.grade) == ("agentfs", "wrong")
    assert "the distribution `agentfs` installs a module `agentfs` too" in finding.what


def test_a_run_of_another_version_is_reported(made: Place) -> None:
    made.agentfs("plan", made.runbook("### a\n```sh\necho x\n```\n"))
    record = made.run_folder() / "run.json"
    record.write_text(record.read_text().replace("agentfs/run-1", "agentfs/run-9"))
    (finding,) = found(made, code=2)
    assert "/job/run.json cannot be read: " in finding["what"]
    assert "run-1" in finding["what"]
    assert "git -C runs checkout main -- " in finding["fix"]


def test_the_words_of_a_server_are_inert(made: Place) -> None:
    def evil(page: Web) -> None:
        page.answer(b'{"error": {"message": "\\u001b]52;c;x\\u0007 \\u202e"}}', status=401)

    with web(models=evil) as server:
        (made.root / "agentfs.toml").write_text(f'[planner]\nbase_url = "{server.url}"\n')
        done = made.agentfs("doctor", code=2, env={"AGENTFS_EXECUTOR_API_KEY_ENV": "NONE"})
    assert not set(done.stdout) & {"\x1b", "\x07", "\u202e"}


def test_schedules_are_looked_at(place: Place) -> None:
    place.agentfs("init")
    (place.root / "schedules").mkdir()
    good = '---\nschedule: "0 3 * * *"\n---\n# Job\n\n## Steps\n\n### a\n```sh\necho a\n```\n'
    (place.root / "schedules" / "good.md").write_text(good)
    assert "1 schedule, `agentfs schedule` says when" in place.agentfs("doctor", code=None).stdout
    (place.root / "schedules" / "never.md").write_text(good.replace("0 3 * * *", "0 0 30 2 *"))
    (place.root / "schedules" / "odd.md").write_text(good.replace("```sh", "```nosuchtool"))
    found = place.agentfs("doctor", code=None).stdout
    assert "schedules/never.md:2:11:" in found
    assert "schedules/odd.md" in found

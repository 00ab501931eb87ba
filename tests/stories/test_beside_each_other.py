"""Several processes, and a person with git, in one workspace: nothing is done twice, nothing of theirs is touched.

That the first of these can fail was tried: with a lock on a run that keeps nobody out, steps are done twice.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.clocks import WallClock, needs_faketime
from tests.daemons import Watching, book
from tests.sweeps import size
from tests.workspaces import DEADLINE, Place, disagreements, end, wait_for

SET = {"AGENTFS_TOOLS_SANDBOX": "off", "AGENTFS_LIMITS_PARALLEL": "4"}


def steps_of(count: int, run: int) -> str:
    """A goal of steps that each leave a line in a file that all runs share."""
    steps = [
        {
            "id": f"s{number}",
            "tool": "shell",
            "input": {"command": f"echo {run}.{number} >> effects; sleep 0.5"},
            "depends_on": [],
        }
        for number in range(count)
    ]
    return json.dumps({"goal": "x", "workdir": "shared", "steps": steps})


def test_eight_processes_and_no_step_is_claimed_twice(place: Place) -> None:
    """Every process drives whatever run it can get."""
    total = size(60, 2000)
    runs = max(2, total // 200)
    place.agentfs("init")
    (place.root / "shared").mkdir()
    for run in range(runs):
        goal = place.goal(steps_of(total // runs, run), f"r{run}.json")
        place.agentfs("plan", goal, env=SET)
        plan = place.run_folder(f"r{run}") / "plan.json"
        plan.write_text(plan.read_text().replace('"draft"', '"approved"'))
    outputs: list[str] = []
    workers = [threading.Thread(target=_resume_all, args=(place, runs, seed, outputs)) for seed in range(7)]
    for worker in workers:
        worker.start()
    with Watching(place, env=SET):
        for worker in workers:
            worker.join()
        for run in range(runs):
            path = place.run_folder(f"r{run}") / "outcome.json"
            wait_for(path.exists, f"the end of r{run}", 60 + total / 5)
            assert json.loads(path.read_text())["status"] == "done"
        with pytest.raises(AssertionError, match="is being watched already"), Watching(place, env=SET):
            pass
    effects = Counter((place.root / "shared" / "effects").read_text().split())
    assert effects == {f"{run}.{number}": 1 for run in range(runs) for number in range(total // runs)}
    assert len(list(place.runs.glob("*/*/steps/*.log.jsonl"))) == total
    assert not any(place.runs.glob("*/*/steps/*.2.*"))
    assert [words for words in outputs if "Traceback" in words] == []
    assert disagreements(place.root) == []
    place.ledger_is_sound()


def _resume_all(place: Place, runs: int, seed: int, outputs: list[str]) -> None:
    """Try to drive every run, in an order of its own; one that another process drives is left to it."""
    order = [f"r{run}" for run in range(runs)]
    random.Random(seed).shuffle(order)
    for run in order:
        done = place.agentfs("run", "--resume", run, code=None, env=SET, seconds=DEADLINE * 4)
        outputs.append(done.stderr)
        assert done.returncode in (0, 2), done.stderr


# ── a person in the ledger ────────────────────────────────────────────────────────────────────────────────


class Person:
    """A person who works in runs/ with git while agentfs does."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.env = {
            **place.env,
            **{f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER")
               for key, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))},
        }  # fmt: skip

    def git(self, *words: str, **more: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.place.runs,
            env={**self.env, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def begin(self, *words: str, editor: str) -> "subprocess.Popen[bytes]":
        env = {**self.env, "GIT_EDITOR": editor, "GIT_SEQUENCE_EDITOR": editor}
        return subprocess.Popen(
            ["git", *words], cwd=self.place.runs, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stage(self, name: str) -> Path:
        path = self.place.runs / name
        path.write_text(f"{name}\n")
        self.git("add", name)
        return path


def subjects(place: Place) -> str:
    """Return what main's commits say, the newest first."""
    return place.git("log", "--format=%an %s", "main") if (place.runs / ".git/refs/heads/main").exists() else ""


def goes_on(daemon: Watching, name: str) -> None:
    """A goal that is dropped now ends as ever, and its commits are made whatever the person is about."""
    daemon.drop(f"{name}.md", book(f"echo {name}"))
    assert daemon.outcome(name)["answer"] == name
    wait_for(lambda: f"agentfs {name}: done" in subjects(daemon.place), f"the commits of {name}")


def hold_a_lock(daemon: Watching, ada: Person) -> None:
    lock = ada.place.runs / ".git" / "index.lock"
    wait_for(lambda: _created(lock), "the lock to be hers")
    threading.Event().wait(size(1, 60))  # whatever happens meanwhile
    goes_on(daemon, "locked")
    assert lock.read_bytes() == b"theirs"
    lock.unlink()


def have_an_editor_open(daemon: Watching, ada: Person) -> None:
    mine, go = ada.stage("mine.md"), ada.place.root.parent / "go"
    editor = ada.begin("commit", editor=f"sh -c 'while ! test -e {go}; do sleep 0.02; done; echo mine > \"$1\"' --")
    wait_for((ada.place.runs / ".git" / "COMMIT_EDITMSG").exists, "the editor")
    goes_on(daemon, "edited")
    go.touch()
    if editor.wait(timeout=DEADLINE) != 0:  # git itself refuses: the branch has moved. What was staged still is
        wait_for(lambda: ada.git("diff", "--cached", "--name-only") == "mine.md", "the index to follow")
        ada.git("commit", "-qm", "mine")
    assert mine.read_text() == "mine.md\n"
    assert ada.git("log", "-1", "--name-only", "--format=%an %s", "main", "--", "mine.md") == "Ada mine\n\nmine.md"


def be_detached(daemon: Watching, ada: Person) -> None:
    ada.git("checkout", "-q", "--detach", "main~1")
    head = ada.git("rev-parse", "HEAD")
    goes_on(daemon, "detached")
    assert (ada.place.runs / ".git" / "HEAD").read_text().strip() == head
    ada.git("checkout", "-q", "main")


def be_in_a_rebase(daemon: Watching, ada: Person) -> None:
    ada.git("checkout", "-q", "-b", "topic", "main~1")
    ada.stage("b.md")
    ada.git("commit", "-qm", "b")
    rebase = ada.begin("rebase", "-q", "-i", "main", editor="sh -c 'sed -i s/^pick/edit/ \"$1\"' --")
    assert rebase.wait(timeout=DEADLINE) == 0
    assert (ada.place.runs / ".git" / "rebase-merge").exists()
    goes_on(daemon, "rebased")
    assert (ada.place.runs / ".git" / "rebase-merge").exists()
    ada.git("rebase", "--continue", GIT_EDITOR="true")
    assert ada.git("log", "-1", "--format=%an %s", "topic") == "Ada b"
    ada.git("checkout", "-q", "main")


def move_the_branch(daemon: Watching, ada: Person) -> None:
    moved = ada.git("commit-tree", "main^{tree}", "-p", "main", "-m", "moved")
    ada.git("update-ref", "refs/heads/main", moved)
    goes_on(daemon, "moved")
    assert moved in ada.git("rev-list", "main").split()


ACTS = (hold_a_lock, have_an_editor_open, be_detached, be_in_a_rebase, move_the_branch)


def test_a_person_and_git_in_the_ledger_while_steps_go_on(place: Place) -> None:
    """Steps go on, commits catch up, nothing of theirs is touched, and the index follows when they have finished."""
    with Watching(place) as daemon:
        ada = Person(place)
        goes_on(daemon, "first")
        for act in ACTS:
            act(daemon, ada)
            wait_for(lambda: place.git("status", "--porcelain") == "", f"the index to follow after {act.__name__}")
    place.ledger_is_sound()
    assert disagreements(place.root) == []


def test_a_question_asked_while_a_checkout_had_the_result_away_is_only_noted(place: Place) -> None:
    """A claim without a result is asked about; when the result is back, the question means nothing."""
    with Watching(place) as daemon:
        ada = Person(place)
        goes_on(daemon, "first")
        wait_for(lambda: place.git("status", "--porcelain") == "", "the index to follow")
        run = place.run_folder("first")
        ada.git("checkout", "-q", "--detach", "main~1")
        wait_for((run / "steps" / "a.1.question.md").exists, "the question")
        ada.git("checkout", "-q", "main")
        assert daemon.outcome("first")["status"] == "done"
    output = place.agentfs("verify").stdout
    assert "steps/a.1.question.md: asks about an attempt that has a result" in output
    assert disagreements(place.root) == []


def _created(lock: Path) -> bool:
    try:
        with lock.open("xb") as file:
            file.write(b"theirs")
    except FileExistsError:  # agentfs itself, for a moment
        return False
    return True


# ── clocks and numbers ────────────────────────────────────────────────────────────────────────────────────


@needs_faketime
@pytest.mark.parametrize("jump", ["+1d", "-1d"])
def test_the_clock_jumps_by_a_day_under_a_running_step(place: Place, jump: str) -> None:
    """No early timeout, and nobody takes for dead what runs: durations are monotonic, and locks have no lease."""
    clock = WallClock.of(place)
    slow = "echo begun >> effects; while ! test -e go; do sleep 0.02; done"
    with Watching(place, env=clock.environment) as daemon:
        daemon.drop("job.md", book(slow, lines="timeout: 60s"))
        folder = daemon.folder("job")
        wait_for((folder / "files" / "effects").exists, "the step")
        clock.set(jump)
        refused = place.agentfs("run", "--resume", "job", code=2, env=clock.environment)
        assert "is being driven by another agentfs" in refused.stderr
        daemon.drop("other.md", book("echo other"))
        assert daemon.outcome("other")["answer"] == "other"
        (folder / "files" / "go").touch()
        assert daemon.outcome("job")["status"] == "done"
    assert (folder / "files" / "effects").read_text() == "begun\n"
    result = place.read("steps/a.1.result.json")
    assert (result["status"], result["duration_s"] < 60) == ("done", True)
    assert not (folder / "steps" / "a.2.json").exists()
    assert disagreements(place.root) == []


def test_another_process_has_the_number_of_a_claim(place: Place) -> None:
    """A driver that takes a run over ends what is left of its attempts, and nobody who only has the same number now."""
    job = place.runbook("### a\nrepeatable\n```sh\ntouch begun; test -e go || sleep 60\n```\n")
    running = place.begin("run", job, env={"AGENTFS_TOOLS_SANDBOX": "off"})
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    log = place.run_folder() / "steps" / "a.1.log.jsonl"
    claim = json.loads(log.read_text().splitlines()[0])
    end(running, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it may have ended with its driver already
        os.killpg(claim["pgid"], signal.SIGKILL)
    innocent = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        other = {**claim, "pid": innocent.pid, "pgid": innocent.pid}
        log.write_text(log.read_text().replace(json.dumps(claim, separators=(",", ":")), "").strip())
        lines = [json.dumps(other), *log.read_text().splitlines()[1:]]
        log.write_text("\n".join(lines) + "\n")
        (place.run_folder() / "files" / "go").touch()
        place.agentfs("run", "--resume", "job")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()
    assert place.read("steps/a.1.result.json")["status"] == "interrupted"
    assert place.read("steps/a.2.result.json")["status"] == "done"

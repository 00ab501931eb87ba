"""Stopped, killed, resumed: nothing is lost, and nothing is done twice unnoticed."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.terminals import OnTerminal
from tests.workspaces import Place, end, wait_for

SLOW = """\
### first
```sh
echo one >> effects
```

### slow
```sh
echo begun >> effects; while ! test -e go; do sleep 0.05; done; echo ended >> effects
```
{line}

### last
```sh
echo last; wc -l < effects
```
"""


def _until_slow_runs(place: Place) -> Path:
    """Wait until the second step has begun; return its working folder."""
    files = place.runs
    wait_for(lambda: any(files.glob("*/job/files/effects")), "the first effect")
    effects = place.run_folder() / "files" / "effects"
    wait_for(lambda: "begun" in effects.read_text(), "the slow step to begin")
    return effects.parent


def test_ctrl_c_once_lets_running_steps_finish(place: Place) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line="")))
    files = _until_slow_runs(place)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "what runs finishes" not in process.stderr.readline():
        pass
    assert process.poll() is None
    (files / "go").touch()
    code, out, err = end(process, signal.SIGCONT)
    assert (code, out) == (130, "")
    assert "agentfs resume" in err
    assert place.read("steps/slow.1.result.json")["status"] == "done"
    assert "steps/last.1.json" not in place.tree()
    assert place.agentfs("run", "--resume", "job").stdout == "last\n3\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_twice_or_sigterm_ends_them(place: Place, number: signal.Signals) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line="repeatable")))
    files = _until_slow_runs(place)
    process.send_signal(number)
    if number == signal.SIGINT:  # two signals at once would be one: the second waits for the answer to the first
        assert process.stderr is not None
        while "Ctrl-C again" not in process.stderr.readline():
            pass
        process.send_signal(number)
    code, _, _ = end(process, signal.SIGCONT)
    assert code == 130
    assert place.read("steps/slow.1.result.json")["status"] == "interrupted"
    (files / "go").touch()
    assert place.agentfs("run", "--resume", "job").stdout == "last\n4\n"
    assert place.read("steps/slow.2.result.json")["key"] == place.read("steps/slow.1.result.json")["key"]


def _noting(place: Place, program: str, log: Path, then: str = "") -> None:
    """Put a program before the real one that notes its process group, and does something `then`."""
    folder = place.home / "bin"
    folder.mkdir(exist_ok=True)
    script = f'#!/bin/sh\nread -r _ _ _ _ group _ < /proc/$$/stat\necho "{program} $group" >> {log}\n{then}\n'
    (folder / program).write_text(f'{script}exec {shutil.which(program)} "$@"\n', encoding="utf-8")
    (folder / program).chmod(0o755)
    place.env["PATH"] = f"{folder}:{os.environ['PATH']}"


def test_what_a_run_starts_is_not_in_the_terminals_process_group(place: Place) -> None:
    """A terminal sends Ctrl-C to every process of its group; what is begun is to be finished."""
    log = place.home / "started"
    _noting(place, "git", log)
    _noting(place, "bwrap", log)
    hooked = ("-c", "core.hooksPath=hooks", "init", "-q", str(place.root / "repo"))
    subprocess.run(["git", *hooked], check=True, env=place.env)  # the settings of such a one are asked of git
    subprocess.run(["git", "-C", str(place.root / "repo"), "config", "core.hooksPath", "hooks"], check=True)
    log.unlink()
    words = ["run", place.runbook("### a\n```sh\necho 1\n```\n", "workdir: repo")]
    with OnTerminal(words, place.root, place.env, keyboard=True) as shown:
        group = shown.popen.pid  # it leads the session
        assert shown.wait() == (0, "1\n")
    started = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    assert {program for program, _ in started} == {"git", "bwrap"}
    assert [program for program, own in started if int(own) == group] == []


def test_ctrl_c_at_the_terminal_while_git_commits_ends_no_git(place: Place) -> None:
    log, begun, go = (place.home / name for name in ("started", "begun", "go"))
    wait = f"touch {begun}; n=0; while [ ! -e {go} ] && [ $n -lt 6000 ]; do sleep 0.01; n=$((n+1)); done"
    _noting(place, "git", log, f'case "$*" in *fast-import*) {wait};; esac')
    steps = "### a\n```sh\necho 1\n```\n### b\ngate\n```sh\necho 2\n```\n"
    with OnTerminal(["run", place.runbook(steps)], place.root, place.env, keyboard=True) as shown:
        wait_for(begun.exists, "a commit")
        shown.wait_to_see("yes, no [why]")
        shown.type("\x03")
        shown.wait_until(lambda _: "stop" in shown.raw, "that it stops")
        go.touch()
        assert shown.wait() == (130, "")
    assert "ledger" not in shown.raw
    assert shown.terminal.everything[-1] == f"stopped; go on with: agentfs resume {place.read('run.json')['run']}"
    assert place.log() == ["agentfs job: revision 1, the first plan"]
    place.ledger_is_sound()


def test_killed_and_resumed_a_repeatable_step_simply_runs_again(place: Place) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line="repeatable")))
    files = _until_slow_runs(place)
    end(process, signal.SIGKILL)
    process = place.begin("run", "--resume", "job")
    wait_for((place.run_folder() / "steps" / "slow.1.result.json").exists, "the end of what was left running")
    (files / "go").touch()
    assert end(process, signal.SIGCONT)[1] == "last\n4\n"
    assert place.read("steps/slow.1.result.json")["status"] == "interrupted"
    assert place.read("steps/first.1.result.json")["status"] == "done"
    assert "steps/first.2.json" not in place.tree()
    assert place.log() == ["agentfs job: revision 1, the first plan", "agentfs job: done, 3 of 3 steps"]
    place.ledger_is_sound()


@pytest.mark.parametrize(
    ("reply", "code", "stdout"),
    [("again\n", 0, "last\n4\n"), ("done\nall of it\n", 0, "last\n2\n"), ("Failed\nhalf\n", 1, "")],
)
def test_killed_and_resumed_a_person_is_asked_about_what_may_not_be_repeated(
    place: Place, reply: str, code: int, stdout: str
) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line="not repeatable")))
    files = _until_slow_runs(place)
    end(process, signal.SIGKILL)
    waiting = place.agentfs("run", "--resume", "job", code=3)
    (files / "go").touch()  # not before: what the kernel is ending may yet see it
    folder = place.run_folder() / "steps"
    assert "again, done or failed" in waiting.stderr
    assert "cut off" in (folder / "slow.1.question.md").read_text()
    assert (files / "effects").read_text() == "one\nbegun\n"
    (folder / "slow.1.reply.md").write_text("of course\n")
    place.agentfs("run", "--resume", "job", code=3)
    (folder / "slow.1.reply.md").write_text(reply)
    assert place.agentfs("run", "--resume", "job", code=code).stdout == stdout
    if reply.startswith("done"):
        assert place.read("steps/slow.2.result.json")["output"] == "all of it"
    if reply.startswith("Failed"):
        assert place.read("steps/slow.2.result.json")["error"]["message"] == "half"
        assert "steps/slow.3.json" not in place.tree()


def test_what_a_killed_driver_left_running_is_ended_first(place: Place) -> None:
    """Without a sandbox, and with what minds it stopped, a step outlives its driver; the next finds it by its log."""
    (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "off"\n')
    place.agentfs("init")
    process = place.begin("run", place.runbook(SLOW.format(line="repeatable")))
    files = _until_slow_runs(place)
    claim = json.loads((place.run_folder() / "steps" / "slow.1.log.jsonl").read_text().splitlines()[0])
    assert claim["event"] == "claim"
    assert {"pid", "pgid", "start_time", "host", "boot_id"} <= claim.keys()
    os.kill(claim["pid"], signal.SIGSTOP)
    end(process, signal.SIGKILL)
    assert Path(f"/proc/{claim['pid']}/cmdline").read_bytes(), "it lives"
    resumed = place.begin("run", "--resume", "job")
    wait_for((place.run_folder() / "steps" / "slow.2.log.jsonl").exists, "the second attempt")
    wait_for(lambda: not Path(f"/proc/{claim['pid']}").exists(), "the survivor's end")
    (files / "go").touch()
    code, out, _ = end(resumed, signal.SIGCONT)
    assert (code, out) == (0, "last\n4\n")


def test_a_run_that_is_being_driven_is_not_driven_twice(place: Place) -> None:
    process = place.begin("run", place.runbook(SLOW.format(line="")))
    files = _until_slow_runs(place)
    second = place.agentfs("run", "--resume", "job", code=2)
    assert "is being driven by another agentfs" in second.stderr
    (files / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 0


def test_an_order_written_by_another_process_is_picked_up_by_watchdog_alone(place: Place) -> None:
    """The driver waits for `slow`; an order for `wanted`, held back by a gate, appears and is carried out."""
    book = SLOW.format(line="") + "\n### wanted\nafter: nothing\n```sh\ntouch ../files/go; echo got it\n```\ngate\n"
    process = place.begin("run", place.runbook(book))
    _until_slow_runs(place)
    folder = place.run_folder() / "steps"
    wait_for((folder / "wanted.1.question.md").exists, "the gate's question")
    question = (folder / "wanted.1.question.md").read_text()
    order = question.partition("```json\n")[2].partition("\n```")[0]
    temp = folder / ".order.tmp"
    temp.write_text(order + "\n")
    os.link(temp, folder / "wanted.1.json")
    code, _, err = end(process, signal.SIGCONT)
    assert code == 0, err
    assert place.read("steps/wanted.1.result.json")["output"] == "got it"
    assert not (folder / "wanted.1.reply.md").exists()


def test_resuming_an_ended_run_says_how_it_ended(place: Place) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n"))
    before = place.tree()
    assert place.agentfs("run", "--resume", "job").stdout == "a\n"
    assert place.tree() == before
    assert len(place.log()) == 2

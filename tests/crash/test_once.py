"""A step that may not be repeated, killed between its effect and its result: it never runs again by itself.

`./test --full` kills it a hundred times; by default a few times.
"""

import random
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.crash.forking import Forks
from tests.crash.stories import effects, results, save
from tests.crash.sweeping import Point, copy_of, needs_strace, strace, sweep
from tests.sweeps import SEED, size
from tests.workspaces import Place, end, wait_for

MANY = size(1, 25)
STEP = "### send\n```sh\necho sent >> effects; {then}echo sent\n```\n{line}\n"
WAITS = "while ! test -e go; do sleep 0.02; done; "
pytestmark = needs_strace


@pytest.fixture(scope="module", params=["off", "auto"])
def begins(folder: Path, request: pytest.FixtureRequest) -> Place:
    own = folder / f"once-{request.param}"
    own.mkdir()
    place = Place(own)
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(f'[tools]\nsandbox = "{request.param}"\n')
    return place


def killed_while_it_runs(begins: Place, own: Path, pause: float, line: str) -> Place:
    """Kill agentfs a moment after the step has had its effect; its program does not end by itself."""
    place = copy_of(begins, own / "place")
    process = place.begin("run", place.runbook(STEP.format(then=WAITS, line=line)))
    wait_for(lambda: any(place.runs.glob("*/job/files/effects")), "the effect")
    time.sleep(pause)
    end(process, signal.SIGKILL)
    return place


def is_asked_about(place: Place, forks: Forks) -> None:
    """Assert that what was cut off stays cut off, however often agentfs starts, until a person says what became of it."""
    folder = place.run_folder()
    (folder / "files" / "go").touch()
    for _ in range(2):
        assert forks.command(place, "run", "--resume", "job") == 3
        assert effects(folder) == {"sent": 1}
    save(folder / "steps" / "send.1.reply.md", "done\nit was sent\n")
    assert forks.command(place, "run", "--resume", "job") == 0
    assert place.read("outcome.json")["answer"] == "it was sent"
    assert effects(folder) == {"sent": 1}
    assert {number: result["status"] for number, result in results(folder)["send"].items()} == {
        1: "interrupted",
        2: "done",
    }


def runs_again(place: Place, forks: Forks) -> None:
    """Assert that a repeatable step is simply tried again, by the same key."""
    folder = place.run_folder()
    (folder / "files" / "go").touch()
    assert forks.command(place, "run", "--resume", "job") == 0
    first, second = (results(folder)["send"][number] for number in (1, 2))
    assert (first["status"], second["status"]) == ("interrupted", "done")
    assert first["key"] == second["key"]


@pytest.mark.parametrize("line", ["not repeatable", "repeatable"])
def test_killed_while_it_runs(begins: Place, folder: Path, line: str) -> None:
    chance = random.Random(SEED)

    def one(pause: float, own: Path, forks: Forks) -> str:
        place = killed_while_it_runs(begins, own, pause, line)
        (is_asked_about if line == "not repeatable" else runs_again)(place, forks)
        return "killed"

    sweep(f"a step that is {line}, killed while it runs", [chance.random() / 20 for _ in range(MANY)], one, folder)


def test_killed_between_its_end_and_its_result(begins: Place, folder: Path) -> None:
    def one(near: str, own: Path, forks: Forks) -> str:
        place = copy_of(begins, own / "place")
        name = place.runbook(STEP.format(then="", line="not repeatable"))
        code, output = forks.run(place.root, place.env, "run", name, cut=0, near=near)
        assert code == -9, output
        assert effects(place.run_folder()) == {"sent": 1}
        assert "send" not in results(place.run_folder())
        is_asked_about(place, forks)
        return "killed"

    sweep("a step killed between its end and its result", ["send.1.result.json"] * MANY, one, folder)


def test_before_it_is_claimed_nothing_of_it_runs(begins: Place, folder: Path) -> None:
    """The claim takes its time, and fails. That this can fail was tried: with the program let go before its claim,
    the effect is there, and a kill at that moment would leave nobody to ask about it."""
    claim = Point("linkat", 1, f"runs/{datetime.now().astimezone():%Y-%m-%d}/job/steps/send.1.log.jsonl")
    place = copy_of(begins, folder / f"{begins.root.parent.name}-unclaimed")
    slow = claim.options(place, "error=EIO:delay_enter=500000")
    name = place.runbook(STEP.format(then="", line="not repeatable"))
    ended = strace(place, "run", name, calls=[claim.call], options=slow)
    assert (ended.code, "INJECTED" in ended.trace) == (2, True), ended.err
    assert effects(place.run_folder()) == {}
    place.agentfs("run", "--resume", "job")
    assert effects(place.run_folder()) == {"sent": 1}

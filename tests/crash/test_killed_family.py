"""A run with a list, a condition and a run in it, killed before any change of the disk: nothing is begun twice.

`./test --full` cuts it off at every point; by default at a few, chosen by a seed.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.forking import Forks
from tests.crash.stories import CUT_OFF, effects, save
from tests.crash.sweeping import copy_of, in_memory, sweep
from tests.sweeps import FULL, some
from tests.workspaces import Place

SETTINGS = """on_end = "echo $AGENTFS_STATUS >> ends"
[tools]
sandbox = "off"
allow = ["shell", "run"]
[limits]
parallel = 1
"""
STEPS = """### list
repeatable
```sh
echo north; echo south
```

### work
when: `true`
each: {{steps.list.output}}
repeatable
```sh
echo {{item}} >> effects; echo "{{item}} is done"
```

### never
when: `false`
```sh
echo never >> effects
```

### inner
after: work
```run
uses: runbooks/inner.md
params: {word: "{{steps.work.output.0}}"}
```

### tell
repeatable
```sh
echo told {{steps.inner.output}}
```
"""
INNER = """---
params: {word: string}
---
# Inner

## Steps

### first
repeatable
```sh
echo first >> effects
```

### second
gate
repeatable
```sh
echo second >> effects; echo "inner "{{params.word}}
```
"""
MOST = 600  # changes of the disk that any part of it makes


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with in_memory() as where:
        yield where


@pytest.fixture(scope="module")
def begins(folder: Path) -> Place:
    """A workspace with the goal in it, and the goal that it uses."""
    (folder / "begins").mkdir()
    place = Place(folder / "begins")
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(SETTINGS)
    (place.root / "runbooks").mkdir()
    (place.root / "runbooks" / "inner.md").write_text(INNER)
    place.runbook(STEPS)
    return place


def words(place: Place) -> tuple[str, ...]:
    """Return what a person types to begin, or to go on."""
    return ("resume", "job") if any(place.runs.glob("*/job/goal.md")) else ("run", "job.md")


def answer_all(place: Place) -> None:
    for question in place.runs.glob("*/*/steps/*.question*.md"):
        reply = question.with_name(question.name.replace("question", "reply"))
        if not reply.exists():
            save(reply, "again\n" if question.read_text().startswith(CUT_OFF) else "approve\n")


def live_on(place: Place, forks: Forks) -> None:
    for _ in range(8):
        forks.command(place, *words(place))
        if any(place.runs.glob("*/job/outcome.json")):
            return
        answer_all(place)
    raise AssertionError(f"it does not end: {sorted(place.runs.rglob('*.json'))}")


def killed_once(begins: Place, case: tuple[int, int], own: Path, forks: Forks) -> str:
    """Kill the first or the second start after so many changes; what comes of it is what would have come."""
    start, cut = case
    place = copy_of(begins, own / "place")
    if start:
        forks.command(place, *words(place))
        answer_all(place)
    code, output = forks.run(place.root, place.env, *words(place), cut=cut)
    assert "Traceback" not in output, output
    live_on(place, forks)
    job, children = place.run_folder(), sorted(path.parent.name for path in place.runs.glob("*/job?*/goal.md"))
    assert children == ["job-inner"], "one run was begun, once"
    outcome = json.loads((job / "outcome.json").read_text())
    assert (outcome["status"], outcome["answer"]) == ("done", "told inner north is done")
    assert outcome["steps"]["skipped"] == ["never"]
    tries = [path.name for path in job.glob("steps/inner.*.result.json")]
    assert tries == ["inner.1.result.json"], "a run in a run is never interrupted"
    for run in (job, place.run_folder("job-inner")):
        for effect, times in effects(run).items():
            step = f"work~{effect}" if effect in ("north", "south") else effect
            assert times <= len(list(run.glob(f"steps/{step}.*.log.jsonl"))), f"{effect} went unnoticed"
    ends = place.root / "ends"
    assert (ends.read_text() if ends.exists() else "") in ("", "done\n"), "once for each end, and not for children"
    place.ledger_is_sound()
    return "killed" if code == -9 else "not reached"


def test_killed_before_any_change_of_the_disk(begins: Place, folder: Path) -> None:
    cases = [(start, cut) for start in (0, 1) for cut in range(MOST if FULL else 300)]
    found = sweep("killed in a family", some(cases, 8, about="family"), partial(killed_once, begins), folder)
    assert found["killed"] > 0


@pytest.mark.parametrize("near", ["steps/inner.1.log", "job-inner/run.json", "job-inner", "steps/inner.1.result"])
def test_killed_where_the_child_begins_and_ends(begins: Place, folder: Path, near: str) -> None:
    def one(cut: int, own: Path, forks: Forks) -> str:
        place = copy_of(begins, own / "place")
        for _ in range(2):
            code, output = forks.run(place.root, place.env, *words(place), cut=cut, near=near)
            assert "Traceback" not in output, output
            answer_all(place)
        live_on(place, forks)
        assert sorted(path.parent.name for path in place.runs.glob("*/job?*/goal.md")) == ["job-inner"]
        assert json.loads((place.run_folder() / "outcome.json").read_text())["answer"] == "told inner north is done"
        assert len(list(place.run_folder().glob("steps/inner.*.result.json"))) == 1
        return "killed" if code == -9 else "not reached"

    sweep(f"killed near {near}", some(range(12), 2, about=near), one, folder)


def test_a_request_killed_while_it_is_taken_runs_once(begins: Place, folder: Path) -> None:
    """A dropped request leaves the used goal beside it until the run has both."""
    forks = Forks()
    for cut in some(range(40), 6, about="request"):
        place = copy_of(begins, folder / f"request-{cut}")
        goal = place.root / "goals" / "asked.yaml"
        goal.write_text("uses: runbooks/inner.md\nparams: {word: hello}\n")
        code, output = forks.run(place.root, place.env, cut=cut)
        assert code in (0, -9), output
        taken = [path.parent.name for path in place.runs.glob("*/*/run.json")]
        assert goal.exists() or taken == ["asked"]
        code, output = forks.run(place.root, place.env)
        assert code == 0, output
        answer_all(place)
        assert forks.run(place.root, place.env)[0] == 0
        run = place.run_folder("asked")
        assert json.loads((run / "outcome.json").read_text())["answer"] == "inner hello"
        assert sorted(path.name for path in place.runs.glob("*/*/*") if path.name.startswith(".")) == []
        assert (run / "request.yaml").read_text() == "uses: runbooks/inner.md\nparams: {word: hello}\n"
        assert (run / "goal.md").read_text() == INNER
        assert not goal.exists()

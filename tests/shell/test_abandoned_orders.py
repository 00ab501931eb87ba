"""A driver died between an order and its claim: the order keeps no run from resting, nor from ending."""

import json
from pathlib import Path

import pytest

from agentfs.engine.foreground import Stop, drive
from agentfs.engine.world import open_driver, open_world
from agentfs.storage.workspace import Workspace, load_settings
from tests.drives import Quiet
from tests.workspaces import Place

BOOK = """\
# Job

## Steps

### a
```sh
echo a
```

### b
after: nothing
```sh
test ! -e files-are-broken && echo b
```
retries: 0
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two steps, one of which was ordered and never begun."""
    place = Place(tmp_path)
    place.agentfs("run", place.goal(BOOK))
    folder = place.run_folder()
    for name in ("outcome.json", "steps/a.1.log.jsonl", "steps/a.1.result.json"):
        (folder / name).unlink()
    return folder


def driven(folder: Path) -> tuple[str, str] | None:
    """Drive a run until it rests; return what it waits for, and why."""
    root = folder.parents[2]
    settings = load_settings(root / "agentfs.toml", {})
    with open_world(Workspace(root), settings, {}, lambda _: None, lambda: None) as world:
        rest = drive(open_driver(folder, world), Stop(), Quiet()).why
    return (rest.on, rest.why) if rest else None


def result(folder: Path, name: str) -> tuple[str, str | None, str | None]:
    found = json.loads((folder / "steps" / f"{name}.result.json").read_bytes())
    return found["status"], found["error"] and found["error"]["message"], found["started_at"]


def test_it_is_carried_out(run: Path) -> None:
    assert driven(run) == ("nothing", "the run has ended: 2 of 2 steps done (claimed, not checked)")
    assert result(run, "a.1")[:2] == ("done", None)


def test_a_paused_run_rests(run: Path) -> None:
    """Seen as a run that never came to rest: it waited for an attempt that nobody had begun."""
    plan = run / "plan.json"
    plan.write_text(plan.read_text().replace('"approved"', '"paused"'))
    assert driven(run) == ("person", "the plan is paused: resume it")
    never = "it was ordered, but agentfs ended before it began"
    assert result(run, "a.1") == ("interrupted", never, None)
    plan.write_text(plan.read_text().replace('"paused"', '"approved"'))
    assert driven(run) == ("nothing", "the run has ended: 2 of 2 steps done (claimed, not checked)")
    assert result(run, "a.2")[:2] == ("done", None)


def test_a_run_that_has_failed_ends(run: Path) -> None:
    path = run / "steps" / "b.1.result.json"
    failed = json.loads(path.read_bytes()) | {"status": "failed", "error": {"kind": "exit", "message": "exit 1"}}
    path.unlink()
    path.write_text(json.dumps(failed, indent=2) + "\n")
    assert driven(run) == ("nothing", "the run has ended: b failed: exit 1; 0 of 2 steps done, 1 failed")
    assert result(run, "a.1")[0] == "interrupted"

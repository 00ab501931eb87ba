"""A person saves plan.json again and again while a runbook replans it: no save is lost.

Shown to be able to fail: with `os.replace` in the place of the exchange in `disk.install`, it loses saves both ways.
"""

import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.sweeps import size
from tests.workspaces import Place, end, wait_for

RUNS, EDITS, ALTERNATIVES = size(2, 4), size(12, 75), 400


def _book() -> str:
    """A step that fails, and hundreds of alternatives that fail too: the plan never stays the same for long."""
    fence = "```sh\nsleep 0.1; exit 1\n```\nretries: 0\n"
    steps = [f"### s0\n{fence}", *(f"### s{n}\ninstead of: s{n - 1}\n{fence}" for n in range(1, ALTERNATIVES))]
    return "\n".join(steps)


def _is_revision(folder: Path, title: str) -> bool:
    """Whether a save has become a revision: among the last few, or anywhere."""
    copies = sorted((folder / "revisions").glob("*.plan.json"), key=lambda path: -int(path.name.partition(".")[0]))
    return any(f'"{title}"'.encode() in path.read_bytes() for path in copies[:20])


def _save(folder: Path, title: str, in_place: bool) -> None:
    """Save the plan that is there under another title, as an editor would."""
    plan = folder / "plan.json"
    while True:
        try:
            value = json.loads(plan.read_bytes())
            break
        except ValueError:
            continue
    text = json.dumps(value | {"goal": title}, indent=1)
    if in_place:
        with plan.open("w") as file:  # opened, truncated, then written in two halves
            file.write(text[: len(text) // 2])
            file.flush()
            file.write(text[len(text) // 2 :])
    else:
        beside = folder / "plan.json~"
        beside.write_text(text)
        beside.rename(plan)


def _edit_all(folder: Path, in_place: bool) -> list[str]:
    """Save many times, each once the last one is a revision; return the saves that never became one."""
    lost: list[str] = []
    pauses = random.Random(folder.name)
    for number in range(EDITS):
        title = f"edit {number}"
        time.sleep(pauses.random() * 0.1)  # so that saves fall before, into and after an exchange
        _save(folder, title, in_place)
        if (folder / "outcome.json").exists():
            return [*lost, f"{title}, as the run has ended"]
        try:
            wait_for(partial(_is_revision, folder, title), title, 20)
        except AssertionError:
            lost.append(title)
    return lost


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by rename"])
def test_no_save_is_lost_to_a_replan(place: Place, in_place: bool) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[limits]\nreplans = 100000\nparallel = 4\n[tools]\nsandbox = "off"\n')
    for number in range(RUNS):
        place.runbook(_book(), name=f"job-{number}x.md")
    processes = [place.begin("run", f"job-{number}x.md") for number in range(RUNS)]
    try:
        wait_for(lambda: len(list(place.runs.glob("*/*/revisions/2.json"))) == RUNS, "every run to replan")
        folders = sorted(path.parent.parent for path in place.runs.glob("*/*/revisions/2.json"))
        with ThreadPoolExecutor(RUNS) as people:
            lost = list(people.map(lambda folder: _edit_all(folder, in_place), folders))
        replans = [len(list((folder / "planning").glob("*.result.json"))) for folder in folders]
        ended = [process.poll() for process in processes]
    finally:
        errors = [end(process, signal.SIGKILL)[2][-2000:] for process in processes]
    assert ended == [None] * RUNS, errors
    assert lost == [[] for _ in folders], errors
    assert sum(replans) > len(folders) * 2, "the plan was hardly replanned: the race did not happen"

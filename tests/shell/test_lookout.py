"""What a glance at the folder of a run sees, and when its driver reads the folder again."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfs.engine.driver import Glance, Lookout, glance
from agentfs.storage.timing import Timing
from tests.shell.test_managed_runs import make_run


@pytest.mark.parametrize(
    "what",
    ["steps/a.1.reply.md", "planning/1.reply-2.md", "plan.json", "goal.md", "run.json", "outcome.json", "replan.md"],
)
def test_a_glance_sees_what_people_write_and_write_again(tmp_path: Path, what: str) -> None:
    run = make_run(tmp_path, "job")
    first = glance(run)
    assert glance(run, first) == first
    (run / what).write_text("something longer")
    second = glance(run, first)
    assert (second.files, second.replies) != (first.files, first.replies)
    (run / what).write_text("something else, and longer")
    assert glance(run, second) != second


def test_a_glance_at_nothing(tmp_path: Path) -> None:
    found = glance(tmp_path / "nowhere")
    assert (set(found.files), found.folders, found.replies) == ({None}, (0, 0), {})


class Looked:
    """A driver that counts how often it is to look again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.times = folder, 0
        self.facts = SimpleNamespace(run=SimpleNamespace(parent=None), attempts={})

    def look_again(self) -> None:
        self.times += 1


def test_an_active_run_is_read_again_for_what_people_write_and_later_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfs.engine.driver.TIMING", Timing())
    driver = Looked(make_run(tmp_path, "job"))
    lookout = Lookout(driver, Glance((), (), {}), acted_at=0.0, read_at=0.0)  # type: ignore[arg-type]
    for part in ("steps", "planning"):
        os.utime(driver.folder / part, (1, 1))  # long ago
    lookout.look(5.0)
    lookout.look(6.0)
    assert driver.times == 1
    lookout.acted_at = 10.0
    (driver.folder / "steps" / "a.1.result.json").touch()
    os.utime(driver.folder / "steps", (2, 2))
    lookout.look(10.5)
    assert driver.times == 1  # its own doing
    (driver.folder / "steps" / "a.1.again.md").touch()
    os.utime(driver.folder / "steps", (3, 3))
    lookout.look(10.6)
    assert driver.times == 2
    (driver.folder / "steps" / "b.1.result.json").touch()
    os.utime(driver.folder / "steps", (4, 4))
    lookout.look(10.9)
    assert driver.times == 2
    lookout.look(11.1)  # quiet for a second
    assert driver.times == 3
    (driver.folder / "steps" / "c.1.result.json").touch()  # now: another file may follow within the same tick
    lookout.look(20.0)
    lookout.look(21.0)
    assert driver.times == 5

"""A plan that was put in place, and a person who saves on top of it before it has a number."""

import json
from contextlib import ExitStack
from pathlib import Path

from agentfs.core.actions import Action, InstallPlan
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import Stop
from agentfs.engine.perform import turn
from agentfs.engine.world import open_driver, open_world
from agentfs.storage.workspace import load_settings
from tests.drives import Driven
from tests.workspaces import wait_for


def test_what_was_put_in_place_gets_its_number_before_what_was_saved_on_top(tmp_path: Path) -> None:
    driven, stop = Driven(tmp_path / "work"), Stop()
    goal = driven.workspace.root / "job.json"
    goal.write_text(json.dumps({"goal": "Tidy", "steps": [{"id": "a", "tool": "note", "input": {"text": "a"}}]}))
    settings = load_settings(driven.workspace.settings, driven.environment)
    with (
        open_world(driven.workspace, settings, driven.environment, lambda _words: None, stop.wake.set) as world,
        ExitStack() as stack,
    ):
        driver = open_driver(driven._taken(goal, stack), world)
        wait_for(
            lambda: any(isinstance(action, InstallPlan) for action in _actions(driver)), "the plan to be put in place"
        )
        plan = driver.folder / "plan.json"
        placed = plan.read_text()
        plan.write_text(placed.replace('"text": "a"', '"text": "mine"'))
        driver.look_again()
        wait_for(lambda: _turned(driver) == 2, "both revisions")
        records = [json.loads((driver.folder / f"revisions/{number}.json").read_text()) for number in (1, 2)]
        assert [(record["by"]["role"], record["call"]) for record in records] == [("runbook", 1), ("person", None)]
        assert (driver.folder / "revisions" / "1.plan.json").read_text() == placed
        assert records[1]["changes"] == [{"step": "a", "what": "input changed"}]


def _actions(driver: Driver) -> list[Action]:
    turn(driver)
    return driver.actions


def _turned(driver: Driver) -> int:
    driver.look_again()
    turn(driver)
    return len(driver.facts.revisions)

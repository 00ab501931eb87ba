"""End a run that a person has cancelled and that nobody drives.

Whatever a dead driver left is ended and settled as ever, and the outcome is committed. Nothing is started: there are
no tools in this world, no sandbox and no model.
"""

from pathlib import Path

from agentfs.core.config import Settings
from agentfs.core.decide import EndRun
from agentfs.core.records import Outcome
from agentfs.core.run_state import derive
from agentfs.engine.driver import Driver
from agentfs.engine.means import reader_for
from agentfs.engine.perform import perform
from agentfs.engine.status_page import StatusFile
from agentfs.engine.world import Say, idle_world, planner_for, take_charge
from agentfs.storage.locks import locked
from agentfs.storage.workspace import Workspace

BY_HAND = EndRun("cancelled", "cancelled", "a person cancelled it")


def end_cancelled(folder: Path, workspace: Workspace, settings: Settings, say: Say) -> Outcome | None:
    """Return how the run ended; None where another process drives it, or its plan no longer says cancelled."""
    with locked(folder) as mine:
        if not mine:
            return None
        with idle_world(workspace, settings, folder, say) as world:
            reader = reader_for(folder, settings, patient=False)
            driver = Driver(folder, reader, world, planner_for(folder, reader, world), places=1)
            if driver.facts.outcome is None and is_to_end(driver):
                take_charge(driver)
                _end(driver)
                StatusFile(folder).keep(derive(driver.facts, world.means), now=True)
            return driver.facts.outcome


def is_to_end(driver: Driver) -> bool:
    """Whether a person has cancelled the run; one that has no plan yet is not asked."""
    plan = driver.facts.plan_file.plan or driver.facts.plan
    return plan is None or plan.status == "cancelled"


def _end(driver: Driver) -> None:
    if driver.facts.plan is None and driver.facts.plan_file.plan is None:
        perform(BY_HAND, driver)
        return
    while driver.facts.outcome is None:
        before = driver.facts
        driver.turn()
        if driver.facts is before:
            return  # plan.json is being changed: its writer may want something else

"""End a run that a person has cancelled and that nobody drives.

Whatever a dead driver left is ended and recorded as ever, and the outcome is committed. Nothing is started: there are
no tools in this world, no sandbox and no model.
"""

import time
from collections.abc import Callable
from pathlib import Path

from agentfs.core.actions import EndRun
from agentfs.core.config import Settings
from agentfs.core.records import Outcome
from agentfs.core.run_state import derive
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import open_children
from agentfs.engine.means import reader_for
from agentfs.engine.perform import perform
from agentfs.engine.status_page import StatusFile
from agentfs.engine.world import Say, idle_world, planner_for, take_charge
from agentfs.storage.locks import locked
from agentfs.storage.timing import TIMING
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
                _announce_orphans(driver, say)
                _end(driver, lambda child: end_cancelled(child, workspace, settings, say) is not None)
                StatusFile(folder).keep(derive(driver.facts, world.means), now=True)
            return driver.facts.outcome


def _announce_orphans(driver: Driver, say: Say) -> None:
    """Say what has to have ended at a place before the run can."""
    for key, job in driver.jobs.items():
        if job.place is not None:
            words = f"{key.step}.{key.number} may still run at {job.place}, and its driver is gone"
            say(f"{words}: waiting {TIMING.place_orphan:g} s, in which it ends itself")


def is_to_end(driver: Driver) -> bool:
    """Whether a person has cancelled the run, or the one that it is in; one that has no plan yet is not asked."""
    if driver.facts.above == "cancelled":
        return True
    plan = driver.facts.plan_file.plan or driver.facts.plan
    return plan is None or plan.status == "cancelled"


def _end(driver: Driver, end_child: Callable[[Path], bool]) -> None:
    if driver.facts.plan is None and driver.facts.plan_file.plan is None:
        perform(BY_HAND, driver)
        return
    while driver.facts.outcome is None:
        before = driver.facts
        driver.turn()
        _finish_jobs(driver)
        children = [driver.folder.parents[1] / run for run in open_children(driver.facts)]
        ended = [folder for folder in children if end_child(folder)]
        if ended:
            driver.look_again()
        elif driver.facts is before:
            return  # plan.json is being changed: its writer may want something else; or another process has a child


def _finish_jobs(driver: Driver) -> None:
    """Wait until what was begun is over: what a run that has ended leaves to record."""
    while driver.jobs:
        time.sleep(TIMING.poll)
        driver.turn()

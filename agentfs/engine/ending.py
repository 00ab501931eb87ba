"""End a run that a person has cancelled and that nobody drives.

Whatever a dead driver left is ended and recorded as ever, and the outcome is committed. Nothing is started: there are
no tools in this world, no sandbox and no model.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agentfs.core.actions import EndRun
from agentfs.core.config import Settings
from agentfs.core.records import Outcome, Sandbox
from agentfs.core.run_state import derive
from agentfs.engine import children
from agentfs.engine.driver import Driver, World, open_children
from agentfs.engine.means import means_of, means_with, run_record
from agentfs.engine.perform import perform, turn
from agentfs.engine.run_reader import reader_for
from agentfs.engine.status_page import StatusFile
from agentfs.engine.world import Say, committing, end_notifier, planner_for, take_over
from agentfs.storage.clock import Clock
from agentfs.storage.installation import searched_path
from agentfs.storage.locks import locked
from agentfs.storage.pool import Pool
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace
from agentfs.tools import sandbox
from agentfs.tools.registry import Toolbox, known_tools
from agentfs.tools.secrets import mask_for

BY_HAND = EndRun("cancelled", "cancelled", "a person cancelled it")


def end_cancelled(folder: Path, workspace: Workspace, settings: Settings, say: Say) -> Outcome | None:
    """Return how the run ended; None where another process drives it, or its plan no longer says cancelled."""
    with locked(folder) as mine:
        if not mine:
            return None
        with _idle_world(workspace, settings, folder, say) as world:
            reader = reader_for(folder, settings, patient=False)
            driver = Driver(folder, reader, world, planner_for(folder, reader, world), places=1)
            if driver.facts.outcome is None and is_to_end(driver):
                take_over(driver)
                _announce_orphans(driver, say)
                _end(driver, lambda child: end_cancelled(child, workspace, settings, say) is not None)
                StatusFile(folder).keep(derive(driver.facts, world.means), now=True)
            return driver.facts.outcome


@contextmanager
def _idle_world(workspace: Workspace, settings: Settings, folder: Path, say: Say) -> Iterator[World]:
    """Yield a world in which one run can be ended, and nothing started; at the end that is committed."""
    environment, run, clock = dict(os.environ), run_record(folder), Clock()
    starting = {**environment, "PATH": searched_path(environment)}
    mask = mask_for(settings, environment, {})
    on_end = end_notifier(settings, workspace, starting, say, mask, clock)
    with (
        ExitStack() as commands,
        committing(workspace, settings, say) as (committer, author),
        Pool(1, "idle") as pool,
    ):
        if on_end:
            commands.callback(on_end.close)
        yield World(
            workspace=workspace.root,
            settings=settings,
            environment=environment,
            clock=clock,
            pool=pool,
            calls=pool,
            toolbox=Toolbox({}),
            means=means_of(run, means_with(known_tools(workspace.root, run.tools).specs)),
            committer=committer,
            begin_child=children.begin,
            finish_child=children.finish,
            mask=mask,
            sandbox=_confinement(settings),
            person=author,
            wake=lambda: None,
            on_end=on_end,
        )


def _confinement(settings: Settings) -> Sandbox:
    """Return how programs would be confined; nothing is started, so nobody is warned."""
    return "none" if settings.tools.sandbox == "off" or sandbox.unavailable_because() else "bubblewrap"


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
        turn(driver)
        _finish_jobs(driver)
        below = [driver.folder.parents[1] / run for run in open_children(driver.facts)]
        ended = [folder for folder in below if end_child(folder)]
        if ended:
            driver.look_again()
        elif driver.facts is before:
            return  # plan.json is being changed: its writer may want something else; or another process has a child


def _finish_jobs(driver: Driver) -> None:
    """Wait until what was begun is over: what a run that has ended leaves to record."""
    while driver.jobs:
        time.sleep(TIMING.poll)
        turn(driver)

"""Drive every run of a workspace in one process, and take the goals that are dropped into goals/.

    loop:  take in what happened ─► do what is due by the clock ─► turn the runs that have something to do ─► wait

Nothing is remembered that files do not say: the runs to drive are those without an outcome whose lock can be had.
Every open run and goals/ are looked at all the time; events of goals/ only make that quicker. This thread decides
which runs have their turns, hands out the places for attempts, and does all that runs share; a few runs are turned at
the same time, each by one thread. Attempts run on the pool they share. A run that fails is set aside, alone.
"""

import gc
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentfs.daemon.inbox import Inbox, Intake
from agentfs.daemon.reporter import Reporter
from agentfs.daemon.runs import NEVER, EndedRuns, FailedRuns, ManagedRun, describe, share_places
from agentfs.daemon.schedules import Timetable
from agentfs.engine.driver import BegunRun, Glance, World, glance
from agentfs.engine.foreground import Stop
from agentfs.engine.world import open_driver
from agentfs.errors import UserError, Watched
from agentfs.ledger import Ledger, LedgerError
from agentfs.ledger.maintenance import Maintenance, Upkeep
from agentfs.storage.completeness import ignore_lease_signal
from agentfs.storage.locks import HeldFolder, locked
from agentfs.storage.pool import Pool
from agentfs.storage.timing import TIMING
from agentfs.storage.watcher import FolderWatch
from agentfs.storage.workspace import Workspace, ended_runs, is_open, open_runs

AT_ONCE = 4  # runs turned, or goals taken, at the same time; more would only wait for the interpreter
PAGES_AT_ONCE = 4
ENOUGH_TO_DO = 32  # runs that have something to do, or wait for a place: while there are more, goals come one by one
COLLECT_IDLE, COLLECT_BUSY = 10, 3000  # passes over younger objects before a full collection
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Unopened:
    """Why a run could not be opened, and how its folder was before that."""

    error: Exception
    seen: Glance


class Daemon:
    """Drives many runs until it is asked to stop."""

    def __init__(self, workspace: Workspace, world: World, inbox: Inbox, stop: Stop, reporter: Reporter) -> None:
        self.workspace, self.world = workspace, world
        self.stop, self.reporter = stop, reporter
        self.goals, self.intake = HeldFolder(inbox.folder), Intake(inbox, reporter)
        self.timetable = Timetable(inbox, reporter)
        self.runs: dict[Path, ManagedRun] = {}
        self.ended, self.failed = EndedRuns(reporter), FailedRuns(reporter)
        self.elsewhere: set[Path] = set()  # runs that another process drives
        self.upkeep = Upkeep(Maintenance(workspace.runs), reporter.report)
        self.fatal: UserError | None = None
        self._watch: FolderWatch | None = None  # None: no events are asked for
        self._watching = ExitStack()
        self._runs_id, self._has_runs = _identify(workspace.runs), True
        self._woken: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._threads, self._reporting = Pool(AT_ONCE - 1, "turn"), threading.Lock()
        self._rescan_at = self._glance_at = self._take_at = 0.0
        self._is_crowded = False

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────

    def run(self, *, poll: bool, wait: bool = False) -> None:
        """Drive until asked to stop and nothing runs any more. `wait`: for another daemon to end first."""
        if not self._hold_goals(wait=wait):
            return
        try:
            self._begin(poll=poll)
            while not (self.stop.asked and not self._has_jobs()):
                self._receive()
                self._do_what_is_due()
                if not self._turn_runs():
                    self.stop.wake.wait(self._idle_seconds())
                self.stop.wake.clear()
        finally:
            self._leave()
        if self.fatal is not None:
            raise self.fatal

    def _hold_goals(self, *, wait: bool) -> bool:
        """Lock goals/, which one daemon has at a time; return whether that is done: a stop may be asked before."""
        while not self.stop.asked:
            try:
                self.goals.take()
            except Watched as other:
                if not wait:
                    raise Watched(f"{other}; `agentfs watch --wait` takes over when that one ends") from None
                self.reporter.report_once(f"waiting: {other}")
                self.stop.wake.wait(TIMING.glance)
                self.stop.wake.clear()
            else:
                return True
        return False

    def _begin(self, *, poll: bool) -> None:
        ignore_lease_signal()  # only the main thread can
        gc.freeze()  # with fifty long runs a full collection takes a second, in which all wait
        gc.set_threshold(*gc.get_threshold()[:2], 1_000_000_000)
        is_polling, folder = poll or not self._watch_goals(), self.goals.path
        words = f"{'looking every second' if is_polling else 'watching'}: drop goals into {folder}"
        self.reporter.report("watching", words, goals=str(folder), polling=is_polling, pid=os.getpid())
        self.intake.begin()
        ended = ended_runs(self.workspace.runs)
        for folder in ended:
            self.ended.add(folder)
        self.world.committer.look_through(reversed(ended))
        if self.world.on_end:
            self.world.on_end.make_up(ended)

    def _watch_goals(self) -> bool:
        """Ask for events of goals/, which may be another folder than before; return whether all of them come."""
        self._watching.close()
        self._watch = self._watching.enter_context(FolderWatch([self.goals.path], self.stop.wake.set))
        if self._watch.no_events:
            self.reporter.report("polling", f"goals/ is looked at every second: {self._watch.no_events}")
        return not self._watch.no_events

    def _receive(self) -> None:
        """Take in what happened since the last time: events, reports, signals."""
        if self._watch is not None and self._watch.seen():
            self.intake.due = 0.0
        if self._watch is not None and self._watch.overflowed:
            self._watch.overflowed = False
            self.reporter.note("event queue overflowed; rescanning")
            self.intake.due = self._rescan_at = 0.0
        while not self._woken.empty():
            run = self.runs.get(self._woken.get())
            if run is not None and not run.is_leaving:
                run.due = min(run.due, time.monotonic())
        if self.stop.asked > 1:
            for run in self.runs.values():
                run.driver.stop_all()
        if self.stop.asked != self.stop.announced:
            self.stop.announced = self.stop.asked
            if self._has_jobs():
                gently = "what runs finishes; Ctrl-C again ends it"
                self.reporter.report("stopping", gently if self.stop.asked == 1 else "what runs is being ended")

    def _do_what_is_due(self) -> None:
        now, pages = time.monotonic(), PAGES_AT_ONCE
        if now >= self._glance_at:
            self._glance_at = now + TIMING.glance
            self._glance(now)
        if now >= self._rescan_at:
            self._rescan_at = now + TIMING.rescan
            self._rescan()
        for run in list(self.runs.values()):
            if run.is_leaving and not run.is_busy:
                self._close(run)
                continue
            if run.look_at <= now:
                run.look_at, run.due = NEVER, min(run.due, now)
                run.driver.look_again()
            if run.page_at <= now and pages:
                pages -= 1
                self._write_page(run)
        if not self.stop.asked:
            self._take_goals(now)
            self._manage(self.timetable.take(now))
        self._manage(self.world.take_begun())
        is_idle = self._is_idle()
        self.upkeep.tend(idle=is_idle)
        if gc.get_count()[2] > (COLLECT_IDLE if is_idle else COLLECT_BUSY):
            gc.collect()

    def _take_goals(self, now: float) -> None:
        """Make runs of goals: a few at a time, or one now and then while there is much to do already."""
        waiting = sum(run.due <= now or run.waits_since < NEVER for run in self.runs.values())
        self._is_crowded = waiting > ENOUGH_TO_DO
        if not self._is_crowded or now >= self._take_at:
            self._take_at = now + TIMING.crowded
            self._manage(self.intake.take(1 if self._is_crowded else AT_ONCE, self._at_once))

    def _has_jobs(self) -> bool:
        """Whether anything is under way, or its news was not taken in yet."""
        return any(run.driver.jobs for run in self.runs.values())

    def _is_idle(self) -> bool:
        """Whether nothing runs, here or driven by another process, and nothing waits for its commit."""
        if self.stop.asked or self.elsewhere or self.intake.is_busy or not self.world.committer.is_idle():
            return False
        now = time.monotonic()
        return not any(run.driver.jobs or run.due <= now or run.look_at < NEVER for run in self.runs.values())

    def _idle_seconds(self) -> float:
        """Return for how many seconds there is nothing to do unless something happens."""
        moments = [self._rescan_at, self._glance_at]
        for run in self.runs.values():
            moments += (run.due, run.look_at, run.page_at)
        if not self.stop.asked:
            due = 0.0 if self.intake.is_busy else self.intake.due
            moments.append(max(due, self._take_at) if self._is_crowded else due)
        return max(0.0, min(moments) - time.monotonic())

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────

    def _glance(self, now: float) -> None:
        """Look at goals/ and runs/ themselves, at every open run, and at those that may have to be driven again."""
        self._check_folders()
        for run in sorted(self.runs.values(), key=lambda run: run.lookout.glanced_at):
            run.lookout.look(now)
            if time.monotonic() > now + TIMING.glance_longest:
                break
        self.ended.report_edits()
        if not self.stop.asked:
            elsewhere, self.elsewhere = self.elsewhere, set()
            for folder in (*self.ended.take_reopened(), *self.failed.changed(), *elsewhere):
                self._try(folder)

    def _check_folders(self) -> None:
        """Notice when goals/ or runs/ is another folder by now: it may be moved, deleted or replaced."""
        if self.fatal is not None:
            return
        try:
            if not self.goals.is_there():
                self.goals.take()
                words = "goals/ was moved or deleted: the folder that is there now is the one being watched"
                self.reporter.note(words)
                if self._watch is not None:
                    self._watch_goals()
                self.intake.begin()
            self._check_runs()
        except UserError as error:
            self.fatal = error
            self.stop.ask(2)
        except LedgerError as error:
            self.reporter.report_once(str(error))

    def _check_runs(self) -> None:
        found, were_there = _identify(self.workspace.runs), self._has_runs
        self._has_runs = found is not None
        if found is None:
            if were_there:
                words = "runs/ was moved or deleted, so its runs are not driven; the next goal makes a new one"
                self.reporter.note(words)
        elif found != self._runs_id:
            Ledger.create(self.workspace.runs)
            self._runs_id, self._rescan_at = found, 0.0
            words = "runs/ is another folder now: the runs in it are driven, and it has a ledger of its own"
            self.reporter.note(words)

    def _rescan(self) -> None:
        """Find runs that nobody drives, and those of ours that are gone."""
        there = set(open_runs(self.workspace.runs))
        for folder in sorted(there - self.runs.keys()):
            if not self.stop.asked:
                self._try(folder)
        for folder in self.runs.keys() - there:
            self.runs[folder].driver.look_again()  # ended by another hand, or gone
        self.failed.keep_only(there)
        self.elsewhere &= there

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────

    def _try(self, folder: Path) -> None:
        """Drive a run if nobody else does, and if it is not one that has failed and is as it was."""
        if folder in self.runs or not self.failed.may_be_tried(folder):
            return
        hold = ExitStack()
        try:
            is_mine = hold.enter_context(locked(folder))
        except OSError as error:
            self.failed.add(folder, error)
            return
        if not is_mine:
            self.elsewhere.add(folder)
        if is_mine and is_open(folder):
            self._manage([(folder, hold)])
        else:
            hold.close()

    def _manage(self, begun: Sequence[BegunRun]) -> None:
        """Drive these runs from now on; their locks are held."""
        for (folder, hold), run in zip(begun, self._at_once(self._open, begun), strict=True):
            if isinstance(run, _Unopened):
                hold.close()
                self.failed.add(folder, run.error, run.seen)
                continue
            self.failed.remove(folder)
            self.runs[folder] = run
            self.reporter.report_opened(run.driver)
            if run.driver.is_restless:
                run.look_at = time.monotonic() + TIMING.restless

    def _open(self, begun: BegunRun) -> "ManagedRun | _Unopened":
        """Take a run over, or return what is in the way."""
        folder, hold = begun
        seen = glance(folder)
        try:
            world = replace(self.world, wake=partial(self._wake, folder))
            return ManagedRun.of(open_driver(folder, world), hold, seen)
        except Exception as error:  # noqa: BLE001 - one broken run never holds up another
            return _Unopened(error, seen)

    def _wake(self, folder: Path) -> None:
        self._woken.put(folder)
        self.stop.wake.set()

    def _turn_runs(self) -> bool:
        """Turn a few runs, each with as many places as is fair; return whether there were any."""
        draining, take_turns = self.stop.asked > 0, ManagedRun.take_turns
        runs = self._next_runs(0 if draining else self.world.settings.limits.parallel)
        for run in runs:
            run.due = NEVER
        self._at_once(lambda run: take_turns(run, draining=draining, report=self._report), runs)
        for run in runs:
            if (error := run.driver.trouble) is not None:
                self._give_up(run, error)
            else:
                self._plan_next(run)
        return bool(runs)

    def _next_runs(self, places: int) -> list[ManagedRun]:
        """Return the runs that have something to do, the longest waiting first, and hand out the places.

        A run that could start more attempts than it may waits in line. A free place goes to the run that holds
        fewest, of these to the first in line: no run goes beyond an equal share while another has a use for one.
        """
        now = time.monotonic()
        runs = [run for run in self.runs.values() if not run.is_leaving]
        waiting = [run for run in runs if run.due <= now or run.waits_since < NEVER]
        waiting.sort(key=lambda run: run.place_order)
        free = places - sum(run.driver.at_work() for run in self.runs.values())
        may_start = set(share_places(waiting, free))
        ready = [run for run in waiting if run.due <= now or run in may_start]
        return sorted(ready, key=lambda run: min(run.due, run.waits_since))[:AT_ONCE]

    def _at_once(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Do this with each at the same time, and return what came of it when all is done."""
        others = [self._threads.submit(work, item) for item in items[1:]]
        return [*map(work, items[:1]), *(other.result() for other in others)]

    def _report(self, run: ManagedRun) -> None:
        with self._reporting:
            self.reporter.report_turn(run.driver, run.reported)

    def _plan_next(self, run: ManagedRun) -> None:
        """Decide when a run has its next turns."""
        now = run.lookout.acted_at = time.monotonic()
        if run.driver.has_ended:
            self.reporter.report_end(run.driver)
            self._close(run)
            self.ended.add(run.folder)
            self._wake_parent(run)
            return
        run.page_at = min(run.page_at, now + TIMING.status_page)
        if not run.driver.has_to_wait:
            run.due = now
        elif run.driver.is_restless:
            run.look_at = min(run.look_at, now + TIMING.restless)
        if (due := run.driver.due_in()) is not None:  # looked at again now and then: the clock may be set
            run.due = min(run.due, now + min(max(due, TIMING.shortest), TIMING.rescan))
        if wait := run.new_wait():
            self._write_page(run)
            self.reporter.report_wait(run.driver, wait)

    def _wake_parent(self, run: ManagedRun) -> None:
        """Have the run look again that one was a step of."""
        parent = run.driver.facts.run.parent
        above = self.runs.get(self.workspace.runs / parent.run) if parent else None
        if above is not None:
            above.driver.look_again()

    def _write_page(self, run: ManagedRun, *, driven: bool = True) -> None:
        soon = time.monotonic() + TIMING.status_page
        run.page_at = soon if run.is_busy else NEVER  # its logs grow, without any event
        try:
            run.status.keep(run.driver.state, now=True, driven=driven)
        except OSError as error:
            self.reporter.report_once(f"{run.driver.facts.run.run}: STATUS.md cannot be written: {describe(error)}")

    # ── letting go ────────────────────────────────────────────────────────────────────────────────────────

    def _give_up(self, run: ManagedRun, error: BaseException) -> None:
        """Set a run aside; it is closed once what it has under way is over."""
        run.is_leaving = True
        run.driver.stop_all()
        self.failed.add(run.folder, error)
        if not run.folder.exists():
            self._rescan_at = 0.0  # it may be there under another name
        if not run.is_busy:
            self._close(run)

    def _close(self, run: ManagedRun) -> None:
        """Let go of a run, and of its lock."""
        if not run.is_leaving:
            self._write_page(run, driven=False)
        del self.runs[run.folder]
        self.world.toolbox.run_ended(run.folder)
        run.hold.close()

    def _leave(self) -> None:
        self.upkeep.close()
        for _, hold in self.world.take_begun():
            hold.close()
        for run in list(self.runs.values()):
            run.driver.stop_all()  # whatever went wrong, nothing is left running that nobody looks after
            with suppress(OSError):
                self._close(run)
        self._threads.shutdown()
        self._watching.close()
        self.goals.release()


def _identify(folder: Path) -> tuple[int, int] | None:
    """Return what distinguishes a folder from another of the same name; None if there is none."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)

"""Drive every run of a workspace in one process, and take the goals that are dropped into goals/.

Nothing is remembered that files do not say: the runs to drive are those without an outcome whose lock can be had.
Events only wake; a scan at the start and every ten seconds finds what they missed. One thread decides whose turn it
is, and waits for the few that have theirs at the same time; attempts run on the pool they share. A run that fails in
a way of its own is set aside, alone.
"""

import os
import queue
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from agentfs import bursts
from agentfs.bursts import Burst, Together
from agentfs.core.config import Settings
from agentfs.core.decide import Action, Wait
from agentfs.door import AT_ONCE, Begun, Door
from agentfs.driving import RESCAN_SECONDS, RESTLESS_SECONDS, SHORTEST_SECONDS, Stop
from agentfs.ears import Ears
from agentfs.ended import Ended, ended_runs
from agentfs.engine import World
from agentfs.errors import UserError
from agentfs.garbage import Garbage
from agentfs.inbox import Inbox
from agentfs.ledger import LedgerError, Maintenance
from agentfs.locks import locked
from agentfs.roots import Roots
from agentfs.seats import Seat, is_open, open_runs
from agentfs.setaside import SetAside, in_words
from agentfs.stillness import ignore_lease_signal
from agentfs.turns import Turns
from agentfs.ui.progress import Teller
from agentfs.upkeep import Upkeep
from agentfs.watching import folders_of
from agentfs.workspace import Workspace
from agentfs.world import open_driver

GLANCE_SECONDS = 1.0  # how often what is not watched is looked at
PAGE_SECONDS = 1.0  # how old STATUS.md may be
SLICE_SECONDS = 0.03  # of turns, before goals/ is looked at again
PAGES_AT_ONCE = 4
ENOUGH_TO_DO = 32  # runs that have something to do, or wait for a place: while there are more, goals come one by one
CROWDED_SECONDS = 0.1  # from one to the next then: what is begun is ended first, and nobody is kept out


class Daemon:
    """Drives many runs until it is asked to stop."""

    def __init__(
        self, workspace: Workspace, settings: Settings, world: World, inbox: Inbox, stop: Stop, teller: Teller
    ) -> None:
        self.workspace, self.settings, self.world, self.stop, self.teller = workspace, settings, world, stop, teller
        self.ears = Ears(teller)
        self.door = Door(inbox, teller, self.ears.saw)
        self.roots = Roots(inbox.folder, workspace.runs, teller)
        self.seats: dict[Path, Seat] = {}
        self.by_folder: dict[str, Seat] = {}  # the folders of a run that are watched
        self.ready: dict[Path, None] = {}  # to be turned, in this order
        self.turns, self.together = Turns(settings.limits.parallel), Together()
        self.upkeep = Upkeep(Maintenance(workspace.runs), teller.tell)
        self.garbage = Garbage()
        self.ended, self.aside = Ended(teller), SetAside(teller)
        self.pages: dict[Path, float] = {}  # when STATUS.md is due
        self.elsewhere: set[Path] = set()  # runs that another process drives
        self.soon: dict[Path, float] = {}  # when to look again though nothing is heard
        self.due: dict[Path, float] = {}  # when a run may have something to do that waited for its time
        self.fatal: UserError | None = None
        self._woken: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._rescan_at = self._glance_at = self._let_in_at = 0.0

    @property
    def goals(self) -> Path:
        return self.door.inbox.folder

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────

    def run(self, *, poll: bool) -> None:
        """Drive until asked to stop and nothing runs any more."""
        self.roots.take()
        try:
            self._begin(poll=poll)
            while not (self.stop.asked and not self._has_jobs()):
                self._heed()
                self._tend()
                if not self._work():
                    self.stop.wake.wait(self._patience())
                self.stop.wake.clear()
        finally:
            self._leave()
        if self.fatal is not None:
            raise self.fatal

    def _begin(self, *, poll: bool) -> None:
        ignore_lease_signal()  # only the main thread can
        if not poll:
            self.ears.begin(self.stop.wake.set)
        self.ears.attend(self.goals)
        polling = self.ears.deaf_to_goals
        words = f"{'looking every second' if polling else 'watching'}: drop goals into {self.goals}"
        self.teller.tell("watching", words, goals=str(self.goals), polling=polling, pid=os.getpid())
        self.door.open()
        ended = ended_runs(self.workspace.runs)
        for folder in ended:
            self.ended.add(folder)
        self.world.keeper.look_through(reversed(ended))

    def _heed(self) -> None:
        """Take in what was heard since the last time."""
        for path in self.ears.heard(str(self.goals)):
            parent = os.path.dirname(path)
            if parent == str(self.goals):
                self.door.look_again()
            elif seat := self.by_folder.get(parent):
                seat.hear(path)
        while not self._woken.empty():
            folder = self._woken.get()
            if folder in self.seats:
                self.ready[folder] = None
        if self.stop.asked > 1:
            for seat in self.seats.values():
                seat.driver.stop_all()
        if self.stop.asked != self.stop.told:
            self._say_stopping()

    def _say_stopping(self) -> None:
        self.stop.told = self.stop.asked
        if self._has_jobs():
            gently = "what runs finishes; Ctrl-C again ends it"
            self.teller.tell("stopping", gently if self.stop.asked == 1 else "what runs is being ended")

    def _tend(self) -> None:
        """Do what is due by the clock."""
        now = time.monotonic()
        if now >= self._glance_at:
            self._glance_at = now + GLANCE_SECONDS
            self._glance()
        if now >= self._rescan_at or self.ears.lost:
            self._rescan(everything=self.ears.lost or not self._rescan_at)
            self._rescan_at = time.monotonic() + RESCAN_SECONDS
        for folder in [folder for folder, moment in self.soon.items() if moment <= now]:
            del self.soon[folder]
            self.seats[folder].driver.look_again()
        for folder in [folder for folder, moment in self.due.items() if moment <= now]:
            del self.due[folder]
            self.ready[folder] = None
        for folder in [folder for folder, moment in self.pages.items() if moment <= now][:PAGES_AT_ONCE]:
            self._keep_page(self.seats[folder])
        if self.stop.asked == 0:
            self._let_in(now)
        idle = self._is_idle()
        self.upkeep.tend(idle=idle)
        self.garbage.tend(idle=idle)

    def _let_in(self, now: float) -> None:
        """Make runs of goals: a few at a time, or one now and then while there is much to do already."""
        crowded = self._is_crowded()
        if crowded and now < self._let_in_at:
            return
        self._let_in_at = now + CROWDED_SECONDS
        pause = GLANCE_SECONDS if self.ears.deaf_to_goals else RESCAN_SECONDS
        self._sit(self.door.let_in(pause, self.together, most=1 if crowded else AT_ONCE))

    def _is_crowded(self) -> bool:
        return len(self.ready) + len(self.turns.line) > ENOUGH_TO_DO

    def _has_jobs(self) -> bool:
        """Whether anything is under way, or its news was not taken in yet."""
        return any(seat.driver.jobs for seat in self.seats.values())

    def _is_idle(self) -> bool:
        """Whether nothing runs, here or driven by another process, and nothing is owed to the ledger."""
        at_work = self.turns.busy or self.ready or self.soon or self.door.is_busy or self.stop.asked or self.elsewhere
        return not at_work and self.world.keeper.is_idle() and not self._has_jobs()

    def _glance(self) -> None:
        """See to what no event tells of: goals/ and runs/ themselves, runs that are gone, mended or reopened."""
        self._hold_on_to_roots()
        if self.ears.check():
            self.door.look_again()
            for seat in self.seats.values():
                seat.watched = False
        for seat in self.seats.values():
            self._attend(seat)
            seat.check()
        for seat in self._longest_unseen():
            seat.peek()
        self.ended.tell_of_edits()
        if self.stop.asked == 0:
            let_go, self.elsewhere = filter(is_open, self.elsewhere), set()
            for folder in (*self.ended.reopened(), *self.aside.changed(), *let_go):
                self._try(folder)

    def _longest_unseen(self) -> list[Seat]:
        """Return the runs to be looked at though nothing was heard: in ten seconds all of them, never all at once."""
        before = time.monotonic() - RESCAN_SECONDS
        due = sorted((seat for seat in self.seats.values() if seat.looked <= before), key=lambda seat: seat.looked)
        return due[: 1 + int(len(self.seats) * GLANCE_SECONDS // RESCAN_SECONDS)]

    def _attend(self, seat: Seat) -> None:
        """Listen to a run that takes longer than a moment: to begin and to end that costs as much as ten steps."""
        if not seat.attended and time.monotonic() >= seat.since + GLANCE_SECONDS:
            seat.attended = True
            seat.watched = self.ears.attend_run(seat.folder, seat.hold)
            seat.peek()

    def _work(self) -> bool:
        """Turn some drivers; return whether there is more to do at once."""
        end = time.monotonic() + SLICE_SECONDS
        while self._turn(self._ready()) | self._turn(self._in_line()):
            if time.monotonic() >= end:
                break
        return bool(self.ready or not self._woken.empty())

    def _ready(self) -> list[Burst]:
        """Return the turns of runs that have something to do, or may have."""
        seats = [self.seats[folder] for folder in islice(self.ready, bursts.AT_ONCE)]
        for seat in seats:
            del self.ready[seat.folder]
            if seat.leaving and not seat.is_busy:
                self._close(seat)
        staying = [seat for seat in seats if not seat.leaving]
        return [self._burst(seat, together=len(staying) - before) for before, seat in enumerate(staying)]

    def _in_line(self) -> list[Burst]:
        """Return the turns of runs that could start more, for which there are places now."""
        found: list[Burst] = []
        while len(found) < bursts.AT_ONCE and not self.stop.asked and (seat := self.turns.next()) is not None:
            found.append(self._burst(seat, first=True))
        return found

    def _burst(self, seat: Seat, *, together: int = 1, first: bool = False) -> Burst:
        return Burst(seat, self.turns.take(seat, len(self.seats), together=together, first=first))

    def _patience(self) -> float:
        """Return for how many seconds nothing has to be done unless something is heard."""
        moments = [self._rescan_at, self._glance_at, *self.soon.values(), *self.due.values(), *self.pages.values()]
        if not self.stop.asked:
            due = 0.0 if self.door.is_busy else self.door.due
            moments.append(max(due, self._let_in_at) if self._is_crowded() else due)
        return max(0.0, min(moments) - time.monotonic())

    def _hold_on_to_roots(self) -> None:
        """Notice when goals/ or runs/ is another folder by now."""
        if self.fatal is not None:
            return
        try:
            if self.roots.goals_are_new():
                self.ears.attend(self.goals)
                self.door.open()
            if self.roots.runs_are_new():
                self._rescan_at = 0.0
        except UserError as error:
            self.fatal = error
            self.stop.ask(2)
        except LedgerError as error:
            self.teller.once(str(error))

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────

    def _rescan(self, *, everything: bool) -> None:
        """Find runs that nobody drives, and those of ours that are gone; look at all the others, too, if need be."""
        self.ears.start_over()
        there = set()
        for folder in open_runs(self.workspace.runs):
            there.add(folder)
            if folder not in self.seats and not self.stop.asked:
                self._try(folder)
        for folder, seat in self.seats.items():
            if folder not in there:
                seat.driver.look_again()  # ended by somebody else's hand, or gone
            elif everything:
                seat.peek()
        self.aside.keep_only(there)
        self.elsewhere &= there

    def _try(self, folder: Path) -> None:
        """Drive a run if nobody else does, and if it is not one that has failed and is as it was."""
        if not self.aside.may_be_tried(folder):
            return
        hold = ExitStack()
        try:
            mine = hold.enter_context(locked(folder))
        except OSError as error:
            self.aside.put(folder, error)
            return
        if mine and is_open(folder):
            self._sit([(folder, hold)])
        else:
            hold.close()
        if not mine:
            self.elsewhere.add(folder)

    def _sit(self, begun: list[Begun]) -> None:
        """Drive these runs from now on; their locks are held."""
        for (folder, hold), seat in zip(begun, self.together.each(self._seat, begun), strict=True):
            if isinstance(seat, Exception):
                hold.close()
                self.aside.put(folder, seat)
                continue
            self.aside.forget(folder)
            self.seats[folder] = seat
            self.by_folder.update({str(one): seat for one in folders_of(folder)})
            self.teller.opened(seat.driver)
            self.ready = {folder: None, **self.ready}  # a first order goes before the next one of another run
            if seat.is_restless():
                self.soon[folder] = time.monotonic() + RESTLESS_SECONDS

    def _seat(self, begun: Begun) -> Seat | Exception:
        """Take a run over, or return what is in the way."""
        folder, hold = begun
        try:
            world = replace(self.world, wake=partial(self._wake, folder))
            return Seat.of(open_driver(folder, self.settings, world), hold)
        except Exception as error:  # noqa: BLE001 - one broken run never holds up another
            return error

    def _wake(self, folder: Path) -> None:
        self._woken.put(folder)
        self.stop.wake.set()

    def _turn(self, taken: list[Burst]) -> bool:
        """Turn these runs, with as many places as are their due; return whether there were any."""
        draining = self.stop.asked > 0
        self.together.each(lambda burst: burst.go(draining=draining, tell=self._tell), taken)
        for burst in taken:
            self.turns.give_back(burst)
            if (trouble := burst.seat.driver.trouble) is not None:
                self._give_up(burst.seat, trouble)
            else:
                self._follow_up(burst.seat, burst.actions)
        return bool(taken)

    def _tell(self, seat: Seat, actions: list[Action]) -> None:
        with self.together.one:
            self.teller.turn(seat.driver, actions, seat.settled)

    def _follow_up(self, seat: Seat, actions: list[Action]) -> None:
        """Decide when a run has its next turn."""
        now = time.monotonic()
        if seat.has_ended(actions):
            self.teller.ended(seat.driver)
            self._close(seat)
            self.ended.add(seat.folder)
            return
        self.pages.setdefault(seat.folder, now + PAGE_SECONDS)
        if any(not isinstance(action, Wait) for action in actions):
            self.ready[seat.folder] = None
        elif seat.is_restless():
            self.soon.setdefault(seat.folder, now + RESTLESS_SECONDS)
        if (due := seat.driver.due_in()) is not None:  # looked at again now and then: the clock may be set
            self.due[seat.folder] = now + min(max(due, SHORTEST_SECONDS), RESCAN_SECONDS)
        if rest := seat.waits(actions):
            self._keep_page(seat)
            self.teller.waits(seat.driver, rest)

    def _keep_page(self, seat: Seat, *, driven: bool = True) -> None:
        self.pages.pop(seat.folder, None)
        if seat.is_busy:
            self.pages[seat.folder] = time.monotonic() + PAGE_SECONDS  # its logs grow, of which nothing tells
        try:
            seat.status.keep(seat.driver.state, now=True, driven=driven)
        except OSError as error:
            self.teller.once(f"{seat.driver.facts.run.run}: STATUS.md cannot be written: {in_words(error)}")

    # ── letting go ────────────────────────────────────────────────────────────────────────────────────────

    def _give_up(self, seat: Seat, error: BaseException) -> None:
        """Set a run aside once what it has under way is over."""
        seat.leaving = True
        seat.driver.stop_all()
        self.aside.put(seat.folder, error)
        if not seat.folder.exists():
            self._rescan_at = 0.0  # it may be there under another name
        if not seat.is_busy:
            self._close(seat)

    def _close(self, seat: Seat) -> None:
        """Let go of a run: its lock, its watches, its place in every list."""
        if not seat.leaving:
            self._keep_page(seat, driven=False)
        self.turns.leave(seat)
        for mapping in (self.seats, self.ready, self.soon, self.due, self.pages):
            mapping.pop(seat.folder, None)
        for one in folders_of(seat.folder):
            self.by_folder.pop(str(one), None)
        seat.hold.close()

    def _leave(self) -> None:
        self.upkeep.close()
        for seat in list(self.seats.values()):
            seat.driver.stop_all()  # whatever went wrong, nothing is left running that nobody looks after
            with suppress(OSError):
                self._close(seat)
        self.together.close()
        self.ears.close()
        self.roots.release()

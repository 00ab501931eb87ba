"""What a process has begun for a run, and what that leaves to do of what the files call for. Pure.

The files say what a run needs next; they cannot say what this process is already doing about it. An order whose job
runs is not given again, nothing starts in a process that is about to stop, and no run ends under a job of its own.

In the worktree of an isolated run, a step that may write has the folder to itself: what it changes is its commit, and
is undone if it fails. Steps that only read run side by side, and see what is committed, never half of another's work.
Steps that do not look at the folder (`note`, `http_get`) wait for nobody. An attempt that waits with a question keeps
the folder and its work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfs.core import paths
from agentfs.core.actions import (
    Action,
    AskPerson,
    EndRun,
    IssueOrder,
    JobKey,
    LookAtCondition,
    RecordReply,
    RunGoalChecks,
    StartAttempt,
    StopAttempt,
    StopJobs,
    TakeOutcome,
    Wait,
)
from agentfs.core.facts import ASK, RUN, Facts
from agentfs.core.records import Check, Order, ResolvedCheck, Step
from agentfs.core.run_state import Means, RunState, Use
from agentfs.core.steps import StepView

# ── who may use the worktree of an isolated run at the same time ──────────────────────────────────────────


_RANK: Mapping[Use, int] = {"apart": 0, "reads": 1, "writes": 2}


def use_of(step: Step | Order, means: Means) -> Use:
    """Return how a step uses the working folder; a command may do anything, so it writes."""
    kinds = {check.kind for check in _checks_of(step)}
    if "command" in kinds or step.agent is not None:
        return "writes"
    tools = (step.tools if not means.agent else None) if step.tool is None else (step.tool,)
    if tools is None:
        return "writes"
    uses: list[Use] = [means.uses.get(tool, "writes") for tool in tools]
    return max((*uses, "reads" if "file" in kinds else "apart"), key=_RANK.__getitem__)


def _checks_of(step: Step | Order) -> list[Check | ResolvedCheck]:
    found: list[Check | ResolvedCheck] = [*(step.checks or ())]
    if isinstance(step, Step):
        found += [*(step.needs or ()), *([step.when] if step.when else ())]
    return found


@dataclass(slots=True)
class Folder:
    """Who uses the folder now, and so who may beside them."""

    means: Means
    users: dict[str, Use] = field(default_factory=dict)  # by step

    def admits(self, view: StepView) -> bool:
        """Whether a step may begin now; one that uses the folder already goes on."""
        if not self.means.isolated or view.id in self.users:
            return True
        use, others = use_of(view.step, self.means), self.users.values()
        return use == "apart" or not (set(others) if use == "writes" else "writes" in others)

    def enter(self, view: StepView) -> None:
        """Let a step use the folder."""
        self.add(view.id, use_of(view.step, self.means))

    def add(self, step: str, use: Use) -> None:
        if use != "apart":
            self.users[step] = use


def folder_of(state: RunState) -> Folder:
    """Return who uses the folder of a run, as its files say."""
    folder = Folder(state.means)
    if not state.means.isolated:
        return folder
    for one in (*state.running, *state.moving("person", "record_ask")):
        attempt = state.facts.attempt(one.id, one.attempt)
        waits = attempt.order is not None and attempt.order.tool in (ASK, RUN)  # only its checks use the folder
        if attempt.is_unfinished and not waits:
            folder.enter(one)
    for stray in state.strays:
        folder.add(stray.step, use_of(stray.attempt.order, state.means) if stray.attempt.order else "writes")
    return folder


NEVER_BEGAN = "it was ordered, but agentfs ended before it began"


@dataclass(frozen=True, slots=True)
class Underway:
    """What a process is doing for a run."""

    jobs: Mapping[JobKey, bool] = field(default_factory=dict)  # each job, and whether it was asked to stop
    draining: bool = False  # the process is about to stop: nothing new starts
    elsewhere: Mapping[JobKey, str] = field(default_factory=dict)  # of the jobs: those at a place, with its name
    rooms: Mapping[str, int] = field(default_factory=dict)  # how many attempts each place could take now
    asking: bool = False  # a person is writing replan.md at this moment: no end is certain before it is read


def takes_place(key: JobKey) -> bool:
    """Whether a job takes the place of an attempt; a call of the planner waits for another program: it takes none."""
    return key.kind != "call"


@dataclass(slots=True)
class Slots:
    """What may start: how many attempts, and who may use the folder of an isolated run."""

    left: dict[str | None, int]  # None is here; a place that is not in it takes any number
    folder: Folder

    def copy(self) -> "Slots":
        return Slots({**self.left}, replace(self.folder, users={**self.folder.users}))

    def take(self, place: str | None) -> bool:
        """Take a slot at a place; return whether there was one."""
        if (left := self.left.get(place)) is None:
            return True
        self.left[place] = left - 1 if left > 0 else left
        return left > 0

    def admit(self, view: StepView, place: str | None) -> bool:
        """Let a step start at a place, if there is a slot and the folder is free for it; return whether it may."""
        if not self.folder.admits(view) or not self.take(place):
            return False
        self.folder.enter(view)
        return True


def free_slots(state: RunState, here: int, underway: Underway | None) -> Slots:
    """Return how many steps may start; one whose job runs is counted in: to the files, it still needs a slot."""
    slots = Slots({None: here}, folder_of(state))
    if underway is None:
        return slots
    if underway.draining:
        slots.left = dict.fromkeys((None, *underway.rooms), 0)
        return slots
    slots.left.update(underway.rooms)
    for key in underway.jobs:
        place = underway.elsewhere.get(key)
        view = state.view(key.step)
        started = view is not None and has_job(view, underway.jobs)
        taken = place is None and takes_place(key)  # what runs elsewhere is not counted in `rooms` any more
        if place in slots.left:
            slots.left[place] += started - taken
        if takes_place(key):
            slots.folder.add(key.step, use_of(view.step, state.means) if view else "writes")
    return slots


def has_job(view: StepView, jobs: Mapping[JobKey, bool]) -> bool:
    """Whether what a step calls for has begun: its order is being carried out, or what comes before is checked."""
    match view.move:
        case "start":
            return JobKey("attempt", view.id, view.attempt) in jobs
        case "order" | "retry":
            return JobKey("attempt", view.id, view.next) in jobs
        case "ask" | "look":
            return JobKey("gate", view.id, view.next) in jobs
        case _:
            return False


def is_underway(action: Action, facts: Facts, jobs: Mapping[JobKey, bool]) -> bool:
    """Whether an action has been taken, and only its result is missing."""
    match action:
        case IssueOrder(view=view) | StartAttempt(view=view) | AskPerson(view=view) | LookAtCondition(view=view):
            return has_job(view, jobs)
        case RecordReply(view=view, about="ask"):
            return JobKey("attempt", view.id, view.attempt) in jobs
        case TakeOutcome(step=step, attempt=number):
            return JobKey("attempt", step, number) in jobs
        case RunGoalChecks():
            return any(key.kind == "checks" for key in jobs)
        case StopAttempt(step=step, attempt=number):
            if (child := facts.attempt(step, number).child) and child.begun:
                return True  # it sees for itself that what is above it is cancelled
            if (stopping := jobs.get(JobKey("attempt", step, number))) is not None:
                return stopping
            return facts.attempt(step, number).order is None  # torn: there is nothing to record
        case _:
            return False


def left_to_do(actions: list[Action], state: RunState, free: Slots, underway: Underway) -> list[Action]:
    """Return what is left of what the files call for, never nothing."""
    jobs = underway.jobs
    found = [action for action in actions if not is_underway(action, state.facts, jobs)]
    if free.left[None] > 0 and not jobs:
        found = without_abandoned(state, found)
    if underway.draining:
        found = [action for action in found if isinstance(action, Wait | StopAttempt)]
    found = [one for action in found for one in _before_the_end(action, state, underway)]
    return [*_after_the_end(state, jobs), *found] or [Wait("attempt", "work is under way")]


def without_abandoned(state: RunState, actions: list[Action]) -> list[Action]:
    """Return how to go on where no job runs, and all that was decided is to wait for one.

    A driver died between an order and its claim, and now nothing may start. The order is recorded as interrupted: it
    would keep the run from resting, or from ending, for ever.
    """
    if not all(isinstance(action, Wait) and action.on == "attempt" for action in actions):
        return actions
    return [StopAttempt(one.id, one.attempt, "interrupted", NEVER_BEGAN) for one in state.moving("start")] or actions


def _before_the_end(action: Action, state: RunState, underway: Underway) -> list[Action]:
    """Return an action; in the place of an end, what has to happen first. Nobody is asked anything after the end."""
    if not isinstance(action, EndRun):
        return [action]
    if checking := [key for key in underway.jobs if _checks_needs(key, state.facts)]:
        return _stop([key for key in checking if not underway.jobs[key]], "the run ends")
    return [Wait("attempt", f"{paths.REPLAN} is being saved")] if underway.asking else [action]


def _checks_needs(key: JobKey, facts: Facts) -> bool:
    """Whether a job checks what a step needs: it has no order yet."""
    attempt = facts.attempt(key.step, key.number)
    return key.kind in ("attempt", "gate") and attempt.order is None and not attempt.torn


def _after_the_end(state: RunState, jobs: Mapping[JobKey, bool]) -> list[Action]:
    """Return that what still runs is stopped: nobody waits for the answer of a call once the run has ended."""
    running = [key for key, stopping in jobs.items() if not stopping]
    return _stop(running, "the run has ended") if state.facts.outcome is not None else []


def _stop(jobs: list[JobKey], why: str) -> list[Action]:
    return [StopJobs(tuple(jobs), why)] if jobs else []

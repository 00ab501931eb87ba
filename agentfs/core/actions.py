"""What a driver can be asked to do: one frozen value per action, each with its reason. Pure."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentfs.core.planner_calls import Pending
from agentfs.core.records import Reason
from agentfs.core.steps import StepView


class JobKey(NamedTuple):
    """What a process has begun and not finished: an attempt, the checks before a gate, a call, the goal's checks."""

    kind: Literal["attempt", "gate", "call", "checks"]
    step: str  # "" for a call and for the goal's checks
    number: int


@dataclass(frozen=True, slots=True)
class _OfStep:
    view: StepView
    why: str


@dataclass(frozen=True, slots=True)
class _OfCall:
    call: int
    why: str


@dataclass(frozen=True, slots=True)
class RecordRevision:
    """plan.json holds something new: give it a number. `call` is the one that wrote it; None: a person."""

    call: int | None
    why: str


@dataclass(frozen=True, slots=True)
class WriteNote:
    """A file that a person edits is not valid: say what, where and how to fix it."""

    name: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class RemoveNote:
    """What a note was about has been fixed."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class CallPlanner:
    """Ask the planner; one call takes every pending trigger."""

    call: int
    pending: tuple[Pending, ...]
    why: str
    role: Literal["planner", "executor"] = "planner"  # executor: to repair the input of one step, before the planner


class InstallPlan(_OfCall):
    """Put the plan of an answer into plan.json."""


class AskAnswer(_OfCall):
    """An answer needs a person's yes: ask for it."""


class IssueOrder(_OfStep):
    """Hand a step to the executor."""


class GatherItems(_OfStep):
    """Every item of a step has ended: write the step's own result."""


class LookAtCondition(_OfStep):
    """See whether a step that goes through a list is to be done at all."""


class StartAttempt(_OfStep):
    """An order that nobody has taken."""


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End an attempt that no longer counts, or is no longer wanted."""

    step: str
    attempt: int
    kind: Literal["superseded", "cancelled", "interrupted"]
    why: str


@dataclass(frozen=True, slots=True)
class TakeOutcome:
    """The run that an attempt is has ended: that is how the attempt ends."""

    step: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class StopJobs:
    """End work of this process that nothing will come of."""

    jobs: tuple[JobKey, ...]
    why: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Write the question of a gate, or of an attempt that was cut off."""

    view: StepView
    about: Literal["gate", "cut"]
    why: str


@dataclass(frozen=True, slots=True)
class RecordReply:
    """Turn a person's words into a result."""

    view: StepView
    about: Literal["gate", "cut", "ask"]
    why: str


class RunGoalChecks(_OfCall):
    """Every step is done: see whether the goal's own checks hold."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run has ended."""

    status: Literal["done", "failed", "cancelled"]
    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; what for, and why."""

    on: Literal["attempt", "child", "planner", "person", "time", "nothing"]
    why: str


Action = (
    RecordRevision
    | WriteNote
    | RemoveNote
    | CallPlanner
    | InstallPlan
    | AskAnswer
    | IssueOrder
    | StartAttempt
    | GatherItems
    | LookAtCondition
    | StopAttempt
    | TakeOutcome
    | StopJobs
    | AskPerson
    | RecordReply
    | RunGoalChecks
    | EndRun
    | Wait
)

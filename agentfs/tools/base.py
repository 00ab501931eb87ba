"""What a tool is, and the context of one attempt: what tools, checks and models work with while a step is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from agentfs.core.excerpts import TimeLimit
from agentfs.core.mask import Mask
from agentfs.core.proof import Gather
from agentfs.core.records import CheckResult, Failure, JsonObject, ResolvedCheck, Sandbox, Usage
from agentfs.core.tool_spec import ToolSpec, tool_setting
from agentfs.models.base import Model, ModelSession
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder
from agentfs.storage.safe_open import Refused
from agentfs.storage.system import Starter
from agentfs.tools.process import ProcessMark, StopSign

USUAL = TimeLimit(600)


@dataclass(frozen=True, slots=True)
class Confinement:
    """What programs and file tools may touch. The first three are real paths: a link on one was put there since."""

    workdir: Path
    workspace: Path  # its own parts stay read-only (`protected` has their names), and so do those of any other there
    run_files: Path  # the run's own files/, writable although it lies under runs/
    readable: tuple[Path, ...] = ()  # [tools] read, and outputs that a step refers to by .file
    writable: bool = True  # False: the working folder is only shown, and nothing can be written
    network: bool = False
    sandbox: Sandbox = "bubblewrap"  # "none": programs run unconfined
    programs: bool = True  # False: none is run, for a model wrote them and nothing would confine them
    env: Mapping[str, str] = field(default_factory=dict)  # the variables named in [tools] env
    protected: tuple[Path, ...] = ()  # what agentfs runs unconfined, or trusts: read-only wherever it lies
    hosts: tuple[str, ...] = ()  # [tools] hosts: private or local hosts that http_get may reach
    run: str | None = None  # whose tools they are: what a hint names
    also_writable: tuple[Path, ...] = ()  # folders that can be written beside the working folder
    home: Mapping[str, bytes] | None = None  # an agent's: the files of a home of its own, where it is not root
    programs_at: tuple[str, ...] = ()  # more folders of PATH

    def change(self, words: str) -> str:
        """Return how to change a setting of [tools] so that it counts: a run keeps those it began with."""
        return tool_setting(words, self.run)


Seen = Literal["changes", "tampered", "spoiled", "touched", "untouched", "agent", "commit"]
T = TypeVar("T")


class Observer:
    """Looks at the world for an attempt; the executor's runs checks too, that of a replay has a recording answer."""

    def check(
        self, checks: Sequence[ResolvedCheck], context: "StepContext", output: Any, gather: Gather
    ) -> tuple[CheckResult, ...]:
        """Run checks. Raises ModelError if a judge is needed and cannot be asked."""
        raise NotImplementedError

    def see(self, what: Seen, name: str, look: Callable[[], T]) -> T:  # noqa: ARG002
        """Return what `look` sees of the working folder, for the context of that name.

        changes:  what its attempt changed since this was last asked
        tampered: the protected files that its attempt changed since this was last asked
        spoiled:  the protected files that are as an earlier attempt left them, which it may not
        touched:  the files under a person's checks that steps changed
        untouched: whether nothing at all has changed since the loop began that claims to be done
        agent:    what a coding agent did
        commit:   the commit of what its attempt changed
        """
        return look()


@dataclass(frozen=True, slots=True)
class StepContext:
    """Everything that one attempt touches. The other context is the engine's `World`, that of a process.

    Checks that belong to no attempt (what a step needs, those of the goal) get one too, with nothing to claim.
    """

    name: str  # what it is for: steps/total.1, steps/total.1.needs, planning/2.checks
    confinement: Confinement
    steps_folder: StepsFolder  # the run's steps/
    mask: Mask
    deadline: float  # time.monotonic()
    stop: StopSign
    output_bytes: int
    output_file: Path  # the whole output goes here when it does not fit into the result
    claim: Callable[[ProcessMark | None], None]  # called once, before the first effect; raises if already claimed
    log: Callable[[str, Mapping[str, Any]], None]  # one line of the attempt's log
    observer: Observer = field(default_factory=Observer)
    clock: Clock = field(default_factory=Clock)
    limit: TimeLimit = USUAL  # what made the deadline
    tools: Mapping[str, "Tool"] = field(default_factory=dict)  # that a step may call
    model: Model | None = None  # for tools, checks and loops that ask one; None: there is none
    session: ModelSession | None = None  # through which it is asked
    read_only_checks: frozenset[str] = frozenset()  # checks, hashed, that a model wrote: they change nothing
    starter: Starter = field(default_factory=Starter)  # of processes
    traceparent: str | None = None  # whose child the spans of what it starts are

    def now(self) -> float:
        """Return the time of the clock that the deadline is of."""
        return self.clock.monotonic()

    def may_wait(self) -> bool:
        """Whether there is time to wait for something."""
        return self.why_over() is None

    def why_over(self, what: str = "") -> Failure | None:
        """Return why it must end now; None if it may go on."""
        return self.why_ended(what) if self.stop.is_set() or self.now() >= self.deadline else None

    def refuse_if_over(self, what: str) -> None:
        """Raise Refused if it must end now, before `what` came true."""
        if over := self.why_over(what):
            raise Refused(over.kind, over.message, over.hint)

    def why_ended(self, what: str = "", then: str = "") -> Failure:
        """Return why it was ended: it was stopped, else its time was up. `what`: in other words than the limit's."""
        if self.stop.is_set():
            return Failure(kind="interrupted", message="it was stopped")
        return self.limit.failure(what, then) if what else self.limit.failure(then=then)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: an output, or why there is none. A model that did a step says more."""

    output: Any = None
    cut: bool = False
    failure: Failure | None = None
    surprise: str | None = None  # it succeeded, but not as expected, in the model's own word
    blocked: str | None = None  # why the step cannot be done as it is
    evidence: tuple[str, ...] = ()
    usage: Usage | None = None
    prompt_sha256: str | None = None
    child: str | None = None  # the run that it was


def fail(kind: str, message: str, hint: str | None = None) -> ToolResult:
    """Return that a tool has no output, and why."""
    return ToolResult(failure=Failure(kind=kind, message=message, hint=hint))


def closed_schema(fields: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Return the schema of an input that holds these fields and no others."""
    return {"type": "object", "properties": dict(fields), "required": list(required), "additionalProperties": False}


class Tool(Protocol):
    """A named thing that a step calls."""

    @property
    def spec(self) -> ToolSpec: ...

    def call(self, given: JsonObject, context: StepContext) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class LocalTool:
    """A tool that acts in this process, and starts nothing."""

    spec: ToolSpec
    act: Callable[[JsonObject, StepContext], ToolResult]

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        context.claim(None)
        try:
            return self.act(given, context)
        except Refused as refused:
            return ToolResult(failure=refused.failure)


@runtime_checkable
class Preparable(Tool, Protocol):
    """A tool that takes its time to begin with, and can begin before it is called."""

    def prepare(self, confinement: Confinement) -> None: ...

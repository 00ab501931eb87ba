"""What a tool is, and what it is given to work with."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from agentfs.core.excerpts import TimeLimit
from agentfs.core.mask import Mask
from agentfs.core.records import Failure, JsonObject, Sandbox, Usage
from agentfs.core.tool_spec import ToolSpec, tool_setting
from agentfs.storage.starting import Starter
from agentfs.tools.process import ProcessMark, StopSign

if TYPE_CHECKING:  # they know of benches
    from agentfs.models.base import Model, ModelSession


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

    def change(self, words: str) -> str:
        """Return how to change a setting of [tools] so that it counts: a run keeps those it began with."""
        return tool_setting(words, self.run)


@dataclass(frozen=True, slots=True)
class Bench:
    """What one call of a tool works with: where, until when, and whom to tell."""

    confinement: Confinement
    deadline: float  # time.monotonic()
    stop: StopSign
    output_bytes: int
    output_file: Path  # the whole output goes here when it does not fit into the result
    claim: Callable[[ProcessMark | None], None]  # called once, before the first effect; raises if already claimed
    log: Callable[[str, Mapping[str, Any]], None]  # one line of the attempt's log
    mask: "Mask"
    model: "Model | None" = None  # for tools and checks that ask one; None: there is none
    line: "ModelSession | None" = None  # what is asked of it goes over this
    whose: str = ""  # what it is for: steps/total.1, steps/total.1.needs, planning/2.checks
    now: Callable[[], float] = time.monotonic  # the clock that the deadline is of
    limit: TimeLimit = USUAL  # what made the deadline
    looks_only: frozenset[str] = frozenset()  # checks, hashed, that a model wrote: they change nothing
    starter: Starter = field(default_factory=Starter)  # of processes

    def may_wait(self) -> bool:
        """Whether there is time to wait for something."""
        return self.now() < self.deadline and not self.stop.is_set()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: an output, or why there is none. A model that did a step says more."""

    output: Any = None
    cut: bool = False
    failure: Failure | None = None
    surprise: str | None = None  # it succeeded, but not as expected, in the model's own word
    blocked: str | None = None  # why the step cannot be done as it stands
    evidence: tuple[str, ...] = ()
    usage: Usage | None = None
    prompt_sha256: str | None = None


class Tool(Protocol):
    """A named thing that a step calls."""

    @property
    def spec(self) -> ToolSpec: ...

    def call(self, given: JsonObject, bench: Bench) -> ToolResult: ...


@runtime_checkable
class Preparable(Tool, Protocol):
    """A tool that takes its time to begin with, and can be told that it will be called soon."""

    def prepare(self, confinement: Confinement) -> None: ...

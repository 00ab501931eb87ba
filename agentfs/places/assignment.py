"""What an attempt elsewhere is given: one order with the rules by which it is carried out. Values only, no secret."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from agentfs.agents.presets import Agent
from agentfs.core.config import ExecutorSettings
from agentfs.core.records import Order, SandboxWish
from agentfs.core.run_state import Bounds
from agentfs.executor.task import AgentRules, LoopRules, ProofRules, Task
from agentfs.models.budget import Budget
from agentfs.places.token import Token
from agentfs.tools.base import Confinement


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that an attempt may ask; its key is read where the attempt runs."""

    settings: ExecutorSettings
    name: str
    temperature: float | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """One order, and all that its attempt needs."""

    version: str  # of agentfs: both sides must be the same release
    place: str
    order: Order
    loop: LoopRules
    proof: ProofRules | None
    retry_wait_s: float
    agent: Agent | None  # the coding agent that does it
    confinement: Confinement  # its `env` is empty: the variables are named in `env`, and read there
    env: tuple[str, ...]
    sandbox: SandboxWish
    unconfined: bool  # programs may run where there is no sandbox: a person wrote them, or turned it off
    output_bytes: int
    left: Bounds  # what the run may still ask of models
    model: ModelChoice | None
    search_url: str
    token: Token
    silence_s: float  # the attempt ends itself after so long without a word from its driver
    alive_s: float  # and sends one this often
    log: str | None = None  # of an attempt that waited for a person
    reply: str | None = None  # and what the person said


def task_of(assignment: Assignment, environment: Mapping[str, str]) -> Task:
    """Return what is to be done; an agent gets its variables where it runs."""
    rules = AgentRules(assignment.agent, Budget(assignment.left), environment) if assignment.agent else None
    given = assignment
    return Task(given.order, given.loop, given.proof, retry_wait_s=given.retry_wait_s, agent=rules)


_ADAPTER = TypeAdapter(Assignment)


class Unreadable(Exception):
    """An assignment of another release, or no assignment."""


def encode(assignment: Assignment) -> str:
    """Return an assignment as JSON."""
    return _ADAPTER.dump_json(assignment, by_alias=True).decode("utf-8")


def decode(text: str) -> Assignment:
    """Return the assignment that a text means. Raises Unreadable."""
    try:
        return _ADAPTER.validate_json(text, by_alias=True)
    except ValidationError as error:
        raise Unreadable(f"{error.error_count()} fields of the assignment do not read") from None

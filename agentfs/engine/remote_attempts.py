"""Attempts elsewhere, as a driver has them carried out: what is sent, through which place, and what is taken over."""

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import agentfs
from agentfs.core.config import ExecutorSettings, PlaceSettings, Settings
from agentfs.core.records import Failure, Order, Result, Run
from agentfs.core.run_state import Bounds, Spent
from agentfs.core.tool_spec import runs_here
from agentfs.errors import UserError
from agentfs.executor.attempt import Halt, asks_a_model, publish_result, unstarted_result
from agentfs.executor.attempt_log import AttemptLog
from agentfs.executor.task import Asked, Task
from agentfs.places.assignment import Assignment, ModelChoice, encode
from agentfs.places.channel import Message
from agentfs.places.command_place import CommandPlace
from agentfs.places.dask_place import DaskPlace, is_safe
from agentfs.places.relay import Place, Relay
from agentfs.places.token import Tokens
from agentfs.storage.safe_open import MOST_LOG, read_text
from agentfs.storage.starting import Pool, Starter
from agentfs.storage.timing import TIMING
from agentfs.tools.base import StepContext


@dataclass(slots=True)
class OpenPlace:
    """A place of this process, with a thread for every attempt that it may carry out at once."""

    place: Place
    pool: Executor
    busy: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, more: int = 1) -> None:
        """Count an attempt that was given to this place, or (-1) one that has ended."""
        with self._lock:
            self.busy += more


@dataclass(frozen=True, slots=True)
class Places:
    """Where attempts may run beside here, and what they need of the settings."""

    opened: Mapping[str, OpenPlace] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)  # those that cannot be used as the settings are, and why
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    search_url: str = ""
    tokens: Tokens = field(default_factory=Tokens)  # in the working folders of what is sent
    recorded: bool = False  # a replay: what ran elsewhere is played here

    def free(self) -> dict[str, int]:
        """Return how many attempts each place could take now."""
        return {name: max(0, one.place.slots - one.busy) for name, one in self.opened.items()}


@contextmanager
def opened_places(settings: Settings, environment: Mapping[str, str], starter: Starter) -> Iterator[Places]:
    """Yield the places of the settings; nothing is started or reached before an attempt is.

    One that cannot be used matters to the steps that run there; the default place is that of all.
    """
    if (default := settings.executor.place) is not None and default not in settings.places:
        raise UserError("{} ({})".format(*no_such_place(default)))
    opened: dict[str, OpenPlace] = {}
    broken: dict[str, str] = {}
    for name, one in settings.places.items():
        try:
            place = create_place(name, one, settings.limits.parallel, environment, starter)
        except UserError as error:
            if name == default:
                raise
            broken[name] = str(error)
        else:
            opened[name] = OpenPlace(place, Pool(place.slots, f"place-{name}"))
    places = Places(opened, broken, settings.executor, settings.tools.web_search.url)
    try:
        yield places
    finally:
        for there in opened.values():
            there.pool.shutdown(wait=True)
            there.place.close()
        if opened:
            places.tokens.close()


def no_such_place(default: str) -> tuple[str, str]:
    """Return what is wrong with a default place that the settings do not describe, and how to fix it."""
    return (
        f"there is no place {default!r}",
        f"add [places.{default}] to agentfs.toml, or take place out of [executor]",
    )


def place_problem(one: PlaceSettings) -> tuple[str, str] | None:
    """Return what is wrong with the settings of a place, and how to fix it."""
    if one.kind == "command":
        return None if one.command else ("it has no command", 'set command = ["ssh", "host", "agentfs", "attempt"]')
    if not one.scheduler and not one.scheduler_file:
        return "it names no scheduler", 'set scheduler = "tls://host:8786", or scheduler_file'
    if one.scheduler and not one.insecure and not is_safe(one.scheduler):
        fix = "use tls://, or set insecure = true if you trust that network"
        return f"{one.scheduler} is beyond this machine, and not protected by TLS", fix
    if importlib.util.find_spec("distributed") is None:
        return "Dask is not installed", "pip install 'agentfs-plan[cluster]'"
    return None


def create_place(
    name: str, settings: PlaceSettings, slots: int, environment: Mapping[str, str], starter: Starter
) -> Place:
    """Return a place as the settings describe it."""
    slots = settings.slots or slots
    if problem := place_problem(settings):
        raise UserError(f"[places.{name}]: {problem[0]} ({problem[1]})")
    if settings.kind == "command":
        return CommandPlace(name, settings.command or (), slots, environment, starter)
    return DaskPlace(name, slots, settings.scheduler, settings.scheduler_file, settings.insecure)


@dataclass(frozen=True, slots=True)
class Remote:
    """What an attempt elsewhere needs of its driver."""

    run: Run
    own_steps: bool  # a person wrote them: they may run where there is no sandbox
    bounds: Bounds
    spent: Callable[[], Spent]
    count: Callable[[Result], None]  # adds what an attempt asked of models


def attempt_elsewhere(
    task: Task, context: StepContext, remote: Remote, places: Places, stop: Halt, reply: str | None = None
) -> Result | Asked:
    """Have an order carried out at its place. Raises AlreadyClaimed, or Lost where it may still run.

    Where the settings of the place are wrong, nothing is tried: raises UserError, and the order waits for a fix.
    """
    order = task.order
    if why := places.broken.get(order.place or ""):
        raise UserError(why)
    one = places.opened.get(order.place or "")
    if one is None:
        hint = f"add [places.{order.place}], or take `place` out of the step"
        return _refuse(order, context, f"there is no place {order.place!r} in agentfs.toml", hint)
    if foreign := next(filter(runs_here, order.tools or ()), None):
        hint = "take the tool out of the step, or `place`"
        return _refuse(order, context, f"the tool {foreign!r} runs where the run is driven, not at a place", hint)
    if remote.run.isolation is not None:  # a step's commit is made where its worktree is
        hint = "take `place` out of the step, or `isolate` out of the goal"
        return _refuse(order, context, "the steps of a run with a worktree of its own run here", hint)
    log = AttemptLog(context.steps_folder, order, context.mask, context.clock)
    relay = Relay(order, one.place, context.steps_folder, log, stop, context.mask, context.clock)
    found = relay.run(_message(task, context, remote, places, reply))
    if isinstance(found, Result):
        remote.count(found)
    return found


def _refuse(order: Order, context: StepContext, why: str, hint: str) -> Result:
    error = Failure(kind="place", message=why, hint=hint)
    blank = unstarted_result(order, "failed", error, context.clock, "none")
    return publish_result(blank, context.steps_folder, context.mask)


def _message(task: Task, context: StepContext, remote: Remote, places: Places, reply: str | None) -> Message:
    order, run, executor = task.order, remote.run, places.executor
    model = None
    if asks_a_model(order, context.tools):
        name = order.model or run.models.executor or executor.model
        model = ModelChoice(executor, name, run.models.executor_temperature)
    assignment = Assignment(
        version=agentfs.__version__,
        place=order.place or "",
        order=order,
        loop=task.loop,
        proof=task.proof,
        retry_wait_s=task.retry_wait_s,
        agent=task.agent.agent if task.agent else None,
        confinement=replace(context.confinement, env={}),
        env=run.env,  # by name: what is not set here may be set there
        sandbox=run.sandbox,
        unconfined=run.sandbox == "off" or remote.own_steps,
        output_bytes=context.output_bytes,
        left=_left(remote.bounds, remote.spent()),
        model=model,
        search_url=places.search_url,
        token=places.tokens.of(context.confinement.workdir),
        silence_s=TIMING.place_silence,
        alive_s=TIMING.place_alive,
        log=_log_so_far(order, context) if reply is not None else None,
        reply=reply,
    )
    return {"kind": "assignment", "version": agentfs.__version__, "assignment": encode(assignment)}


def _left(bounds: Bounds, spent: Spent) -> Bounds:
    """Return what a run may still ask of models."""
    return replace(
        bounds,
        requests=max(0, bounds.requests - spent.requests),
        tokens=max(0, bounds.tokens - spent.tokens),
        cost_usd=max(0.0, bounds.cost_usd - spent.cost_usd),
    )


def _log_so_far(order: Order, context: StepContext) -> str:
    path = Path(context.steps_folder.path(order.step, order.attempt, "log"))
    return read_text(path, MOST_LOG)


def wait_for_orphan(stop: Halt, since: float) -> bool:
    """Wait until an attempt elsewhere has ended itself, as its driver is gone; return whether it surely has.

    Only a process that ends waits no longer: a person who cancels the run, or edits the step, may start it again.
    """
    while time.monotonic() < since + TIMING.place_orphan:
        if stop.is_leaving:
            return False
        time.sleep(TIMING.tick)
    return True

"""Why a loop ends that nobody finished, as failures to write down."""

from agentfs.core.records import Failure
from agentfs.models.base import LimitReached, ModelError, Stopped, Unreachable
from agentfs.tools.base import Bench


def no_model(name: str | None) -> Failure:
    """Return why a step that a model should do cannot be done."""
    message = f"there is no model {name!r} to do it" if name else "there is no model to do it"
    return Failure(kind="unreachable", message=message, hint="set OPENAI_API_KEY, or base_url under [executor]")


def failure_of(error: ModelError, bench: Bench) -> Failure:
    """Return what to write down when a model gave no reply."""
    match error:
        case LimitReached():
            kind = "limit"
        case Stopped():
            return time_is_up(bench) or error.failure.model_copy(update={"kind": "interrupted"})
        case Unreachable():
            kind = "unreachable"
        case _:
            kind = "model"
    return error.failure.model_copy(update={"kind": kind})


def time_is_up(bench: Bench) -> Failure | None:
    """Return why it must end now; None if it may go on."""
    if bench.stop.is_set():
        return Failure(kind="interrupted", message="it was stopped")
    if bench.now() >= bench.deadline:
        return bench.limit.failure()
    return None

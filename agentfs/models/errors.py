"""Why there is no reply, as one tree: what to write down is in `failure`."""

from agentfs.core.records import Failure


class ModelError(Exception):
    """There is no reply. What to write down is in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Unreachable(ModelError):
    """No model was reached: wrong key, unknown model, wrong address, no network. Somebody must mend that."""


class Refused(ModelError):
    """The model, or a filter in front of it, declined to answer."""


class Garbled(ModelError):
    """What came back is no whole reply: cut short, malformed, too large."""


class LimitReached(ModelError):
    """A limit of the run leaves no room for another request."""


class Stopped(ModelError):
    """Somebody wants this to end, or its time is up."""

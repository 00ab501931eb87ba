"""What a run may still ask of models. Counted from its files when it is taken over, and as it goes from then on."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentfs.core.records import Failure, JsonObject, Usage
from agentfs.core.run_state import Bounds, Spent, no_room, total
from agentfs.models.errors import LimitReached

CHARACTERS_PER_TOKEN = 4  # a guess, for what is about to be sent; what was sent is counted as the endpoint says


@dataclass(slots=True)
class Meter:
    """Holds every conversation of one run to its limits, together. Any thread may use it."""

    bounds: Bounds  # set anew whenever the plan's limits change
    spent: Spent = field(default_factory=Spent)
    reserved: Spent = field(default_factory=Spent)  # kept for requests under way
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, messages: Sequence[JsonObject]) -> Spent:
        """Keep room for one request and return what was kept; raises LimitReached where there is none."""
        characters = sum(len(str(message.get("content") or "")) for message in messages)
        kept = Spent(requests=1, tokens=characters // CHARACTERS_PER_TOKEN)
        with self._lock:
            under_way = total(self.spent, self.reserved)
            if limit := no_room(self.bounds, replace(under_way, tokens=under_way.tokens + kept.tokens)):
                raise LimitReached(
                    Failure(
                        kind="limit",
                        message=str(limit),
                        hint="raise it in plan.json, or where there is none yet in agentfs.toml for a new run",
                    )
                )
            self.reserved = total(self.reserved, kept)
        return kept

    def spend(self, usage: Usage, kept: Spent) -> None:
        """Count what a request really took, and give back the room kept for it."""
        with self._lock:
            self.spent = self.spent.plus_usage(usage)
            self.reserved = Spent(
                requests=self.reserved.requests - kept.requests, tokens=self.reserved.tokens - kept.tokens
            )

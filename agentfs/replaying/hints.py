"""What a run had to work with that no record says, from what happened in it. Pure.

A run's files name its models, not whether they could be reached, and not every setting of the process that drove it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentfs.core.config import Settings
from agentfs.core.records import Sandbox
from agentfs.executor import words
from agentfs.replaying.recording import Recording
from agentfs.replaying.tapes import Try

_TURNS = re.compile(r"it took (\d+) turns and did not finish\Z")
_THERE = "recorded"  # stands for an address: that there is one is all that is asked


@dataclass(frozen=True, slots=True)
class Hints:
    """What the recorded process had."""

    planner: bool
    executor: bool
    sandbox: Sandbox
    max_turns: int | None
    search: bool  # web_search could be used

    def applied(self, settings: Settings) -> Settings:
        """Return settings under which the engine finds what it had then."""
        search = settings.tools.web_search.model_copy(update={"url": _THERE if self.search else ""})
        tools = settings.tools.model_copy(update={"web_search": search})
        return settings.model_copy(update={"tools": tools})


def hints_in(recording: Recording) -> Hints:
    """Return what can be told of the process that drove a run."""
    told = [str(one.messages[1].get("content")) for one in _tries(recording, "planner") if len(one.messages) > 1]
    results = [one.result for one in recording.attempts.values() if one.result]
    budget = recording.outcome is not None and recording.outcome.reason == "replan_budget_exhausted"
    return Hints(
        planner=bool(told) or budget or any(one.record.by.role == "planner" for one in recording.revisions.values()),
        executor=any(_by_an_executor(recording)) or any("\n- no tool: a model does" in text for text in told),
        sandbox="none" if any(result.sandbox == "none" for result in results) else "bubblewrap",
        max_turns=next(_turns(recording), None),
        search=any("\n- web_search (" in text for text in told) or _used(recording, "web_search"),
    )


def _tries(recording: Recording, role: str) -> Iterator[Try]:
    return (one for tape in recording.tapes.values() for one in tape.tries if one.role == role)


def _used(recording: Recording, tool: str) -> bool:
    return any(one.order is not None and one.order.tool == tool for one in recording.attempts.values())


def _by_an_executor(recording: Recording) -> Iterator[bool]:
    """Yield what shows that there was a model to do steps with."""
    yield from (True for role in ("executor", "judge") for _ in _tries(recording, role))
    yield from (one.record.by.role == "agentfs" for one in recording.revisions.values())


def _turns(recording: Recording) -> Iterator[int]:
    """Yield how many turns a loop might take, where one came to its last."""
    for one in recording.attempts.values():
        if one.result and one.result.error and (found := _TURNS.match(one.result.error.message)):
            yield int(found[1])
    for request in _tries(recording, "executor"):
        if any(message.get("content") == words.LAST_TURN for message in request.messages[-1:]):
            yield sum(message.get("role") == "assistant" for message in request.messages) + 1

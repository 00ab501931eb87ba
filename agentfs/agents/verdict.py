"""Whether an agent did its step, as far as its own end can say. Pure; the step's checks come after it.

Every condition is here because an agent reported success without it; most of them can be seen in the streams under
tests/recordings/agents. NAME#N are threads of the agents' own trackers on GitHub.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentfs.agents.events import Story, last_object
from agentfs.agents.presets import Agent
from agentfs.core.excerpts import one_line, with_output
from agentfs.core.records import Failure

QUOTED = 300  # characters of its last message
Fits = Callable[[dict[str, Any]], Sequence[str]]  # what is wrong with an answer, in words
EndedBy = Literal["stop", "timeout", "idle", "output", "disk", "tasks", "limit", "loop"]


@dataclass(frozen=True, slots=True)
class End:
    """How the program ended."""

    exit_code: int | None  # None: by a signal
    ended_by: EndedBy | None = None  # why agentfs ended it
    detail: str = ""  # the same in words
    stderr: str = ""  # its tail


def verdict(agent: Agent, end: End, story: Story, fits: Fits, version: Callable[[], str | None]) -> Any | Failure:
    """Return the answer of an agent that may be done, or why it is not."""
    if end.ended_by is not None:
        return _failure_by_us(agent, end, story)
    if story.changed is not None:
        # The terminal event is not as it was: success can no longer be told from failure.
        return _unreadable(agent, story.changed.what, version)
    error = story.ended.error if story.ended else story.trouble
    if end.exit_code != 0:
        # An exit code says that the protocol held, not that the work is done (codex#37717); but another one than 0 is
        # how codex, claude, opencode and gemini report 401, 429, 500 and limits of their own.
        reported = story.ended is not None and story.ended.error is not None
        how = _exit(end, error)
        return _failure("exit", how if reported else with_output(how, end.stderr), agent, error)
    if story.ended is None:
        # gemini exits 0 on SIGTERM, and opencode where what it asked for was rejected: both half way.
        return _no_end(agent, end, story, version)
    if error is not None:
        # A rate limit is `"subtype": "success"` beside `is_error` (claude-code#79500), and so is a run in which every
        # call was denied (claude-code#76867). goose exits 0 on 400, 429, 500 and without a network.
        return _failure("agent", f"it ended with an error: {one_line(error, QUOTED)}", agent, error)
    if story.turns == 0:
        # Done in no turn at all, and `success` (claude-code#87159); codex exits 0 after a refusal without a message.
        return Failure(kind="agent", message="it ended without doing or saying anything")
    return _answer(story, fits)


def _answer(story: Story, fits: Fits) -> Any | Failure:
    # An agent that never saw its prompt asks what to do and exits 0 (claude-code#85040); and none keeps its word
    # about a schema: all five exit 0 with prose in the place of JSON.
    handed = story.ended.answer if story.ended else None
    answer = handed if isinstance(handed, dict) else last_object(story.said)
    said = f": {one_line(story.said, QUOTED)}" if story.said.strip() else ""
    if answer is None:
        return Failure(kind="agent", message=f"its last message holds no JSON object that says how it ended{said}")
    if wrong := fits(answer):
        return Failure(kind="agent", message=f"its answer does not fit: {'; '.join(wrong)}{said}")
    return answer


def _failure_by_us(agent: Agent, end: End, story: Story) -> Failure:
    match end.ended_by:
        case "stop":
            return Failure(kind="interrupted", message="it was stopped")
        case "idle":
            # codex waits for a network without end; opencode and gemini retry for minutes and print nothing.
            hint = f"raise idle_s under [agents.{agent.name}]"
            message = _with_trouble(f"it printed nothing new for {agent.idle_s:g} s and was killed", end, story)
            return Failure(kind="timeout", message=message, hint=hint)
        case "timeout":
            return Failure(kind="timeout", message=_with_trouble(end.detail, end, story))
        case "loop":
            return Failure(kind="agent", message=end.detail)
        case "limit":
            return Failure(kind="limit", message=end.detail, hint="raise the limit, then: agentfs resume")
        case "disk":
            return Failure(kind="interrupted", message=f"its output could not be kept, so it was ended: {end.detail}")
        case other:
            return Failure(kind=str(other), message=end.detail)


def _with_trouble(what: str, end: End, story: Story) -> str:
    """Return what happened and why: what the agent itself reported, else the end of its stderr."""
    if story.trouble:
        return f"{what} (the last it reported: {one_line(story.trouble, QUOTED)})"
    return with_output(what, end.stderr)


def _exit(end: End, error: str | None) -> str:
    how = "it was ended by a signal" if end.exit_code is None else f"exit code {end.exit_code}"
    return f"{how}: {one_line(error, QUOTED)}" if error else how


def _no_end(agent: Agent, end: End, story: Story, version: Callable[[], str | None]) -> Failure:
    if story.unknown and story.turns == 0:
        return _unreadable(agent, f"it printed only events that are unknown ({', '.join(story.unknown)})", version)
    message = _with_trouble("it ended without saying how: there is no terminal event", end, story)
    return Failure(kind="agent", message=message)


def _unreadable(agent: Agent, what: str, version: Callable[[], str | None]) -> Failure:
    found = f"{agent.name} {version() or 'of an unknown version'}"
    tested = f"; agentfs knows {agent.name} {agent.tested}" if agent.tested else ""
    hint = f"install {agent.name} {agent.tested}, or a newer agentfs" if agent.tested else None
    return Failure(kind="agent", message=f"{found} cannot be read: {what}{tested}", hint=hint)


_LOGIN = ("401", "403", "unauthorized", "authentication", "api key", "api_key", "log in", "login", "not logged in")


def _failure(kind: str, message: str, agent: Agent, error: str | None) -> Failure:
    return Failure(kind=kind, message=message, hint=_hint(agent, error))


def _hint(agent: Agent, error: str | None) -> str | None:
    """Return how to give an agent a key, where that is what it lacks."""
    if error is None or not any(word in error.lower() for word in _LOGIN):
        return None
    named = ", ".join(name for name in agent.env if "KEY" in name or "TOKEN" in name)
    also = f', or read = ["{agent.login}"] under [agents.{agent.name}]' if agent.login else ""
    return f"it needs a key: set {named or 'a variable and name it under env'}{also}"

"""What agents say and do, in one form for all of them; the story it adds up to; and whether the step may be done.

Pure. Every condition of `verdict` is here because an agent reported success without it; most of them can be seen in
the streams under tests/recordings/agents. NAME#N are threads of the agents' own trackers on GitHub.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentfs.agents.presets import Agent
from agentfs.core.excerpts import as_text, telling_line, with_output
from agentfs.core.records import Failure
from agentfs.core.text import one_line

MOST_UNKNOWN = 8  # names of events that are kept
LINE = 160  # characters of one line for people
SEARCHED = 200_000  # characters at the end of a message in which an answer is looked for


@dataclass(frozen=True, slots=True)
class Began:
    """The agent says who it is."""

    model: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the agent."""

    text: str
    part: bool = False  # it goes on with the message before it


@dataclass(frozen=True, slots=True)
class Runs:
    """A tool that the agent calls: a command, mostly."""

    what: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What a call gave back."""

    what: str
    output: str = ""
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Edited:
    """Files that the agent changed with a tool for that."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noticed:
    """What went wrong on the way and did not end it: a retry, a warning, a call that was denied."""

    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """What it took so far; `whole`: in all, in the place of what was counted before."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    requests: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The terminal event."""

    error: str | None = None
    answer: Any = None  # where it hands one over apart from its words


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event of a kind that this release does not know: it is in the log, and means nothing."""

    kind: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A terminal event that is not what it was: nothing can be concluded from it."""

    what: str


Event = Began | Said | Runs | Ran | Edited | Noticed | Used | Ended | Unknown | Changed


@dataclass(slots=True)
class Story:
    """What the events of one attempt add up to."""

    began: Began = field(default_factory=Began)
    turns: int = 0  # messages and calls of the model
    said: str = ""  # its last message
    used: Used = field(default_factory=Used)
    ended: Ended | None = None
    changed: Changed | None = None
    trouble: str | None = None  # the last thing noticed
    unknown: list[str] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Add one event."""
        match event:
            case Began():
                self.began = Began(event.model or self.began.model, event.version or self.began.version)
            case Said(text=text, part=part):
                self.turns += 0 if part and self.said else 1
                self.said = self.said + text if part else text
            case Runs() | Edited():
                self.turns += 1
                self.said = ""  # the text before a call is not its last message
            case Ran():
                self.said = ""
            case Noticed(text=text):
                self.trouble = text
            case Used():
                self.used = event if event.whole else _sum(self.used, event)
            case Ended():
                self.ended = event
            case Changed():
                self.changed = event
            case Unknown(kind=kind):
                if kind not in self.unknown and len(self.unknown) < MOST_UNKNOWN:
                    self.unknown.append(kind)


def _sum(one: Used, more: Used) -> Used:
    cost = None if one.cost_usd is None and more.cost_usd is None else (one.cost_usd or 0) + (more.cost_usd or 0)
    return replace(
        one,
        input_tokens=one.input_tokens + more.input_tokens,
        cached_tokens=one.cached_tokens + more.cached_tokens,
        output_tokens=one.output_tokens + more.output_tokens,
        requests=one.requests + more.requests,
        cost_usd=cost,
    )


def last_object(text: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text; None if there is none."""
    text, decoder = text[-SEARCHED:], json.JSONDecoder()
    found, at = None, text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found = value
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found


@dataclass(slots=True)
class Narrator:
    """Says what events mean to a person who watches, one calm line each; most of them only matter to the story.

    A message that comes in pieces is shown line by line, and its end when something else follows.
    """

    workdir: str = ""
    _pieces: str = ""

    def tell(self, events: Iterable[Event]) -> Iterator[str]:
        """Yield the lines that these events add."""
        for event in events:
            if isinstance(event, Said) and event.part:
                *whole, self._pieces = f"{self._pieces}{event.text}".split("\n")
            else:
                whole, self._pieces = [self._pieces], ""
            yield from (_message_line(line) for line in whole if line.strip())
            yield from self._of(event)

    def _of(self, event: Event) -> Iterator[str]:
        match event:
            case Said(text=text, part=False) if text.strip():
                yield _message_line(text)
            case Runs(what=what):
                yield f"runs: {one_line(what, LINE)}"
            case Ran(output=output, ok=False):
                yield f"failed: {one_line(telling_line(output) or 'no output', LINE)}"
            case Edited(paths=paths):
                inside = (path.removeprefix(f"{self.workdir}/") for path in paths)
                yield f"edits: {one_line(', '.join(inside), LINE)}"
            case Noticed(text=text):
                yield f"notice: {one_line(text, LINE)}"
            case Ended(error=str() as error):
                yield f"ended: {one_line(error, LINE)}"
            case Changed(what=what):
                yield f"unreadable: {one_line(what, LINE)}"
            case _:
                pass


def _message_line(text: str) -> str:
    """Return a message as one line; of an answer in JSON only what a person wants to know."""
    answer = last_object(text) if text.strip().startswith("{") and text.strip().endswith("}") else None
    if answer is None or "ok" not in answer:
        return f"says: {one_line(text, LINE)}"
    words = answer.get("blocked") or answer.get("output") or ""
    kind = "blocked" if answer.get("blocked") else "answers" if answer["ok"] else "gives up"
    return f"{kind}: {one_line(as_text(words), LINE)}"


# ── whether the step may be done ──────────────────────────────────────────────────────────────────────


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
        # The terminal event is not as it was: success and failure can no longer be distinguished.
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

"""What agents say and do, in one form for all of them; and the story that an attempt's events add up to. Pure."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from agentfs.core.excerpts import as_text, one_line, telling_line

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
                self.said = ""  # what was said before a call is not its last message
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
    """Return the last JSON object that stands in a text; None if there is none."""
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

    A message that comes in pieces is said line by line, and its end when something else follows.
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

"""Run one attempt of an agent: one process in the sandbox, the order on its stdin, its events into the log.

The log of an attempt holds the whole stream, so that it can be read, judged and played again without the agent:

    {"event": "agent",       "agent": "codex", "speaks": "codex", "command": [...], "network": true}
    {"event": "agent_event", "words": ["runs: make"], "raw": {...}}    one per line of its stdout, secrets masked
    {"event": "agent_end",   "exit_code": 0, "ended_by": null, "detail": "", "stderr": "..."}
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from agentfs.agents.presets import Agent, fill, locate, version_of
from agentfs.agents.story import End, Event, Narrator, Noticed, Ran, Runs, Story
from agentfs.agents.streams import READERS, Reader
from agentfs.core.records import Failure, Usage
from agentfs.storage.safe_open import reading
from agentfs.tools.base import Confinement, StepContext
from agentfs.tools.launch import Finished
from agentfs.tools.programs import failure_of, run_program
from agentfs.tools.sandbox import HOME, environment

AGENT, EVENT, END = "agent", "agent_event", "agent_end"
LONGEST_LINE = 8 * 1024 * 1024  # bytes; a longer one is not read
LARGEST_FILE = 1024 * 1024  # that is copied into a home
SAME_CALLS = 12  # with the same result, one after the other, before it counts as a loop
ALWAYS = 10.0**9
SCHEMA = ".agentfs/schema.json"
_LONG = re.compile(r"[^\s\"'`,:;{}()\[\]<>]{20,}")  # in a file with keys: a secret


@dataclass(frozen=True, slots=True)
class Task:
    """What one attempt of an agent is about."""

    prompt: str
    schema: Mapping[str, Any]  # of the answer
    model: str | None = None
    max_turns: int | None = None  # what is left of the run's limits
    max_cost_usd: float | None = None
    over: Callable[[Usage], str | None] = lambda _used: None  # which limit it has reached with this, in words
    news: Callable[[str], None] = lambda _words: None  # who shows what it does now


@dataclass(slots=True)
class Attempted:
    """What came of an attempt: its messages and actions, and how it ended."""

    story: Story
    end: End


def run_agent(agent: Agent, task: Task, context: StepContext, given: Mapping[str, str]) -> Attempted | Failure:
    """Let an agent do a step, to its end or ours; a failure says why it was not started. `given`: whose variables."""
    found = locate(agent, given)
    if found is None:
        return not_found(agent)
    with _home(agent, task, context.confinement) as (own, home):
        values = {
            "workdir": str(own.workdir),
            "schema": f"{home}/{SCHEMA}",
            "schema_text": json.dumps(task.schema),
            "model": task.model or agent.model,
            "max_turns": None if task.max_turns is None else str(task.max_turns),
            "max_cost_usd": None if task.max_cost_usd is None else f"{task.max_cost_usd:.4f}",
        }
        argv = [found.program, *fill(agent.command[1:], values)]
        room = replace(own, readable=(*own.readable, *found.shown), programs_at=found.path)
        env = environment(room) | variables(agent, given) | {"HOME": home}
        listening = Listening(agent, task, context)
        inside = replace(context, confinement=room, claim=_noting(agent, argv, room, context))
        prompt = task.prompt.encode("utf-8", "replace")
        ended = run_program(argv, env, inside, spill=False, given=prompt, listener=listening)
    return ended if isinstance(ended, Failure) else Attempted(listening.story, listening.finish(ended, context))


def not_found(agent: Agent) -> Failure:
    """Return why an agent that is not there did not do a step."""
    name = agent.command[0] if agent.command else agent.name
    hint = f"install it: {agent.install}" if agent.install else f"set command under [agents.{agent.name}]"
    return Failure(
        kind="sandbox", message=f"the agent {agent.name} is not here: there is no program {name}", hint=hint
    )


def variables(agent: Agent, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an agent: those that agentfs sets, and the person's that it names."""
    own = {name: given[name] for name in agent.env if given.get(name)}
    also = {name: given[other] for name, other in agent.aliases.items() if name not in own and given.get(other)}
    return {**agent.given, **also, **own}


def usage_of(story: Story, agent: Agent) -> Usage:
    """Return what an attempt took, as far as the agent reports it."""
    used = story.used
    return Usage(
        role="executor",
        model=story.began.model or agent.model or agent.name,
        requests=used.requests or story.turns,
        input_tokens=used.input_tokens,
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
        cost_usd=used.cost_usd,
    )


def version_here(agent: Agent, given: Mapping[str, str], *, confined: bool) -> str | None:
    """Return the version of an agent that is installed."""
    found = locate(agent, given)
    return version_of(found, confined=confined) if found else None


# ── its home ──────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _home(agent: Agent, task: Task, room: Confinement) -> Iterator[tuple[Confinement, str]]:
    """Yield a room with a home of the agent's own, and where that is.

    In the sandbox it is in memory, and never lies on a disk; without one it is a folder that goes with the attempt.
    """
    turns = str(task.max_turns or 1000)
    files = {name: text.replace("{max_turns}", turns).encode() for name, text in agent.files.items()}
    files |= {SCHEMA: json.dumps(task.schema).encode(), **dict(copied_files(agent))}
    if room.sandbox == "bubblewrap":
        yield replace(room, home=files, network=True), HOME
        return
    folder = tempfile.mkdtemp(prefix="agentfs-home-")
    try:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield room, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copied_files(agent: Agent) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the person's home that an agent gets, by their place in it, as far as they are there."""
    home = os.path.expanduser("~")
    for name in agent.read:
        path = os.path.expanduser(name)
        place = os.path.relpath(path, home) if path.startswith(f"{home}/") else os.path.basename(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), reading(path, links=True) as file:
            yield place, file.read(LARGEST_FILE)


def secrets_in(agents: Iterable[Agent]) -> dict[str, str]:
    """Return what counts as secret in the files that agents are given, each with a name to show in its place."""
    found: dict[str, str] = {}
    for agent in agents:
        for name, content in copied_files(agent):
            for text in _LONG.findall(content.decode("utf-8", "replace")):
                found.setdefault(text, f"{os.path.basename(name)}-{sha256(text.encode()).hexdigest()[:6]}")
    return {label: text for text, label in found.items()}


# ── its stream ────────────────────────────────────────────────────────────────────────────────────────────


def _noting(agent: Agent, argv: list[str], room: Confinement, context: StepContext) -> Callable[[Any], None]:
    """Return a claim that also records what is about to start."""

    def claim(mark: Any) -> None:
        context.claim(mark)
        started = {"agent": agent.name, "speaks": agent.speaks, "command": argv, "network": room.network}
        context.log(AGENT, {**started, "sandbox": room.sandbox})

    return claim


@dataclass(slots=True)
class Listening:
    """Takes an agent's stdout line by line: into the log, into its story, to the person who watches."""

    agent: Agent
    task: Task
    context: StepContext
    story: Story = field(default_factory=Story)
    why: tuple[Literal["limit", "loop"], str] | None = None  # why it should end
    _reader: Reader = field(init=False)
    _narrator: Narrator = field(init=False)
    _rest: bytearray = field(default_factory=bytearray)
    _open: int = 0  # calls that have begun and not ended
    _same: tuple[str, str, int] = ("", "", 0)

    def __post_init__(self) -> None:
        self._reader = READERS[self.agent.speaks]()
        self._narrator = Narrator(str(self.context.confinement.workdir))

    def receive(self, known: bytes) -> bool:
        """Take what was printed; return whether there is more in it than that it tries again."""
        self._rest += known
        *lines, rest = bytes(self._rest).split(b"\n") if b"\n" in known else (bytes(self._rest),)
        self._rest = bytearray(rest)
        goes_on = [self._line(line) for line in lines]
        if len(self._rest) > LONGEST_LINE:
            del self._rest[LONGEST_LINE // 2 :]  # it is no event any more, but its beginning is in the log
        return any(goes_on) or not goes_on

    def idle_s(self) -> float:
        """Return how long it may be silent: a command that it waits for may take its time."""
        return ALWAYS if self._open > 0 else self.agent.idle_s

    def wants_end(self) -> bool:
        return self.why is not None

    def finish(self, ended: Finished, context: StepContext) -> End:
        """Take the end of the stream, and return how the program ended."""
        if self._rest:
            self._line(bytes(self._rest))
        self._take(self._reader.end())
        end = self._end(ended, context)
        self.context.log(END, {name: getattr(end, name) for name in ("exit_code", "ended_by", "detail", "stderr")})
        return end

    def _end(self, ended: Finished, context: StepContext) -> End:
        code, stderr = ended.exit_code, ended.stderr
        if ended.ended_by == "listener" and self.why:
            return End(code, self.why[0], self.why[1], stderr)
        if ended.ended_by is None or ended.ended_by == "listener":
            return End(code, None, "", stderr)
        if ended.ended_by == "timeout":
            return End(code, "timeout", context.limit.failure(then=" and was killed").message, stderr)
        failure = failure_of(ended, context)
        return End(code, ended.ended_by, failure.message if failure else "", stderr)

    def _line(self, line: bytes) -> bool:
        text = line.decode("utf-8", "replace").rstrip("\r")
        events = self._reader.take(text)
        words = [*self._narrator.tell(events)]
        if text.strip():
            self.context.log(EVENT, {"words": words, "raw": raw_of(text)})
        self._take(events)
        for one in words:
            self.task.news(one)
        # codex waits for a network without end, and says so every few seconds
        return not events or not all(isinstance(event, Noticed) for event in events)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            self.story.take(event)
            self._watch(event)
        if events and self.why is None and (limit := self.task.over(usage_of(self.story, self.agent))):
            self.why = ("limit", limit)

    def _watch(self, event: Event) -> None:
        """Count calls that are under way, and those that bring the same again and again."""
        if isinstance(event, Runs):
            self._open += 1
        elif isinstance(event, Ran):
            self._open = max(0, self._open - 1)
            what, output, count = self._same
            same = (what, output) == (event.what, event.output)
            self._same = (event.what, event.output, count + 1 if same else 1)
            if self._same[2] >= SAME_CALLS and self.why is None:
                self.why = ("loop", f"it went in circles: it ran the same {SAME_CALLS} times, with the same result")


def raw_of(line: str) -> Any:
    """Return a line as it is kept in a log: the object that it is, else its text."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return value if isinstance(value, dict) else line


def text_of(raw: Any) -> str:
    """Return a line again from a log."""
    return raw if isinstance(raw, str) else json.dumps(raw)


def spoken_in(entries: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return which agent's stream a log holds, and its format; None if it holds none."""
    for entry in entries:
        if entry.get("event") == AGENT and entry.get("speaks") in READERS:
            return str(entry.get("agent")), str(entry["speaks"])
    return None


def usage_in_log(entries: Sequence[Mapping[str, Any]]) -> Usage | None:
    """Return what an agent reported before it was cut off, from its log; None if no agent was at work."""
    found = spoken_in(entries)
    if found is None:
        return None
    return usage_of(story_of(found[1], entries), Agent(found[0], (), "text"))


def _events_in(speaks: str, entries: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """Yield the events of a log, to the end of the stream."""
    reader = READERS[speaks]()
    for entry in entries:
        if entry.get("event") == EVENT:
            yield from reader.take(text_of(entry.get("raw")))
    yield from reader.end()


def story_of(speaks: str, entries: Iterable[Mapping[str, Any]]) -> Story:
    """Return what the events of a log add up to."""
    story = Story()
    for event in _events_in(speaks, entries):
        story.take(event)
    return story


def replay_attempt(speaks: str, entries: Sequence[Mapping[str, Any]]) -> Attempted | None:
    """Return what an attempt came to, from its log alone; None if it does not say how it ended."""
    ends = [one for one in entries if one.get("event") == END]
    if not ends:
        return None
    last = ends[-1]
    end = End(last.get("exit_code"), last.get("ended_by"), str(last.get("detail")), str(last.get("stderr")))
    return Attempted(story_of(speaks, entries), end)


def runs_in(speaks: str, entries: Iterable[Mapping[str, Any]]) -> Iterator[Ran]:
    """Yield what the agent's calls returned, from a log."""
    return (event for event in _events_in(speaks, entries) if isinstance(event, Ran))

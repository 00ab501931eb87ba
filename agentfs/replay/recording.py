"""A recorded run: its records by file, the order in which they appeared, and its conversations. Reads only.

A recording is a run's folder, or a copy of one made by `save_recording`. Nothing in it is read but what agentfs and
people wrote there: the working folder is no part of it.
"""

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import kind_of
from agentfs.core.planner_calls import FIRST_CALL, is_forks_own
from agentfs.core.records import (
    Answer,
    Call,
    Failure,
    GoalChecks,
    JsonObject,
    Order,
    Outcome,
    Record,
    Result,
    Revision,
    Run,
    Usage,
)
from agentfs.errors import UserError
from agentfs.executor.conversation import FINISH, HAND_OVER
from agentfs.storage.files import listing, read_lines, read_whole
from agentfs.storage.safe_open import copy_regular
from agentfs.storage.workspace import goal_path

PARTS = (paths.PLANNING, paths.REVISIONS, paths.STEPS)
R = TypeVar("R", bound=Record)
LOG = ".log.jsonl"
TOOL_FAILED = "It failed ("  # what a model gets of a tool that failed begins so
ABSENT, PRESENT = "no such file", "it is there"
LAST = "9"  # later than any time
KILLED = "agentfs was ended before this attempt could settle"  # what older releases wrote, with no cause
Entry = Mapping[str, Any]  # one line of a log

_NOT_SAVED = (paths.FILES, paths.STATUS, paths.PLAN_ERROR, paths.GOAL_ERROR, paths.ON_WAIT_LOG)
# The records of a run by the kind of their file, and the fields that are not compared: times, costs, people, words.
_KINDS: dict[str, tuple[type[Record], set[str]]] = {
    "call": (Call, {"detail"}),
    "answer": (Answer, {"usage", "started_at", "duration_s", "error", "prompt_sha256", "folder"}),
    "checks": (GoalChecks, {"usage"}),
    "revision": (Revision, {"by", "at", "detail", "rejected"}),
    "order": (Order, {"issued_at"}),
    "result": (
        Result,
        {"usage", "started_at", "ended_at", "duration_s", "error", "checks", "surprise", "sandbox", "prompt_sha256",
         "retry_at", "place", "host"},
    ),
    "outcome": (Outcome, {"usage", "started_at", "ended_at", "summary"}),
}  # fmt: skip


class Unreplayable(UserError):
    """A recording lacks something that cannot be replaced."""


@dataclass(frozen=True, slots=True)
class Try:
    """One request as it was sent, and how it ended; `end` is None where nobody saw that."""

    number: int
    role: str
    model: str
    messages: tuple[JsonObject, ...]
    body: Mapping[str, Any]
    end: Entry | None

    def usage(self) -> Usage:
        """Return what it took, as its log says."""
        known = self.end.get("usage") if self.end else None
        nothing = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "cost_usd": None}
        values = {**nothing, "model": self.model, **(known or {})}
        return Usage.model_validate({**values, "role": self.role, "requests": 1})


@dataclass(slots=True)
class Conversation:
    """The log of a call or an attempt. What is replayed is taken off it, so it can be replayed once."""

    tries: list[Try] = field(default_factory=list)
    calls: list[Entry] = field(default_factory=list)  # the model's calls of tools, and what they gave back
    acceptances: list[Entry] = field(default_factory=list)  # what the plan's checks found when a loop claimed an end
    began: str = ""  # times, as records write them; "": never
    ended: str = ""
    differs: bool = False  # a request was not the recorded one, which is reported once

    def is_replayed(self) -> bool:
        """Whether all that came from outside has been given again."""
        return not self.tries and not self.calls


@dataclass(frozen=True, slots=True)
class Recording:
    """A run as its files have it."""

    folder: Path
    run: Run
    goal_name: str
    goals: Mapping[str, bytes]  # by their sha256
    files: frozenset[str]  # all that agentfs and people wrote, but the plan and the goal
    records: Mapping[str, Record]  # by their files
    conversations: Mapping[str, Conversation]  # by the file names of their logs, without the ending

    def result(self, whose: str) -> Result | None:
        """Return the result of an attempt, by the name of its conversation."""
        return self._get(f"{whose}.result.json", Result)

    def order(self, whose: str) -> Order | None:
        return self._get(f"{whose}.json", Order)

    def answer(self, number: int) -> Answer | None:
        return self._get(paths.call_path(number, "answer"), Answer)

    def checks(self, number: int) -> GoalChecks | None:
        return self._get(paths.call_path(number, "checks"), GoalChecks)

    @property
    def outcome(self) -> Outcome | None:
        return self._get(paths.OUTCOME, Outcome)

    def all(self, kind: type[R]) -> list[R]:
        """Return every record of one kind."""
        return [record for record in self.records.values() if isinstance(record, kind)]

    def conversation(self, whose: str) -> Conversation:
        return self.conversations.get(whose) or Conversation()

    def error(self, whose: str) -> Failure | None:
        """Return what the recording says went wrong with an attempt or a call, by the name of its conversation."""
        record = self.records.get(f"{whose}.result.json")
        return record.error if isinstance(record, Result | Answer) else None

    def was_killed(self, whose: str) -> bool:
        """Whether agentfs was ended while this went on."""
        if whose.endswith(".checks"):
            return f"{whose}.json" not in self.records
        error = self.error(whose)
        if error is None:
            return f"{whose}.result.json" not in self.records
        return error.cause == "crash" or error.message == KILLED

    def plan(self, revision: int) -> bytes:
        """Return the exact bytes of a revision."""
        return read_whole(self.folder / paths.REVISIONS / paths.revision_plan_file(revision))

    def _get(self, path: str, kind: type[R]) -> R | None:
        record = self.records.get(path)
        return record if isinstance(record, kind) else None


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────


def read_recording(folder: Path) -> Recording:
    """Return the recording in a run's folder; raises Unreplayable if a record does not read, or of a fork."""
    if not (folder / paths.RUN).is_file():
        raise Unreplayable(f"{folder} is not a run: there is no {paths.RUN}")
    run = _parse(folder, paths.RUN, Run)
    files = list_files(folder)
    records = dict(_records(folder, files))
    first = records.get(paths.call_path(FIRST_CALL, "call"))
    if isinstance(first, Call) and is_forks_own(first, run):
        raise Unreplayable(f"{run.run} began as a {run.source}, with results of that run: replay that one instead")
    goal = goal_path(folder)
    texts = [read_whole(folder / path) for path in (goal.name, *(one for one in files if kind_of(one) == "goal"))]
    texts += _goals_in_ledger(folder, run, goal.name, records, texts)
    return Recording(
        folder=folder,
        run=run,
        goal_name=goal.name,
        goals={sha256_bytes(text): text for text in texts},
        files=frozenset(files),
        records=records,
        conversations={path.removesuffix(LOG): _conversation(folder / path) for path in files if path.endswith(LOG)},
    )


def parse_record(path: str, source: bytes) -> Record:
    """Return the record that such a file holds; raises ValidationError."""
    return _KINDS[kind_of(path)][0].model_validate_json(source)


def list_files(folder: Path) -> list[str]:
    """Return the files of a run that are written once or appended to, and its outcome."""
    found = [f"{part}/{name}" for part in PARTS for name in sorted(listing(folder / part))]
    return [*found, paths.OUTCOME] if (folder / paths.OUTCOME).is_file() else found


def _records(folder: Path, files: list[str]) -> Iterator[tuple[str, Record]]:
    for path in files:
        kind = kind_of(path)
        if kind not in _KINDS or (kind == "order" and _is_torn(folder / path)):
            continue
        yield path, _parse(folder, path, _KINDS[kind][0])
        if kind == "revision" and (plan := path.replace(".json", ".plan.json")) not in files:
            raise Unreplayable(f"{folder / plan} is missing: it holds a plan")


def _is_torn(order: Path) -> bool:
    """Whether a power cut left an order incomplete: then it counts as none."""
    return not read_whole(order).rstrip().endswith(b"}")


def _parse(folder: Path, path: str, kind: type[R]) -> R:
    try:
        return kind.model_validate_json(read_whole(folder / path))
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "the file"
        raise Unreplayable(f"{folder / path} is not valid ({where}: {first['msg']})") from None


def _goals_in_ledger(
    folder: Path, run: Run, goal: str, records: Mapping[str, Record], known: list[bytes]
) -> list[bytes]:
    """Return the texts that the goal had before, from the ledger, if the folder itself lacks one."""
    wanted = {record.goal_sha256 for record in records.values() if isinstance(record, Call)}
    if wanted <= set(map(sha256_bytes, known)) or workspace_of(folder) is None:
        return []
    from agentfs.ledger import Ledger, LedgerError

    try:
        return list(Ledger(folder.parents[1]).versions(run.run, goal))
    except LedgerError as error:
        raise UserError(str(error)) from None


def _conversation(log: Path) -> Conversation:
    """Return the conversation in a log; a line that is torn is left out."""
    entries = list(read_lines(log))
    return Conversation(
        tries=_tries(entries),
        calls=[entry for entry in entries if entry.get("event") == "tool" and _reached_a_tool(entry)],
        acceptances=[entry for entry in entries if entry.get("event") == "acceptance"],
        began=str(entries[0].get("at", "")) if entries else "",
        ended=str(entries[-1].get("at", "")) if entries else "",
    )


def _reached_a_tool(entry: Entry) -> bool:
    """Whether a call went outside: it was not refused, ended no loop, and did not just ask a person or a model."""
    outside = entry.get("tool") not in (FINISH, HAND_OVER, "ask", "note", "summarize")
    return outside and (entry.get("ok") is True or str(entry.get("result")).startswith(TOOL_FAILED))


def _tries(entries: list[dict[str, Any]]) -> list[Try]:
    """Return every request whole: each in the log lists only what differs from the one before it of the same role."""
    ends = {entry.get("number"): entry for entry in entries if entry.get("event") in ("reply", "failed")}
    found: list[Try] = []
    messages: dict[str, tuple[JsonObject, ...]] = {}
    bodies: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("event") != "request":
            continue
        role, number = str(entry.get("role")), entry.get("number")
        messages[role] = (*messages.get(role, ())[: entry.get("keep", 0)], *entry.get("messages", ()))
        bodies[role] = entry["body"] if "body" in entry else bodies.get(role, {})
        found.append(
            Try(len(found) + 1, role, str(entry.get("model")), messages[role], bodies[role], ends.get(number))
        )
    return found


# ── the order of events ───────────────────────────────────────────────────────────────────────────────────


def events(recording: Recording) -> list[tuple[str, str]]:
    """Return the files of all records with their times, in the order in which they appeared.

    A file has the time that it or its log names, and comes after the files that it rests on.
    """
    own = {path: _time_of(path, recording) for path in recording.records}
    found: dict[str, tuple[str, int]] = {}

    def place(path: str) -> tuple[str, int]:
        if path not in found:
            found[path] = ("", 0)  # of two that rest on each other, which only an edited recording has
            before = [place(other) for other in _rests_on(recording.records[path]) if other in recording.records]
            found[path] = max([own[path], *(at for at, _ in before)]), 1 + max([0, *(depth for _, depth in before)])
        return found[path]

    by_time = sorted(recording.records, key=lambda path: own[path] or LAST)
    return [(path, place(path)[0]) for path in sorted(by_time, key=lambda path: (*place(path), path))]


def _time_of(path: str, recording: Recording) -> str:
    """Return when a file appeared; "" if nothing says it."""
    whose = path.removesuffix(".json").removesuffix(".result")
    talk = recording.conversation(whose)
    match recording.records[path]:
        case Revision(at=at) | Order(issued_at=at):
            return at
        case Result(ended_at=at):
            return at if recording.was_killed(whose) else max(at, talk.ended)  # the log ends when the result is safe
        case Call(call=number):
            revisions = (one.at for one in recording.all(Revision) if one.call == number)
            return talk.began or next(revisions, "")  # a runbook's plan is in place at once
        case Outcome():
            return LAST
        case _:
            return talk.ended


def _rests_on(record: Record) -> Iterator[str]:
    """Yield the files without which a record could not be."""
    match record:
        case Revision(revision=number, call=call):
            yield f"{paths.REVISIONS}/{paths.revision_file(number - 1)}"
            yield paths.call_path(call or 0, "answer")
        case Order(step=step, attempt=number, after=after, revision=revision):
            yield f"{paths.REVISIONS}/{paths.revision_file(revision)}"
            for name, attempt in {**after, step: number - 1}.items():
                yield paths.step_path(name, attempt, "result")
        case Result(step=step, items=dict() as items):
            for slug, attempt in items.items():
                yield paths.step_path(f"{step}{paths.ITEM}{slug}", attempt, "result")
        case Result(step=step, attempt=number):
            yield paths.step_path(step, number, "order")
        case Call(call=number, revision=revision, evidence=evidence):
            yield f"{paths.REVISIONS}/{paths.revision_file(revision)}"
            yield paths.call_path(number - 1, "answer")
            yield from evidence
        case Answer(call=number):
            yield paths.call_path(number, "call")
        case GoalChecks(revision=revision, after=after):
            yield f"{paths.REVISIONS}/{paths.revision_file(revision)}"
            for name, attempt in after.items():
                yield paths.step_path(name, attempt, "result")
        case _:
            return


# ── what differs ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Departure:
    """One place where a replay is not as the recording."""

    file: str  # in the run's folder
    what: str  # a field, or a place in it
    recorded: Any
    came: Any
    request: bool = False  # it is about what a model was asked, not about what was decided


def compare(path: str, recorded: Record, came: Record, paths: Callable[[str], str]) -> Iterator[Departure]:
    """Yield the fields in which two records of one file differ; `paths` makes texts of both runs comparable."""
    old, new = _fields(path, recorded), _fields(path, came)
    for name in {**old, **new}:
        was, now = (json.dumps(one.get(name), ensure_ascii=False, sort_keys=True) for one in (old, new))
        if paths(was) != paths(now):
            yield Departure(path, name, old.get(name), new.get(name))


def _fields(path: str, record: Record) -> dict[str, Any]:
    left_out = {"format", *_KINDS[kind_of(path)][1]}
    fields = record.model_dump(mode="json", by_alias=True, exclude=left_out)
    if isinstance(record, Answer | Result):
        fields["error.kind"] = record.error.kind if record.error else None
    if isinstance(record, Result):
        fields["checks"] = [(check.kind, check.ok) for check in record.checks]
    if isinstance(record, Revision):
        fields["by.role"] = record.by.role
    if isinstance(record, Answer | Result | GoalChecks) and record.usage:
        for name in ("requests", "input_tokens", "cached_tokens", "output_tokens"):
            fields[f"usage.{name}"] = getattr(record.usage, name)
    return fields


# ── what a replay needs ───────────────────────────────────────────────────────────────────────────────────


def missing_parts(recording: Recording) -> Iterator[str]:
    """Yield what the recording lacks to be replayed, in words."""
    for path, record in recording.records.items():
        if isinstance(record, Call) and record.goal_sha256 not in recording.goals:
            yield (
                f"{path}: the goal was edited after this call, and what it was is not in the ledger "
                "(copy the run with `agentfs replay RUN --save DIR` where that is)"
            )
        usage = record.usage if isinstance(record, Answer | Result | GoalChecks) else None
        whose = path.removesuffix(".json").removesuffix(".result")
        kept = len(recording.conversation(whose).tries)
        if usage and whose not in recording.conversations:
            yield f"{whose}{LOG} is missing: it holds the {usage.requests} requests to {usage.model}"
        elif usage and kept < usage.requests and not _is_by_agent(recording, whose):
            yield f"{whose}{LOG} holds {kept} of the {usage.requests} requests to {usage.model}"


def _is_by_agent(recording: Recording, whose: str) -> bool:
    """Whether a coding agent made an attempt: its stream is in the log, and no requests are."""
    order = recording.order(whose)
    return order is not None and order.agent is not None


def workspace_of(folder: Path) -> Path | None:
    """Return the workspace that a run's folder lies in; None for a copy of one."""
    root = folder.parents[2] if len(folder.parents) > 2 else None
    return (
        root
        if root is not None and root / "runs" == folder.parents[1] and (root / paths.SETTINGS).is_file()
        else None
    )


def save_recording(folder: Path, to: Path) -> None:
    """Copy what a replay needs of a run: all of it but what the steps made, with every text of its goal."""
    folder = folder.resolve()
    recording = read_recording(folder)
    if to.exists():
        raise UserError(f"{to} exists: a recording is saved to a new folder")

    def not_saved(at: str, _listed: list[str]) -> Collection[str]:
        return _NOT_SAVED if Path(at) == folder else ()

    shutil.copytree(folder, to, symlinks=True, ignore=not_saved, copy_function=copy_regular)
    last = sha256_bytes(read_whole(folder / recording.goal_name))
    for call in recording.all(Call):
        content = recording.goals.get(call.goal_sha256)
        if content is not None and call.goal_sha256 != last:
            (to / paths.PLANNING / paths.goal_before_file(call.call, recording.goal_name)).write_bytes(content)

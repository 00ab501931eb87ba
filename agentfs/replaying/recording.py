"""A run's folder, read as a recording: every record, every act of a person, every conversation. Reads only."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.continuation import FIRST_CALL, is_forks_own
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Answer, Call, GoalChecks, Order, Outcome, Record, Result, Revision, Run
from agentfs.disk import read_whole
from agentfs.errors import UserError
from agentfs.regular import MOST_RECORD, read_text
from agentfs.replaying.tapes import Tape, tape_in
from agentfs.workspace import goal_path

R = TypeVar("R", bound=Record)
_KEPT_GOAL = re.compile(rf"({paths.FORMAT_DIGITS})\.goal\.(md|txt|yaml|yml|json)\Z")


class Unreplayable(UserError):
    """A recording lacks something that nothing can stand in for."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Everything under `planning/` that carries one number."""

    call: Call | None = None
    answer: Answer | None = None
    checks: GoalChecks | None = None
    replies: Mapping[int, bytes | None] = field(
        default_factory=dict
    )  # by the count of the question; None: there is none
    asked: bytes | None = None
    again: bytes | None = None


@dataclass(frozen=True, slots=True)
class RecordedTalk:
    """A question, and what a person answered."""

    question: str
    reply: bytes | None


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """Everything under `steps/` that carries one step's id and one number."""

    order: Order | None = None
    result: Result | None = None
    talks: Mapping[int, RecordedTalk] = field(default_factory=dict)
    again: bytes | None = None
    claimed: bool = False
    output: Path | None = None  # the whole of an output that was cut


@dataclass(frozen=True, slots=True)
class RecordedRevision:
    """A revision, and the exact bytes of its plan."""

    record: Revision
    plan: bytes


Attempts = dict[tuple[str, int], RecordedAttempt]


@dataclass(frozen=True, slots=True)
class Recording:
    """A run as its files tell it."""

    folder: Path
    run: Run
    goal_name: str
    goals: Mapping[str, bytes]  # by their sha256
    calls: Mapping[int, RecordedCall]
    attempts: Attempts
    revisions: Mapping[int, RecordedRevision]
    outcome: Outcome | None
    tapes: Mapping[str, Tape]  # by the conversation's name

    def result(self, whose: str) -> Result | None:
        """Return the result of the attempt whose conversation, or whose needs, this is."""
        return self._attempt(whose.removesuffix(paths.GATE_NEEDS).removesuffix(paths.NEEDS)).result

    def was_asked(self, whose: str) -> bool:
        """Whether a person was asked about the attempt whose needs these are."""
        return bool(self._attempt(whose.removesuffix(paths.GATE_NEEDS)).talks)

    def order(self, whose: str) -> Order | None:
        """Return the order of the attempt whose conversation this is."""
        return self._attempt(whose).order

    def _attempt(self, whose: str) -> RecordedAttempt:
        found = paths.parse_step_file(f"{whose.removeprefix(f'{paths.STEPS}/')}.json")
        return self.attempts.get((found.step, found.attempt), RecordedAttempt()) if found else RecordedAttempt()

    def tape(self, whose: str) -> Tape:
        return self.tapes.get(whose) or Tape()

    def first_goal(self) -> bytes:
        """Return the goal the run began with."""
        hashes = [one.call.goal_sha256 for _, one in sorted(self.calls.items()) if one.call]
        return self.goals[hashes[0]] if hashes else next(iter(self.goals.values()))


def read_recording(folder: Path) -> Recording:
    """Return the recording in a run's folder; raises Unreplayable if a record does not read."""
    run = _record(folder, paths.RUN, Run)
    if run is None:
        raise Unreplayable(f"{folder} is no run: there is no {paths.RUN}")
    first = _record(folder, f"{paths.PLANNING}/{paths.call_file(FIRST_CALL, 'call')}", Call)
    if first is not None and is_forks_own(first, run):
        raise Unreplayable(f"{run.run} began as a {run.source}, with results of that run: replay that one instead")
    goal = goal_path(folder)
    source = read_whole(goal)
    goals = {sha256_bytes(source): source, **{sha256_bytes(kept): kept for kept in _kept_goals(folder)}}
    return Recording(
        folder=folder,
        run=run,
        goal_name=goal.name,
        goals=goals,
        calls=_calls(folder),
        attempts=_attempts(folder),
        revisions=_revisions(folder),
        outcome=_record(folder, paths.OUTCOME, Outcome),
        tapes=dict(_tapes(folder)),
    )


def _record(folder: Path, name: str, kind: type[R]) -> R | None:
    try:
        return kind.model_validate_json(read_whole(folder / name))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "the file"
        raise Unreplayable(
            f"{folder / name} is not valid ({where}: {first['msg']}), so it cannot be replayed"
        ) from None


def _bytes(path: Path) -> bytes | None:
    return read_whole(path) if path.is_file() else None


def _listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _kept_goals(folder: Path) -> Iterator[bytes]:
    for name in _listed(folder / paths.PLANNING):
        if _KEPT_GOAL.match(name):
            yield read_whole(folder / paths.PLANNING / name)


def _calls(folder: Path) -> dict[int, RecordedCall]:
    files = [found for name in _listed(folder / paths.PLANNING) if (found := paths.parse_call_file(name))]

    def path(number: int, kind: paths.CallFileKind, count: int = 1) -> str:
        return f"{paths.PLANNING}/{paths.call_file(number, kind, count)}"

    def replies(number: int) -> dict[int, bytes | None]:
        counts = sorted(file.count for file in files if (file.call, file.kind) == (number, "question"))
        return {count: _bytes(folder / path(number, "reply", count)) for count in counts}

    return {
        number: RecordedCall(
            call=_record(folder, path(number, "call"), Call),
            answer=_record(folder, path(number, "answer"), Answer),
            checks=_record(folder, path(number, "checks"), GoalChecks),
            replies=replies(number),
            asked=_bytes(folder / path(number, "asked")),
            again=_bytes(folder / path(number, "again")),
        )
        for number in sorted({file.call for file in files})
    }


def _attempts(folder: Path) -> Attempts:
    files: dict[tuple[str, int], list[paths.StepFile]] = {}
    for name in _listed(folder / paths.STEPS):
        if found := paths.parse_step_file(name):
            files.setdefault((found.step, found.attempt), []).append(found)
    return {key: _attempt(folder, *key, mine) for key, mine in sorted(files.items())}


def _attempt(folder: Path, step: str, number: int, files: list[paths.StepFile]) -> RecordedAttempt:
    def path(kind: paths.StepFileKind, count: int = 1) -> str:
        return f"{paths.STEPS}/{paths.step_file(step, number, kind, count)}"

    output = folder / path("output")
    return RecordedAttempt(
        order=_order(folder, path("order")),
        result=_record(folder, path("result"), Result),
        talks={
            file.count: RecordedTalk(
                read_text(folder / path("question", file.count), MOST_RECORD),
                _bytes(folder / path("reply", file.count)),
            )
            for file in files
            if file.kind == "question"
        },
        again=_bytes(folder / path("again")),
        claimed=any(file.kind == "log" for file in files),
        output=output if output.is_file() else None,
    )


def _order(folder: Path, name: str) -> Order | None:
    """Return an order; one that a power cut tore is none, as for everyone."""
    source = _bytes(folder / name)
    return _record(folder, name, Order) if source and source.rstrip().endswith(b"}") else None


def _revisions(folder: Path) -> dict[int, RecordedRevision]:
    found = {}
    for name in _listed(folder / paths.REVISIONS):
        parsed = paths.parse_revision_file(name)
        if parsed is None or parsed[1] != "record":
            continue
        record = _record(folder, f"{paths.REVISIONS}/{name}", Revision)
        plan = _bytes(folder / paths.REVISIONS / paths.revision_plan_file(parsed[0]))
        if plan is None:
            raise Unreplayable(
                f"{folder / paths.REVISIONS / paths.revision_plan_file(parsed[0])} is missing: it holds a plan"
            )
        if record is not None:
            found[parsed[0]] = RecordedRevision(record, plan)
    return dict(sorted(found.items()))


def _tapes(folder: Path) -> Iterator[tuple[str, Tape]]:
    for part in (paths.PLANNING, paths.STEPS):
        for name in _listed(folder / part):
            if name.endswith(LOG):
                yield f"{part}/{name.removesuffix(LOG)}", tape_in(folder / part / name)


LOG = ".log.jsonl"


# ── what a replay needs ───────────────────────────────────────────────────────────────────────────────────


def missing(recording: Recording) -> list[str]:
    """Return what the recording lacks to be replayed, in words."""
    return [*_missing_goals(recording), *_missing_logs(recording)]


def _missing_goals(recording: Recording) -> Iterator[str]:
    for number, one in recording.calls.items():
        if one.call and one.call.goal_sha256 not in recording.goals:
            yield (
                f"{paths.PLANNING}/{paths.call_file(number, 'call')}: the goal was edited after this call, and what "
                "it was is not in the ledger (copy the run with `agentfs replay RUN --save DIR` where that is)"
            )


def _missing_logs(recording: Recording) -> Iterator[str]:
    asked = {
        **{paths.call_conversation(n): c.answer and c.answer.usage for n, c in recording.calls.items()},
        **{f"{paths.call_conversation(n)}.checks": c.checks and c.checks.usage for n, c in recording.calls.items()},
        **{paths.conversation(*key): a.result and a.result.usage for key, a in recording.attempts.items()},
    }
    for whose, usage in asked.items():
        if not usage:
            continue
        kept = len(recording.tape(whose).tries)
        if whose not in recording.tapes:
            yield f"{whose}{LOG} is missing: it holds the {usage.requests} requests to {usage.model}"
        elif kept < usage.requests:
            yield f"{whose}{LOG} holds {kept} of the {usage.requests} requests to {usage.model}"

"""Whether the files of one run agree with each other: numbers, hashes, and what one says of another. Pure.

What a run says of itself is checked here without the ledger; hashes come in computed.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from agentfs.core import paths as names
from agentfs.core.records import Answer, Call, Order, Outcome, Record, Result, Revision, Run

T = TypeVar("T")
R = TypeVar("R", bound=Record)
_RECORDS: dict[str, type[Record]] = {
    "run": Run,
    "revision": Revision,
    "call": Call,
    "answer": Answer,
    "order": Order,
    "result": Result,
    "outcome": Outcome,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that does not say what it must: which, and what is wrong with it."""

    file: str
    what: str


Grade = Literal["wrong", "later", "note"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing in which files and ledger differ. `later`: a commit follows; `note`: it may be so, but know it."""

    grade: Grade
    file: str  # from runs/, or a commit of the ledger
    what: str
    fix: str

    def as_json(self) -> dict[str, str]:
        return {"grade": self.grade, "file": self.file, "what": self.what, "fix": self.fix}


@dataclass(slots=True)
class RunFiles:
    """The records of one run as they were read, and the hashes of what they speak of; all by their paths."""

    paths: dict[str, str] = field(default_factory=dict)  # every file, and the name git gives to what it holds
    records: dict[str, Record] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)  # sha256 of the plans and goals that were kept
    torn: set[str] = field(default_factory=set)  # orders that do not read
    unreadable: list[Fault] = field(default_factory=list)

    def of(self, kind: type[R]) -> dict[str, R]:
        """Return the records of one kind."""
        return {path: record for path, record in self.records.items() if isinstance(record, kind)}

    def numbered(self, kind: type[R]) -> dict[int, R]:
        """Return the revisions or calls by the numbers in their names."""
        return {_number(path): record for path, record in self.of(kind).items()}


def record_kind(path: str) -> type[Record] | None:
    """Return what is read of a file; None: it holds no record that is compared."""
    return _RECORDS.get(names.kind_of(path))


def faults(files: RunFiles) -> Iterator[Fault]:
    """Yield everything in which the files of a run disagree among themselves."""
    yield from files.unreadable
    for look in (
        _run,
        _numbers,
        _plans,
        _bases,
        _calls,
        _goals,
        _installed_plans,
        _attempts,
        _orders,
        _evidence,
        _end,
    ):
        yield from look(files)


def _run(files: RunFiles) -> Iterator[Fault]:
    if names.RUN not in files.paths:
        yield Fault(names.RUN, "is missing")
    if files.of(Revision) and not any(name in files.paths for name in names.GOALS):
        yield Fault("goal.md", "is missing: what was asked is gone")


def _numbers(files: RunFiles) -> Iterator[Fault]:
    """Revisions and calls are numbered from 1, without a gap, and each file says its own number."""
    for number in _gaps({_number(path) for path in files.paths if names.kind_of(path) == "revision"}):
        yield Fault(_revision(number), "is missing, and later revisions are there")
    for path, revision in files.of(Revision).items():
        if path != _revision(revision.revision):
            yield Fault(path, f"says it is revision {revision.revision}")
    calls = _list(files, names.PLANNING, names.parse_call_file)
    made = {one.call for one in calls if one.kind == "call"}
    for number in _gaps(made):
        if not any(one.call == number for one in calls):
            yield Fault(names.call_path(number, "call"), "is missing, and later calls are there")
    asked: dict[str, Call | Answer] = {**files.of(Call), **files.of(Answer)}
    for path, record in asked.items():
        if _number(path) != record.call:
            yield Fault(path, f"says it is of call {record.call}")
    for number in sorted({one.call for one in calls if one.kind == "answer"} - made):
        yield Fault(names.call_path(number, "call"), "is missing, and its answer is there")


def _plans(files: RunFiles) -> Iterator[Fault]:
    for number, revision in files.numbered(Revision).items():
        plan = _plan(number)
        if plan not in files.hashes:
            yield Fault(plan, f"is missing: the plan of revision {number}")
        elif files.hashes[plan] != revision.plan_sha256:
            yield Fault(plan, f"is not the plan that {_revision(number)} names (plan_sha256)")


def _bases(files: RunFiles) -> Iterator[Fault]:
    """Every revision names the one before, every call the one it was made on."""
    revisions = files.numbered(Revision)
    for number, revision in revisions.items():
        before = revisions.get(number - 1)
        if (number == 1 or before) and revision.base_sha256 != (before.plan_sha256 if before else None):
            yield Fault(_revision(number), f"does not follow on revision {number - 1} (base_sha256)")
    for path, call in files.of(Call).items():
        on = revisions.get(call.revision)
        if (call.revision == 0 or on) and call.base_sha256 != (on.plan_sha256 if on else None):
            yield Fault(path, f"was not made on the plan of revision {call.revision} (base_sha256)")


def _calls(files: RunFiles) -> Iterator[Fault]:
    """A revision that a call led to says what the call said."""
    calls = files.numbered(Call)
    for path, revision in files.of(Revision).items():
        if revision.call is None:
            continue
        call, file = calls.get(revision.call), names.call_path(revision.call, "call")
        if call is None:
            yield Fault(file, f"is missing, and revision {_number(path)} came of it")
        elif _fields_of(revision) != _fields_of(call):
            yield Fault(path, f"says something else than {file}, which it came of")


def _fields_of(one: Revision | Call) -> tuple[object, ...]:
    return one.trigger, one.step, one.detail, one.evidence


def _goals(files: RunFiles) -> Iterator[Fault]:
    calls = files.numbered(Call)
    for path, kept in files.hashes.items():
        call = calls.get(_number(path)) if names.kind_of(path) == "goal" else None
        if call and call.goal_sha256 != kept:
            yield Fault(path, f"is not the goal that call {_number(path)} was given (goal_sha256)")


def _installed_plans(files: RunFiles) -> Iterator[Fault]:
    """What a call put in place is in planning/, byte for byte."""
    tries = {(_number(path), kept) for path, kept in files.hashes.items() if names.kind_of(path) == "plan"}
    for number, revision in files.numbered(Revision).items():
        if revision.call is not None and (revision.call, revision.plan_sha256) not in tries:
            tried = names.call_path(revision.call, "plan")
            words = f"is no plan that call {revision.call} put in place: {tried} is another, or gone"
            yield Fault(_plan(number), words)


def _attempts(files: RunFiles) -> Iterator[Fault]:
    """Attempts are numbered from 1 without a gap: of each something is there."""
    seen: dict[str, set[int]] = {}
    for one in _list(files, names.STEPS, names.parse_step_file):
        seen.setdefault(one.step, set()).add(one.attempt)
    for step, numbers in seen.items():
        for number in _gaps(numbers):
            path = names.step_path(step, number, "result")
            yield Fault(path, "is missing, with all of its attempt, and later ones are there")


def _orders(files: RunFiles) -> Iterator[Fault]:
    """Orders and results say whose they are, and a result is that of its order."""
    orders, results, last = files.of(Order), files.of(Result), max(files.numbered(Revision), default=0)
    attempts: dict[str, Order | Result] = {**orders, **results}
    for path, record in attempts.items():
        if not path.startswith(f"{names.conversation(record.step, record.attempt)}."):
            words = f"is of attempt {record.attempt} of {record.step}, not of the one it is named after"
            yield Fault(path, words)
        if record.revision > last > 0:
            yield Fault(path, f"is of revision {record.revision}, which is not there")
    for path, result in results.items():
        ordered = path.replace(".result.json", ".json")
        order = orders.get(ordered)
        if ordered in files.torn and result.status != "interrupted":  # it is not fsynced: a power cut may empty it
            yield Fault(ordered, "does not read, and it was carried out")
        if order and (order.key, order.after) != (result.key, result.after):
            yield Fault(path, f"is not of {ordered}: key or after differ")


def _evidence(files: RunFiles) -> Iterator[Fault]:
    """What a call or a revision rests on is there; a request to replan may have been taken back."""
    for number, call in files.numbered(Call).items():
        for path in call.evidence:
            if path not in files.paths and not path.endswith(".asked.md"):
                yield Fault(path, f"is missing, and call {number} rests on it")


def _end(files: RunFiles) -> Iterator[Fault]:
    """An outcome counts what is there."""
    for outcome in files.of(Outcome).values():
        revisions, calls = len(files.of(Revision)), len(files.of(Call))
        if outcome.revisions != revisions:
            yield Fault(names.OUTCOME, f"counts {outcome.revisions} revisions, and {revisions} are there")
        if outcome.calls != calls:
            yield Fault(names.OUTCOME, f"counts {outcome.calls} calls, and {calls} are there")
        done = {result.step for result in files.of(Result).values() if result.status == "done"}
        for step in outcome.steps.done:
            if step not in done:
                yield Fault(names.OUTCOME, f"says that {step} is done, and no result does")


def is_acted_upon(path: str, paths: Container[str]) -> bool:
    """Whether what a person wrote has been acted upon, given the files beside it: from then on it stays."""
    folder, _, name = path.rpartition("/")
    if folder == names.STEPS and (step := names.parse_step_file(name)):
        if step.kind == "reply":
            kinds: tuple[names.StepFileKind, ...] = ("result", "order")
            here = any(names.step_path(step.step, step.attempt, kind) in paths for kind in kinds)
            return here if step.nth == 1 else names.step_path(step.step, step.attempt, "result") in paths
        return any(names.step_path(step.step, step.attempt + 1, kind) in paths for kind in ("order", "result"))
    if folder == names.PLANNING and (call := names.parse_call_file(name)):
        return names.call_path(call.call + (call.kind != "asked"), "call") in paths or names.OUTCOME in paths
    return False


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────


def _gaps(numbers: set[int]) -> list[int]:
    return sorted(set(range(1, max(numbers, default=0))) - numbers)


def _number(path: str) -> int:
    """Return the number of a revision or call, by the name of one of its files."""
    return int(path.rpartition("/")[2].partition(".")[0])


def _list(files: RunFiles, folder: str, parse: Callable[[str], T | None]) -> list[T]:
    begin = f"{folder}/"
    found = (parse(path.removeprefix(begin)) for path in sorted(files.paths) if path.startswith(begin))
    return [one for one in found if one is not None]


def _revision(number: int) -> str:
    return f"{names.REVISIONS}/{names.revision_file(number)}"


def _plan(number: int) -> str:
    return f"{names.REVISIONS}/{names.revision_plan_file(number)}"

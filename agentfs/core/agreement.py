"""Whether the files of one run agree with each other: numbers, hashes, and what one says of another. Pure.

What a run says of itself is checked here without the ledger; hashes come in computed.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from agentfs.core import paths as names
from agentfs.core.records import Answer, Call, Order, Outcome, Result, Revision, Run

Attempt = tuple[str, int]
T = TypeVar("T")


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
    """The records of one run as they were read, and the hashes of what they speak of."""

    folder: str  # the run's id by where it lies
    paths: frozenset[str] = frozenset()
    run: Run | None = None
    revisions: dict[int, Revision] = field(default_factory=dict)
    plans: dict[int, str] = field(default_factory=dict)  # sha256 of revisions/R.plan.json
    calls: dict[int, Call] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    tries: dict[int, set[str]] = field(default_factory=dict)  # sha256 of planning/C.plan.K.json
    goals: dict[int, str] = field(default_factory=dict)  # sha256 of the goal a call was given, where it was kept
    orders: dict[Attempt, Order] = field(default_factory=dict)
    results: dict[Attempt, Result] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def ids(self) -> set[str]:
        """The names the run has had, as far as it says so: a folder may be renamed."""
        return {self.folder} | ({self.run.run} if self.run else set())


def faults(files: RunFiles) -> Iterator[Fault]:
    """Yield everything in which the files of a run disagree among themselves."""
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
    if files.revisions and not any(f"goal{suffix}" in files.paths for suffix in names.GOAL_SUFFIXES):
        yield Fault("goal.md", "is missing: what was asked is gone")


def _numbers(files: RunFiles) -> Iterator[Fault]:
    """Revisions and calls are numbered from 1, without a gap, and each file says its own number."""
    listed = _list(files, names.REVISIONS, names.parse_revision_file)
    for number in _gaps({number for number, kind in listed if kind == "record"}):
        yield Fault(_revision(number), "is missing, and later revisions are there")
    for number, revision in files.revisions.items():
        if revision.revision != number:
            yield Fault(_revision(number), f"says it is revision {revision.revision}")
    calls = _list(files, names.PLANNING, names.parse_call_file)
    made = {one.call for one in calls if one.kind == "call"}
    for number in _gaps(made):
        if not any(one.call == number for one in calls):
            yield Fault(names.call_path(number, "call"), "is missing, and later calls are there")
    for kind, found in (("call", files.calls), ("answer", files.answers)):
        for number, record in found.items():
            if record.call != number:
                file = names.call_path(number, "call" if kind == "call" else "answer")
                yield Fault(file, f"says it is of call {record.call}")
    for number in sorted(files.answers.keys() - made):
        yield Fault(names.call_path(number, "call"), "is missing, and its answer is there")


def _plans(files: RunFiles) -> Iterator[Fault]:
    for number, revision in files.revisions.items():
        if number not in files.plans:
            yield Fault(_plan(number), f"is missing: the plan of revision {number}")
        elif files.plans[number] != revision.plan_sha256:
            yield Fault(_plan(number), f"is not the plan that {_revision(number)} names (plan_sha256)")


def _bases(files: RunFiles) -> Iterator[Fault]:
    """Every revision names the one before, every call the one it was made on."""
    for number, revision in files.revisions.items():
        before = files.revisions.get(number - 1)
        if (number == 1 or before) and revision.base_sha256 != (before.plan_sha256 if before else None):
            yield Fault(_revision(number), f"does not follow on revision {number - 1} (base_sha256)")
    for number, call in files.calls.items():
        on = files.revisions.get(call.revision)
        if (call.revision == 0 or on) and call.base_sha256 != (on.plan_sha256 if on else None):
            yield Fault(
                names.call_path(number, "call"), f"was not made on the plan of revision {call.revision} (base_sha256)"
            )


def _calls(files: RunFiles) -> Iterator[Fault]:
    """A revision that a call led to says what the call said."""
    for number, revision in files.revisions.items():
        if revision.call is None:
            continue
        call = files.calls.get(revision.call)
        if call is None:
            yield Fault(names.call_path(revision.call, "call"), f"is missing, and revision {number} came of it")
        elif _fields_of(revision) != _fields_of(call):
            yield Fault(
                _revision(number),
                f"says something else than {names.call_path(revision.call, 'call')}, which it came of",
            )


def _fields_of(one: Revision | Call) -> tuple[object, ...]:
    return one.trigger, one.step, one.detail, one.evidence


def _goals(files: RunFiles) -> Iterator[Fault]:
    for number, kept in files.goals.items():
        call = files.calls.get(number)
        if call and call.goal_sha256 != kept:
            words = f"is not the goal that call {number} was given (goal_sha256)"
            yield Fault(next(path for path in files.paths if _is_goal_of(path, number)), words)


def _is_goal_of(path: str, call: int) -> bool:
    return path.startswith(f"{names.PLANNING}/{call}.goal.")


def _installed_plans(files: RunFiles) -> Iterator[Fault]:
    """What a call put in place is in planning/, byte for byte."""
    for number, revision in files.revisions.items():
        if revision.call is not None and revision.plan_sha256 not in files.tries.get(revision.call, set()):
            tried = names.call_path(revision.call, "plan")
            yield Fault(
                _plan(number), f"is no plan that call {revision.call} put in place: {tried} is another, or gone"
            )


def _attempts(files: RunFiles) -> Iterator[Fault]:
    """Attempts are numbered from 1 without a gap: of each something is there."""
    seen: dict[str, set[int]] = {}
    for one in _list(files, names.STEPS, names.parse_step_file):
        seen.setdefault(one.step, set()).add(one.attempt)
    for step, numbers in seen.items():
        for number in _gaps(numbers):
            yield Fault(
                names.step_path(step, number, "result"),
                "is missing, with all of its attempt, and later ones are there",
            )


def _orders(files: RunFiles) -> Iterator[Fault]:
    """Orders and results say whose they are, and a result is that of its order."""
    kinds: tuple[tuple[names.StepFileKind, Mapping[Attempt, Order | Result]], ...] = (
        ("order", files.orders),
        ("result", files.results),
    )
    for kind, found in kinds:
        for (step, number), record in found.items():
            file = names.step_path(step, number, kind)
            if (record.step, record.attempt) != (step, number):
                yield Fault(
                    file, f"is of attempt {record.attempt} of {record.step}, not of the one it is named after"
                )
            if record.revision > max(files.revisions, default=0) and files.revisions:
                yield Fault(file, f"is of revision {record.revision}, which is not there")
    for attempt, result in files.results.items():
        order = files.orders.get(attempt)
        if order and (order.key, order.after) != (result.key, result.after):
            yield Fault(
                names.step_path(*attempt, "result"),
                f"is not of {names.step_path(*attempt, 'order')}: key or after differ",
            )


def _evidence(files: RunFiles) -> Iterator[Fault]:
    """What a call or a revision rests on is there; a request to replan may have been taken back."""
    for number, call in files.calls.items():
        for path in call.evidence:
            if path not in files.paths and not path.endswith(".asked.md"):
                yield Fault(path, f"is missing, and call {number} rests on it")


def _end(files: RunFiles) -> Iterator[Fault]:
    """An outcome counts what is there."""
    outcome = files.outcome
    if outcome is None:
        return
    if outcome.revisions != len(files.revisions):
        words = f"counts {outcome.revisions} revisions, and {len(files.revisions)} are there"
        yield Fault(names.OUTCOME, words)
    if outcome.calls != len(files.calls):
        yield Fault(names.OUTCOME, f"counts {outcome.calls} calls, and {len(files.calls)} are there")
    done = {step for (step, _), result in files.results.items() if result.status == "done"}
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
            return here if step.count == 1 else names.step_path(step.step, step.attempt, "result") in paths
        return any(names.step_path(step.step, step.attempt + 1, kind) in paths for kind in ("order", "result"))
    if folder == names.PLANNING and (call := names.parse_call_file(name)):
        return names.call_path(call.call + (call.kind != "asked"), "call") in paths or names.OUTCOME in paths
    return False


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────


def _gaps(numbers: set[int]) -> list[int]:
    return sorted(set(range(1, max(numbers, default=0))) - numbers)


def _list(files: RunFiles, folder: str, parse: Callable[[str], T | None]) -> list[T]:
    begin = f"{folder}/"
    found = (parse(path.removeprefix(begin)) for path in sorted(files.paths) if path.startswith(begin))
    return [one for one in found if one is not None]


def _revision(number: int) -> str:
    return f"{names.REVISIONS}/{names.revision_file(number)}"


def _plan(number: int) -> str:
    return f"{names.REVISIONS}/{names.revision_plan_file(number)}"

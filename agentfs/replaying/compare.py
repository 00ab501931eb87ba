"""Where two recordings of one run differ. Pure. Times, costs, reasons in words and people's names are left out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentfs.core import paths
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Record, Usage

if TYPE_CHECKING:
    from agentfs.replaying.recording import Recording

ABSENT = "no such file"
_NOT_COMPARED = {
    "call": {"format", "detail"},
    "answer": {"format", "usage", "started_at", "duration_s", "error", "prompt_sha256"},
    "checks": {"format", "usage"},
    "revision": {"format", "by", "at", "detail", "rejected"},
    "order": {"format", "issued_at"},
    "result": {
        "format", "usage", "started_at", "ended_at", "duration_s", "error", "checks", "surprise", "sandbox",
        "prompt_sha256", "retry_at",
    },
    "outcome": {"format", "usage", "started_at", "ended_at", "summary"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Departure:
    """One place where a replay is not as the recording."""

    file: str  # in the run's folder
    what: str  # a field, or a place in it
    recorded: Any
    came: Any
    request: bool = False  # it is about what a model was asked, not about what was decided


Records = dict[str, dict[str, Any]]  # file -> what of it is compared


def compare(recorded: "Recording", came: "Recording", paths: Callable[[str], str]) -> list[Departure]:
    """Return every difference, a file at a time; `paths` makes texts of both runs comparable."""
    old, new = records(recorded), records(came)
    return [
        departure for file in {**old, **new} for departure in _differences(file, old.get(file), new.get(file), paths)
    ]


def records(recording: "Recording") -> Records:
    """Return everything of a recording that is compared, by file."""
    return {
        **dict(_planning(recording)),
        **dict(_revisions(recording)),
        **dict(_steps(recording)),
        **({paths.OUTCOME: _fields("outcome", recording.outcome)} if recording.outcome else {}),
    }


def _planning(recording: "Recording") -> Iterator[tuple[str, dict[str, Any]]]:
    for number, one in recording.calls.items():

        def path(kind: paths.CallFileKind, count: int = 1, number: int = number) -> str:
            return f"{paths.PLANNING}/{paths.call_file(number, kind, count)}"

        if one.call:
            yield path("call"), _fields("call", one.call)
        if one.answer:
            error = one.answer.error.kind if one.answer.error else None
            yield path("answer"), {**_fields("answer", one.answer), "error.kind": error, **_usage(one.answer.usage)}
        if one.checks:
            yield path("checks"), {**_fields("checks", one.checks), **_usage(one.checks.usage)}
        for count in one.replies:
            yield path("question", count), {}


def _revisions(recording: "Recording") -> Iterator[tuple[str, dict[str, Any]]]:
    for number, one in recording.revisions.items():
        yield f"{paths.REVISIONS}/{paths.revision_plan_file(number)}", {"sha256": sha256_bytes(one.plan)}
        fields = _fields("revision", one.record)
        yield f"{paths.REVISIONS}/{paths.revision_file(number)}", {**fields, "by.role": one.record.by.role}


def _steps(recording: "Recording") -> Iterator[tuple[str, dict[str, Any]]]:
    for (step, number), one in recording.attempts.items():

        def path(kind: paths.StepFileKind, count: int = 1, step: str = step, number: int = number) -> str:
            return f"{paths.STEPS}/{paths.step_file(step, number, kind, count)}"

        for count in one.talks:
            yield path("question", count), {}
        if one.order:
            yield path("order"), _fields("order", one.order)
        if one.result:
            error = one.result.error.kind if one.result.error else None
            checks = [(check.kind, check.ok) for check in one.result.checks]
            fields = {**_fields("result", one.result), "error.kind": error, "checks": checks}
            yield path("result"), {**fields, **_usage(one.result.usage)}


def _fields(kind: str, record: Record | None) -> dict[str, Any]:
    return record.model_dump(mode="json", by_alias=True, exclude=_NOT_COMPARED[kind]) if record else {}


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    told = usage.model_dump(include={"requests", "input_tokens", "cached_tokens", "output_tokens"})
    return {f"usage.{name}": value for name, value in told.items()}


def _differences(
    file: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, paths: Callable[[str], str]
) -> Iterator[Departure]:
    if old is None or new is None:
        was, now = ("it is there", ABSENT) if new is None else (ABSENT, "it is there")
        yield Departure(file, "", was, now)
        return
    for name in {**old, **new}:
        if _plain(old.get(name), paths) != _plain(new.get(name), paths):
            yield Departure(file, name, old.get(name), new.get(name))


def _plain(value: Any, paths: Callable[[str], str]) -> Any:
    match value:
        case str():
            return paths(value)
        case list() | tuple():
            return [_plain(item, paths) for item in value]
        case dict():
            return {paths(name): _plain(item, paths) for name, item in value.items()}
        case _:
            return value

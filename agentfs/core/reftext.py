"""References in text and JSON values: what they look like, where they are, and how to rename them. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from pydantic import JsonValue

from agentfs.core.paths import STEP_ID
from agentfs.core.problems import Problem, did_you_mean
from agentfs.core.records import Check, Step

Kind = Literal["output", "file", "goal"]
T = TypeVar("T")

_CANDIDATE = re.compile(r"\{\{([^{}\n]*)\}\}|\{step_([^{}\s]+)_result\}")
_SHORT_IN_DOUBLE = re.compile(r"step_(.+)_result\Z")
_ID = re.compile(rf"{STEP_ID}\Z")


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a text where a value belongs."""

    step: str | None  # None: the goal
    kind: Kind
    path: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that was meant to be a reference."""

    message: str
    fix: str
    start: int = 0
    end: int = 0


def scan(text: str) -> Iterator[Reference | Malformed]:
    """Yield everything in the text that is, or was meant to be, a reference."""
    for match in _CANDIDATE.finditer(text):
        found = _short(match) if match[1] is None else _long(match)
        if isinstance(found, Malformed):
            yield replace(found, start=match.start(), end=match.end())
        elif found:
            yield found


def find(text: str) -> tuple[Reference, ...]:
    """Return the well-formed references in a text, in order."""
    if "{" not in text:  # most texts; a plan has thousands
        return ()
    return tuple(found for found in scan(text) if isinstance(found, Reference))


def is_whole(text: str) -> bool:
    """Return whether the text is one reference and nothing else."""
    return [(found.start, found.end) for found in find(text)] == [(0, len(text))]


def walk(value: JsonValue, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield every string in a JSON value with its pointer; keys are no values."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")


def texts_of(step: Step) -> Iterator[tuple[str, str]]:
    """Yield every text of a step in which a reference may stand, with its pointer within the step."""
    yield from walk(step.input, "/input")
    for name, checks in (("needs", step.needs), ("checks", step.checks)):
        for index, check in enumerate(checks or ()):
            yield from walk(fields_of(check), f"/{name}/{index}")


def texts_in(step: Step) -> Iterator[str]:
    """Yield the same texts without their pointers, which take longer to make than the texts to find."""
    yield from _strings(step.input)
    for check in (*(step.needs or ()), *(step.checks or ())):
        yield from _strings(fields_of(check))


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, str):
                yield item
            else:
                yield from _strings(item)


def fields_of(check: Check) -> dict[str, JsonValue]:
    """Return a check as it is written in the plan."""
    fields: dict[str, JsonValue] = check.model_dump(by_alias=True, exclude_unset=True)
    return fields


def rename(value: T, old: str, new: str) -> T:
    """Return a JSON value in which every reference to the step `old` names `new`."""
    renamed: object = value
    if isinstance(value, str):
        renamed = _rename_in(value, old, new)
    elif isinstance(value, list):
        renamed = [rename(item, old, new) for item in value]
    elif isinstance(value, dict):
        renamed = {key: rename(item, old, new) for key, item in value.items()}
    return renamed  # type: ignore[return-value]  # a JSON value keeps its type


def malformed_in(pointer: str, text: str) -> Iterator[Problem]:
    """Yield a problem for everything in a text that was meant to be a reference and is none."""
    malformed = (found for found in scan(text) if isinstance(found, Malformed))
    yield from (problem_with(found, text, found.message, found.fix, pointer) for found in malformed)


def problem_with(found: Reference | Malformed, text: str, message: str, fix: str, pointer: str) -> Problem:
    """Return a problem of one of the references in a text, which knows where in the text that is."""
    written = text[found.start : found.end]
    return Problem(message, fix, pointer, quote=written, before=text.count(written, 0, found.start))


def _rename_in(text: str, old: str, new: str) -> str:
    parts, at = [], 0
    for reference in find(text):
        written = text[reference.start : reference.end]
        if reference.step == old:
            short = written.startswith("{step_")
            written = f"{{step_{new}_result}}" if short else written.replace(f"steps.{old}.", f"steps.{new}.", 1)
        parts += [text[at : reference.start], written]
        at = reference.end
    return "".join([*parts, text[at:]])


def _short(match: re.Match[str]) -> Reference | Malformed:
    """Read {step_ID_result}; ids hold no underscores, so one in place of a hyphen names the same step."""
    step = match[2].replace("_", "-")
    if _ID.match(step):
        return Reference(step, "output", (), match.start(), match.end())
    return Malformed(f"{match[0]} names no step: {match[2]!r} is no id", "write {{steps.ID.output}}")


def _long(match: re.Match[str]) -> Reference | Malformed | None:
    written, body = match[0], match[1].strip(" \t")
    if body == "goal":
        return Reference(None, "goal", (), match.start(), match.end())
    if short := _SHORT_IN_DOUBLE.match(body):
        return Malformed(f"{written} mixes two forms", f"write {{{{steps.{short[1]}.output}}}} or {{{body}}}")
    if not body.startswith("steps."):
        return None
    _, step, *rest = body.split(".")
    if problem := _fault(written, step, rest):
        return problem
    return Reference(step, "file" if rest[0] == "file" else "output", tuple(rest[1:]), match.start(), match.end())


def _fault(written: str, step: str, rest: list[str]) -> Malformed | None:
    """Return what is wrong with the parts after `steps.`, if anything."""
    whole = f"{{{{steps.{step}.output}}}}"
    if not step or not _ID.match(step):
        return Malformed(f"{written} names no step: {step!r} is no id", "an id is lower case letters, digits and -")
    if not rest:
        return Malformed(f"{written} does not say what of the step is meant", f"did you mean {whole!r}?")
    if rest[0] not in ("output", "file"):
        fix = did_you_mean(rest[0], ("output", "file"), f"write {whole}, or .file for its path")
        return Malformed(f"{written} asks for {rest[0]!r}, which steps do not have", fix)
    if rest[0] == "file" and rest[1:]:
        return Malformed(f"{written}: .file is a path, with nothing inside", f"write {{{{steps.{step}.file}}}}")
    if "" in rest:
        return Malformed(f"{written} has an empty part between its dots", f"write {whole[:-2]}.KEY}}}}")
    return None

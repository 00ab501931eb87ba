"""References of a plan that pass the check and still cannot resolve. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.core.problems import Problem
from agentfs.core.records import OutputCheck, Step
from agentfs.core.references import find, in_step, is_whole, texts_of
from agentfs.planner.lint import SHAPES, Linted, LintFinding
from agentfs.planner.lint_texts import wrong_references


def placeholders(subject: Linted) -> Iterator[LintFinding]:
    ids = frozenset(subject.scheme.steps)
    for name in subject.new:
        step = subject.scheme.steps[name]
        for pointer, text in texts_of(step):
            for written in wrong_references(text, ids, name, code=_is_code(step, pointer)):
                fix = "write {{steps.ID.output}} with the id of the step whose output is meant"
                message = f"{_short(written)} would reach the tool as it stands: it is no reference"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))
        if step.tool is None:
            yield from _unfilled_words(subject, step, ids)


def _unfilled_words(subject: Linted, step: Step, ids: frozenset[str]) -> Iterator[LintFinding]:
    """A model that does a step reads its description as it stands: references are filled in `input` only."""
    for field_name in ("description", "success_condition"):
        words = getattr(step, field_name) or ""
        written = [words[one.start : one.end] for one in find(words) if one.step]
        written += wrong_references(words, ids, step.id, code=False)
        for one in written:
            message = f"{_short(one)} is not filled in here: only 'input', 'needs' and 'checks' are"
            fix = 'put it into "input": {"material": "{{steps.ID.output}}"}, and say in words what to do with it'
            yield LintFinding(Problem(message, fix, subject.at(step.id, f"/{field_name}")))


def _is_code(step: Step, pointer: str) -> bool:
    return pointer.endswith("/run") or (step.tool, pointer) in (
        ("shell", "/input/command"),
        ("python", "/input/code"),
    )


def paths_into_outputs(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step = subject.scheme.steps[name]
        texts = dict(texts_of(step))
        for pointer, reference in in_step(step):
            source = subject.scheme.steps.get(reference.step or "")
            if source is None or reference.kind != "output" or source.tool not in SHAPES:
                continue
            written = texts[pointer][reference.start : reference.end]
            shape = _inside(SHAPES[source.tool], reference.path)
            if isinstance(shape, _Nowhere):
                message = f"{written} leads nowhere: the output of {source.tool} is {shape.described}"
                fix = f"write {{{{steps.{source.id}.output}}}}, or take the part out in a step of its own"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))
            elif isinstance(shape, list | dict) and is_whole(texts[pointer]) and _wants_text(subject, step, pointer):
                message = f"{written} is {_described(shape)}, and text is wanted here"
                fix = f"put words around it: 'Found: {written}', or make it text in a step of its own"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))


def impossible_outputs(subject: Linted) -> Iterator[LintFinding]:
    """Yield what is asked of an output that a tool can never give: a program prints no number, only its digits."""
    for name in subject.new:
        step = subject.scheme.steps[name]
        gives = _gives(step.tool)
        for pointer, schema in _output_schemas(step):
            wanted = schema.get("type") if isinstance(schema, dict) else None
            if gives and isinstance(wanted, str) and wanted not in gives:
                message = f"the output of {step.tool} is {' or '.join(gives)}, never {wanted!r}: this cannot hold"
                fix = 'ask for what it is: {"type": "string", "pattern": "^[0-9]+$"} for the digits of a number'
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))


def _output_schemas(step: Step) -> Iterator[tuple[str, Any]]:
    yield "/expects/type", step.expects
    for place, check in enumerate(step.checks or ()):
        if isinstance(check, OutputCheck):
            yield f"/checks/{place}/schema/type", check.schema_


def _gives(tool: str | None) -> tuple[str, ...]:
    """Return the types, as JSON Schema names them, of what a tool gives back; () where anything may come."""
    if tool in ("shell", "python"):
        return ("string", "array", "object")
    shape = SHAPES.get(tool or "")
    kinds = (("array", list), ("object", dict), ("string", str))
    return tuple(name for name, kind in kinds if isinstance(shape, kind))


@dataclass(frozen=True, slots=True)
class _Nowhere:
    described: str


def _inside(shape: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(shape, list) and part.isdigit():
            shape = shape[0]
        elif isinstance(shape, dict) and part in shape:
            shape = shape[part]
        else:
            return _Nowhere(_described(shape))
    return shape


def _described(shape: Any) -> str:
    if isinstance(shape, list):
        return "a list, counted from 0"
    return f"an object with {', '.join(shape)}" if isinstance(shape, dict) else str(shape)


def _wants_text(subject: Linted, step: Step, pointer: str) -> bool:
    """Whether the place of a text is a field of the tool's input that takes text only."""
    spec = subject.catalogue.tools.get(step.tool or "")
    fields: Mapping[str, Any] = spec.input_schema.get("properties", {}) if spec else {}
    name = pointer.removeprefix("/input/")
    return bool(fields.get(name, {}).get("type") == "string") and not _is_code(step, pointer)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"

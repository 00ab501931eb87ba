"""References become values: once, and never as code. Pure: the caller brings the outputs.

A value that is put in is never scanned again. In shell text it travels as an environment variable, in Python as a
literal; everywhere else it is the value itself, or its text.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pydantic import JsonValue

from agentfs.core.hashing import check_value
from agentfs.core.records import (
    Check,
    CommandCheck,
    JsonObject,
    ResolvedCheck,
    ResolvedCommandCheck,
    Step,
)
from agentfs.core.references import (
    NOT_AN_EXPRESSION,
    Reference,
    are_values,
    find,
    is_whole,
    literal,
    names_item,
    reads_shell_text,
    spans_of,
)
from agentfs.core.shell_text import place_references
from agentfs.core.shell_words import Refusal, replace_spans
from agentfs.core.values import NoPart, as_text, value_inside

ANY_SIZE = 2**62
LARGEST_VARIABLE = 120 * 1024  # bytes; the kernel takes 128 KiB with the name
OUTPUTS_PER_STEP, OUTPUTS_PER_PLAN = 16, 4096  # how often limits.output_bytes its references may come to
STEPS_PER_LIST, STEPS_PER_GATED_LIST = (
    64,
    8,
)  # a list may come to as much as so many steps; a question shows all of it

_VARIABLE = re.compile(r"REF_[0-9]+")
_PARAM_BY_FILE = "put the text into a file, and give its path"
_NONE: Mapping[str, JsonValue] = {}


@dataclass(frozen=True, slots=True)
class Output:
    """What a step has put out."""

    value: JsonValue
    cut: bool  # the value is not the whole
    file: str  # absolute path of the full output


@dataclass(frozen=True, slots=True)
class Resolved:
    """A step's input and checks with values in place of references."""

    input: JsonObject
    needs: tuple[ResolvedCheck, ...]
    checks: tuple[ResolvedCheck, ...]
    files: tuple[str, ...]  # steps whose output file must be readable
    when: ResolvedCheck | None = None  # the step's condition


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A reference that has no value: the step it refers to, and why."""

    step: str
    why: str


def reference_limit(output_bytes: int, steps: int) -> int:
    """Return how many bytes the references of one step may come to: fewer where many steps share what there is."""
    return output_bytes * min(OUTPUTS_PER_STEP * steps, OUTPUTS_PER_PLAN) // max(1, steps)


def item_limit(limit: int, items: int, *, gated: bool) -> int:
    """Return how many bytes one item of a list may come to, where a step may come to `limit`."""
    return min(limit, limit * (STEPS_PER_GATED_LIST if gated else STEPS_PER_LIST) // max(1, items))


def resolve_step(
    step: Step, outputs: Mapping[str, Output], goal: str, limit: int, params: Mapping[str, JsonValue] = _NONE
) -> Resolved | Unresolved:
    """Return the step's input and checks with every reference replaced by its value, or the first that has none.

    `limit`: how many bytes all of these values may come to.
    """
    resolver = _Resolver(step, outputs, goal, limit, params)
    try:
        given = resolver.input()
        when = resolver.check(step.when) if step.when else None
        needs = tuple(resolver.check(check) for check in step.needs or ())
        checks = tuple(resolver.check(check) for check in step.checks or ())
    except _NoValueError as failed:
        return failed.unresolved
    return Resolved(given, needs, checks, tuple(resolver.files), when)


def resolve_list(
    step: Step, outputs: Mapping[str, Output], goal: str, params: Mapping[str, JsonValue]
) -> JsonValue | Unresolved:
    """Return what `each` of a step comes to: whatever its size, for each of its items is bounded on its own."""
    each: JsonValue = list(step.each) if isinstance(step.each, tuple) else step.each
    try:
        return _Resolver(step, outputs, goal, ANY_SIZE, params).value(each)
    except _NoValueError as failed:
        return failed.unresolved


class _NoValueError(Exception):
    def __init__(self, unresolved: Unresolved) -> None:
        super().__init__(unresolved.why)
        self.unresolved = unresolved


@dataclass(slots=True)
class _Resolver:
    step: Step
    outputs: Mapping[str, Output]
    goal: str
    limit: int
    params: Mapping[str, JsonValue]
    left: int = field(init=False)
    files: dict[str, None] = field(default_factory=dict)  # an ordered set

    def __post_init__(self) -> None:
        self.left = self.limit

    # ── the places a reference may be in ───────────────────────────────────────────────────────────────

    def input(self) -> JsonObject:
        given = dict(self.step.input or {})
        field_of_code = {"shell": "command", "python": "code"}.get(self.step.tool or "", "")
        code = given.get(field_of_code)
        if not isinstance(code, str) or not find(code):
            return {key: self.value(item) for key, item in given.items()}
        rest = {key: self.value(item) for key, item in given.items() if key != field_of_code}
        if self.step.tool == "python":
            return {**rest, "code": self.python(code)}
        return self._shell_input(rest, code)

    def _shell_input(self, rest: JsonObject, code: str) -> JsonObject:
        if not reads_shell_text(self.step, "/input/command"):
            raise self._none(find(code)[0], "it is in the text of a shell other than sh, bash and dash")
        given = rest.get("env")
        own = given if isinstance(given, dict) else {}
        command, env = self.shell(code, own)
        return {**rest, "command": command, "env": {**own, **env}}

    def check(self, check: Check) -> ResolvedCheck:
        if isinstance(check, CommandCheck):
            run, env = self.shell(check.run)
            return ResolvedCommandCheck(kind="command", run=run, **({"env": env} if env else {}))
        fields = {key: self._check_field(key, item) for key, item in check_value(check).items()}
        return type(check).model_validate(fields)

    def _check_field(self, key: str, item: JsonValue) -> JsonValue:
        """Resolve one field of a check: text stays text, and in a pattern a value stands for itself."""
        if not isinstance(item, str) or not (references := find(item)):
            return self.value(item)
        texts = [self.text(reference) for reference in references]
        text = self._interpolate(item, [re.escape(value) for value in texts] if key == "matches" else texts)
        if not text:
            raise self._none(references[0], f"it is empty, and a check needs a {key}")
        return text

    def value(self, item: JsonValue) -> JsonValue:
        """Resolve a JSON value; a string that is only a reference takes the value's type."""
        if isinstance(item, list):
            return [self.value(part) for part in item]
        if isinstance(item, dict):
            return {key: self.value(part) for key, part in item.items()}
        if not isinstance(item, str) or "{" not in item:  # most texts; a plan has thousands
            return item
        if is_whole(item):
            return self.value_of(find(item)[0])
        return self._interpolate(item, [self.text(reference) for reference in find(item)])

    def shell(self, text: str, own: Collection[str] = ()) -> tuple[str, dict[str, str]]:
        """Return shell text with variables in place of references, and their values."""
        references = find(text)
        names, env = _variables({*own, *_VARIABLE.findall(text)}, references), {}
        written = []
        for reference, place in zip(references, place_references(text, spans_of(references)), strict=True):
            if isinstance(place, Refusal):
                raise self._none(reference, f"its place is not safe: it {place.why}")
            name = names[_key(reference)]
            env[name] = self.variable(reference)
            written.append(f'"${{{name}}}"' if place == "bare" else f"${{{name}}}")
        return self._interpolate(text, written), env

    def python(self, code: str) -> str:
        """Return Python code with literals in place of references."""
        references = find(code)
        for reference, fine in zip(references, are_values(code, spans_of(references)), strict=True):
            if not fine:
                raise self._none(reference, NOT_AN_EXPRESSION)
        literals = [literal(self.value_of(r), code[r.end : r.end + 1]) for r in references]
        return self._interpolate(code, literals)

    # ── the values ────────────────────────────────────────────────────────────────────────────────────────

    def value_of(self, reference: Reference) -> JsonValue:
        value = self._look_up(reference)
        self.left -= 0 if reference.kind == "file" else len(as_text(value).encode("utf-8", "surrogatepass"))
        if self.left < 0:
            why = f"all that {self.step.id!r} refers to comes to more than {self.limit} bytes; {_by_file(reference)}"
            raise self._none(reference, why)
        return value

    def _look_up(self, reference: Reference) -> JsonValue:
        if reference.kind == "param":
            return self._param(reference)
        if reference.step is None:
            return self.goal
        output = self.outputs.get(reference.step)
        if output is None:
            raise self._none(reference, "it has no output")
        if reference.kind == "file":
            self.files[reference.step] = None
            return output.file
        if output.cut:
            raise self._none(reference, f"its output was cut; {_by_file(reference)}")
        return self._inside(reference, output.value)

    def text(self, reference: Reference) -> str:
        return as_text(self.value_of(reference))

    def variable(self, reference: Reference) -> str:
        """Return a value as an environment variable can carry it."""
        text = self.text(reference)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > LARGEST_VARIABLE:
            raise self._none(reference, f"its value has {size} bytes, too many for a shell; {_by_file(reference)}")
        if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise self._none(reference, f"its value holds a character no shell can take; {_by_file(reference)}")
        return text

    def _inside(self, reference: Reference, value: JsonValue) -> JsonValue:
        inner = value_inside(value, reference.path)
        if isinstance(inner, NoPart):
            raise self._none(reference, inner.words("its output"))
        return inner

    def _param(self, reference: Reference) -> JsonValue:
        name, *path = reference.path
        if name not in self.params:
            raise self._none(reference, "this run has no such parameter")
        inner = value_inside(self.params[name], path)
        if isinstance(inner, NoPart):
            raise self._none(reference, inner.words("its value"))
        return inner

    def _none(self, reference: Reference, why: str) -> _NoValueError:
        subject = "the goal" if reference.kind == "goal" else f"step {reference.step!r}"
        subject = f"the parameter {reference.path[0]!r}" if reference.kind == "param" else subject
        subject = "the item" if names_item(reference) else subject
        return _NoValueError(Unresolved(reference.step or self.step.id, f"{subject} cannot be referred to: {why}"))

    @staticmethod
    def _interpolate(text: str, values: Sequence[str]) -> str:
        return replace_spans(text, spans_of(find(text)), values)


_Key = tuple[str | None, str, tuple[str, ...]]


def _key(reference: Reference) -> _Key:
    return reference.step, reference.kind, reference.path


def _variables(taken: Collection[str], references: Sequence[Reference]) -> dict[_Key, str]:
    """Return a variable's name for each different reference, none of them taken already."""
    free = (name for number in count() if (name := f"REF_{number}") not in taken)
    return {key: next(free) for key in dict.fromkeys(map(_key, references))}


def _by_file(reference: Reference) -> str:
    if reference.kind == "param":
        return "put the text into a file, and let the item be its path" if names_item(reference) else _PARAM_BY_FILE
    if reference.step is None:
        return "read goal.md instead"
    return f"read it from its file: {{{{steps.{reference.step}.file}}}}"

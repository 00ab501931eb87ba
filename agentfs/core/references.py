"""References, {{steps.ID.output}}, {{params.NAME}}: find, rename, and refuse those that are wrong. Pure.

`resolve` turns them into values, `shell_text` says where one may be in a shell text.
"""

import math
import re
import tokenize
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from token import ERRORTOKEN, tok_name
from typing import Any, Literal, TypeVar

from pydantic import JsonValue

from agentfs.core.hashing import check_value
from agentfs.core.paths import STEP_ID
from agentfs.core.problems import Hints, Problem, did_you_mean
from agentfs.core.records import PARAM_NAME, Record, Step
from agentfs.core.shell_text import place_references
from agentfs.core.shell_words import Refusal, replace_spans
from agentfs.core.values import NoPart, value_inside

Kind = Literal["output", "file", "goal", "param"]
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

_CANDIDATE = re.compile(r"\{\{([^{}\n]*)\}\}|\{step_([^{}\s]+)_result\}")
_SHORT_IN_DOUBLE = re.compile(r"step_(.+)_result\Z")
_ID = re.compile(rf"{STEP_ID}\Z")
ITEM, INDEX = "~item", "~index"  # {{item}} and {{index}}, their names among the parameters
_PARAM = re.compile(rf"{PARAM_NAME}\Z")


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a text where a value belongs."""

    step: str | None  # None: the goal, or a parameter
    kind: Kind
    path: tuple[str, ...]  # of a parameter, its name first
    start: int
    end: int

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters that references may name, and their values as far as these are known."""

    names: tuple[str, ...] = ()
    values: Mapping[str, JsonValue] = field(default_factory=dict)


NO_PARAMS = Params()


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


def spans_of(references: Iterable[Reference]) -> list[tuple[int, int]]:
    return [reference.span for reference in references]


def is_whole(text: str) -> bool:
    """Return whether the text is one reference and nothing else."""
    return spans_of(find(text)) == [(0, len(text))]


def walk(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield every string in a JSON value, or in a check, with its pointer; keys are no values."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, Record):
        yield from walk(check_value(value), pointer)


def texts_in(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text in which a reference may be, of a step in plan form, with its pointer within the step."""
    for name in ("each", "input", "when", "needs", "checks"):
        yield from walk(step.get(name), f"/{name}")


def texts_of(step: Step) -> Iterator[tuple[str, str]]:
    """Yield the same of a record."""
    return texts_in(vars(step))


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


def problem_with(found: Reference | Malformed, text: str, message: str, fix: str, pointer: str) -> Problem:
    """Return a problem of one of the references in a text, which knows where in the text that is."""
    written = text[found.start : found.end]
    return Problem(message, fix, pointer, quote=written, before=text.count(written, 0, found.start))


def _rename_in(text: str, old: str, new: str) -> str:
    def rewrite(written: str) -> str:
        short = written.startswith("{step_")
        return f"{{step_{new}_result}}" if short else written.replace(f"steps.{old}.", f"steps.{new}.", 1)

    spans = [reference.span for reference in find(text) if reference.step == old]
    return replace_spans(text, spans, [rewrite(text[start:end]) for start, end in spans])


def _short(match: re.Match[str]) -> Reference | Malformed:
    """Read {step_ID_result}; ids hold no underscores, so one in place of a hyphen names the same step."""
    step = match[2].replace("_", "-")
    if _ID.match(step):
        return Reference(step, "output", (), match.start(), match.end())
    return Malformed(f"{match[0]} names no step: {match[2]!r} is not an id", "write {{steps.ID.output}}")


def _long(match: re.Match[str]) -> Reference | Malformed | None:
    written, body = match[0], match[1].strip(" \t")
    if body == "goal":
        return Reference(None, "goal", (), match.start(), match.end())
    if short := _SHORT_IN_DOUBLE.match(body):
        return Malformed(f"{written} mixes two forms", f"write {{{{steps.{short[1]}.output}}}} or {{{body}}}")
    if body == "index" or body.split(".")[0] == "item":
        return _item(match, body.split("."))
    if body.startswith("params."):
        return _param(match, body.split(".")[1:])
    if not body.startswith("steps."):
        return None
    _, step, *rest = body.split(".")
    if problem := _fault(written, step, rest):
        return problem
    return Reference(step, "file" if rest[0] == "file" else "output", tuple(rest[1:]), match.start(), match.end())


def _param(match: re.Match[str], parts: list[str]) -> Reference | Malformed:
    if not _PARAM.match(parts[0]):
        fix = "a parameter's name is lower case letters, digits and _"
        return Malformed(f"{match[0]} names no parameter: {parts[0]!r} is not a name", fix)
    if "" in parts:
        return Malformed(f"{match[0]} has an empty part between its dots", f"write {{{{params.{parts[0]}.KEY}}}}")
    return Reference(None, "param", tuple(parts), match.start(), match.end())


def _item(match: re.Match[str], parts: list[str]) -> Reference | Malformed:
    if "" in parts:
        return Malformed(f"{match[0]} has an empty part between its dots", "write {{item.KEY}}")
    return Reference(None, "param", (f"~{parts[0]}", *parts[1:]), match.start(), match.end())


def _fault(written: str, step: str, rest: list[str]) -> Malformed | None:
    """Return what is wrong with the parts after `steps.`, if anything."""
    whole = f"{{{{steps.{step}.output}}}}"
    if not step or not _ID.match(step):
        return Malformed(
            f"{written} names no step: {step!r} is not an id", "an id is lower case letters, digits and -"
        )
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


# ── what may be wrong with those of a step ───────────────────────────────────────────────────────────────


_COMMAND_CHECK = re.compile(r"/(?:when|(?:needs|checks)/[0-9]+)/run\Z")  # no other check has a `run`
_SHELLS = ("sh", "bash", "dash")
_MOST_LISTED = 20  # ids in one message
_MOST_PROBLEMS = 1000
_Wrong = tuple[str, str]  # what is wrong with a reference, and how to fix it


def in_step(step: Step) -> Iterator[tuple[str, Reference]]:
    """Yield every reference of a step with the JSON pointer, within the step, of the text it is in."""
    for pointer, text in texts_of(step):
        for reference in find(text):
            yield pointer, reference


def problems_in_step(
    step: Step, known: Collection[str], hints: Hints | None = None, params: Params = NO_PARAMS
) -> list[Problem]:
    """Return what is wrong with the references of a step, with pointers within the step; of thousands, the first."""
    return list(islice(_problems(step, known, hints or Hints(), params), _MOST_PROBLEMS))


def _problems(step: Step, known: Collection[str], hints: Hints, params: Params) -> Iterator[Problem]:
    for pointer, text in texts_of(step):
        references = []
        for one in scan(text):
            if isinstance(one, Malformed):
                yield problem_with(one, text, one.message, one.fix, pointer)
                continue
            references.append(one)
            written = text[one.start : one.end]
            wrong = _wrong_step(one, written, step, known, hints) or _wrong_param(one, written, params)
            if wrong := wrong or _wrong_item(one, written, step, pointer):
                yield problem_with(one, text, *wrong, pointer)
        if references:
            yield from _find_misplaced(step, pointer, text, references)
    for name in ("description", "success_condition"):
        text = getattr(step, name) or ""
        yield from param_problems(f"/{name}", text, params)
        for one in find(text):
            if wrong := _wrong_item(one, text[one.start : one.end], step, f"/{name}"):
                yield problem_with(one, text, *wrong, f"/{name}")


def param_problems(pointer: str, text: str, params: Params) -> Iterator[Problem]:
    """Yield what is wrong with the references of words to parameters: other references are left alone there."""
    for found in scan(text):
        written = text[found.start : found.end]
        if isinstance(found, Reference):
            if wrong := _wrong_param(found, written, params):
                yield problem_with(found, text, *wrong, pointer)
        elif written.lstrip("{ \t").startswith("params."):
            yield problem_with(found, text, found.message, found.fix, pointer)


def names_item(reference: Reference) -> bool:
    return reference.kind == "param" and reference.path[0] in (ITEM, INDEX)


def _wrong_item(one: Reference, written: str, step: Step, pointer: str) -> _Wrong | None:
    """Return what is wrong with {{item}} where there is none: outside `each`, in the list itself, in a condition."""
    if not names_item(one):
        return None
    if step.each is None:
        return f"{written} is in a step without 'each'", 'add "each": "{{steps.ID.output}}"'
    if pointer.startswith("/each"):
        return f"{written} is in the list itself", "for lists in lists let each item be a run of its own"
    if pointer.startswith("/when"):
        return f"{written} is in the condition of the whole step", "use 'needs', or test it in the command"
    return None


def _wrong_param(one: Reference, written: str, params: Params) -> _Wrong | None:
    """Return what is wrong with a parameter that is not there, or whose value has nothing at the path."""
    if one.kind != "param" or names_item(one):
        return None
    name = one.path[0]
    if name not in params.names:
        known = f"the parameters are {', '.join(params.names)}" if params.names else "declare it under params"
        return f"{written}: there is no parameter {name!r}", did_you_mean(name, params.names, known)
    inner = value_inside(params.values[name], one.path[1:]) if name in params.values else None
    if isinstance(inner, NoPart):
        return f"{written}: {inner.words(f'the parameter {name!r}')}", "correct the path, or the value"
    return None


def _wrong_step(one: Reference, written: str, step: Step, known: Collection[str], hints: Hints) -> _Wrong | None:
    """Return what is wrong with a reference to the step itself, or to one that is not there."""
    if one.step is None or (one.step in known and one.step != step.id):
        return None
    if one.step == step.id:
        return f"{written} refers to the step it is in", "refer to an earlier step"
    others = sorted(set(known) - {step.id}) if len(known) <= _MOST_LISTED else known
    listed = "write the id of a step of the plan"
    if others is not known:
        listed = f"the other steps are {', '.join(others)}" if others else "there is no other step"
    return f"{written} refers to a step that is not in the plan", hints(one.step, others, listed)


def _find_misplaced(step: Step, pointer: str, text: str, references: Sequence[Reference]) -> Iterator[Problem]:
    """Yield a problem for each reference that is where its value could become code, or would not arrive."""
    if _COMMAND_CHECK.match(pointer) or (step.tool == "shell" and pointer == "/input/command"):
        yield from _find_misplaced_in_shell(step, pointer, text, references)
    elif step.tool == "python" and pointer == "/input/code":
        for reference, fine in zip(references, are_values(text, spans_of(references)), strict=True):
            if not fine:
                written = text[reference.start : reference.end]
                message, fix = f"{written}: {NOT_AN_EXPRESSION}", f"write name = {written}"
                yield problem_with(reference, text, message, fix, pointer)
    elif step.tool == "shell" and pointer == "/input/interpreter":
        yield Problem("the interpreter cannot come from a reference", "write its name: sh or bash", pointer)


def reads_shell_text(step: Step, pointer: str) -> bool:
    """Return whether the shell of the text at a pointer is one whose quoting is known here."""
    interpreter = (step.input or {}).get("interpreter") if pointer == "/input/command" else None
    return interpreter is None or str(interpreter).rsplit("/", 1)[-1] in _SHELLS


def _find_misplaced_in_shell(
    step: Step, pointer: str, text: str, references: Sequence[Reference]
) -> Iterator[Problem]:
    if not reads_shell_text(step, pointer):
        message, fix = "references can be in the text of sh, bash and dash only", "use one of these"
        yield problem_with(references[0], text, message, fix, pointer)
        return
    for reference, place in zip(references, place_references(text, spans_of(references)), strict=True):
        if isinstance(place, Refusal):
            written = text[reference.start : reference.end]
            fix = place.fix.replace("{ref}", written)
            yield problem_with(reference, text, f"{written} {place.why}", fix, pointer)


# ── in Python code ───────────────────────────────────────────────────────────────────────────────────────


NOT_AN_EXPRESSION = "a reference in Python is a value, not text inside quotes"


def are_values(code: str, spans: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    """Return for each span whether a value may be there: as a token of its own, in no string or comment."""
    mark = "_ref"
    while mark in code:
        mark += "_"
    names = [f"{mark}{n}" for n in range(len(spans))]
    alone = frozenset(_lone_names(replace_spans(code, spans, names)))
    return tuple(
        name in alone and not _joins(code[start - 1 : start]) for name, (start, _) in zip(names, spans, strict=True)
    )


def literal(value: JsonValue, following: str) -> str:
    """Return the value as Python writes it, so that it stays one operand before the text that follows."""
    text = _literal(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"({text})" if is_number and (text.startswith("-") or following.startswith(".")) else text


def _literal(value: JsonValue) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_literal(item)}' for key, item in value.items())}}}"
    return repr(value)


def _lone_names(code: str) -> Iterator[str]:
    """Yield the names of the code that are outside strings and after no dot; nothing if it is no Python."""
    try:
        tokens = list(tokenize.generate_tokens((f"{line}\n" for line in code.split("\n")).__next__))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
    if any(token.type == ERRORTOKEN for token in tokens):
        return
    depth, previous = 0, ""
    for token in tokens:
        kind = tok_name[token.type]
        depth += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        if kind == "NAME" and not depth and previous != ".":
            yield token.string
        previous = token.string


def _joins(char: str) -> bool:
    """Return whether a character would become part of the literal after it: 1 and 5 would be 15."""
    return char.isalnum() or char == "_"


# ── what leads to what ────────────────────────────────────────────────────────────────────────────────────


def reach(begin: Iterable[H], onward: Mapping[H, Iterable[H]]) -> set[H]:
    """Return all that can be come to from these, with these."""
    found: set[H] = set()
    ahead = list(begin)
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            ahead.extend(onward.get(one, ()))
    return found


def find_circle(needs: Mapping[H, Iterable[H]]) -> list[H] | None:
    """Return things of which each waits for the next and the last for the first; None if there are none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(reversed(error.args[1][1:]))
    return None

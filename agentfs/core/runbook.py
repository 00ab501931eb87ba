"""`## Steps` of a Markdown goal -> steps in plan form, each knowing its lines; and their fallbacks. Pure.

Every `###` heading is a step's id. What is below it is its description, its fence and the lines with a meaning
(`step_lines`). A step follows the one above it, unless it says `after:`. What is nearly one of these and would be
read as prose is reported as a near miss (`near_misses`).

A fence says which tool the step calls, and with what input:

    sh, bash        `shell` with that interpreter; the body is the command
    python          the body is the code
    http            the body is an address, or GET and an address
    a tool's name   the body is its input as JSON or YAML, or the text of its one required field
    json expects    the JSON Schema of an unsurprising output

Fallbacks stay out of the plan, and of its order, until they are needed. An *alternative* (`instead of: a`) takes a
failed step's place; a *clean-up* (`on failure of: a`) runs when a step has failed and nothing can take its place.
Alternatives may have alternatives and clean-ups of their own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

from agentfs.core.documents import Document, read_json, read_yaml
from agentfs.core.hashing import in_order
from agentfs.core.markdown import Block, Fence, Heading, OpenComment, Prose
from agentfs.core.near_misses import CLOSE_FENCE, Known, find_near_miss, outside_steps
from agentfs.core.paths import STEP_ID, plain_name
from agentfs.core.problems import Locate, Place, Places, Problem, Rejected, did_you_mean, shift_places
from agentfs.core.records import JsonObject
from agentfs.core.references import Reference, find, problem_with, reach, texts_in
from agentfs.core.step_lines import Draft, read_form
from agentfs.core.text import one_line
from agentfs.core.tool_spec import Catalogue, ToolSpec, split_name

_ID = re.compile(rf"{STEP_ID}\Z")
_ID_LENGTH = 63
MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step in plan form, and where its parts are in the file it was written in."""

    value: JsonObject
    places: Locate = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        return str(self.value["id"])


@dataclass(frozen=True, slots=True)
class Fallback(PlacedStep):
    """A step that is not in the plan yet: what it is for, and of which step. It has no `depends_on` yet."""

    kind: Literal["instead", "cleanup"]
    of: str
    of_place: Place = field(repr=False, compare=False)

    @property
    def line(self) -> int:
        return self.places("", False)[0]


@dataclass(frozen=True, slots=True)
class Runbook:
    """What is under `## Steps`, and what is wrong with it."""

    steps: tuple[PlacedStep, ...]
    fallbacks: tuple[Fallback, ...]
    problems: tuple[Problem, ...]
    near_misses: tuple[Problem, ...]  # what is read as prose, or not at all, and was surely not meant so


def read_runbook(blocks: Sequence[Block], catalogue: Catalogue) -> Runbook | None:
    """Return the runbook in a Markdown text; None if it has no `## Steps`."""
    headings = [at for at, block in enumerate(blocks) if _is_steps(block)]
    if not headings:
        return None
    below = blocks[headings[0] + 1 :]
    section = list(takewhile(lambda block: not (isinstance(block, Heading) and block.level <= 2), below))
    drafts, problems = _drafts(section, catalogue)
    second = (blocks[at] for at in headings[1:])
    wrong = [one.problem("there is a second '## Steps'", "put all steps under one", "/steps") for one in second]
    comments = (one for one in blocks if isinstance(one, OpenComment))
    wrong += [one.problem("this comment never ends", "end it with -->") for one in comments]
    problems = [*wrong, *problems]
    steps, fallbacks = _steps(drafts), _fallbacks(drafts)
    near_misses = list(outside_steps(blocks, section))
    for number, draft in enumerate(sorted(drafts, key=lambda draft: draft.of is not None)):
        problems += [problem.below(f"/steps/{number}") for problem in draft.problems]
        near_misses += [problem.below(f"/steps/{number}") for problem in draft.near_misses]
    if not steps and not problems:
        message = "every step is a fallback of another" if fallbacks else "there is no step under '## Steps'"
        fix = "write ### and a step's id, and below it what to do"
        problems.append(blocks[headings[0]].problem(message, fix, "/steps"))
    problems.extend(fallback_problems(steps, fallbacks))
    return Runbook(steps, fallbacks, tuple(problems), tuple(near_misses))


def _is_steps(block: Block) -> bool:
    return isinstance(block, Heading) and block.level == 2 and block.text.rstrip(":").lower() == "steps"


def _drafts(section: Sequence[Block], catalogue: Catalogue) -> tuple[list[Draft], list[Problem]]:
    problems: list[Problem] = []
    drafts: list[Draft] = []
    headings = [block for block in section if isinstance(block, Heading) and block.level == 3]
    known = Known(frozenset(heading.text.strip("`") for heading in headings), frozenset(catalogue.tools))
    if len(headings) > MOST_STEPS:
        message = f"there are more than {MOST_STEPS} steps"
        return [_draft(headings[0], 1)], [headings[MOST_STEPS].problem(message, "write several runbooks", "/steps")]
    for block in section:
        if isinstance(block, Heading) and block.level == 3:
            drafts.append(_draft(block, len(drafts) + 1))
        elif drafts:
            _take(drafts[-1], block, catalogue, known)
        elif isinstance(block, Fence):
            fix = "put it below a ### heading with the step's id"
            problems.append(block.problem("this fence belongs to no step", fix, "/steps"))
    return drafts, problems


def _take(draft: Draft, block: Block, catalogue: Catalogue, known: Known) -> None:
    match block:
        case Fence():
            read_fence(draft, block, catalogue)
        case Prose():
            _take_line(draft, block, known)
        case Heading() if block.text:
            _take_line(draft, Prose(block.line, block.column, block.text, indented=True), known)
        case _:
            pass


def _take_line(draft: Draft, prose: Prose, known: Known) -> None:
    """Take one line into the step: a form, or words of its description, which may be a near miss."""
    if read_form(draft, prose):
        return
    if problem := find_near_miss(prose, known, continues=draft.open_line == prose.line - 1):
        draft.near_misses.append(problem)
    draft.describe(prose)


def _draft(heading: Heading, number: int) -> Draft:
    """Begin a step. A heading that is no id is read as the id it could be, so that the rest can be checked."""
    written, place = heading.text.strip("`"), heading.place
    if _ID.match(written):
        return Draft(written, Places(place))
    draft = Draft(plain_name(written, _ID_LENGTH) or f"step-{number}", Places(place))
    fix = f"write ### {draft.id}: lower case letters, digits and -, at most {_ID_LENGTH}"
    draft.refuse(
        place, f"{one_line(written, 80)!r} is not a step id" if written else "this step has no id", fix, "/id"
    )
    return draft


def _steps(drafts: Sequence[Draft]) -> tuple[PlacedStep, ...]:
    """Return the steps of the plan, each after the one above it where it does not say otherwise."""
    steps: list[PlacedStep] = []
    for draft in drafts:
        if draft.of is not None:
            continue
        follows = {"depends_on": [steps[-1].id] if steps and steps[-1].id != draft.id else []}
        steps.append(PlacedStep(in_order(follows | _fields(draft)), draft.places.locate))
    return tuple(steps)


def _fields(draft: Draft) -> dict[str, object]:
    found: dict[str, object] = {"id": draft.id} | draft.fields
    return found | ({"description": " ".join(draft.words)} if draft.words else {})


def _fallbacks(drafts: Sequence[Draft]) -> tuple[Fallback, ...]:
    found = []
    for draft in drafts:
        if draft.of is None:
            continue
        if "after" in draft.seen:
            message = f"{draft.id!r} runs only when {draft.of!r} has failed, and cannot say 'after:'"
            draft.refuse(draft.seen["after"], message, "leave the line out", "/depends_on")
        fields = _fields(draft)
        fields.pop("depends_on", None)
        found.append(Fallback(in_order(fields), draft.places.locate, draft.kind, draft.of, draft.of_place))
    return tuple(found)


# ── fences ───────────────────────────────────────────────────────────────────────────────────────────────


_PROGRAMS = {"sh": ("shell", "command"), "bash": ("shell", "command"), "python": ("python", "code")}


def read_fence(draft: Draft, fence: Fence, catalogue: Catalogue) -> None:
    """Take a fence into the step."""
    words, place = fence.words.split(), fence.place
    if not fence.closed:
        draft.refuse(place, "this fence is never closed", CLOSE_FENCE, "/input")
    elif fence.reopened:
        message = f"this fence is not closed before line {fence.reopened} begins another"
        draft.near_misses.append(fence.problem(message, CLOSE_FENCE, "/input"))
    if not words:
        fix = "write sh, bash, python, http or a tool's name behind it"
        draft.refuse(place, "this fence names no tool", fix, "/tool")
    elif words[0] == "json":
        _expects(draft, fence, words)
    elif "tool" in draft.fields:
        draft.refuse(
            place, f"the step {draft.id!r} has a second fence", "one step calls one tool: make two steps", "/tool"
        )
    else:
        _call(draft, fence, words[0], catalogue)


def _call(draft: Draft, fence: Fence, word: str, catalogue: Catalogue) -> None:
    place = fence.place
    if word in _PROGRAMS:
        tool, name = _PROGRAMS[word]
        draft.put("tool", tool, place)
        _fill(draft, fence, {name: fence.body} | ({"interpreter": "bash"} if word == "bash" else {}))
    elif word == "http":
        draft.put("tool", "http_get", place)
        _http(draft, fence)
    else:
        draft.put("tool", word, place)
        _tool_input(draft, fence, catalogue.tools.get(word))


def _fill(draft: Draft, fence: Fence, given: dict[str, Any]) -> None:
    """Set an input whose first field is the fence's body."""
    body = (fence.line + 1, fence.indent + 1)
    draft.put("input", given, body)
    if not fence.body.strip():
        fix = "write between its marks what is to be done"
        draft.refuse(fence.place, "this fence is empty", fix, "/input")


def _http(draft: Draft, fence: Fence) -> None:
    words = fence.body.split()
    if len(words) == 2 and words[0].upper() == "GET":
        words = words[1:]
    _fill(draft, fence, {"url": words[0] if words else ""})
    if len(words) > 1:
        where, fix = (fence.line + 1, fence.indent + 1), "write GET and the address, or only the address"
        draft.refuse(where, "an http fence holds one address to get", fix, "/input/url")


def _tool_input(draft: Draft, fence: Fence, spec: ToolSpec | None) -> None:
    """Set a tool's input from a body that holds its fields, or the text of the one that is required."""
    text_field = spec.text_field if spec else None
    try:
        document = _read_embedded(fence, as_json=_is_json(fence.body))
    except Rejected as rejected:
        if text_field and not _is_json(fence.body):
            _fill(draft, fence, {text_field: fence.body})
        elif spec:
            draft.problems.extend(problem.below("/input") for problem in rejected.problems)
            draft.places.marks["/input"] = (rejected.problems[0].line, rejected.problems[0].column)
        return
    if isinstance(document.value, dict) and _means_fields(document.value, fence.body, spec):
        draft.put("input", document.value, (fence.line + 1, fence.indent + 1))
        draft.places.inside["/input"] = document.places
    elif text_field:
        _fill(draft, fence, {text_field: fence.body})
    elif spec:
        where = draft.places.marks["/input"] = (fence.line + 1, fence.indent + 1)
        fix = f"write them as name: value; it has {', '.join(spec.input_schema.get('properties', {}))}"
        draft.refuse(where, f"the tool {spec.name!r} wants fields", fix, "/input")


def _is_json(body: str) -> bool:
    start = body.lstrip()
    return start.startswith("{") and not start.startswith("{{")  # `{{steps.a.output}}` is text


def _means_fields(value: dict[str, Any], body: str, spec: ToolSpec | None) -> bool:
    """Tell fields from prose such as `Remember: the keys`, which reads as YAML too."""
    if spec is None or spec.text_field is None or _is_json(body) or split_name(spec.name):
        return True
    known = spec.input_schema.get("properties", {})
    return all(key in known or bool(did_you_mean(key, known)) for key in value)


def _expects(draft: Draft, fence: Fence, words: list[str]) -> None:
    place = fence.place
    if words[1:] != ["expects"]:
        draft.refuse(
            place, "a json fence must say what it is for", "write json expects, or a tool's name", "/expects"
        )
        return
    if "expects" in draft.fields:
        draft.refuse(place, f"the step {draft.id!r} has 'json expects' twice", "keep one of them", "/expects")
        return
    try:
        document = _read_embedded(fence, as_json=True)
    except Rejected as rejected:
        draft.problems.extend(problem.below("/expects") for problem in rejected.problems)
        return
    draft.put("expects", document.value, (fence.line + 1, fence.indent + 1))
    draft.places.inside["/expects"] = document.places


def _read_embedded(fence: Fence, *, as_json: bool) -> Document:
    """Return the body as a document whose places are those in the goal file."""
    body = fence.body.encode()
    try:
        document = read_json(body) if as_json else read_yaml(body)
    except Rejected as rejected:
        found = [one.at(one.line + fence.line, one.column + fence.indent) for one in rejected.problems]
        raise Rejected(found) from None
    return Document(document.value, shift_places(document.places, fence.line, fence.indent))


# ── fallbacks ────────────────────────────────────────────────────────────────────────────────────────────


def originals(fallbacks: Sequence[Fallback]) -> dict[str, str]:
    """Return for each alternative the step whose place it takes."""
    return {one.id: one.of for one in fallbacks if one.kind == "instead"}


def chain(step: str, instead: Mapping[str, str]) -> list[str]:
    """Return a step, the step it replaces, and so on to the one of the plan as it was written."""
    found = {step: None}  # in order, and quick to look into
    while (before := instead.get(step)) is not None and before not in found:
        found[before] = None
        step = before
    return list(found)


def firsts(fallbacks: Sequence[Fallback]) -> dict[str, str]:
    """Return for each alternative the end of its chain; no link is walked twice."""
    instead = originals(fallbacks)
    ends: dict[str, str] = {}
    for name in instead:
        at, walked = name, dict.fromkeys([name])
        while at not in ends and at in instead and instead[at] not in walked:
            at = instead[at]
            walked[at] = None
        ends |= dict.fromkeys(walked, ends.get(at, at))
    return ends


def find_referred_in(step: Mapping[str, Any]) -> set[str]:
    """Return the ids of the steps whose results a step uses."""
    return {one.name for one in _references(step)}


@dataclass(frozen=True, slots=True)
class _Use:
    """Where a step names another."""

    name: str
    pointer: str  # within the step
    text: str = ""
    reference: Reference | None = None

    def problem(self, step: PlacedStep, number: int, message: str, fix: str) -> Problem:
        """Return a problem of it, as one of step `number` of the plan."""
        pointer, place = f"/steps/{number}{self.pointer}", step.places(self.pointer, False)
        if self.reference is None:
            return Problem(message, fix, pointer).at(*place)
        return problem_with(self.reference, self.text, message, fix, pointer).at(*place)


def _references(step: Mapping[str, Any]) -> Iterator[_Use]:
    """Yield where a step refers to another, and to which."""
    for pointer, text in texts_in(step):
        for reference in find(text):
            if reference.step:
                yield _Use(reference.step, pointer, text, reference)


# ── what can be wrong with them ───────────────────────────────────────────────────────────────────────────


def fallback_problems(steps: Sequence[PlacedStep], fallbacks: Sequence[Fallback]) -> list[Problem]:
    """Return what is wrong between a runbook's steps and its fallbacks."""
    plan, first = {step.id for step in steps}, firsts(fallbacks)
    kinds = {one.id: one.kind for one in fallbacks if one.id not in plan}
    wrong = [
        replace(problem, pointer=f"/steps/{number}").at(*one.of_place)
        for number, one in enumerate(fallbacks, start=len(steps))
        if (problem := _target(one, plan, kinds, first))
    ]
    if wrong:
        return wrong  # what they may use depends on what they replace
    return [*_used_too_early(steps, fallbacks, kinds), *_used_in_vain(steps, fallbacks, first)]


def _target(one: Fallback, plan: set[str], kinds: Mapping[str, str], first: Mapping[str, str]) -> Problem | None:
    if one.of not in plan and one.of not in kinds:
        known = (plan | kinds.keys()) - {one.id}
        return Problem(f"no step {one.of!r}", did_you_mean(one.of, known, _list_steps(plan)))
    if kinds.get(one.of) == "cleanup":
        return Problem(f"{one.of!r} is a clean-up: nothing follows it", "name a step of the plan, or an alternative")
    if first.get(one.of, one.of) not in plan:
        fix = f"let one replace a step of the plan; {_list_steps(plan)}"
        return Problem(f"{one.id!r} and {one.of!r} replace no step of the plan", fix)
    return None


def _list_steps(plan: set[str]) -> str:
    return "the steps are " + ", ".join(sorted(plan)) if plan else "there is no step in the plan"


def _used_too_early(
    steps: Sequence[PlacedStep], fallbacks: Sequence[Fallback], kinds: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield each place where a step waits for or uses a fallback, which the plan does not hold."""
    of = {one.id: one.of for one in fallbacks if one.id in kinds}
    for number, step in enumerate((*steps, *fallbacks)):
        waits = [_Use(name, f"/depends_on/{at}") for at, name in enumerate(_depends_on(step))]
        for use in (*waits, *_references(step.value)):
            if use.name in of:
                message = f"{use.name!r} is not in the plan unless {of[use.name]!r} fails"
                fix = f"name {of[use.name]!r}: what takes its place is used in its stead"
                yield use.problem(step, number, message, fix)


def _used_in_vain(
    steps: Sequence[PlacedStep], fallbacks: Sequence[Fallback], first: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield each place where a fallback uses an output that cannot be there once its step has failed."""
    followers = _followers(steps)
    for number, one in enumerate(fallbacks, start=len(steps)):
        uses = list(_references(one.value))
        lost = reach([first.get(one.of, one.of)], followers) if uses else set()
        for use in uses:
            if use.name in lost:
                message = f"{one.id!r} runs only when {one.of!r} has failed: there is no result of {use.name!r} then"
                yield use.problem(one, number, message, "use the results of steps before it")


def _depends_on(step: PlacedStep) -> list[str]:
    value = step.value.get("depends_on")
    return [str(one) for one in value] if isinstance(value, list) else []


def _followers(steps: Sequence[PlacedStep]) -> dict[str, set[str]]:
    followers: dict[str, set[str]] = {}
    for step in steps:
        for name in (*_depends_on(step), *find_referred_in(step.value)):
            followers.setdefault(name, set()).add(step.id)
    return followers

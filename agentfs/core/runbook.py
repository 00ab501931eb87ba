"""`## Steps` of a Markdown goal -> steps in plan form, each knowing its lines. Pure.

Every `###` heading is a step's id. What stands below it is its description, its fence (`fences`) and the lines
with a meaning (`step_lines`). A step follows the one above it, unless it says `after:`. Fallbacks stay out of
the plan and of that order. What is nearly one of these and would be read as prose is told as a slip.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentfs.core.hashing import in_order
from agentfs.core.markdown import Block, Fence, Heading, OpenComment, Prose
from agentfs.core.near_misses import Known, near_anything, near_steps_heading, stray_line
from agentfs.core.paths import STEP_ID, plain_name
from agentfs.core.problems import Places, Problem
from agentfs.core.runbook import Fallback, PlacedStep, fallback_problems, read_fence
from agentfs.core.step_lines import Draft, read_form
from agentfs.core.tool_spec import Catalogue

_ID = re.compile(rf"{STEP_ID}\Z")
_ID_LENGTH = 63
_STEPS_LINE = re.compile(r"^ {0,3}##[ \t]*steps[: \t#]*$", re.MULTILINE | re.IGNORECASE)
_CLOSE = "end it with a line of the same marks"
MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Runbook:
    """What stands under `## Steps`, and what is wrong with it."""

    steps: tuple[PlacedStep, ...]
    fallbacks: tuple[Fallback, ...]
    problems: tuple[Problem, ...]
    slips: tuple[Problem, ...]  # what is read as prose, or not at all, and was surely not meant so


def read_runbook(blocks: Sequence[Block], catalogue: Catalogue) -> Runbook | None:
    """Return the runbook in a Markdown text; None if it has no `## Steps`."""
    headings = [at for at, block in enumerate(blocks) if _is_steps(block)]
    if not headings:
        return None
    section = _section(blocks, headings[0])
    drafts, problems = _drafts(section, catalogue)
    problems = [*_strays(blocks, headings), *problems]
    steps, fallbacks = _steps(drafts), _fallbacks(drafts)
    slips = list(_outside(blocks, section))
    for number, draft in enumerate(sorted(drafts, key=lambda draft: draft.of is not None)):
        problems += _below(f"/steps/{number}", draft.problems)
        slips += _below(f"/steps/{number}", draft.slips)
    if not steps and not problems:
        problems.append(_nothing(blocks[headings[0]], fallbacks))
    problems.extend(fallback_problems(steps, fallbacks))
    return Runbook(steps, fallbacks, tuple(problems), tuple(slips))


def _below(pointer: str, problems: Sequence[Problem]) -> list[Problem]:
    return [replace(problem, pointer=pointer + problem.pointer) for problem in problems]


def _is_steps(block: Block) -> bool:
    return isinstance(block, Heading) and block.level == 2 and block.text.rstrip(":").lower() == "steps"


def _strays(blocks: Sequence[Block], headings: Sequence[int]) -> Iterator[Problem]:
    for at in headings[1:]:
        yield Problem("there is a second '## Steps'", "put all steps under one", "/steps").at(*_place(blocks[at]))
    for block in blocks:
        if isinstance(block, OpenComment):
            yield Problem("this comment never ends", "end it with -->").at(block.line, block.column)


def _outside(blocks: Sequence[Block], section: Sequence[Block]) -> Iterator[Problem]:
    """Yield what stands outside every step, where nobody reads it, and was surely meant for one."""
    first = next((block.line for block in section if _is_step(block)), None)
    begin, end = (section[0].line, section[-1].line) if section else (0, 0)
    for block in blocks:
        in_section = begin <= block.line <= end
        if in_section and first is not None and block.line >= first:
            continue
        if isinstance(block, Fence) and not block.closed and not in_section:
            yield Problem("this fence is never closed", _CLOSE).at(*_place(block))
        elif isinstance(block, Prose) and (problem := stray_line(block, in_section=in_section)):
            yield problem


def near_runbook(blocks: Sequence[Block]) -> Iterator[Problem]:
    """Yield what keeps a text without `## Steps` from having one: a heading nearly like it, a fence left open."""
    for at, block in enumerate(blocks):
        if isinstance(block, Fence) and not block.closed and _STEPS_LINE.search(block.body):
            yield Problem("this fence is never closed: '## Steps' below is part of it", _CLOSE).at(*_place(block))
        elif problem := near_steps_heading(blocks, at):
            yield problem


def _place(block: Block) -> tuple[int, int]:
    return block.line, block.column


def _nothing(heading: Block, fallbacks: Sequence[Fallback]) -> Problem:
    message = "every step is a fallback of another" if fallbacks else "there is no step under '## Steps'"
    return Problem(message, "write ### and a step's id, and below it what to do", "/steps").at(*_place(heading))


def _section(blocks: Sequence[Block], heading: int) -> Sequence[Block]:
    rest = blocks[heading + 1 :]
    ends = (at for at, block in enumerate(rest) if isinstance(block, Heading) and block.level <= 2)
    return rest[: next(ends, len(rest))]


def _is_step(block: Block) -> bool:
    return isinstance(block, Heading) and block.level == 3


def _drafts(section: Sequence[Block], catalogue: Catalogue) -> tuple[list[Draft], list[Problem]]:
    problems: list[Problem] = []
    drafts: list[Draft] = []
    headings = [block for block in section if isinstance(block, Heading) and _is_step(block)]
    known = Known(frozenset(heading.text.strip("`") for heading in headings), frozenset(catalogue.tools))
    if len(headings) > MOST_STEPS:
        message, where = f"there are more than {MOST_STEPS} steps", _place(headings[MOST_STEPS])
        return [_draft(headings[0], 1)], [Problem(message, "write several runbooks", "/steps").at(*where)]
    for block in section:
        if isinstance(block, Heading) and _is_step(block):
            drafts.append(_draft(block, len(drafts) + 1))
        elif drafts:
            _take(drafts[-1], block, catalogue, known)
        elif isinstance(block, Fence):
            fix = "put it below a ### heading with the step's id"
            problems.append(Problem("this fence belongs to no step", fix, "/steps").at(*_place(block)))
    return drafts, problems


def _take(draft: Draft, block: Block, catalogue: Catalogue, known: Known) -> None:
    match block:
        case Fence():
            read_fence(draft, block, catalogue)
        case Prose():
            _take_line(draft, block, known)
        case Heading() if block.text:
            _take_line(draft, Prose(block.text, block.line, block.column, indented=True), known)
        case _:
            pass


def _take_line(draft: Draft, prose: Prose, known: Known) -> None:
    """Take one line into the step: a form, or words of its description, which may be a slip."""
    if read_form(draft, prose):
        return
    if problem := near_anything(prose, known, goes_on=draft.open_line == prose.line - 1):
        draft.slips.append(problem)
    draft.describe(prose)


def _draft(heading: Heading, number: int) -> Draft:
    """Begin a step. A heading that is no id stands for the id it could be, so that the rest can be checked."""
    written = heading.text.strip("`")
    place = (heading.line, heading.column)
    if _ID.match(written):
        return Draft(written, Places(place))
    draft = Draft(plain_name(written, _ID_LENGTH) or f"step-{number}", Places(place))
    fix = f"write ### {draft.id}: lower case letters, digits and -, at most {_ID_LENGTH}"
    draft.refuse(place, f"{_short(written)!r} is no step id" if written else "this step has no id", fix, "/id")
    return draft


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


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
    said: dict[str, object] = {"id": draft.id} | draft.fields
    return said | ({"description": " ".join(draft.words)} if draft.words else {})


def _fallbacks(drafts: Sequence[Draft]) -> tuple[Fallback, ...]:
    found = []
    for draft in drafts:
        if draft.of is None:
            continue
        if "after" in draft.seen:
            message = f"{draft.id!r} runs only when {draft.of!r} has failed, and cannot say 'after:'"
            draft.refuse(draft.seen["after"], message, "leave the line out", "/depends_on")
        found.append(_fallback(draft, draft.of))
    return tuple(found)


def _fallback(draft: Draft, of: str) -> Fallback:
    fields = _fields(draft)
    fields.pop("depends_on", None)
    if draft.instead_of:
        return Fallback(in_order(fields), draft.places.locate, "instead", of, draft.seen["instead of"])
    return Fallback(in_order(fields), draft.places.locate, "cleanup", of, draft.seen["on failure of"])

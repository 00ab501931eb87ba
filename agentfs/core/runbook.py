"""`## Steps` of a Markdown goal -> steps in plan form, each knowing its lines. Pure.

Every `###` heading is a step's id. What stands below it is its description, its fence (`fences`) and the lines
with a meaning (`step_lines`). A step follows the one above it, unless it says `after:`. Fallbacks stay out of
the plan and of that order.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentfs.core.catalogue import Catalogue
from agentfs.core.fallbacks import Fallback, PlacedStep, fallback_problems
from agentfs.core.fences import read_fence
from agentfs.core.lenient import in_order
from agentfs.core.markdown import Block, Fence, Heading, OpenComment, Prose
from agentfs.core.names import STEP_ID
from agentfs.core.places import Places
from agentfs.core.problems import Problem
from agentfs.core.step_lines import Draft, read_line

_ID = re.compile(rf"{STEP_ID}\Z")
_ID_LENGTH = 63
MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Runbook:
    """What stands under `## Steps`, and what is wrong with it."""

    steps: tuple[PlacedStep, ...]
    fallbacks: tuple[Fallback, ...]
    problems: tuple[Problem, ...]


def read_runbook(blocks: Sequence[Block], catalogue: Catalogue) -> Runbook | None:
    """Return the runbook in a Markdown text; None if it has no `## Steps`."""
    headings = [at for at, block in enumerate(blocks) if _is_steps(block)]
    if not headings:
        return None
    problems = [*_strays(blocks, headings)]
    drafts = _drafts(_section(blocks, headings[0]), problems, catalogue)
    for draft in drafts:
        problems.extend(draft.problems)
    steps, fallbacks = _steps(drafts), _fallbacks(drafts, problems)
    if not steps and not problems:
        problems.append(_nothing(blocks[headings[0]], fallbacks))
    problems.extend(fallback_problems(steps, fallbacks))
    return Runbook(steps, fallbacks, tuple(problems))


def _is_steps(block: Block) -> bool:
    return isinstance(block, Heading) and block.level == 2 and block.text.rstrip(":").lower() == "steps"


def _strays(blocks: Sequence[Block], headings: Sequence[int]) -> Iterator[Problem]:
    for at in headings[1:]:
        yield Problem("there is a second '## Steps'", "put all steps under one").at(*_place(blocks[at]))
    for block in blocks:
        if isinstance(block, OpenComment):
            yield Problem("this comment never ends", "end it with -->").at(block.line, block.column)


def _place(block: Block) -> tuple[int, int]:
    return block.line, block.column


def _nothing(heading: Block, fallbacks: Sequence[Fallback]) -> Problem:
    message = "every step is a fallback of another" if fallbacks else "there is no step under '## Steps'"
    return Problem(message, "write ### and a step's id, and below it what to do").at(*_place(heading))


def _section(blocks: Sequence[Block], heading: int) -> Iterator[Block]:
    for block in blocks[heading + 1 :]:
        if isinstance(block, Heading) and block.level <= 2:
            return
        yield block


def _drafts(section: Iterator[Block], problems: list[Problem], catalogue: Catalogue) -> list[Draft]:
    drafts: list[Draft] = []
    for block in section:
        if isinstance(block, Heading) and block.level == 3:
            if len(drafts) >= MOST_STEPS:
                mend = "write several runbooks"
                problems.append(Problem(f"there are more than {MOST_STEPS} steps", mend).at(*_place(block)))
                return drafts[:1]
            drafts.append(_draft(block, len(drafts) + 1))
        elif drafts:
            _take(drafts[-1], block, catalogue)
        elif isinstance(block, Fence):
            mend = "put it below a ### heading with the step's id"
            problems.append(Problem("this fence belongs to no step", mend).at(*_place(block)))
    return drafts


def _take(draft: Draft, block: Block, catalogue: Catalogue) -> None:
    match block:
        case Fence():
            read_fence(draft, block, catalogue)
        case Prose():
            read_line(draft, block)
        case Heading() if block.text:
            read_line(draft, Prose(block.text, block.line, block.column, indented=True))
        case _:
            pass


def _draft(heading: Heading, number: int) -> Draft:
    """Begin a step. A heading that is no id stands for the id it could be, so that the rest can be checked."""
    written = heading.text.strip("`")
    place = (heading.line, heading.column)
    if _ID.match(written):
        return Draft(written, Places(place))
    draft = Draft(_id_from(written) or f"step-{number}", Places(place))
    mend = f"write ### {draft.id}: lower case letters, digits and -, at most {_ID_LENGTH}"
    draft.refuse(place, f"{_short(written)!r} is no step id" if written else "this step has no id", mend)
    return draft


def _id_from(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:_ID_LENGTH].strip("-")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _steps(drafts: Sequence[Draft]) -> tuple[PlacedStep, ...]:
    """Return the steps of the plan, each after the one above it where it does not say otherwise."""
    steps: list[PlacedStep] = []
    for draft in drafts:
        if draft.instead_of or draft.on_failure_of:
            continue
        follows = {"depends_on": [steps[-1].id] if steps and steps[-1].id != draft.id else []}
        steps.append(PlacedStep(in_order(follows | _fields(draft)), draft.places.locate))
    return tuple(steps)


def _fields(draft: Draft) -> dict[str, object]:
    said: dict[str, object] = {"id": draft.id} | draft.fields
    return said | ({"description": " ".join(draft.words)} if draft.words else {})


def _fallbacks(drafts: Sequence[Draft], problems: list[Problem]) -> tuple[Fallback, ...]:
    found = []
    for draft in drafts:
        if not (of := draft.instead_of or draft.on_failure_of):
            continue
        if "after" in draft.seen:
            message = f"{draft.id!r} runs only when {of!r} has failed, and cannot say 'after:'"
            problems.append(Problem(message, "leave the line out").at(*draft.seen["after"]))
        found.append(_fallback(draft, of))
    return tuple(found)


def _fallback(draft: Draft, of: str) -> Fallback:
    fields = _fields(draft)
    fields.pop("depends_on", None)
    if draft.instead_of:
        return Fallback(in_order(fields), draft.places.locate, "instead", of, draft.seen["instead of"])
    return Fallback(in_order(fields), draft.places.locate, "cleanup", of, draft.seen["on failure of"])

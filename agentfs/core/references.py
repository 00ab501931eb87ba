"""References, {{steps.ID.output}} and their like, as the rest of agentfs meets them: find, check, rename, resolve.

Pure. What they look like is in `reftext`, how they become values in `resolve`; here is what may be wrong with those
of a step.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from agentfs.core import references as pythontext
from agentfs.core.problems import Hints, Problem
from agentfs.core.records import Step
from agentfs.core.references import (
    Reference,
    find,
    is_shell_text,
    is_whole,
    malformed_in,
    problem_with,
    reads_shell_text,
    rename,
    texts_of,
)
from agentfs.core.resolve import Output, Resolved, Unresolved, resolve_step, room_of_step
from agentfs.core.shell_text import place_references
from agentfs.core.shell_words import Refusal

__all__ = [
    "Output",
    "Reference",
    "Resolved",
    "Unresolved",
    "find",
    "in_step",
    "is_whole",
    "problem_with",
    "problems_in_step",
    "rename",
    "resolve_step",
    "room_of_step",
    "texts_of",
]
_MOST_TOLD = 20  # ids in one message
_MOST_PROBLEMS = 1000


def in_step(step: Step) -> Iterator[tuple[str, Reference]]:
    """Yield every reference of a step with the JSON pointer, within the step, of the text it stands in."""
    for pointer, text in texts_of(step):
        for reference in find(text):
            yield pointer, reference


def problems_in_step(step: Step, known: Collection[str], hints: Hints | None = None) -> list[Problem]:
    """Return what is wrong with the references of a step, with pointers within the step; of thousands, the first."""
    return list(islice(_problems(step, known, hints or Hints()), _MOST_PROBLEMS))


def _problems(step: Step, known: Collection[str], hints: Hints) -> Iterator[Problem]:
    for pointer, text in texts_of(step):
        references = find(text)
        yield from malformed_in(pointer, text)
        yield from _unknown(step.id, known, pointer, text, references, hints)
        yield from _misplaced(step, pointer, text, references)


def _unknown(
    own: str, known: Collection[str], pointer: str, text: str, references: Sequence[Reference], hints: Hints
) -> Iterator[Problem]:
    for reference in references:
        written, step = text[reference.start : reference.end], reference.step
        if step == own:
            message, fix = f"{written} refers to the step it stands in", "refer to an earlier step"
            yield problem_with(reference, text, message, fix, pointer)
        elif step is not None and step not in known:
            message = f"{written} refers to a step that is not in the plan"
            yield problem_with(reference, text, message, _who_is_there(step, own, known, hints), pointer)


def _who_is_there(step: str, own: str, known: Collection[str], hints: Hints) -> str:
    if len(known) > _MOST_TOLD:
        return hints(step, known, "write the id of a step of the plan")
    others = sorted(set(known) - {own})
    return hints(step, others, f"the other steps are {', '.join(others)}" if others else "there is no other step")


def _misplaced(step: Step, pointer: str, text: str, references: Sequence[Reference]) -> Iterator[Problem]:
    """Yield a problem for each reference that stands where its value could become code, or would not arrive."""
    if not references:
        return
    spans = [(reference.start, reference.end) for reference in references]
    if is_shell_text(step, pointer):
        yield from _misplaced_in_shell(step, pointer, text, references)
    elif step.tool == "python" and pointer == "/input/code":
        for reference, fine in zip(references, pythontext.stands_as_value(text, spans), strict=True):
            if not fine:
                written = text[reference.start : reference.end]
                message, fix = f"{written}: {pythontext.NOT_AN_EXPRESSION}", f"write name = {written}"
                yield problem_with(reference, text, message, fix, pointer)
    elif step.tool == "shell" and pointer == "/input/interpreter":
        yield Problem("the interpreter cannot come from a reference", "write its name: sh or bash", pointer)


def _misplaced_in_shell(step: Step, pointer: str, text: str, references: Sequence[Reference]) -> Iterator[Problem]:
    if not reads_shell_text(step, pointer):
        message, fix = "references can stand in the text of sh, bash and dash only", "use one of these"
        yield problem_with(references[0], text, message, fix, pointer)
        return
    spans = [(reference.start, reference.end) for reference in references]
    for reference, place in zip(references, place_references(text, spans), strict=True):
        if isinstance(place, Refusal):
            written = text[reference.start : reference.end]
            fix = place.fix.replace("{ref}", written)
            yield problem_with(reference, text, f"{written} {place.why}", fix, pointer)

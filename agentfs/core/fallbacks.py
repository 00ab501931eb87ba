"""The steps of a runbook that stay out of the plan until they are needed. Pure.

An *alternative* (`instead of: a`) takes a failed step's place; a *clean-up* (`on failure of: a`) runs when a step
has failed and nothing can take its place. Alternatives may have alternatives and clean-ups of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentfs.core.problems import Locate, Place, Problem, did_you_mean
from agentfs.core.records import JsonObject
from agentfs.core.references import Reference, find, problem_with, walk


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step in plan form, and where its parts stand in the file it was written in."""

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


def originals(fallbacks: Sequence[Fallback]) -> dict[str, str]:
    """Return for each alternative the step whose place it takes."""
    return {one.id: one.of for one in fallbacks if one.kind == "instead"}


def chain(step: str, instead: Mapping[str, str]) -> list[str]:
    """Return a step, the step it stands instead of, and so on to the one of the plan as it was written."""
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


def referred(step: Mapping[str, Any]) -> set[str]:
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
    for name in ("input", "needs", "checks"):
        for pointer, text in walk(step.get(name), f"/{name}"):
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
        return wrong  # what they may use depends on whom they stand for
    return [*_used_too_early(steps, fallbacks, kinds), *_used_in_vain(steps, fallbacks, first)]


def _target(one: Fallback, plan: set[str], kinds: Mapping[str, str], first: Mapping[str, str]) -> Problem | None:
    if one.of not in plan and one.of not in kinds:
        known = (plan | kinds.keys()) - {one.id}
        return Problem(f"no step {one.of!r}", did_you_mean(one.of, known, _known(plan)))
    if kinds.get(one.of) == "cleanup":
        return Problem(f"{one.of!r} is a clean-up: nothing follows it", "name a step of the plan, or an alternative")
    if first.get(one.of, one.of) not in plan:
        fix = f"let one stand instead of a step of the plan; {_known(plan)}"
        return Problem(f"{one.id!r} and {one.of!r} have no step to stand for", fix)
    return None


def _known(plan: set[str]) -> str:
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
        lost = _reached(first.get(one.of, one.of), followers) if uses else set()
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
        for name in (*_depends_on(step), *referred(step.value)):
            followers.setdefault(name, set()).add(step.id)
    return followers


def _reached(first: str, followers: Mapping[str, set[str]]) -> set[str]:
    """Return a step and all that waits for it."""
    found, ahead = {first}, [first]
    while ahead:
        new = followers.get(ahead.pop(), set()) - found
        found |= new
        ahead.extend(new)
    return found

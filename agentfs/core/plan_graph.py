"""A plan, laid out for deriving: who depends on whom, in which order. Pure."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from agentfs.core.records import Plan, Step
from agentfs.core.references import in_step

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class PlanGraph:
    """The steps of a plan in an order in which dependencies come first."""

    steps: Mapping[str, Step]
    needs: Mapping[str, tuple[str, ...]]  # step -> the steps it comes after
    refers: Mapping[str, frozenset[str]]  # step -> the steps whose output it uses
    order: tuple[str, ...]
    rank: Mapping[str, int]  # step -> its place in that order
    listed: tuple[str, ...]  # the steps as the plan lists them
    place: Mapping[str, int]  # step -> its place in the plan

    @staticmethod
    def of(plan: Plan) -> "PlanGraph":
        """Lay out a plan that has passed the check."""
        steps = {step.id: step for step in plan.steps}
        refers = {step.id: find_referred(step) for step in plan.steps}
        needs = dependencies(plan, refers)
        order = sort_steps(needs)
        rank = {step: number for number, step in enumerate(order)}
        return PlanGraph(steps, needs, refers, order, rank, tuple(steps), {step: n for n, step in enumerate(steps)})

    @cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {step: [] for step in self.order}
        for step in self.order:
            for dependency in self.needs[step]:
                found[dependency].append(step)
        return {step: tuple(after) for step, after in found.items()}

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The steps nobody depends on, as the plan lists them."""
        return tuple(step for step in self.steps if not self.dependents[step])

    def lists(self, step: str) -> frozenset[str]:
        """Return the steps that only `each` of a step refers to: its items do not follow them."""
        found = [(at.startswith("/each"), one.step) for at, one in in_step(self.steps[step]) if one.step is not None]
        return frozenset(name for listed, name in found if listed) - {name for listed, name in found if not listed}

    def ancestors(self, step: str) -> frozenset[str]:
        """Return every step that this one comes after, however far back."""
        return frozenset(reach(self.needs[step], self.needs))


def reach(begin: Iterable[T], onward: Mapping[T, Iterable[T]]) -> set[T]:
    """Return all that can be come to from these, with these."""
    found: set[T] = set()
    ahead = list(begin)
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            ahead.extend(onward.get(one, ()))
    return found


def find_referred(step: Step) -> frozenset[str]:
    """Return the steps whose output a step uses."""
    return frozenset(one.step for _, one in in_step(step) if one.step is not None)


def dependencies(plan: Plan, refers: Mapping[str, frozenset[str]] | None = None) -> dict[str, tuple[str, ...]]:
    """Return what each step comes after: what it says, else the step before it, and what it refers to."""
    found: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for step in plan.steps:
        said = before if step.depends_on is None else step.depends_on
        used = refers[step.id] if refers is not None else find_referred(step)
        found[step.id] = tuple(dict.fromkeys((*said, *sorted(used))))
        before = (step.id,)
    return found


def sort_steps(needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the steps with dependencies first, otherwise in the order given. Steps on a cycle are left out."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(needs, ()))
    for step, before in needs.items():
        sorter.add(step, *before)
    with suppress(CycleError):  # it goes on as far as there is a way
        sorter.prepare()
    order: list[str] = []
    while free := sorter.get_ready():
        order += free
        sorter.done(*free)
    return tuple(order)


def find_circle(needs: Mapping[T, Iterable[T]]) -> list[T] | None:
    """Return things of which each waits for the next and the last for the first; None if there are none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(reversed(error.args[1][1:]))
    return None

"""A plan, laid out for deriving: who depends on whom, in which order; and the state of every step in it. Pure."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from agentfs.core.each import STARTING_MOVES, view_each
from agentfs.core.facts import Facts
from agentfs.core.paths import ITEM, step_of
from agentfs.core.records import Plan, Step
from agentfs.core.references import in_step, reach
from agentfs.core.steps import Around, StepView, view

Place = tuple[int, int]  # of a step in the plan, and of an item in its list; -1: the step itself
BUSY = "busy"  # beside the moves: the steps that are under way


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
    def names_places(self) -> bool:
        """Whether a step says that it runs elsewhere."""
        return any(step.place for step in self.steps.values())

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


# ── every step's view, and the steps by what they call for; made again only where something changed ───────


@dataclass(frozen=True, slots=True)
class StepTable:
    """The views of a plan's steps in its order, and in which places of it they call for a move."""

    views: Mapping[str, StepView] = field(default_factory=dict)
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)  # move -> places in the plan, sorted
    changed: tuple[str, ...] = ()  # the steps, and items, whose view is not what it was before

    def view(self, name: str) -> StepView | None:
        """Return the view of a step, or of one item of a step."""
        if ITEM not in name:
            return self.views.get(name)
        whole = self.views.get(step_of(name))
        place = whole.item_at.get(name) if whole else None
        return whole.items[place] if whole and place is not None else None

    def moving(self, graph: PlanGraph, *moves: str, most: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that call for one of these moves, in the plan's order; `most`: no more than that."""
        found = self.places.get(moves[0], ())
        if len(moves) > 1:
            found = tuple(sorted(place for move in moves for place in self.places.get(move, ())))
        if not found:
            return ()
        return tuple(self._at(graph, place) for place in found[:most])

    def _at(self, graph: PlanGraph, place: Place) -> StepView:
        one = self.views[graph.listed[place[0]]]
        return one if place[1] < 0 else one.items[place[1]]


def build_table(facts: Facts, graph: PlanGraph, around: Around) -> StepTable:
    """Return every step's view, from nothing."""
    views: dict[str, StepView] = {}
    for step in graph.order:
        views[step] = _view_of(step, graph, views, facts, around)
    places: dict[str, list[Place]] = {}
    for at, step in enumerate(graph.listed):
        for name, place in _calls_for(views[step], at):
            places.setdefault(name, []).append(place)
    listed = {step: views[step] for step in graph.listed}
    changed = [name for step in graph.listed for name in (step, *(one.id for one in views[step].items))]
    return StepTable(listed, {name: tuple(sorted(found)) for name, found in places.items()}, tuple(changed))


def update_table(
    before: StepTable, touched: Collection[str], facts: Facts, graph: PlanGraph, around: Around
) -> StepTable:
    """Return the table once the attempts of some steps have changed; the others are looked at only if they follow."""
    views, places = dict(before.views), dict(before.places)
    ahead, changed = {step for step in map(step_of, touched) if step in views}, []
    followers: set[str] = set()  # they come after a step that is not what it was
    while ahead:
        step = min(ahead, key=graph.rank.__getitem__)
        ahead.discard(step)
        old = views[step]
        new = _view_of(step, graph, views, facts, around, None if step in followers else old, touched)
        if new != old:
            views[step] = new
            changed += [step, *_changed_items(old, new)]
            _move(places, graph.place[step], old, new)
            if _concerns_others(old, new):
                ahead.update(graph.dependents[step])
                followers.update(graph.dependents[step])
    return StepTable(views, places, tuple(changed))


def _changed_items(old: StepView, new: StepView) -> Iterator[str]:
    if old.item_at is new.item_at:
        yield from (one.id for one, before in zip(new.items, old.items, strict=True) if one is not before)
    else:
        known = {one.id: one for one in old.items}
        yield from (one.id for one in new.items if known.get(one.id) is not one)


def _concerns_others(old: StepView, new: StepView) -> bool:
    """Whether those that depend on a step can tell: of one they still have to wait for, they see the attempt only."""
    return old.satisfied or new.satisfied or old.attempt != new.attempt


def _view_of(
    step: str,
    graph: PlanGraph,
    views: Mapping[str, StepView],
    facts: Facts,
    around: Around,
    known: StepView | None = None,
    touched: Collection[str] = (),
) -> StepView:
    before = {dependency: views[dependency] for dependency in graph.needs[step]}
    if graph.steps[step].each is not None:
        return view_each(graph.steps[step], before, facts.attempts, around, graph.lists(step), known, touched)
    return view(graph.steps[step], before, facts.attempts.get(step, ()), around, known)


def _calls_for(one: StepView, at: int, which: Collection[int] | None = None) -> Iterator[tuple[str, Place]]:
    """Yield what a step calls for, and its items: they get orders while the step is open; whom to call is its own."""
    yield from ((name, (at, -1)) for name in _moves(one))
    for number in range(len(one.items)) if which is None else which:
        for name in _moves(one.items[number]):
            if name not in ("call", "halt") and (one.is_open or name not in STARTING_MOVES):
                yield name, (at, number)


def _moves(one: StepView) -> tuple[str, ...]:
    busy = (BUSY,) if one.busy else ()
    return busy if one.move is None else (*busy, one.move)


def _move(places: dict[str, tuple[Place, ...]], at: int, old: StepView, new: StepView) -> None:
    if old.item_at is new.item_at and old.is_open == new.is_open:
        which = [n for n, (one, other) in enumerate(zip(old.items, new.items, strict=True)) if one is not other]
    else:
        which = None
    gone, come = dict.fromkeys(_calls_for(old, at, which)), dict.fromkeys(_calls_for(new, at, which))
    for name, place in gone:
        if (name, place) not in come:
            where = bisect_left(places[name], place)
            places[name] = places[name][:where] + places[name][where + 1 :]
    for name, place in come:
        if (name, place) not in gone:
            found = places.get(name, ())
            where = bisect_left(found, place)
            places[name] = (*found[:where], place, *found[where:])

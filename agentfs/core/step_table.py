"""Every step's view, and the steps by what they call for. Pure; made again only where something changed."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from agentfs.core.each import STARTING_MOVES, view_each
from agentfs.core.facts import Facts
from agentfs.core.paths import ITEM, step_of
from agentfs.core.plan_graph import PlanGraph
from agentfs.core.steps import Around, StepView, view

Place = tuple[int, int]  # of a step in the plan, and of an item in its list; -1: the step itself
BUSY = "busy"  # beside the moves: the steps that are under way


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

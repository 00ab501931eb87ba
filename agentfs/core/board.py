"""Every step's view, and the steps by what they call for. Pure; made anew only where something changed."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agentfs.core.facts import Facts
from agentfs.core.plan_graph import PlanGraph
from agentfs.core.steps import Around, StepView, view

BUSY = "busy"  # beside the moves: the steps that are under way


@dataclass(frozen=True, slots=True)
class Board:
    """The views of a plan's steps in its order, and in which places of it they call for a move."""

    views: Mapping[str, StepView] = field(default_factory=dict)
    places: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # move -> places in the plan, sorted
    changed: tuple[str, ...] = ()  # the steps whose view is not what it was before

    def moving(self, scheme: PlanGraph, *moves: str, most: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that call for one of these moves, in the plan's order; `most`: no more than that."""
        found = self.places.get(moves[0], ())
        if len(moves) > 1:
            found = tuple(sorted(place for move in moves for place in self.places.get(move, ())))
        if not found:
            return ()
        return tuple(self.views[scheme.listed[place]] for place in found[:most])


def board_of(facts: Facts, scheme: PlanGraph, around: Around) -> Board:
    """Return every step's view, from nothing."""
    views: dict[str, StepView] = {}
    for step in scheme.order:
        views[step] = _view_of(step, scheme, views, facts, around)
    places: dict[str, list[int]] = {}
    for place, step in enumerate(scheme.listed):
        for name in _calls_for(views[step]):
            places.setdefault(name, []).append(place)
    listed = {step: views[step] for step in scheme.listed}
    return Board(listed, {name: tuple(found) for name, found in places.items()}, scheme.listed)


def board_after(before: Board, touched: Collection[str], facts: Facts, scheme: PlanGraph, around: Around) -> Board:
    """Return the board once the attempts of some steps have changed; the others are looked at only if they follow."""
    views, places = dict(before.views), dict(before.places)
    ahead, changed = {step for step in touched if step in views}, []
    followers: set[str] = set()  # they come after a step that is not what it was
    while ahead:
        step = min(ahead, key=scheme.rank.__getitem__)
        ahead.discard(step)
        old = views[step]
        new = _view_of(step, scheme, views, facts, around, None if step in followers else old)
        if new != old:
            views[step] = new
            changed.append(step)
            _move(places, scheme.place[step], old, new)
            if _concerns_others(old, new):
                ahead.update(scheme.dependents[step])
                followers.update(scheme.dependents[step])
    return Board(views, places, tuple(changed))


def _concerns_others(old: StepView, new: StepView) -> bool:
    """Whether those that depend on a step can tell: of one they still have to wait for, they see the attempt only."""
    return old.satisfied or new.satisfied or old.attempt != new.attempt


def _view_of(
    step: str,
    scheme: PlanGraph,
    views: Mapping[str, StepView],
    facts: Facts,
    around: Around,
    known: StepView | None = None,
) -> StepView:
    before = {dependency: views[dependency] for dependency in scheme.needs[step]}
    return view(scheme.steps[step], before, facts.attempts.get(step, ()), around, known)


def _calls_for(one: StepView) -> tuple[str, ...]:
    busy = (BUSY,) if one.busy else ()
    return busy if one.move is None else (*busy, one.move)


def _move(places: dict[str, tuple[int, ...]], place: int, old: StepView, new: StepView) -> None:
    for name in _calls_for(old):
        at = bisect_left(places[name], place)
        places[name] = places[name][:at] + places[name][at + 1 :]
    for name in _calls_for(new):
        found = places.get(name, ())
        at = bisect_left(found, place)
        places[name] = (*found[:at], place, *found[at:])

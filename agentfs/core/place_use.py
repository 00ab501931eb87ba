"""How full places are, and which steps wait for a slot: for one run, or over all of them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentfs.core.facts import Attempt
from agentfs.core.run_state import RunState
from agentfs.core.text import plural


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """What one run has at a place."""

    name: str
    begun: int  # attempts that run there
    sent: int  # those that were sent, and have not begun: no worker has taken them yet
    waiting: tuple[str, ...]  # steps that only wait for a slot there

    def in_words(self) -> str:
        parts = [f"{plural(self.begun, 'attempt')} under way"]
        if self.sent:
            parts.append(f"{self.sent} sent, not begun")
        if self.waiting:
            more = f" and {len(self.waiting) - 1} more" if len(self.waiting) > 1 else ""
            parts.append(f"{self.waiting[0]}{more} {'wait' if more else 'waits'} for a slot")
        return f"{self.name}: {', '.join(parts)}"


def slots_in_use(uses: Iterable[PlaceUse], slots: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each place that is in use, over all runs. `slots`: how many a place has."""
    by_name: dict[str, list[PlaceUse]] = {}
    for one in uses:
        by_name.setdefault(one.name, []).append(one)
    for name, found in sorted(by_name.items()):
        used, waiting = sum(one.begun + one.sent for one in found), sum(len(one.waiting) for one in found)
        of = f"{used} of {plural(slots[name], 'slot')}" if name in slots else plural(used, "slot")
        yield f"{name}: {of} in use" + (f", {plural(waiting, 'step')} waiting" if waiting else "")


def places_in_use(state: RunState) -> Iterator[PlaceUse]:
    """Yield each place where this run has something, or waits for a slot."""
    if not state.uses_places or state.facts.outcome is not None:
        return
    running = [(state.place_of(one.step), _has_begun(state, one.id, one.attempt)) for one in state.running]
    waiting = [(state.place_of(one.step), one.id) for one in state.moving("order")]
    for name in sorted({place for place, _ in (*running, *waiting) if place}):
        begun = [has_begun for place, has_begun in running if place == name]
        yield PlaceUse(
            name, sum(begun), len(begun) - sum(begun), tuple(step for place, step in waiting if place == name)
        )


def _has_begun(state: RunState, step: str, number: int) -> bool:
    """Whether an attempt has its claim: its driver has answered `go`."""
    attempts: tuple[Attempt, ...] = tuple(state.facts.attempts.get(step, ()))
    return any(one.number == number and one.claimed for one in attempts)

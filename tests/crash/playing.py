"""Stories played once undisturbed, to learn where they can be cut off and how they end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import stories
from tests.crash.stories import Expected, words_to_go_on
from tests.crash.sweeping import CHANGES, LOOKS, Point, copy_of, points, strace
from tests.workspaces import Place

LOOKED_AT = (*CHANGES, *LOOKS)


@dataclass(frozen=True, repr=False)
class Act:
    """A part of a story: where it begins, what is typed then, and where it can be cut off."""

    begins: Place
    words: tuple[str, ...]
    points: list[Point]  # before it changes a file
    looks: list[Point] = field(default_factory=list)  # before it looks at one
    code: int = 0  # with which it ends when nobody interferes

    def __repr__(self) -> str:
        return f"agentfs {' '.join(self.words)}"


@dataclass(frozen=True)
class Story:
    """A run as it goes when nobody interferes."""

    folder: Path
    acts: list[Act]
    expected: Expected

    def cuts(self) -> list[tuple[Act, Point]]:
        """Return every change of a file."""
        return [(act, point) for act in self.acts for point in act.points]

    def looks(self) -> list[tuple[Act, Point]]:
        """Return every look at a file."""
        return [(act, point) for act in self.acts for point in act.looks]


def play(folder: Path, name: str, begin: Callable[[Place], Place]) -> Story:
    """Play a story undisturbed, and keep how each part of it began."""
    (folder / name).mkdir()
    place = begin(Place(folder / name))
    acts: list[Act] = []
    while not any(place.runs.glob("*/*/outcome.json")):
        words = words_to_go_on(place)
        begins = copy_of(place, folder / f"{name}-{len(acts)}")
        ended = strace(place, *words, calls=LOOKED_AT)
        assert ended.code in (0, 3), ended.err
        changes, all_of_them = points(ended.trace, place.root), points(ended.trace, place.root, looks=True)
        looks = [point for point in all_of_them if point not in changes]
        acts.append(Act(begins, words, changes, looks, ended.code))
        stories.answer(place.run_folder())
    return Story(folder, acts, Expected.of(place))

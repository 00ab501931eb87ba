"""What a judge is shown, and what became of a folder, as values. Pure: `executor.evidence` collects them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from agentfs.core.records import JsonObject

MOST_NAMES = 200  # of what changed that are written down
KINDS_OF_CHANGE = ("added", "changed", "removed")

Snapshot = Mapping[str, tuple[int, int, int]]  # path -> size, and when it was written and touched last


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of evidence: what it is, and what it says. Only what it says can be quoted."""

    label: str
    body: str


Gather = Callable[[str], Sequence[Piece]]  # the evidence for a condition


def no_evidence(_condition: str) -> Sequence[Piece]:
    """Return nothing: where no judge can be asked."""
    return ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What the checks of a person rest on."""

    names: tuple[str, ...] = ()  # files, folders and other words
    settings: tuple[str, ...] = ()  # patterns of files that count wherever they lie, also where one is put there
    tests: tuple[str, ...] = ()  # patterns of files that count wherever they lie, if they were there

    def has(self, path: str) -> bool:
        """Whether a file that was there is one of them."""
        return is_named(path, self.names) or _is_like(path, (*self.settings, *self.tests))

    def has_new(self, path: str) -> bool:
        """Whether a file counts that was not there."""
        return _is_like(path, self.settings)


def is_named(path: str, words: Iterable[str]) -> bool:
    """Whether one of these words is a file, or a folder that it lies in."""
    return any(path == word or path.startswith(f"{word}/") for word in words)


def _is_like(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a folder."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def as_json(self, watched: Watched) -> JsonObject:
        """Return as many names as are written down; those that are watched come first."""
        named = {"added": self.added, "changed": self.changed, "removed": self.removed}
        ordered = {what: sorted(names, key=lambda name: not watched.has(name)) for what, names in named.items()}
        return {what: [*names[:MOST_NAMES]] for what, names in ordered.items() if names}

    def all(self) -> tuple[str, ...]:
        return (*self.added, *self.changed, *self.removed)

    def lines(self) -> Iterator[str]:
        for what, names in (("added", self.added), ("changed", self.changed), ("removed", self.removed)):
            yield from (f"{what}: {name}" for name in names[:MOST_NAMES])


def compare(before: Snapshot, after: Snapshot) -> Changes:
    return Changes(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(path for path in after.keys() & before.keys() if after[path] != before[path])),
        tuple(sorted(before.keys() - after.keys())),
    )

"""A small memory of objects: the name of one never means anything else, so what was read of it stays true. Pure."""

from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Recent(Generic[Kept]):
    """What was kept last, by the name of its object."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}  # the last one comes last

    def get(self, sha: str) -> Kept | None:
        return self._kept.get(sha)

    def keep(self, sha: str, one: Kept) -> Kept:
        self._kept.pop(sha, None)
        self._kept[sha] = one
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return one

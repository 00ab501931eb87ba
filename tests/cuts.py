"""A process cut off at any moment: from then on the disk takes nothing more."""

import os
from collections.abc import Callable
from typing import Any

import pytest

STEPS = ("open", "fsync", "link", "rename", "unlink", "mkdir", "rmdir", "utime")


class Killed(BaseException):
    """The power went: from here on the disk takes nothing more."""


class Cut:
    """Lets `allowed` changes of the disk through, then none, as if the process had been killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        for name in STEPS:
            monkeypatch.setattr(os, name, self.counted(name, getattr(os, name)))

    def counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **more: Any) -> Any:
            changes = name != "open" or (len(given) > 1 and given[1] & os.O_CREAT)
            if changes:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return real(*given, **more)

        return step


def cut_at(allowed: int, act: Callable[[], object]) -> bool:
    """Return whether the act was cut off before its end."""
    with pytest.MonkeyPatch.context() as patched:
        Cut(patched, allowed)
        try:
            act()
        except Killed:
            return True
    return False

"""Progress on stderr: a live table on a terminal, one plain line per action elsewhere."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

from agentfs.core.decide import Action, Wait
from agentfs.core.run_state import RunState
from agentfs.engine import Driver
from agentfs.views.screen import Screen, can_draw


class Progress(Protocol):
    """Told of every turn, and of the end."""

    def turn(self, state: RunState, actions: list[Action]) -> None: ...

    def note(self, words: str) -> None: ...

    def tell(self, lines: Sequence[str]) -> None: ...

    def ask(self, prompt: str, typed: Callable[[], tuple[str, int]] | None = None) -> None: ...

    def lend(self) -> None: ...

    def take_back(self) -> None: ...

    def end(self, rest: Wait | None) -> None: ...

    @property
    def screen(self) -> Screen | None: ...


@contextmanager
def progress_for(driver: Driver, stream: TextIO) -> Iterator[Progress]:
    """Yield the progress that suits the stream."""
    if not can_draw(stream, os.environ.get("TERM", "")):
        from agentfs.views.lines import Lines

        yield Lines(driver, stream)
        return
    from agentfs.views.live import Live

    with Live(driver, stream) as live:
        yield live

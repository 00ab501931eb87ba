"""When a daemon looks for garbage: with fifty long runs a look at everything takes a second, which all have to wait.

What a run leaves is freed when it is let go of; only what refers to itself in a circle has to be looked for. So that
is done while nothing is to be done, and once in a while whatever there is to do. Young garbage is found as ever.
"""

import gc
import time

PAUSE_SECONDS = 10.0  # between two looks while there is nothing to do
MOST_SECONDS = 300.0  # without one
_NEVER = 1_000_000_000


class Garbage:
    """Looks for garbage when it is told of a good moment."""

    def __init__(self) -> None:
        gc.freeze()  # what is there now stays
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        self._looked, self._worked = time.monotonic(), False

    def tend(self, *, idle: bool) -> None:
        """Look if it is time. Call this often: it mostly takes no time."""
        self._worked |= not idle
        if self._worked and time.monotonic() >= self._looked + (PAUSE_SECONDS if idle else MOST_SECONDS):
            gc.collect()
            self._looked, self._worked = time.monotonic(), False

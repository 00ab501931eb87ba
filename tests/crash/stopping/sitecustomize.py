"""Python runs this when it starts, if its folder is on PYTHONPATH: the process then stops after every publish, to be looked at."""

import os
import signal
from collections.abc import Callable
from typing import Any


def _then_stop(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        value = real(*given, **more)
        os.kill(os.getpid(), signal.SIGSTOP)
        return value

    return call


for _name in ("fsync", "link", "rename", "replace"):
    setattr(os, _name, _then_stop(getattr(os, _name)))

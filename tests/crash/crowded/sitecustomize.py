"""Python runs this when it starts, if its folder is on PYTHONPATH: while the file CROWDED is there, no process and no
thread can be started, as where TasksMax= is reached."""

import _thread
import errno
import os
import subprocess
import threading
from typing import Any

_file = os.environ.get("CROWDED", "")
_fork, _begin = subprocess._fork_exec, _thread.start_new_thread  # type: ignore[attr-defined]


def _fork_exec(*words: Any) -> Any:
    if os.path.exists(_file):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return _fork(*words)


def _start_new_thread(*words: Any, **more: Any) -> Any:
    if os.path.exists(_file):
        raise RuntimeError("can't start new thread")
    return _begin(*words, **more)


if _file:
    subprocess._fork_exec = _fork_exec  # type: ignore[attr-defined]
    threading._start_new_thread = _start_new_thread  # type: ignore[attr-defined]

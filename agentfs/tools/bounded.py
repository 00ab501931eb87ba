"""Runs our own small scripts in a process of their own, so that what may take for ever can be ended.

The scripts are agentfs's, never a person's or a model's; they get JSON and give JSON.
"""

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentfs.tools.base import StopSign
from agentfs.tools.starting import Starter

SEARCH = Path(__file__).with_name("search_worker.py")
LONGEST_PATTERN = 1000
TICK_S = 0.1
MOST_MEMORY = 2 * 1024**3  # bytes
MOST_SECONDS = 300  # of the processor


class TookTooLong(Exception):
    """The script was ended before it had an answer, or had no room left for one."""


def ask(
    script: Path, question: Mapping[str, Any], *, deadline: float, stop: StopSign, fds: tuple[int, ...] = ()
) -> Any:
    """Return the script's answer; TookTooLong at the deadline or the stop sign."""
    with Starter().start(
        lambda: subprocess.Popen(
            [sys.executable, "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LANG": "C.UTF-8"},
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
        ),
        lambda: time.monotonic() < deadline and not stop.is_set(),
    ) as child:
        given: bytes | None = json.dumps(question).encode()
        try:
            _bound(child.pid)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = child.communicate(given, timeout=TICK_S)
                    break
                given = None  # communicate remembers what it has not written yet
                if time.monotonic() >= deadline or stop.is_set():
                    raise TookTooLong
        finally:
            child.kill()
    if child.returncode < 0 or b"MemoryError" in err:
        raise TookTooLong
    if child.returncode != 0:
        raise RuntimeError(f"{script.name} ended with {child.returncode}: {err.decode('utf-8', 'replace')[-2000:]}")
    return json.loads(out)


def _bound(pid: int) -> None:
    """Let a script have so much memory and no more; and let it end by itself if nobody is left to end it."""
    if not hasattr(resource, "prlimit"):  # other systems than Linux
        return
    for what, most in ((resource.RLIMIT_AS, MOST_MEMORY), (resource.RLIMIT_CPU, MOST_SECONDS)):
        with contextlib.suppress(ProcessLookupError, ValueError, PermissionError):
            resource.prlimit(pid, what, (most, most))


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a regular expression; None if it can be used."""
    import re

    if len(pattern) > LONGEST_PATTERN:
        return f"the pattern has {len(pattern)} characters; {LONGEST_PATTERN} are allowed"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern is not a regular expression: {error}"
    return None

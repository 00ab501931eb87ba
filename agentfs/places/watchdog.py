"""Ends the programs of a process that is frozen: it cannot end itself without its driver, and they would run on.

Run as a script, isolated: `watchdog.py SECONDS`. Each line on standard input is a sign of life; one with numbers
(process, start time) names a program to watch. After so many seconds without a line, and at the end of the input, all
of them are killed. Imported, it starts that script and feeds it: once in a process, however many attempts run there.
"""

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # the last: nothing that lies there takes the place of a package

from agentfs.tools.process import descendants, read_stat, signal_all

Program = tuple[int, int]  # its number, and its start in clock ticks since boot: a number is given again


class Watchdog:
    """The process's end of the line to its watchdog."""

    def __init__(self, silence_s: float) -> None:
        self._lock = threading.Lock()
        command = [sys.executable, "-I", "-S", __file__, str(silence_s)]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
        )

    def watch(self, pid: int, start_time: int) -> None:
        """Have a program ended when this process is silent for too long."""
        self._write(b"%d %d\n" % (pid, start_time))

    def beat(self) -> None:
        """Give a sign of life."""
        self._write(b"\n")

    def _write(self, line: bytes) -> None:
        if self._process.stdin is not None:
            with self._lock, contextlib.suppress(OSError):  # the watchdog was killed
                self._process.stdin.write(line)
                self._process.stdin.flush()


@functools.cache
def watchdog_of_this_process(silence_s: float) -> Watchdog:
    return Watchdog(silence_s)


# ── the script ────────────────────────────────────────────────────────────────────────────────────────────


def main(silence_s: float) -> None:
    watched: list[Program] = []
    while True:
        if not select.select([0], [], [], silence_s if watched else None)[0]:
            end(watched)
            watched = []
        elif not (text := os.read(0, 1 << 16)):
            return end(watched)
        else:
            watched = [*filter(is_alive, watched), *programs_in(text)]


def programs_in(text: bytes) -> Iterator[Program]:
    """Yield the programs that lines name. A line is written at once, and shorter than what a pipe tears."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and all(map(bytes.isdigit, words)):
            yield int(words[0]), int(words[1])


def end(watched: list[Program]) -> None:
    """Kill programs and all that they started."""
    for pid, _ in filter(is_alive, watched):
        signal_all([pid, *(child.pid for child in descendants(pid))], signal.SIGKILL)


def is_alive(program: Program) -> bool:
    found = read_stat(program[0])
    return found is not None and found.start_time == program[1]


if __name__ == "__main__":
    main(float(sys.argv[1]))

"""Being woken: by another thread, or by a signal that interrupts the very thread that waits."""

import subprocess
import sys
import threading
import time

from agentfs.engine.foreground import Wake
from tests.workspaces import DEADLINE

RUNG_BY_SIGNALS = """
import signal
from agentfs.engine.foreground import Stop
stop = Stop()
signal.signal(signal.SIGALRM, lambda *_: stop.ask())
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
while stop.asked < 5_000:
    stop.wake.wait(0.0001)
    stop.wake.clear()
signal.setitimer(signal.ITIMER_REAL, 0)
print("over")
"""


def test_a_signal_at_any_moment_is_received() -> None:
    command = [sys.executable, "-c", RUNG_BY_SIGNALS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stdout == "over\n"


def test_it_stays_set_until_it_is_cleared() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    for _ in range(2):
        began = time.monotonic()
        wake.wait(DEADLINE)
        assert time.monotonic() - began < DEADLINE / 2
    wake.clear()
    began = time.monotonic()
    wake.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_another_thread_ends_the_wait() -> None:
    wake = Wake()
    began = time.monotonic()
    threading.Timer(0.05, wake.set).start()
    wake.wait(DEADLINE)
    assert time.monotonic() - began < DEADLINE / 2

"""Waiting that ends when somebody wants it to: a line's stop sign and deadline, looked at while work goes on."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentfs.core.records import Failure
from agentfs.models.errors import ModelError, Stopped
from agentfs.models.line import Line

TICK_S = 0.05  # how often the stop sign is looked at
FAREWELL_S = 2.0  # for closing a connection

T = TypeVar("T")


def until_stopped(work: Coroutine[Any, Any, T], line: Line) -> T:
    """Return what the work returns; Stopped, and the work let go of, when the line says so."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_watched(work, line))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()  # not asyncio.run: that would wait for a lookup of a name that nobody wants any more


async def _watched(work: Coroutine[Any, Any, T], line: Line) -> T:
    task = asyncio.ensure_future(work)
    try:
        while not (is_over(line) or task.done()):
            left = max(line.deadline - time.monotonic(), 0.0)
            await asyncio.wait({task}, timeout=min(TICK_S, left))
        if task.done():
            return task.result()
        raise stopped(line)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=FAREWELL_S)
            with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
                task.exception()  # looked at: nobody else will


def is_over(line: Line) -> bool:
    """Whether somebody wants it to end, or its time is up."""
    return line.stop.is_set() or time.monotonic() >= line.deadline


def stopped(line: Line) -> ModelError:
    """Return why it ended."""
    if line.stop.is_set():
        return Stopped(Failure(kind="interrupted", message="it was stopped"))
    return line.late or Stopped(Failure(kind="timeout", message="its time was up while a model was asked"))

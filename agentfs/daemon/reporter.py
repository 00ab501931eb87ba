"""What a daemon prints: a line for everything that is worth one, as words or as JSON."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from agentfs.core.actions import Wait
from agentfs.core.text import inert
from agentfs.engine.isolation import isolation_words
from agentfs.engine.report import branch_words, ended_words, failures, reply_lines, turn_news, what_to_do

if TYPE_CHECKING:
    from agentfs.engine.driver import Driver


class Reporter:
    """Follows many runs; writes a line for what is worth one. A stream that is gone is no trouble."""

    def __init__(self, stream: TextIO, stamp: Callable[[], str] | None = None) -> None:
        self._stream, self._stamp = stream, stamp  # with a stamp: JSON
        self._reported: set[str] = set()
        self._replies: dict[str, set[str]] = {}  # by run: those that do not count, and were pointed out

    def report(self, event: str, words: str, run: str | None = None, **more: Any) -> None:
        """Write one line."""
        if self._stamp is None:
            line = inert(f"{run}: {words}" if run else words)
        else:
            line = json.dumps({"at": self._stamp(), "event": event, "run": run, **more, "words": words})
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Go on without the stream, and say so on the other one."""
        self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
        with contextlib.suppress(OSError, ValueError):
            print(f"agentfs: {error}; going on without it", file=sys.stderr, flush=True)

    def note(self, words: str) -> None:
        self.report("note", words)

    def report_once(self, words: str, run: str | None = None) -> None:
        """Report trouble that may come again and again."""
        if (line := f"{run}: {words}") not in self._reported:
            self._reported.add(line)
            self.report("trouble", words, run)

    def report_opened(self, driver: "Driver") -> None:
        run = driver.facts.run
        self.report("driving", f"working in {driver.folder.resolve() / run.workdir}", run.run)
        if not driver.facts.attempts and not driver.facts.outcome:
            for words in isolation_words(run, "`agentfs run GOAL --with-uncommitted` takes it along"):
                self.report("isolated", words, run.run)

    def report_turn(self, driver: "Driver", reported: set[tuple[str, int]]) -> None:
        """Report what a turn found finished and what it decided. `reported`: the attempts reported before."""
        run = driver.facts.run.run
        for event, words, more in turn_news(driver.state, driver.actions, reported):
            self.report(event, words, run, **more)
        for words in reply_lines(driver.state, self._replies.setdefault(run, set())) if driver.jobs else ():
            self.report("todo", words, run)  # at rest, `waits` says it

    def report_wait(self, driver: "Driver", rest: Wait) -> None:
        run = driver.facts.run.run
        self.report("waiting", f"waits: {rest.why}", run)
        for line in what_to_do(driver.folder, driver.state):
            self.report("todo", line.strip(), run)

    def report_end(self, driver: "Driver") -> None:
        outcome, run = driver.facts.outcome, driver.facts.run.run
        self._replies.pop(run, None)
        if outcome is None:
            return
        self.report("ended", ended_words(outcome), run, status=outcome.status, reason=outcome.reason)
        if outcome.status == "failed":
            for line in failures(driver.state):
                self.report("todo", line.strip(), run)
        for line in branch_words(outcome, run):
            self.report("todo", line, run)

    def forget_run(self, run: str) -> None:
        """Forget a run that is no longer driven though it has not ended; why was reported."""
        self._replies.pop(run, None)

"""`agentfs cost RUN`: what a run has asked of models. Reads its logs and results; writes nothing."""

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from agentfs.cli.common import here
from agentfs.cli.look import print_lines, width
from agentfs.cli.reading import plain_json, run_id
from agentfs.core import paths
from agentfs.core.costs import Asked, Conversation, as_page, asked_by, asked_in, costs_of
from agentfs.jsonlines import read_lines
from agentfs.views.words import json_text


def cost(arguments: Namespace) -> int:
    """`agentfs cost RUN`"""
    folder = here(arguments).find_run(arguments.run)
    page = as_page(run_id(folder), costs_of(conversations(folder)))
    if arguments.json:
        return print_lines([json_text(page)])
    from agentfs.views.cost import cost_lines

    return print_lines(cost_lines(page, width()))


def conversations(folder: Path) -> Iterator[Conversation]:
    """Yield everything that a run has asked of models: the planner's calls in order, then the steps."""
    yield from _calls(folder / paths.PLANNING)
    yield from _attempts(folder / paths.STEPS)


def _calls(planning: Path) -> Iterator[Conversation]:
    found = {parsed.call for name in _listed(planning) if (parsed := paths.parse_call_file(name))}
    for call in sorted(found):
        record = plain_json(planning / paths.call_file(call, "call"))
        trigger = record.get("trigger") if isinstance(record, dict) else None
        judged = _asked(planning / paths.checks_log_file(call), planning / paths.call_file(call, "checks"))
        yield Conversation(judged, call=call, trigger="goal checks")
        asked = _asked(planning / paths.call_file(call, "log"), planning / paths.call_file(call, "answer"))
        yield Conversation(asked, call=call, trigger=trigger if isinstance(trigger, str) else None)


def _attempts(steps: Path) -> Iterator[Conversation]:
    found = {(parsed.step, parsed.attempt) for name in _listed(steps) if (parsed := paths.parse_step_file(name))}
    for step, attempt in sorted(found):
        log = steps / paths.step_file(step, attempt, "log")
        asked = _asked(log, steps / paths.step_file(step, attempt, "result"))
        yield Conversation(asked, step=step, attempt=attempt)


def _asked(log: Path, record: Path) -> tuple[Asked, ...]:
    """Return what a conversation asked, as its log tells; where that is gone, as its result sums it up."""
    if asked := tuple(asked_in(read_lines(log))):
        return asked
    settled = plain_json(record)
    return tuple(asked_by(settled.get("usage"))) if isinstance(settled, dict) else ()


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

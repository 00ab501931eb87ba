"""PLAN.md, the plan that a model keeps for itself: always in the run's own folder, wherever its tools work."""

from collections.abc import Mapping
from dataclasses import replace

from agentfs.core.excerpts import fenced, head_and_tail
from agentfs.core.records import Failure
from agentfs.core.values import NotJson
from agentfs.executor.arguments import arguments_of
from agentfs.tools.base import Bench
from agentfs.tools.files import read_beneath

PLAN = "PLAN.md"
LENGTH, LARGEST = 8_000, 1024 * 1024


def is_plan(given: Mapping[str, object]) -> bool:
    """Whether a call speaks of the plan."""
    return given.get("path") in (PLAN, f"./{PLAN}")


def writes_plan(tool: str, arguments: str) -> bool:
    """Whether a call writes the plan, whole."""
    try:
        return tool == "write_file" and is_plan(arguments_of(arguments))
    except NotJson:
        return False


def at_plan(bench: Bench) -> Bench:
    """Return a bench where the plan is."""
    return replace(bench, confinement=replace(bench.confinement, workdir=bench.confinement.run_files))


def plan_shown(bench: Bench) -> str | None:
    """Return the plan as it stands, as a model is shown it; None if it has not been written."""
    found = read_beneath(PLAN, at_plan(bench), LARGEST)
    if isinstance(found, Failure):
        return None
    return fenced(bench.mask.text(head_and_tail(found[1].decode("utf-8", "replace"), LENGTH)))

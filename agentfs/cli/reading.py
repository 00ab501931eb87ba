"""Read runs for the commands that only look. Takes no lock, writes nothing, imports no tool of the workspace.

An ended run is told from its outcome.json with plain JSON; only an open one is worth the import of the records.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core import names
from agentfs.holding import held_inodes, is_driven
from agentfs.workspace import Workspace

if TYPE_CHECKING:
    from agentfs.core.config import Settings
    from agentfs.core.facts import Facts
    from agentfs.core.state import RunState

ENDS = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Glance:
    """One run at one moment, as `status` tells it."""

    run: str
    state: str
    done: int
    total: int
    why: str
    at: str  # when it ended, else when it began
    outcome: Mapping[str, Any] | None = None
    driven: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "state": self.state,
            "steps": {"done": self.done, "total": self.total},
            "why": self.why,
            "outcome": self.outcome,
            "at": self.at,
            "driven": self.driven,
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything one run's files say. Without a state, `broken` says what does not read."""

    folder: Path
    state: "RunState | None"
    broken: tuple[str, ...] = ()
    judged: "Callable[[Facts], Facts]" = lambda facts: facts  # lays an answer that waits over what the facts say

    @property
    def run(self) -> str:
        return run_id(self.folder)


def run_id(folder: Path | str) -> str:
    return "/".join(str(folder).replace(os.sep, "/").rsplit("/", 2)[1:])


def plain_json(path: Path | str) -> Any:
    """Return what a JSON file holds; None if it is not there or does not read."""
    try:
        with open(path, "rb", buffering=0) as file:  # of thousands: a Path, or a buffer, takes longer than the file
            return json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None


# ── ended runs ────────────────────────────────────────────────────────────────────────────────────────────


def ended(folder: Path | str) -> Glance | None:
    """Return how a run ended, from plain JSON; None if it has not, or its outcome does not read."""
    outcome = plain_json(f"{folder}/{names.OUTCOME}")
    try:
        steps = {end: list(outcome["steps"][end]) for end in ("done", "failed", "skipped", "not_reached")}
        state, why, at = outcome["status"], outcome["summary"], outcome["ended_at"]
    except (TypeError, KeyError):
        return None
    if state not in ENDS or not isinstance(why, str) or not isinstance(at, str):
        return None
    total = sum(len(ids) for ids in steps.values()) - len(_departed(folder, steps["failed"]))
    return Glance(run_id(folder), state, len(steps["done"]), total, why, at, outcome)


def _departed(folder: Path | str, failed: list[Any]) -> list[Any]:
    """Return the failed steps that have left the plan: the outcome names them, the plan no longer counts them."""
    present = step_ids(plain_json(f"{folder}/{names.PLAN}")) if failed else []
    return [step for step in failed if present and step not in present]


def step_ids(plan: Any) -> list[str]:
    """Return the ids of a plan that may be anything."""
    steps = plan.get("steps") if isinstance(plan, dict) else None
    return [step["id"] for step in steps or () if isinstance(step, dict) and isinstance(step.get("id"), str)]


# ── open runs ─────────────────────────────────────────────────────────────────────────────────────────────


class Eyes:
    """Looks at many runs: what they share, the settings and who drives them, is read once, and late."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def glance(self, folder: Path) -> Glance:
        """Return what a run is doing, with as little work as that takes; one in any disorder has a line."""
        if found := ended(folder):
            return found
        try:
            return glance_of(read_run(folder, self.workspace, self.settings), is_driven(folder, self.held))
        except Exception as error:  # noqa: BLE001 - one broken run never hides another
            return Glance(run_id(folder), "waiting", 0, 0, f"it does not read: {type(error).__name__}: {error}", "")

    @cached_property
    def settings(self) -> "Settings":
        return settings_of(self.workspace)[0]

    @cached_property
    def held(self) -> frozenset[int]:
        return held_inodes()


def glance_of(reading: Reading, driven: bool | None = None) -> Glance:
    """Return what a run is doing, from all of its files."""
    if found := ended(reading.folder):
        return found
    driven = is_driven(reading.folder) if driven is None else driven
    if reading.state is None:
        ids = step_ids(plain_json(reading.folder / names.PLAN))
        return Glance(reading.run, "waiting", 0, len(ids), reading.broken[0], "", None, driven)
    from agentfs.core.phase import phase, reason

    state = reading.state
    over = sum(view.status in ("done", "skipped") for view in state.steps.values())
    at = state.facts.run.started_at
    why = reading.broken[0] if reading.broken else reason(state)  # nothing goes on before that is mended
    return Glance(reading.run, phase(state), over, len(state.steps), why, at, None, driven)


def read_run(folder: Path, workspace: Workspace, settings: "Settings | None" = None) -> Reading:
    """Read everything a run's files say; what does not read is named, the rest is still there."""
    from pydantic import ValidationError

    from agentfs.core.state import Means, derive
    from agentfs.errors import NotARun
    from agentfs.judge import FileJudge
    from agentfs.means import has_model, reader_for

    settings, environment = settings or settings_of(workspace)[0], dict(os.environ)
    try:
        reader = reader_for(folder, settings, environment, patient=False)
        facts = reader.read()
    except ValidationError as error:
        first = error.errors()[0]
        return Reading(folder, None, (f"run.json is not valid ({'/'.join(map(str, first['loc']))}: {first['msg']})",))
    except NotARun as error:
        return Reading(folder, None, (str(error).removeprefix(f"{folder}: "),))
    except OSError as error:
        return Reading(folder, None, (f"{error.filename or folder}: {error.strerror}",))
    tools = reader.judge.catalogue.tools if isinstance(reader.judge, FileJudge) else {}
    means = Means(
        planner=has_model(settings.planner, environment),
        executor=has_model(settings.executor, environment),
        repeatable={name: spec.repeatable for name, spec in tools.items()},
    )
    return Reading(folder, derive(facts, means), facts.broken, reader.judged)


def settings_of(workspace: Workspace) -> "tuple[Settings, str | None]":
    """Return the settings; the defaults, and what is wrong with the file, where it does not read."""
    from agentfs.core.config import Settings
    from agentfs.errors import UserError
    from agentfs.settings import load_settings

    try:
        return load_settings(workspace.settings, dict(os.environ)), None
    except UserError as error:
        return Settings(), str(error)


# ── one run's files, as plain JSON ────────────────────────────────────────────────────────────────────────


def plan_page(reading: Reading) -> dict[str, Any]:
    """Return the plan in force with each step's state and output merged in: what `show --json` prints."""
    seen = glance_of(reading)
    plan, files = _plan_in_force(reading), step_files(reading.folder)
    state = reading.state
    return {
        "run": seen.run,
        "state": seen.state,
        "why": seen.why,
        "driven": seen.driven,
        "revision": len(state.facts.revisions) if state else None,
        "workdir": str(reading.folder.resolve() / state.facts.run.workdir) if state else None,
        "broken": [*reading.broken, *_plan_problems(reading)],
        "outcome": seen.outcome,
        **plan,
        "steps": [_merged(reading, step, files) for step in plan.get("steps") or () if isinstance(step, dict)],
    }


def _plan_in_force(reading: Reading) -> dict[str, Any]:
    """Return the last revision's plan as it was written; plan.json itself where there is none."""
    revisions = reading.state.facts.revisions if reading.state else ()
    places = [reading.folder / names.PLAN]
    if revisions:
        places.insert(0, reading.folder / names.REVISIONS / names.revision_plan_file(revisions[-1].revision))
    return next((plan for place in places if isinstance(plan := plain_json(place), dict)), {})


def _plan_problems(reading: Reading) -> list[str]:
    problems = reading.state.facts.plan_file.problems if reading.state else ()
    return [problem.shown(names.PLAN) for problem in problems]


def _merged(reading: Reading, step: dict[str, Any], files: "Files") -> dict[str, Any]:
    """Return a step with its state. The plan's own `why` stays; why it is in that state is `because`."""
    name = str(step.get("id"))
    view = reading.state.steps.get(name) if reading.state else None
    number = max((n for n, kinds in files.get(name, {}).items() if "result" in kinds), default=0)
    result = plain_json(files[name][number]["result"]) if number else None
    if not isinstance(result, dict):
        result = None
    return {
        **step,
        "state": view.status if view else (result or {}).get("status", "waiting"),
        "because": view.why if view else "the run itself does not read",
        "attempt": view.attempt if view else number,
        "output": result.get("output") if result else None,
        "result": result,
    }


def step_page(reading: Reading, page: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return everything about one step, steps that have left the plan included; None if there is no such step."""
    found = next((step for step in page["steps"] if step.get("id") == name), None)
    files = step_files(reading.folder)
    if found is None and name not in files:
        return None
    left = {**_merged(reading, {"id": name}, files), "because": "it has left the plan"}
    attempts = [_attempt(number, kinds) for number, kinds in sorted(files.get(name, {}).items())]
    return {"run": page["run"], **(found or left), "attempts": attempts}


def _attempt(number: int, files: dict[str, Path]) -> dict[str, Any]:
    return {
        "attempt": number,
        "order": plain_json(files["order"]) if "order" in files else None,
        "result": plain_json(files["result"]) if "result" in files else None,
        "files": {kind: str(path) for kind, path in sorted(files.items(), key=lambda item: item[1].name)},
    }


Files = dict[str, dict[int, dict[str, Path]]]  # step -> attempt -> kind of file -> where


def step_files(folder: Path) -> Files:
    """Return where the files of every attempt are, of steps that have left the plan too."""
    found: Files = {}
    try:
        listed = sorted(os.listdir(folder / names.STEPS))
    except OSError:
        return found
    for name in listed:
        if file := names.parse_step_file(name):
            kind = f"{file.kind}-{file.count}" if file.count > 1 else file.kind
            found.setdefault(file.step, {}).setdefault(file.attempt, {})[kind] = folder / names.STEPS / name
    return found

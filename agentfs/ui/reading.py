"""Read runs for the commands that only look: which there are, and what each says. Writes nothing, takes no lock.

An ended run is shown from its outcome.json with plain JSON, read only when it is shown or chosen by what it says;
only an open one is worth the import of the records. No tool of the workspace is imported.
"""

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core import paths
from agentfs.core.text import inert
from agentfs.errors import UserError
from agentfs.storage.clock import Clock
from agentfs.storage.files import read_whole
from agentfs.storage.locks import held_inodes, is_driven
from agentfs.storage.safe_open import names_in
from agentfs.storage.safe_open import reading as open_to_read
from agentfs.storage.workspace import Workspace, all_folders

if TYPE_CHECKING:
    from agentfs.core.attention import PlaceUse
    from agentfs.core.config import Settings
    from agentfs.core.facts import Facts
    from agentfs.core.goal_file import ParsedGoal
    from agentfs.core.run_state import RunState
    from agentfs.core.steps import StepView
    from agentfs.engine.means import DayLimit


ENDS = ("done", "failed", "cancelled")
FOR_A_PERSON = ("waiting", "draft", "paused")
NONE = {"done": 0, "failed": 0, "skipped": 0, "total": 0}


@dataclass(frozen=True, slots=True)
class Glance:
    """One run at one moment, as `status` shows it."""

    run: str
    state: str
    steps: Mapping[str, int]  # how many are done, failed, skipped, and in all
    why: str
    at: str  # when it ended, else when it began
    outcome: Mapping[str, Any] | None = None
    driven: bool = False
    ways: tuple[str, ...] = ()  # what a person types to have it go on
    parent: str | None = None  # the run that it is in
    places: "tuple[PlaceUse, ...]" = ()  # where it has attempts, or waits for a slot
    waits: str = ""  # which run waits for a person, and for what: it, or one that is a step of it

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "state": self.state,
            "steps": dict(self.steps),
            "why": self.why,
            "outcome": self.outcome,
            "at": self.at,
            "driven": self.driven,
            "ways": list(self.ways),
            **({"parent": self.parent} if self.parent else {}),
            **({"places": [asdict(one) for one in self.places]} if self.places else {}),
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run's files say. Without a state, `broken` says what cannot be read."""

    folder: Path
    state: "RunState | None"
    broken: tuple[str, ...] = ()
    judged: "Callable[[Facts], Facts]" = lambda facts: facts  # adds the answer that waits to the facts
    goal: "ParsedGoal | None" = None

    @property
    def run(self) -> str:
        return paths.run_id(self.folder)

    def readable(self) -> "RunState":
        """Return the state; raise if the files give none."""
        if self.state is None:
            raise UserError(f"{self.run} cannot be read: {inert(self.broken[0])}")
        return self.state

    def planned(self) -> "RunState":
        """Return the state of a run that has a revision; raise if it has none."""
        if not self.readable().facts.revisions:
            raise UserError(f"{self.run} has no revision yet: there is no plan")
        return self.readable()


def no_such_step(run: str, step: str, known: Iterable[str]) -> UserError:
    """Return what to say of a step that a run does not have."""
    from agentfs.core.problems import did_you_mean

    meant = did_you_mean(step, known, f"`agentfs show {run}` lists its steps")
    return UserError(f"{run} has no step {inert(step)!r} ({meant})")


def plain_json(path: Path | str) -> Any:
    """Return the value of a JSON file; None if it is missing or invalid."""
    try:
        return json.loads(read_whole(path))
    except (OSError, ValueError, RecursionError):
        return None


def plain_object(path: Path | str) -> dict[str, Any]:
    """Return the fields of a JSON file; none if it is missing, invalid, or no object."""
    found = plain_json(path)
    return found if isinstance(found, dict) else {}


def names_of(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(names_in(folder))
    except OSError:
        return []


def rejected_goals(workspace: Workspace) -> list[str]:
    """Return the names of the goals that could not be taken."""
    return [name for name in names_of(workspace.root / "goals" / "rejected") if not name.endswith(".error.md")]


def whole_lines(path: Path, offset: int, most: int) -> bytes:
    """Return the complete lines of a log from an offset on, so many bytes at once."""
    try:
        with open_to_read(path) as file:
            file.seek(offset)
            source = file.read(most)
    except OSError:
        return b""
    return source[: source.rfind(b"\n") + 1]


# ── ended runs ────────────────────────────────────────────────────────────────────────────────────────────


def ended(folder: Path | str) -> Glance | None:
    """Return how a run ended, from plain JSON; None if it has not, or its outcome cannot be read."""
    outcome = plain_json(f"{folder}/{paths.OUTCOME}")
    try:
        steps = {end: list(outcome["steps"][end]) for end in ("done", "failed", "skipped", "not_reached")}
        state, why, at = outcome["status"], outcome["summary"], outcome["ended_at"]
    except (TypeError, KeyError):
        return None
    if state not in ENDS or not isinstance(why, str) or not isinstance(at, str):
        return None
    if state == "done" and steps["failed"]:  # those that the plan no longer has were replaced
        planned = step_ids(folder)
        steps["failed"] = [step for step in steps["failed"] if step in planned]
    counts = {end: len(steps[end]) for end in ("done", "failed", "skipped")}
    return Glance(paths.run_id(folder), state, counts | {"total": sum(map(len, steps.values()))}, why, at, outcome)


def parent_of(folder: Path | str) -> str | None:
    """Return the run that a run is in, from plain JSON."""
    match plain_json(f"{folder}/{paths.RUN}"):
        case {"parent": {"run": str() as parent}}:
            return parent
        case _:
            return None


def children_in(folder: Path) -> list[str]:
    """Return the runs that are steps of a run's plan, as the logs of these name them."""
    steps = plain_object(folder / paths.PLAN).get("steps") or ()
    run_steps = {step.get("id") for step in steps if isinstance(step, dict) and step.get("tool") == "run"}
    if not run_steps:
        return []
    from agentfs.executor.attempt_log import child_in

    logs = (
        attempts[number]["log"]
        for step, attempts in sorted(step_files(folder).items())
        for number in sorted(attempts)
        if paths.step_of(step) in run_steps and "log" in attempts[number]
    )
    return [*dict.fromkeys(child[0] for child in map(child_in, logs) if child)]


def step_ids(folder: Path | str) -> list[str]:
    """Return the ids of the steps in a plan.json that may hold anything."""
    steps = plain_object(f"{folder}/{paths.PLAN}").get("steps") or ()
    return [step["id"] for step in steps if isinstance(step, dict) and isinstance(step.get("id"), str)]


# ── open runs ─────────────────────────────────────────────────────────────────────────────────────────────


class RunScanner:
    """Reads many runs; the settings, and who drives what, are read once and only if needed."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def glance(self, folder: Path, depth: int = 0) -> Glance:
        """Return what a run is doing, as cheaply as possible; a broken run gets a line that says so."""
        if found := ended(folder):
            return found
        try:
            read = read_run(folder, self.workspace, self.settings, self.day)
            return glance_of(read, is_driven(folder, self.held), runs_below(read, self, depth))
        except Exception as error:  # noqa: BLE001 - one broken run never hides another
            return Glance(
                paths.run_id(folder), "waiting", NONE, f"it cannot be read: {type(error).__name__}: {error}", ""
            )

    @cached_property
    def settings(self) -> "Settings":
        return settings_of(self.workspace)[0]

    def slots_in_use(self, runs: "Iterable[Glance]") -> list[str]:
        """Return a line for each place that these runs use."""
        uses = [use for one in runs for use in one.places]
        if not uses:
            return []
        from agentfs.core.attention import slots_in_use

        parallel = self.settings.limits.parallel
        slots = {name: place.slots or parallel for name, place in self.settings.places.items()}
        return [*slots_in_use(uses, slots)]

    @cached_property
    def day(self) -> "DayLimit":
        from agentfs.engine.means import DayLimit

        return DayLimit(self.workspace, os.environ, Clock())

    @cached_property
    def held(self) -> frozenset[int]:
        return held_inodes()


def child_of(state: "RunState", step: str) -> str | None:
    """Return the run that the last attempt at a step is, where it is one."""
    attempts = state.facts.attempts.get(step, ())
    last = attempts[-1] if attempts else None
    if last is None or last.result is not None:
        return last.result.child if last is not None and last.result is not None else None
    return last.child.run if last.child is not None and last.child.begun else None


def runs_below(reading: Reading, scanner: RunScanner, depth: int = 0) -> dict[str, Glance]:
    """Return, by step, what the runs are doing that are steps of this one and under way."""
    from agentfs.core.facts import DEEPEST

    if reading.state is None or depth >= DEEPEST:
        return {}
    steps = [view for step in reading.state.steps.values() for view in (step, *step.items)]
    runs = {view.id: child_of(reading.state, view.id) for view in steps if view.status == "running"}
    folders = {step: scanner.workspace.runs / run for step, run in runs.items() if run}
    return {step: scanner.glance(folder, depth + 1) for step, folder in folders.items()}


def glance_of(reading: Reading, driven: bool | None = None, below: Mapping[str, Glance] | None = None) -> Glance:
    """Return what a run is doing, from all of its files. `below`: the runs that are steps of it."""
    if found := ended(reading.folder):
        return found
    driven = is_driven(reading.folder) if driven is None else driven
    if reading.state is None:
        ids = step_ids(reading.folder)
        return Glance(reading.run, "waiting", NONE | {"total": len(ids)}, reading.broken[0], "", None, driven)
    from agentfs.core.attention import phase, places_in_use, ways_on
    from agentfs.core.outcome import tally

    state = reading.state
    at = state.facts.run.started_at
    waiting = {step: one.waits for step, one in (below or {}).items() if one.waits}
    why = reading.broken[0] if reading.broken else _why(state, waiting)  # nothing goes on before that is fixed
    ways = () if reading.broken else ways_on(state, reading.run)
    if not (ways or driven or reading.broken):
        from agentfs.engine.report import topmost

        ways = (f"agentfs resume {topmost(reading.run, reading.folder.parents[2])}",)
    parent = state.facts.run.parent.run if state.facts.run.parent else None
    places = tuple(places_in_use(state)) if driven else ()
    word = phase(state)
    waits = f"{reading.run} waits: {why}" if word in FOR_A_PERSON else next(iter(waiting.values()), "")
    return Glance(reading.run, word, tally(state).as_json(), why, at, None, driven, ways, parent, places, waits)


def _why(state: "RunState", waiting: Mapping[str, str]) -> str:
    """Return why a run is in its phase. `waiting`: by step, what waits for a person in the run that it is."""
    from agentfs.core.attention import reason

    if not waiting:
        return reason(state)
    step, words = next(iter(waiting.items()))
    more = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    others = any(view.id not in waiting for view in state.running)
    return f"{f'{reason(state)}; ' if others else ''}{step}: {words}{more}"


def read_run(
    folder: Path, workspace: Workspace, settings: "Settings | None" = None, day: "DayLimit | None" = None
) -> Reading:
    """Read a run's files; those that cannot be read are named in `broken`, the others count."""
    from pydantic import ValidationError

    from agentfs.core.run_state import derive
    from agentfs.engine.means import DayLimit, means_of, means_with
    from agentfs.engine.run_reader import reader_for
    from agentfs.errors import NotARun

    try:
        settings = settings or settings_of(workspace)[0]
        reader = reader_for(folder, settings, patient=False)
        facts = reader.read()
    except ValidationError as error:
        first = error.errors()[0]
        return Reading(folder, None, (f"run.json is not valid ({'/'.join(map(str, first['loc']))}: {first['msg']})",))
    except NotARun as error:
        return Reading(folder, None, (str(error).removeprefix(f"{folder}: "),))
    except OSError as error:
        return Reading(folder, None, (f"{error.filename or folder}: {error.strerror}",))
    means = means_of(facts.run, means_with(reader.judge.catalogue.tools))
    goal = reader.judge.goals.get(facts.goal.sha256)
    state = derive(facts, means)
    if settings.limits.day_usd is not None and facts.outcome is None:
        state = replace(state, day=(day or DayLimit(workspace, os.environ, Clock())).reached_by(folder))
    return Reading(folder, state, facts.broken, reader.judged, goal)


def settings_of(workspace: Workspace) -> "tuple[Settings, str | None]":
    """Return the settings; the defaults and what is wrong, if the file is not valid."""
    from agentfs.core.config import Settings
    from agentfs.storage.workspace import load_settings

    try:
        return load_settings(workspace.settings, dict(os.environ)), None
    except UserError as error:
        return Settings(), str(error)


# ── one run's files, as plain JSON ────────────────────────────────────────────────────────────────────────


def plan_page(reading: Reading, workspace: Workspace) -> dict[str, Any]:
    """Return the plan in force with each step's state and output merged in: what `show --json` prints."""
    below = runs_below(reading, RunScanner(workspace))
    seen = glance_of(reading, below=below)
    plan, files = _plan_in_force(reading), step_files(reading.folder)
    state = reading.state
    problems = state.facts.plan_file.problems if state else ()
    return {
        "run": seen.run,
        "state": seen.state,
        "why": seen.why,
        "driven": seen.driven,
        "revision": len(state.facts.revisions) if state else None,
        "workdir": str(reading.folder.resolve() / state.facts.run.workdir) if state else None,
        "broken": [
            *reading.broken,
            *(one.shown(paths.PLAN) for one in problems),
        ],
        "outcome": seen.outcome,
        "params": state.facts.run.params if state else None,
        **plan,
        "steps": [_merge(reading, step, files, below) for step in plan.get("steps") or () if isinstance(step, dict)],
        "left": _list_left(reading, files),
    }


def _list_left(reading: Reading, files: "Files") -> list[dict[str, Any]]:
    """Return the steps that have left the plan, each with the revision in which it left."""
    if reading.state is None:
        return []
    from agentfs.core.outcome import left_steps

    return [
        {
            "id": view.id,
            **view.step.model_dump(mode="json", include={"description", "tool", "input"}, exclude_none=True),
            "left_in": view.left,
            **_as_it_is(view, files),
        }
        for view in left_steps(reading.state)
    ]


def _plan_in_force(reading: Reading) -> dict[str, Any]:
    """Return the last revision's plan as it was written; plan.json itself where there is none."""
    revisions = reading.state.facts.revisions if reading.state else ()
    places = [reading.folder / paths.PLAN]
    if revisions:
        places.insert(0, reading.folder / paths.REVISIONS / paths.revision_plan_file(revisions[-1].revision))
    return next(filter(None, map(plain_object, places)), {})


def _merge(reading: Reading, step: dict[str, Any], files: "Files", below: Mapping[str, Glance]) -> dict[str, Any]:
    """Return a step with its state. The plan's own `why` stays; why it is in that state is `because`."""

    def because(view: "StepView") -> str:
        return (view.id in below and below[view.id].waits) or view.why

    name = str(step.get("id"))
    view = reading.state.steps.get(name) if reading.state else None
    if view is not None and view.items:
        shown = ("id", "state", "because", "attempt")
        listed = [
            dict(zip(shown, (one.id, one.status, because(one), one.attempt), strict=True)) for one in view.items
        ]
        return {**step, **_as_it_is(view, files), "items": listed}
    if view is not None:
        return {**step, **_as_it_is(view, files), "because": because(view)}
    number, result = _last_result(name, files)
    state = (result or {}).get("status", "waiting")
    return {**step, **_with_result(state, "the run itself cannot be read", number, result)}


def _as_it_is(view: "StepView", files: "Files") -> dict[str, Any]:
    last = view.attempt if view.left is not None else None
    return _with_result(view.status, view.why, view.attempt, _last_result(view.id, files, last)[1])


def _with_result(state: str, because: str, attempt: int, result: dict[str, Any] | None) -> dict[str, Any]:
    output = result.get("output") if result else None
    return {"state": state, "because": because, "attempt": attempt, "output": output, "result": result}


def _last_result(name: str, files: "Files", upto: int | None = None) -> tuple[int, dict[str, Any] | None]:
    numbers = [n for n, kinds in files.get(name, {}).items() if "result" in kinds and (upto is None or n <= upto)]
    number = max(numbers, default=0)
    return number, (plain_object(files[name][number]["result"]) if number else None) or None


def step_page(reading: Reading, page: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return everything about one step, steps that have left the plan included; None if there is no such step."""
    found = next((step for step in [*page["steps"], *page["left"]] if step.get("id") == name), None)
    files = step_files(reading.folder)
    if found is None and name not in files:
        return None
    item = reading.state.view(name) if reading.state and found is None else None
    left = {**_merge(reading, {"id": name}, files, {}), "because": "it has left the plan"}
    if item is not None:
        fields = item.step.model_dump(mode="json", exclude_none=True, include={"description", "tool", "input"})
        left = {"id": name, **fields, **_as_it_is(item, files)}
    attempts = [_attempt(number, kinds) for number, kinds in sorted(files.get(name, {}).items())]
    return {"run": page["run"], **(found or left), "attempts": attempts}


def _attempt(number: int, files: dict[str, Path]) -> dict[str, Any]:
    return {
        "attempt": number,
        "order": plain_json(files["order"]) if "order" in files else None,
        "result": plain_json(files["result"]) if "result" in files else None,
        "files": {kind: str(path) for kind, path in sorted(files.items(), key=lambda item: item[1].name)},
    }


def revision_numbers(folder: Path) -> list[int]:
    """Return the numbers that a run's revisions have been given."""
    parsed = map(paths.parse_revision_file, names_of(folder / paths.REVISIONS))
    return sorted(found[0] for found in parsed if found and found[1] == "record")


Files = dict[str, dict[int, dict[str, Path]]]  # step -> attempt -> kind of file -> where


def step_files(folder: Path) -> Files:
    """Return where the files of every attempt are, of steps that have left the plan too."""
    found: Files = {}
    for name in names_of(folder / paths.STEPS):
        if file := paths.parse_step_file(name):
            kind = f"{file.kind}-{file.nth}" if file.nth > 1 else file.kind
            found.setdefault(file.step, {}).setdefault(file.attempt, {})[kind] = folder / paths.STEPS / name
    return found


# ── which runs there are ─────────────────────────────────────────────────────────────────────────


_AGE = re.compile(r"([0-9]{1,6}) ?(s|min|m|h|d|w)\Z")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_HOLDS = (paths.RUN, paths.PLAN, *(f"goal{suffix}" for suffix in paths.GOAL_SUFFIXES))


@dataclass(frozen=True, slots=True)
class Listing:
    """The runs of a workspace: the open ones, and the ended ones by when their outcome was written, newest first."""

    open: tuple[Path, ...]
    ended: tuple[tuple[float, str], ...]  # seconds since the epoch, folder


def list_runs(runs: Path) -> Listing:
    """Return every run. A folder with nothing of a run in it is still being made, or was abandoned."""
    open_runs: list[Path] = []
    ended: list[tuple[float, str]] = []
    for folder in all_folders(runs):
        try:
            ended.append((os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime, folder))
        except OSError:
            if any(os.path.lexists(f"{folder}/{name}") for name in _HOLDS):
                open_runs.append(Path(folder))
    return Listing(tuple(open_runs), tuple(sorted(ended, reverse=True)))


def moment_of(arguments: Namespace, option: str) -> datetime | None:
    """Return the moment that `--since 2d` or `--older-than 2026-11-01` means; None if it was not typed."""
    text = getattr(arguments, option.replace("-", "_"))
    if text is None:
        return None
    try:
        if age := _AGE.match(text.strip()):
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text.strip()).astimezone(UTC)  # a day begins at midnight, where this machine is
    except (ValueError, OverflowError):
        raise UserError(
            f"--{option} {inert(text)}: write how long ago (90min, 3h, 2d, 4w), or a day (2026-11-01)"
        ) from None


def time_of(timestamp: str) -> datetime | None:
    """Return the time a record names; None if it names none."""
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC)
    except (ValueError, OverflowError):
        return None

"""What a workspace and its runs have to work with: tools, models, money for the day; and the judge of plans by them.

Commands that only look need no more than this, and it is quick to import: no engine, no model, no ledger.
"""

import json
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from agentfs.agents.presets import PRESETS
from agentfs.core import paths
from agentfs.core.config import ModelSettings, Settings, ToolSettings
from agentfs.core.documents import read_json
from agentfs.core.facts import Facts, GoalFile
from agentfs.core.goal_file import ParsedGoal, parse_goal
from agentfs.core.hashing import sha256_bytes
from agentfs.core.params import frozen_problems
from agentfs.core.plan_check import check_plan, surely_fits
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import ModelRole, Plan, Run, Tools
from agentfs.core.references import Params
from agentfs.core.run_state import Means, Reached, Use
from agentfs.core.tool_spec import Catalogue, ToolSpec
from agentfs.errors import AgentfsError, UserError
from agentfs.planner.without_model import answers, cleanups
from agentfs.storage.clock import Clock, format_moment, later
from agentfs.storage.files import read_whole, signature
from agentfs.storage.safe_open import names_in
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, all_folders, load_settings
from agentfs.tools.registry import Known, known_tools, specs
from agentfs.tools.web import NO_ENGINE


def has_model(settings: ModelSettings, environment: Mapping[str, str]) -> bool:
    """Whether a model is configured: its key is set, its address is set, or it is a command."""
    return bool(settings.kind == "command" or settings.base_url or environment.get(settings.api_key_env))


def commands_of(settings: Settings, roles: Iterable[ModelRole]) -> tuple[ModelRole, ...] | None:
    """Return which of these are programs; None: none is."""
    return tuple(role for role in roles if getattr(settings, role).kind == "command") or None


def catalogue_of(settings: Settings, environment: Mapping[str, str], known: Known | None = None) -> Catalogue:
    """Return the tools of a workspace, for checking plans and goals; by default those that come with agentfs."""
    known = known or Known(specs())
    model = has_model(settings.executor, environment)
    allowed = frozenset(allowing_own(settings, known).tools.allow)
    models = settings.executor.models or (settings.executor.model,)
    return Catalogue(
        known.specs,
        allowed,
        settings.tools.network,
        model,
        known.broken,
        unset_tools(settings),
        models,
        agents=tuple(dict.fromkeys((*PRESETS, *settings.agents))),
        named_agents=named_agents(settings),
        agent=default_agent(settings),
        places=tuple(settings.places),
        broken_places=broken_places(settings),
        must_be_known=True,
        isolated=settings.isolate is not None,
    )


def default_agent(settings: Settings) -> str | None:
    """Return the coding agent that does steps without a tool; None: a model does."""
    if settings.executor.kind != "agent":
        return None
    if settings.executor.agent is None:
        raise UserError('kind = "agent" under [executor] needs the name of one: agent = "codex" (see agentfs agents)')
    return settings.executor.agent


def named_agents(settings: Settings) -> tuple[str, ...]:
    """Return the coding agents that a planner may name: those that the settings speak of."""
    default = default_agent(settings)
    return tuple(dict.fromkeys((*settings.agents, *([default] if default else ()))))


def unset_tools(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the tools that cannot be used as the settings are: why, and what to set."""
    return {} if settings.tools.web_search.url else {"web_search": NO_ENGINE}


def broken_places(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the places that cannot be used as the settings are: why, and how to fix it."""
    if not settings.places:
        return {}
    from agentfs.places.relay import place_problem

    return {name: problem for name, one in settings.places.items() if (problem := place_problem(one))}


def allowing_own(settings: Settings, known: Known) -> Settings:
    """Return the settings with a person's own tools allowed, unless [tools] allow says which are."""
    if "allow" in settings.tools.model_fields_set:
        return settings
    tools = settings.tools.model_copy(update={"allow": (*settings.tools.allow, *known.own)})
    return settings.model_copy(update={"tools": tools})


def allowed_tools(settings: ToolSettings, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the tools that a run may use: those allowed, tightened to those its goal asks for."""
    return tuple(tool for tool in settings.allow if wanted is None or tool in wanted)


_USES: Mapping[str, Use] = {"read": "reads", "network": "apart", "none": "apart"}


def means_of(run: Run, tools: Means) -> Means:
    """Return what a run has to work with, as run.json says: never what the process that reads it has."""
    models = run.models
    return replace(
        tools,
        planner=models.planner is not None,
        executor=models.executor is not None or run.agent is not None,
        repeatable=tools.repeatable if run.isolation is None else _repeatable_isolated(run, tools.repeatable),
        agent=run.agent is not None,
        isolated=run.isolation is not None,
    )


def _repeatable_isolated(run: Run, repeatable: Mapping[str, bool]) -> dict[str, bool]:
    """Return which tools may run again where what they did is undone: those that cannot reach outside, too."""
    inside = () if run.network is True else ("shell", "python", "write_file", "edit_file")
    return {**repeatable, **dict.fromkeys(inside, True)}


def means_with(specs: Mapping[str, ToolSpec]) -> Means:
    """Return what tools mean for the state of steps: which may be repeated, which need a yes each time."""
    gated = frozenset(name for name, spec in specs.items() if spec.gated)
    uses = {name: _USES.get(spec.effects, "writes") for name, spec in specs.items()}
    return Means(repeatable={name: spec.repeatable for name, spec in specs.items()}, gated=gated, uses=uses)


def catalogue_of_run(run: Run, settings: Settings, known: Known) -> Catalogue:
    """Return the tools and the model that one run began with. `settings`: what a planner is to be offered of them."""
    model = run.models.executor is not None
    unset, models = unset_tools(settings), run.models.named or (run.models.executor or settings.executor.model,)
    given = run.params or {}
    agents = dict.fromkeys((*PRESETS, *settings.agents, *(run.agents or ())))
    return Catalogue(
        known.specs,
        frozenset(run.tools),
        run.network,
        model,
        known.broken,
        unset,
        models,
        agents=tuple(agents),
        named_agents=run.agents or (),
        agent=run.agent,
        params=Params(tuple(given), given),
        places=tuple(settings.places),
        isolated=run.isolation is not None,
    )


def judge_for(folder: Path, settings: Settings, known: Known | None = None) -> "FileJudge":
    """Return the judge of the plans and goals of one run, by the tools that it began with (see `reader_for`)."""
    run, root = run_record(folder), folder.parents[2]
    known = known or known_tools(root, {*run.tools, *(tools_in_plan(folder).allow or ())})
    catalogue = catalogue_of_run(run, settings, known)
    uses, listed = partial(_used_problems, root, run, catalogue), partial(_runbooks, root, catalogue)
    return FileJudge(replace(catalogue, uses=uses, runbooks=listed, run=paths.run_id(folder)))


def _used_problems(root: Path, run: Run, catalogue: Catalogue, given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a step that runs a goal of runbooks/; what reads those is loaded if there is one."""
    from agentfs.engine.goal_source import step_problems

    yield from step_problems(given, root, catalogue, run.uses)


def _runbooks(root: Path, catalogue: Catalogue) -> list[str]:
    from agentfs.engine.goal_source import runbook_lines

    return runbook_lines(root, catalogue)


def tools_in_plan(folder: Path) -> Tools:
    """Return what plan.json itself says of the run's tools, as far as it reads."""
    try:
        own = json.loads(read_whole(folder / paths.PLAN)).get("tools")
        return Tools.model_validate_json(json.dumps(own or {}))
    except (OSError, ValueError, AttributeError, RecursionError):
        return Tools()


def run_record(folder: Path) -> Run:
    """Return the settings a run began with."""
    return Run.model_validate_json(read_whole(f"{folder}/{paths.RUN}"))


# ── judging what people write ─────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class FileJudge:
    """Judges plan.json and the goal file of a run; keeps the goals it has read."""

    catalogue: Catalogue
    goals: dict[str, ParsedGoal] = field(default_factory=dict)
    _last: tuple[bytes, Plan] | None = None  # a new plan is looked at twice: before it is in its place, and there

    def plan(self, source: bytes) -> Plan:
        """Return the plan that bytes are; raises Rejected."""
        if self._last is None or self._last[0] != source:
            self._last = (source, check_plan(read_json(source), self.catalogue.as_stored()))
        return self._last[1]

    def still_fits(self, plan: Plan) -> bool:
        """Whether judging a plan again would be a waste."""
        return surely_fits(plan, self.catalogue.as_stored())

    def goal(
        self, source: bytes, filename: str, *, planned: bool = False, own_tools: Tools | None = None
    ) -> GoalFile:
        """Return the goal that bytes are; raises Rejected. `planned`: its steps have been checked before."""
        digest, catalogue = sha256_bytes(source), self.catalogue.as_stored().under(own_tools)
        parsed, given = parse_goal(source, filename, catalogue, planned=planned), catalogue.params.values
        if not planned and (wrong := frozen_problems(parsed.params, given)):
            raise Rejected([problem.at(*parsed.places(problem.pointer, True)) for problem in wrong])
        parsed = self.goals[digest] = parsed.filled(given)
        return GoalFile(
            digest,
            parsed.text,
            parsed.title,
            checks=parsed.fields.checks or (),
            protect=parsed.fields.protect or (),
            has_steps=parsed.kind != "words",
        )

    def parsed(self, digest: str) -> ParsedGoal:
        return self.goals[digest]

    def with_answers(self, facts: Facts) -> Facts:
        """Return the facts with the steps whose failure, or rejection, the goal itself has an answer to."""
        goal = self.goals.get(facts.goal.sha256)
        if goal is None or not goal.fallbacks:
            return replace(facts, answerable=frozenset(), cleanable=frozenset())
        present = {step.id for step in facts.plan.steps} if facts.plan else set()
        used = present | set(facts.attempts)
        return replace(facts, answerable=answers(goal, used), cleanable=cleanups(goal, used))


# ── what all runs may spend today ─────────────────────────────────────────────────────────────────────────


class DayLimit:
    """Holds all runs of a workspace to `limits.day_usd`. Any thread may ask.

    Read from the results of attempts and calls as they appear, and from agentfs.toml as it is now. Nothing is stored.
    """

    def __init__(self, workspace: Workspace, environment: Mapping[str, str], clock: Clock) -> None:
        self._workspace, self._environment, self._clock = workspace, dict(environment), clock
        self._setting: tuple[object, float | None] = (None, None)  # of which file, what it says
        self._setting_due = self._runs_due = -math.inf
        self._runs: set[str] = set()
        self._midnight = ""
        self._listed: dict[str, int] = {}  # by folder: when it had changed last as it was listed
        self._costs: dict[str, dict[str, float]] = {}  # by run: what each record that ended today cost
        self._lock = threading.Lock()

    def reached_by(self, folder: Path) -> Reached | None:
        """Return that the limit is reached, for the run that asks; None if there is room, or no limit."""
        with self._lock:
            limit = self._limit()
            if limit is None or self._sum_today(str(folder)) < limit:
                return None
            return Reached("day_usd", f"${limit:g} a day")

    def _limit(self) -> float | None:
        """Return the setting as it is now; while the file is not valid, as it was."""
        if (now := time.monotonic()) < self._setting_due:
            return self._setting[1]
        self._setting_due = now + TIMING.day_setting
        version = signature(self._workspace.settings)
        if version != self._setting[0] or version is None:
            with suppress(AgentfsError):
                settings = load_settings(self._workspace.settings, self._environment)
                self._setting = version, settings.limits.day_usd
        return self._setting[1]

    def _sum_today(self, folder: str) -> float:
        """Return what every run has spent today; `folder`: one that may be too new to be in the list."""
        if (midnight := self._clock.midnight()) != self._midnight:
            self._midnight, self._runs_due = midnight, -math.inf
            self._listed.clear()
            self._costs.clear()
        if (now := time.monotonic()) >= self._runs_due:
            self._runs_due = now + TIMING.day_runs
            self._runs = set(self._runs_of_today())
        self._runs.add(folder)
        for run in self._runs:
            for part in (paths.STEPS, paths.PLANNING):
                self._look(run, f"{run}/{part}")
        return math.fsum(cost for run in self._runs for cost in self._costs.get(run, {}).values())

    def _runs_of_today(self) -> Iterator[str]:
        """Yield the runs in which something may have ended today: those that did, and those that have not."""
        began = datetime.fromisoformat(self._midnight).timestamp()
        for folder in all_folders(self._workspace.runs):
            try:
                if os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime >= began:
                    yield folder
            except OSError:
                yield folder

    def _look(self, run: str, folder: str) -> None:
        """Count the records of a folder that have not been counted; an unchanged folder has none."""
        try:
            changed = os.stat(folder).st_mtime_ns
            if self._listed.get(folder) == changed:
                return
            names = names_in(folder)
        except OSError:
            return
        costs = self._costs.setdefault(run, {})
        for name in names:
            path = f"{folder}/{name}"
            if path not in costs and _is_result(name):
                costs[path] = self._cost(path)
        if time.time_ns() - changed > TIMING.racy_longest * 1e9:
            self._listed[folder] = changed

    def _cost(self, path: str) -> float:
        """Return what a record says that it cost, if it ended today; a cost that nobody knows is not counted."""
        try:
            record = json.loads(read_whole(path))
            usage = (None if record.get("child") else record.get("usage")) or {}  # a run in a run counts itself
            cost = float(usage.get("cost_usd") or 0.0)
            return cost if cost > 0 and _ended_at(record, path) >= self._midnight else 0.0
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return 0.0


def _is_result(name: str) -> bool:
    step, call = paths.parse_step_file(name), paths.parse_call_file(name)
    return (step is not None and step.kind == "result") or (call is not None and call.kind in ("answer", "checks"))


def _ended_at(record: Mapping[str, Any], path: str) -> str:
    """Return when something ended: an attempt or a call as it says, checks of a goal by when they were written."""
    match record:
        case {"ended_at": str() as ended}:
            return ended
        case {"started_at": str() as began, "duration_s": int() | float() as took}:
            return later(began, took)
        case _:
            return format_moment(datetime.fromtimestamp(os.stat(path).st_mtime).astimezone())

"""A goal becomes a run: read it, hold it against the settings, make the run's folder, put the goal into it."""

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.goal_file import (
    APPROVE_ORDER,
    RUNBOOKS,
    ParsedGoal,
    examine_goal,
    loosening_problems,
    tighten,
    tighten_goal,
)
from agentfs.core.hashing import sha256_bytes
from agentfs.core.params import Fits
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Approve, Goal, Limits, ModelChoice, ModelRole, Models, Run
from agentfs.core.references import Params
from agentfs.core.tool_spec import Catalogue
from agentfs.engine.goal_source import (
    AboveChild,
    Flags,
    GoalSource,
    Hide,
    bounded_fits,
    find_misplaced_fields,
    values_given,
    with_runbooks,
    with_used_goal,
)
from agentfs.engine.isolation import find_repository, isolated_workdir, isolation_record
from agentfs.engine.means import allowed_tools, commands_of, default_agent, named_agents
from agentfs.errors import BadFile, NoModel, UserError
from agentfs.executor.attempt import render
from agentfs.ledger.git import LedgerError
from agentfs.ledger.worktrees import Repository
from agentfs.planner.surroundings import ContextRule, allowed_folders, folders_without_links
from agentfs.storage.clock import Clock
from agentfs.storage.dropped_goals import move_in
from agentfs.storage.files import publish_inside, sync_folder
from agentfs.storage.locks import locked
from agentfs.storage.safe_open import hold_inside, hold_named
from agentfs.storage.workspace import Workspace

_BEFORE_GOAL = (paths.RUN, paths.REQUEST, paths.USED)  # what an intake writes before the goal
_PARTS = (paths.PLANNING, paths.REVISIONS, paths.STEPS, paths.FILES)
_NO_MODEL = "this goal has no steps, and no model is configured to plan it"
_WAYS_OUT = (
    "write the steps yourself: a `## Steps` section, `### id` for each, below it a fenced command or `agent: NAME`",
    "configure a model: set OPENAI_API_KEY, or base_url under [planner] in agentfs.toml",
)


@dataclass(frozen=True, slots=True)
class JudgedGoal:
    """A goal that may become a run, and all that run.json is made of."""

    source: GoalSource
    parsed: ParsedGoal
    settings: Settings
    flags: Flags
    workdir: str  # as run.json has it
    isolated: Repository | None  # whose worktree it is to work in; None: it works in its folder
    planner: bool  # there is a model to plan with
    executor: bool  # and one to do steps with
    values: Mapping[str, JsonValue]  # of its parameters


def judge_goal(
    source: GoalSource,
    root: Path,
    settings: Settings,
    catalogue: Catalogue,
    *,
    planner: bool,
    flags: Flags | None = None,
    hide: Hide = lambda text: text,
    with_values: bool = True,
) -> JudgedGoal:
    """Return the goal, held against the workspace in `root`; raise BadFile with all that is wrong, or NoModel.

    The one judge of `check`, `run` and `watch`. It looks at folders, and makes none. `hide`: takes secrets out of a
    text. `with_values`: it is to run, so that its parameters need values.
    """
    source, flags, fits = with_used_goal(source, root), flags or Flags(), bounded_fits()
    catalogue = with_runbooks(catalogue, root, _in_runbooks(source, root), fits=fits)
    try:
        parsed, problems = examine_goal(source.content, source.filename, catalogue, fits=fits)
    except Rejected as rejected:
        raise BadFile(source.shown, rejected.problems, source.content) from None
    found = _find_loosened(parsed, settings, _loosest(source, parsed, settings))
    found += find_misplaced_fields(parsed.fields) if source.used_by or not source.schedule else []
    workdir = _workdir(parsed, root, settings, flags, found, source.above)
    found += _context_problems(parsed, source, root, settings, workdir)
    is_isolated = _is_to_be_isolated(parsed.fields, settings, workdir, source.above)
    isolated = find_repository(root, settings, workdir, found) if is_isolated else None
    placed = [one.at(*parsed.places(one.pointer, True)) for one in found]  # at the field's name
    problems = sorted([*problems, *placed], key=lambda one: (one.line, one.column))
    lacks_model = parsed.kind == "words" and not (planner or catalogue.model)
    if lacks_model and not problems:
        raise _no_model(source)
    if problems:
        is_near = any(problem.pointer.startswith("/steps") for problem in problems)
        problems += [_no_model(source).problem] if lacks_model and not is_near else []
        raise BadFile(source.shown, problems, source.content)
    values = _values(parsed, source, settings, catalogue, flags, hide, fits) if with_values or source.used_by else {}
    if source.used_by:
        parsed = replace(parsed, fields=tighten_goal(parsed.fields, source.used_by.request.fields))
    return JudgedGoal(
        source, parsed.filled(values), settings, flags, workdir, isolated, planner, catalogue.model, values
    )


def _in_runbooks(source: GoalSource, root: Path) -> str | None:
    """Return the goal of runbooks/ that this is, if it is one: a step of it that runs it would run itself."""
    if source.used_by is not None:
        return source.used_by.request.uses
    path = Path(source.origin)
    if not path.is_absolute() or not path.is_relative_to(root / RUNBOOKS):
        return None
    return str(path.relative_to(root))


def _values(
    parsed: ParsedGoal,
    source: GoalSource,
    settings: Settings,
    catalogue: Catalogue,
    flags: Flags,
    hide: Hide,
    fits: Fits,
) -> dict[str, JsonValue]:
    """Return the value of each parameter; raise BadFile with all that is wrong with them, or with the request."""
    given = values_given(parsed, source, flags.params, hide, fits)
    found = list(given.problems)
    if used_by := source.used_by:
        approve = parsed.fields.approve or _loosest(source, parsed, settings)
        loose = loosening_problems(used_by.request.fields, _limits(parsed.fields.limits, settings).given(), approve)
        found += [one.at(*used_by.request.places(one.pointer, True)) for one in loose]
    if found:
        shown, content = (used_by.shown, used_by.content) if used_by else (source.shown, source.content)
        found.sort(key=lambda one: (one.line, one.column))
        raise BadFile(shown, found, content, given.advice)
    known = replace(catalogue, params=Params(tuple(given.values), given.values))
    if paths_wrong := examine_goal(source.content, source.filename, known)[1] if given.values else []:
        raise BadFile(source.shown, paths_wrong, source.content)
    return given.values


def _no_model(source: GoalSource) -> NoModel:
    lines = [f"{source.shown}: {_NO_MODEL}. Two ways out:", *(f"  - {way}" for way in _WAYS_OUT)]
    return NoModel("\n".join(lines), Problem(_NO_MODEL, "; or ".join(_WAYS_OUT)))


def _default_approve(source: GoalSource, parsed: ParsedGoal, settings: Settings) -> Approve:
    """Of a dropped goal in words the first plan is looked at; a person's own steps are approved by being there."""
    watched = source.dropped or source.due
    return settings.approve or ("plan" if watched and parsed.kind == "words" else "never")


def _loosest(source: GoalSource, parsed: ParsedGoal, settings: Settings) -> Approve:
    """Return the loosest approval that a goal may ask for; a schedule is a person's own, who may ask for none."""
    return "never" if source.schedule else _default_approve(source, parsed, settings)


def _find_loosened(parsed: ParsedGoal, settings: Settings, approve: Approve) -> list[Problem]:
    """Return where a goal asks for more than the settings give."""
    fields = parsed.fields
    found = list(loosening_problems(fields, settings.limits.model_dump(), approve))
    for place, tool in enumerate(fields.tools or ()):
        if tool not in settings.tools.allow:
            found.append(replace(tighten("tools", f"{tool!r} is not in [tools] allow"), pointer=f"/tools/{place}"))
    return found


@contextmanager
def taking(
    goal: JudgedGoal, workspace: Workspace, clock: Clock | None = None, run: str | None = None
) -> Iterator[Path]:
    """Make the run's folder and put the goal into it, which is the commit point; the block has the folder, locked.

    No other process can drive a new run before the one that made it: the lock is not let go of in between. `run`: the
    name that it has already; FileExistsError if another has it.
    """
    clock, source = clock or Clock(), goal.source
    day, _, name = (run or f"{clock.day()}/{paths.run_name(_name_of(source, goal.parsed))}").partition("/")
    with new_folder(workspace, day, name, isolated=goal.isolated, exactly=run is not None) as new:
        try:
            record = _run_record(goal, new.run, clock)
        except LedgerError as error:
            where = goal.isolated.top if goal.isolated else workspace.root
            raise UserError(f"isolate: the repository of {where} cannot be used: {error}") from None
        publish_inside(new.held, paths.RUN, render(record))
        files = {paths.goal_file(source.filename): source.content}
        if source.used_by is not None:
            files = {paths.REQUEST: source.used_by.content, **files}
        if source.dropped is None:
            for name, content in files.items():
                publish_inside(new.held, name, content)
        else:
            move_in(source.dropped, new.held, new.run, files)
        if not new.is_in_its_place():
            raise OSError(errno.ESTALE, "another folder has taken the run's place", str(new.path))
        new.let_go()
        yield new.path


def _name_of(source: GoalSource, parsed: ParsedGoal) -> str:
    return parsed.fields.name or source.name or parsed.title


def _workdir(
    parsed: ParsedGoal,
    root: Path,
    settings: Settings,
    flags: Flags,
    problems: list[Problem],
    above: AboveChild | None = None,
) -> str:
    """Return the folder to work in, as run.json has it; add what is wrong with the one that the goal names."""
    if flags.workdir is not None:
        return _spell(_typed_workdir(flags.workdir, root), root)
    if (asked := parsed.fields.workdir) is None:
        return paths.FILES
    try:
        wanted = (root / asked).resolve()
        is_there = wanted.is_dir()
    except (ValueError, OSError, RuntimeError) as error:
        problems.append(Problem(f"workdir: {asked!r} is no folder: {error}", "name one", "/workdir"))
        return paths.FILES
    allowed = allowed_folders(root, settings.goals.workdirs)
    within = [*folders_without_links(allowed), *([above.workdir.resolve()] if above else ())]
    if not any(map(wanted.is_relative_to, within)):
        problems.append(_not_allowed(asked, allowed))
    elif not is_there:
        problems.append(Problem(f"workdir: there is no folder {asked!r} in {root}", "make it first", "/workdir"))
    return _spell(wanted, root)


def _spell(workdir: Path, root: Path) -> str:
    """Return a folder as run.json can have it, which is UTF-8: else relative to the run's folder, if that will do."""
    for path in (str(workdir), os.path.relpath(workdir, root / "runs" / "day" / "run")):
        if path.encode("utf-8", "replace").decode() == path:
            return path
    raise UserError(f"{workdir}: its name is not UTF-8, so no record can hold it (rename it)")


def _typed_workdir(folder: Path, root: Path) -> Path:
    """Return the folder that a person typed; one of the workspace's must not be a link out of it that a step made."""
    if not folder.is_dir():
        raise UserError(f"--workdir {folder}: there is no such folder (make it first)")
    real, spelt = folder.resolve(), Path(os.path.normpath(folder))
    if spelt.is_relative_to(root) and not real.is_relative_to(root):
        raise UserError(
            f"--workdir {folder}: a link leads out of the workspace, to {real} (name that, if it is meant)"
        )
    return real


def _context_problems(
    parsed: ParsedGoal, source: GoalSource, root: Path, settings: Settings, workdir: str
) -> list[Problem]:
    """Return which files a goal's context may not name. They are looked at again when they are read."""
    if (given := parsed.fields.context) is None:
        return []
    items, is_list = ((given,), False) if isinstance(given, str) else (given, True)
    place = None if workdir == paths.FILES else (root / "runs" / "day" / "run" / workdir).resolve()
    rule = ContextRule.of(root, place, _context_from(source, settings))
    return [
        Problem(f"context: {item!r} may not be read: {why}", _CONTEXT, f"/context/{n}" if is_list else "/context")
        for n, item in enumerate(items)
        if (why := rule.why_not(item))
    ]


_CONTEXT = "name a file below a folder of workdirs under [goals] in agentfs.toml, or write the text into the goal"


def _context_from(source: GoalSource, settings: Settings) -> tuple[str, ...] | None:
    """Return the folders whose files a goal's context may name; None: it is a person's own, who named them."""
    return settings.goals.workdirs if source.dropped or source.is_clients else None


def _not_allowed(wanted: str, allowed: Mapping[str, Path]) -> Problem:
    if links := [name for name, folder in allowed.items() if folder != folder.resolve()]:
        message = f"workdir: {links[0]!r} of [goals] workdirs is a link, to {allowed[links[0]].resolve()}"
        return Problem(message, "put the folder back, or name the other in agentfs.toml if it is meant", "/workdir")
    message = f"workdir: {wanted!r} lies outside the folders a goal may work in ({', '.join(allowed) or 'none'})"
    return Problem(message, "add its folder to workdirs under [goals] in agentfs.toml, or use --workdir", "/workdir")


@dataclass(frozen=True, slots=True)
class NewFolder:
    """The folder of a run that is being made: locked, and held, so that no link takes its place."""

    path: Path
    held: int
    let_go: Callable[[], None]  # of what is held; the lock stays

    @property
    def run(self) -> str:
        return paths.run_id(self.path)

    def is_in_its_place(self) -> bool:
        """Whether its path still leads to the folder that is held."""
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self.held))
        except FileNotFoundError:
            return False


@contextmanager
def new_folder(
    workspace: Workspace, day: str, name: str, *, isolated: Repository | None = None, exactly: bool = False
) -> Iterator[NewFolder]:
    """Yield the first free folder of that name, locked; one that a dead intake left is free.

    `isolated`: a name whose branch this repository has already, from a run that is gone, is not free.
    `exactly`: that one or none: FileExistsError if it is not free.
    """
    parent = workspace.runs / day
    _make_day(parent)
    with ExitStack() as held, ExitStack() as lock:
        held_day = held.enter_context(hold_inside(day, held.enter_context(hold_named(workspace.runs))))
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            if exactly and number > 1:
                raise FileExistsError(errno.EEXIST, "another run has that name", str(parent / name))
            if isolated and not exactly and isolated.tip(paths.branch_of(f"{day}/{folder.name}")):
                continue
            if (descriptor := _taken_if_free(folder, held_day, lock)) is None:
                continue
            held.callback(os.close, descriptor)
            new = NewFolder(folder, descriptor, held.close)
            if new.is_in_its_place():
                break
            lock.close()  # of whatever that path leads to by now
        _begin(new.held)
        sync_folder(held_day)  # the folder itself follows with its first file
        yield new


def _taken_if_free(folder: Path, day: int, lock: ExitStack) -> int | None:
    """Return a folder, open, whose lock is held now; it is made if need be. None if it is not free."""
    with ExitStack() as opened, ExitStack() as locks:
        try:
            held = opened.enter_context(hold_inside(folder.name, day, make=True))
            if not _is_free(held) or not locks.enter_context(locked(folder)) or not _is_free(held):
                return None
        except (NotADirectoryError, FileNotFoundError):  # it is no folder, or no longer
            return None
        lock.push(locks.pop_all())
        return os.dup(held)


def _begin(folder: int) -> None:
    """Make what every run has; what a dead intake wrote there is written again."""
    for name in _BEFORE_GOAL:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    for part in _PARTS:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)


def _make_day(folder: Path) -> None:
    """Make the folder of a day, if it is the day's first run."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    sync_folder(folder.parent)


def _is_free(folder: int) -> bool:
    """Whether a held folder never was a run: it holds what an intake writes before the goal, and nothing else.

    A person who works with git in `runs/` may have left anything of a run there, or nothing but logs and files,
    which the ledger does not hold: nothing is taken from them.
    """
    for name in os.listdir(folder):
        unfinished = name in _BEFORE_GOAL or (name.startswith(".") and name.endswith(".tmp"))
        if not unfinished and not (name in _PARTS and _is_empty(name, folder)):
            return False
    return True


def _is_empty(name: str, folder: int) -> bool:
    try:
        with hold_inside(name, folder) as part:
            return not os.listdir(part)
    except NotADirectoryError:
        return False


def _run_record(goal: JudgedGoal, run: str, clock: Clock) -> Run:
    source, parsed, settings, flags = goal.source, goal.parsed, goal.settings, goal.flags
    fields = parsed.fields
    has: dict[ModelRole, bool] = {"planner": goal.planner, "executor": goal.executor}
    roles = [role for role, there_is_one in has.items() if there_is_one]
    isolation = None
    if goal.isolated:
        isolation = isolation_record(goal.isolated, run, clock, with_uncommitted=flags.with_uncommitted)
    return Run(
        run=run,
        mode=flags.mode or fields.mode or settings.mode,
        approve=_approve(goal),
        replan=settings.replan,
        split_over=settings.split_over,
        max_turns=settings.executor.max_turns,
        workdir=isolated_workdir(goal.isolated, goal.workdir) if goal.isolated else goal.workdir,
        isolation=isolation,
        limits=_left(_limits(fields.limits, settings), source.above),
        tools=allowed_tools(settings.tools, fields.tools),
        network=settings.tools.network,
        sandbox=settings.tools.sandbox,
        read=settings.tools.read,
        env=settings.tools.env,
        hosts=settings.tools.hosts,
        models=Models(
            planner=_model(flags.planner, fields.planner, settings.planner.model) if goal.planner else None,
            executor=_model(flags.executor, fields.executor, settings.executor.model) if goal.executor else None,
            named=settings.executor.models or None,
            planner_temperature=fields.planner.temperature if fields.planner else settings.planner.temperature,
            executor_temperature=fields.executor.temperature if fields.executor else settings.executor.temperature,
            commands=commands_of(settings, roles),
        ),
        agent=default_agent(settings),
        agents=named_agents(settings) or None,
        repair=settings.executor.repair,
        place=settings.executor.place,
        proof=settings.proof,
        source=source.origin.encode("utf-8", "replace").decode(),
        goal_sha256=sha256_bytes(source.content),
        context_from=_context_from(source, settings),
        params=dict(goal.values) or None,
        uses=source.used_by.request.uses if source.used_by else None,
        request_sha256=sha256_bytes(source.used_by.content) if source.used_by else None,
        schedule=source.schedule if source.due else None,
        due=source.due,
        parent=source.above.parent if source.above else None,
        started_at=clock.stamp(),
    )


def _approve(goal: JudgedGoal) -> Approve:
    """Return when a person must approve plans: of a run in a run no later than of the one above."""
    own = goal.flags.approve or goal.parsed.fields.approve
    own = own or _default_approve(goal.source, goal.parsed, goal.settings)
    above = goal.source.above
    return max(own, above.approve, key=APPROVE_ORDER.index) if above else own


def _left(limits: Limits, above: AboveChild | None) -> Limits:
    """Return the limits of a run in a run: its own, as far as what is left above reaches."""
    if above is None:
        return limits
    given = limits.given()
    left = {name: min(value, given.get(name, value)) for name, value in above.limits.given().items()}
    return limits.model_copy(update=left)


def _is_to_be_isolated(fields: Goal, settings: Settings, workdir: str, above: AboveChild | None) -> bool:
    """Whether a run has a worktree: one in an isolated run has, too, unless it works in a folder of its own."""
    asked = (fields.isolate or settings.isolate) is not None
    return asked or (above is not None and above.isolated and workdir != paths.FILES)


def _model(typed: str | None, own: ModelChoice | None, default: str) -> str:
    return typed or (own and own.model) or default


def _limits(own: Limits | None, settings: Settings) -> Limits:
    given = settings.limits.model_dump(exclude={"day_usd"})  # that one holds all runs, as it is set today
    asked = {name: value for name, value in (own or Limits()) if value is not None}
    return Limits(**{**given, **asked})

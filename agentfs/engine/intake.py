"""A goal becomes a run: read it, hold it against the settings, make the run's folder, put the goal into it."""

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings, allowed_tools
from agentfs.core.goal_file import MAX_BYTES, ParsedGoal, examine_goal
from agentfs.core.hashing import sha256_bytes
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Approve, Limits, Mode, ModelChoice, Models, Run
from agentfs.core.tool_spec import Catalogue
from agentfs.errors import BadFile, NoModel, UserError
from agentfs.executor.attempt import render
from agentfs.planner.goal_context import ContextRule, allowed_folders, folders_without_links
from agentfs.storage.clock import Clock
from agentfs.storage.dropped_goals import move_in
from agentfs.storage.files import publish_inside, sync_folder
from agentfs.storage.locks import locked
from agentfs.storage.safe_open import hold_inside, hold_named
from agentfs.storage.workspace import Workspace

_APPROVE_ORDER: tuple[Approve, ...] = ("never", "plan", "always")

_PARTS = (paths.PLANNING, paths.REVISIONS, paths.STEPS, paths.FILES)
_NO_MODEL = "this goal has no steps, and no model is configured to plan it"
_WAYS_OUT = (
    "write the steps yourself: a `## Steps` section with one `### id` heading and one fenced command per step",
    "configure a model: set OPENAI_API_KEY, or base_url under [planner] in agentfs.toml",
)


@dataclass(frozen=True, slots=True)
class Flags:
    """What was typed on the command line; it may loosen what a goal file may only tighten."""

    mode: Mode | None = None
    approve: Approve | None = None
    workdir: Path | None = None
    planner: str | None = None
    executor: str | None = None


@dataclass(frozen=True, slots=True)
class GoalSource:
    """A goal before it is a run."""

    content: bytes
    filename: str  # its extension says how to read it
    shown: str  # what messages call it
    origin: str  # what run.json says it came from
    name: str | None = None  # what the run is called, if neither goal nor file says
    dropped: Path | None = None  # the file itself, if it moves into the run instead of being copied


@dataclass(frozen=True, slots=True)
class JudgedGoal:
    """A goal that may become a run, and all that run.json is made of."""

    source: GoalSource
    parsed: ParsedGoal
    settings: Settings
    flags: Flags
    workdir: str  # as run.json has it
    planner: bool  # there is a model to plan with
    executor: bool  # and one to do steps with


def judge_goal(
    source: GoalSource,
    root: Path,
    settings: Settings,
    catalogue: Catalogue,
    *,
    planner: bool,
    flags: Flags | None = None,
) -> JudgedGoal:
    """Return the goal, held against the workspace in `root`; raise BadFile with all that is wrong, or NoModel.

    The one judge of `check`, `run` and `watch`. It looks at folders, and makes none.
    """
    try:
        parsed, problems = examine_goal(source.content, source.filename, catalogue)
    except Rejected as rejected:
        raise BadFile(source.shown, rejected.problems, source.content) from None
    flags = flags or Flags()
    found = _loosened(parsed, settings, _default_approve(source, parsed, settings))
    workdir = _workdir(parsed, root, settings, flags, found)
    found += _context_problems(parsed, source, root, settings, workdir)
    problems = sorted([*problems, *_placed(parsed, found)], key=lambda one: (one.line, one.column))
    lacks_model = parsed.kind == "words" and not (planner or catalogue.model)
    if lacks_model and not problems:
        raise _no_model(source)
    if problems:
        is_near = any(problem.pointer.startswith("/steps") for problem in problems)
        problems += [_no_model(source).problem] if lacks_model and not is_near else []
        raise BadFile(source.shown, problems, source.content)
    return JudgedGoal(source, parsed, settings, flags, workdir, planner, catalogue.model)


def _no_model(source: GoalSource) -> NoModel:
    lines = [f"{source.shown}: {_NO_MODEL}. Two ways out:", *(f"  - {way}" for way in _WAYS_OUT)]
    return NoModel("\n".join(lines), Problem(_NO_MODEL, "; or ".join(_WAYS_OUT)))


def _placed(parsed: ParsedGoal, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems of a goal's fields, each at the field's name."""
    return [problem.at(*parsed.places(problem.pointer, True)) for problem in problems]


def _default_approve(source: GoalSource, parsed: ParsedGoal, settings: Settings) -> Approve:
    """Of a dropped goal in words the first plan is looked at; a person's own steps are approved by being there."""
    return settings.approve or ("plan" if source.dropped and parsed.kind == "words" else "never")


def _loosened(parsed: ParsedGoal, settings: Settings, approve: Approve) -> list[Problem]:
    """Return where a goal asks for more than the settings give."""
    fields, found = parsed.fields, []
    if fields.approve is not None and _APPROVE_ORDER.index(fields.approve) < _APPROVE_ORDER.index(approve):
        found.append(_tighten("approve", f"{fields.approve!r} is looser than {approve!r}"))
    for name, asked in fields.limits or Limits():
        given = getattr(settings.limits, name)
        if asked is not None and asked > given:
            found.append(_tighten(f"limits.{name}", f"{asked:g} is more than {given:g}"))
    for place, tool in enumerate(fields.tools or ()):
        if tool not in settings.tools.allow:
            found.append(replace(_tighten("tools", f"{tool!r} is not in [tools] allow"), pointer=f"/tools/{place}"))
    return found


def _tighten(field: str, words: str) -> Problem:
    fix = "a goal may only tighten the settings; change agentfs.toml, or use a flag"
    return Problem(f"{field}: {words}", fix, f"/{field.replace('.', '/')}")


@contextmanager
def taking(goal: JudgedGoal, workspace: Workspace) -> Iterator[Path]:
    """Make the run's folder and put the goal into it, which is the commit point; the block has the folder, locked.

    No other process can drive a new run before the one that made it: the lock is not let go of in between.
    """
    clock, source = Clock(), goal.source
    with new_folder(workspace, clock.day(), paths.run_name(_called(source, goal.parsed))) as new:
        run = _run_record(goal, new.run, clock)
        publish_inside(new.held, paths.RUN, render(run))
        name = paths.goal_file(source.filename)
        if source.dropped is None:
            publish_inside(new.held, name, source.content)
        else:
            move_in(source.dropped, new.held, new.run, name, source.content)
        if not new.is_in_its_place():
            raise OSError(errno.ESTALE, "another folder has taken the run's place", str(new.path))
        new.let_go()
        yield new.path


def _called(source: GoalSource, parsed: ParsedGoal) -> str:
    return parsed.fields.name or source.name or parsed.title


def _workdir(parsed: ParsedGoal, root: Path, settings: Settings, flags: Flags, problems: list[Problem]) -> str:
    """Return the folder to work in, as run.json has it; add what is wrong with the one that the goal names."""
    if flags.workdir is not None:
        return _written(_typed_workdir(flags.workdir, root), root)
    if (asked := parsed.fields.workdir) is None:
        return paths.FILES
    try:
        wanted = (root / asked).resolve()
        is_there = wanted.is_dir()
    except (ValueError, OSError, RuntimeError) as error:
        problems.append(Problem(f"workdir: {asked!r} is no folder: {error}", "name one", "/workdir"))
        return paths.FILES
    allowed = allowed_folders(root, settings.goals.workdirs)
    if not any(map(wanted.is_relative_to, folders_without_links(allowed))):
        problems.append(_not_allowed(asked, allowed))
    elif not is_there:
        problems.append(Problem(f"workdir: there is no folder {asked!r} in {root}", "make it first", "/workdir"))
    return _written(wanted, root)


def _written(workdir: Path, root: Path) -> str:
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
    given = parsed.fields.context
    items, is_list = ((given,), False) if isinstance(given, str) else (given or (), True)
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
    return settings.goals.workdirs if source.dropped else None


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
        return f"{self.path.parent.name}/{self.path.name}"

    def is_in_its_place(self) -> bool:
        """Whether its path still leads to the folder that is held."""
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self.held))
        except FileNotFoundError:
            return False


@contextmanager
def new_folder(workspace: Workspace, day: str, name: str) -> Iterator[NewFolder]:
    """Yield the first free folder of that name, locked; one that a dead intake left is free."""
    parent = workspace.runs / day
    _make_day(parent)
    with ExitStack() as held, ExitStack() as lock:
        held_day = held.enter_context(hold_inside(day, held.enter_context(hold_named(workspace.runs))))
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
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
    with suppress(FileNotFoundError):
        os.unlink(paths.RUN, dir_fd=folder)
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
        unfinished = name == paths.RUN or (name.startswith(".") and name.endswith(".tmp"))
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
    return Run(
        run=run,
        mode=flags.mode or fields.mode or settings.mode,
        approve=flags.approve or fields.approve or _default_approve(source, parsed, settings),
        replan=settings.replan,
        split_over=settings.split_over,
        workdir=goal.workdir,
        limits=_limits(fields.limits, settings),
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
        ),
        repair=settings.executor.repair,
        proof=settings.proof,
        source=source.origin.encode("utf-8", "replace").decode(),
        goal_sha256=sha256_bytes(source.content),
        context_from=_context_from(source, settings),
        started_at=clock.stamp(),
    )


def _model(typed: str | None, own: ModelChoice | None, default: str) -> str:
    return typed or (own and own.model) or default


def _limits(own: Limits | None, settings: Settings) -> Limits:
    given = settings.limits.model_dump()
    asked = {name: value for name, value in (own or Limits()) if value is not None}
    return Limits(**{**given, **asked})


def goal_from(text: str, cwd: Path, stdin: Callable[[], bytes]) -> GoalSource:
    """Return the goal that `run GOAL` names: a file, `-` for standard input, or the words themselves."""
    if text == "-":
        return GoalSource(stdin(), "goal.md", "standard input", "stdin")
    path = cwd / text
    looks_like_file = len(text) < 4096 and "\n" not in text and (path.exists() or _is_one_path(text))
    if not looks_like_file:
        return GoalSource(os.fsencode(text), "goal.md", "the goal", "text")
    if path.is_dir():
        raise UserError(f"{text} is a folder, not a goal file")
    if path.suffix.lower() not in paths.GOAL_SUFFIXES:
        raise UserError(f"{text}: a goal file ends in {', '.join(paths.GOAL_SUFFIXES)}")
    try:
        with path.open("rb") as file:  # a person's own: what they name may be a link or a pipe
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{text}: {error.strerror}") from None
    return goal_in(path, content, text)


def goal_in(path: Path, content: bytes, shown: str) -> GoalSource:
    """Return the goal that a file holds, for `run` and `check`."""
    return GoalSource(content, path.name, shown, str(path.resolve()), path.stem)


def _is_one_path(text: str) -> bool:
    """Whether a text can only be meant as a file: a goal in words may well end with the name of one."""
    return not any(map(str.isspace, text)) and (text.endswith(paths.GOAL_SUFFIXES) or os.sep in text)

"""A goal becomes a run: read it, hold it against the settings, make the run's folder, put the goal into it."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agentfs.clock import Clock
from agentfs.core import names
from agentfs.core.catalogue import Catalogue
from agentfs.core.config import Settings, allowed_tools
from agentfs.core.goals import ParsedGoal, examine_goal
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Approve, Limits, Mode, Models, Run
from agentfs.disk import publish, sync_folder
from agentfs.errors import BadFile, NoModel, UserError
from agentfs.executor.attempt import render
from agentfs.locks import locked
from agentfs.moving import move_in
from agentfs.tools.safe_open import resolve_links_of_others
from agentfs.workspace import Workspace

_APPROVE_ORDER: tuple[Approve, ...] = ("never", "plan", "always")

_PARTS = (names.PLANNING, names.REVISIONS, names.STEPS, names.FILES)
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


def judge_goal(
    source: GoalSource,
    root: Path,
    settings: Settings,
    catalogue: Catalogue,
    *,
    model: bool,
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
    problems = sorted([*problems, *_placed(parsed, found)], key=lambda one: (one.line, one.column))
    lacks_model = parsed.kind == "words" and not model
    if lacks_model and not problems:
        raise _no_model(source)
    if problems:
        is_near = any(problem.pointer.startswith("/steps") for problem in problems)
        problems += [_no_model(source).problem] if lacks_model and not is_near else []
        raise BadFile(source.shown, problems, source.content)
    return JudgedGoal(source, parsed, settings, flags, workdir)


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
    mend = "a goal may only tighten the settings; change agentfs.toml, or use a flag"
    return Problem(f"{field}: {words}", mend, f"/{field.replace('.', '/')}")


@contextmanager
def taking(goal: JudgedGoal, workspace: Workspace) -> Iterator[Path]:
    """Make the run's folder and put the goal into it, which is the commit point; the block has the folder, locked.

    Nobody else can drive a new run before whoever made it: the lock is not let go of in between.
    """
    clock, source = Clock(), goal.source
    with new_folder(workspace, clock.day(), names.run_name(_called(source, goal.parsed))) as folder:
        run = _run_record(goal, f"{folder.parent.name}/{folder.name}", clock)
        publish(folder / names.RUN, render(run), durable=True)
        suffix = Path(source.filename).suffix.lower()
        path = folder / f"goal{suffix if suffix in names.GOAL_SUFFIXES else '.md'}"
        if source.dropped is None:
            publish(path, source.content, durable=True)
        else:
            move_in(source.dropped, path, source.content)
        yield folder


def _called(source: GoalSource, parsed: ParsedGoal) -> str:
    return parsed.fields.name or source.name or parsed.title


def _workdir(parsed: ParsedGoal, root: Path, settings: Settings, flags: Flags, problems: list[Problem]) -> str:
    """Return the folder to work in, as run.json has it; add what is wrong with the one that the goal names."""
    if flags.workdir is not None:
        return _written(_typed_workdir(flags.workdir, root), root)
    if (asked := parsed.fields.workdir) is None:
        return names.FILES
    try:
        wanted = (root / asked).resolve()
        is_there = wanted.is_dir()
    except (ValueError, OSError, RuntimeError) as error:
        problems.append(Problem(f"workdir: {asked!r} is no folder: {error}", "name one", "/workdir"))
        return names.FILES
    allowed = {name: _spelt(root, name) for name in settings.goals.workdirs}
    if not any(wanted.is_relative_to(folder) for folder in allowed.values() if folder == folder.resolve()):
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


def _spelt(root: Path, name: str) -> Path:
    """Return a folder of [goals] workdirs; a link in it that a step may have made is not resolved."""
    return Path(resolve_links_of_others(os.path.join(root.resolve(), name)))


def _not_allowed(wanted: str, allowed: Mapping[str, Path]) -> Problem:
    if links := [name for name, folder in allowed.items() if folder != folder.resolve()]:
        message = f"workdir: {links[0]!r} of [goals] workdirs is a link, to {allowed[links[0]].resolve()}"
        return Problem(message, "put the folder back, or name the other in agentfs.toml if it is meant", "/workdir")
    message = f"workdir: {wanted!r} lies outside the folders a goal may work in ({', '.join(allowed) or 'none'})"
    return Problem(message, "add its folder to workdirs under [goals] in agentfs.toml, or use --workdir", "/workdir")


@contextmanager
def new_folder(workspace: Workspace, day: str, name: str) -> Iterator[Path]:
    """Yield the first free folder of that name, locked; one that a dead intake left is free."""
    parent = workspace.runs / day
    _make_day(parent)
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            if not _is_free(folder):
                continue
        with locked(folder) as mine:
            if not mine or not _is_free(folder):
                continue
            (folder / names.RUN).unlink(missing_ok=True)
            for part in _PARTS:
                (folder / part).mkdir(exist_ok=True)
            sync_folder(parent)  # the folder itself follows with its first file
            yield folder
            return


def _make_day(folder: Path) -> None:
    """Make the folder of a day, if it is the day's first run."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    sync_folder(folder.parent)


def _is_free(folder: Path) -> bool:
    """Whether a folder never was a run: it holds what an intake writes before the goal, and nothing else.

    A person who works with git in `runs/` may have left anything of a run there, or nothing but logs and files,
    which the ledger does not hold: nothing is taken from them.
    """
    for path in folder.iterdir():
        unfinished = path.name == names.RUN or (path.name.startswith(".") and path.name.endswith(".tmp"))
        empty = path.name in _PARTS and path.is_dir() and not any(path.iterdir())
        if not unfinished and not empty:
            return False
    return True


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
            planner=flags.planner or (fields.planner and fields.planner.model) or settings.planner.model,
            executor=flags.executor or (fields.executor and fields.executor.model) or settings.executor.model,
            named=settings.executor.models or None,
            planner_temperature=fields.planner.temperature if fields.planner else settings.planner.temperature,
            executor_temperature=fields.executor.temperature if fields.executor else settings.executor.temperature,
        ),
        source=source.origin.encode("utf-8", "replace").decode(),
        started_at=clock.stamp(),
    )


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
    if path.suffix.lower() not in names.GOAL_SUFFIXES:
        raise UserError(f"{text}: a goal file ends in {', '.join(names.GOAL_SUFFIXES)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{text}: {error.strerror}") from None
    return goal_in(path, content, text)


def goal_in(path: Path, content: bytes, shown: str) -> GoalSource:
    """Return the goal that a file holds, for `run` and `check`."""
    return GoalSource(content, path.name, shown, str(path.resolve()), path.stem)


def _is_one_path(text: str) -> bool:
    """Whether a text can only be meant as a file: a goal in words may well end with the name of one."""
    return not any(map(str.isspace, text)) and (text.endswith(names.GOAL_SUFFIXES) or os.sep in text)

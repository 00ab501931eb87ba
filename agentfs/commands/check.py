"""`check`: validate goals as `run` and `watch` do, plans as their runs do, settings. Writes nothing."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentfs.commands.common import (
    colours,
    environment,
    here,
    print_json,
    print_lines,
    problem_lines_for,
    say,
    start_folder,
)
from agentfs.commands.editing import problems_of
from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.documents import read_json, read_toml
from agentfs.core.goal_file import RUNBOOKS
from agentfs.core.plan_check import check_plan, check_settings
from agentfs.core.plan_diff import changed_lines, effect_lines
from agentfs.core.problems import Problem, Rejected
from agentfs.core.schedule import FOLDER
from agentfs.core.text import inert
from agentfs.core.tool_spec import Catalogue
from agentfs.daemon.schedules import read_file
from agentfs.engine.goal_source import GoalSource, goal_in
from agentfs.engine.intake import JudgedGoal, judge_goal
from agentfs.engine.means import allowing_own, catalogue_of, has_model, judge_for
from agentfs.errors import BadFile, NoModel, UserError
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import MOST_SOURCE, read_regular
from agentfs.storage.workspace import Workspace, default_settings, find_workspace, load_settings
from agentfs.tools.registry import known_tools
from agentfs.tools.secrets import mask_for
from agentfs.ui.reading import read_run
from agentfs.ui.run_history import plan_consequences

WRONG, LACKS_MODEL = 2, 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one file."""

    shown: str
    problems: Sequence[Problem] = ()
    source: bytes = b""
    note: str = ""  # on a file that is good
    code: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What goals and plans are checked against: the workspace, or the one that `run` would make here."""

    root: Path
    settings: Settings
    catalogue: Catalogue
    planner: bool  # there is a model to plan with
    trouble: Verdict | None = None  # the settings themselves are wrong, and these are the defaults


def check(arguments: Namespace) -> int:
    """`agentfs check FILE…`: every problem of every file; exit 2 if there is one, 4 if only a model is missing."""
    if arguments.against:
        return check_against(arguments)
    start = start_folder(arguments)
    around = surroundings(start)
    found = [verdict(start / name, name, around) for name in arguments.files]
    if around.trouble and all(Path(name).suffix != ".toml" for name in arguments.files):
        found.insert(0, around.trouble)
    if arguments.json:
        print_json([as_json(one.shown, problem) for one in found for problem in one.problems])
    else:
        _report(found)
    codes = {one.code for one in found}
    return WRONG if WRONG in codes else max(codes)


def _report(found: Sequence[Verdict]) -> None:
    for one in found:
        print_lines(problem_lines_for(sys.stdout, one.shown, one.problems, one.source))
        if not one.problems:
            say(f"{one.shown}: ok{one.note}")


def as_json(name: str, problem: Problem) -> dict[str, object]:
    return {
        "file": name,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "fix": problem.fix,
    }


def surroundings(start: Path) -> Surroundings:
    """Return what goals in a folder are checked against."""
    workspace, trouble = find_workspace(start), None
    settings = default_settings(environment())
    root = workspace.root if workspace else start
    if workspace:
        try:
            settings = load_settings(workspace.settings, environment())
        except BadFile as error:
            trouble = Verdict(error.file, error.problems, error.source, code=WRONG)
    known = known_tools(root)
    settings = allowing_own(settings, known)
    planner = has_model(settings.planner, environment())
    return Surroundings(root, settings, catalogue_of(settings, environment(), known), planner, trouble)


# ── one file ──────────────────────────────────────────────────────────────────────────────────────────────


def verdict(path: Path, shown: str, around: Surroundings) -> Verdict:
    """Return every problem of one file."""
    source = b""
    try:
        if (folder := path.absolute().parent) in (around.root / "goals", around.root / "goals" / "rejected"):
            return _judge_dropped(path, shown, around)
        source = read_regular(path, MOST_SOURCE, links=True)
        if folder == around.root / FOLDER:
            return _judge_scheduled(path, shown, source, around)
        if path.suffix == ".toml":
            check_settings(read_toml(source))
        elif (folder / paths.RUN).is_file():
            _judge_for_its_run(path, source, around)
        elif paths.is_plan_name(path.name):
            check_plan(read_json(source), around.catalogue)
        else:
            return _goal(path, shown, source, around)
    except Rejected as rejected:
        return Verdict(shown, rejected.problems, source, code=WRONG)
    except BadFile as error:
        used = error.file if error.file.startswith(f"{RUNBOOKS}/") else shown  # the goal that this one uses
        return Verdict(used, error.problems, error.source, code=WRONG)
    except NoModel as error:
        return Verdict(shown, [error.problem], source, code=LACKS_MODEL)
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", "check the path")
        return Verdict(shown, [problem], code=WRONG)
    return Verdict(shown)


def _judge_dropped(path: Path, shown: str, around: Surroundings) -> Verdict:
    """Check a file of goals/ as `watch` does."""
    from agentfs.daemon.inbox import dropped_goal
    from agentfs.storage.dropped_goals import StillChanging

    _must_be_goal_name(path)
    path.lstat()
    try:
        judge(dropped_goal(path, shown), around)
    except StillChanging:
        raise Rejected([Problem("it is still being written", "check it again when it is complete")]) from None
    return Verdict(shown)


def _judge_scheduled(path: Path, shown: str, source: bytes, around: Surroundings) -> Verdict:
    """Check a file of schedules/ as `watch` does: its times, and the goal."""
    _must_be_goal_name(path)
    found = read_file(around.root, path.name).problems
    try:
        judge(goal_in(path, source, shown), around)
    except BadFile as error:
        if error.file != shown:  # a goal that it uses
            raise
        found = tuple({(one.line, one.column, one.message): one for one in (*found, *error.problems)}.values())
    return Verdict(shown, sorted(found, key=lambda one: (one.line, one.column)), source, code=WRONG if found else 0)


def _goal(path: Path, shown: str, source: bytes, around: Surroundings) -> Verdict:
    """Check a goal as `run` does, and note it if `watch` would refuse it."""
    _must_be_goal_name(path)
    goal = judge(goal_in(path, source, shown), around, with_values=False)
    if takes := [name for name, one in goal.parsed.params.items() if one.is_required and not goal.source.used_by]:
        return Verdict(shown, note=f"; it needs values for {', '.join(takes)} (`agentfs show-goal {shown}`)")
    try:
        judge(replace(goal_in(path, source, shown), dropped=path), around)
    except BadFile as error:
        return Verdict(shown, note=f" for `run`; dropped into goals/ it is refused: {error.problems[0].message}")
    return Verdict(shown)


def dropped_problems(workspace: Workspace, name: str, source: bytes) -> tuple[Problem, ...]:
    """Return what would be wrong with a goal that is dropped under this name."""
    path = workspace.root / "goals" / name
    try:
        _must_be_goal_name(path)
        judge(replace(goal_in(path, source, name), dropped=path), surroundings(workspace.root))
    except NoModel as error:
        return (error.problem,)
    except (Rejected, BadFile) as error:
        return tuple(error.problems)
    return ()


def _must_be_goal_name(path: Path) -> None:
    if path.suffix.lower() not in paths.GOAL_SUFFIXES:
        raise Rejected([Problem("this is not a goal, a plan or settings", _ENDINGS)])


_ENDINGS = f"a goal ends in {', '.join(paths.GOAL_SUFFIXES)}; settings in .toml; a plan is called plan.json"


def judge(source: GoalSource, around: Surroundings, *, with_values: bool = True) -> JudgedGoal:
    """Return a goal as `run` and `watch` judge it. `with_values`: its parameters need values, too."""
    root, settings, catalogue = around.root, around.settings, around.catalogue
    hide = mask_for(settings, environment(), catalogue.tools).text
    return judge_goal(source, root, settings, catalogue, planner=around.planner, hide=hide, with_values=with_values)


def _judge_for_its_run(path: Path, source: bytes, around: Surroundings) -> None:
    """Check a file in a run's own folder against what that run began with."""
    judge = judge_for(path.absolute().parent, around.settings)
    if paths.is_plan_name(path.name):
        judge.plan(source)
    else:
        judge.goal(source, path.name)


# ── check --against RUN ───────────────────────────────────────────────────────────────────────────────────


def check_against(arguments: Namespace) -> int:
    """Print every problem, or else what the plan means for the run's steps; exit 2 if there is a problem."""
    workspace = here(arguments)
    run = read_run(workspace.find_run(arguments.against), workspace)
    if run.state is None or run.broken:
        raise UserError(f"{run.run} cannot be read: {inert(run.broken[0])}")
    if len(arguments.files) != 1:
        raise UserError("--against takes one FILE: the plan that might become that run's")
    name = arguments.files[0]
    try:
        source = read_whole(start_folder(arguments) / name)
    except OSError as error:
        raise UserError(f"{inert(name)}: {error.strerror}") from None
    problems = problems_of(run.folder, workspace, source)
    if problems:
        if arguments.json:
            print_json({"run": run.run, "problems": [as_json(name, problem) for problem in problems]})
        else:
            print_lines(problem_lines_for(sys.stdout, name, problems, source))
        return 2
    page = plan_consequences(run.state, source)
    if arguments.json:
        return print_json({"run": run.run, "problems": [], **page})
    head = f"{inert(name)}: ok as the plan of {run.run}"
    return print_lines([head, *changed_lines(page, colours=colours()), *effect_lines(page["effects"])])

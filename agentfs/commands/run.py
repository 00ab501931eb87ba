"""`run`, `plan` and `resume`: drive one run."""

import functools
import gc
import signal
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path

from agentfs.commands import CannotPrint
from agentfs.commands.common import (
    environment,
    here,
    init_workspace,
    must_be_trusted,
    say,
    start_folder,
    trust_warning,
    typed_values,
)
from agentfs.commands.resume import take_up_if_held, take_up_only, top_ups
from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.decide import no_model_reached
from agentfs.core.records import Outcome
from agentfs.core.text import answer_text
from agentfs.engine.attempts import confinement_of, prepare_tools
from agentfs.engine.driver import Driver, World
from agentfs.engine.foreground import Asker, Rest, Stop, Watcher, drive
from agentfs.engine.goal_source import Flags, GoalSource, goal_from
from agentfs.engine.intake import JudgedGoal, judge_goal, taking
from agentfs.engine.isolation import isolation_words
from agentfs.engine.means import allowing_own, catalogue_of, has_model, run_record
from agentfs.engine.report import who_goes_on
from agentfs.engine.world import open_driver, open_world
from agentfs.errors import NotARun, UserError
from agentfs.ledger.maintenance import maintain_after_run
from agentfs.storage.locks import is_driven, is_watched, locked
from agentfs.storage.system import missing
from agentfs.storage.workspace import Workspace, default_settings, find_workspace, load_settings
from agentfs.tools.registry import Known, known_tools
from agentfs.tools.secrets import mask_for
from agentfs.ui.progress import ChildLines, Progress, progress_for

CLIENT = "a client of agentfs mcp"
Begin = Callable[[Settings, World, ExitStack], Path]  # takes a run's lock, held while the stack is open


def run(arguments: Namespace, *, asks: bool = True) -> int:
    """`agentfs run GOAL` and `agentfs run --resume RUN`"""
    if (arguments.goal is None) == (arguments.resume is None):
        raise UserError("run takes a GOAL, or --resume RUN (try `agentfs run --help`)")
    if arguments.resume is not None:
        if arguments.param or arguments.params:
            raise UserError("a run keeps the values it began with: `agentfs fork RUN -p NAME=VALUE` begins another")
        arguments.run, arguments.dry_run = arguments.resume, False
        return resume(arguments)
    if arguments.refresh_settings:
        raise UserError("--refresh-settings goes with --resume: a new run begins with today's settings")
    source = goal_from(arguments.goal, start_folder(arguments), sys.stdin.buffer.read)
    if getattr(arguments, "for_client", False):
        source = replace(source, is_clients=True, origin=CLIENT)
    workspace = _workspace_for(source, arguments)

    def begin(settings: Settings, world: World, stack: ExitStack) -> Path:
        goal = _judge(source, arguments, workspace.root, settings, world.known)
        folder = stack.enter_context(taking(goal, workspace))
        record = run_record(folder)
        for line in isolation_words(record) if record.isolation else ():
            say(line)
        tools = {str(step.value.get("tool")) for step in goal.parsed.placed}  # they begin while it is made a plan
        prepare_tools(tools, world, confinement_of(folder, record, world, own_steps=True))
        return folder

    return _in_foreground(workspace, begin, asks=asks)


def resume(arguments: Namespace) -> int:
    """`agentfs resume RUN`: take it up, then drive it, unless another process does or a watch is about to."""
    workspace = here(arguments)
    folder, more = workspace.find_run(arguments.run), top_ups(arguments)
    if arguments.dry_run or missing() or is_driven(folder) or is_watched(workspace.root):
        return take_up_only(arguments)

    def begin(_settings: Settings, _world: World, stack: ExitStack) -> Path:
        if not stack.enter_context(locked(folder)):
            run = paths.run_id(folder)
            raise UserError(f"{run} is being driven by another agentfs (`agentfs status {run}`)")
        take_up_if_held(workspace, folder, more, refresh=arguments.refresh_settings)
        return folder

    return _in_foreground(workspace, begin)


def _in_foreground(workspace: Workspace, begin: Begin, *, asks: bool = True) -> int:
    """Drive a run until it rests; return the exit code. `asks`: what it asks is asked on the terminal."""
    must_be_trusted(workspace)
    settings, stop = load_settings(workspace.settings, environment()), Stop()
    with open_world(workspace, settings, environment(), say, stop.wake.set) as world, ExitStack() as stack:
        code = _drive(begin(settings, world, stack), world, stop, asks=asks)
    if code != 130:
        maintain_after_run(workspace, say)
    return code


def plan(arguments: Namespace) -> int:
    """`agentfs plan GOAL`"""
    arguments.approve, arguments.resume, arguments.refresh_settings = arguments.approve or "plan", None, False
    code = run(arguments, asks=False)  # a yes would carry it out
    return 0 if code == 3 else code


def _workspace_for(source: GoalSource, arguments: Namespace) -> Workspace:
    """Return the workspace around; if there is none, one is made here, for a goal that is good and no other."""
    start = start_folder(arguments)
    if found := find_workspace(start):
        return found
    _judge(source, arguments, start, default_settings(environment()), known_tools(start))
    warning = trust_warning(start)
    workspace, _ = init_workspace(start, environment())
    say(f"no workspace here yet: made one in {start}")
    if warning:
        say(warning)
    return workspace


def _judge(source: GoalSource, arguments: Namespace, root: Path, settings: Settings, known: Known) -> JudgedGoal:
    """Return the goal if it can become a run in the workspace that is, or will be, in `root`."""
    settings = allowing_own(settings, known)
    catalogue = catalogue_of(settings, environment(), known)
    planner = has_model(settings.planner, environment())
    flags = Flags(
        mode=arguments.mode,
        approve=arguments.approve,
        workdir=start_folder(arguments) / arguments.workdir if arguments.workdir else None,
        planner=arguments.planner,
        executor=arguments.executor,
        with_uncommitted=arguments.with_uncommitted,
        params=typed_values(arguments),
    )
    hide = mask_for(settings, environment(), known.specs).text
    return judge_goal(source, root, settings, catalogue, planner=planner, flags=flags, hide=hide)


def _drive(folder: Path, world: World, stop: Stop, *, asks: bool = True) -> int:
    """Drive a run, whose lock is held, until it rests; print its answer; return the exit code.

    `asks`: what the run asks is asked on the terminal, if a person sits there.
    """

    def open_child(folder: Path) -> tuple[Driver, Watcher]:
        child = open_driver(folder, world)
        return child, ChildLines(child, progress)

    with ExitStack() as stack:
        on_signals(stack, stop)
        driver = open_driver(folder, world)
        progress = stack.enter_context(progress_for(driver, sys.stderr))
        gc.freeze()  # what is there now stays: it need not be looked at again whenever garbage is collected
        stack.callback(driver.stop_all)  # whatever goes wrong, nothing is left running on its own
        try:
            with _asker(driver, stop, progress, asks=asks) as asker:
                rest = drive(driver, stop, progress, asker, open_child)
        except (OSError, NotARun) as error:
            raise _explain_missing_run(driver, error) from None
        progress.end(rest.why, rest.below)
    return _report(driver, rest)


def _asker(driver: Driver, stop: Stop, progress: Progress, *, asks: bool) -> AbstractContextManager[Asker | None]:
    """Return what asks the run's questions on the terminal; nothing if no person sits at one."""
    if not (asks and sys.stdin.isatty() and sys.stderr.isatty()):
        return nullcontext()
    from agentfs.commands.asker import TerminalAsker

    return closing(TerminalAsker(driver, stop, progress, environment()))


def _explain_missing_run(driver: Driver, error: Exception) -> Exception:
    """Say it plainly when the run's own folder was moved or deleted under our hands."""
    if driver.folder.is_dir() and (driver.folder / paths.RUN).exists():
        return error
    words = "is gone: it was moved or deleted while the run was driven. What ran is ended."
    return UserError(f"the folder of {driver.facts.run.run} {words}")


def on_signals(stack: ExitStack, stop: Stop) -> None:
    """Stop when signals ask, until the stack is closed. A closed terminal ends what runs, except under nohup."""
    for number, times in ((signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 2)):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        before = signal.signal(number, functools.partial(_ask_to_stop, stop, times))
        stack.callback(signal.signal, number, before)


def _ask_to_stop(stop: Stop, times: int, number: int, _frame: object) -> None:
    if not (stop.lent and number == signal.SIGINT):
        stop.ask(times)


def _report(driver: Driver, rest: Rest) -> int:
    """Print the answer, and only that, on stdout; return the exit code."""
    outcome = driver.facts.outcome
    if outcome is not None:
        if outcome.status == "done" and outcome.answer is not None:
            _print_answer(outcome)
        return 0 if outcome.status == "done" else 1
    if rest.why is None:
        say(f"stopped; {who_goes_on(driver.facts.run.run, driver.world.workspace, 'go on with: ')}")
        return 130
    return 4 if any(no_model_reached(one.state) for one in (driver, *(below for below, _ in rest.below))) else 3


def _print_answer(outcome: Outcome) -> None:
    try:
        print(answer_text(outcome.answer, terminal=sys.stdout.isatty()), flush=True)
    except CannotPrint as error:
        if not error.reader_left:
            say(f"the run is done, but its answer cannot be printed: `agentfs show {outcome.run}` has it")
        raise

"""What the commands that change a run share: find it, exchange its plan.json, put files beside its questions.

They write what a person could write with an editor, take no lock, and work whether or not a process drives the run.
"""

import os
import re
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory

from agentfs.commands.common import here, say, short_path
from agentfs.core import paths
from agentfs.core.actions import CallPlanner, EndRun
from agentfs.core.attention import phase, reason
from agentfs.core.continuation import in_force, record_rejections, still_ends
from agentfs.core.decide import decide
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import run_id, step_of
from agentfs.core.plan_changes import effects
from agentfs.core.planner_calls import rejected_steps
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Outcome, Plan, Run
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.core.text import first_line, inert
from agentfs.core.tool_spec import Catalogue
from agentfs.engine.means import FileJudge, catalogue_of_run, judge_for
from agentfs.errors import BadFile, UserError
from agentfs.storage.clock import Clock
from agentfs.storage.completeness import Completeness
from agentfs.storage.files import publish, read_whole
from agentfs.storage.files import replace as replace_file
from agentfs.storage.locks import is_driven
from agentfs.storage.plan_files import DisplacedFile, install, look_after
from agentfs.storage.safe_open import copy_regular, scan
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace
from agentfs.tools.registry import known_tools
from agentfs.ui.reading import Reading, no_such_step, read_run, revision_numbers, settings_of

MAX_REPLY = 1_000_000  # characters
TRIES = 20  # a plan that another process changes between all of them is not ours to change
_RUN_AT = re.compile(r"(.*)@([1-9][0-9]{0,8})\Z", re.DOTALL)
Change = Callable[[bytes, Plan], bytes]


class OutOfDate(UserError):
    """What a person changes or answers has changed since they saw it."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that a command is about to change."""

    workspace: Workspace
    folder: Path  # where it is changed: the run's own, or that of its shadow
    state: RunState  # as if it had not ended, and with what is in plan.json in force
    outcome: Outcome | None
    revision: int | None = None  # the one a person typed after @
    real: Path | None = None  # of a shadow: the folder of the run itself

    @property
    def run(self) -> str:
        return run_id(self.folder)

    @property
    def plan(self) -> Plan:
        if self.state.facts.plan is None:
            raise UserError(f"{self.run} has no plan yet")
        return self.state.facts.plan

    @property
    def driven(self) -> bool:
        return is_driven(self.real or self.folder)

    def shown(self, *parts: str) -> str:
        """Return a file's path as messages show it: of a dry run, where it would be."""
        return short_path((self.real or self.folder).joinpath(*parts))

    def view(self, step: str) -> StepView:
        """Return a step of the plan; it must be there."""
        view = self.state.view(step)
        if view is None:
            whole = self.state.steps.get(step_of(step))
            known = [one.id for one in whole.items] if whole and step_of(step) != step else self.state.steps
            raise no_such_step(self.run, step, known)
        return view


def changes_a_run(body: Callable[[OpenRun, Namespace], None]) -> Callable[[Namespace], int]:
    """Make a command of a function that changes a run: find and read the run first, say who goes on with it after."""

    @wraps(body)
    def command(arguments: Namespace) -> int:
        with _to_change(arguments) as run:
            body(run, arguments)
            if run.real is None:
                say_who_continues(run)
            else:
                _say_effect(run)
        return 0

    return command


@contextmanager
def _to_change(arguments: Namespace) -> Iterator[OpenRun]:
    """Yield the run that a command changes; with --dry-run, a shadow of it."""
    workspace, folder, revision = named_run(arguments)
    if not arguments.dry_run:
        yield open_run(workspace, folder, revision)
        return
    say("dry run: this is what it would do; nothing is written")
    with shadow_of(folder) as shadow:
        yield replace(open_run(workspace, shadow, revision), real=folder)


def named_run(arguments: Namespace) -> tuple[Workspace, Path, int | None]:
    """Return the run a command names as RUN or RUN@REV, and that revision."""
    workspace = here(arguments)
    match = _RUN_AT.match(arguments.run)
    folder = workspace.find_run(match[1] if match else arguments.run)
    return workspace, folder, int(match[2]) if match else None


def open_run(workspace: Workspace, folder: Path, revision: int | None = None) -> OpenRun:
    """Return a run to be changed, freshly read; raise if it cannot be read."""
    found = read_run(folder, workspace)
    if found.state is None or found.broken:
        raise UserError(f"{found.run} cannot be read: {inert(found.broken[0])}")
    return OpenRun(workspace, folder, in_force(found.state, found.judged), found.state.facts.outcome, revision)


# ── plan.json ─────────────────────────────────────────────────────────────────────────────────────────────


def edit_plan(run: OpenRun, change: Change) -> bool:
    """Change a valid plan.json as a person would; return whether there was anything to change."""

    def edit(source: bytes | None) -> bytes | None:
        plan = _valid_plan(run, source)
        return None if source is None or plan is None else change(source, plan)

    return exchange_plan(run, edit)


def save_plan(run: OpenRun, source: bytes, base: str) -> None:
    """Replace plan.json by a valid plan, if it is still the one that a person began to edit."""
    validate_plan(run.folder, run.workspace, source, paths.PLAN)

    def edit(present: bytes | None) -> bytes:
        if present is None or sha256_bytes(present) != base:
            raise OutOfDate(f"{run.shown(paths.PLAN)} has changed since you began to edit it (nothing was saved)")
        return source

    where, changed = run.shown(paths.PLAN), exchange_plan(run, edit)
    say(f"{where}: {'saved' if changed else 'is as it was'}")


def exchange_plan(run: OpenRun, edit: Callable[[bytes | None], bytes | None]) -> bool:
    """Put what an edit makes of plan.json in its place, and lose no edit of another; return whether it changed.

    `edit`: from what is there (None: nothing that is ours to change) to what should be; None: look again.
    """
    path = run.folder / paths.PLAN
    for _ in range(TRIES):
        present = read_whole(path) if path.is_file() and not path.is_symlink() else None
        new = edit(present)
        if new is not None and new == present:
            return False
        if new is not None:
            placed, displaced = install(path, new, present)
            _look_after(run.folder, [displaced] if displaced else [])
            if placed:
                return True
    raise UserError(f"{run.shown(paths.PLAN)} keeps changing: try again when no other program writes it")


def _valid_plan(run: OpenRun, source: bytes | None) -> Plan | None:
    """Return the plan that these bytes of plan.json are; None if it has changed since; raise if they are none."""
    state = read_run(run.folder, run.workspace).state
    file = state.facts.plan_file if state else None
    if file is None or (source is not None and file.sha256 != sha256_bytes(source)):
        return None
    if file.problems or source is None:
        says_so = state is not None and paths.PLAN_ERROR in state.facts.notes
        note = "\nplan.error.md beside it says the same; fix it first" if says_so else ""
        problems = file.problems or (Problem("there is no plan.json", "write one"),)
        raise UserError(f"{BadFile(run.shown(paths.PLAN), problems)}{note}")
    return file.plan


def _look_after(folder: Path, files: list[DisplacedFile]) -> None:
    """Watch what came out of the exchange until no editor has it open; what remains, the next driver finds."""
    completeness, end = Completeness(), time.monotonic() + TIMING.displaced_plan
    while files and time.monotonic() < end:
        files = look_after(folder, files, completeness)
        if files:
            time.sleep(TIMING.tick)


# ── other files ───────────────────────────────────────────────────────────────────────────────────────────


def write_reply(run: OpenRun, name: str, text: str) -> None:
    """Write a reply; one that had no effect is replaced."""
    put_reply(run.folder / name, text)
    say(f"{run.shown(name)}: {first_line(text)}")


def put_reply(path: Path, text: str) -> None:
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("the text is not valid UTF-8") from None
    if os.path.lexists(path):
        replace_file(path, content)
    else:
        publish(path, content, durable=True)


def set_aside_files(run: OpenRun, files: list[str], command: str) -> None:
    """Write the files by which attempts and calls are retried, each saying who asked for that and when."""
    from agentfs.ledger import person

    words = f"{person(run.workspace.runs)[0]} set this aside with `agentfs {command}` at {Clock().stamp()}.\n"
    for name in files:
        with suppress(FileExistsError):  # it is set aside already
            publish(run.folder / name, words.encode("utf-8", "replace"), durable=True)
            say(f"{run.shown(name)}: will be retried")


def reopen(run: OpenRun) -> None:
    """Remove the outcome of a run that has something to do again; say so if it has not."""
    now = open_run(run.workspace, run.folder)
    end = still_ends(now.state.facts, now.state.means)
    if run.outcome is None:
        if end is not None and end.status == "cancelled":
            say(f"{run.run} is about to end all the same: {first_line(end.why)}")
        return
    if end is not None and end.status == run.outcome.status:
        say(f"{run.run} stays {end.status}: {first_line(end.why)}")
        return
    remove_outcome(run)


def remove_outcome(run: OpenRun) -> None:
    """Remove the outcome of a run: from here on it goes on."""
    (run.folder / paths.OUTCOME).unlink(missing_ok=True)
    say(f"{run.shown(paths.OUTCOME)}: removed, the run goes on")


# ── what to say at the end ────────────────────────────────────────────────────────────────────────────────


def say_who_continues(run: OpenRun) -> None:
    """Say who goes on with a run that nothing drives: a watch, or else what to type."""
    if (run.folder / paths.OUTCOME).exists() or run.driven:
        return
    from agentfs.engine.report import NOTHING_DRIVES, who_goes_on

    say(who_goes_on(run.run, run.workspace.root, NOTHING_DRIVES))


def _say_effect(run: OpenRun) -> None:
    """Say what a change means that was made to the copy of a dry run."""
    from agentfs.core.plan_diff import effect_lines

    found = read_run(run.folder, run.workspace)
    if found.state is None or found.state.facts.outcome is not None:
        return
    state = record_rejections(in_force(found.state))
    actions, plan = decide(state, 1), state.facts.plan
    if end := next((one for one in actions if isinstance(one, EndRun)), None):
        say(f"it would then be {end.status}: {first_line(end.why)}")
    elif (call := next((one for one in actions if isinstance(one, CallPlanner)), None)) and rejected_steps(
        state.facts
    ):
        say(f"it would then {_answer_to_no(found, state, call)}")
    else:
        if plan is not None:
            say("\n".join(effect_lines([asdict(one) for one in effects(state.facts, state.means, plan)])))
        say(f"it would then be {phase(state)}: {first_line(reason(state))}")


def _answer_to_no(found: Reading, state: RunState, call: CallPlanner) -> str:
    """Return what follows a rejection: a clean-up of the runbook, or another plan."""
    if found.goal is None or not state.facts.goal.has_steps:
        return "ask the planner for another plan, and do nothing of it before you approve it"
    from agentfs.planner.without_model import answer, situation

    reply = answer(found.goal, call.pending[0].trigger, situation(found.goal, state, found.folder))
    return f"clean up, and end failed: {first_line(reply.answer)}"


# ── plans that may become a run's ─────────────────────────────────────────────────────────────────────────


def revision_bytes(folder: Path, run: str, revision: int) -> bytes:
    """Return the exact bytes of a revision; raise if there is no such revision."""
    recorded = revision_numbers(folder)
    if revision not in recorded:
        known = f"it has 1 to {recorded[-1]}" if recorded else "there is no plan yet"
        raise UserError(f"{run} has no revision {revision} ({known})")
    path = folder / paths.REVISIONS / paths.revision_plan_file(revision)
    try:
        return read_whole(path)
    except OSError:
        raise UserError(f"{short_path(path)} cannot be read: restore it from the ledger") from None


def validate_plan(folder: Path, workspace: Workspace, source: bytes, shown: str, begins: Run | None = None) -> Plan:
    """Return the plan that bytes are to a run; raise BadFile with all that is wrong for it.

    `begins`: how a new run of these files begins; None: they are judged for the run itself.
    """
    if problems := problems_of(folder, workspace, source, begins):
        raise BadFile(shown, problems, source)
    return Plan.model_validate_json(source)


def problems_of(folder: Path, workspace: Workspace, source: bytes, begins: Run | None = None) -> tuple[Problem, ...]:
    """Return what is wrong with a plan, given the tools of the run it is for."""
    if begins is None:
        judge = judge_for(folder, settings_of(workspace)[0])
    else:
        judge = FileJudge(catalogue_for(begins, workspace))
    try:
        judge.plan(source)
    except Rejected as rejected:
        return rejected.problems
    return ()


def catalogue_for(run: Run, workspace: Workspace) -> Catalogue:
    """Return the tools and models that a run has by its record."""
    return catalogue_of_run(run, settings_of(workspace)[0], known_tools(workspace.root, run.tools))


# ── a temporary copy of a run, for finding out what a command would do ──────────────────────────────────
#
# Whatever a command writes, it writes as files; so what it would do to a run is what it does to a copy of it.


_PARTS = ("", paths.STEPS, paths.PLANNING, paths.REVISIONS)


@contextmanager
def shadow_of(folder: Path) -> Iterator[Path]:
    """Yield a folder that reads as the run does; it is removed after the block."""
    with TemporaryDirectory(prefix="agentfs-") as root:
        shadow = Path(root) / "runs" / folder.parent.name / folder.name
        for part in _PARTS:
            (shadow / part).mkdir(parents=True, exist_ok=True)
            _copy_files(folder / part, shadow / part, share=bool(part))
        if (tools := folder.parents[2] / "tools").is_dir():  # plans are checked against them
            (Path(root) / "tools").mkdir()
            for source in tools.glob("*.py"):
                copy_regular(source, Path(root) / "tools" / source.name)
        yield shadow


def _copy_files(folder: Path, to: Path, *, share: bool) -> None:
    """Copy the files of a folder. `share`: files that are written once, and not by people, are linked instead."""
    for entry in scan(folder):
        if not entry.is_file(follow_symlinks=False):
            continue
        if share and not entry.name.endswith(".md"):
            with suppress(OSError):  # it is on another file system
                os.link(folder / entry.name, to / entry.name, follow_symlinks=False)
                continue
        copy_regular(folder / entry.name, to / entry.name)

"""A run's files as one value for its page: state, past, questions, cost, files. Reads only."""

import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.attention import OpenQuestion, all_steps, open_questions, phase, reason
from agentfs.core.costs import as_page, costs_of
from agentfs.core.facts import Talk
from agentfs.core.plan_changes import Difference, difference
from agentfs.core.records import Revision
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.core.text import NOT_DRIVEN
from agentfs.errors import UserError
from agentfs.storage.locks import is_driven
from agentfs.storage.plan_files import PastPlans
from agentfs.storage.safe_open import read_regular
from agentfs.storage.workspace import Workspace
from agentfs.ui.reading import Glance, Reading, RunScanner, child_of, runs_below
from agentfs.ui.run_history import conversations, waiting_answer

MOST_QUESTION = 200_000  # bytes of a question that are shown
MOST_FILES, MOST_COUNTED = 500, 100_000
Step = str


@dataclass(frozen=True, slots=True)
class RevisionView:
    """A revision: its record, how its plan differs from the one before, and what was done under it."""

    record: Revision
    change: Difference | None  # None: one of the two plans does not read
    again: tuple[Step, ...]  # were done before, and ran again under it
    ran: tuple[Step, ...]  # ran under it for the first time
    kept: int  # done before, and not run again under it
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question that was put to a person, and the reply."""

    path: str
    text: str
    asked_at: float | None
    reply: str | None
    replied_at: float | None
    step: Step | None
    number: int
    key: str | None
    open: OpenQuestion | None  # it still waits


@dataclass(frozen=True, slots=True)
class RunPage:
    """Everything that the page of one run shows, at one moment."""

    reading: Reading
    state: RunState
    phase: str  # what it is doing, or that nothing drives it
    why: str
    driven: bool
    steps: tuple[StepView, ...]  # as people are shown them: what went wrong first; those that left the plan too
    asking: frozenset[Step]
    revisions: tuple[RevisionView, ...]
    questions: tuple[QuestionView, ...]
    proposal: dict[str, Any] | None  # an answer that waits for a yes, and what it would change
    below: Mapping[Step, Glance]  # the runs that steps under way are
    costs: dict[str, Any]
    files: tuple[tuple[str, int], ...]  # that the steps made: name and size
    more_files: int
    patch: bool
    now: datetime
    zone: tzinfo | None

    @property
    def run(self) -> str:
        return self.reading.run

    @property
    def folder(self) -> Path:
        return self.reading.folder

    def child(self, step: Step) -> str | None:
        """Return the run that the last attempt at a step is, where it is one."""
        return child_of(self.state, step)

    @property
    def title(self) -> str:
        return self.state.facts.goal.title or self.run


def gather(
    reading: Reading,
    workspace: Workspace,
    now: datetime,
    zone: tzinfo | None = None,
    commits: dict[int, str] | None = None,
) -> RunPage:
    """Return everything a page shows of a run that reads. `commits`: of its revisions, where they are known."""
    state = reading.readable()
    driven, word = is_driven(reading.folder), phase(state)
    still = not driven and state.facts.outcome is None and word in ("running", "planning")
    files, more = _files(reading.folder, state)
    return RunPage(
        reading=reading,
        state=state,
        phase=NOT_DRIVEN if still else word,
        why=reading.broken[0] if reading.broken else reason(state),
        driven=driven,
        steps=tuple(all_steps(state)),
        asking=frozenset(view.id for view in state.moving("person")),
        revisions=tuple(revision_views(reading.folder, state, commits or {})),
        questions=tuple(question_views(reading.folder, state)),
        proposal=waiting_answer(reading, state),
        below=runs_below(reading, RunScanner(workspace)),
        costs=as_page(reading.run, costs_of(conversations(reading.folder))),
        files=files,
        more_files=more,
        patch=(reading.folder / "changes.patch").is_file(),
        now=now,
        zone=zone,
    )


# ── revisions ─────────────────────────────────────────────────────────────────────────────────────────────


def revision_views(folder: Path, state: RunState, commits: dict[int, str]) -> Iterator[RevisionView]:
    """Yield a run's revisions, the oldest first."""
    ran, before = _ran_under(state), ""
    for record in state.facts.revisions:
        again, first, kept = ran.get(record.revision, ((), (), 0))
        change = _change(folder, record.revision, before, record.plan_sha256)
        yield RevisionView(record, change, again, first, kept, commits.get(record.revision))
        before = record.plan_sha256


@lru_cache(maxsize=2000)
def _change(folder: Path, revision: int, before: str, now: str) -> Difference | None:  # noqa: ARG001 - part of the name
    """Return how a revision differs from the one before: both are written once, so that looking once is enough."""
    past = PastPlans(folder)
    try:
        return difference(past.plan(revision - 1) if before else None, past.plan(revision))
    except UserError:
        return None


Ran = tuple[tuple[Step, ...], tuple[Step, ...], int]


def _ran_under(state: RunState) -> dict[int, Ran]:
    """Return by revision what was run again under it, what ran for the first time, and how many were kept."""
    again: dict[int, list[Step]] = {}
    first: dict[int, list[Step]] = {}
    done: list[tuple[str, Step]] = []
    for step, attempts in state.facts.attempts.items():
        if paths.ITEM in step:
            continue  # its step counts
        was_done, seen = False, set[int]()
        for attempt in attempts:
            made = attempt.order or attempt.result
            if made is not None and made.revision not in seen:
                seen.add(made.revision)
                (again if was_done else first).setdefault(made.revision, []).append(step)
            if attempt.result is not None and attempt.result.status == "done":
                was_done = True
                done.append((attempt.result.ended_at, step))
    found = {}
    for record in state.facts.revisions:
        mine = tuple(again.get(record.revision, ()))
        before = {step for at, step in done if at < record.at}
        kept = len(before - set(mine))
        found[record.revision] = (mine, tuple(first.get(record.revision, ())), kept)
    return found


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────


def question_views(folder: Path, state: RunState) -> Iterator[QuestionView]:
    """Yield every question that was put to a person, those that wait first."""
    waiting = {one.question_path: one for one in open_questions(state) if one.about != "draft"}
    found = [_question(folder, waiting, *one) for one in _find_asked(state)]
    yield from sorted(found, key=lambda one: (one.open is None, -(one.asked_at or 0.0)))


def _find_asked(state: RunState) -> Iterator[tuple[Step | None, int, Talk]]:
    for call in state.facts.calls:
        yield from ((None, call.number, talk) for talk in call.talks)
    for step, attempts in state.facts.attempts.items():
        for attempt in attempts:
            yield from ((step, attempt.number, talk) for talk in attempt.talks)


def _question(
    folder: Path, waiting: dict[str, OpenQuestion], step: Step | None, number: int, talk: Talk
) -> QuestionView:
    one = OpenQuestion("gate" if step else "answer", step, number, talk.count, talk.reply)
    path = one.question_path
    text = _text(folder / path)
    asked, replied = (
        _written_at(folder / path),
        _written_at(folder / one.reply_path) if talk.reply is not None else None,
    )
    return QuestionView(path, text, asked, talk.reply, replied, step, number, talk.key, waiting.get(path))


def _text(path: Path) -> str:
    try:
        return read_regular(path, MOST_QUESTION).decode("utf-8", "replace")
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror or error}"


def _written_at(path: Path) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def _files(folder: Path, state: RunState) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the files that the steps made, and how many more there are; none where they work in another folder."""
    if state.facts.run.workdir != paths.FILES:
        return (), 0
    walk = _walk(folder / paths.FILES)
    found = sorted(itertools.islice(walk, MOST_FILES))
    return tuple(found), sum(1 for _ in itertools.islice(walk, MOST_COUNTED))


def _walk(root: Path) -> Iterator[tuple[str, int]]:
    for above, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in names:
            if name == ".git":  # of a worktree: it says where the repository is
                continue
            path = os.path.join(above, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode):
                yield os.path.relpath(path, root), about.st_size

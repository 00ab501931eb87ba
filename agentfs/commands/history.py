"""`log`, `diff` and `blame`: a run's revisions with their commits, what differs, who set each field. Reads only."""

import json
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.commands.common import colours, here, print_lines, print_page, say_all, short_path, width
from agentfs.core import paths
from agentfs.core.attention import reason
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import run_id
from agentfs.core.plan_diff import diff_lines, proposal_lines, stat_line
from agentfs.core.records import Plan
from agentfs.core.run_state import RunState
from agentfs.core.text import Cell, first_line, inert, log_line, most_of, state_and_why, table
from agentfs.errors import UserError
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace
from agentfs.ui.reading import (
    Reading,
    no_such_step,
    plain_object,
    read_run,
    revision_numbers,
    step_files,
    whole_lines,
)
from agentfs.ui.run_history import Number, compared_plans, diff_page, entries_of, outcome_entry, waiting_answer

if TYPE_CHECKING:
    from agentfs.core.plan_changes import Origin


def log(arguments: Namespace) -> int:
    """`agentfs log RUN [-f]`"""
    workspace = here(arguments)
    folder = workspace.find_run(arguments.run)
    entries, trouble = entries_of(folder, workspace.runs)
    page = {"run": run_id(folder), "runs": str(workspace.runs), "entries": entries, "broken": trouble}
    if arguments.follow:
        return follow(folder, page, json_lines=arguments.json)
    print_page(arguments, page, lambda: log_lines(page, short_path(workspace.runs)))
    return say_all(trouble)


# ── log: what it prints ───────────────────────────────────────────────────────────────────────────────────


CHANGES = 12


def log_lines(page: dict[str, Any], runs: str) -> list[str]:
    """Return a run's revisions and outcomes, the newest last."""
    if not page["entries"]:
        return [f"{page['run']} has no revision yet: there is no plan"]
    git = f"git -C {inert(shlex.quote(runs))}"
    plan = f"{page['run']}/plan.json"
    lines: list[str] = []
    before: str | None = None
    for entry in page["entries"]:
        changed = before if entry["kind"] == "revision" else None  # an outcome leaves the plan as it was
        lines += [*_entry(entry), *_commands(git, plan, entry["commit"], changed), ""]
        before = entry["commit"] or before
    return [
        *lines,
        f"who wrote each line:  {git} blame -- {plan}",
        f"all of it:            {git} log -- {page['run']}",
    ]


def entry_line(entry: dict[str, Any]) -> str:
    """Return a revision, or an outcome, in one line."""
    at = str(entry.get("at"))[11:19]
    if entry["kind"] == "outcome":
        return inert(f"{at} outcome: {_describe_outcome(entry)}")
    first = entry.get("trigger") == "first"
    detail = "the first plan" if first else first_line(str(entry.get("detail")))
    return inert(f"{at} revision {entry.get('revision')}: {detail}, by {_who(entry['by'])}")


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    when = f"  when      {str(entry['at'])[:19].replace('T', ' ')} UTC"
    if entry["kind"] == "outcome":
        yield f"outcome: {_describe_outcome(entry)}"
        yield when
        return
    detail = "the first plan" if entry["trigger"] == "first" else first_line(str(entry["detail"]))
    yield f"revision {entry['revision']}: {detail}"
    yield when
    yield f"  who       {_who(entry['by'])}"
    yield f"  trigger   {entry['trigger']}" + (f" ({entry['step']})" if entry["step"] else "")
    yield from _listed_lines(
        "changes", [f"{change['step'] or 'the plan'}: {change['what']}" for change in entry["changes"]]
    )
    yield from _listed_lines("evidence", entry["evidence"])


def _describe_outcome(entry: dict[str, Any]) -> str:
    return state_and_why(entry["status"], first_line(str(entry["detail"])).removeprefix(f"{entry['status']}, "))


def _who(by: dict[str, Any]) -> str:
    model = f", model {by['model']}" if by.get("model") else ""
    name = "" if by["name"] in ("", by["role"]) else f": {by['name']}"
    return first_line(f"{by['role']}{name}{model}")


def _listed_lines(name: str, words: list[str]) -> Iterator[str]:
    for place, word in enumerate(words[:CHANGES]):
        yield f"  {name if not place else '':<9} {first_line(word)}"
    if len(words) > CHANGES:
        yield f"            … and {len(words) - CHANGES} more"


def _commands(git: str, plan: str, commit: str | None, before: str | None) -> Iterator[str]:
    if commit is None:
        yield "  commit    none yet: it follows when the run is driven"
        return
    yield f"  commit    {commit}"
    yield f"  see it    {git} show {commit[:12]}"
    if before:
        yield f"            {git} diff {before[:12]} {commit[:12]} -- {plan}"


# ── log -f ────────────────────────────────────────────────────────────────────────────────────────────────


MOST_BYTES = 1 << 20  # read of one log at a time

Line = tuple[dict[str, Any], str]  # for programs, for people


def follow(folder: Path, page: dict[str, Any], *, json_lines: bool) -> int:
    """Print what has happened so far, then what happens until the run has ended."""
    for entry in page["entries"]:
        _print((entry, entry_line(entry)), json_lines=json_lines)
    revisions = {entry["revision"] for entry in page["entries"] if entry["kind"] == "revision"}
    tail = Tail(folder, most_of(width()), revisions)
    ended = any(entry["kind"] == "outcome" for entry in page["entries"][-1:]) and outcome_entry(folder) is not None
    while not ended:
        outcome = outcome_entry(folder)  # first: what is logged before it is printed before it
        for line in tail.news():
            _print(line, json_lines=json_lines)
        if outcome is not None:
            _print((outcome, entry_line(outcome)), json_lines=json_lines)
            break
        if not folder.is_dir():
            raise UserError(f"{folder} is gone")
        time.sleep(TIMING.log_follow)
    return 0


def _print(line: Line, *, json_lines: bool) -> None:
    print_lines([json.dumps(line[0], ensure_ascii=True) if json_lines else line[1]])
    sys.stdout.flush()


@dataclass(slots=True)
class Tail:
    """Remembers how far a run's revisions and logs have been printed."""

    folder: Path
    most: int | None  # of one line
    revisions: set[int]
    offsets: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Skip the logs of attempts that have ended; those of running ones are printed from their start."""
        for _, _, files in self._attempts():
            if "result" in files and "log" in files:
                self.offsets[files["log"]] = files["log"].stat().st_size

    def news(self) -> Iterator[Line]:
        """Yield what is new since the last time."""
        yield from self._new_revisions()
        for step, attempt, files in self._attempts():
            if "log" in files:
                yield from self._new_lines(step, attempt, files["log"])

    def _attempts(self) -> Iterator[tuple[str, int, dict[str, Path]]]:
        for step, attempts in sorted(step_files(self.folder).items()):
            for number, files in sorted(attempts.items()):
                yield step, number, files

    def _new_revisions(self) -> Iterator[Line]:
        for number in sorted(set(revision_numbers(self.folder)) - self.revisions):
            record = plain_object(self.folder / paths.REVISIONS / paths.revision_file(number))
            self.revisions.add(number)
            if record:
                entry = {"kind": "revision", **record}
                yield entry, entry_line(entry)

    def _new_lines(self, step: str, attempt: int, path: Path) -> Iterator[Line]:
        """Yield the complete lines; one that is still being written comes next time."""
        offset = self.offsets.get(path, 0)
        whole = whole_lines(path, offset, MOST_BYTES)
        self.offsets[path] = offset + len(whole)
        for line in whole.splitlines():
            if words := log_line(line, self.most):
                entry = {"kind": "log", "step": step, "attempt": attempt, **json.loads(line)}
                yield entry, f"{words[:8]} {inert(step)}.{attempt}{words[8:]}"


# ── blame ─────────────────────────────────────────────────────────────────────────────────────────────────


def blame(arguments: Namespace) -> int:
    """`agentfs blame RUN [STEP]`"""
    from agentfs.core.plan_changes import blame as origins_of
    from agentfs.storage.plan_files import PastPlans

    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    facts, past = found.planned().facts, PastPlans(found.folder)
    revisions = facts.revisions
    origins = origins_of((revision, past.plan(revision.revision)) for revision in revisions)
    fields = [*map(_blame_entry, origins)]
    if arguments.step is not None:
        known = [str(entry["step"]) for entry in fields if entry["step"]]
        fields = [entry for entry in fields if entry["step"] == arguments.step]
        if not fields:
            raise no_such_step(found.run, arguments.step, known)
    page = {"run": found.run, "revision": revisions[-1].revision, "fields": fields}
    unrecorded = facts.plan_file.sha256 != revisions[-1].plan_sha256
    return print_page(arguments, page, lambda: blame_lines(page, width(), colours=colours(), edited=unrecorded))


def _blame_entry(origin: "Origin") -> dict[str, Any]:
    from agentfs.core.commit_messages import reason_of

    revision = origin.revision
    return {
        "step": origin.step,
        "field": origin.field,
        "by": revision.by.model_dump(mode="json"),
        "revision": revision.revision,
        "call": revision.call,
        "trigger": revision.trigger,
        "why": reason_of(revision),
        "detail": revision.detail,
        "at": revision.at,
    }


BOLD, FAINT = 1, 2
WIDEST = 22


def blame_lines(page: dict[str, Any], width: int | None, *, colours: bool, edited: bool) -> list[str]:
    """Return a table that fits a width; a step is named once."""
    head: list[Cell] = [(name, FAINT) for name in ("step", "field", "by", "rev", "why")]
    rows, before = [head], object()
    for entry in page["fields"]:
        name = "" if entry["step"] == before else entry["step"] or "(the plan)"
        before = entry["step"]
        rows.append(
            [
                (inert(name), BOLD),
                (inert(entry["field"]), None),
                (who(entry["by"]), None),
                (str(entry["revision"]), None),
                (first_line(entry["why"]), None),
            ]
        )
    lines = table(rows, width, colours=colours, widest=WIDEST, wrap=True)
    note = f"plan.json has been edited since: agentfs diff {page['run']} {page['revision']}"
    return [*lines, *(["", note] if edited else [])]


def who(by: dict[str, Any]) -> str:
    """Return a person by name, a model by its role and name, a runbook by its role."""
    if by["role"] == "person":
        return first_line(by["name"]) or "a person"
    return first_line(f"{by['role']} {by['model'] or ''}")


# ── diff ──────────────────────────────────────────────────────────────────────────────────────────────────


_RANGE = re.compile(r"([0-9]{1,9})(\.\.([1-9][0-9]{0,8})?)?\Z")


def diff(arguments: Namespace) -> int:
    """`agentfs diff RUN [A[..B]]`"""
    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    state = found.planned()
    if arguments.question:
        return _diff_question(arguments, found, state)
    first, second = _choose_revisions(found.run, state, arguments.revisions)
    page = diff_page(found, state, first, second)
    lines, last = diff_lines(page, colours=colours()), state.facts.revisions[-1]
    if second is not None and state.facts.plan_file.sha256 != last.plan_sha256:
        lines += ["", f"plan.json has been edited since: agentfs diff {found.run} {last.revision}"]
    return _print_difference(arguments, page, lines)


def _diff_question(arguments: Namespace, found: Reading, state: RunState) -> int:
    """What the answer that waits would change."""
    if arguments.revisions:
        raise UserError("diff takes revisions, or --question")
    page = waiting_answer(found, state)
    if page is None:
        raise UserError(f"{found.run} has no answer waiting: {first_line(reason(state))}")
    return _print_difference(arguments, page, proposal_lines(page, colours=colours()))


def _print_difference(arguments: Namespace, page: dict[str, Any], lines: list[str]) -> int:
    return print_page(arguments, page, lambda: [f"{page['run']}: {stat_line(page)}"] if arguments.stat else lines)


def _choose_revisions(run: str, state: RunState, text: str | None) -> tuple[Number, Number]:
    """Return the two revisions to compare."""
    last = len(state.facts.revisions)
    if text is None:
        return last - 1, last
    if not (match := _RANGE.match(text)):
        raise UserError(f"{inert(text)!r} names no revisions: write A or A..B, such as 1..{last}")
    first, second = int(match[1]), int(match[3]) if match[3] else None
    for number in (first, second):
        if number is not None and number > last:
            raise UserError(f"{run} has no revision {number} (it has 1 to {last})")
    return first, second


# ── two plans that git holds against each other ───────────────────────────────────────────────────────────


def between(path: Path, old: bytes, new: bytes, *, colours: bool) -> list[str]:
    """Return how two contents of a plan.json differ; raise if one is no plan, or the run does not read."""
    root = path.parents[3]
    found = read_run(path.parent, Workspace(root))
    state = found.planned()
    plans = [Plan.model_validate_json(source) if source else None for source in (old, new)]
    if plans[1] is None:
        return [f"{found.run}: plan.json is gone"]
    first, second = _numbers(state, sha256_bytes(old) if old else None, sha256_bytes(new))
    return diff_lines(compared_plans(found, state, (first, plans[0]), (second, plans[1])), colours=colours)


def _numbers(state: RunState, old: str | None, new: str) -> tuple[Number, Number]:
    """Return which revisions have these contents: two that follow each other, else the last; None: it is none."""
    held = {sha: [one.revision for one in state.facts.revisions if one.plan_sha256 == sha] for sha in (old, new)}
    before, after = [0] if old is None else held[old], held[new]
    pairs = [(one - 1, one) for one in after if one - 1 in before]
    return pairs[-1] if pairs else (before[-1] if before else None, after[-1] if after else None)

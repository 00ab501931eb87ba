"""`log` and `blame`: a run's revisions with their commits, as they happen too, and who set each field. Reads only."""

import json
import shlex
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.commands.common import colours, here, print_lines, say_all, short_path, width
from agentfs.commands.reading import no_such_step, plain_json, read_run, revision_numbers, run_id, step_files
from agentfs.core import paths
from agentfs.core.table import Cell, table
from agentfs.core.text import first_line, inert, json_text, log_line, most_of, state_and_why
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import reading

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
    if arguments.json:
        print_lines([json_text(page)])
    elif entries:
        print_lines(log_lines(page, short_path(workspace.runs)))
    else:
        print_lines([f"{page['run']} has no revision yet: there is no plan"])
    return say_all(trouble)


def entries_of(folder: Path, runs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the ledger should hold of a run, the newest last, and what of it cannot be read."""
    from agentfs.ledger import Ledger, LedgerCommit, LedgerError

    revisions, trouble = _read_revisions(folder)
    commits: list[LedgerCommit] = []
    try:
        commits = Ledger(runs).history(run_id(folder))[::-1]
    except LedgerError as error:
        trouble.append(str(error))
    entries: list[dict[str, Any]] = []
    for commit in commits:
        numbers = [n for n in commit.trailers.get("Agentfs-Revision", []) if n in revisions]
        entries += [{**revisions.pop(number), "commit": commit.sha} for number in numbers]
        for words in commit.trailers.get("Agentfs-Outcome", []):
            status, detail = words.partition(" ")[0], commit.subject.partition(": ")[2]
            at = commit.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            entries.append({"kind": "outcome", "status": status, "detail": detail, "at": at, "commit": commit.sha})
    entries += [{**found, "commit": None} for found in revisions.values()]
    if not any(entry["kind"] == "outcome" for entry in entries[-1:]) and (pending := _outcome(folder)):
        entries.append({**pending, "commit": None})
    return entries, trouble


def _read_revisions(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the revisions by number, and the names of those that cannot be read."""
    from pydantic import ValidationError

    from agentfs.core.records import Revision

    found: dict[str, dict[str, Any]] = {}
    trouble: list[str] = []
    for number in revision_numbers(folder):
        path = folder / paths.REVISIONS / paths.revision_file(number)
        try:
            record = Revision.model_validate_json(read_whole(path))
        except (OSError, ValidationError):
            trouble.append(f"{path} cannot be read: restore it from the ledger")
            continue
        found[str(number)] = {"kind": "revision", **record.model_dump(mode="json", exclude={"format"})}
    return found, trouble


def _outcome(folder: Path) -> dict[str, Any] | None:
    """Return the outcome in a run's folder."""
    found = plain_json(folder / paths.OUTCOME)
    if not isinstance(found, dict):
        return None
    status, at = str(found.get("status")), str(found.get("ended_at"))
    return {"kind": "outcome", "status": status, "detail": f"{status}, {found.get('summary')}", "at": at}


# ── log: what it prints ───────────────────────────────────────────────────────────────────────────────────


CHANGES = 12


def log_lines(page: dict[str, Any], runs: str) -> list[str]:
    """Return a run's revisions and outcomes, the newest last."""
    git = f"git -C {inert(shlex.quote(runs))}"
    plan = f"{page['run']}/plan.json"
    lines: list[str] = []
    before: str | None = None
    for entry in page["entries"]:
        changed = before if entry["kind"] == "revision" else None  # an outcome leaves the plan as it was
        lines += [*_entry(entry), *_commands(git, plan, entry["commit"], changed), ""]
        before = entry["commit"] or before
    if page["entries"]:
        lines.append(f"who wrote each line:  {git} blame -- {plan}")
        lines.append(f"all of it:            {git} log -- {page['run']}")
    return lines


def entry_line(entry: dict[str, Any]) -> str:
    """Return a revision, or an outcome, in one line."""
    at = str(entry.get("at"))[11:19]
    if entry["kind"] == "outcome":
        return inert(f"{at} outcome: {_ended(entry)}")
    first = entry.get("trigger") == "first"
    detail = "the first plan" if first else first_line(str(entry.get("detail")))
    return inert(f"{at} revision {entry.get('revision')}: {detail}, by {_who(entry['by'])}")


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    if entry["kind"] == "outcome":
        yield f"outcome: {_ended(entry)}"
        yield f"  when      {entry['at']}"
        return
    detail = "the first plan" if entry["trigger"] == "first" else first_line(str(entry["detail"]))
    yield f"revision {entry['revision']}: {detail}"
    yield f"  when      {entry['at']}"
    yield f"  who       {_who(entry['by'])}"
    yield f"  trigger   {entry['trigger']}" + (f" ({entry['step']})" if entry["step"] else "")
    yield from _listed_lines(
        "changes", [f"{change['step'] or 'the plan'}: {change['what']}" for change in entry["changes"]]
    )
    yield from _listed_lines("evidence", entry["evidence"])


def _ended(entry: dict[str, Any]) -> str:
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


RESCAN_SECONDS = 0.5  # appending to a log raises no event
MOST_BYTES = 1 << 20  # read of one log at a time

Line = tuple[dict[str, Any], str]  # for programs, for people


def follow(folder: Path, page: dict[str, Any], *, json_lines: bool) -> int:
    """Print what has happened, then what happens, until the run has ended."""
    from agentfs.storage.watcher import FolderWatch

    for entry in page["entries"]:
        _print((entry, entry_line(entry)), json_lines=json_lines)
    tail, wake = Tail(folder, most_of(width())), threading.Event()
    tail.begin({entry["revision"] for entry in page["entries"] if entry["kind"] == "revision"})
    folders = [folder, folder / paths.STEPS, folder / paths.REVISIONS]
    ended = any(entry["kind"] == "outcome" for entry in page["entries"][-1:]) and _outcome(folder) is not None
    with FolderWatch([path for path in folders if path.is_dir()], wake.set) as watch:
        while not ended:
            outcome = _outcome(folder)  # first: what is logged before it is printed before it
            for line in tail.news():
                _print(line, json_lines=json_lines)
            if outcome is not None:
                _print((outcome, entry_line(outcome)), json_lines=json_lines)
                break
            if not folder.is_dir():
                raise UserError(f"{folder} is gone")
            wake.wait(RESCAN_SECONDS)
            wake.clear()
            watch.seen()
    return 0


def _print(line: Line, *, json_lines: bool) -> None:
    print_lines([json.dumps(line[0], ensure_ascii=True) if json_lines else line[1]])
    sys.stdout.flush()


@dataclass(slots=True)
class Tail:
    """Remembers how far a run's revisions and logs have been printed."""

    folder: Path
    most: int | None = None  # of one line
    revisions: set[int] = field(default_factory=set)
    offsets: dict[Path, int] = field(default_factory=dict)

    def begin(self, revisions: set[int]) -> None:
        """Begin now: of attempts that have settled nothing is printed, of those that run all of it."""
        self.revisions = revisions
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
            record = plain_json(self.folder / paths.REVISIONS / paths.revision_file(number))
            self.revisions.add(number)
            if isinstance(record, dict):
                entry = {"kind": "revision", **record}
                yield entry, entry_line(entry)

    def _new_lines(self, step: str, attempt: int, path: Path) -> Iterator[Line]:
        """Yield the lines that are whole; the rest of one that is being written comes next time."""
        offset = self.offsets.get(path, 0)
        try:
            with reading(path) as file:
                file.seek(offset)
                source = file.read(MOST_BYTES)
        except OSError:
            return
        whole = source[: source.rfind(b"\n") + 1]
        self.offsets[path] = offset + len(whole)
        for line in whole.splitlines():
            if words := log_line(line, self.most):
                entry = {"kind": "log", "step": step, "attempt": attempt, **json.loads(line)}
                yield entry, f"{words[:8]} {inert(step)}.{attempt}{words[8:]}"


# ── blame ─────────────────────────────────────────────────────────────────────────────────────────────────


def blame(arguments: Namespace) -> int:
    """`agentfs blame RUN [STEP]`"""
    from agentfs.core.plan_changes import blame as origins_of
    from agentfs.storage.past_plans import PastPlans

    workspace = here(arguments)
    found = read_run(workspace.find_run(arguments.run), workspace)
    facts, past = found.planned().facts, PastPlans(found.folder)
    revisions = facts.revisions
    origins = origins_of((revision, past.plan(revision.revision)) for revision in revisions)
    fields = [*map(_blame_entry, origins)]
    if arguments.step is not None:
        fields = _of_step(fields, arguments.step, found.run)
    page = {"run": found.run, "revision": revisions[-1].revision, "fields": fields}
    unrecorded = facts.plan_file.sha256 != revisions[-1].plan_sha256
    if arguments.json:
        return print_lines([json_text(page)])
    return print_lines(blame_lines(page, width(), colours=colours(), edited=unrecorded))


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


def _of_step(fields: list[dict[str, Any]], step: str, run: str) -> list[dict[str, Any]]:
    mine = [entry for entry in fields if entry["step"] == step]
    if not mine:
        raise no_such_step(run, step, [str(entry["step"]) for entry in fields if entry["step"]])
    return mine


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

"""Walk the commits of `main`, oldest first: one commit per revision, in order, saying what the revision says.

Of each run only how far it has come and what is missing is remembered.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from agentfs.core import paths as names
from agentfs.core.agreement import Disagreement, is_acted_upon
from agentfs.core.commit_messages import (
    AGENTFS,
    as_it_stood_message,
    author_of,
    forgotten_message,
    outcome_message,
    outcome_message_of_0_1,
    revision_message,
)
from agentfs.core.records import Outcome, Revision
from agentfs.ledger.branch import commit_text, signature
from agentfs.ledger.committer import moment, usage_of_call
from agentfs.ledger.git import LedgerError
from agentfs.ledger.ledger import Change, Ledger, LedgerCommit, blob_sha
from agentfs.storage.files import read_whole

REWRITTEN = "history was rewritten: compare with a copy of runs/.git, and take that if it is whole"
_LINE = "nothing is lost by it; `git -C runs log --graph` shows where. agentfs itself never merges"
_REWRITTEN_FILE = "`git -C runs log -p -- FILE` shows what it was, and who changed it"


@dataclass(slots=True)
class RunHistory:
    """What the commits so far say of one run."""

    revisions: int = 0
    plan: str | None = None  # blob of plan.json
    gone: dict[str, tuple[str, str]] = field(default_factory=dict)  # path -> its blob, and the commit that took it


@dataclass(slots=True)
class History:
    """Takes commits, the oldest first, and yields in what each is not as agentfs made it."""

    ledger: Ledger
    whole: bool = True  # all commits are given, not those of one run
    commits: int = 0
    revisions: int = 0
    runs: dict[str, RunHistory] = field(default_factory=lambda: defaultdict(RunHistory))
    _last: str | None = None

    def check(self, commit: LedgerCommit) -> Iterator[Disagreement]:
        self.commits += 1
        yield from self._check_line(commit)
        by_run = _by_run(commit.changes)
        named = [run for run in commit.trailers.get("Agentfs-Run", ()) if names.is_run_id(run)]
        if named:
            yield from self._check_own(commit, named, by_run)
        for run, changes in by_run.items():
            yield from self._check_changes(commit, run, changes)
        smaller = [run for run, changes in by_run.items() if all(one.how == "D" for one in changes)]
        for run, held in self._held_at(commit.sha, smaller).items() if smaller else ():
            if not held:
                self.runs.pop(run, None)  # it has left the tree: its name is free

    def _held_at(self, commit: str, runs: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return what a commit holds of some runs; nothing where it is damaged, which git says."""
        try:
            return self.ledger.committed_of(runs, commit)
        except LedgerError:
            return {run: {} for run in runs}

    def left_out(self, run: str) -> Iterator[Disagreement]:
        """Yield what commits have taken out of a run, and none has brought back."""
        for path, (_, sha) in self.runs[run].gone.items() if run in self.runs else ():
            words = f"was taken out of the ledger by commit {sha[:12]}"
            yield Disagreement(
                "wrong", f"{run}/{path}", words, f"bring it back: git -C runs checkout {sha}^ -- {run}/{path}"
            )

    def _check_line(self, commit: LedgerCommit) -> Iterator[Disagreement]:
        """Every commit but the first has one parent: the one before."""
        parents = commit.parents
        if len(parents) > 1:
            yield _wrong(commit, f"is a merge, by {commit.by}: the history is not a line any more", _LINE)
        elif self.whole and self._last is not None and not parents:
            yield _wrong(commit, "begins a second history beside the first", _LINE)
        elif self.whole and self._last is not None and parents != [self._last]:
            yield _wrong(commit, f"does not follow on commit {self._last[:12]}: the history is not a line", _LINE)
        self._last = commit.sha

    def _check_own(
        self, commit: LedgerCommit, named: list[str], by_run: dict[str, list[Change]]
    ) -> Iterator[Disagreement]:
        """A commit that names a run was made by agentfs, of that run's files, and says what its record says."""
        who, _, when = commit.committer.partition("> ")
        if f"{who}>" != f"{AGENTFS[0]} <{AGENTFS[1]}>":
            words = f"was made again by {who}>: rebased, amended or forged ({commit.subject})"
            yield _wrong(commit, words, REWRITTEN)
        elif when != commit.author.partition("> ")[2]:
            yield _wrong(commit, f"was made again: its two times differ ({commit.subject})", REWRITTEN)
        if commit.others:
            words = f"has a header that agentfs does not write: {', '.join(commit.others)} ({commit.subject})"
            yield _wrong(commit, words, REWRITTEN)
        for run in by_run.keys() - set(named):
            yield _wrong(commit, f"is about {named[0]}, and changes {run}", REWRITTEN)
        numbers, run = commit.trailers.get("Agentfs-Revision", []), named[0]
        added = {one.path: one.new for one in by_run.get(run, [])}
        if numbers and len(named) == 1:
            yield from self._check_revision(commit, run, int(numbers[0]) if numbers[0].isdigit() else 0, added)
        elif "Agentfs-Outcome" in commit.trailers and len(named) == 1:
            if names.OUTCOME in added:
                yield from _check_words(commit, self._of_outcome(run, added[names.OUTCOME]))
            else:
                yield _wrong(commit, f"does not bring the outcome of {run}", REWRITTEN)
        elif commit.message not in (forgotten_message(named), as_it_stood_message(run)):
            yield _wrong(commit, f"says something that agentfs did not ({commit.subject})", REWRITTEN)

    def _check_revision(
        self, commit: LedgerCommit, run: str, number: int, added: dict[str, str]
    ) -> Iterator[Disagreement]:
        """The next revision, or one that was taken out before."""
        self.revisions += 1
        seen = self.runs[run]
        record = f"{names.REVISIONS}/{names.revision_file(number)}"
        plan = f"{names.REVISIONS}/{names.revision_plan_file(number)}"
        if number != seen.revisions + 1 and record not in seen.gone:
            words = f"is for revision {number} of {run}, after {seen.revisions}: one commit each, in order"
            yield _wrong(commit, words, REWRITTEN)
        seen.revisions = max(seen.revisions, number)
        if plan not in added or record not in added:
            yield _wrong(commit, f"does not bring revision {number} of {run}", REWRITTEN)
        elif added.get(names.PLAN, seen.plan) != added[plan]:
            yield _wrong(commit, f"has another plan.json than {run}/{plan}", REWRITTEN)
        else:
            yield from _check_words(commit, self._of_revision(commit, run, record, added[record]))

    # ── what a commit says, made again of its record ──────────────────────────────────────────────────────

    def _of_revision(self, commit: LedgerCommit, run: str, path: str, blob: str) -> list[tuple[str, str]]:
        """Return author and message; none: the record is another by now, which is reported elsewhere."""
        try:
            record = Revision.model_validate_json(self._read_committed(run, path, blob))
            usage = usage_of_call(self.ledger.root / run, record.call)
        except (ValidationError, OSError):
            return []
        address = commit.author.partition(" <")[2].partition(">")[0]
        author = author_of(record, (record.by.name, address))
        return [(signature(*author, moment(record.at)), revision_message(run, record, usage))]

    def _of_outcome(self, run: str, blob: str) -> list[tuple[str, str]]:
        """Return the same; two, for the first release counted steps in another way."""
        last = self.runs[run].revisions  # none: the run ended before it had a plan
        plan = self.ledger.root / run / names.REVISIONS / names.revision_plan_file(last)
        try:
            record = Outcome.model_validate_json(self._read_committed(run, names.OUTCOME, blob))
            steps = len(json.loads(read_whole(plan))["steps"]) if last else 0
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            return []
        author = signature(*AGENTFS, moment(record.ended_at))
        return [(author, form(run, record, in_plan=steps)) for form in (outcome_message, outcome_message_of_0_1)]

    def _read_committed(self, run: str, path: str, blob: str) -> bytes:
        """Return a file of a run if it is still what was committed; if not, nothing."""
        source = read_whole(self.ledger.root / run / path)
        return source if blob_sha(source) == blob else b""

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────

    def _check_changes(self, commit: LedgerCommit, run: str, changes: list[Change]) -> Iterator[Disagreement]:
        """What is written once is added once; taken out, it comes back as it was."""
        seen = self.runs[run]
        for one in changes:
            writing = names.writing_of(one.path)
            if one.path == names.PLAN:
                seen.plan = one.new if one.how != "D" else None
            if one.how != "D":
                yield from self._check_brought(commit, run, one)
            if writing == "once" and one.how == "D":
                seen.gone[one.path] = (one.old, commit.sha)
            elif writing == "once":
                before = seen.gone.pop(one.path, None)
                if one.how in ("T", "M") or (before and before[0] != one.new):
                    words = f"changes {run}/{one.path}, which is written once (by {commit.by})"
                    yield _wrong(commit, words, _REWRITTEN_FILE.replace("FILE", f"{run}/{one.path}"))
            elif writing == "by people" and one.how == "M":
                parent = commit.parents[0] if commit.parents else commit.sha
                if is_acted_upon(one.path, self._held_at(parent, [run])[run]):
                    yield _wrong(commit, f"changes {run}/{one.path}, which had been acted upon", _REWRITTEN_FILE)

    def _check_brought(self, commit: LedgerCommit, run: str, one: Change) -> Iterator[Disagreement]:
        """A revision comes with the commit that is its own, and so does an outcome."""
        if one.path in self.runs[run].gone or commit.message == as_it_stood_message(run):
            return
        folder, _, name = one.path.rpartition("/")
        revision = names.parse_revision_file(name) if folder == names.REVISIONS and one.how == "A" else None
        if revision and revision[1] == "record":
            what, own = f"revision {revision[0]}", commit.trailers.get("Agentfs-Revision") == [str(revision[0])]
        elif one.path == names.OUTCOME:
            what, own = "the outcome", "Agentfs-Outcome" in commit.trailers
        else:
            return
        if not own or commit.trailers.get("Agentfs-Run") != [run]:
            words = f"brings {what} of {run}, which has no commit of its own (by {commit.by})"
            yield _wrong(commit, words, REWRITTEN)


def _check_words(commit: LedgerCommit, expected: list[tuple[str, str]]) -> Iterator[Disagreement]:
    """A commit has the author, the time and the words that one of our releases makes of its record."""
    if not expected or (commit.author, commit.message) in [(who, commit_text(text)) for who, text in expected]:
        return
    author, message = expected[0]
    if commit.author != author:
        was, now = (one.replace(" <", " ").replace("> ", " ") for one in (author, commit.author))
        yield _wrong(commit, f"has another author than its record ({now}, not {was})", REWRITTEN)
    if commit.message != commit_text(message):
        yield _wrong(commit, f"says something else than its record ({commit.subject})", REWRITTEN)


def _by_run(changes: list[Change]) -> dict[str, list[Change]]:
    """Return the changes by the run they are in, with paths in its folder; a person's other files are left out."""
    found: dict[str, list[Change]] = {}
    for one in changes:
        day, name, below = [*one.path.split("/", 2), "", ""][:3]
        if below and names.is_run_id(f"{day}/{name}"):
            found.setdefault(f"{day}/{name}", []).append(Change(one.how, below, one.old, one.new))
    return found


def _wrong(commit: LedgerCommit, what: str, fix: str) -> Disagreement:
    return Disagreement("wrong", f"commit {commit.sha[:12]}", what, fix)

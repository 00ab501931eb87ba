"""One commit per revision, in order, saying what the revision says; nothing that was committed is rewritten.

Walks the chronicle once. Of each run it remembers how far it has come and what is missing, no more.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.agreement import Disagreement, is_settled
from agentfs.core.commit_messages import (
    AGENTFS,
    as_it_stood_message,
    author_of,
    forgotten_message,
    outcome_message,
    outcome_message_of_0_1,
    revision_message,
)
from agentfs.core.records import Answer, Outcome, Revision
from agentfs.disk import read_whole
from agentfs.ledger import history
from agentfs.ledger.trees import NewObject
from agentfs.owed import blob_sha
from agentfs.verifying.chronicle import Changed, Told

REWRITTEN = "history was rewritten: compare with a copy of runs/.git, and take that if it is whole"
PathsAt = Callable[[str, str], frozenset[str]]  # a commit, a run -> the paths it holds of it


@dataclass(slots=True)
class Life:
    """What the commits so far tell of one run."""

    revisions: int = 0
    plan: str | None = None  # blob of plan.json
    gone: dict[str, tuple[str, str]] = field(default_factory=dict)  # path -> its blob, and the commit that took it


@dataclass(slots=True)
class Story:
    """Takes in commits, the oldest first, and says in what each is not as agentfs made it."""

    runs: Path
    paths_at: PathsAt
    whole: bool = True  # all commits are told, not those of one run
    commits: int = 0
    revisions: int = 0
    lives: dict[str, Life] = field(default_factory=lambda: defaultdict(Life))
    _last: str | None = None

    def take(self, told: Told) -> Iterator[Disagreement]:
        self.commits += 1
        if not told.content:
            yield _wrong(told, "is missing or damaged", REWRITTEN)
            return
        yield from self._in_line(told)
        by_run = _by_run(told.changes)
        named = [run for run in told.trailers.get("Agentfs-Run", ()) if paths.is_run_id(run)]
        if named:
            yield from self._is_ours(told, named, by_run)
        for run, changes in by_run.items():
            yield from self._changed(told, run, changes)
            if self._is_over(told, run, changes):
                self.lives.pop(run, None)

    def left_out(self, run: str) -> Iterator[Disagreement]:
        """Yield what commits have taken out of a run, and none has brought back."""
        for path, (_, sha) in self.lives[run].gone.items() if run in self.lives else ():
            words = f"was taken out of the ledger by commit {sha[:12]}"
            yield Disagreement(
                "wrong", f"{run}/{path}", words, f"bring it back: git -C runs checkout {sha}^ -- {run}/{path}"
            )

    # ── one commit ────────────────────────────────────────────────────────────────────────────────────────

    def _in_line(self, told: Told) -> Iterator[Disagreement]:
        """Every commit but the first has one parent: the one before."""
        parents = told.parents
        if len(parents) > 1:
            yield _wrong(told, f"is a merge, by {told.who('author')[0]}: the history is not a line any more", _LINE)
        elif self.whole and self._last is not None and not parents:
            yield _wrong(told, "begins a second history beside the first", _LINE)
        elif self.whole and self._last is not None and parents != [self._last]:
            yield _wrong(told, f"does not follow on commit {self._last[:12]}: the history is not a line", _LINE)
        self._last = told.sha

    def _is_ours(self, told: Told, named: list[str], by_run: dict[str, list[Changed]]) -> Iterator[Disagreement]:
        """A commit that names a run was made by agentfs, of that run's files, and says what its record says."""
        committer = told.who("committer")
        if committer[:2] != history.COMMITTER:
            who = f"{committer[0]} <{committer[1]}>"
            yield _wrong(told, f"was made anew by {who}: rebased, amended or forged ({_subject(told)})", REWRITTEN)
        elif committer[2] != told.who("author")[2]:
            yield _wrong(told, f"was made anew: its two times differ ({_subject(told)})", REWRITTEN)
        for run in by_run.keys() - set(named):
            yield _wrong(told, f"is about {named[0]}, and changes {run}", REWRITTEN)
        numbers = told.trailers.get("Agentfs-Revision", [])
        if numbers and len(named) == 1:
            yield from self._revision(told, named[0], numbers, by_run.get(named[0], []))
        elif "Agentfs-Outcome" in told.trailers and len(named) == 1:
            yield from self._outcome(told, named[0], by_run.get(named[0], []))
        elif told.message not in (forgotten_message(named), as_it_stood_message(named[0])):
            yield _wrong(told, f"says something that agentfs did not ({_subject(told)})", REWRITTEN)

    def _revision(self, told: Told, run: str, numbers: list[str], changes: list[Changed]) -> Iterator[Disagreement]:
        """The next revision, or one that somebody had taken out."""
        self.revisions += 1
        life, number = self.lives[run], int(numbers[0]) if numbers[0].isdigit() else 0
        record, plan = paths.revision_file(number), paths.revision_plan_file(number)
        added = {one.path: one.new for one in changes}
        again = f"{paths.REVISIONS}/{record}" in life.gone
        if number != life.revisions + 1 and not again:
            yield _wrong(
                told,
                f"is for revision {number} of {run}, after {life.revisions}: one commit each, in order",
                REWRITTEN,
            )
        life.revisions = max(life.revisions, number)
        shown, copied = added.get(paths.PLAN, life.plan), added.get(f"{paths.REVISIONS}/{plan}")
        if copied is None or f"{paths.REVISIONS}/{record}" not in added:
            yield _wrong(told, f"does not bring revision {number} of {run}", REWRITTEN)
        elif shown != copied:
            yield _wrong(told, f"has another plan.json than {run}/revisions/{plan}", REWRITTEN)
        else:
            made = self._of_revision(told, run, number, added[f"{paths.REVISIONS}/{record}"])
            yield from self._says(told, [made] if made else [])

    def _outcome(self, told: Told, run: str, changes: list[Changed]) -> Iterator[Disagreement]:
        added = {one.path: one.new for one in changes}
        if paths.OUTCOME not in added:
            yield _wrong(told, f"does not bring the outcome of {run}", REWRITTEN)
        else:
            yield from self._says(told, self._of_outcome(told, run, added[paths.OUTCOME]))

    def _says(self, told: Told, made: Sequence[NewObject]) -> Iterator[Disagreement]:
        """A commit is, byte for byte, what one of our releases makes of its record; none: that is another by now."""
        if not made or told.content in [one.content for one in made]:
            return
        expected = Told(told.sha, made[0].content, ())
        for role in ("author", "committer"):
            if told.who(role) != expected.who(role):
                was, is_ = " ".join(expected.who(role)), " ".join(told.who(role))
                yield _wrong(told, f"has another {role} than its record ({is_}, not {was})", REWRITTEN)
        if told.message != expected.message:
            yield _wrong(told, f"says something else than its record ({_subject(told)})", REWRITTEN)
        elif told.who("author") == expected.who("author") and told.who("committer") == expected.who("committer"):
            yield _wrong(told, "has fields that agentfs did not write", REWRITTEN)

    # ── a commit made again of its record ─────────────────────────────────────────────────────────────────

    def _of_revision(self, told: Told, run: str, number: int, blob: str) -> NewObject | None:
        source = self._committed(run, f"{paths.REVISIONS}/{paths.revision_file(number)}", blob)
        try:
            record = Revision.model_validate_json(source or b"")
            answer = self._answer(run, record)
        except (ValidationError, OSError):
            return None
        author = author_of(record, (record.by.name, told.who("author")[1]))
        message = revision_message(run, record, answer.usage if answer else None)
        return _made(told, author, record.at, message)

    def _answer(self, run: str, record: Revision) -> Answer | None:
        if record.call is None:
            return None
        path = self.runs / run / paths.PLANNING / paths.call_file(record.call, "answer")
        return Answer.model_validate_json(read_whole(path))

    def _of_outcome(self, told: Told, run: str, blob: str) -> list[NewObject]:
        source = self._committed(run, paths.OUTCOME, blob)
        last = self.lives[run].revisions  # none: the run ended before it had a plan
        plan = self.runs / run / paths.REVISIONS / paths.revision_plan_file(last)
        try:
            record = Outcome.model_validate_json(source or b"")
            steps = len(json.loads(read_whole(plan))["steps"]) if last else 0
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            return []
        messages = (form(run, record, in_plan=steps) for form in (outcome_message, outcome_message_of_0_1))
        return [_made(told, AGENTFS, record.ended_at, message) for message in messages]

    def _committed(self, run: str, path: str, blob: str) -> bytes | None:
        """Return a file of a run if it is still what was committed; if not, that is told elsewhere."""
        try:
            source = read_whole(self.runs / run / path)
        except OSError:
            return None
        return source if blob_sha(source) == blob else None

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────

    def _changed(self, told: Told, run: str, changes: list[Changed]) -> Iterator[Disagreement]:
        """What is written once is added once; taken out, it comes back as it was."""
        life = self.lives[run]
        for one in changes:
            if one.path == paths.PLAN:
                life.plan = one.new if one.how != "D" else None
            if one.how != "D":
                yield from self._brought(told, run, one)
            if paths.writing_of(one.path) == "once":
                yield from _written_once(told, run, one, life)
            elif paths.writing_of(one.path) == "by people" and one.how == "M":
                before = told.parents[0] if told.parents else told.sha
                if is_settled(one.path, self.paths_at(before, run)):
                    yield _wrong(told, f"changes {run}/{one.path}, which had been acted upon", _REWRITTEN_FILE)

    def _brought(self, told: Told, run: str, one: Changed) -> Iterator[Disagreement]:
        """A revision comes with the commit that is its own, and so does an outcome."""
        if one.path in self.lives[run].gone or told.message == as_it_stood_message(run):
            return
        folder, _, name = one.path.rpartition("/")
        revision = paths.parse_revision_file(name) if folder == paths.REVISIONS and one.how == "A" else None
        if revision and revision[1] == "record":
            what, own = f"revision {revision[0]}", told.trailers.get("Agentfs-Revision") == [str(revision[0])]
        elif one.path == paths.OUTCOME:
            what, own = "the outcome", "Agentfs-Outcome" in told.trailers
        else:
            return
        if not own or told.trailers.get("Agentfs-Run") != [run]:
            who = told.who("author")[0]
            yield _wrong(told, f"brings {what} of {run}, which has no commit of its own (by {who})", REWRITTEN)

    def _is_over(self, told: Told, run: str, changes: list[Changed]) -> bool:
        """Whether a run has left the tree whole: it was forgotten, or a person took it out. Its name is free."""
        return all(one.how == "D" for one in changes) and not self.paths_at(told.sha, run)


_LINE = "nothing is lost by it; `git -C runs log --graph` shows where. agentfs itself never merges"
_REWRITTEN_FILE = "`git -C runs log -p -- FILE` shows what it was, and who changed it"


def _written_once(told: Told, run: str, one: Changed, life: Life) -> Iterator[Disagreement]:
    if one.how == "D":
        life.gone[one.path] = (one.old, told.sha)
        return
    before = life.gone.pop(one.path, None)
    if one.how in ("T", "M") or (before and before[0] != one.new):
        who = told.who("author")[0]
        words = f"changes {run}/{one.path}, which is written once (by {who})"
        yield _wrong(told, words, _REWRITTEN_FILE.replace("FILE", f"{run}/{one.path}"))


def _by_run(changes: tuple[Changed, ...]) -> dict[str, list[Changed]]:
    """Return the changes by the run they are in, with paths in its folder; a person's other files are left out."""
    found: dict[str, list[Changed]] = {}
    for one in changes:
        day, name, below = [*one.path.split("/", 2), "", ""][:3]
        if below and paths.is_run_id(f"{day}/{name}"):
            found.setdefault(f"{day}/{name}", []).append(Changed(one.how, below, one.old, one.new))
    return found


def _made(told: Told, author: tuple[str, str], at: str, message: str) -> NewObject:
    parent = next(iter(told.parents), None)
    return history.encode(told.tree, parent, author, datetime.fromisoformat(at).astimezone(UTC), message)


def _subject(told: Told) -> str:
    return told.message.partition("\n")[0]


def _wrong(told: Told, what: str, fix: str) -> Disagreement:
    return Disagreement("wrong", f"commit {told.sha[:12]}", what, fix)

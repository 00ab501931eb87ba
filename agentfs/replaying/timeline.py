"""In which order a recorded run happened. Pure: a recording in, events out.

What happened has a time where a record or a log tells one, and comes after what it rests on: an order after the
results it names, a call after its evidence, a revision after the answer it is of. A person's act has no time of its
own: it comes just before the first thing that could not have been without it. One that led to nothing is left out.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentfs.core import paths
from agentfs.core.records import Revision
from agentfs.questions import ASK_LINE
from agentfs.reader import KEY_LINE
from agentfs.replaying.recording import RecordedAttempt, Recording

Name = tuple[str, ...]  # what an event is called, so that others can come after it
CUT_MESSAGE = "agentfs was ended before this attempt could settle"


@dataclass(frozen=True, slots=True)
class Put:
    """A person drops a file."""

    path: str
    content: bytes
    after: str | None = None  # the question it answers, which must stand


@dataclass(frozen=True, slots=True)
class Edit:
    """A person saves plan.json: it becomes this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class EditGoal:
    """A person saves the goal."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Made:
    """agentfs writes a file by its own decision: an order, a call, a revision, a question, the outcome."""

    path: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Work that was under way comes to an end, or to a question; its file appears."""

    job: tuple[str, str, int]
    path: str


@dataclass(frozen=True, slots=True)
class Died:
    """The driver is ended, and another takes over: it settles this."""

    job: tuple[str, str, int]
    path: str


Event = Put | Edit | EditGoal | Made | Settled | Died


@dataclass(slots=True)
class _Moment:
    event: Event
    at: str  # "": as soon as what it rests on is there
    rank: int  # among those of one moment
    after: set[Name] = field(default_factory=set)


ACT, MADE, ENDED = 0, 1, 2
LAST = "9"  # later than any time


def timeline(recording: Recording) -> list[Event]:
    """Return everything that happened, in order."""
    moments = _Moments(recording)
    moments.gather()
    return moments.in_order()


class _Moments:
    """Collects what happened, then puts it in order."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.found: dict[Name, _Moment] = {}

    def gather(self) -> None:
        for revision in self.recording.revisions.values():
            self._revision(revision.record)
        for key, attempt in self.recording.attempts.items():
            self._attempt(*key, attempt)
        for number in self.recording.calls:
            self._call(number)
        if self.recording.outcome is not None:
            everything = {*self.found}
            self._add(("outcome",), Made(paths.OUTCOME), LAST, MADE, everything)
        for key, attempt in self.recording.attempts.items():
            self._acts_on_attempt(*key, attempt)
        for number in self.recording.calls:
            self._acts_on_call(number)
        self._goals()

    def _add(self, name: Name, event: Event, at: str, rank: int, after: set[Name]) -> None:
        self.found[name] = _Moment(event, at, rank, after)

    def _act(self, name: Name, event: Event, before: Name) -> None:
        """Put an act just before something; after all that this something rests on."""
        later = self.found.get(before)
        if later is not None:
            self._add(name, event, later.at, ACT, later.after - {name})
            later.after.add(name)

    # ── what agentfs did ────────────────────────────────────────────────────────────────────────────────

    def _revision(self, record: Revision) -> None:
        number, path = record.revision, f"{paths.REVISIONS}/{paths.revision_file(record.revision)}"
        after: set[Name] = {("revision", str(number - 1))}
        if record.call is None:
            self._add(("edit", str(number)), Edit(number), record.at, ACT, after)
            after = {("edit", str(number))}
        else:
            after.add(("answer", str(record.call)))
        self._add(("revision", str(number)), Made(path), record.at, MADE, after)

    def _attempt(self, step: str, number: int, attempt: RecordedAttempt) -> None:
        whose = paths.conversation(step, number)
        order, result, tape = attempt.order, attempt.result, self.recording.tape(whose)
        if order is not None:
            path = f"{paths.STEPS}/{paths.step_file(step, number, 'order')}"
            before = {("revision", str(order.revision)), ("result", step, str(number - 1))}
            after: set[Name] = {*before, *(("result", name, str(n)) for name, n in order.after.items())}
            self._add(("order", step, str(number)), Made(path), order.issued_at, MADE, after)
        began: set[Name] = {("order", step, str(number))}
        for count, at in tape.questions.items():
            asked = f"{paths.STEPS}/{paths.step_file(step, number, 'question', count)}"
            event = Settled(("attempt", step, number), asked)
            self._add(("asked", step, str(number), str(count)), event, at, ENDED, {*began})
            began.add(("asked", step, str(number), str(count)))
        if result is None:
            return
        path = f"{paths.STEPS}/{paths.step_file(step, number, 'result')}"
        cut = attempt.claimed and result.error is not None and result.error.message == CUT_MESSAGE
        settled = Died(("attempt", step, number), path) if cut else Settled(("attempt", step, number), path)
        at = result.ended_at if cut else max(result.ended_at, tape.ended)  # the log ends when the result is safe
        self._add(("result", step, str(number)), settled, at, ENDED, began)

    def _call(self, number: int) -> None:
        one, tape = self.recording.calls[number], self.recording.tape(paths.call_conversation(number))
        if one.checks is not None:
            self._checks(number)
        if one.call is None:
            return
        path = f"{paths.PLANNING}/{paths.call_file(number, 'call')}"
        after: set[Name] = {("answer", str(number - 1)), ("revision", str(one.call.revision))}
        after |= {name for evidence in one.call.evidence for name in _named(evidence)}
        self._add(("call", str(number)), Made(path), tape.began or self._installed(number), ACT, after)
        if one.answer is None:
            return
        path = f"{paths.PLANNING}/{paths.call_file(number, 'answer')}"
        job, mine = ("call", "", number), {("call", str(number))}
        if one.answer.verdict == "interrupted" and one.answer.error and one.answer.error.message == CUT_MESSAGE:
            next_one = self.recording.tape(paths.call_conversation(number + 1))
            self._add(("answer", str(number)), Died(job, path), next_one.began or tape.ended, ACT, {*mine})
        else:
            self._add(("answer", str(number)), Settled(job, path), tape.ended, ENDED, {*mine})

    def _installed(self, number: int) -> str:
        """Return when the plan of a call that no model answered was put into place: at once."""
        revisions = (one.record for one in self.recording.revisions.values())
        return next((record.at for record in revisions if record.call == number), "")

    def _checks(self, number: int) -> None:
        checks = self.recording.calls[number].checks
        if checks is None:
            return
        path = f"{paths.PLANNING}/{paths.call_file(number, 'checks')}"
        after: set[Name] = {("result", step, str(attempt)) for step, attempt in checks.after.items()}
        after |= {("revision", str(checks.revision)), ("answer", str(number - 1)), ("checks", str(number - 1))}
        tape = self.recording.tape(f"{paths.call_conversation(number)}.checks")
        self._add(("checks", str(number)), Settled(("checks", "", number), path), tape.ended, ENDED, after)

    # ── what people did ─────────────────────────────────────────────────────────────────────────────────

    def _acts_on_attempt(self, step: str, number: int, attempt: RecordedAttempt) -> None:
        for count, talk in attempt.talks.items():
            question = f"{paths.STEPS}/{paths.step_file(step, number, 'question', count)}"
            before = self._settled_by(step, number, count, talk.question)
            if talk.reply is not None and before is not None:
                path = f"{paths.STEPS}/{paths.step_file(step, number, 'reply', count)}"
                self._act(("reply", step, str(number), str(count)), Put(path, talk.reply, question), before)
            elif ("asked", step, str(number), str(count)) not in self.found:
                everything = {*self.found}
                self._add(("question", step, str(number), str(count)), Made(question), LAST, MADE, everything)
        if attempt.again is not None and (anew := self._after_again(step, number)):
            path = f"{paths.STEPS}/{paths.step_file(step, number, 'again')}"
            self._act(("again", step, str(number)), Put(path, attempt.again), anew)

    def _settled_by(self, step: str, number: int, count: int, question: str) -> Name | None:
        """Return the first thing that could not have been without an answer to this question."""
        mine, next_one = (step, str(number)), (step, str(number + 1))
        if question.rstrip().endswith(ASK_LINE):
            wanted: list[Name] = [("asked", *mine, str(count + 1)), ("result", *mine)]
        elif KEY_LINE.search(question):
            wanted = [("order", *mine), ("result", *mine)]
        else:
            wanted = [("order", *next_one), ("result", *next_one)]
        return next((name for name in wanted if name in self.found), None)

    def _after_again(self, step: str, number: int) -> Name | None:
        """Return what followed from setting an attempt aside: another try, else whatever came next."""
        for kind in ("order", "result"):  # one that could not start has a result only
            if (kind, step, str(number + 1)) in self.found:
                return (kind, step, str(number + 1))
        result = self.recording.attempts[step, number].result
        return self._next(result.ended_at) if result else None

    def _next(self, at: str) -> Name | None:
        """Return the first thing that agentfs decided after a moment, other than to end."""
        later = [
            (one.at, name)
            for name, one in self.found.items()
            if isinstance(one.event, Made) and name != ("outcome",) and one.at > at
        ]
        return min(later)[1] if later else None

    def _acts_on_call(self, number: int) -> None:
        one, mine = self.recording.calls[number], str(number)
        if one.asked is not None:
            self._act(("replan", mine), Put(paths.REPLAN, one.asked), ("call", mine))
        if one.again is not None:
            path = f"{paths.PLANNING}/{paths.call_file(number, 'again')}"
            later = [(n, kind) for n in self.recording.calls for kind in ("checks", "call") if n > number]
            anew = next(((kind, str(n)) for n, kind in later if (kind, str(n)) in self.found), None)
            if anew is not None:
                self._act(("again", mine), Put(path, one.again), anew)
        if not one.replies:
            return
        count, reply = max(one.replies.items(), key=lambda asked: asked[0])  # the last one was decided
        question = f"{paths.PLANNING}/{paths.call_file(number, 'question', count)}"
        before = self._decided_by(number)
        if reply is not None and before is not None:
            path = f"{paths.PLANNING}/{paths.call_file(number, 'reply', count)}"
            self._act(("reply", mine), Put(path, reply, question), before)
        else:
            self._add(("question", mine), Made(question), LAST, MADE, {*self.found})

    def _decided_by(self, number: int) -> Name | None:
        """Return what a person's yes or no to an answer led to."""
        for revision in self.recording.revisions.values():
            if revision.record.call == number:
                return ("revision", str(revision.record.revision))
        later = [n for n in self.recording.calls if n > number and ("call", str(n)) in self.found]
        if later:
            return ("call", str(min(later)))
        return ("outcome",) if self.recording.outcome else None

    def _goals(self) -> None:
        """Put each edit of the goal before the first call that was given it, or before the answer it overtook."""
        applied = {revision.record.call for revision in self.recording.revisions.values()}
        before = None
        for number, one in self.recording.calls.items():
            if one.call is None:
                continue
            if before is not None and before.goal_sha256 != one.call.goal_sha256:
                answer = self.recording.calls[before.call].answer
                overtaken = answer is not None and answer.plan is not None and before.call not in applied
                place = ("answer", str(before.call)) if overtaken else ("call", str(number))
                self._act(("goal", str(number)), EditGoal(one.call.goal_sha256), place)
            before = one.call

    # ── order ───────────────────────────────────────────────────────────────────────────────────────────

    def in_order(self) -> list[Event]:
        """Return the events by time, each after what it rests on."""
        waits = {name: {other for other in one.after if other in self.found} for name, one in self.found.items()}
        follows: dict[Name, list[Name]] = {}
        for name, others in waits.items():
            for other in others:
                follows.setdefault(other, []).append(name)
        ready = [self._place(name) for name, others in waits.items() if not others]
        heapq.heapify(ready)
        ordered: list[Event] = []
        while ready:
            name = heapq.heappop(ready)[-1]
            ordered.append(self.found[name].event)
            for later in follows.get(name, ()):
                waits[later].discard(name)
                if not waits[later]:
                    heapq.heappush(ready, self._place(later))
        left = sorted(
            self._place(name) for name, others in waits.items() if others
        )  # times that cannot be: a clock was set
        return ordered + [self.found[name].event for *_, name in left]

    def _place(self, name: Name) -> tuple[str, int, Name]:
        one = self.found[name]
        return one.at, one.rank, name


def _named(evidence: str) -> Iterator[Name]:
    """Yield what a path in a call's evidence is called here."""
    folder, _, name = evidence.partition("/")
    if folder == paths.STEPS and (step := paths.parse_step_file(name)):
        yield (step.kind, step.step, str(step.attempt))
    if folder == paths.PLANNING and (call := paths.parse_call_file(name)):
        yield (call.kind, str(call.call))

"""Read the files of one run into facts. Reads only; remembers what can no longer change."""

import contextlib
import errno
import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue, ValidationError

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.each import listed_step
from agentfs.core.facts import (
    DEEPEST,
    RUN,
    Above,
    Attempt,
    Child,
    Facts,
    GoalFile,
    PlanFile,
    PlannerCall,
    Talk,
)
from agentfs.core.goal_file import MAX_BYTES
from agentfs.core.hashing import sha256_bytes
from agentfs.core.planner_calls import rejected_steps, waiting_answer
from agentfs.core.problems import Problem, Rejected
from agentfs.core.records import Answer, Call, GoalChecks, Order, Outcome, Plan, Record, Result, Revision, Run, Tools
from agentfs.core.steps import latest_made, result_path
from agentfs.engine.means import FileJudge, judge_for
from agentfs.errors import NotARun
from agentfs.executor.attempt_log import answers_in, child_in, claim_in
from agentfs.executor.questions import ASK_LINE
from agentfs.storage.completeness import Completeness
from agentfs.storage.files import listing, read_output, read_whole, signature
from agentfs.storage.plan_files import LostPlan, PastPlans
from agentfs.storage.safe_open import MOST_RECORD, NotRegular, read_regular, read_text
from agentfs.storage.workspace import goal_path
from agentfs.tools.registry import Known

if TYPE_CHECKING:
    from agentfs.core.facts import Proposal

R = TypeVar("R", bound=Record)
Shape = frozenset[paths.Trace]  # which files an attempt has
KEY_LINE = re.compile(r"^<!-- key: ([0-9a-f]{64}) -->\n?\Z", re.MULTILINE)  # the last line: anything may be above it


@dataclass(slots=True)
class RunReader:
    """Reads one run's folder, again and again."""

    folder: Path
    judge: FileJudge
    completeness: Completeness = field(default_factory=Completeness)
    patient: bool = True  # wait until a person's file is complete; False: take it as it is
    above: Above | None = None  # what the runs above hold it to, where they are not there to be read
    restless: bool = False  # something is still being written: look again soon
    _plan: PlanFile = field(default_factory=PlanFile)
    _plan_signature: object = None
    goals: dict[str, bytes] = field(default_factory=dict)  # every text of the goal that was good, by its sha256
    _goal: GoalFile | None = None
    _seen_goal: str = ""  # the hash of what was judged last, good or not
    _accepted: tuple[str, Plan] | None = None  # the last revision's plan
    _groups: dict[tuple[str, int], tuple[Shape, Attempt]] = field(default_factory=dict)
    _proposal: "Proposal | None" = None
    _rests_on: tuple[object, ...] | None = None  # the answer, the revisions and the rejections that it rests on
    _lost: str | None = None  # why there is none
    _lists: dict[str, JsonValue] = field(default_factory=dict)  # outputs that were cut, whole, by their results
    _gone_through: tuple[Plan | None, tuple[str, ...]] = (None, ())  # the steps whose output is a list for others
    past: PastPlans = field(init=False)

    def __post_init__(self) -> None:
        self.past = PastPlans(self.folder)

    # ── all of it ───────────────────────────────────────────────────────────────────────────────────────

    def read(self, before: Facts | None = None) -> Facts:
        """Return what the folder says now. What equals `before` stays identical to it: deriving is cheap then."""
        self.restless = False
        broken: list[str] = []
        run = before.run if before else self._run(broken)
        revisions, plan = self._revisions(before, broken)
        if revisions and plan:
            self._accepted = (revisions[-1].plan_sha256, plan)
        calls = self._calls(before, broken)
        ours = {revision.plan_sha256 for revision in revisions}.union(*(one.tries for one in calls))
        facts = Facts(
            run=run,
            goal=self.goal({one.call.goal_sha256 for one in calls if one.call}, plan.tools if plan else None),
            plan_file=self.plan_file(ours, planned=bool(revisions)),
            plan=plan,
            revisions=revisions,
            calls=calls,
            attempts=self._attempts(before, broken),
            outcome=self._record(paths.OUTCOME, Outcome, broken),
            notes=self._notes(),
            replan=self._reply(paths.REPLAN),
            asking=self.is_coming(self.folder / paths.REPLAN),
            broken=tuple(broken),
            above=self._above(run),
            held=before.held if before else frozenset(),
        )
        return self.judged(self.judge.with_answers(facts))

    def _with_lists(self, facts: Facts) -> Facts:
        """Return the facts with the whole of each output that was cut and that a step goes through."""
        if facts.plan is not self._gone_through[0]:
            steps = facts.plan.steps if facts.plan else ()
            lists = [listed_step(step) for step in steps if step.each is not None]
            self._gone_through = facts.plan, tuple(listed for listed in lists if listed)
        wanted: dict[str, JsonValue] = {}
        for listed in self._gone_through[1]:
            last = latest_made(facts.attempts.get(listed, ()))
            if last.result and last.result.cut:
                path = result_path(listed, last.number)
                wanted[path] = self._lists[path] if path in self._lists else self._whole(listed, last)
        self._lists = wanted
        return facts if facts.whole == wanted else replace(facts, whole=wanted)

    def _whole(self, step: str, attempt: Attempt) -> JsonValue:
        name = paths.step_file(step, attempt.number, "output")
        whole: JsonValue = attempt.result.output if attempt.result else None
        with contextlib.suppress(OSError):
            whole = read_output(self.folder / paths.STEPS / name)
        return whole

    def judged(self, facts: Facts) -> Facts:
        """Return the facts with what the answer that is not in effect comes to, on top of the plan as it is."""
        facts, one = self._with_lists(facts), waiting_answer(facts)
        rests_on = (one.answer, facts.revisions, rejected_steps(facts)) if one and one.call else None
        if rests_on != self._rests_on or self._lost:  # what is lost may be taken back at any time
            self._rests_on, self._lost = rests_on, None
            try:
                self._proposal = self._propose(one, one.call, facts) if one and one.call else None
            except LostPlan as lost:
                self._proposal, self._lost = None, str(lost)
        if self._lost and self._lost not in facts.broken:
            facts = replace(facts, broken=(*facts.broken, self._lost))
        return facts if facts.proposal is self._proposal else replace(facts, proposal=self._proposal)

    def _propose(self, one: PlannerCall, call: Call, facts: Facts) -> "Proposal":
        """Return what a waiting answer comes to; raise LostPlan for what of the run's past does not read."""
        from agentfs.core.plan_merge import propose

        base = self._grown_from(call, facts)
        hand_edits = {} if facts.goal.has_steps else self.past.hand_edits(facts.revisions, facts.plan)
        return propose(one, facts, base, hand_edits, self.judge.plan)

    def _grown_from(self, call: Call, facts: Facts) -> Plan | None:
        """Return the plan that an answer grew from, if that is not the one in force.

        A planner was given a plan. An edited goal's own steps know nothing of what people made of the plan.
        """
        if facts.goal.has_steps:
            return self.past.unedited(facts.revisions) if call.trigger == "goal_changed" else None
        current = facts.revisions[-1].plan_sha256 if facts.revisions else None
        return self.past.plan(call.revision) if call.base_sha256 != current else None

    # ── what people write ───────────────────────────────────────────────────────────────────────────────

    def goal(self, planned: Collection[str] = (), own_tools: Tools | None = None) -> GoalFile:
        """Return the goal; the last good one, with its problems, if it no longer parses.

        `planned`: hashes of the goals that a planner has been given. Their steps have been checked before.
        `own_tools`: what the plan in force says of the run's tools.
        """
        try:
            path = goal_path(self.folder)
        except NotARun:
            if self._goal is None:
                raise
            self.restless = True  # some editors remove a file before they write it again
            return self._with_problem(self._goal, "there is no goal file")
        try:
            source = read_regular(path, MAX_BYTES)
        except OSError as error:
            return self._last_good_goal(path, error)
        digest = sha256_bytes(source)
        if self._goal and (digest == self._seen_goal or not self._complete(path)):
            return self._goal
        self._seen_goal = digest
        try:
            self._goal = self.judge.goal(source, path.name, planned=digest in planned, own_tools=own_tools)
            self.goals[self._goal.sha256] = source
        except Rejected as rejected:
            valid = self._goal or self._planned_goal(path.name, planned, own_tools) or GoalFile(digest, "", path.stem)
            self._goal = replace(valid, problems=rejected.problems)
        return self._goal

    def _planned_goal(self, name: str, planned: Collection[str], own_tools: Tools | None) -> GoalFile | None:
        """Return the last committed goal that a planner was given; for a reader that has seen no valid one."""
        for source in self._committed(name) if planned else ():
            if (digest := sha256_bytes(source)) in planned:
                self.goals[digest] = source
                with contextlib.suppress(Rejected):
                    return self.judge.goal(source, name, planned=True, own_tools=own_tools)
        return None

    def _committed(self, name: str) -> Iterator[bytes]:
        """Yield what a file of the run held in the ledger, newest first; nothing where that does not read."""
        from agentfs.ledger import Ledger, LedgerError

        with contextlib.suppress(LedgerError, OSError):
            yield from Ledger(self.folder.parents[1]).versions(paths.run_id(self.folder), name)

    def _last_good_goal(self, path: Path, error: OSError) -> GoalFile:
        """Return the goal as it was, with what is wrong with the file that is in its place now."""
        if isinstance(error, BlockingIOError) and self._goal:
            self.restless = True  # another process holds a lease on it: it is not done
            return self._goal
        words = "it is larger than 1 MiB" if error.errno == errno.EFBIG else str(error.strerror)
        if self._goal is None:
            raise NotARun(f"{path}: {words} (put the goal itself there)") from None
        return self._with_problem(self._goal, words)

    def _with_problem(self, last_good: GoalFile, words: str) -> GoalFile:
        """Return the last good goal with what is wrong with the file now; whatever comes next is judged again."""
        problems = (Problem(words, "put the goal itself there"),)
        if last_good.problems != problems:
            self._goal, self._seen_goal = replace(last_good, problems=problems), ""
        return self._goal or last_good

    def plan_file(self, ours: Collection[str], *, planned: bool) -> PlanFile:
        """Return plan.json as it is, once its writer has finished; what is ours was written whole.

        `planned`: there is a revision. Before the first one there may well be no plan.json yet.
        """
        path = self.folder / paths.PLAN
        found = signature(path)
        if found is not None and found == self._plan_signature:
            return self._plan
        if found is None:
            self._plan, self._plan_signature = _missing_plan(path, expected=planned), None
            return self._plan
        try:
            source = read_whole(path)
        except BlockingIOError:  # its writer holds a lease
            self.restless = True
            return replace(self._plan, being_saved=True)
        except NotRegular as error:
            problem = Problem(
                f"plan.json cannot be read: {error.strerror}", "put a plan there, or restore the last one"
            )
            self._plan, self._plan_signature = PlanFile(None, None, (problem,)), found
            return self._plan
        digest = sha256_bytes(source)
        if digest != self._plan.sha256 and digest not in ours and not self._complete(path):
            return replace(self._plan, being_saved=True)  # what stood there before still holds
        self._plan, self._plan_signature = self._judged_plan(source, digest), found
        return self._plan

    def _notes(self) -> dict[str, str]:
        found = {}
        for name in (paths.PLAN_ERROR, paths.GOAL_ERROR):
            with contextlib.suppress(OSError):
                found[name] = read_text(self.folder / name)
        return found

    def _judged_plan(self, source: bytes, digest: str) -> PlanFile:
        if digest == self._plan.sha256:
            return self._plan
        if self._accepted and self._accepted[0] == digest and self.judge.still_fits(self._accepted[1]):
            return PlanFile(digest, self._accepted[1])
        try:
            return PlanFile(digest, self.judge.plan(source))
        except Rejected as rejected:
            return PlanFile(digest, None, rejected.problems)

    def _complete(self, path: Path) -> bool:
        if not self.patient or self.completeness.is_complete(path):
            return True
        self.restless = True
        return False

    # ── what agentfs writes ─────────────────────────────────────────────────────────────────────────────

    def _record(self, name: str, kind: type[R], broken: list[str]) -> R | None:
        try:
            source = read_whole(f"{self.folder}/{name}")
        except FileNotFoundError:
            return None
        except OSError as error:
            broken.append(f"{name} cannot be read: {error.strerror}")
            return None
        try:
            return kind.model_validate_json(source)
        except ValidationError as error:
            first = error.errors()[0]
            where = "/".join(str(part) for part in first["loc"]) or "the file"
            broken.append(
                f"{name} is not valid ({where}: {first['msg']}): take it back from the ledger, or delete it"
            )
            return None

    def _run(self, broken: list[str]) -> Run:
        """Return how the run began, under the name it has by now: the folder's, whatever it was called then."""
        run = self._record(paths.RUN, Run, broken)
        if run is None:
            raise NotARun(f"{self.folder}: {broken[0] if broken else 'there is no run.json'}")
        here = paths.run_id(self.folder)
        return run if run.run == here or not paths.is_run_id(here) else run.model_copy(update={"run": here})

    def _revisions(self, before: Facts | None, broken: list[str]) -> tuple[tuple[Revision, ...], Plan | None]:
        listed = listing(self.folder / paths.REVISIONS)
        numbers = sorted(p[0] for n in listed if (p := paths.parse_revision_file(n)) and p[1] == "record")
        if before and len(numbers) == len(before.revisions):
            return before.revisions, before.plan
        folder = paths.REVISIONS
        read = [self._record(f"{folder}/{paths.revision_file(n)}", Revision, broken) for n in numbers]
        revisions = tuple(revision for revision in read if revision)
        if not revisions:
            return (), None
        name = f"{folder}/{paths.revision_plan_file(revisions[-1].revision)}"
        return revisions, self._record(name, Plan, broken)

    def _calls(self, before: Facts | None, broken: list[str]) -> tuple[PlannerCall, ...]:
        groups: dict[int, list[paths.CallFile]] = {}
        for name in listing(self.folder / paths.PLANNING):
            if found := paths.parse_call_file(name):
                groups.setdefault(found.call, []).append(found)
        calls = tuple(self._call(number, groups[number], broken) for number in sorted(groups))
        return before.calls if before and before.calls == calls else calls

    def _call(self, number: int, files: list[paths.CallFile], broken: list[str]) -> PlannerCall:
        def path(kind: paths.CallFileKind, count: int = 1) -> str:
            return paths.call_path(number, kind, count)

        kinds = {file.kind for file in files}
        files = sorted(files, key=lambda file: file.nth)
        tries = [file.nth for file in files if file.kind == "plan"]
        return PlannerCall(
            number,
            call=self._record(path("call"), Call, broken) if "call" in kinds else None,
            answer=self._record(path("answer"), Answer, broken) if "answer" in kinds else None,
            tries=tuple(sha256_bytes(read_whole(self.folder / path("plan", count))) for count in tries),
            talks=tuple(self._answer_talk(number, file.nth) for file in files if file.kind == "question"),
            checks=self._record(path("checks"), GoalChecks, broken) if "checks" in kinds else None,
            again="again" in kinds,
            words=self._read_reply(self.folder / path("asked"))
            if "asked" in kinds
            else None,  # it was complete when taken
        )

    def _attempts(self, before: Facts | None, broken: list[str]) -> dict[str, tuple[Attempt, ...]]:
        groups = paths.by_attempt(listing(self.folder / paths.STEPS))
        by_step: dict[str, list[Attempt]] = {}
        for step, number in sorted(groups):
            known = before.attempt(step, number) if before else None
            by_step.setdefault(step, []).append(self._attempt(step, number, groups[step, number], broken, known))
        found_all = {step: tuple(attempts) for step, attempts in by_step.items()}
        if before is None:
            return found_all
        old = before.attempts  # identical where equal: deriving looks only at what is not
        return {step: old[step] if old.get(step) == mine else mine for step, mine in found_all.items()}

    def _attempt(
        self, step: str, number: int, files: list[paths.Trace], broken: list[str], before: Attempt | None
    ) -> Attempt:
        shape = frozenset(files)
        known = self._groups.get((step, number))
        if known and known[0] == shape and known[1].result is not None and not known[1].talks:
            return known[1]
        if shape == _CARRIED_OUT and before and before.result and before.claimed:
            self._groups[step, number] = (shape, before)
            return before  # its files are of our own making, and written once
        path = paths.step_path(step, number, "result")
        result = self._record(path, Result, broken) if ("result", 1) in shape else None
        done = result is not None and result.status == "done"  # it needs no other file: its order is not read
        order, torn = self._order(step, number) if ("order", 1) in shape and not done else (None, False)
        if torn and result is None:
            self.restless = True  # it may still be being written
        claimed, log = ("log", 1) in shape, self.folder / paths.STEPS / paths.step_file(step, number, "log")
        may_be_run = order is None or order.tool == RUN
        attempt = Attempt(
            number,
            order=order,
            torn=torn,
            claimed=claimed,
            claim=claim_in(log) if claimed and order is None and result is None else None,
            result=result,
            talks=self._talks(step, number, files, finished=result is not None),
            again=("again", 1) in shape,
            child=self._child(log) if claimed and result is None and may_be_run else None,
        )
        self._groups[step, number] = (shape, attempt)
        return attempt

    def _child(self, log: Path) -> Child | None:
        """Return the run that an unfinished attempt is, by its log, as far as that has come."""
        named = child_in(log)
        if named is None:
            return None
        run, begun = named
        folder = self.folder.parents[1] / run
        outcome = None
        with contextlib.suppress(OSError, ValidationError):
            outcome = Outcome.model_validate_json(read_whole(folder / paths.OUTCOME))
        return Child(run, begun, (folder / paths.RUN).is_file(), outcome)

    def _above(self, run: Run) -> Above | None:
        """Return what the runs that this one is in hold it to; one that has ended holds nothing."""
        found = self.above
        for _ in range(DEEPEST):
            if run.parent is None or not paths.is_run_id(run.parent.run):
                break
            folder = self.folder.parents[1] / run.parent.run
            if (folder / paths.OUTCOME).exists() or (status := _plan_status(folder)) is None:
                break
            if status == "cancelled":
                return "cancelled"
            held = {status, _status_in(folder / paths.PLAN)} & {"paused", "draft", "cancelled"}
            found = "paused" if held else found  # an edit that has no number yet holds it, too
            try:
                run = Run.model_validate_json(read_whole(folder / paths.RUN))
            except (OSError, ValidationError):
                break
        return found

    def _order(self, step: str, number: int) -> tuple[Order | None, bool]:
        """An order is not fsynced: after a power cut it may be empty or torn, which is not a mistake of anyone's."""
        source = read_whole(f"{self.folder}/{paths.STEPS}/{paths.step_file(step, number, 'order')}")
        try:
            return Order.model_validate_json(source), False
        except ValidationError:
            return None, True

    def _talks(self, step: str, number: int, files: list[paths.Trace], *, finished: bool) -> tuple[Talk, ...]:
        counts = sorted(count for kind, count in files if kind == "question")
        talks = tuple(self._talk(step, number, count) for count in counts)
        if finished or not talks or not talks[-1].ask:
            return talks
        taken = answers_in(self.folder / paths.STEPS / paths.step_file(step, number, "log"))
        return tuple(replace(talk, taken=talk.count in taken) for talk in talks)

    def _answer_talk(self, call: int, count: int) -> Talk:
        """Return a question about a planner's answer, and what it is bound to; a runbook's is bound to nothing."""
        question = self.folder / paths.PLANNING / paths.call_file(call, "question", count)
        key = KEY_LINE.findall(_question(question))
        reply = paths.call_path(call, "reply", count)
        return Talk(count, key[-1] if key else None, self._reply(reply))

    def _talk(self, step: str, number: int, count: int) -> Talk:
        folder = self.folder / paths.STEPS
        question = _question(folder / paths.step_file(step, number, "question", count))
        reply = paths.step_path(step, number, "reply", count)
        key = KEY_LINE.findall(question)
        ask = question.rstrip().endswith(ASK_LINE)
        return Talk(count, key[-1] if key else None, self._reply(reply), ask)

    def is_coming(self, path: Path) -> bool:
        """Whether a person's file is there, but not complete yet."""
        return signature(path) is not None and not self._complete(path)

    def _reply(self, name: str) -> str | None:
        """Return a person's reply once it is complete; one that is no text is no answer."""
        path = self.folder / name
        return self._read_reply(path) if signature(path) is not None and self._complete(path) else None

    def _read_reply(self, path: Path) -> str | None:
        try:
            return read_regular(path, MAX_REPLY).decode("utf-8-sig")
        except BlockingIOError:
            self.restless = True
            return None
        except (OSError, UnicodeDecodeError):
            return None


def reader_for(folder: Path, settings: Settings, *, patient: bool, known: Known | None = None) -> RunReader:
    """Return a reader of one run that judges plans by the tools the run began with.

    `known`: None to read a person's own tools by their source, without running anything of theirs.
    """
    return RunReader(folder, judge_for(folder, settings, known), patient=patient)


def _plan_status(folder: Path) -> str | None:
    """Return the status of a run's plan, by its last revision; None: it has none, or that does not read."""
    numbers = [found[0] for name in listing(folder / paths.REVISIONS) if (found := paths.parse_revision_file(name))]
    for number in sorted(set(numbers), reverse=True):
        if (folder / paths.REVISIONS / paths.revision_file(number)).exists():  # it gives a revision its number
            return _status_in(folder / paths.REVISIONS / paths.revision_plan_file(number))
    return None


def _status_in(plan: Path) -> str | None:
    try:
        return str(json.loads(read_whole(plan))["status"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _question(path: Path) -> str:
    """Return a question; it shows all of an order, which may be large."""
    return read_text(path, MOST_RECORD)


MAX_REPLY = 1_000_000
_CARRIED_OUT: Shape = frozenset((("order", 1), ("log", 1), ("result", 1)))


def _missing_plan(path: Path, *, expected: bool) -> PlanFile:
    if not os.path.lexists(path):
        problem = Problem("plan.json is missing", "restore it, or write a new one")
    else:
        problem = Problem("plan.json is not a regular file", "put the plan itself there")
    return PlanFile(None, None, (problem,) if expected or os.path.lexists(path) else ())

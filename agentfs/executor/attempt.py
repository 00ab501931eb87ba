"""One order in, one result out: claim it, call its tool, run its checks, publish how it ended."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic_core import PydanticSerializationError

from agentfs.core import paths
from agentfs.core.excerpts import TimeLimit, as_text, check_words, hints_of, join_messages
from agentfs.core.hashing import check_value
from agentfs.core.mask import Mask
from agentfs.core.outcome import total_usage
from agentfs.core.proof import Changes, Gather, Piece, Snapshot, Watched, check_sha256, compare, no_evidence
from agentfs.core.records import (
    CheckResult,
    Failure,
    JsonObject,
    JudgeCheck,
    Order,
    OutputCheck,
    Record,
    ResolvedCheck,
    Result,
    ResultStatus,
    Usage,
)
from agentfs.core.steps import LIMIT, UNREACHABLE
from agentfs.executor.attempt_log import ANSWER, AttemptLog, Memory, read_memory
from agentfs.executor.checks import surprise
from agentfs.executor.evidence import (
    CHANGED,
    NOT_PUT_BACK,
    SPOILED,
    TAMPERED,
    changes_in,
    changes_piece,
    file_pieces,
    folder_of,
    hashes,
    output_piece,
    protected_files,
    quoted_piece,
    tool_pieces,
    watched_by,
)
from agentfs.executor.questions import wait_with
from agentfs.executor.task import AgentRules, Asked, Task, failure_of
from agentfs.models.base import ModelError
from agentfs.storage.clock import Clock, later
from agentfs.storage.files import StepsFolder, read_lines
from agentfs.tools.base import StepContext, Tool, ToolResult
from agentfs.tools.registry import input_problems

HELD_BEFORE = "held_before"  # the event in a log


@dataclass(slots=True)
class Halt:
    """A stop sign that can say why. It is looked at, never waited for."""

    because: Failure | None = None
    is_leaving: bool = False  # the process ends: it waits for nothing that another can wait for
    _set: bool = False

    def is_set(self) -> bool:
        return self._set

    def halt(self, because: Failure | None = None) -> None:
        self.because = self.because or because
        self._set = True

    def leave(self) -> None:
        """Halt, as this process ends."""
        self.is_leaving = True
        self.halt()


def render(record: Record) -> bytes:
    """Return a record as it is written: JSON that people can read too."""
    try:
        return record.model_dump_json(by_alias=True, indent=2).encode("utf-8") + b"\n"
    except PydanticSerializationError:  # a path in it is not UTF-8, which JSON cannot hold
        text = json.dumps(record.model_dump(by_alias=True), indent=2, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


def attempt(task: Task, context: StepContext) -> Result | Asked:
    """Carry out one order and return its published result, or the question with which it now waits as files.

    Raises AlreadyClaimed if another executor has it.
    """
    with _Attempt(task, context, _look_before(task, context)) as one:
        one.watch_files()
        return one.end(one.call())


def resume(task: Task, reply: str, context: StepContext) -> Result | Asked:
    """Go on with an attempt that waited for a person, as its log has it; its time went on only while it worked."""
    order = task.order
    memory = read_memory(Path(context.steps_folder.path(order.step, order.attempt, "log")))
    with _Attempt(task, context, Before(), memory.seconds if memory else 0.0) as one:
        one.reopen(memory.started_at if memory else order.issued_at)
        if memory is None or one.context.session is None:
            lost = Failure(kind="interrupted", message="its log no longer holds the conversation it waited in")
            return one.finish(ToolResult(failure=lost))
        one.context.session.number, one.context.session.usage = memory.number, memory.usage
        one.log.write(ANSWER, {"count": memory.count, "reply": reply})
        one.before = _look_before(task, context)  # what changed until it waited is in the log
        one.watch_files()
        return one.end(_go_on(task, one.context, memory, reply))


def finish_answered(task: Task, given: ToolResult, context: StepContext, worked_s: float = 0.0) -> Result:
    """Finish an order that was claimed before and that a person, or another run, has carried out: its checks decide.

    `worked_s`: seconds that the other run has worked.
    """
    with _Attempt(task, context, Before()) as one:
        one.reopen(task.order.issued_at)
        one.worked_s = worked_s
        return one.finish(given)


def _go_on(task: Task, context: StepContext, memory: Memory, reply: str) -> ToolResult | Asked:
    from agentfs.executor.loop import go_on

    return go_on(task, context, memory, reply)


def asks_a_model(order: Order, tools: Mapping[str, Tool]) -> bool:
    """Whether an order cannot be carried out without a model."""
    if order.tool is None or any(isinstance(check, JudgeCheck) for check in order.checks):
        return True
    tool = tools.get(order.tool)
    return tool is not None and tool.spec.needs_model


@dataclass(frozen=True, slots=True)
class Before:
    """How things were before an attempt."""

    folder: Snapshot | None = None
    protected: Mapping[str, str] = field(default_factory=dict)  # path -> sha256
    watched: Watched = field(default_factory=Watched)  # what a person's checks rest on


def _look_before(task: Task, context: StepContext) -> Before:
    return Before(folder_of(context), hashes(task.proof.protected)) if task.proof else Before()


class _Attempt:
    """One order that is being carried out, from its claim to its result."""

    def __init__(self, task: Task, context: StepContext, before: Before, spent_s: float = 0.0) -> None:
        self.task, self.order, self.proof, self.before = task, task.order, task.proof, before
        order = task.order
        self.log = AttemptLog(context.steps_folder, order, context.mask, context.clock, before.protected)
        self.started, self.worked_s = context.clock.stamp(), 0.0
        deadline = context.now() + order.timeout_s - spent_s
        session = replace(context.session, log=self.log.write, deadline=deadline) if context.session else None
        self.context = replace(
            context,
            deadline=deadline,
            limit=TimeLimit(order.timeout_s),
            claim=self.log.claim,
            log=self.log.write,
            session=session,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def reopen(self, started: str) -> None:
        """Go on with an order that was claimed before."""
        self.started = started
        self.log.reopen()

    def watch_files(self) -> None:
        """Remember what a person's checks rest on before anything changes it."""
        if self.proof:
            self.before = replace(self.before, watched=watched_by(self.proof.persons, self.context))

    @property
    def _log_path(self) -> Path:
        return Path(self.context.steps_folder.path(self.order.step, self.order.attempt, "log"))

    # ── the work ────────────────────────────────────────────────────────────────────────────────────────

    def call(self) -> ToolResult | Asked:
        """Call the tool, or have a model do the step. What goes wrong is a failure of the step, not of the driver."""
        order, tool = self.order, self.context.tools.get(self.order.tool or "")
        if self.proof and self.proof.spoiled:
            self.log.claim(None)
            self.log.write(SPOILED, {"files": [*self.proof.spoiled]})
            return ToolResult(failure=_tampering(NOT_PUT_BACK, self.proof.spoiled))
        if self.task.agent is not None:
            return self._agent(self.task.agent)
        if order.tool is None:
            self.log.claim(None)
            self._look_at_checks()
            return self._loop()
        if tool is None:
            self.log.claim(None)
            return ToolResult(failure=Failure(kind="input", message=f"there is no tool {order.tool!r} here"))
        if problems := input_problems(tool.spec, _as_planned(order)):
            self.log.claim(None)
            return ToolResult(failure=Failure(kind="input", message="; ".join(problems)))
        given = tool.call(order.input, self.context)
        if not self.log.claimed:
            self.log.claim(None)
        return given

    def _loop(self) -> ToolResult | Asked:
        from agentfs.executor.loop import work

        return work(self.task, self.context)

    def _agent(self, rules: AgentRules) -> ToolResult:
        from agentfs.executor.agent_step import let_agent_work

        self.log.claim(None)
        self._look_at_checks()
        return let_agent_work(self.task, rules, self.context)

    def _look_at_checks(self) -> None:
        """Run a planner's checks before the first attempt they are for: one that holds already proves nothing."""
        unseen = self.proof.unseen if self.proof else ()
        if not unseen:
            return
        name = f"{self.context.name}{paths.BEFORE}"
        before = replace(self.context, name=name, read_only_checks=self._planners_checks())
        found = self.context.observer.check(unseen, before, None, no_evidence)
        held = [check_sha256(check) for check, one in zip(unseen, found, strict=True) if one.ok]
        self.log.write(HELD_BEFORE, {"checks": held})

    def _planners_checks(self) -> frozenset[str]:
        """Return the checks of this step, hashed, that a planner wrote."""
        return frozenset(map(check_sha256, self.proof.unproven)) if self.proof else frozenset()

    # ── its end ─────────────────────────────────────────────────────────────────────────────────────────

    def end(self, given: ToolResult | Asked) -> Result | Asked:
        """Publish the result, or wait with a question."""
        if isinstance(given, ToolResult):
            return self.finish(given)
        self._refuse_tampering(ToolResult())
        self._changes()
        if self.task.keeping:
            self.task.keeping.remember_left(self.log.write)  # its work stays while it waits
        return wait_with(given, self.order, self.log, self.context, self._seconds())

    def finish(self, given: ToolResult) -> Result:
        """Run the checks, publish the result, close the story in the log."""
        tree = self.task.keeping.snapshot() if self.task.keeping else ""
        given = self._refuse_tampering(given)
        changes = self._changes()
        held = self._read_held()
        given, checks = self._run_checks(given, held, changes)
        order, context = self.order, self.context
        verdict, ended_at = self._verdict(given, checks), context.clock.stamp()
        waits = verdict["status"] == "failed" and self.task.retry_wait_s > 0
        result = Result(
            **order.shared(),
            output=given.output,
            cut=given.cut,
            checks=checks,
            held_before=tuple(sorted(held)),
            evidence=given.evidence,
            prompt_sha256=given.prompt_sha256,
            usage=_usage(given, context.session.usage if context.session else None),
            child=given.child,
            sandbox=context.confinement.sandbox,
            agent=order.agent,
            network=order.network,
            commit=self._commit(tree) if verdict["status"] == "done" else None,
            started_at=self.started,
            ended_at=ended_at,
            duration_s=self._seconds(),
            retry_at=later(ended_at, self.task.retry_wait_s) if waits else None,
            **verdict,
        )
        if self.task.keeping and result.status != "done":
            self.task.keeping.remember_left(self.log.write)  # from here on, what changes is a person's
        result = publish_result(result, context.steps_folder, context.mask)
        if self.task.keeping:
            self.task.keeping.settle(result, tree)  # the branch moves to what the result names
        self.log.write("end", {"status": result.status, "duration_s": result.duration_s})
        return result

    def _commit(self, tree: str) -> str | None:
        """Write the commit of what was changed, before the result that names it."""
        keeping, order = self.task.keeping, self.order
        look: Callable[[], str | None] = (lambda: keeping.commit(order, tree)) if keeping else (lambda: None)
        return self.context.observer.see("commit", self.context.name, look)

    def _seconds(self) -> float:
        """Return how long it has worked; time in which it waited for a person does not count."""
        return round(self.worked_s + self.context.now() - (self.context.deadline - self.order.timeout_s), 6)

    def _verdict(self, given: ToolResult, checks: tuple[CheckResult, ...]) -> dict[str, Any]:
        """Return status, error and surprise: the checks decide, not the tool's word."""
        stop = self.context.stop
        if given.failure is not None and given.failure.kind == "interrupted":
            return self._interruption(given.failure)
        if given.failure is not None:
            nobody_failed = given.failure.kind in (LIMIT, UNREACHABLE)  # there was no room to go on, or nobody to ask
            return {"status": "interrupted" if nobody_failed else "failed", "error": given.failure}
        if given.blocked is not None:
            return {"status": "blocked", "error": Failure(kind="blocked", message=given.blocked)}
        if wrong := [check for check in checks if not check.ok]:
            if stop.is_set():  # it may have been ended, and not have failed
                return self._interruption(Failure(kind="interrupted", message="it was stopped while its checks ran"))
            message = join_messages(f"the {check.kind} check failed: {check_words(check)}" for check in wrong)
            return {"status": "failed", "error": Failure(kind="check", message=message, hint=hints_of(wrong))}
        unexpected, expects = given.surprise, self.order.expects
        if not unexpected and expects is not None:
            unexpected = surprise(expects, given.output, deadline=self.context.deadline, stop=stop)
        return {"status": "done", "surprising": unexpected is not None, "surprise": unexpected}

    def _interruption(self, failure: Failure) -> dict[str, Any]:
        because = self.context.stop.because if isinstance(self.context.stop, Halt) else None
        return {"status": "interrupted", "error": because or failure}

    # ── its checks ──────────────────────────────────────────────────────────────────────────────────────

    def _run_checks(
        self, given: ToolResult, held: frozenset[str], changes: Changes | None
    ) -> tuple[ToolResult, tuple[CheckResult, ...]]:
        """Return what the checks found; and what was given, with a failure if a judge could not be asked."""
        if given.failure is not None or given.blocked is not None:
            return given, ()
        order, check = self.order, self.context.observer.check
        proven, condition = self._is_proven(held), order.success_condition or order.description
        if not proven and not condition:
            message = "nothing shows that it is done: it has no check, and nothing to judge it by"
            return replace(given, failure=Failure(kind="unproven", message=message, hint="give it a check")), ()
        gather = self._gather(given, changes)
        context = replace(self.context, read_only_checks=self._planners_checks())
        try:
            checks = check(order.checks, context, given.output, gather) if order.checks else ()
            if not proven and condition and all(one.ok for one in checks):
                judge = JudgeCheck(kind="judge", condition=condition)
                checks = (*checks, *check((judge,), context, given.output, gather))
        except ModelError as error:
            return replace(given, failure=failure_of(error, context)), ()
        for one in checks:
            self.log.write("check", one.model_dump())
        return given, checks

    def _is_proven(self, held: frozenset[str]) -> bool:
        """Whether the checks of an order can show that it is done; else a judge looks at what a model did.

        The step `do` is judged by the plan's own checks.
        """
        if self.order.tool is not None or self.task.loop.may_hand_over:
            return True
        if self.proof is None:  # a run of the first release
            return bool(self.order.checks) or not self.order.success_condition
        return any(_counts(check, held, self.proof.unproven) for check in self.order.checks)

    def _read_held(self) -> frozenset[str]:
        """Return the checks, hashed, that held before this step was first tried."""
        if self.proof is None or not self.proof.unproven:
            return frozenset()
        found = [entry.get("checks") for entry in read_lines(self._log_path) if entry.get("event") == HELD_BEFORE]
        return self.proof.held.union(*(map(str, listed) for listed in found if isinstance(listed, list)))

    def _gather(self, given: ToolResult, changes: Changes | None) -> Gather:
        """Return what collects the evidence about this attempt, if a judge is asked."""
        order, log = self.order, self._log_path

        def gather(condition: str) -> list[Piece]:
            texts = [condition, order.description or "", *(self.proof.names_in if self.proof else ())]
            texts += [as_text(check_value(check)) for check in order.checks]
            given_input = [Piece("Its input", as_text(order.input))] if order.input else []
            return [
                *([] if given.output is None else [output_piece(given.output)]),
                *given_input,
                *tool_pieces(log),
                *quoted_piece(given.evidence, log),
                *file_pieces(texts, self.context),
                *changes_piece(changes),
            ]

        return gather

    # ── what it changed ─────────────────────────────────────────────────────────────────────────────────

    def _changes(self) -> Changes | None:
        """Return what the attempt changed in the working folder so far, and write down what is new of it."""
        if self.before.folder is None:
            return None
        known = self.before.folder
        changes = self.context.observer.see(
            "changes", self.context.name, lambda: compare(known, folder_of(self.context))
        )
        if changes.all():
            self.log.write(CHANGED, changes.as_json(self.before.watched))
        return changes_in(self._log_path)

    def _refuse_tampering(self, given: ToolResult) -> ToolResult:
        """Return what was given; a failure if a protected file is not what it was, now or when the attempt waited."""
        if self.proof is None:
            return given
        touched = [
            *self._find_tampered_before(),
            *self.context.observer.see("tampered", self.context.name, self._find_tampered),
        ]
        if not touched or (given.failure and given.failure.kind == "interrupted"):
            return given
        now = hashes(map(Path, touched))
        self.log.write(TAMPERED, {"files": touched, "left": {path: now.get(path) for path in touched}})
        return replace(given, failure=_tampering("it changed what it may not change", touched))

    def _find_tampered(self) -> list[str]:
        if self.proof is None or self.before.folder is None:
            return []
        planted = protected_files(self.proof.protect, (), self.context.confinement.workdir)
        now, before = hashes((*self.proof.protected, *planted)), self.before.protected
        return [path for path in sorted({*before, *now}) if now.get(path) != before.get(path)]

    def _find_tampered_before(self) -> list[str]:
        found = [entry.get("files") for entry in read_lines(self._log_path) if entry.get("event") == TAMPERED]
        return [str(path) for listed in found if isinstance(listed, list) for path in listed]


def _usage(given: ToolResult, session: Usage | None) -> Usage | None:
    """Return what an attempt used: loops and agents count in the session, a run of its own says it beside that."""
    if given.child is not None and given.usage is not None and session is not None:
        return total_usage("executor", (given.usage, session))
    return given.usage if session is None else session


def _as_planned(order: Order) -> JsonObject:
    """Return an order's input as a plan may write it: the values of a shell text's references came later."""
    if order.tool != "shell":
        return order.input
    return {name: value for name, value in order.input.items() if name != "env"}


def _tampering(what: str, files: Sequence[str]) -> Failure:
    listed = ", ".join(dict.fromkeys(map(os.path.basename, files)))
    hint = "it is protected by the goal, or a check runs it; put it back before the step is tried again"
    return Failure(kind="tampered", message=f"{what}: {listed}", hint=hint)


def _counts(check: ResolvedCheck, held: frozenset[str], planned: tuple[ResolvedCheck, ...]) -> bool:
    """Whether a check can show what a model did; a planner's look at the output sees no more than a claim."""
    if check in planned and isinstance(check, OutputCheck):
        return False
    return check_sha256(check) not in held


def publish_result(result: Result, steps_folder: StepsFolder, mask: Mask) -> Result:
    """Write a result, once and for good, and return it as it was written: with secrets hidden."""
    result = mask.record(result)
    steps_folder.put(paths.step_file(result.step, result.attempt, "result"), render(result), durable=True)
    return result


def unstarted_result(order: Order, status: ResultStatus, error: Failure | None, clock: Clock, sandbox: str) -> Result:
    """Return the result of an order that was never carried out."""
    return Result(
        **order.shared(),
        status=status,
        error=error,
        sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
        started_at=None,
        ended_at=clock.stamp(),
        duration_s=0.0,
    )

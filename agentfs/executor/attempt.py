"""One order in, one result out: claim it, call its tool, run its checks, publish how it settled."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError

from agentfs.core import paths
from agentfs.core.excerpts import TimeLimit, as_text, check_words, hints_of, joined
from agentfs.core.hashing import check_value
from agentfs.core.mask import Mask
from agentfs.core.proof import check_sha256
from agentfs.core.records import (
    Check,
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
)
from agentfs.core.steps import LIMIT, UNREACHABLE
from agentfs.executor.asking import wait_with
from agentfs.executor.checks import Checker, run_checks, surprise
from agentfs.executor.desk import Asked, Desk
from agentfs.executor.evidence import (
    CHANGED,
    NOT_PUT_BACK,
    SPOILED,
    TAMPERED,
    Changes,
    FolderWatch,
    Gather,
    Piece,
    Snapshot,
    Watched,
    changes_in,
    changes_piece,
    compare,
    file_pieces,
    hashes,
    no_evidence,
    output_piece,
    protected_files,
    quoted_piece,
    snapshot,
    tool_pieces,
    watched_by,
)
from agentfs.executor.log import AttemptLog
from agentfs.executor.rebuilding import ANSWER, Memory, remembered
from agentfs.models.base import ModelError, ModelSession
from agentfs.storage.clock import Clock, later
from agentfs.storage.jsonl import read_lines
from agentfs.storage.starting import Starter
from agentfs.storage.steps_folder import Shelf
from agentfs.tools.base import Bench, Confinement, Tool, ToolResult
from agentfs.tools.process import StopSign
from agentfs.tools.registry import input_problems

HELD_BEFORE = "held_before"  # the event in a log


@dataclass(slots=True)
class Halt:
    """A stop sign that can say why. It is looked at, never waited for."""

    because: Failure | None = None
    _set: bool = False

    def is_set(self) -> bool:
        return self._set

    def halt(self, because: Failure | None = None) -> None:
        self.because = self.because or because
        self._set = True


@dataclass(frozen=True, slots=True)
class Doubts:
    """What is looked at because a model has a part in an attempt: it is not believed on its word."""

    names_in: tuple[str, ...] = ()  # texts that may name files which a judge should see
    unproven: tuple[ResolvedCheck, ...] = ()  # a planner's checks
    unseen: tuple[ResolvedCheck, ...] = ()  # of them: to be run before this attempt, to see if they can fail
    held: frozenset[str] = frozenset()  # checks, hashed, that held before an earlier attempt
    protect: tuple[str, ...] = ()  # paths and globs of what the step may not change
    protected: tuple[Path, ...] = ()  # what that is now, with the files that a person's checks run
    persons: tuple[Check, ...] = ()  # checks of a person: what they name is watched
    spoiled: tuple[str, ...] = ()  # protected files, as an earlier attempt left them: nobody has put them back


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every attempt of a run works with."""

    shelf: Shelf  # the run's steps/
    confinement: Confinement
    tools: dict[str, Tool]
    mask: Mask
    clock: Clock
    output_bytes: int
    desk: Desk | None = None  # None: nothing here can ask a model
    check: Checker = run_checks
    retry_wait_s: float = 0.0  # before another try, if this one fails
    starter: Starter = field(default_factory=Starter)
    watch: FolderWatch = field(default_factory=FolderWatch)
    doubts: Doubts | None = None  # None: a tool does a person's own step, or the run is of the first release


@dataclass(frozen=True, slots=True)
class Before:
    """How things were before an attempt."""

    folder: Snapshot | None = None
    protected: Mapping[str, str] = field(default_factory=dict)  # path -> sha256
    watched: Watched = field(default_factory=Watched)  # what a person's checks rest on


def render(record: Record) -> bytes:
    """Return a record as it is written: JSON that people can read too."""
    try:
        return record.model_dump_json(by_alias=True, indent=2).encode("utf-8") + b"\n"
    except PydanticSerializationError:  # a path in it is not UTF-8, which JSON cannot hold
        text = json.dumps(record.model_dump(by_alias=True), indent=2, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


def attempt(order: Order, shop: Workshop, stop: StopSign) -> Result | Asked:
    """Carry out one order and return its published result, or the question with which it now waits as files.

    Raises AlreadyClaimed if another executor has it.
    """
    before = _look_before(shop)
    log = _log(order, shop, before)
    started, began = shop.clock.stamp(), shop.clock.monotonic()
    bench = _bench(order, shop, stop, log, began)
    before = _with_watched(before, shop, bench)
    try:
        given = _call(order, shop, bench, log)
        return _ended(order, given, shop, bench, log, started, before)
    finally:
        log.close()


def _look_before(shop: Workshop) -> Before:
    if shop.doubts is None:
        return Before()
    return Before(_folder(shop), hashes(shop.doubts.protected))


def _folder(shop: Workshop) -> Snapshot:
    room = shop.confinement
    return snapshot(room.workdir, without=room.workspace / "runs")


def _with_watched(before: Before, shop: Workshop, bench: Bench) -> Before:
    return replace(before, watched=watched_by(shop.doubts.persons, bench)) if shop.doubts else before


def resume(order: Order, reply: str, shop: Workshop, stop: StopSign) -> Result | Asked:
    """Go on with an attempt that waited for a person, as its log has it; its time went on only while it worked."""
    log = _log(order, shop)
    memory = remembered(Path(shop.shelf.path(order.step, order.attempt, "log")))
    log.reopen()
    try:
        bench = _bench(order, shop, stop, log, shop.clock.monotonic() - (memory.seconds if memory else 0.0))
        if memory is None or bench.line is None or shop.desk is None:
            lost = Failure(kind="interrupted", message="its log no longer holds the conversation it waited in")
            return _settle(order, ToolResult(failure=lost), shop, bench, log, order.issued_at, Before())
        bench.line.number, bench.line.usage = memory.number, memory.usage
        log.write(ANSWER, {"count": memory.count, "reply": reply})
        before = _with_watched(_look_before(shop), shop, bench)  # what changed until it waited is in the log
        given = _go_on(order, shop, shop.desk, bench, memory, reply)
        return _ended(order, given, shop, bench, log, memory.started_at, before)
    finally:
        log.close()


def _go_on(order: Order, shop: Workshop, desk: Desk, bench: Bench, memory: Memory, reply: str) -> ToolResult | Asked:
    from agentfs.executor.loop import go_on

    return go_on(order, desk, shop.tools, bench, memory, reply)


def _ended(
    order: Order,
    given: ToolResult | Asked,
    shop: Workshop,
    bench: Bench,
    log: AttemptLog,
    started: str,
    before: Before,
) -> Result | Asked:
    if isinstance(given, ToolResult):
        return _settle(order, given, shop, bench, log, started, before)
    _untampered(order, ToolResult(), shop, before, log)
    _changes(order, before, shop, log)
    return wait_with(given, order, log, shop.shelf, shop.mask, _worked(order, shop, bench))


def settled(order: Order, given: ToolResult, shop: Workshop, stop: StopSign) -> Result:
    """Settle an order that was claimed before and that another process has carried out: its checks decide."""
    log = _log(order, shop)
    log.reopen()
    try:
        bench = _bench(order, shop, stop, log, shop.clock.monotonic())
        return _settle(order, given, shop, bench, log, order.issued_at, Before())
    finally:
        log.close()


def _log(order: Order, shop: Workshop, before: Before | None = None) -> AttemptLog:
    return AttemptLog(shop.shelf, order, shop.mask, shop.clock, before.protected if before else {})


def _settle(
    order: Order, given: ToolResult, shop: Workshop, bench: Bench, log: AttemptLog, started: str, before: Before
) -> Result:
    """Run the checks, publish the result, close the story in the log."""
    given = _untampered(order, given, shop, before, log)
    changes = _changes(order, before, shop, log)
    held = _held(order, shop)
    given, checks = _checked(order, given, shop, bench, log, held, changes)
    verdict, ended_at = _verdict(order, given, checks, bench), shop.clock.stamp()
    waits = verdict["status"] == "failed" and shop.retry_wait_s > 0
    result = Result(
        run=order.run,
        step=order.step,
        attempt=order.attempt,
        revision=order.revision,
        key=order.key,
        after=order.after,
        output=given.output,
        cut=given.cut,
        checks=checks,
        held_before=tuple(sorted(held)),
        evidence=given.evidence,
        prompt_sha256=given.prompt_sha256,
        usage=bench.line.usage if bench.line else given.usage,
        sandbox=shop.confinement.sandbox,
        started_at=started,
        ended_at=ended_at,
        duration_s=_worked(order, shop, bench),
        retry_at=later(ended_at, shop.retry_wait_s) if waits else None,
        **verdict,
    )
    result = publish_result(result, shop.shelf, shop.mask)
    log.write("end", {"status": result.status, "duration_s": result.duration_s})
    return result


def _worked(order: Order, shop: Workshop, bench: Bench) -> float:
    return round(shop.clock.monotonic() - (bench.deadline - order.timeout_s), 6)


def _bench(order: Order, shop: Workshop, stop: StopSign, log: AttemptLog, began: float) -> Bench:
    deadline, desk = began + order.timeout_s, shop.desk if asks_a_model(order, shop.tools) else None
    whose = paths.conversation(order.step, order.attempt)
    return Bench(
        confinement=shop.confinement,
        deadline=deadline,
        stop=stop,
        output_bytes=shop.output_bytes,
        output_file=Path(shop.shelf.path(order.step, order.attempt, "output")),
        claim=log.claim,
        log=log.write,
        mask=shop.mask,
        model=desk.choose(order.model) if desk else None,
        line=ModelSession(log.write, desk.meter, stop, deadline, desk.hears(whose), name=whose) if desk else None,
        whose=whose,
        now=shop.clock.monotonic,
        limit=TimeLimit(order.timeout_s),
        starter=shop.starter,
    )


def asks_a_model(order: Order, tools: Mapping[str, Tool]) -> bool:
    """Whether an order cannot be carried out without a model."""
    if order.tool is None or any(isinstance(check, JudgeCheck) for check in order.checks):
        return True
    tool = tools.get(order.tool)
    return tool is not None and tool.spec.needs_model


def _call(order: Order, shop: Workshop, bench: Bench, log: AttemptLog) -> ToolResult | Asked:
    """Call the tool, or have a model do the step. What goes wrong is a failure of the step, never of the driver."""
    if shop.doubts and shop.doubts.spoiled:
        log.claim(None)
        log.write(SPOILED, {"files": [*shop.doubts.spoiled]})
        return ToolResult(failure=_tampering(NOT_PUT_BACK, shop.doubts.spoiled))
    if order.tool is None:
        log.claim(None)
        _look_at_checks(shop, bench, log)
        return _by_model(order, shop, bench)
    tool = shop.tools.get(order.tool or "")
    if tool is None:
        log.claim(None)
        return ToolResult(failure=Failure(kind="input", message=f"there is no tool {order.tool!r} here"))
    if problems := input_problems(tool.spec, _as_planned(order)):
        log.claim(None)
        return ToolResult(failure=Failure(kind="input", message="; ".join(problems)))
    given = tool.call(order.input, bench)
    if not log.claimed:
        log.claim(None)
    return given


def _by_model(order: Order, shop: Workshop, bench: Bench) -> ToolResult | Asked:
    from agentfs.executor.ends import no_model
    from agentfs.executor.loop import work

    if shop.desk is None:
        return ToolResult(failure=no_model(order.model))
    return work(order, shop.desk, shop.tools, bench)


def _as_planned(order: Order) -> JsonObject:
    """Return an order's input as a plan may write it: the values of a shell text's references came later."""
    if order.tool != "shell":
        return order.input
    return {name: value for name, value in order.input.items() if name != "env"}


def _look_at_checks(shop: Workshop, bench: Bench, log: AttemptLog) -> None:
    """Run a planner's checks before the first attempt they are for: one that holds already proves nothing."""
    unseen = shop.doubts.unseen if shop.doubts else ()
    if not unseen:
        return
    before = replace(bench, whose=f"{bench.whose}{paths.BEFORE}", looks_only=_written(shop))
    found = shop.check(unseen, before, None, no_evidence)
    held = [check_sha256(check) for check, one in zip(unseen, found, strict=True) if one.ok]
    log.write(HELD_BEFORE, {"checks": held})


def _written(shop: Workshop) -> frozenset[str]:
    """Return the checks of this step, hashed, that a planner wrote."""
    return frozenset(map(check_sha256, shop.doubts.unproven)) if shop.doubts else frozenset()


def _held(order: Order, shop: Workshop) -> frozenset[str]:
    """Return the checks, hashed, that held before this step was first tried."""
    if shop.doubts is None or not shop.doubts.unproven:
        return frozenset()
    entries = read_lines(Path(shop.shelf.path(order.step, order.attempt, "log")))
    found = [entry.get("checks") for entry in entries if entry.get("event") == HELD_BEFORE]
    return shop.doubts.held.union(*(map(str, listed) for listed in found if isinstance(listed, list)))


def _untampered(order: Order, given: ToolResult, shop: Workshop, before: Before, log: AttemptLog) -> ToolResult:
    """Return what was given; a failure if a protected file is not what it was, now or when the attempt waited."""
    whose = paths.conversation(order.step, order.attempt)
    touched = [*_tampered_before(order, shop), *shop.watch.tampered(whose, lambda: _tampered(shop, before))]
    if not touched or (given.failure and given.failure.kind == "interrupted"):
        return given
    now = hashes(map(Path, touched))
    log.write(TAMPERED, {"files": touched, "left": {path: now.get(path) for path in touched}})
    return replace(given, failure=_tampering("it changed what it may not change", touched))


def _tampering(what: str, files: Sequence[str]) -> Failure:
    listed = ", ".join(dict.fromkeys(map(os.path.basename, files)))
    hint = "it is protected by the goal, or a check runs it; put it back before the step is tried again"
    return Failure(kind="tampered", message=f"{what}: {listed}", hint=hint)


def _tampered(shop: Workshop, before: Before) -> list[str]:
    if shop.doubts is None or before.folder is None:
        return []
    planted = protected_files(shop.doubts.protect, (), shop.confinement.workdir)
    now = hashes((*shop.doubts.protected, *planted))
    return [path for path in sorted({*before.protected, *now}) if now.get(path) != before.protected.get(path)]


def _tampered_before(order: Order, shop: Workshop) -> list[str]:
    entries = read_lines(Path(shop.shelf.path(order.step, order.attempt, "log")))
    found = [entry.get("files") for entry in entries if entry.get("event") == TAMPERED]
    return [str(path) for listed in found if isinstance(listed, list) for path in listed]


def _changes(order: Order, before: Before, shop: Workshop, log: AttemptLog) -> Changes | None:
    """Return what the attempt changed in the working folder so far, and write down what is new of it."""
    if before.folder is None:
        return None
    known, whose = before.folder, paths.conversation(order.step, order.attempt)
    changes = shop.watch.changes(whose, lambda: compare(known, _folder(shop)))
    if changes.all():
        log.write(CHANGED, changes.as_json(before.watched))
    return changes_in(Path(shop.shelf.path(order.step, order.attempt, "log")))


def _gather(order: Order, given: ToolResult, shop: Workshop, bench: Bench, changes: Changes | None) -> Gather:
    """Return what collects the evidence about this attempt, if a judge is asked."""
    log = Path(shop.shelf.path(order.step, order.attempt, "log"))

    def gather(condition: str) -> list[Piece]:
        texts = [condition, order.description or "", *(shop.doubts.names_in if shop.doubts else ())]
        texts += [as_text(check_value(check)) for check in order.checks]
        given_input = [Piece("Its input", as_text(order.input))] if order.input else []
        return [
            *([] if given.output is None else [output_piece(given.output)]),
            *given_input,
            *tool_pieces(log),
            *quoted_piece(given.evidence, log),
            *file_pieces(texts, bench),
            *changes_piece(changes),
        ]

    return gather


def _checked(
    order: Order,
    given: ToolResult,
    shop: Workshop,
    bench: Bench,
    log: AttemptLog,
    held: frozenset[str],
    changes: Changes | None,
) -> tuple[ToolResult, tuple[CheckResult, ...]]:
    """Return what the checks found; and what was given, with a failure if a judge could not be asked."""
    if given.failure is not None or given.blocked is not None:
        return given, ()
    proven, condition = _is_proven(order, held, shop), order.success_condition or order.description
    if not proven and not condition:
        message = "nothing shows that it is done: it has no check, and nothing to judge it by"
        return replace(given, failure=Failure(kind="unproven", message=message, hint="give it a check")), ()
    gather, bench = _gather(order, given, shop, bench, changes), replace(bench, looks_only=_written(shop))
    try:
        checks = shop.check(order.checks, bench, given.output, gather) if order.checks else ()
        if not proven and condition and all(check.ok for check in checks):
            judge = JudgeCheck(kind="judge", condition=condition)
            checks = (*checks, *shop.check((judge,), bench, given.output, gather))
    except ModelError as error:
        from agentfs.executor.ends import failure_of

        return replace(given, failure=failure_of(error, bench)), ()
    for check in checks:
        log.write("check", check.model_dump())
    return given, checks


def _is_proven(order: Order, held: frozenset[str], shop: Workshop) -> bool:
    """Whether the checks of an order can show that it is done; else a judge looks at what a model did.

    The step `do` is judged by the plan's own checks.
    """
    if order.tool is not None or (shop.desk is not None and shop.desk.may_hand_over):
        return True
    if shop.doubts is None:  # a run of the first release
        return bool(order.checks) or not order.success_condition
    return any(_counts(check, held, shop.doubts.unproven) for check in order.checks)


def _counts(check: ResolvedCheck, held: frozenset[str], planned: tuple[ResolvedCheck, ...]) -> bool:
    """Whether a check can show what a model did; a planner's look at the output sees no more than a claim."""
    if check in planned and isinstance(check, OutputCheck):
        return False
    return check_sha256(check) not in held


def _verdict(order: Order, given: ToolResult, checks: tuple[CheckResult, ...], bench: Bench) -> dict[str, Any]:
    """Return status, error and surprise: the checks decide, not the tool's word."""
    if given.failure is not None and given.failure.kind == "interrupted":
        return _interrupted(given.failure, bench)
    if given.failure is not None:
        nobody_failed = given.failure.kind in (LIMIT, UNREACHABLE)  # there was no room to go on, or nobody to ask
        return {"status": "interrupted" if nobody_failed else "failed", "error": given.failure}
    if given.blocked is not None:
        return {"status": "blocked", "error": Failure(kind="blocked", message=given.blocked)}
    if wrong := [check for check in checks if not check.ok]:
        if bench.stop.is_set():  # it may have been ended, and not have failed
            return _interrupted(Failure(kind="interrupted", message="it was stopped while its checks ran"), bench)
        message = joined(f"the {check.kind} check failed: {check_words(check)}" for check in wrong)
        return {"status": "failed", "error": Failure(kind="check", message=message, hint=hints_of(wrong))}
    unexpected = given.surprise or surprise(order.expects, given.output, deadline=bench.deadline, stop=bench.stop)
    return {"status": "done", "surprising": unexpected is not None, "surprise": unexpected}


def _interrupted(failure: Failure, bench: Bench) -> dict[str, Any]:
    said = bench.stop.because if isinstance(bench.stop, Halt) else None
    return {"status": "interrupted", "error": said or failure}


def publish_result(result: Result, shelf: Shelf, mask: Mask) -> Result:
    """Write a result, once and for good, and return it as it was written: with secrets hidden."""
    result = mask.record(result)
    shelf.put(paths.step_file(result.step, result.attempt, "result"), render(result), durable=True)
    return result


def unstarted(order: Order, status: ResultStatus, error: Failure, clock: Clock, sandbox: str) -> Result:
    """Return the result of an order that was never carried out."""
    return Result(
        run=order.run,
        step=order.step,
        attempt=order.attempt,
        revision=order.revision,
        key=order.key,
        after=order.after,
        status=status,
        error=error,
        sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
        started_at=None,
        ended_at=clock.stamp(),
        duration_s=0.0,
    )

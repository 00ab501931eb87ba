"""One order in, one result out: claim it, call its tool, run its checks, publish how it settled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.clock import Clock
from agentfs.core import names
from agentfs.core.records import CheckResult, Failure, JsonObject, Order, Record, Result, ResultStatus
from agentfs.executor.checks import run_checks, surprise
from agentfs.executor.log import AttemptLog
from agentfs.shelf import Shelf
from agentfs.tools.base import Bench, Confinement, Mask, StopSign, Tool, ToolResult
from agentfs.tools.registry import input_problems


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
class Workshop:
    """What every attempt of a run works with."""

    shelf: Shelf  # the run's steps/
    confinement: Confinement
    tools: dict[str, Tool]
    mask: Mask
    clock: Clock
    output_bytes: int


def render(record: Record) -> bytes:
    """Return a record as it is written: JSON that people can read too."""
    return record.model_dump_json(by_alias=True, indent=2).encode("utf-8") + b"\n"


def attempt(order: Order, shop: Workshop, stop: StopSign) -> Result:
    """Carry out one order and return its published result. Raises AlreadyClaimed if another executor has it."""
    log = _log(order, shop)
    started, began = shop.clock.stamp(), shop.clock.monotonic()
    bench = _bench(order, shop, stop, log, began)
    try:
        given = _call(order, shop, bench, log)
        return _settle(order, given, shop, bench, log, started)
    finally:
        log.close()


def settled(order: Order, given: ToolResult, shop: Workshop, stop: StopSign) -> Result:
    """Settle an order that was claimed before and that somebody else has carried out: its checks decide."""
    log = _log(order, shop)
    log.reopen()
    try:
        bench = _bench(order, shop, stop, log, shop.clock.monotonic())
        return _settle(order, given, shop, bench, log, order.issued_at)
    finally:
        log.close()


def _log(order: Order, shop: Workshop) -> AttemptLog:
    return AttemptLog(shop.shelf, order.step, order.attempt, shop.mask, shop.clock, durable=not order.repeatable)


def _settle(order: Order, given: ToolResult, shop: Workshop, bench: Bench, log: AttemptLog, started: str) -> Result:
    """Run the checks, publish the result, close the story in the log."""
    checks = _checked(order, given, bench, log)
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
        sandbox=shop.confinement.sandbox,
        started_at=started,
        ended_at=shop.clock.stamp(),
        duration_s=round(shop.clock.monotonic() - (bench.deadline - order.timeout_s), 6),
        **_verdict(order, given, checks, bench),
    )
    result = publish_result(result, shop.shelf, shop.mask)
    log.write("end", {"status": result.status, "duration_s": result.duration_s})
    return result


def _bench(order: Order, shop: Workshop, stop: StopSign, log: AttemptLog, began: float) -> Bench:
    return Bench(
        confinement=shop.confinement,
        deadline=began + order.timeout_s,
        stop=stop,
        output_bytes=shop.output_bytes,
        output_file=Path(shop.shelf.path(order.step, order.attempt, "output")),
        claim=log.claim,
        log=log.write,
        mask=shop.mask,
    )


def _call(order: Order, shop: Workshop, bench: Bench, log: AttemptLog) -> ToolResult:
    """Call the tool. What goes wrong in it is a failure of the step, never of the driver."""
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


def _as_planned(order: Order) -> JsonObject:
    """Return an order's input as a plan may write it: the values of a shell text's references came later."""
    if order.tool != "shell":
        return order.input
    return {name: value for name, value in order.input.items() if name != "env"}


def _checked(order: Order, given: ToolResult, bench: Bench, log: AttemptLog) -> tuple[CheckResult, ...]:
    if given.failure is not None or not order.checks:
        return ()
    checks = run_checks(order.checks, bench, given.output)
    for check in checks:
        log.write("check", check.model_dump())
    return checks


def _verdict(order: Order, given: ToolResult, checks: tuple[CheckResult, ...], bench: Bench) -> dict[str, Any]:
    """Return status, error and surprise: the checks decide, not the tool's word."""
    if given.failure is not None and given.failure.kind == "interrupted":
        said = bench.stop.because if isinstance(bench.stop, Halt) else None
        return {"status": "interrupted", "error": said or given.failure}
    if given.failure is not None:
        return {"status": "failed", "error": given.failure}
    if wrong := [check for check in checks if not check.ok]:
        message = "; ".join(f"the {check.kind} check does not hold: {check.detail}" for check in wrong)
        return {"status": "failed", "error": Failure(kind="check", message=message)}
    unexpected = surprise(order.expects, given.output, deadline=bench.deadline, stop=bench.stop)
    return {"status": "done", "surprising": unexpected is not None, "surprise": unexpected}


def publish_result(result: Result, shelf: Shelf, mask: Mask) -> Result:
    """Write a result, once and for good, and return it as it was written: with secrets hidden."""
    source = render(result)
    hidden = mask.data(source)
    shelf.put(names.step_file(result.step, result.attempt, "result"), hidden, durable=True)
    return result if hidden == source else Result.model_validate_json(hidden)


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

"""One step's state from its own files and the states of what it depends on. Pure.

Theory of operation. A step has attempts, numbered; only the latest can be unfinished. A result *counts* while the
step still does what it did then (same key) and still follows what it followed then (`after`). So:

    unfinished attempt  -> ordered / running        (and to be stopped, if it no longer counts)
    dependencies open   -> waiting                  (stale, if there is a result that may have to be made again)
    no result counts    -> ready                    (stale, if there was one; gated, if a person must say yes first)
    a result counts     -> done, failed, blocked, rejected, interrupted or skipped

Every view names the `move` it calls for and why; whether the run may make that move now is `decide`'s business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.excerpts import check_words, join_messages, list_first, reason
from agentfs.core.facts import CUT_WORDS, GATE_WORDS, Attempt, Child, Talk, cut_word, explain_uncounted, gate_word
from agentfs.core.hashing import sha256_of
from agentfs.core.params import EMPTY, with_words
from agentfs.core.records import Failure, Order, ResolvedCheck, Result, Step, Trigger, Verdict
from agentfs.core.references import ITEM, in_step
from agentfs.core.resolve import Output, Resolved, Unresolved, resolve_step

Status = Literal[
    "waiting",
    "ready",
    "gated",
    "ordered",
    "running",
    "done",
    "failed",
    "blocked",
    "interrupted",
    "rejected",
    "skipped",
    "stale",
]
Move = Literal[
    "order",  # an order may be written
    "retry",  # an order may be written, but not before its time
    "start",  # an order is there: the executor may take it
    "stop",  # an attempt runs that no longer counts
    "ask",  # a person must be asked before the order exists
    "ask_cut",  # a person must be asked what became of an attempt that was cut off
    "reject",  # a person rejected it: record that
    "record_cut",  # a person said what became of it: record that
    "record_ask",  # a person answered the step's question: go on with it
    "child",  # it is a run of its own, which has not ended
    "record_child",  # that run has ended: record that
    "person",  # a question is open
    "reach",  # its model could not be reached: a person has to fix that
    "look",  # its condition has to be looked at before any item of it gets an order
    "gather",  # every item of it has ended: its own result is to be written
    "call",  # the planner has to look at it
    "halt",  # nobody has an answer: the run ends
]
MAX_INTERRUPTIONS = 3
LONGEST_WAIT, DOUBLINGS = 31_536_000.0, 40  # a pause between tries grows to a year at most
A_NO = "a person rejected it"  # where they gave no reason
LIMIT, UNREACHABLE, DRIFT = "limit", "unreachable", "drift"  # kinds of failure that code distinguishes
UNKNOWN_KEY = "0" * 64  # of an attempt that was made, and of which neither order nor claim says what it was to do
_NONE = Attempt(0)


@dataclass(frozen=True, slots=True)
class Around:
    """What a step's state depends on beside its files and its dependencies."""

    goal: str
    revision: int
    attempts: int  # limits.attempts
    spent: Mapping[str, Verdict]  # evidence -> the verdict of the call that spent it
    can_answer: Callable[[str], bool]  # is there anyone to ask when this step fails?
    can_answer_no: Callable[[str], bool]  # and when a person rejects it?
    repeatable: Callable[[Step], bool]
    planner_made_stale: Callable[[str, int], bool]  # did a planner's revision since then change what it does?
    room: int  # bytes that the references of one step may come to
    items: int = 1000  # limits.items
    held: frozenset[tuple[str, str]] = frozenset()  # steps with `each`, and keys, whose condition was seen to hold
    whole: Callable[[str, int, Result], tuple[JsonValue, bool]] = lambda _step, _number, one: (one.output, one.cut)
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    loop: str | None = None  # the step that does the whole goal in one loop, while the run is one
    gated: frozenset[str] = frozenset()  # tools of which a person approves every call
    ended: bool = False  # the run has an outcome: nothing in it is under way

    def is_gated(self, step: Step) -> bool:
        """Whether a person approves every attempt: the step says so, or its tool does."""
        return bool(step.gate) or step.tool in self.gated

    def allowed(self, step: Step) -> int:
        """Return how many tries a step has."""
        return attempts_allowed(step, self.attempts, repeatable=self.repeatable(step))


@dataclass(frozen=True, slots=True)
class StepView:
    """A step's state, why, and the move it calls for."""

    step: Step  # words as people are shown them, parameters filled in
    status: Status
    why: str
    attempt: int = 0  # the latest one, 0 if there is none
    next: int = 1  # the number a new attempt gets
    key: str | None = None
    after: Mapping[str, int] = field(default_factory=dict)
    resolved: Resolved | None = None
    result: Result | None = None
    satisfied: bool = False  # those that depend on it may go on
    move: Move | None = None
    trigger: Trigger | None = None
    evidence: tuple[str, ...] = ()
    not_before: str | None = None  # when an order may be written, if it has to wait for that
    condition: ResolvedCheck | None = None  # to be looked at before an order, a gate or needs: it may be skipped
    conditional: bool = False  # it was skipped by its condition, or by that of a step whose output it uses
    items: tuple["StepView", ...] = ()  # of a step with `each`, in the order of its list
    item_at: Mapping[str, int] = field(default_factory=dict)  # their ids, and their places in it
    is_open: bool = False  # of such a step: its items may get orders
    params: Mapping[str, JsonValue] | None = None  # of an item: what its references may name beside steps
    left: int | None = None  # the revision in which it left the plan; None: it is in it

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def busy(self) -> bool:
        """Whether something is under way; a question that waits for a person is not."""
        under_way = self.status in ("ordered", "running") and self.move not in ("person", "record_ask")
        return under_way and self.step.each is None  # a step with `each` is under way in its items


def result_path(step: str, attempt: int) -> str:
    return paths.step_path(step, attempt, "result")


def is_repeatable(step: Step, tools: Mapping[str, bool], *, by_agent: bool = False, isolated: bool = False) -> bool:
    """Return whether a step may simply run again: what it says, else what its tools are.

    `by_agent`: an agent does steps without a tool, which is repeatable only where what it did can be undone.
    """
    if step.repeatable is not None:
        return step.repeatable
    if step.tool is not None:
        return tools.get(step.tool, False)
    if by_agent or step.agent is not None:
        return isolated
    return all(tools.get(tool, False) for tool in step.tools or ())


def attempts_allowed(step: Step, limit: int, *, repeatable: bool) -> int:
    """Return how many tries a step has: what it says, else `limit` (limits.attempts) where another try does no harm.

    A model's work is tried again, since it sees what went wrong; what may not be repeated is not, whatever does it.
    """
    if step.max_attempts is not None:
        return step.max_attempts
    if step.repeatable is False:
        return 1
    return limit if repeatable or step.tool is None else 1


def retry_wait(step: Step, key: str, attempts: tuple[Attempt, ...], around: Around) -> float:
    """Return how many seconds the next try waits if the attempt that is due, or under way, fails; 0: it need not."""
    used = _tries(step, key, attempts, around).used + 1
    if not step.retry_wait_s or used >= around.allowed(step):
        return 0.0
    return min(step.retry_wait_s * 2.0 ** min(used - 1, DOUBLINGS), LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class _Tries:
    """The attempts at what a step does now that came to nothing and that no call has taken up."""

    failed: tuple[Attempt, ...]
    cut: tuple[Attempt, ...]

    @property
    def used(self) -> int:
        return len(self.failed) + max(0, len(self.cut) - MAX_INTERRUPTIONS + 1)


def _tries(step: Step, key: str, attempts: tuple[Attempt, ...], around: Around) -> _Tries:
    mine = [a for a in attempts if a.result and a.result.key == key and _unspent(step, a, around)]
    return _Tries(
        tuple(a for a in mine if a.result and a.result.status == "failed"),
        tuple(a for a in mine if a.result and a.result.status == "interrupted" and failure_kind(a.result) != LIMIT),
    )


def _unspent(step: Step, attempt: Attempt, around: Around) -> bool:
    return not attempt.again and result_path(step.id, attempt.number) not in around.spent


def key_of(step: Step, resolved: Resolved, params: Mapping[str, JsonValue] = EMPTY) -> str:
    """Return the hash of what a step does; a result counts only while it stays the same.

    Words bind only a step that a model does: of such a one they are hashed as the model reads them.
    """
    step = with_words(step, params) if step.tool is None else step
    item: dict[str, object] = {"item": params[ITEM]} if ITEM in params else {}
    does: dict[str, object] = {
        "tool": step.tool,
        "input": resolved.input,
        "checks": [check.model_dump(mode="json", by_alias=True, exclude_none=True) for check in resolved.checks],
        "success_condition": step.success_condition,
    }
    if step.tool is None:
        does |= {"description": step.description, "model": step.model, "tools": step.tools}
        does |= {} if step.agent is None else {"agent": step.agent}  # what is absent is not hashed
    return sha256_of(does | item)


def latest_made(attempts: tuple[Attempt, ...]) -> Attempt:
    """Return the latest attempt that was made; one with a question alone was not."""
    return next((a for a in reversed(attempts) if a.result or a.is_unfinished), _NONE)


def view(
    step: Step,
    before: Mapping[str, StepView],
    attempts: tuple[Attempt, ...],
    around: Around,
    known: StepView | None = None,
) -> StepView:
    """Return the state these files mean for one step.

    `known`: an earlier view of the same step after the same dependencies. It saves resolving the step again.
    """
    latest = latest_made(attempts)
    base = StepBase(step, latest, attempts, before, around, known)
    if latest.is_unfinished:
        return unfinished_view(base)
    if step.skip:
        return base.view("skipped", f"left out: {step.skip}", satisfied=True)
    if open_ones := [name for name, dependency in before.items() if not dependency.satisfied]:
        stale = latest.result is not None and latest.result.status == "done" and not latest.again
        return base.view("stale" if stale else "waiting", f"waits for {list_first(open_ones)}")
    if lost := base.lost_outputs():
        why = f"uses the output of {list_first(lost)}, which has none"
        conditional = all(before[name].conditional for name in lost)
        return base.view("skipped", why, satisfied=True, conditional=conditional)
    resolved = base.resolve()
    if isinstance(resolved, Unresolved):
        return unreachable_view(base, resolved)
    return _view_finished(base, resolved)


@dataclass(slots=True)
class StepBase:
    """The inputs of one view, and the few questions asked of them more than once."""

    step: Step
    latest: Attempt
    attempts: tuple[Attempt, ...]
    before: Mapping[str, StepView]
    around: Around
    known: StepView | None

    @staticmethod
    def of(step: Step, before: Mapping[str, StepView], attempts: tuple[Attempt, ...], around: Around) -> "StepBase":
        return StepBase(step, latest_made(attempts), attempts, before, around, None)

    def condition(self) -> ResolvedCheck | None:
        """Return the step's condition with values in place of references."""
        if self.step.when is None:
            return None
        outputs = {name: one for name, one in self.before.items() if one.status == "done" and one.result is not None}
        values = {name: Output(one.result.output, one.result.cut, "") for name, one in outputs.items() if one.result}
        bare = Step(id=self.step.id, when=self.step.when)
        found = resolve_step(bare, values, self.around.goal, self.around.room, self.around.params)
        return found.when if isinstance(found, Resolved) else None

    def fits(self, one: Order | Result) -> bool:
        """Whether an order or a result follows what the step follows now."""
        return all(one.after.get(name) == number for name, number in self.after.items())

    @property
    def after(self) -> dict[str, int]:
        return {name: dependency.attempt for name, dependency in self.before.items()}

    @property
    def last_number(self) -> int:
        return self.attempts[-1].number if self.attempts else 0

    def view(self, status: Status, why: str, **more: object) -> StepView:
        values: dict[str, object] = {
            "attempt": self.latest.number,
            "next": self.last_number + 1,
            "after": self.after,
            "result": self.latest.result,
            **({"params": self.around.params} if ITEM in self.around.params else {}),
            **more,
        }
        return StepView(with_words(self.step, self.around.params), status, why, **values)  # type: ignore[arg-type]

    def lost_outputs(self) -> list[str]:
        """Return the dependencies it refers to that ended without an output, where that is allowed."""
        gone = [
            name
            for name, dependency in self.before.items()
            if dependency.status in ("failed", "skipped") and dependency.satisfied and not dependency.step.skip
        ]
        referred = {reference.step for _, reference in in_step(self.step)} if gone else set()
        return [name for name in gone if name in referred]

    def resolve(self) -> Resolved | Unresolved:
        if self.known is not None and self.known.resolved is not None:
            return self.known.resolved
        outputs = {
            name: Output(d.result.output, d.result.cut, output_path(name, d.attempt))
            for name, d in self.before.items()
            if d.status == "done" and d.result is not None
        }
        return resolve_step(self.step, outputs, self.around.goal, self.around.room, self.around.params)

    def key(self, resolved: Resolved) -> str:
        """Return the key; hashing is not repeated for what was resolved before."""
        if self.known is not None and self.known.key is not None and self.known.resolved is resolved:
            return self.known.key
        return key_of(self.step, resolved, self.around.params)


def output_path(step: str, attempt: int) -> str:
    """Return where the whole output of an attempt lies, in the run's folder."""
    return paths.step_path(step, attempt, "output")


def unfinished_view(base: StepBase) -> StepView:
    """Return the state of a step whose latest attempt has no result yet."""
    order, latest = base.latest.order, base.latest
    waits = any(not dependency.satisfied for dependency in base.before.values())
    resolved = None if base.step.skip or waits or base.lost_outputs() else base.resolve()
    current = resolved if isinstance(resolved, Resolved) else None
    key = base.key(current) if current else None
    counts = order is not None and order.key == key and base.fits(order)
    counts = counts or (latest.claim is not None and latest.claim.key is not None and latest.claim.key == key)
    if latest.child is not None:
        return _child_view(base, latest.child, key, current, counts=counts)
    if counts and latest.asks:
        answered = latest.asks.reply is not None
        why = "a person has answered" if answered else "waits for a person's answer"
        move: Move = "record_ask" if answered else "person"
        return base.view("running", why, key=key, resolved=current, move=move)
    if counts and latest.claimed:
        return base.view("running", f"attempt {latest.number} is running", key=key, resolved=current)
    if counts:
        return base.view("ordered", f"attempt {latest.number} may start", key=key, resolved=current, move="start")
    may_stop = order is None or order.repeatable or not latest.claimed or latest.asks
    lost = order is None and latest.claimed
    why = "its order is gone" if lost else f"attempt {latest.number} no longer counts: the plan has changed"
    return base.view("running", why, move="stop" if may_stop else None)


def _child_view(
    base: StepBase, child: Child, key: str | None, resolved: Resolved | None, *, counts: bool
) -> StepView:
    """Return the state of a step that is a run of its own: its end is that of the run, also where it counts no more.

    Nothing stops such a run but a person, or the end of the run above: what it has begun it finishes.
    """
    more: dict[str, object] = {"key": key if counts else None, "resolved": resolved if counts else None}
    if child.is_over:
        return base.view("running", f"the run {child.run} has ended", move="record_child", **more)
    if not child.begun:
        why = f"the run {child.run} may begin" if counts else "the plan has changed before its run began"
        return base.view("running", why, move="start" if counts else "stop", **more)
    since = "" if counts else "; the plan has changed since"
    return base.view("running", f"the run {child.run} is under way{since}", move="child", **more)


def unreachable_view(base: StepBase, unresolved: Unresolved) -> StepView:
    referred = base.before.get(unresolved.step)
    if referred and referred.attempt:
        evidence = result_path(unresolved.step, referred.attempt)
    else:  # it never ran: the plan itself is what cannot be
        evidence = f"{paths.REVISIONS}/{paths.revision_file(base.around.revision)}"
    spent = evidence in base.around.spent
    move: Move = "halt" if spent or not base.around.can_answer(base.step.id) else "call"
    return base.view("blocked", unresolved.why, move=move, trigger="step_unreachable", evidence=(evidence,))


def _view_finished(base: StepBase, resolved: Resolved) -> StepView:
    """Return the state of a step that could run now, or need not."""
    key, result = base.key(resolved), base.latest.result
    if result is None or base.latest.again:
        return _startable(base, key, resolved, "ready", "it is ready")
    fits = result.key == key and base.fits(result)
    match result.status:
        case "done" if fits:
            return done_view(base, key, resolved, result)
        case "done":
            return _startable(base, key, resolved, "stale", "the step, or one before it, has changed")
        case "failed":
            return _view_failed(base, key, resolved)
        case "interrupted":
            return _view_interrupted(base, key, resolved, result)
        case "skipped" if fits and resolved.when and result.when_sha256 == condition_sha256(resolved.when):
            more: dict[str, object] = {"key": key, "resolved": resolved, "conditional": True}
            return base.view("skipped", skipped_words(result), satisfied=True, **more)
        case "blocked" | "rejected" if result.key == key:
            return rejected_view(base, key, resolved, result)
        case "skipped":
            return _startable(base, key, resolved, "ready", "it was skipped, and has changed since")
        case _:
            return _startable(base, key, resolved, "ready", "it has changed since it was turned away")


def done_view(base: StepBase, key: str, resolved: Resolved | None, result: Result) -> StepView:
    surprise = result.surprising and _unspent(base.step, base.latest, base.around)
    return base.view(
        "done",
        f"surprising: {result.surprise}" if surprise else f"attempt {result.attempt} succeeded",
        key=key,
        resolved=resolved,
        satisfied=True,
        move="call" if surprise else None,
        trigger="unexpected_state" if surprise else None,
        evidence=(result_path(base.step.id, result.attempt),) if surprise else (),
    )


def _view_failed(base: StepBase, key: str, resolved: Resolved) -> StepView:
    """A failed step is tried again until its attempts are used up; then the planner or a person decides."""
    tries, allowed = _tries(base.step, key, base.attempts, base.around), base.around.allowed(base.step)
    failed, used = tries.failed, tries.used
    said_so = bool(failed) and failed[-1].result is not None and failure_kind(failed[-1].result) == "person"
    if used < allowed and not said_so:
        which = f"attempt {used + 1} of {allowed}"
        if (due := _due(base, key)) is not None:
            return _startable(base, key, resolved, "waiting", f"{_describe_end(base)}{which} follows {at(due)}", due)
        why = "the last try failed" if used else "it is tried again"
        return _startable(base, key, resolved, "ready", f"{why}; {which}")
    evidence = tuple(result_path(base.step.id, a.number) for a in (*failed, *tries.cut))
    return base.view(
        "failed",
        _failure_words(base.latest.result, used),
        key=key,
        resolved=resolved,
        satisfied=base.step.on_failure == "continue",
        move=move_on_failure(base),
        trigger=_failure_trigger(base, used),
        evidence=tuple(sorted(evidence)),
    )


def _due(base: StepBase, key: str) -> str | None:
    """Return when the next try may begin; None: now, also where a person has taken the pause out of the plan."""
    result = base.latest.result
    waits = base.step.retry_wait_s and result is not None and result.status == "failed" and result.key == key
    return result.retry_at if waits and result is not None else None


def at(stamp: str) -> str:
    """Return a moment in words."""
    return f"at {stamp[:10]} {stamp[11:19]} UTC"


def _failure_trigger(base: StepBase, used: int) -> Trigger:
    """A loop that went astray needs a plan; it is not a step of one that failed."""
    kind = failure_kind(base.latest.result) if base.latest.result else None
    if kind == DRIFT or (kind == "check" and base.step.id == base.around.loop):
        return "drift"
    return "repeated_failure" if used >= 2 else "step_failed"


def failure_kind(result: Result) -> str | None:
    """Return the kind of failure that a result records; None if it is none."""
    return result.error.kind if result.error else None


def _failure_words(result: Result | None, used: int) -> str:
    message = reason(result.error.message if result and result.error else "")
    return message if used < 2 else f"failed {used} times, last: {message}"


def move_on_failure(base: StepBase) -> Move | None:
    match base.step.on_failure:
        case "continue":
            return None
        case "stop":
            return "halt"
        case _:
            return "call" if base.around.can_answer(base.step.id) else "halt"


def _view_interrupted(base: StepBase, key: str, resolved: Resolved, result: Result) -> StepView:
    if failure_kind(result) == UNREACHABLE and result.key == key and result.error:
        return base.view("interrupted", reason(result.error.message), key=key, resolved=resolved, move="reach")
    unknown = result.key == UNKNOWN_KEY and result.started_at is not None
    if not unknown:
        if result.started_at is None or base.around.repeatable(base.step):
            return _view_failed(base, key, resolved)
        if result.key != key:
            return _startable(base, key, resolved, "stale", "it was cut off, and has changed since")
    talk = _talk(base.latest)
    if talk and (talk.ask or talk.key is not None):  # an `ask`, or the gate before it: no word of how it ended
        talk = None
    more: dict[str, object] = {"key": key, "resolved": resolved}
    match cut_word(talk.reply if talk else None):
        case "again":
            return _startable(base, key, resolved, "ready", "a person said again")
        case "done" | "failed":
            return base.view("interrupted", "a person said what became of it", move="record_cut", **more)
        case _:
            unsure = "nothing says what it was to do" if unknown else "is not repeatable"
            ask = f"it was cut off and {unsure}: a person must say what became of it"
            why = explain_uncounted(talk.reply if talk else None, CUT_WORDS) or ask
            return base.view("interrupted", why, move="person" if talk else "ask_cut", **more)


def rejected_view(base: StepBase, key: str, resolved: Resolved | None, result: Result) -> StepView:
    """A blocked or rejected step waits for a new plan; one that was kept as it is ends the run.

    A no is not a failure: nothing in the plan says how to go on without it, not even `continue`.
    """
    path = result_path(base.step.id, result.attempt)
    spent = base.around.spent.get(path)
    if resolved is not None and spent in ("plan", "finished", "impossible"):
        return _startable(base, key, resolved, "ready", "the plan has been revised since it was turned away")
    rejected = result.status == "rejected"
    can_answer = base.around.can_answer_no if rejected else base.around.can_answer
    answered = spent is None and can_answer(base.step.id)
    blocked = reason(result.error.message) if result.error else "turned away"
    return base.view(
        "rejected" if rejected else "blocked",
        no_words(result) if rejected else blocked,
        key=key,
        resolved=resolved,
        move="call" if answered else "halt",
        trigger="step_unreachable",
        evidence=(path,),
    )


def no_words(result: Result) -> str:
    """Return that a person said no, and why if they said so."""
    error = result.error
    return f"rejected: {error.message}" if error and error.cause != "no_reason" else "rejected"


def rejection(words: str | None) -> Failure:
    """Return why a step was rejected: what the person wrote, if anything."""
    return Failure(kind="rejected", message=words or A_NO, cause=None if words else "no_reason")


def _startable(
    base: StepBase, key: str, resolved: Resolved, status: Status, why: str, due: str | None = None
) -> StepView:
    """Return the state of a step that may get an order, or must first ask a person, or wait until it is due."""
    more: dict[str, object] = {"key": key, "resolved": resolved, "not_before": due}
    if resolved.when and not _holds_already(base, key):
        more["condition"] = resolved.when
    go: Move = "order" if due is None else "retry"
    if not _needs_permission(base, status):
        return base.view(status, why, move=go, **more)
    last = base.attempts[-1] if base.attempts else Attempt(0)
    talk = _talk(last) if not (last.result or last.is_unfinished) else None
    if talk is None or talk.key != key:
        return base.view("gated", "needs approval", move="ask", **more)
    more["next"] = last.number
    match gate_word(talk.reply):
        case "approve":
            return base.view(
                "gated", f"a person approved it{f'; it follows {at(due)}' if due else ''}", move=go, **more
            )
        case "reject":
            return base.view("gated", A_NO, move="reject", **more)
        case None:
            why = explain_uncounted(talk.reply, GATE_WORDS) or "needs approval"
            return base.view("gated", f"{_describe_end(base)}{why}", move="person", **more)


def _holds_already(base: StepBase, key: str) -> bool:
    """Whether the condition has been looked at and held: an order was written since, or a person asked about one."""
    asked = base.attempts[-1].talks if base.attempts else ()
    return any(talk.key == key for talk in asked) or any(
        one.order is not None and one.order.key == key and dict(one.order.after) == base.after
        for one in base.attempts
        if not one.again
    )


def condition_sha256(condition: ResolvedCheck) -> str:
    """Return the hash of a condition with values in place of references."""
    return sha256_of(condition.model_dump(mode="json", by_alias=True, exclude_none=True))


def skipped_words(result: Result) -> str:
    """Return why a step was skipped by its condition."""
    return f"its condition does not hold: {reason(join_messages(map(check_words, result.checks)))}"


def _describe_end(base: StepBase) -> str:
    """Return what became of the attempt before, which a person has to know first; nothing where all was well."""
    result = base.latest.result
    if result is None or result.status == "done":
        return ""
    return f"attempt {result.attempt} {ended_words(result)}; "


def ended_words(result: Result) -> str:
    """Return how an attempt ended, and why, in a line."""
    said = reason(result.error.message) if result.error else "no reason given"
    match result.status:
        case "done":
            return "succeeded"
        case "skipped":
            return "was skipped"
        case "rejected":
            return f"was {no_words(result)}"
        case "interrupted":
            how = "was cut off"
        case "blocked":
            how = "could not start"
        case "failed":
            how = "failed"
    return f"{how}: {said}"


def _needs_permission(base: StepBase, status: Status) -> bool:
    if base.around.is_gated(base.step):
        return True
    result = base.latest.result
    if result is None or status != "stale" or base.around.repeatable(base.step):
        return False
    return base.around.planner_made_stale(base.step.id, result.revision)


def _talk(attempt: Attempt) -> Talk | None:
    return attempt.talks[-1] if attempt.talks else None

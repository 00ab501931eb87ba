"""Derive what a run's files mean, and count what it has used. Pure: same files, same state, always."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agentfs.core.config import LimitSettings
from agentfs.core.facts import RUN, Attempt, Facts, PlannerCall
from agentfs.core.paths import step_of
from agentfs.core.plan_graph import BUSY, PlanGraph, StepTable, build_table, update_table
from agentfs.core.planner_calls import DO, CallsSummary, Pending, loops, pending_in, pending_without_plan
from agentfs.core.records import Failure, Limits, Result, Revision, Step, Usage
from agentfs.core.resolve import reference_limit
from agentfs.core.steps import Around, StepView, is_repeatable, result_path
from agentfs.core.tool_spec import runs_here

# ── limits and usage ─────────────────────────────────────────────────────────────────────────────────────


Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits in force: those the run began with, overridden by the plan's."""

    replans: int
    attempts: int
    parallel: int
    steps: int
    requests: int
    tokens: int
    cost_usd: float
    minutes: float
    items: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far."""

    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0  # in which at least one attempt ran, or a model planned; waiting for a person costs nothing
    spans: tuple[Span, ...] = ()  # when that was: merged, sorted

    @property
    def asked(self) -> bool:
        """Whether a model was asked for anything."""
        return bool(self.requests or self.tokens or self.cost_usd)

    def plus_usage(self, usage: Usage | None) -> "Spent":
        if usage is None:
            return self
        return replace(
            self,
            requests=self.requests + usage.requests,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            cost_usd=self.cost_usd + (usage.cost_usd or 0.0),
        )

    def plus(self, result: Result) -> "Spent":
        if result.started_at is None or result.items is not None:  # its items were counted
            return self
        return self.plus_usage(result.usage).plus_time(result.started_at, result.duration_s)

    def plus_time(self, started_at: str, duration_s: float) -> "Spent":
        began = _seconds(started_at)
        spans, added = merge_span(self.spans, (began, began + duration_s))
        return replace(self, seconds=self.seconds + added, spans=spans)


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that keeps anything new from starting."""

    name: Literal["minutes", "requests", "tokens", "cost_usd", "day_usd"]
    amount: str

    def __str__(self) -> str:
        return f"the limit of {self.amount} is reached (limits.{self.name})"

    @property
    def fix(self) -> str:
        """What a person can do about it."""
        if self.name == "day_usd":
            return "raise it in agentfs.toml, or wait for tomorrow"
        return "raise it in plan.json"


def bounds_of(facts: Facts) -> Bounds:
    """Return the limits in force."""
    own = (facts.plan.limits if facts.plan else None) or Limits()
    began, defaults = facts.run.limits, LimitSettings()

    def value(name: str) -> object:
        for source in (own, began):
            if (found := getattr(source, name)) is not None:
                return found
        return getattr(defaults, name)

    return Bounds(**{f.name: value(f.name) for f in fields(Bounds)})  # type: ignore[arg-type]


def find_reached(bounds: Bounds, attempts: Spent, calls: Spent) -> Reached | None:
    """Return which limit stops the run from starting anything new; None if none does."""
    if seconds_left(bounds, attempts, calls) <= 0:
        return minutes_reached(bounds)
    if not (attempts.asked or calls.asked):
        return None  # what asks no model needs no room for it
    return no_room(bounds, total(attempts, calls))


def minutes_reached(bounds: Bounds) -> Reached:
    return Reached("minutes", f"{bounds.minutes:g} minutes")


def seconds_left(bounds: Bounds, attempts: Spent, calls: Spent) -> float:
    """Return how long a run may still work: time in which an attempt ran and a model planned counts once."""
    spans, seconds = attempts.spans, attempts.seconds
    for span in calls.spans:
        spans, added = merge_span(spans, span)
        seconds += added
    return bounds.minutes * 60 - seconds


def total(one: Spent, other: Spent) -> Spent:
    """Return what two have asked of models together; time is no part of it."""
    return Spent(
        requests=one.requests + other.requests,
        tokens=one.tokens + other.tokens,
        cost_usd=one.cost_usd + other.cost_usd,
    )


def no_room(bounds: Bounds, used: Spent) -> Reached | None:
    """Return which limit leaves no room for another request to a model; None if none does."""
    if used.requests >= bounds.requests:
        return Reached("requests", f"{bounds.requests} requests")
    if used.tokens >= bounds.tokens:
        return Reached("tokens", f"{bounds.tokens} tokens")
    if used.cost_usd >= bounds.cost_usd:
        return Reached("cost_usd", f"${bounds.cost_usd:g}")
    return None


Attempts = Mapping[str, tuple[Attempt, ...]]


def spent_of(attempts: Attempts, before: Attempts | None = None, spent: Spent | None = None) -> Spent:
    """Return what attempts have used, on top of what was counted before."""
    if before is None or spent is None:
        return spent_on([attempt.result for mine in attempts.values() for attempt in mine if attempt.result])
    for step, mine in attempts.items():
        counted = {attempt.number for attempt in before.get(step, ()) if attempt.result}
        for attempt in mine:
            if attempt.result and attempt.number not in counted:
                spent = spent.plus(attempt.result)
    return spent


def spent_on(results: Iterable[Result]) -> Spent:
    """Return what these results have used: as if they were added one by one, but their spans are laid at once."""
    started = [(_seconds(one.started_at), one) for one in results if one.started_at is not None and one.items is None]
    spent = Spent()
    for _, result in started:
        spent = spent.plus_usage(result.usage)
    spans: list[Span] = []
    for start, end in sorted((start, start + result.duration_s) for start, result in started):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return replace(spent, spans=tuple(spans), seconds=math.fsum(end - start for start, end in spans))


def spent_on_calls(facts: Facts) -> Spent:
    """Return what the planner's calls have used, and the judge of the goal's checks."""
    spent = Spent()
    for one in facts.calls:
        spent = spent.plus_usage(one.answer.usage if one.answer else None)
        spent = spent.plus_usage(one.checks.usage if one.checks else None)
        if one.answer and one.answer.started_at:
            spent = spent.plus_time(one.answer.started_at, one.answer.duration_s)
    return spent


def merge_span(spans: tuple[Span, ...], new: Span) -> tuple[tuple[Span, ...], float]:
    """Return spans with one more laid over them, still sorted and apart, and the seconds that adds."""
    start, end = new
    if not spans or spans[-1][1] < start:  # as a rule it is the latest
        return (*spans, new), end - start
    first = bisect_left(spans, start, key=lambda span: span[1])
    last, known = first, 0.0
    while last < len(spans) and spans[last][0] <= end:
        start, end = min(start, spans[last][0]), max(end, spans[last][1])
        known += spans[last][1] - spans[last][0]
        last += 1
    return (*spans[:first], (start, end), *spans[last:]), end - start - known


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


# ── state ────────────────────────────────────────────────────────────────────────────────────────────────


Use = Literal["apart", "reads", "writes"]  # of the working folder


@dataclass(frozen=True, slots=True)
class Means:
    """What this process has to work with, beside the files: models, and tools that may be repeated or not."""

    planner: bool = False
    executor: bool = False
    repeatable: Mapping[str, bool] = field(default_factory=dict)
    gated: frozenset[str] = frozenset()  # tools of which a person approves every call
    agent: bool = False  # a coding agent does steps without a tool
    isolated: bool = False  # what an attempt did is undone before the next
    uses: Mapping[str, Use] = field(default_factory=dict)  # by tool; one that is not in it may write


@dataclass(frozen=True, slots=True)
class Stray:
    """An unfinished attempt of a step that has left the plan."""

    step: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run's files mean at one moment."""

    facts: Facts
    means: Means
    bounds: Bounds
    calls: CallsSummary
    calls_spent: Spent
    spent: Spent = field(default_factory=Spent)
    graph: PlanGraph | None = None
    around: Around | None = None
    table: StepTable = field(default_factory=StepTable)
    strays: tuple[Stray, ...] = ()
    pending: tuple[Pending, ...] = ()
    doomed: bool = False  # the current plan only cleans up: the run will end failed
    day: Reached | None = None  # all runs together have spent what they may today

    @property
    def steps(self) -> Mapping[str, StepView]:
        return self.table.views

    def view(self, name: str) -> StepView | None:
        """Return the view of a step, or of one item of a step."""
        return self.table.view(name)

    @property
    def running(self) -> tuple[StepView, ...]:
        return self.moving(BUSY)

    @property
    def limit_reached(self) -> Reached | None:
        own = find_reached(self.bounds, self.spent, self.calls_spent)
        return own or (self.day if self.day and _asks_models(self) else None)

    @property
    def uses_places(self) -> bool:
        """Whether any step may run elsewhere."""
        return self.facts.run.place is not None or (self.graph is not None and self.graph.names_places)

    def place_of(self, step: Step) -> str | None:
        """Return where a step runs, by name; None: where its driver runs, as all do that only wait or take notes."""
        return None if runs_here(step.tool) else step.place or self.facts.run.place

    def moving(self, *moves: str, most: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that call for one of these moves, in the plan's order; `most`: no more than that."""
        return self.table.moving(self.graph, *moves, most=most) if self.graph else ()


def _asks_models(state: RunState) -> bool:
    """Whether a run may ask a model for anything: one that cannot has nothing to spend."""
    facts = state.facts
    if not facts.goal.has_steps or facts.plan is None or state.spent.asked or state.calls_spent.asked:
        return True
    checks = [*facts.goal.checks, *(facts.plan.checks or ())]
    for step in facts.plan.steps:
        if step.tool is None or step.tool == "summarize":
            return True
        checks += step.checks or ()
    return any(check.kind == "judge" for check in checks)


def used_by(state: RunState) -> Spent:
    """Return what the models have been asked so far, over calls and attempts."""
    return total(state.spent, state.calls_spent)


def derive(facts: Facts, means: Means, before: RunState | None = None) -> RunState:
    """Return the state these files mean. `before`, a state of the same run, saves work and changes nothing."""
    if before is not None and facts is before.facts and means is before.means:
        return before
    if before is not None and before.means is means and (touched := facts.touched_since(before.facts)) is not None:
        return _derive_again(facts, before, touched)
    bounds, calls = bounds_of(facts), CallsSummary.of(facts)
    state = RunState(facts, means, bounds, calls, spent_on_calls(facts), spent_of(facts.attempts))
    if facts.plan is None:
        return replace(state, pending=pending_without_plan(facts, calls))
    graph = PlanGraph.of(facts.plan)
    around = _around(facts, means, bounds, calls, graph)
    table = build_table(facts, graph, around)
    return replace(
        state,
        graph=graph,
        around=around,
        table=table,
        strays=_strays(facts, table),
        pending=pending_in(facts, table, graph, calls),
        doomed=_doomed(facts),
    )


def _derive_again(facts: Facts, before: RunState, touched: frozenset[str]) -> RunState:
    """Return the state when only the attempts of some steps have changed."""
    new = {step: facts.attempts.get(step, ()) for step in touched}
    spent = spent_of(new, before.facts.attempts, before.spent)
    if before.graph is None or before.around is None:
        return replace(before, facts=facts, spent=spent)
    table = update_table(before.table, touched, facts, before.graph, before.around)
    strays = before.strays if all(table.view(step) for step in touched) else _strays(facts, table)
    pending = pending_in(facts, table, before.graph, before.calls)
    return replace(before, facts=facts, spent=spent, table=table, strays=strays, pending=pending)


def _around(facts: Facts, means: Means, bounds: Bounds, calls: CallsSummary, graph: PlanGraph) -> Around:
    def can_answer(step: str) -> bool:
        return step in facts.answerable if facts.goal.has_steps else means.planner

    def can_answer_no(step: str) -> bool:
        return step in facts.cleanable if facts.goal.has_steps else means.planner

    def whole(step: str, attempt: int, result: Result) -> tuple[JsonValue, bool]:
        path = result_path(step, attempt)
        return (facts.whole[path], False) if path in facts.whole else (result.output, result.cut)

    def repeatable(step: Step) -> bool:
        return is_repeatable(step, means.repeatable, by_agent=means.agent, isolated=means.isolated)

    def planner_made_stale(step: str, since: int) -> bool:
        step = step_of(step)
        touched = graph.ancestors(step) | {step}
        return any(
            revision.by.role == "planner" and any(change.step in touched for change in revision.changes)
            for revision in facts.revisions
            if revision.revision > since
        )

    return Around(
        goal=facts.goal.text,
        revision=len(facts.revisions),
        attempts=bounds.attempts,
        spent=calls.spent,
        can_answer=can_answer,
        can_answer_no=can_answer_no,
        repeatable=repeatable,
        planner_made_stale=planner_made_stale,
        room=reference_limit(bounds.output_bytes, len(graph.steps)),
        params=facts.run.params or {},
        items=bounds.items,
        held=facts.held,
        whole=whole,
        loop=DO if loops(facts) else None,
        gated=means.gated if facts.goal.has_steps else means.gated | {RUN},  # of a planner's, each is approved
        ended=facts.outcome is not None,
    )


def _strays(facts: Facts, table: StepTable) -> tuple[Stray, ...]:
    left = [step for step in facts.attempts if table.view(step) is None]
    latest = ((step, facts.attempts[step][-1]) for step in sorted(left))
    return tuple(Stray(step, attempt) for step, attempt in latest if attempt.is_unfinished)


def _doomed(facts: Facts) -> bool:
    """Whether the last revision that changed steps came from an answer of `impossible`."""
    last = last_change(facts)
    answer = facts.planner_call(last.call).answer if last and last.call else None
    return answer is not None and answer.verdict == "impossible"


def last_change(facts: Facts) -> Revision | None:
    """Return the last revision that changed steps, and not only what the plan says of itself."""
    return next((one for one in reversed(facts.revisions) if any(c.step is not None for c in one.changes)), None)


def goal_checks(state: RunState) -> PlannerCall | None:
    """Return what the goal's checks found, if that still speaks of this plan and these attempts."""
    after = {step: view.attempt for step, view in state.steps.items()}
    for one in reversed(state.facts.calls):
        if one.again or one.checks is None:
            continue
        if one.checks.revision == len(state.facts.revisions) and dict(one.checks.after) == after:
            return one
    return None


def why_unjudged(checked: PlannerCall | None) -> Failure | None:
    """Return why a judge among the goal's checks could not be asked."""
    return checked.checks.error if checked and checked.checks else None


def may_be_repaired(state: RunState, pending: tuple[Pending, ...]) -> bool:
    """Whether the executor's model is asked before the planner: once for each planned tool step that failed."""
    facts, first = state.facts, pending[0]
    view = state.steps.get(first.step or "")
    if not (facts.run.repair and state.means.executor) or facts.goal.has_steps or view is None or len(pending) > 1:
        return False
    asked = any(one.call and one.call.role == "executor" and one.call.step == view.id for one in facts.calls)
    failed = first.trigger in ("step_failed", "repeated_failure") and view.status == "failed"
    return failed and view.step.tool is not None and view.step.each is None and not asked


def next_step(state: RunState) -> Pending:
    """Return the reason to ask for one more step: all that there are have ended."""
    tried = [view for view in state.steps.values() if view.attempt]
    paths = [result_path(view.id, view.attempt) for view in tried]
    last = tried[-1].id if tried else None
    detail = f"{last} has ended: what is next?" if last else "what is next?"
    return Pending("next_step", last, detail, tuple(path for path in paths if path not in state.calls.spent))

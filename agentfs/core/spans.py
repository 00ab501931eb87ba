"""A run as spans of a trace, by OpenTelemetry's conventions for generative AI. Pure.

    run                invoke_workflow NAME
    ├── call           plan                          planning/1
    │   └── request    chat MODEL                    planning/1#1
    └── attempt        execute_tool TOOL, or         steps/total.1
        ├── request    chat MODEL  invoke_agent …    steps/total.1#1
        └── tool call  execute_tool TOOL             steps/total.1@2

Ids are hashed from the run and the path of what is meant: the same files give the same spans, and a program that an
attempt starts can name its parent before there is any trace. What a person is waited for is an attribute, no span.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from agentfs.core import paths
from agentfs.core.costs import requests_in
from agentfs.core.paths import TRACED_RUN as ROOT

Json = Mapping[str, Any]
Value = str | int | float | bool | list[str]
MOST = 65_536  # characters of one attribute that holds contents


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """What an attempt or a call left: what was ordered, what came of it, and its log."""

    order: Json = field(default_factory=dict)
    result: Json = field(default_factory=dict)
    log: tuple[Json, ...] = ()
    checks_log: tuple[Json, ...] = ()  # of a call: a judge's, when it looked at the goal's checks


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of a run as plain JSON; one that does not read is empty."""

    run: Json
    outcome: Json = field(default_factory=dict)
    goal: str = ""
    calls: Mapping[int, AttemptFiles] = field(default_factory=dict)
    attempts: Mapping[tuple[str, int], AttemptFiles] = field(default_factory=dict)
    revised: Mapping[int, str] = field(default_factory=dict)  # by call: when its plan became a revision


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time."""

    path: str
    parent: str | None
    name: str
    began: str
    ended: str
    attributes: dict[str, Value]
    error: str | None = None  # its kind; None: it went well, or nothing is known yet
    client: bool = False  # another machine did it


# ── spans ────────────────────────────────────────────────────────────────────────────────────────────────


def spans_of(files: RunFiles, *, contents: bool = False) -> list[Span]:
    """Return the spans of a run, the run first. `contents`: with what was asked, given and answered."""
    below = [span for number, one in sorted(files.calls.items()) for span in _call(number, one, files, contents)]
    for (step, attempt), one in sorted(files.attempts.items()):
        below += _attempt(step, attempt, one, files, contents)
    return [_run(files, below, contents), *below]


def _run(files: RunFiles, below: list[Span], contents: bool) -> Span:
    run, outcome = files.run, files.outcome
    name, began = str(run.get("run")), _start(files)
    ended = max([_text(outcome.get("ended_at")) or began, *(span.ended for span in below)])
    tops = [(_moment(span.began), _moment(span.ended)) for span in below if span.parent == ROOT]
    status, proof = outcome.get("status"), outcome.get("proof") or {}
    attributes = _known_attributes(
        ("gen_ai.operation.name", "invoke_workflow"),
        ("gen_ai.workflow.name", name.rpartition("/")[2]),
        ("agentfs.run", name),
        ("agentfs.mode", run.get("mode")),
        ("agentfs.status", status or "open"),
        ("agentfs.reason", outcome.get("reason")),
        ("agentfs.proof", proof.get("level") if isinstance(proof, Mapping) else None),
        ("agentfs.revisions", outcome.get("revisions")),
        ("agentfs.waiting_s", _idle(_moment(began), _moment(ended), tops)),
        ("agentfs.goal", _content(files.goal) if contents else None),
        ("agentfs.answer", _content(outcome.get("answer")) if contents and outcome else None),
    )
    error = str(outcome.get("reason")) if status in ("failed", "cancelled") else None
    return Span(ROOT, None, f"invoke_workflow {name.rpartition('/')[2]}", began, ended, attributes, error)


def _call(number: int, files: AttemptFiles, run: RunFiles, contents: bool) -> Iterator[Span]:
    path, answer, call = paths.call_conversation(number), files.result, files.order
    requests = [*_requests(path, files.log, contents)]
    if call:
        began, ended = _call_times(number, files, run)
        verdict, error = answer.get("verdict"), answer.get("error")
        attributes = _known_attributes(
            ("gen_ai.operation.name", "plan"),
            ("gen_ai.agent.name", _text(call.get("role")) or "planner"),
            ("agentfs.call", number),
            ("agentfs.trigger", call.get("trigger")),
            ("agentfs.step", call.get("step")),
            ("agentfs.verdict", verdict or "open"),
            *_usage(answer.get("usage")),
            ("agentfs.plan", _content(answer.get("plan")) if contents else None),
        )
        failed = _kind(error) or str(verdict) if verdict in ("failed", "interrupted", "impossible") else None
        yield Span(path, ROOT, "plan", began, _latest(ended, requests), attributes, failed)
    yield from requests
    checked = f"{path}.checks"
    judged = [*_requests(checked, files.checks_log, contents)]
    if judged:
        began, ended = judged[0].began, judged[-1].ended
        yield Span(checked, ROOT, "agentfs.goal_checks", began, ended, {"agentfs.call": number})
    yield from judged


def _call_times(number: int, files: AttemptFiles, run: RunFiles) -> tuple[str, str]:
    """Return when a call began and ended; one that code answered says so only by the revision that came of it."""
    took = _number(files.result.get("duration_s"))
    if began := _text(files.result.get("started_at")):
        return began, _later(began, took)
    times = [at for entry in files.log if (at := _text(entry.get("at")))]
    if times:
        return min(times), max(times)
    ended = run.revised.get(number) or _start(run)
    return max(_later(ended, -took), _start(run)), ended


def _attempt(step: str, attempt: int, files: AttemptFiles, run: RunFiles, contents: bool) -> Iterator[Span]:
    path, order, result = paths.conversation(step, attempt), files.order, files.result
    below = [*_requests(path, files.log, contents), *_tool_calls(path, files.log, contents)]
    times = [at for entry in files.log if (at := _text(entry.get("at")))]
    first = min(times, default=_text(order.get("issued_at")) or _text(result.get("ended_at")) or _start(run))
    began = _text(result.get("started_at")) or first
    took, whole = _number(result.get("duration_s")), _text(result.get("ended_at")) or max(times, default=began)
    ended = _latest(_later(began, took) if result else whole, below)
    tool, agent, status = order.get("tool"), order.get("agent"), result.get("status") or "running"
    operation = "execute_tool" if tool else "invoke_agent"
    name = tool or agent or "executor"
    checks = [one for one in result.get("checks") or () if isinstance(one, Mapping)]
    attributes = _known_attributes(
        ("gen_ai.operation.name", operation),
        ("gen_ai.tool.name" if tool else "gen_ai.agent.name", name),
        ("gen_ai.tool.type", "extension" if tool else None),
        ("agentfs.step", step),
        ("agentfs.attempt", attempt),
        ("agentfs.revision", order.get("revision") or result.get("revision")),
        ("agentfs.status", status),
        ("agentfs.surprising", result.get("surprising") or None),
        ("agentfs.checks.held", sum(one.get("ok") is True for one in checks) if checks else None),
        ("agentfs.checks.failed", sum(one.get("ok") is not True for one in checks) if checks else None),
        ("agentfs.sandbox", result.get("sandbox")),
        ("agentfs.waiting_s", _waiting(began, whole, took) if status not in ("running", "interrupted") else None),
        *_usage(result.get("usage")),
        ("gen_ai.tool.call.arguments", _content(order.get("input")) if contents and tool else None),
        ("gen_ai.tool.call.result", _content(result.get("output")) if contents and tool and result else None),
        ("agentfs.output", _content(result.get("output")) if contents and not tool and result else None),
    )
    error = None if status in ("done", "skipped", "running") else _kind(result.get("error")) or str(status)
    yield Span(path, ROOT, f"{operation} {name}", began, ended, attributes, error)
    yield from below


def _requests(path: str, log: Iterable[Json], contents: bool) -> Iterator[Span]:
    """Yield what a log says was asked of models; a request that nobody saw the end of has no time of its own."""
    for count, (asked, reply) in enumerate(requests_in(log), start=1):
        yield _request(path, count, asked, reply, contents)


def _request(path: str, count: int, asked: Json, reply: Json, contents: bool) -> Span:
    model, began = _text(asked.get("model")) or "unknown", _text(asked.get("at")) or ""
    usage, finish, failure = reply.get("usage"), reply.get("finish"), reply.get("error")
    attributes = _known_attributes(
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", model),
        ("gen_ai.response.model", reply.get("served_by")),
        ("gen_ai.response.id", reply.get("request_id")),
        ("gen_ai.response.finish_reasons", [finish] if isinstance(finish, str) else None),
        ("agentfs.role", asked.get("role")),
        *_usage({**usage, "model": None} if isinstance(usage, Mapping) else None),
        ("gen_ai.usage.reasoning.output_tokens", reply.get("reasoning_tokens") or None),
        ("gen_ai.input.messages", _content(asked.get("messages")) if contents else None),
        ("gen_ai.output.messages", _content([reply["message"]]) if contents and "message" in reply else None),
    )
    error = _kind(failure) or "failed" if reply.get("event") == "failed" or failure else None
    ended = _text(reply.get("at")) or began
    return Span(f"{path}#{count}", path, f"chat {model}", began, ended, attributes, error, client=True)


def _tool_calls(path: str, log: Iterable[Json], contents: bool) -> Iterator[Span]:
    """Yield the calls that a model made in its loop; `finish` and `hand_over` only end it."""
    calls = [entry for entry in log if entry.get("event") == "tool"]
    for count, entry in enumerate(calls, start=1):
        tool, ended = _text(entry.get("tool")) or "unknown", _text(entry.get("at")) or ""
        if tool in ("finish", "hand_over"):
            continue
        attributes = _known_attributes(
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", tool),
            ("gen_ai.tool.type", "function"),
            ("gen_ai.tool.call.id", entry.get("id")),
            ("gen_ai.tool.call.arguments", _content(entry.get("arguments")) if contents else None),
            ("gen_ai.tool.call.result", _content(entry.get("result")) if contents else None),
        )
        began = _later(ended, -_number(entry.get("seconds")))
        error = None if entry.get("ok") is True else "tool"
        yield Span(f"{path}@{count}", path, f"execute_tool {tool}", began, ended, attributes, error)


def _usage(usage: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(usage, Mapping):
        yield "gen_ai.request.model", usage.get("model")
        yield "gen_ai.usage.input_tokens", usage.get("input_tokens")
        yield "gen_ai.usage.cache_read.input_tokens", usage.get("cached_tokens")
        yield "gen_ai.usage.output_tokens", usage.get("output_tokens")
        yield "agentfs.requests", usage.get("requests")
        yield "agentfs.cost_usd", usage.get("cost_usd")


def _known_attributes(*pairs: tuple[str, Any]) -> dict[str, Value]:
    """Return the attributes that have a value of a kind that a span may have."""
    return {
        name: value
        for name, value in pairs
        if isinstance(value, (str, bool, int, float)) or (isinstance(value, list) and value)
    }


def _content(value: Any) -> str | None:
    """Return contents as text, at most so much of it."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST else f"{text[:MOST]}… ({len(text)} characters)"


def _kind(error: Any) -> str | None:
    return _text(error.get("kind")) if isinstance(error, Mapping) else None


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────


def nanoseconds(stamp: str) -> int:
    """Return a moment as traces write it, exact to the microsecond that records have; 0 where it is none."""
    try:
        moment = datetime.fromisoformat(stamp)
        return (moment - datetime.fromisoformat("1970-01-01T00:00:00Z")) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError, OverflowError):
        return 0


def _moment(stamp: str) -> float:
    return nanoseconds(stamp) / 1e9


def _later(stamp: str, seconds: float) -> str:
    """Return the moment so many seconds later, as records write it; the same where that cannot be computed."""
    try:
        moment = datetime.fromisoformat(stamp) + timedelta(seconds=seconds)
        return moment.isoformat("T", "microseconds").replace("+00:00", "Z")
    except (ValueError, TypeError, OverflowError):
        return stamp


def _latest(ended: str, below: Iterable[Span]) -> str:
    """Return when something ended: no span ends before those inside it."""
    return max([ended, *(span.ended for span in below)])


def _waiting(began: str, ended: str, took: float) -> float | None:
    """Return for how long an attempt waited for a person: the time that it did not work in."""
    waited = round(_moment(ended) - _moment(began) - took, 3)
    return waited if waited >= 1 else None


def _idle(began: float, ended: float, spans: list[tuple[float, float]]) -> float:
    """Return for how many seconds none of these was under way."""
    worked, upto = 0.0, began
    for start, end in sorted(spans):
        worked += max(0.0, end - max(start, upto))
        upto = max(upto, end)
    return round(max(0.0, ended - began - worked), 3)


def _start(files: RunFiles) -> str:
    return _text(files.run.get("started_at")) or "1970-01-01T00:00:00.000000Z"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 0.0

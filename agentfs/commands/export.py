"""`export`: a run as the spans of a trace, printed or sent to a collector. Reads only."""

import os
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentfs import __version__
from agentfs.commands.common import here, print_json, say
from agentfs.core import paths
from agentfs.core.paths import run_id, span_id, trace_id
from agentfs.core.spans import AttemptFiles, RunFiles, Span, nanoseconds, spans_of
from agentfs.core.text import inert, plural
from agentfs.errors import UserError
from agentfs.storage.files import read_lines
from agentfs.storage.safe_open import read_text
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import goal_path
from agentfs.ui.reading import names_of, plain_object, revision_numbers, settings_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MISSING = "this needs the extra `otel`: pip install 'agentfs-plan[otel]'"
DEFAULT = "http://localhost:4318"
BATCH = 512  # spans in one request


def export(arguments: Namespace) -> int:
    """`agentfs export RUN --otlp [URL]`, or `--json`"""
    from agentfs.tools.secrets import given_secrets, mask_for

    workspace = here(arguments)
    folder, settings = workspace.find_run(arguments.run), settings_of(workspace)[0]
    if arguments.otlp is None and not arguments.json:
        raise UserError(f"say where to: agentfs export {arguments.run} --otlp [URL], or --json to print the spans")
    files = read_files(folder)
    contents = arguments.contents or settings.telemetry.contents
    # files have no secrets in them, but there may be new ones since
    mask = mask_for(settings, os.environ, ()).also(given_secrets(map(str, files.run.get("env") or ())))
    spans = [
        replace(span, attributes={name: mask.value(value) for name, value in span.attributes.items()})
        for span in spans_of(files, contents=contents)
    ]
    if arguments.json:
        return print_json([_as_json(span, files) for span in spans])
    url = _address(arguments.otlp or settings.telemetry.url or _configured_address(os.environ))
    _send([_readable(span, files, workspace.root) for span in spans], url)
    say(f"sent {plural(len(spans), 'span')} to {inert(url)}: trace {_trace(files)}")
    return 0


def read_files(folder: Path) -> RunFiles:
    """Return what the files of a run say; those that cannot be read count as empty."""
    run = plain_object(folder / paths.RUN)
    if not isinstance(run.get("run"), str) or not isinstance(run.get("started_at"), str):
        raise UserError(f"{run_id(folder)} cannot be read: run.json is not valid")
    planning, steps = folder / paths.PLANNING, folder / paths.STEPS
    calls = {found.call for name in names_of(planning) if (found := paths.parse_call_file(name))}
    attempts = paths.by_attempt(names_of(steps))
    return RunFiles(
        run=run,
        outcome=plain_object(folder / paths.OUTCOME),
        goal=_goal(folder),
        calls={number: _call(planning, number) for number in calls},
        attempts={(step, number): _attempt(steps, step, number) for step, number in attempts},
        revised=dict(_describe_revisions(folder)),
    )


def _call(planning: Path, number: int) -> AttemptFiles:
    return AttemptFiles(
        plain_object(planning / paths.call_file(number, "call")),
        plain_object(planning / paths.call_file(number, "answer")),
        tuple(read_lines(planning / paths.call_file(number, "log"))),
        tuple(read_lines(planning / paths.checks_log_file(number))),
    )


def _attempt(steps: Path, step: str, number: int) -> AttemptFiles:
    return AttemptFiles(
        plain_object(steps / paths.step_file(step, number, "order")),
        plain_object(steps / paths.step_file(step, number, "result")),
        tuple(read_lines(steps / paths.step_file(step, number, "log"))),
    )


def _describe_revisions(folder: Path) -> Iterator[tuple[int, str]]:
    for number in revision_numbers(folder):
        match plain_object(folder / paths.REVISIONS / paths.revision_file(number)):
            case {"call": int() as call, "at": str() as at}:
                yield call, at
            case _:
                pass


def _goal(folder: Path) -> str:
    try:
        return read_text(goal_path(folder))
    except (OSError, ValueError):
        return ""


def _trace(files: RunFiles) -> str:
    return trace_id(files.run["run"], files.run["started_at"])


def _span(files: RunFiles, path: str) -> str:
    return span_id(files.run["run"], files.run["started_at"], path)


def _as_json(span: Span, files: RunFiles) -> dict[str, Any]:
    return {
        "trace_id": _trace(files),
        "span_id": _span(files, span.path),
        "parent_id": _span(files, span.parent) if span.parent else None,
        "path": span.path,
        "name": span.name,
        "kind": "client" if span.client else "internal",
        "began": span.began,
        "ended": span.ended,
        "error": span.error,
        "attributes": span.attributes,
    }


# ── to a collector ────────────────────────────────────────────────────────────────────────────────────────


def _configured_address(environment: Mapping[str, str]) -> str:
    """Return where the variables of OpenTelemetry say that traces go; by default to a collector on this machine."""
    if whole := environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return whole
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return f"{base.rstrip('/')}/v1/traces" if base else DEFAULT


def _address(url: str) -> str:
    """Return where to send: a collector's address alone means its usual path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UserError(f"{inert(url)} is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{inert(url)} is not an address: write {DEFAULT}, or the whole of it with its path")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1/traces"


def _readable(span: Span, files: RunFiles, root: Path) -> "ReadableSpan":
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
    except ImportError:
        raise UserError(MISSING) from None

    def context(path: str) -> SpanContext:
        return SpanContext(int(_trace(files), 16), int(_span(files, path), 16), False, TraceFlags(1))

    error = {"error.type": span.error} if span.error else {}
    return ReadableSpan(
        name=span.name,
        context=context(span.path),
        parent=context(span.parent) if span.parent else None,
        resource=Resource({"service.name": "agentfs", "agentfs.workspace": root.name}),
        attributes={**span.attributes, **error},
        kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=nanoseconds(span.began),
        end_time=nanoseconds(span.ended),
        instrumentation_scope=InstrumentationScope("agentfs", __version__),
    )


def _send(spans: list["ReadableSpan"], url: str) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    with _log() as messages:
        exporter = OTLPSpanExporter(endpoint=url, timeout=TIMING.export)
        try:
            for place in range(0, len(spans), BATCH):
                if exporter.export(spans[place : place + BATCH]) is not SpanExportResult.SUCCESS:
                    raise UserError(f"the spans could not be sent to {inert(url)}: {_why(messages)}")
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]


def _why(messages: list[str]) -> str:
    """Return why a collector did not take spans: the first and last thing the exporter logged."""
    if system := re.search(r"\[Errno -?\d+\] ([^\"')\]]+)", messages[0] if messages else ""):
        return inert(system[1])
    return inert("; ".join(dict.fromkeys([*messages[:1], *messages[-1:]]))) or "it did not take them"


@contextmanager
def _log() -> Iterator[list[str]]:
    """Yield what the exporter logs, instead of letting it print."""
    import logging

    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(" ".join(record.getMessage().split()))

    logger, listener = logging.getLogger("opentelemetry"), Listener()
    logger.addHandler(listener)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(listener)

"""Runs checks: success is checked, not claimed. Each gives a verdict and what it found; none is skipped."""

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, assert_never

from agentfs.core import conformance, paths
from agentfs.core.excerpts import TimeLimit, check_words
from agentfs.core.proof import Gather, Snapshot, check_sha256, no_evidence
from agentfs.core.records import (
    CheckResult,
    Failure,
    FileCheck,
    HttpCheck,
    JsonObject,
    JudgeCheck,
    OutputCheck,
    ResolvedCheck,
    ResolvedCommandCheck,
)
from agentfs.executor.evidence import folder_of
from agentfs.executor.task import Acceptance
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Observer, StepContext
from agentfs.tools.files import pattern_problem, read_allowed
from agentfs.tools.process import Never, StopSign, TookTooLong, ask
from agentfs.tools.programs import run_shell

LARGEST_FILE = 64 * 1024 * 1024
SHOWN = 100  # characters of a file that is not as a check wants it
# What a model wrote as a check changes nothing: it runs in a copy of the folder, or where it cannot write. One that
# makes for itself what it looks for holds before the work, too.
COPIED_FILES, COPIED_BYTES = 500, 4 * 1024 * 1024
_IN_A_COPY = 'cp -a . "$TMPDIR/copy" && cd "$TMPDIR/copy" && exec sh -c "$CHECK"'
ISOLATION = str(Path(__file__).resolve().parent / "isolation")
# Python in a check takes its own library first: a json.py that a step put beside the check is not what it imports.
# Nor is bytecode that it put there.
ISOLATED = {
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONPATH": ISOLATION,
    "PYTHONPYCACHEPREFIX": os.devnull,
}


class RealObserver(Observer):
    """Runs checks, and looks at folders."""

    def check(
        self, checks: Sequence[ResolvedCheck], context: StepContext, output: Any, gather: Gather
    ) -> tuple[CheckResult, ...]:
        return run_checks(checks, context, output, gather)


def run_checks(
    checks: Sequence[ResolvedCheck], context: StepContext, output: Any, gather: Gather = no_evidence
) -> tuple[CheckResult, ...]:
    """Return what each check found, in their order. Raises ModelError if a judge is needed and cannot be asked.

    `gather`: collects what a judge is shown.
    """
    return tuple(_run_check(check, _limit_time(context), output, gather) for check in checks)


UNCHANGED = (
    "no file has changed: what a command prints is not saved. Write the result into the file that is asked for"
)


def refute_claim(
    acceptance: Acceptance | None, before: Snapshot | None, context: StepContext, output: Any
) -> list[str]:
    """Return what the plan's own checks say against a claim to be done. `before`: the folder when the work began."""
    if acceptance is None:
        return []
    aside = replace(context, name=f"{context.name}{paths.ACCEPT}", read_only_checks=acceptance.written)
    found = context.observer.check(acceptance.checks, aside, output, no_evidence)
    seen = context.observer.see("untouched", aside.name, lambda: before is not None and before == folder_of(context))
    untouched = seen and not all(one.ok for one in found)
    said = {"checks": [one.model_dump(exclude_none=True) for one in found], "untouched": untouched}
    context.log("acceptance", said)
    shown = [
        _without_expectation(one, check) if hidden else one
        for hidden, one, check in zip(acceptance.hidden, found, acceptance.checks, strict=False)
    ]
    wrong = [f"{one.kind}: {check_words(one)}" for one in shown if not one.ok]
    wants_files = any(one.kind != "output" for one in found if not one.ok)
    return [*wrong, UNCHANGED] if untouched and wants_files else wrong


def _without_expectation(found: CheckResult, check: ResolvedCheck) -> CheckResult:
    """Return what a check found without what it wants: who does the work is to do it, not to copy that."""
    match check:
        case OutputCheck():
            return found.model_copy(update={"detail": "the answer is not as expected"})
        case FileCheck(contains=None, matches=None):
            return found
        case FileCheck():
            return found.model_copy(update={"detail": f"{check.path} is not as expected"})
        case _:
            return found.model_copy(update={"run": None})


def _limit_time(context: StepContext) -> StepContext:
    until = time.monotonic() + TIMING.check
    if context.deadline <= until:
        return context
    return replace(context, deadline=until, limit=TimeLimit(TIMING.check, "check"))


def _run_check(check: ResolvedCheck, context: StepContext, output: Any, gather: Gather) -> CheckResult:
    problem: Failure | str | None
    match check:
        case ResolvedCommandCheck():
            problem, fine = _command(check, context), "exit code 0"
        case FileCheck():
            problem, fine = _file(check, context), f"{check.path} is as it should be"
        case OutputCheck():
            problem, fine = _output(check, context, output), "the output satisfies the schema"
        case HttpCheck():
            problem, fine = _http(check, context), f"{check.url} answered {check.status or 200}"
        case JudgeCheck():
            return _ask_judge(check, context, gather)
        case _:
            assert_never(check)
    command = context.mask.text(check.run) if isinstance(check, ResolvedCommandCheck) else None
    said, hint = (problem.message, problem.hint) if isinstance(problem, Failure) else (problem or fine, None)
    return CheckResult(
        kind=check.kind,
        ok=problem is None,
        detail=context.mask.text(said),
        run=command,
        hint=context.mask.text(hint) if hint else None,
        error=_no_verdict(problem),
    )


def _no_verdict(problem: Failure | str | None) -> Literal["timeout", "sandbox"] | None:
    """Return why a check says neither yes nor no: it was not run, or not to its end."""
    match problem:
        case Failure(kind="timeout"):
            return "timeout"
        case Failure(kind="sandbox"):
            return "sandbox"
        case _:
            return None


def _ask_judge(check: JudgeCheck, context: StepContext, gather: Gather) -> CheckResult:
    from agentfs.executor.judging import judge

    verdict = judge(check.condition, gather(check.condition), context)
    return CheckResult(kind="judge", ok=verdict.met, detail=context.mask.text(verdict.detail))


def _command(check: ResolvedCommandCheck, context: StepContext) -> Failure | None:
    command, env, context = check.run, {**ISOLATED, **(check.env or {})}, _with_isolation(context)
    if check_sha256(check) in context.read_only_checks:
        context = replace(context, confinement=replace(context.confinement, writable=False))
        if is_small(context.confinement.workdir):
            command, env = _IN_A_COPY, {**env, "CHECK": command}
    return run_shell(command, env, context)


def is_small(folder: Path) -> bool:
    """Whether a folder can be copied for a check: everything in it."""
    size = entries = 0
    for parent, _, files in os.walk(folder):
        entries += len(files) + 1
        with suppress(OSError):
            size += sum(os.lstat(os.path.join(parent, name)).st_size for name in files)
        if entries > COPIED_FILES or size > COPIED_BYTES:
            return False
    return True


def _with_isolation(context: StepContext) -> StepContext:
    """Show a check's Python the module that puts the working folder behind its own library."""
    readable = (*context.confinement.readable, Path(ISOLATION))
    return replace(context, confinement=replace(context.confinement, readable=readable))


def _file(check: FileCheck, context: StepContext) -> Failure | str | None:
    found = read_allowed(check.path, context, LARGEST_FILE)
    if isinstance(found, Failure):
        return found
    size, content = found
    if check.min_bytes is not None and size < check.min_bytes:
        return f"{check.path} has {size} bytes, fewer than {check.min_bytes}"
    if check.contains is None and check.matches is None:
        return None
    if size > LARGEST_FILE:
        return f"{check.path} is larger than {LARGEST_FILE // 2**20} MiB: its content cannot be checked"
    text = content.decode("utf-8", "replace")
    if check.contains is not None and check.contains not in text:
        return f"{check.path} does not contain {_quote(check.contains)}{_say_content(text)}"
    return None if check.matches is None else _why_unmatched(check.path, check.matches, text, context)


def _why_unmatched(path: str, pattern: str, text: str, context: StepContext) -> str | None:
    if problem := pattern_problem(pattern):
        return problem
    try:
        found = ask({"pattern": pattern, "text": text}, deadline=context.deadline, stop=context.stop)
    except TookTooLong:
        return f"matching {_quote(pattern)} took too long; simplify the pattern"
    return None if found else f"nothing in {path} matches {_quote(pattern)}{_say_content(text)}"


def _say_content(text: str) -> str:
    """Say what a file holds instead: without it nobody can tell whether the file is wrong, or the check."""
    if not text:
        return ": it is empty"
    return f": it holds {text!r}" if len(text) <= SHOWN else f": it begins with {text[:SHOWN]!r}"


def _quote(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def _output(check: OutputCheck, context: StepContext, output: Any) -> str | None:
    return mismatch(check.schema_, output, deadline=context.deadline, stop=context.stop)


def _http(check: HttpCheck, context: StepContext) -> Failure | str | None:
    from agentfs.storage.safe_open import Refused
    from agentfs.tools.web import fetch

    expected = check.status or 200
    try:
        reply = fetch(check.url, context, follow=not 300 <= expected < 400)
    except Refused as refused:
        return refused.failure
    return None if reply.status == expected else f"{check.url} answered {reply.status}, not {expected}"


def surprise(
    expects: JsonObject | bool, output: Any, *, deadline: float = math.inf, stop: StopSign | None = None
) -> str | None:
    """Return why an output is surprising; None if it is what the step expects."""
    until = min(deadline, time.monotonic() + TIMING.surprise)
    return mismatch(expects, output, deadline=until, stop=stop or Never())


def mismatch(schema: Any, value: Any, *, deadline: float, stop: StopSign) -> str | None:
    """Return how a value violates a schema; None if it does not. What may explode has a process of its own."""
    if conformance.is_quick(schema, value):
        return conformance.mismatch(schema, value)
    now = time.monotonic()
    until = min(deadline, now + TIMING.conform)
    try:
        if now >= until:
            raise TookTooLong
        answer: str | None = ask({"schema": schema, "value": value}, deadline=until, stop=stop)
    except TookTooLong:
        if stop.is_set():
            return "it was stopped before the schema was judged"
        return "the schema took too long to judge; simplify its patterns, references and choices"
    return answer

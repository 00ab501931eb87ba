"""Runs checks: success is checked, not claimed. Each gives a verdict and what it found; none is skipped."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from agentfs.core.excerpts import TimeLimit
from agentfs.core.proof import check_sha256
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
from agentfs.executor.conform import mismatch
from agentfs.executor.evidence import Gather, no_evidence
from agentfs.tools.base import Bench, Never, StopSign, ToolResult
from agentfs.tools.bounded import SEARCH, TookTooLong, ask, pattern_problem
from agentfs.tools.places import read_beneath
from agentfs.tools.programs import failure_of, run_shell

CHECK_S = 120.0  # the most that one check may take
LARGEST_FILE = 64 * 1024 * 1024
SURPRISE_S = 10.0
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


Checker = Callable[[Sequence[ResolvedCheck], Bench, Any, Gather], tuple[CheckResult, ...]]


def run_checks(
    checks: Sequence[ResolvedCheck], bench: Bench, output: Any, gather: Gather = no_evidence
) -> tuple[CheckResult, ...]:
    """Return what each check found, in their order. Raises ModelError if a judge is needed and cannot be asked.

    `gather`: collects what a judge is shown.
    """
    return tuple(_run_check(check, _timed(bench), output, gather) for check in checks)


def _timed(bench: Bench) -> Bench:
    until = time.monotonic() + CHECK_S
    return bench if bench.deadline <= until else replace(bench, deadline=until, limit=TimeLimit(CHECK_S, "check"))


def _run_check(check: ResolvedCheck, bench: Bench, output: Any, gather: Gather) -> CheckResult:
    problem: Failure | str | None
    match check:
        case ResolvedCommandCheck():
            problem, fine = _command(check, bench), "exit code 0"
        case FileCheck():
            problem, fine = _file(check, bench), f"{check.path} is as it should be"
        case OutputCheck():
            problem, fine = _output(check, bench, output), "the output satisfies the schema"
        case HttpCheck():
            problem, fine = _http(check, bench), f"{check.url} answered {check.status or 200}"
        case JudgeCheck():
            return _judged(check, bench, gather)
        case _:
            assert_never(check)
    command = bench.mask.text(check.run) if isinstance(check, ResolvedCommandCheck) else None
    said, hint = (problem.message, problem.hint) if isinstance(problem, Failure) else (problem or fine, None)
    return CheckResult(
        kind=check.kind,
        ok=problem is None,
        detail=bench.mask.text(said),
        run=command,
        hint=bench.mask.text(hint) if hint else None,
    )


def _judged(check: JudgeCheck, bench: Bench, gather: Gather) -> CheckResult:
    from agentfs.executor.judging import judge

    verdict = judge(check.condition, gather(check.condition), bench)
    return CheckResult(kind="judge", ok=verdict.met, detail=bench.mask.text(verdict.detail))


def _command(check: ResolvedCommandCheck, bench: Bench) -> Failure | None:
    command, env, bench = check.run, {**ISOLATED, **(check.env or {})}, _with_isolation(bench)
    if check_sha256(check) in bench.looks_only:
        bench = replace(bench, confinement=replace(bench.confinement, writable=False))
        if is_small(bench.confinement.workdir):
            command, env = _IN_A_COPY, {**env, "CHECK": command}
    finished = run_shell(command, "sh", env, bench, spill=False)
    return finished.failure if isinstance(finished, ToolResult) else failure_of(finished, bench)


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


def _with_isolation(bench: Bench) -> Bench:
    """Show a check's Python the module that puts the working folder behind its own library."""
    readable = (*bench.confinement.readable, Path(ISOLATION))
    return replace(bench, confinement=replace(bench.confinement, readable=readable))


def _file(check: FileCheck, bench: Bench) -> Failure | str | None:
    found = read_beneath(check.path, bench, LARGEST_FILE)
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
        return f"{check.path} does not contain {_quoted(check.contains)}"
    return None if check.matches is None else _unmatched(check.path, check.matches, text, bench)


def _unmatched(path: str, pattern: str, text: str, bench: Bench) -> str | None:
    if problem := pattern_problem(pattern):
        return problem
    try:
        found = ask(SEARCH, {"pattern": pattern, "text": text}, deadline=bench.deadline, stop=bench.stop)
    except TookTooLong:
        return f"matching {_quoted(pattern)} took too long; simplify the pattern"
    return None if found else f"nothing in {path} matches {_quoted(pattern)}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def _output(check: OutputCheck, bench: Bench, output: Any) -> str | None:
    return mismatch(check.schema_, output, deadline=bench.deadline, stop=bench.stop)


def _http(check: HttpCheck, bench: Bench) -> Failure | str | None:
    from agentfs.tools.fetching import Refused, fetch

    expected = check.status or 200
    try:
        reply = fetch(check.url, bench, follow=not 300 <= expected < 400)
    except Refused as refused:
        return refused.failure
    return None if reply.status == expected else f"{check.url} answered {reply.status}, not {expected}"


def surprise(
    expects: JsonObject | bool | None,
    output: Any,
    *,
    deadline: float = math.inf,
    stop: StopSign | None = None,
) -> str | None:
    """Return why an output is surprising; None if it is what the step expects, or if it expects nothing."""
    if expects is None:
        return None
    until = min(deadline, time.monotonic() + SURPRISE_S)
    return mismatch(expects, output, deadline=until, stop=stop or Never())

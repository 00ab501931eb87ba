"""Tools and checks that give what they gave in a recording. Nothing of theirs is run, read or written."""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.proof import check_sha256
from agentfs.core.records import CheckResult, Failure, JsonObject, JudgeCheck, ResolvedCheck, Result
from agentfs.core.tool_spec import ToolSpec
from agentfs.executor.calling import OUTPUT_LENGTH
from agentfs.executor.checks import run_checks
from agentfs.executor.evidence import NOT_PUT_BACK, SPOILED, TAMPERED, Changes, FolderWatch, Gather, Piece, changes_in
from agentfs.executor.judging import EVIDENCE
from agentfs.jsonlines import read_lines
from agentfs.planner.acceptance import NOT_RUN
from agentfs.replaying.playback import NOT_RECORDED, DriverDied, Playback
from agentfs.replaying.recording import LOG
from agentfs.tools.base import Bench, ToolResult

_CUT = re.compile(r"\n… (\d+) characters cut …\n")
_FAILED = re.compile(r"It failed \(([^)]*)\): (.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """Gives what the tool gave, and runs nothing."""

    spec: ToolSpec
    playback: Playback

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        order = self.playback.recording.order(bench.whose)
        if order is not None and order.tool is None:
            return self._in_a_loop(given, bench)
        bench.claim(None)
        return self._of_a_step(bench)

    def _in_a_loop(self, given: JsonObject, bench: Bench) -> ToolResult:
        entry = self.playback.reel(bench.whose).next_call(self.spec.name, given)
        if entry is None:
            if self.playback.died(bench.whose):
                raise DriverDied
            self.playback.note(f"{bench.whose}{LOG}", f"a call of {self.spec.name}", "no such call", given)
            return ToolResult(failure=NOT_RECORDED)
        self.playback.after(bench.whose, entry.get("seconds"))
        return _told(str(entry.get("result") or ""), bool(entry.get("ok")), bench)

    def _of_a_step(self, bench: Bench) -> ToolResult:
        result = self.playback.recording.result(bench.whose)
        if self.playback.died(bench.whose):
            raise DriverDied
        if result is None:
            return ToolResult(failure=NOT_RECORDED)
        self.playback.time.passed += result.duration_s
        self._copy_output(bench)
        return ToolResult(output=result.output, cut=result.cut, failure=self._failure(result, bench))

    def _copy_output(self, bench: Bench) -> None:
        found = self.playback.recording.folder / f"{bench.whose}.output.txt"
        if found.is_file() and not bench.output_file.exists():
            shutil.copyfile(found, bench.output_file)

    def _failure(self, result: Result, bench: Bench) -> Failure | None:
        """Return why the tool gave nothing: not what its checks, or a judge that nobody reached, made of it."""
        judged = any(played.role == "judge" for played in self.playback.reel(bench.whose).tape.tries)
        if result.error is None or result.error.kind == "check" or judged:
            return None
        if result.status == "interrupted" and result.error.kind != "limit":
            return Failure(kind="interrupted", message=result.error.message, hint=result.error.hint)
        return result.error


@dataclass(frozen=True, slots=True)
class RecordedChecks:
    """Finds what the checks found. Only a judge is asked again, of the recording."""

    playback: Playback

    def __call__(
        self,
        checks: Sequence[ResolvedCheck],
        bench: Bench,
        output: Any,
        gather: Gather,  # noqa: ARG002
    ) -> tuple[CheckResult, ...]:
        if bench.whose.endswith(paths.BEFORE):
            return tuple(self._before(check, bench.whose.removesuffix(paths.BEFORE)) for check in checks)
        if bench.whose.endswith(paths.ACCEPT):
            return self.playback.reel(bench.whose.removesuffix(paths.ACCEPT)).next_acceptance()
        found = self._found(bench.whose)
        return tuple(
            run_checks((check,), bench, output, self._gather(bench.whose))[0]
            if isinstance(check, JudgeCheck)
            else self._recorded(check, found, place, bench)
            for place, check in enumerate(checks)
        )

    def _before(self, check: ResolvedCheck, whose: str) -> CheckResult:
        """Return what a check found before the work."""
        digest = check_sha256(check)
        if whose.startswith(paths.PLANNING):
            answer = self.playback.recording.calls[int(whose.removeprefix(f"{paths.PLANNING}/"))].answer
            known = next((one for one in (answer.before if answer else ()) if one.sha256 == digest), None)
            ok, detail = (known.ok, known.detail) if known else (False, NOT_RUN)
        else:
            result = self.playback.recording.result(whose)
            ok, detail = result is not None and digest in result.held_before, ""
        return CheckResult(kind=check.kind, ok=ok, detail=detail)

    def _gather(self, whose: str) -> Gather:
        """Return the evidence as the judge was shown it then, whatever lies in the folder now."""
        reel = self.playback.reel(whose)
        left = reel.tape.tries[reel.tries :]
        told = next((str(one.messages[1].get("content")) for one in left if one.role == "judge"), "")
        return lambda _condition: (Piece("", told.partition(EVIDENCE)[2].removesuffix("\n")),)

    def _found(self, whose: str) -> tuple[CheckResult, ...] | None:
        """Return what was found; None where it is not recorded because nothing came of it."""
        if whose.startswith(paths.PLANNING):
            number, _, step = whose.removeprefix(f"{paths.PLANNING}/").partition(".checks")
            record = self.playback.recording.calls[int(number)].checks if number.isdigit() else None
            if record is None or not step:
                return record.checks if record else None
            return next((one.checks for one in record.steps if one.step == step[1:]), None)
        result = self.playback.recording.result(whose)
        if result is None or (whose.endswith(paths.NEEDS) and _kind(result) != "needs"):
            return None
        if whose.endswith(paths.GATE_NEEDS) and self.playback.recording.was_asked(whose):
            return None  # they held then; what the result says was found after the yes
        return result.checks or None

    def _recorded(
        self, check: ResolvedCheck, found: tuple[CheckResult, ...] | None, place: int, bench: Bench
    ) -> CheckResult:
        if found is None:
            return CheckResult(kind=check.kind, ok=True, detail="it held")
        if place < len(found) and found[place].kind == check.kind:
            return found[place]
        self.playback.note(f"{bench.whose}.result.json", f"check {place + 1}", "no such check", check.kind)
        return CheckResult(kind=check.kind, ok=False, detail=NOT_RECORDED.message)


def _kind(result: Result) -> str | None:
    return result.error.kind if result.error else None


def _told(text: str, ok: bool, bench: Bench) -> ToolResult:
    """Return what a model is told in these words of, once they are cut as they were."""
    found = _CUT.search(text) if len(text) > OUTPUT_LENGTH else None
    if found is not None and ok:
        os.close(os.open(bench.output_file, os.O_CREAT | os.O_WRONLY, 0o600))
        os.truncate(bench.output_file, OUTPUT_LENGTH - 1 + int(found[1]))  # only its size is asked for
        return ToolResult(output=_CUT.sub("  ", text, count=1), cut=True)
    if found is not None:
        text = _CUT.sub(" " * int(found[1]), text, count=1)
    failed = None if ok else _FAILED.match(text)
    return ToolResult(failure=Failure(kind=failed[1], message=failed[2])) if failed else ToolResult(output=text)


class RecordedWatch(FolderWatch):
    """What became of the folder then. An attempt that waited is given all of it when it is first asked."""

    def __init__(self, playback: Playback) -> None:
        self._recording = playback.recording
        self._given: set[tuple[str, str]] = set()

    def changes(self, whose: str, look: Callable[[], Changes]) -> Changes:  # noqa: ARG002
        return changes_in(self._log(whose)) if self._is_new("changes", whose) else Changes()

    def tampered(self, whose: str, look: Callable[[], list[str]]) -> list[str]:  # noqa: ARG002
        return self._files(whose, TAMPERED) if self._is_new("tampered", whose) else []

    def spoiled(self, whose: str, look: Callable[[], list[str]]) -> list[str]:  # noqa: ARG002
        if whose.startswith(paths.STEPS):
            return self._files(whose, SPOILED)
        recorded = self._recording.calls.get(int(whose.removeprefix(f"{paths.PLANNING}/").partition(".")[0]))
        last = recorded.checks.checks[-1:] if recorded and recorded.checks else ()
        words = last[0].detail if last else ""
        return words.partition(": ")[2].split(", ") if words.startswith(NOT_PUT_BACK) else []

    def _files(self, whose: str, event: str) -> list[str]:
        found = [entry.get("files") for entry in read_lines(self._log(whose)) if entry.get("event") == event]
        return [str(path) for listed in found if isinstance(listed, list) for path in listed]

    def touched(self, call: int, look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:  # noqa: ARG002
        recorded = self._recording.calls.get(call)
        return recorded.checks.touched if recorded and recorded.checks else ()

    def _is_new(self, what: str, whose: str) -> bool:
        known = (what, whose) in self._given
        self._given.add((what, whose))
        return not known

    def _log(self, whose: str) -> Path:
        return self._recording.folder / f"{whose}.log.jsonl"

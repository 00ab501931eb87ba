"""Acceptance checks that a model writes for a goal in words, before the work. Calls no tool, writes no file.

    what the planner gave, or nothing ──► usable? ──► run before the work ──► fails now: it counts
                     ▲                       │                  │
                     └──── asked once more ──┴── holds already ─┘   then kept, and marked

A program that does the job is run in a copy of the folder, and what it leaves there becomes checks that compare: the
job is done twice, and both have to come to the same. A check that cannot be run, or that names files nobody spoke of,
is left out. Where none is left that counts, a judge decides by the goal itself.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from pydantic import JsonValue

from agentfs.core.excerpts import fence_text
from agentfs.core.hashing import check_value
from agentfs.core.plan_check import acceptance_problems, to_record
from agentfs.core.proof import check_sha256
from agentfs.core.records import (
    Check,
    CheckBefore,
    CheckResult,
    CommandCheck,
    FileCheck,
    JsonObject,
    JudgeCheck,
    OutputCheck,
    Step,
)
from agentfs.core.text import one_line
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import Garbled, Model, ModelSession, Refused, Request
from agentfs.models.budget import Role
from agentfs.planner.answer import read_checks, read_program
from agentfs.planner.answer_form import MOST_CHECKS
from agentfs.prompts import load_prompt


class Look(Protocol):
    """Runs checks before the work, where they can do no harm; None: it cannot be run so.

    `as_checks`: one that fails is tried with next to nothing in the files that it names and that are not there yet.
    """

    def __call__(self, checks: Sequence[Check], /, *, as_checks: bool = True) -> tuple[CheckResult | None, ...]: ...


_Looked = tuple[Check, CheckResult | None]

NOT_RUN = "exit code 127: it was left out"  # what a replay takes a check for that was not kept
LATE = "written after the work began"
_SHOWN = 200
_BROKEN = re.compile(
    r"exit code 12[67]\b|syntax error|SyntaxError|: not found\b|command not found|unexpected EOF"
    r"|unterminated|Read-only file system",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"(?<![\w$./*-])(?:[\w-]+/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w(*-])")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The checks of a goal that a model wrote, and what they found before the work."""

    checks: tuple[JsonObject, ...]
    before: tuple[CheckBefore, ...]


@dataclass(slots=True)
class Writer:
    """Has a model write acceptance checks, and sorts them by what they found."""

    goal: str
    listing: tuple[str, ...]  # the working folder
    catalogue: Catalogue
    model: Model | None  # None: there is nobody to ask
    role: Role  # of that model
    session: ModelSession
    look: Look
    workspace: Path
    fails_now: list[Check] = field(default_factory=list)
    held: dict[str, tuple[Check, CheckResult]] = field(default_factory=dict)
    before: list[CheckBefore] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def write_checks(self, given: Sequence[Any] = ()) -> Acceptance:
        """Return the goal's acceptance checks: those given, better ones, or a condition for a judge."""
        self._sort(given)
        for turn in range(1 if given else 2):
            if self.fails_now and not self.problems:
                break
            reply = self._ask(self.problems if turn else ())  # what is wrong with checks says nothing of a program
            if (program := read_program(reply)) is None:
                self._sort(read_checks(reply))
            else:
                self.problems, self.held = [], {}
                self._take_work(f"python3 -c {quote(program)}", is_program=True)
        kept = [*self.fails_now, *(check for check, _ in self.held.values())][:MOST_CHECKS]
        if not self.fails_now:
            kept.append(JudgeCheck(kind="judge", condition=self.goal))
        return Acceptance(tuple(map(check_value, kept)), tuple(self.before))

    def _sort(self, given: Sequence[Any]) -> None:
        """Take the checks that can be used, and note what is wrong with the others."""
        self.problems = []
        self.held = {}  # those of the turn before have been sent back
        usable = [check for check in self._usable(given) if check not in self.fails_now]
        conditions = [check for check in usable if isinstance(check, JudgeCheck)]
        looking = [check for check in usable if not isinstance(check, JudgeCheck)]
        results: list[_Looked] = [*zip(looking, self.look(looking) if looking else (), strict=True)]
        for check, found in self._compare_work(results):
            self._take(check, found)
        self.fails_now += conditions

    def _compare_work(self, results: list[_Looked]) -> list[_Looked]:
        """Return the results but for commands that do the work themselves: what they leave becomes checks."""
        doing = [(check, found) for check, found in results if isinstance(check, CommandCheck) and found and found.ok]
        if not doing or not self._take_work("\n".join(check.run for check, _ in doing)):
            return results
        for check, found in doing:
            self.before.append(CheckBefore(sha256=check_sha256(check), ok=True, detail=found.detail))
        return [one for one in results if one not in doing]

    def _take_work(self, command: str, *, is_program: bool = False) -> bool:
        """Take what a command makes of a copy of the folder for what the work must come to; return whether it can."""
        doing = shows_result(command)
        if (found := self.look((doing,), as_checks=False)[0]) is None:
            return False
        result = read_result(found.detail)
        checks = [*self._expected_checks(result, is_program=is_program)] if result else []
        compared = [(check, now) for check in checks if (now := self.look((check,))[0]) and not now.ok]
        if compared or is_program:
            self.before.append(CheckBefore(sha256=check_sha256(doing), ok=found.ok, detail=found.detail))
        for check, now in compared:
            self._take(check, now)
        if is_program and not compared:
            said = _why_useless(result) if result else one_line(found.detail, _SHOWN)
            self.problems.append(f"the program cannot be used: {said}")
        return bool(compared)

    def _expected_checks(self, result: "Result", *, is_program: bool) -> Iterator[Check]:
        known = "\n".join((self.goal, *self.listing))
        files = {name: text for name, text in result.files.items() if os.path.basename(name) in known}
        for name, text in files.items():
            yield holds(name, text)
        if files or not is_program or not (printed := result.printed.strip()):
            return
        there = {line.rsplit("  ", 1)[0] for line in self.listing}
        missing = [name for name in file_names(self.goal) if name not in there]
        yield holds(missing[0], printed) if len(missing) == 1 else says(printed)

    def _take(self, check: Check, found: CheckResult | None) -> None:
        if found is None:
            return  # nobody can tell whether it proves anything: a judge decides
        if not found.ok and (found.error is not None or _BROKEN.search(found.detail)):
            self.problems.append(f"{_show(check)}: it cannot be run: {one_line(found.detail, _SHOWN)}")
            return
        digest = check_sha256(check)
        self.before.append(CheckBefore(sha256=digest, ok=found.ok, detail=found.detail))
        if found.ok:
            self.held[digest] = check, found
            self.problems.append(f"{_show(check)}: it proves nothing. Tried before any work: {found.detail}")
        else:
            self.fails_now.append(check)

    def _usable(self, given: Sequence[Any]) -> Iterator[Check]:
        for value in given[: 2 * MOST_CHECKS]:
            step, wrong = to_record({"id": "a", "checks": [value]}, Step)
            check = step.checks[0] if step and step.checks else None
            problems = [one.message for one in wrong] if check is None else self._wrong(check)
            if check is not None and not problems:
                yield check
            else:
                self.problems.append(f"{one_line(json.dumps(value, ensure_ascii=False), _SHOWN)}: {problems[0]}")

    def _wrong(self, check: Check) -> list[str]:
        if not isinstance(check, CommandCheck | FileCheck | JudgeCheck):
            return ["a check of a goal is a command, a file or a condition for a judge"]
        found = [one.message for one in acceptance_problems([check], (), self.catalogue)]
        strange = sorted(set(self._strange_names(check)))
        return found + [f"neither the goal nor the folder has {name}" for name in strange]

    def _strange_names(self, check: Check) -> Iterator[str]:
        """Yield the files a check names that nobody spoke of: the work would have to guess them."""
        known = "\n".join((self.goal, *self.listing))
        text = check.path if isinstance(check, FileCheck) else check.run if isinstance(check, CommandCheck) else ""
        for name in file_names(text):
            if name not in known and name.rsplit("/", 1)[-1] not in known:
                yield name

    def _ask(self, problems: Sequence[str]) -> str:
        """Ask a model for checks, in a context of its own: the goal and the folder, and what was wrong before."""
        if self.model is None:
            return ""
        messages: tuple[JsonObject, ...] = (
            {"role": "system", "content": load_prompt("checks", self.workspace).text},
            {"role": "user", "content": self._question(problems)},
        )
        request = Request(self.role, messages)
        try:
            reply = self.model.complete(request, self.session)
        except (Refused, Garbled):
            return ""
        return reply.text or (reply.tool_calls[0].arguments if reply.tool_calls else "")

    def _question(self, problems: Sequence[str]) -> str:
        listing = "\n".join(self.listing) or "(empty)"
        parts = [f"# Working folder\n\n{fence_text(listing)}", f"The job: {self.goal}"]
        if problems:
            wrong = "\n".join(f"- {one}" for one in problems)
            parts.append(f"This was tried before, and cannot be used:\n\n{wrong}")
        how = ", with csv.DictReader and csv.DictWriter for .csv files" if ".csv" in self.goal else ""
        return "\n\n".join([*parts, f"Write the Python program{how}."])  # what comes last is heeded


def file_names(text: str) -> list[str]:
    """Return the words of a command that are names of files, as far as one can tell by looking."""
    return list(dict.fromkeys(found[0] for found in _FILE_NAME.finditer(text)))


# ── what a program makes of a copy of the folder ──────────────────────────────────────────────────────────

MOST_EXPECTED = 1200  # characters of all it may leave: a person reads them in plan.json
_REPORT = f"""import json, os, sys
def read(path):
    return open(path, encoding="utf-8").read({MOST_EXPECTED} + 1) if os.path.isfile(path) else None
top = os.environ["TMPDIR"]
before, again = top + "/before", top + "/again"
paths = {{os.path.relpath(os.path.join(at, one), where) for where in (".", before, again)
         for at, _, names in os.walk(where) for one in names}}
differs = lambda where: [one for one in sorted(paths) if read(one) != read(where + "/" + one)]
said = json.dumps({{"files": {{one: read(one) for one in differs(before)}}, "printed": read(top + "/printed")}})
if differs(again) or read(top + "/printed") != read(top + "/printed-again"):
    said = "run twice it comes to two different results: a set has no order, dict.fromkeys(lines) has"
elif len(said) > {MOST_EXPECTED}:
    said = "it leaves too much to be compared"
sys.stderr.write(said)
sys.exit(1)
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What a program left behind."""

    files: dict[str, str | None]  # that it made or changed; None: it removed it
    printed: str


def shows_result(command: str) -> CommandCheck:
    """Return a check that runs a command in two copies of the folder, and fails with what came of it.

    Twice, because what chance has a part in is nothing to compare with.
    """
    copies = 'cp -a . "$TMPDIR/before" && cp -a . "$TMPDIR/again"'
    first = f'{{ {command}\n}} > "$TMPDIR/printed"'
    second = f'(cd "$TMPDIR/again" && {{ {command}\n}} > "$TMPDIR/printed-again")'
    work = f"{copies} && {first} && {second} && python3 -c {quote(_REPORT)}"
    return CommandCheck(kind="command", run=f'test -n "$CHECK" && {work}')  # without a copy there is none


def read_result(detail: str) -> Result | None:
    """Return what such a check says of the result; None: the command failed, or left too much."""
    try:
        value = json.loads(detail[detail.rindex('{"files"') :])
        return Result(value["files"], value["printed"])
    except (ValueError, KeyError):
        return None


def _why_useless(result: Result) -> str:
    if strange := sorted(result.files):
        return f"it writes {', '.join(strange)}, of which the job says nothing; an answer is printed"
    return "it writes no file and prints nothing"


def holds(name: str, text: str | None) -> CommandCheck:
    """Return a check that a file holds this: the same JSON value, number or lines, however they are written."""
    if text is None:
        run = f"test ! -e {quote(name)}"
    elif (value := _json(text)) is not None:
        read = "json.load" if isinstance(value, dict | list) else "float"
        of = f"open({name!r})" if read == "json.load" else f"open({name!r}).read()"
        run = f"python3 -c {quote(f'import json; assert {read}({of}) == {value!r}')}"
    else:
        expected = text.replace("\r", "").rstrip("\n")
        run = f"test \"$(tr -d '\\r' < {quote(name)})\" = {quote(expected)}"
    return CommandCheck(kind="command", run=run)


def _json(text: str) -> Any:
    """Return the object, list or number that a text is; None if it is another text."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list | float | int) and not isinstance(value, bool) else None


def says(text: str) -> OutputCheck:
    """Return a check that the run's answer has this in it."""
    number = _json(text)
    if isinstance(number, float | int):
        number = int(number) if float(number).is_integer() else number
        words: JsonObject = {"type": "string", "pattern": rf"(?<![0-9.]){re.escape(str(number))}(?![0-9])"}
        return OutputCheck(kind="output", schema={"anyOf": [{"const": number}, words]})
    lines = [re.escape(line.strip()) for line in text.splitlines() if line.strip()]
    found: list[JsonValue] = [{"pattern": rf"(?<!\w){line}(?!\w)"} for line in lines]
    return OutputCheck(kind="output", schema={"type": "string", "allOf": found})


def _show(check: Check) -> str:
    text = check.run if isinstance(check, CommandCheck) else json.dumps(check_value(check), ensure_ascii=False)
    return f"`{one_line(text, _SHOWN)}`"


def late_checks(given: Sequence[Any], known: Sequence[JsonObject], catalogue: Catalogue) -> Acceptance:
    """Return checks that a planner adds once the work has begun: they are run, and prove nothing."""
    steps = (to_record({"id": "a", "checks": [value]}, Step)[0] for value in given[:MOST_CHECKS])
    read = [check for step in steps if step for check in step.checks or ()]
    new = [check for check in read if check_value(check) not in known]
    found = [check for check in new if not [*acceptance_problems([check], (), catalogue)]]
    before = tuple(CheckBefore(sha256=check_sha256(one), ok=True, detail=LATE) for one in found)
    return Acceptance(tuple(map(check_value, found)), before)

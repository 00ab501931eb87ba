"""Acceptance checks that a model writes for a goal in words, before the work. Calls no tool, writes no file.

    what the planner gave, or nothing ──► usable? ──► run before the work ──► fails now: it counts
                     ▲                       │                  │
                     └──── asked once more ──┴── holds already ─┘   then kept, and marked

A check that cannot be run, or that names files nobody spoke of, is left out. Where none is left that counts, a judge
decides by the goal itself.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentfs.core.excerpts import fenced, one_line
from agentfs.core.hashing import check_value
from agentfs.core.plan_check import acceptance_problems, strict
from agentfs.core.proof import check_sha256
from agentfs.core.records import (
    Check,
    CheckBefore,
    CheckResult,
    CommandCheck,
    FileCheck,
    JsonObject,
    JudgeCheck,
    Step,
)
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import Form, Model, Request, Role
from agentfs.models.errors import Garbled, Refused
from agentfs.models.line import Line
from agentfs.planner.answer import read_checks
from agentfs.planner.answer_form import MOST_CHECKS, checks_form
from agentfs.prompts import load_prompt

# Run checks before the work, where they can do no harm; None: it cannot be run so.
Look = Callable[[Sequence[Check]], tuple[CheckResult | None, ...]]

NOT_RUN = "exit code 127: it was left out"  # what a replay takes a check for that was not kept
LATE = "written after the work began"
_SHOWN = 200
_BROKEN = re.compile(
    r"exit code 12[67]\b|syntax error|SyntaxError|: not found\b|command not found|unexpected EOF"
    r"|unterminated|Read-only file system|did not end within",
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
    line: Line
    look: Look
    workspace: Path
    fails_now: list[Check] = field(default_factory=list)
    held: dict[str, tuple[Check, CheckResult]] = field(default_factory=dict)
    before: list[CheckBefore] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def settle(self, given: Sequence[Any] = ()) -> Acceptance:
        """Return the goal's acceptance checks: those given, better ones, or a condition for a judge."""
        self._sort(given)
        for _ in range(1 if given else 2):
            if self.fails_now and not self.problems:
                break
            self._sort(self._ask())
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
        for check, found in zip(looking, self.look(looking) if looking else (), strict=True):
            self._take(check, found)
        self.fails_now += conditions

    def _take(self, check: Check, found: CheckResult | None) -> None:
        if found is None:
            return  # nobody can tell whether it proves anything: a judge decides
        if not found.ok and _BROKEN.search(found.detail):
            self.problems.append(f"{_shown(check)}: it cannot be run: {one_line(found.detail, _SHOWN)}")
            return
        digest = check_sha256(check)
        self.before.append(CheckBefore(sha256=digest, ok=found.ok, detail=found.detail))
        if found.ok:
            self.held[digest] = check, found
            self.problems.append(f"{_shown(check)}: it holds already, before any work, so it proves nothing")
        else:
            self.fails_now.append(check)

    def _usable(self, given: Sequence[Any]) -> Iterator[Check]:
        for value in given[: 2 * MOST_CHECKS]:
            step, wrong = strict({"id": "a", "checks": [value]}, Step)
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

    def _ask(self) -> Sequence[Any]:
        """Ask a model for checks, in a context of its own: the goal and the folder, and what was wrong before."""
        if self.model is None:
            return ()
        messages: tuple[JsonObject, ...] = (
            {"role": "system", "content": load_prompt("checks", self.workspace).text},
            {"role": "user", "content": self._question()},
        )
        request = Request(self.role, messages, form=Form("checks", checks_form(self.catalogue)))
        try:
            reply = self.model.complete(request, self.line)
        except (Refused, Garbled):
            return ()
        return read_checks(reply.text or (reply.tool_calls[0].arguments if reply.tool_calls else ""))

    def _question(self) -> str:
        listing = "\n".join(self.listing) or "(empty)"
        parts = [f"# Goal\n\n{self.goal}", f"# Working folder\n\n{fenced(listing)}"]
        if self.problems:
            wrong = "\n".join(f"- {one}" for one in self.problems)
            parts.append(f"# These checks cannot be used\n\n{wrong}\n\nWrite others in their place.")
        return "\n\n".join(parts)


def file_names(text: str) -> list[str]:
    """Return the words of a command that are names of files, as far as one can tell by looking."""
    return list(dict.fromkeys(found[0] for found in _FILE_NAME.finditer(text)))


def _shown(check: Check) -> str:
    return one_line(json.dumps(check_value(check), ensure_ascii=False), _SHOWN)


def late_checks(given: Sequence[Any], known: Sequence[JsonObject], catalogue: Catalogue) -> Acceptance:
    """Return checks that a planner adds once the work has begun: they are run, and prove nothing."""
    steps = (strict({"id": "a", "checks": [value]}, Step)[0] for value in given[:MOST_CHECKS])
    read = [check for step in steps if step for check in step.checks or ()]
    new = [check for check in read if check_value(check) not in known]
    found = [check for check in new if not [*acceptance_problems([check], (), catalogue)]]
    before = tuple(CheckBefore(sha256=check_sha256(one), ok=True, detail=LATE) for one in found)
    return Acceptance(tuple(map(check_value, found)), before)

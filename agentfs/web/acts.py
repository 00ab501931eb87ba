"""What a person can do from a page, as the page knows it: names, fields, and what came of it. Pure.

The acts themselves are the commands: the caller that starts the server passes them in. Nothing here writes a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentfs.core.params import Parameter
from agentfs.core.problems import Problem


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an act: its messages, and the run to look at next."""

    ok: bool
    words: tuple[str, ...]
    run: str | None = None
    stale: bool = False  # it was about something that is no longer there


@dataclass(frozen=True, slots=True)
class Checked:
    """What a plan would mean: what is wrong with it, or what it changes and reruns."""

    problems: tuple[Problem, ...]
    page: Mapping[str, Any] | None  # a difference with its effects


@dataclass(frozen=True, slots=True)
class Runbook:
    """A goal that can be used again: where it is, what it does, what it takes."""

    file: str  # as a goal names it: runbooks/deploy.md
    title: str
    params: tuple[Parameter, ...]
    problems: tuple[Problem, ...] = ()


class Acts(Protocol):
    """The commands, for a page."""

    def perform(self, act: str, run: str, fields: Mapping[str, str], *, dry_run: bool) -> Done:
        """Do what a command does; with `dry_run`, say what it would write and cause."""

    def check_plan(self, run: str, source: bytes) -> Checked:
        """Return what a plan would mean for a run."""

    def save_plan(self, run: str, source: bytes, base: str) -> Done:
        """Save a plan if plan.json still is what was edited."""

    def runbooks(self) -> tuple[str, ...]:
        """Return the goals that can be used again."""

    def runbook(self, file: str) -> Runbook:
        """Return what one of them takes."""

    def check_goal(self, name: str, source: bytes) -> tuple[Problem, ...]:
        """Return what is wrong with a goal, if it were dropped."""

    def drop_goal(self, name: str, source: bytes) -> Done:
        """Put a goal into goals/."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that can be done to a run, or to a step of it."""

    name: str  # of the command
    about: str
    fields: tuple[tuple[str, str], ...] = ()  # name, label
    of_step: bool = False

    @property
    def label(self) -> str:
        return self.name.capitalize()


_LISTED = (
    Act("pause", "What runs finishes; nothing new starts."),
    Act(
        "resume",
        "A paused run goes on; in one that failed, what failed is tried again; a limit can be raised.",
        (
            ("minutes", "more minutes"),
            ("cost_usd", "more money, in USD"),
            ("requests", "more requests"),
            ("tokens", "more tokens"),
            ("replans", "more replans"),
        ),
    ),
    Act("cancel", "The run ends; what runs is ended too."),
    Act(
        "replan",
        "The planner makes another plan; what is done and still counts is kept.",
        (("because", "what is wrong with the plan"),),
    ),
    Act(
        "fork",
        "A new run begins from this plan, with the results that still count.",
        (("revision", "revision (empty: the last)"), ("name", "name of the new run (empty: the same)")),
    ),
    Act(
        "restore",
        "An earlier revision's plan becomes the plan again, as a new revision by you.",
        (("revision", "revision"),),
    ),
    Act("retry", "The step runs again, and what depends on it.", of_step=True),
    Act("skip", "The step is left out; what depends on it goes on.", (("because", "why"),), of_step=True),
)
ACTS = {one.name: one for one in _LISTED}
ANSWERS = frozenset(("approve", "reject", "reply"))

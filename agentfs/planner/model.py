"""The planner on a model: a briefing, a reply, at most two turns to put it right. Calls no tool, writes no file.

    briefing ──► model ──► reply ──weigh──► usable: the answer
                   ▲                 │
                   └── what is wrong ┘  at most twice; then the call has failed

What a model or an endpoint does is never an exception here: it is an answer that failed, or was interrupted.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.core.goal_file import ParsedGoal
from agentfs.core.records import Answer, Author, Call, Failure, JsonObject, Revision, Verdict
from agentfs.core.run_state import RunState
from agentfs.core.tool_spec import Catalogue
from agentfs.models.base import (
    Form,
    LimitReached,
    Model,
    ModelError,
    ModelSession,
    Reply,
    Request,
    Stopped,
    Unreachable,
)
from agentfs.planner.acceptance import Acceptance, Look, Writer, late_checks
from agentfs.planner.answer import PlanContext, plan_context
from agentfs.planner.answer_form import NAME, answer_form
from agentfs.planner.evaluation import Evaluation, evaluate_answer
from agentfs.planner.lint import Surroundings
from agentfs.planner.prompt import briefing, cut
from agentfs.planner.surroundings import LookAround, look_around
from agentfs.prompts import Prompt
from agentfs.storage.clock import Clock
from agentfs.storage.files import read_whole
from agentfs.storage.past_plans import PastPlans
from agentfs.storage.safe_open import read_text

REPAIRS = 2
RECONSIDER = "impossible: your last answer only had to be corrected -> correct it, or quote what stands in the way"
MOST_PROBLEMS = 20  # told in one turn
_SHOWN_REPLY = 20_000  # characters of a reply that had to be put right
_IN_MESSAGE = 3


@dataclass(frozen=True, slots=True)
class ModelPlanner:
    """Answers calls by asking a model."""

    model: Model
    prompt: Prompt
    catalogue: Catalogue
    parsed: Callable[[str], ParsedGoal]  # the goal with this sha256, as it was read
    workspace: Path
    clock: Clock
    look: LookAround = look_around

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - whatever it was called for
        return Author(role="planner", name="planner", model=self.model.name)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002 - a model always does
        return True

    def answer(self, call: Call, state: RunState, folder: Path, line: ModelSession, look: Look) -> Answer:
        """Return what a model says to a call, checked and put into plan form."""
        began = self.clock.monotonic()
        verdict, fields = _Conversation(self, call, state, folder, line, look).settle()
        return Answer(
            call=call.call,
            verdict=verdict,
            prompt_sha256=self.prompt.sha256,
            usage=line.usage,
            duration_s=round(self.clock.monotonic() - began, 6),
            **fields,  # type: ignore[arg-type]  # plan, answer, before, error: each of its own type
        )


Settled = tuple[Verdict, dict[str, object]]


@dataclass(slots=True)
class _Conversation:
    """One call's exchange with the model."""

    planner: ModelPlanner
    call: Call
    state: RunState
    folder: Path
    line: ModelSession
    look: Look
    messages: list[JsonObject] = field(default_factory=list)
    listing: tuple[str, ...] = ()

    @property
    def _catalogue(self) -> Catalogue:
        return self.planner.catalogue.under(self.state.facts.own_tools)

    def settle(self) -> Settled:
        """Ask, weigh, ask again; return the verdict and what belongs to it."""
        standing = plan_context(self.call, self.state, present_plan(self.folder, self.state.facts))
        around = self._open(standing)
        good_enough: Evaluation | None = None
        doubted = False  # that the goal is impossible has been sent back, which happens once
        for turn in range(REPAIRS + 1):
            try:
                reply = self._ask(standing)
                weighed = evaluate_answer(reply_text(reply), standing, self._catalogue, around, self._check_stop)
            except ModelError as error:
                usable = good_enough if not isinstance(error, Stopped) else None
                return self._used(usable, standing) if usable else _failed(error)
            gives_up = weighed.verdict == "impossible" and weighed.usable
            if gives_up and turn and not weighed.soft:
                weighed = replace(weighed, soft=(RECONSIDER,))
            if weighed.usable and not (gives_up and weighed.soft and not doubted):
                return self._used(weighed, standing)
            doubted = doubted or gives_up
            good_enough = weighed if weighed.usable else good_enough
            self.messages += [_shortened(reply), {"role": "user", "content": repair(weighed, reply)}]
        return self._used(good_enough, standing) if good_enough else self._given_up(weighed)

    def _check_stop(self) -> None:
        """Raise if the call is to end, or its time is up."""
        if self.line.is_over():
            raise self.line.stop_error()

    def _open(self, standing: PlanContext) -> Surroundings:
        """Begin: the standing instructions, and everything about this call."""
        goal = self.planner.parsed(self.call.goal_sha256)
        run = self.state.facts.settings
        text = self.state.facts.goal.text
        material, around = self.planner.look(self.folder, run, self.planner.workspace, goal.fields.context, text)
        material = replace(material, kept=kept_context(self.folder))
        pins = PastPlans(self.folder).pins(self.state.facts.revisions)
        self.listing = material.listing
        told = briefing(self.call, self.state, standing, material, self._catalogue, pins)
        self.messages = [
            {"role": "system", "content": self.planner.prompt.text},
            {"role": "user", "content": told},
        ]
        return around

    def _ask(self, standing: PlanContext) -> Reply:
        schema = answer_form(
            self._catalogue, keep=standing.may_keep, finished=standing.may_finish, checks=standing.wants_checks
        )
        request = Request("planner", tuple(self.messages), form=Form(NAME, schema))
        return self.planner.model.complete(request, self.line)

    def _used(self, weighed: Evaluation, standing: PlanContext) -> Settled:
        if weighed.soft:
            self.line.log("accepted", {"although": list(weighed.soft)})
        try:
            accepted = self._accepted(weighed, standing)
        except ModelError as error:
            return _failed(error)
        plan = weighed.plan
        if plan is not None and accepted.checks:
            plan = plan | {"checks": [*standing.checks, *accepted.checks]}
        return weighed.verdict, {"plan": plan, "answer": weighed.answer, "before": accepted.before}

    def _accepted(self, weighed: Evaluation, standing: PlanContext) -> Acceptance:
        """Return the acceptance checks that come with a plan."""
        if weighed.verdict != "plan":
            return Acceptance((), ())
        if not standing.wants_checks:
            return late_checks(weighed.checks, standing.checks, self._catalogue)
        writer = Writer(
            goal=self.state.facts.goal.text,
            listing=self.listing,
            catalogue=self._catalogue,
            model=self.planner.model,
            role="planner",
            line=self.line,
            look=self.look,
            workspace=self.planner.workspace,
        )
        return writer.settle(weighed.checks)

    def _given_up(self, weighed: Evaluation) -> Settled:
        first, more = weighed.hard[:_IN_MESSAGE], len(weighed.hard) - _IN_MESSAGE
        words = "; ".join(first) + (f"; and {more} more" if more > 0 else "")
        log = f"{paths.PLANNING}/{paths.call_file(self.call.call, 'log')}"
        message = f"the planner's answer cannot be used, after {REPAIRS} turns to put it right: {words}"
        hint = f"the conversation is in {log}; try again with `agentfs replan`, or another model under [planner]"
        return "failed", {"error": Failure(kind="model", message=message, hint=hint)}


def failed_call(error: ModelError) -> tuple[Verdict, Failure]:
    """Return the verdict of a call that brought no reply, and what to write down."""
    match error:
        case Stopped():
            return "interrupted", error.failure
        case LimitReached():
            return "interrupted", error.failure.model_copy(update={"kind": "limit"})
        case Unreachable():
            return "failed", error.failure.model_copy(update={"kind": "unreachable"})
        case _:
            return "failed", error.failure


def _failed(error: ModelError) -> Settled:
    verdict, failure = failed_call(error)
    return verdict, {"error": failure}


# ── the turns ─────────────────────────────────────────────────────────────────────────────────────────────


def reply_text(reply: Reply) -> str:
    """Return what a reply says; some endpoints give the answer as the arguments of a call."""
    if not reply.text.strip() and reply.tool_calls:
        return reply.tool_calls[0].arguments
    return reply.text


def repair(weighed: Evaluation, reply: Reply) -> str:
    """Return the turn that says what has to be put right."""
    parts = []
    if reply.finish == "length":
        parts.append(
            "Your reply was cut off: it was too long. Answer again, shorter: fewer steps, one line for each text; "
            "long texts are for the steps to write, not for the plan."
        )
    if weighed.hard:
        parts.append(f"Your answer cannot be used yet:\n{_numbered(weighed.hard)}")
    if weighed.soft:
        parts.append(f"Look at this too, and change it unless it is meant:\n{_numbered(weighed.soft)}")
    parts.append("Send the whole answer again in the same form, with this put right. Nothing but the JSON object.")
    return "\n\n".join(parts)


def _numbered(problems: Sequence[str]) -> str:
    lines = [f"{place}. {cut(problem, 1000)}" for place, problem in enumerate(problems[:MOST_PROBLEMS], start=1)]
    more = len(problems) - MOST_PROBLEMS
    return "\n".join([*lines, *([f"and {more} more of the kind"] if more > 0 else [])])


def _shortened(reply: Reply) -> JsonObject:
    return {"role": "assistant", "content": cut(reply_text(reply), _SHOWN_REPLY)}


# ── what is on disk ───────────────────────────────────────────────────────────────────────────────────────


def present_plan(folder: Path, facts: Facts) -> JsonObject | None:
    """Return the last revision's plan as it was written; None before the first."""
    if not facts.revisions:
        return None
    plan: JsonObject = json.loads(_revision_plan(folder, facts.revisions[-1]))
    return plan


def kept_context(folder: Path) -> str | None:
    """Return what the planner was given to read at the first call; None where that was not kept."""
    try:
        return read_text(folder / paths.PLANNING / paths.CONTEXT)
    except OSError:
        return None


def _revision_plan(folder: Path, revision: Revision) -> bytes:
    return read_whole(folder / paths.REVISIONS / paths.revision_plan_file(revision.revision))

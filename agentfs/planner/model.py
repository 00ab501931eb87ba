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
from agentfs.core.records import Answer, Author, Call, Failure, FolderShown, JsonObject, Revision, Verdict
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
from agentfs.planner.prompt import Surroundings, briefing, cut
from agentfs.planner.surroundings import LookAround, look_around
from agentfs.prompts import Prompt
from agentfs.storage.files import read_whole
from agentfs.storage.plan_files import PastPlans
from agentfs.storage.safe_open import read_text

REPAIRS = 2
AGAIN = "Send the whole answer again in the same form, with this put right. Nothing but the JSON object."
ANOTHER_WAY = "Answer in another way, in the same form. Nothing but the JSON object."
RECONSIDER = "impossible: your last answer only had to be corrected -> correct it, or quote what prevents it"
MOST_PROBLEMS = 20  # listed in one turn
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
    look: LookAround = look_around

    def author(self, call: Call, facts: Facts) -> Author:  # noqa: ARG002 - whatever it was called for
        return Author(role="planner", name="planner", model=self.model.name)

    def takes_time(self, call: Call, facts: Facts) -> bool:  # noqa: ARG002 - a model always does
        return True

    def answer(self, call: Call, state: RunState, folder: Path, session: ModelSession, look: Look) -> Answer:
        """Return what a model says to a call, checked and put into plan form."""
        conversation = _Conversation(self, call, state, folder, session, look)
        verdict, fields = conversation.find_answer()
        return Answer(
            call=call.call,
            verdict=verdict,
            folder=conversation.shown,
            prompt_sha256=self.prompt.sha256,
            usage=session.usage,
            duration_s=0.0,
            **fields,  # type: ignore[arg-type]  # plan, answer, before, error: each of its own type
        )


Found = tuple[Verdict, dict[str, object]]


@dataclass(slots=True)
class _Conversation:
    """One call's exchange with the model."""

    planner: ModelPlanner
    call: Call
    state: RunState
    folder: Path
    session: ModelSession
    look: Look
    messages: list[JsonObject] = field(default_factory=list)
    shown: FolderShown | None = None

    @property
    def _catalogue(self) -> Catalogue:
        return self.planner.catalogue.under(self.state.facts.own_tools)

    def find_answer(self) -> Found:
        """Ask, weigh, ask again; return the verdict and what belongs to it."""
        context = plan_context(self.call, self.state, present_plan(self.folder, self.state.facts))
        around = self._open(context)
        good_enough: Evaluation | None = None
        doubted = False  # that the goal is impossible has been sent back, which happens once
        before = ""
        for turn in range(REPAIRS + 1):
            try:
                reply = self._ask(context)
                evaluation = evaluate_answer(reply_text(reply), context, self._catalogue, around, self._check_stop)
            except ModelError as error:
                usable = good_enough if not isinstance(error, Stopped) else None
                return self._use(usable, context) if usable else _failed_verdict(error)
            gives_up = evaluation.verdict == "impossible" and evaluation.usable
            if gives_up and turn and not evaluation.soft:
                evaluation = replace(evaluation, soft=(RECONSIDER,))
            if evaluation.usable and not (gives_up and evaluation.soft and not doubted):
                return self._use(evaluation, context)
            doubted = doubted or gives_up
            good_enough = evaluation if evaluation.usable else good_enough
            if reply_text(reply) == before:  # a small model repeats itself as long as it sees what it said
                self.messages[2:] = [{"role": "user", "content": repair(evaluation, reply, ANOTHER_WAY)}]
            else:
                self.messages += [_shorten(reply), {"role": "user", "content": repair(evaluation, reply)}]
            before = reply_text(reply)
        return self._use(good_enough, context) if good_enough else self._give_up(evaluation)

    def _check_stop(self) -> None:
        """Raise if the call is to end, or its time is up."""
        if self.session.is_over():
            raise self.session.stop_error()

    def _open(self, context: PlanContext) -> Surroundings:
        """Begin: the standing instructions, and everything about this call."""
        goal = self.planner.parsed(self.call.goal_sha256)
        run = self.state.facts.settings
        text = self.state.facts.goal.text
        material, around = self.planner.look(self.folder, run, self.planner.workspace, goal.fields.context, text)
        material = replace(material, kept=kept_context(self.folder))
        hand_edits = PastPlans(self.folder).hand_edits(self.state.facts.revisions)
        self.shown = FolderShown(entries=material.listing, complete=material.complete)
        content = briefing(self.call, self.state, context, material, self._catalogue, hand_edits)
        self.messages = [
            {"role": "system", "content": self.planner.prompt.text},
            {"role": "user", "content": content},
        ]
        return around

    def _ask(self, context: PlanContext) -> Reply:
        schema = answer_form(
            self._catalogue, keep=context.may_keep, finished=context.may_finish, checks=context.wants_checks
        )
        request = Request("planner", tuple(self.messages), form=Form(NAME, schema))
        return self.planner.model.complete(request, self.session)

    def _use(self, evaluation: Evaluation, context: PlanContext) -> Found:
        if evaluation.soft:
            self.session.log("accepted", {"although": list(evaluation.soft)})
        try:
            accepted = self._accept(evaluation, context)
        except ModelError as error:
            return _failed_verdict(error)
        plan = evaluation.plan
        if plan is not None and accepted.checks:
            plan = plan | {"checks": [*context.checks, *accepted.checks]}
        return evaluation.verdict, {"plan": plan, "answer": evaluation.answer, "before": accepted.before}

    def _accept(self, evaluation: Evaluation, context: PlanContext) -> Acceptance:
        """Return the acceptance checks that come with a plan."""
        if evaluation.verdict != "plan":
            return Acceptance((), ())
        if not context.wants_checks:
            return late_checks(evaluation.checks, context.checks, self._catalogue)
        writer = Writer(
            goal=self.state.facts.goal.text,
            listing=self.shown.entries if self.shown else (),
            catalogue=self._catalogue,
            model=self.planner.model,
            role="planner",
            session=self.session,
            look=self.look,
            workspace=self.planner.workspace,
        )
        return writer.write_checks(evaluation.checks)

    def _give_up(self, evaluation: Evaluation) -> Found:
        first, more = evaluation.hard[:_IN_MESSAGE], len(evaluation.hard) - _IN_MESSAGE
        words = "; ".join(first) + (f"; and {more} more" if more > 0 else "")
        log = paths.call_path(self.call.call, "log")
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


def _failed_verdict(error: ModelError) -> Found:
    verdict, failure = failed_call(error)
    return verdict, {"error": failure}


# ── the turns ─────────────────────────────────────────────────────────────────────────────────────────────


def reply_text(reply: Reply) -> str:
    """Return what a reply says; some endpoints give the answer as the arguments of a call."""
    if not reply.text.strip() and reply.tool_calls:
        return reply.tool_calls[0].arguments
    return reply.text


def repair(evaluation: Evaluation, reply: Reply, demand: str = AGAIN) -> str:
    """Return the turn that says what has to be put right."""
    parts = []
    if reply.finish == "length":
        parts.append(
            "Your reply was cut off: it was too long. Answer again, shorter: fewer steps, one line for each text; "
            "long texts are for the steps to write, not for the plan."
        )
    if evaluation.hard:
        parts.append(f"Your answer cannot be used yet:\n{_number(evaluation.hard)}")
    if evaluation.soft:
        parts.append(f"Look at this too, and change it unless it is meant:\n{_number(evaluation.soft)}")
    return "\n\n".join([*parts, demand])


def _number(problems: Sequence[str]) -> str:
    lines = [f"{place}. {cut(problem, 1000)}" for place, problem in enumerate(problems[:MOST_PROBLEMS], start=1)]
    more = len(problems) - MOST_PROBLEMS
    return "\n".join([*lines, *([f"and {more} more of the kind"] if more > 0 else [])])


def _shorten(reply: Reply) -> JsonObject:
    return {"role": "assistant", "content": cut(reply_text(reply), _SHOWN_REPLY)}


# ── what is on disk ───────────────────────────────────────────────────────────────────────────────────────


def present_plan(folder: Path, facts: Facts) -> JsonObject | None:
    """Return the last revision's plan as it was written; None before the first."""
    if not facts.revisions:
        return None
    return revision_plan(folder, facts.revisions[-1])


def kept_context(folder: Path) -> str | None:
    """Return what the planner was given to read at the first call; None where that was not kept."""
    try:
        return read_text(folder / paths.PLANNING / paths.CONTEXT)
    except OSError:
        return None


def revision_plan(folder: Path, revision: Revision) -> JsonObject:
    """Return a revision's plan as it was written."""
    plan: JsonObject = json.loads(read_whole(folder / paths.REVISIONS / paths.revision_plan_file(revision.revision)))
    return plan

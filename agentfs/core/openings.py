"""What a run waits for a person to say: drafts, gates, answers of the planner, cut attempts, questions. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agentfs.core import paths
from agentfs.core.facts import CUT_WORDS, GATE_WORDS, Facts, cut_word, gate_word, uncounted
from agentfs.core.planner_calls import question_of
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView

About = Literal["draft", "gate", "answer", "cut", "ask"]
RAISED_BY = {
    "minutes": "--add-minutes N",
    "requests": "--add-requests N",
    "tokens": "--add-tokens N",
    "cost_usd": "--add-cost USD",
}  # how `resume` raises a limit
YES_OR_NO: tuple[About, ...] = ("draft", "gate", "answer")  # what `approve` and `reject` speak of


@dataclass(frozen=True, slots=True)
class Opening:
    """One thing a person can settle. A draft is settled in plan.json, all else by a reply beside a question."""

    about: About
    step: str | None = None
    number: int = 0  # of the attempt, or of the call
    count: int = 1
    reply: str | None = None  # what stands there already

    @property
    def question_path(self) -> str:
        return self._path("question")

    @property
    def reply_path(self) -> str:
        return self._path("reply")

    def _path(self, kind: Literal["question", "reply"]) -> str:
        if self.step is None:
            return f"{paths.PLANNING}/{paths.call_file(self.number, kind, self.count)}"
        return f"{paths.STEPS}/{paths.step_file(self.step, self.number, kind, self.count)}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words a reply may begin with; none: any words are an answer."""
        match self.about:
            case "cut":
                return CUT_WORDS
            case "ask":
                return ()
            case _:
                return GATE_WORDS

    @property
    def name(self) -> str:
        """What a person types for it."""
        if self.about == "draft":
            return paths.PLAN
        return self.step or f"{paths.PLANNING}/{self.number}"

    def commands(self, run: str, word: str = "approve", *, alone: bool = False) -> tuple[str, ...]:
        """Return what a person may type to settle it, each choice whole; `alone`: the run asks nothing else."""
        match self.about:
            case "cut":
                return tuple(f"agentfs reply {run} {self.step} {choice}" for choice in CUT_WORDS)
            case "ask":
                return (f"agentfs reply {run} {self.step} TEXT",)
            case _:
                return (f"agentfs {word} {run}" if alone else f"agentfs {word} {run} {self.name}",)

    @property
    def uncounted(self) -> str | None:
        """That the reply which is there settles nothing, and what would; None: there is none."""
        return uncounted(self.reply, self.words) if self.words else None

    def accepts(self, text: str) -> bool:
        """Whether a text settles it."""
        match self.about:
            case "cut":
                return cut_word(text) is not None
            case "ask":
                return bool(text.strip())
            case _:
                return gate_word(text) is not None


def openings(state: RunState) -> tuple[Opening, ...]:
    """Return everything that waits for a person's word, the plan itself first."""
    return tuple(_found(state))


def ways_on(state: RunState, run: str) -> tuple[str, ...]:
    """Return what a person may type, or has to mend, to have a run go on that waits for them."""
    facts = state.facts
    if facts.broken:
        return ()  # its words name the file
    if facts.plan_file.problems:
        return (f"fix runs/{facts.run.run}/{paths.PLAN}: {paths.PLAN_ERROR} beside it says how",)
    if found := openings(state):
        return tuple(command for one in found for command in one.commands(run, alone=len(found) == 1))
    if (facts.plan is not None and facts.plan.status == "paused") or state.calls.failed or state.moving("reach"):
        return (f"agentfs resume {run}",)
    limit = state.limit_reached
    return (f"agentfs resume {run} {RAISED_BY[limit.name]}",) if limit else ()


def _found(state: RunState) -> Iterator[Opening]:
    facts = state.facts
    if facts.plan is not None and facts.plan.status == "draft":
        yield Opening("draft")
    if (one := state.calls.unapplied) is not None and (asked := question_of(one, facts)) is not None:
        yield Opening("answer", None, one.number, asked.count, asked.reply)
    for view in state.moving("person"):
        yield _of_step(view, facts)


def _of_step(view: StepView, facts: Facts) -> Opening:
    about: About = "gate" if view.status == "gated" else "cut" if view.status == "interrupted" else "ask"
    return _with_talk(about, view.id, view.next if about == "gate" else view.attempt, facts)


def _with_talk(about: About, step: str, number: int, facts: Facts) -> Opening:
    talk = facts.attempt(step, number).talks[-1]
    return Opening(about, step, number, talk.count, talk.reply)


def answered(state: RunState, step: str) -> Opening | None:
    """Return the question of a step that has an answer which nobody has acted upon yet."""
    view = state.steps[step]
    match view.move:
        case "order" | "reject" if view.status == "gated":
            return _with_talk("gate", step, view.next, state.facts)
        case "settle_cut":
            return _with_talk("cut", step, view.attempt, state.facts)
        case "settle_ask":
            return _with_talk("ask", step, view.attempt, state.facts)
        case _:
            return None

"""What a run waits for a person to do or say, what it is doing in a word, and how full places are. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentfs.core import paths
from agentfs.core.actions import Action, AskAnswer, CallPlanner, InstallPlan, RecordRevision, Wait
from agentfs.core.decide import busy_words, decide
from agentfs.core.facts import ASK, CUT_WORDS, GATE_WORDS, Attempt, Facts, cut_word, explain_uncounted, gate_word
from agentfs.core.outcome import left_steps
from agentfs.core.planner_calls import question_of
from agentfs.core.run_state import RunState
from agentfs.core.steps import StepView
from agentfs.core.text import ASKS, WRONG, plural, wrong_first

About = Literal["draft", "gate", "answer", "cut", "ask"]
RAISED_BY = {
    "minutes": "--add-minutes N",
    "requests": "--add-requests N",
    "tokens": "--add-tokens N",
    "cost_usd": "--add-cost USD",
}  # how `resume` raises a limit
YES_OR_NO: tuple[About, ...] = ("draft", "gate", "answer")  # what `approve` and `reject` speak of


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """One thing a person can settle. A draft is settled in plan.json, all else by a reply beside a question."""

    about: About
    step: str | None = None
    number: int = 0  # of the attempt, or of the call
    count: int = 1
    reply: str | None = None  # what is there already

    @property
    def question_path(self) -> str:
        return self._path("question")

    @property
    def reply_path(self) -> str:
        return self._path("reply")

    def _path(self, kind: Literal["question", "reply"]) -> str:
        if self.step is None:
            return paths.call_path(self.number, kind, self.count)
        return paths.step_path(self.step, self.number, kind, self.count)

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
        return explain_uncounted(self.reply, self.words) if self.words else None

    def accepts(self, text: str) -> bool:
        """Whether a text settles it."""
        match self.about:
            case "cut":
                return cut_word(text) is not None
            case "ask":
                return bool(text.strip())
            case _:
                return gate_word(text) is not None


def open_questions(state: RunState) -> tuple[OpenQuestion, ...]:
    """Return everything that waits for a person's word, the plan itself first."""
    return tuple(_find_open(state))


def asked_by_items(found: Iterable[OpenQuestion], step: str) -> list[OpenQuestion]:
    """Return those questions that items of a step ask."""
    return [one for one in found if one.step not in (None, step) and paths.step_of(one.step or "") == step]


def by_step(found: Sequence[OpenQuestion]) -> Iterator[tuple[OpenQuestion, list[OpenQuestion]]]:
    """Yield the questions to show, and with each those that other items of the same step ask: there may be many."""
    shown: set[str] = set()
    for one in found:
        step = paths.step_of(one.step or "")
        if one.step in (None, step):
            yield one, []
        elif step not in shown:
            shown.add(step)
            yield one, asked_by_items(found, step)[1:]


def command_for_items(run: str, one: OpenQuestion) -> str:
    """Return what answers the questions of all items of a step, of which this is one."""
    return f"agentfs reply {run} {paths.step_of(one.step or '')} {one.words[0] if one.words else 'TEXT'}"


def ways_on(state: RunState, run: str) -> tuple[str, ...]:
    """Return what a person may type, or has to fix, to have a run go on that waits for them."""
    facts = state.facts
    if facts.broken:
        return ()  # its words name the file
    if facts.plan_file.problems:
        return (f"fix runs/{facts.run.run}/{paths.PLAN}: {paths.PLAN_ERROR} beside it says how",)
    if found := open_questions(state):
        return tuple(command for one in found for command in one.commands(run, alone=len(found) == 1))
    held = facts.plan is not None and facts.plan.status == "paused"
    if held or facts.replan is not None or state.calls.failed or state.moving("reach"):
        return (f"agentfs resume {run}",)
    limit = state.limit_reached
    return (f"agentfs resume {run} {RAISED_BY.get(limit.name, '')}".rstrip(),) if limit else ()


def _find_open(state: RunState) -> Iterator[OpenQuestion]:
    facts = state.facts
    if facts.plan is not None and facts.plan.status == "draft" and facts.replan is None:  # else there will be another
        yield OpenQuestion("draft")
    if (one := state.calls.unapplied) is not None and (asked := question_of(one, facts)) is not None:
        yield OpenQuestion("answer", None, one.number, asked.count, asked.reply)
    for view in state.moving("person"):
        yield _of_step(view, facts)


def _of_step(view: StepView, facts: Facts) -> OpenQuestion:
    about: About = "gate" if view.status == "gated" else "cut" if view.status == "interrupted" else "ask"
    return _with_talk(about, view.id, view.next if about == "gate" else view.attempt, facts)


def _with_talk(about: About, step: str, number: int, facts: Facts) -> OpenQuestion:
    talk = facts.attempt(step, number).talks[-1]
    return OpenQuestion(about, step, number, talk.count, talk.reply)


def find_answered(state: RunState, step: str) -> OpenQuestion | None:
    """Return the question of a step that has an answer which nobody has acted upon yet."""
    view = state.view(step)
    if view is None:
        return None
    match view.move:
        case "order" | "reject" if view.status == "gated":
            return _with_talk("gate", step, view.next, state.facts)
        case "record_cut":
            return _with_talk("cut", step, view.attempt, state.facts)
        case "record_ask":
            return _with_talk("ask", step, view.attempt, state.facts)
        case _:
            return None


# ── everything that waits for a person, each with a name that stays the same ─────────────────────────────


What = About | Literal["plan", "limit", "planner", "model", "files", "other"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing that a person has to see to."""

    thing: str  # the same for as long as it is the same thing
    what: What
    file: str  # to look at, in the run's folder
    why: str
    how: str  # what to type; empty: nothing but an edit helps
    others: tuple[str, ...] = ()  # things of the same kind and step that it covers, too


def list_waiting(state: RunState, last: Action) -> tuple[Waiting, ...]:
    """Return what waits for a person; `last` is the last of what was decided. A run that they paused does not."""
    if state.facts.outcome is not None:
        return ()
    return (*_find_waiting(state), *_find_held(state, last))


def _find_waiting(state: RunState) -> Iterator[Waiting]:
    found, run = open_questions(state), state.facts.run.run
    cut = [one for one in found if one.about == "cut"]
    for one, more in (*((one, []) for one in found if one.about != "cut"), *by_step(cut)):
        how = "\n".join(one.commands(run, alone=len(found) == 1))
        if one.about == "draft":
            yield Waiting(f"draft of call {_last_call(state)}", "draft", paths.PLAN, "the plan is a draft", how)
        else:
            why = _why(state, one)
            if more:  # items of a list that were cut off together
                how = "\n".join(f"agentfs reply {run} {paths.step_of(one.step or '')} {word}" for word in one.words)
                why = f"{why} (and {len(more)} more of its items)"
            others = tuple(other.question_path for other in more)
            yield Waiting(one.question_path, one.about, one.question_path, why, how, others)


def _last_call(state: RunState) -> int:
    """Return who drafted it: what a person makes of a draft by hand is no new one to them."""
    return next((one.call for one in reversed(state.facts.revisions) if one.call), 0)


def _why(state: RunState, one: OpenQuestion) -> str:
    if one.step is None:
        return f"the planner's answer of call {one.number} needs a yes"
    order = state.facts.attempt(one.step, one.number).order
    asked = order.input.get("question") if order is not None and order.tool == ASK else None
    view = state.view(one.step)
    return f"{one.step}: {asked or (view.why if view else 'it has left the plan')}"


def _find_held(state: RunState, last: Action) -> Iterator[Waiting]:
    """Yield what holds the whole run up with no question that could be answered."""
    if not isinstance(last, Wait) or last.on != "person":
        return
    facts, limit, failed = state.facts, state.limit_reached, state.calls.failed
    how = next(iter(ways_on(state, facts.run.run)), "")
    if facts.broken:
        yield Waiting(f"files: {last.why}", "files", "", last.why, how)
    elif facts.plan_file.problems:
        thing = f"plan.json after revision {len(facts.revisions)}"
        yield Waiting(thing, "plan", paths.PLAN_ERROR, last.why, how)
    elif failed is not None:
        path = paths.call_path(failed.number, "answer")
        yield Waiting(path, "planner", path, last.why, how)
    elif limit is not None:
        yield Waiting(f"limits.{limit.name} {limit.amount}", "limit", paths.PLAN, last.why, how)
    elif reach := state.moving("reach"):
        yield Waiting(f"model for {reach[0].id}.{reach[0].attempt}", "model", paths.PLAN, last.why, how)
    elif not open_questions(state) and not (facts.plan is not None and facts.plan.status == "paused"):
        yield Waiting(last.why, "other", paths.PLAN, last.why, how)


# ── what a run is doing ──────────────────────────────────────────────────────────────────────────────────


Phase = Literal["planning", "draft", "running", "waiting", "paused", "done", "failed", "cancelled"]


def phase(state: RunState) -> Phase:
    """Return what the run is doing, whether or not anybody drives it."""
    facts, action = state.facts, _telling(state)
    if facts.outcome is not None:
        return facts.outcome.status
    saved = facts.plan_file.plan if facts.plan is not None else None  # an edit may not be recorded yet
    if not facts.broken and (plan := saved or facts.plan) is not None and plan.status in ("draft", "paused"):
        return "draft" if plan.status == "draft" else "paused"
    match action:
        case Wait(on="person") | AskAnswer():
            return "waiting"
        case Wait(on="planner") | CallPlanner() | InstallPlan():
            return "planning"
        case RecordRevision(call=int()):
            return "planning"
        case _:
            return "planning" if facts.plan is None else "running"


def reason(state: RunState) -> str:
    """Return why it is in that phase: how it ended, what it waits for, or what runs."""
    if state.facts.outcome is not None:
        return state.facts.outcome.summary
    if state.running:
        return busy_words(state)
    match _telling(state):
        case (
            Wait(why=why) | AskAnswer(why=why) | CallPlanner(why=why) | InstallPlan(why=why) | RecordRevision(why=why)
        ):
            return why
        case _:
            ready = [view.id for view in state.moving("order", "start", "ask", "ask_cut")]
            return f"{ready[0]} is next" if ready else "it is about to end"


def _telling(state: RunState) -> Action:
    """Return the decision that says most: the last one, after what merely puts things right."""
    return decide(state, 1)[-1]


# ── the steps that are shown ──────────────────────────────────────────────────────────────────────────────

OVER = frozenset(("done", "skipped"))
PRESSING = WRONG | {"interrupted", "gated"}


def shown_state(view: StepView, *, asks: bool) -> str:
    """Return a step's state as people see it: an order is as good as begun, and who asks a person does not run."""
    if view.status in ("ordered", "running"):
        return ASKS if asks else "running"
    return view.status


def all_steps(state: RunState) -> list[StepView]:
    """Return the steps of a run as people are shown them, those that have left the plan included."""
    return wrong_first([*state.steps.values(), *left_steps(state)], lambda view: view.status)


def choose_steps(views: list[StepView], room: int) -> list[StepView]:
    """Return the steps to show, in plan order: what runs, what went wrong, then those around the front line."""
    if len(views) <= room:
        return views
    front = next((n for n, view in enumerate(views) if view.status not in OVER | PRESSING), len(views) - 1)

    def rank(place: int) -> tuple[int, int]:
        status = views[place].status
        pressing = 0 if status in ("ordered", "running") else 1 if status in PRESSING else 2
        return pressing, abs(place - front)

    return [views[place] for place in sorted(sorted(range(len(views)), key=rank)[:room])]


# ── how full places are, and which steps wait for a slot ──────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """What one run has at a place."""

    name: str
    begun: int  # attempts that run there
    sent: int  # those that were sent, and have not begun: no worker has taken them yet
    waiting: tuple[str, ...]  # steps that only wait for a slot there

    def in_words(self) -> str:
        parts = [f"{plural(self.begun, 'attempt')} under way"]
        if self.sent:
            parts.append(f"{self.sent} sent, not begun")
        if self.waiting:
            more = f" and {len(self.waiting) - 1} more" if len(self.waiting) > 1 else ""
            parts.append(f"{self.waiting[0]}{more} {'wait' if more else 'waits'} for a slot")
        return f"{self.name}: {', '.join(parts)}"


def slots_in_use(uses: Iterable[PlaceUse], slots: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each place that is in use, over all runs. `slots`: how many a place has."""
    by_name: dict[str, list[PlaceUse]] = {}
    for one in uses:
        by_name.setdefault(one.name, []).append(one)
    for name, found in sorted(by_name.items()):
        used, waiting = sum(one.begun + one.sent for one in found), sum(len(one.waiting) for one in found)
        of = f"{used} of {plural(slots[name], 'slot')}" if name in slots else plural(used, "slot")
        yield f"{name}: {of} in use" + (f", {plural(waiting, 'step')} waiting" if waiting else "")


def places_in_use(state: RunState) -> Iterator[PlaceUse]:
    """Yield each place where this run has something, or waits for a slot."""
    if not state.uses_places or state.facts.outcome is not None:
        return
    running = [(state.place_of(one.step), _has_begun(state, one.id, one.attempt)) for one in state.running]
    waiting = [(state.place_of(one.step), one.id) for one in state.moving("order")]
    for name in sorted({place for place, _ in (*running, *waiting) if place}):
        begun = [has_begun for place, has_begun in running if place == name]
        yield PlaceUse(
            name, sum(begun), len(begun) - sum(begun), tuple(step for place, step in waiting if place == name)
        )


def _has_begun(state: RunState, step: str, number: int) -> bool:
    """Whether an attempt has its claim: its driver has answered `go`."""
    attempts: tuple[Attempt, ...] = tuple(state.facts.attempts.get(step, ()))
    return any(one.number == number and one.claimed for one in attempts)

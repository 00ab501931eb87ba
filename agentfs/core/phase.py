"""What a run is doing, in one word and in a sentence. Pure."""

from typing import Literal

from agentfs.core.decide import Action, AskAnswer, CallPlanner, InstallPlan, RecordRevision, Wait, decide
from agentfs.core.run_state import RunState

Phase = Literal["planning", "draft", "running", "waiting", "paused", "done", "failed", "cancelled"]


def phase(state: RunState) -> Phase:
    """Return what the run is doing, whether or not anybody drives it."""
    facts, action = state.facts, _telling(state)
    if facts.outcome is not None:
        return facts.outcome.status
    if not facts.broken and facts.plan is not None and facts.plan.status in ("draft", "paused"):
        return "draft" if facts.plan.status == "draft" else "paused"
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
    if running := [view.id for view in state.running]:
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        return f"{', '.join(running[:3])}{more} {'is' if len(running) == 1 else 'are'} running"
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

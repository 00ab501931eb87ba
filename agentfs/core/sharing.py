"""Who may use the worktree of an isolated run at the same time. Pure.

A step that may write has the folder to itself: what it changes is its commit, and is undone if it fails. Steps that
only read run side by side, and see what is committed, never half of another's work. Steps that do not look at the
folder (`note`, `http_get`) wait for nobody. An attempt that waits with a question keeps the folder and its work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentfs.core.facts import ASK, RUN
from agentfs.core.records import Check, Order, ResolvedCheck, Step
from agentfs.core.run_state import Means, RunState, Use
from agentfs.core.steps import StepView

_RANK: Mapping[Use, int] = {"apart": 0, "reads": 1, "writes": 2}


def use_of(step: Step | Order, means: Means) -> Use:
    """Return how a step uses the working folder; a command may do anything, so it writes."""
    kinds = {check.kind for check in _checks_of(step)}
    if "command" in kinds or step.agent is not None:
        return "writes"
    tools = (step.tools if not means.agent else None) if step.tool is None else (step.tool,)
    if tools is None:
        return "writes"
    uses: list[Use] = [means.uses.get(tool, "writes") for tool in tools]
    return max((*uses, "reads" if "file" in kinds else "apart"), key=_RANK.__getitem__)


def _checks_of(step: Step | Order) -> list[Check | ResolvedCheck]:
    found: list[Check | ResolvedCheck] = [*(step.checks or ())]
    if isinstance(step, Step):
        found += [*(step.needs or ()), *([step.when] if step.when else ())]
    return found


@dataclass(slots=True)
class Folder:
    """Who uses the folder now, and so who may beside them."""

    means: Means
    users: dict[str, Use] = field(default_factory=dict)  # by step

    def admits(self, view: StepView) -> bool:
        """Whether a step may begin now; one that uses the folder already goes on."""
        if not self.means.isolated or view.id in self.users:
            return True
        use, others = use_of(view.step, self.means), self.users.values()
        return use == "apart" or not (set(others) if use == "writes" else "writes" in others)

    def enter(self, view: StepView) -> None:
        """Let a step use the folder."""
        self.add(view.id, use_of(view.step, self.means))

    def add(self, step: str, use: Use) -> None:
        if use != "apart":
            self.users[step] = use


def folder_of(state: RunState) -> Folder:
    """Return who uses the folder of a run, as its files say."""
    folder = Folder(state.means)
    if not state.means.isolated:
        return folder
    for one in (*state.running, *state.moving("person", "record_ask")):
        attempt = state.facts.attempt(one.id, one.attempt)
        waits = attempt.order is not None and attempt.order.tool in (ASK, RUN)  # only its checks use the folder
        if attempt.is_unfinished and not waits:
            folder.enter(one)
    for stray in state.strays:
        folder.add(stray.step, use_of(stray.attempt.order, state.means) if stray.attempt.order else "writes")
    return folder

"""A step that a coding agent does: its prompt, its run, and what its answer comes to. Its checks come afterwards."""

from dataclasses import dataclass, replace

from agentfs.agents.running import Attempted, run_agent, usage_of, version_here
from agentfs.agents.running import Task as AgentTask
from agentfs.agents.story import verdict
from agentfs.core.hashing import sha256_bytes
from agentfs.core.records import Failure, Usage
from agentfs.executor.checks import refute_claim
from agentfs.executor.conversation import FINISH_FORM, Finish, fits_finish, step_message
from agentfs.executor.task import AgentRules, Task
from agentfs.models.budget import Budget
from agentfs.prompts import load_prompt
from agentfs.tools.base import StepContext, ToolResult
from agentfs.tools.sandbox import hint_for

UNCONFINED = "an agent is run only in a sandbox, and there is none here (bubblewrap)"


def let_agent_work(task: Task, rules: AgentRules, context: StepContext) -> ToolResult:
    """Let an agent do a step, and return what it came to."""
    if context.confinement.sandbox == "none" and not task.loop.unconfined:
        change = context.confinement.change('install bubblewrap, or set sandbox = "off"')
        return ToolResult(failure=Failure(kind="sandbox", message=UNCONFINED, hint=change))
    prompt, digest = _prompt(task, context)
    left = _Left(rules.budget)
    ours = AgentTask(
        prompt=prompt,
        schema=FINISH_FORM,
        model=task.order.model,
        max_turns=left.requests(),
        max_cost_usd=left.cost_usd(),
        over=left.why_over,
        news=rules.news,
    )
    attempted = context.observer.see(
        "agent", context.name, lambda: run_agent(rules.agent, ours, context, rules.environment)
    )
    if isinstance(attempted, Failure):
        return ToolResult(failure=attempted, prompt_sha256=digest)
    used = usage_of(attempted.story, rules.agent)
    if context.session is not None:
        context.session.count(used)
    result = _result(task, rules, attempted, context)
    return replace(result, usage=used, prompt_sha256=digest)


def _prompt(task: Task, context: StepContext) -> tuple[str, str]:
    """Return what an agent reads, and the hash of the prompts it was made from."""
    workspace = context.confinement.workspace
    around, step = load_prompt("agent", workspace), load_prompt("step", workspace)
    message = step_message(task, step)
    return context.mask.text(around.filled(step=message)), sha256_bytes((around.sha256 + step.sha256).encode())


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left of the run's limits when an agent begins."""

    budget: Budget

    def requests(self) -> int:
        return max(1, self.budget.bounds.requests - self.budget.spent.requests)

    def cost_usd(self) -> float:
        return max(0.01, self.budget.bounds.cost_usd - self.budget.spent.cost_usd)

    def why_over(self, used: Usage) -> str | None:
        """Return which limit an agent has gone beyond with this."""
        bounds, spent = self.budget.bounds, self.budget.spent.plus_usage(used)
        if spent.requests > bounds.requests:
            return f"the limit of {bounds.requests} requests is reached"
        if spent.tokens > bounds.tokens:
            return f"the limit of {bounds.tokens} tokens is reached"
        if spent.cost_usd > bounds.cost_usd:
            return f"the limit of ${bounds.cost_usd:g} is reached"
        return None


def _result(task: Task, rules: AgentRules, attempted: Attempted, context: StepContext) -> ToolResult:
    """Return what the end of an agent means for its step."""
    confined = context.confinement.sandbox == "bubblewrap"
    answer = verdict(
        rules.agent,
        attempted.end,
        attempted.story,
        fits_finish,
        lambda: attempted.story.began.version or version_here(rules.agent, rules.environment, confined=confined),
    )
    if isinstance(answer, Failure):
        hint = answer.hint or hint_for(attempted.end.exit_code, attempted.end.stderr, context.confinement)
        return ToolResult(failure=answer.model_copy(update={"hint": hint}))
    claim = Finish.of(answer)
    is_done = claim.ok and not claim.blocked
    if is_done and (wrong := refute_claim(task.loop.acceptance, None, context, claim.output)):
        message = f"it claimed to be done against a failing check: {wrong[0]}"  # the planner goes on with the goal
        return ToolResult(failure=Failure(kind="drift", message=message), evidence=claim.evidence)
    return claim.result("agent", context)

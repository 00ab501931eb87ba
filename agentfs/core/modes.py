"""How a run is driven: who makes its first plan, and when the planner is called although nothing went wrong. Pure."""

from agentfs.core.facts import Facts
from agentfs.core.records import Mode, Plan, Run

DO = "do"  # the one step of the plan that code writes: a loop that does the goal as a whole
LOOPS: tuple[Mode, ...] = ("single", "scratchpad")


def starts_as_loop(run: Run, *, executor: bool) -> bool:
    """Whether code writes the first plan, of one step; a person who reviews plans gets one worth reviewing."""
    if run.mode == "auto":
        return executor and run.approve == "never"
    return run.mode in LOOPS


def is_loop(plan: Plan | None) -> bool:
    """Whether a plan is the one that code writes."""
    return plan is not None and [step.id for step in plan.steps] == [DO] and plan.steps[0].tool is None


def loops(facts: Facts) -> bool:
    """Whether the run is still the one loop it began as."""
    return not facts.goal.has_steps and facts.run.mode in ("auto", *LOOPS) and is_loop(facts.plan)


def is_stepwise(facts: Facts) -> bool:
    return facts.run.mode == "stepwise" and not facts.goal.has_steps


def asks_after_every_step(facts: Facts) -> bool:
    """Whether the planner looks at each result; one loop has no planner, and stepwise calls it anyway."""
    model_plans = not facts.goal.has_steps and not is_stepwise(facts) and not loops(facts)
    return facts.run.replan == "every_step" and model_plans

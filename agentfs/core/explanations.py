"""The notes that stand beside files a person made invalid. Pure, so that deciding can tell whether they are right."""

from collections.abc import Sequence

from agentfs.core import paths
from agentfs.core.facts import Facts
from agentfs.core.problems import Problem


def wanted_notes(facts: Facts) -> dict[str, str | None]:
    """Return what each note should say now; None: it should not be there."""
    plan, goal = facts.plan_file.problems, facts.goal.problems
    return {
        paths.PLAN_ERROR: plan_error(plan) if plan else None,
        paths.GOAL_ERROR: _goal_error(goal) if goal else None,
    }


def plan_error(problems: Sequence[Problem]) -> str:
    """Return what is wrong with plan.json, for the person who has it open."""
    holds = "The last revision holds: what runs goes on, nothing new starts."
    return _note(paths.PLAN, problems, holds)


def _goal_error(problems: Sequence[Problem]) -> str:
    return _note("the goal", problems, "The last good one holds, and the run goes on with it.")


def _note(file: str, problems: Sequence[Problem], holds: str) -> str:
    listed = "\n".join(f"    {problem.shown(file)}" for problem in problems)  # indented: it renders as text
    return f"# {file} is not valid\n\n{listed}\n\n{holds} Fix the file and save it; this note is then removed.\n"

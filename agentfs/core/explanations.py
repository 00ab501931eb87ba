"""The note that stands beside an invalid plan.json. Pure, so that deciding can tell whether it is still right."""

from collections.abc import Sequence

from agentfs.core.problems import Problem


def plan_error(problems: Sequence[Problem]) -> str:
    """Return what is wrong with plan.json, for the person who has it open."""
    listed = "\n".join(f"- {problem.shown('plan.json')}" for problem in problems)
    return (
        "# plan.json is not valid\n\n"
        f"{listed}\n\nThe last revision holds: what runs goes on, nothing new starts. Mend the file and save it; "
        "this note goes away by itself.\n"
    )

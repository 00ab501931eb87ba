"""What is wrong with a plan that passes the check: mistakes planners make, that would waste a run. Pure.

A hard finding would surely fail, or prove nothing, and must be put right. A soft one is told once, and may be meant.
Only what is still to be done is looked at; what is finished counts as being there.
"""

import re
from collections.abc import Callable, Collection, Iterator

from agentfs.core.plan_graph import PlanGraph
from agentfs.core.problems import Problem
from agentfs.core.records import CommandCheck, Plan
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.lint import (
    Linted,
    LintFinding,
    Surroundings,
    impossible_outputs,
    misplaced,
    overwritten,
    paths_into_outputs,
    placeholders,
)
from agentfs.planner.lint_texts import always_true, proves_nothing

_PRINTS = re.compile(r"print|stdout|write|subprocess|system|popen|exec|run\(|main\(", re.IGNORECASE)
_FINDS = frozenset(("read_file", "list_files", "search_files", "http_get", "web_search", "summarize", "ask"))


def lint(
    plan: Plan,
    finished: Collection[str],
    catalogue: Catalogue,
    around: Surroundings,
    *,
    stepwise: bool = False,
    check_stop: Callable[[], None] = lambda: None,
) -> list[LintFinding]:
    """Return every finding, in the order of the plan, which has passed the check. `finished`: not to be looked at.

    `stepwise`: the planner reads every result itself before it decides, so none goes unused.
    `check_stop` is called often, and raises to end it.
    """
    scheme = PlanGraph.of(plan)
    subject = Linted(scheme, tuple(step for step in scheme.listed if step not in finished), catalogue, around)
    rules = [
        _conditions,
        _tools,
        placeholders,
        paths_into_outputs,
        impossible_outputs,
        _silent,
        misplaced,
        overwritten,
    ]
    found: list[LintFinding] = []
    for rule in (*rules, *(() if stepwise else (_unused,))):
        check_stop()
        found += rule(subject)
    return sorted(found, key=lambda finding: int(finding.problem.pointer.split("/")[2]))


def _conditions(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step, pointer = subject.scheme.steps[name], subject.at(name, "/success_condition")
        words, rests_on_words = step.success_condition, step.tool is None and not step.checks
        fix = "say what is true of the files or the output when it succeeded, so that somebody could look"
        if not words or not words.strip():
            yield LintFinding(Problem(f"the step {name!r} has no success_condition", fix, pointer))
        elif proves_nothing(words):
            message = f"the success_condition {words!r} is true of any step: it proves nothing"
            yield LintFinding(Problem(message, fix, pointer), hard=rests_on_words)
        for place, check in enumerate(step.checks or ()):
            if isinstance(check, CommandCheck) and always_true(check.run):
                message = f"the check {check.run!r} always holds: it proves nothing"
                yield LintFinding(
                    Problem(message, "look at what the step made", subject.at(name, f"/checks/{place}/run"))
                )


def _tools(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step = subject.scheme.steps[name]
        if step.tool is None and step.tools is None:
            message = f"the step {name!r} has no tool, and names no 'tools' for the model that does it"
            fix = "name a tool, or list in 'tools' what the model may use ([] if it needs none)"
            yield LintFinding(Problem(message, fix, subject.at(name, "/tools")))


def _silent(subject: Linted) -> Iterator[LintFinding]:
    """A Python step gives what it prints: one that somebody refers to has to."""
    referred = {name for names in subject.scheme.refers.values() for name in names}
    for name in subject.new:
        step = subject.scheme.steps[name]
        code = (step.input or {}).get("code")
        if step.tool == "python" and name in referred and isinstance(code, str) and not _PRINTS.search(code):
            message = f"the code of {name!r} prints nothing, so its output is empty, and another step uses it"
            finding = Problem(message, "print what is wanted: print(…)", subject.at(name, "/input/code"))
            yield LintFinding(finding, hard="import" not in code)


def _unused(subject: Linted) -> Iterator[LintFinding]:
    """A step that only finds something out is of use to those who refer to it, or as the answer of the run."""
    referred = {name for names in subject.scheme.refers.values() for name in names}
    leaves = subject.scheme.leaves
    for name in subject.new:
        step = subject.scheme.steps[name]
        is_end = name in leaves and (name == leaves[-1] or bool(step.checks))  # the answer of the run, or a last look
        if step.tool not in _FINDS or name in referred or is_end or step.expects is not None:
            continue
        message = f"nobody uses the output of {name!r}: no later step refers to it"
        fix = f"write {{{{steps.{name}.output}}}} where it is needed, or leave the step out"
        yield LintFinding(Problem(message, fix, subject.at(name)), hard=False)

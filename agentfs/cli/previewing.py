"""`check --against RUN FILE`: what a plan would mean for a run, by its results and its tools. Reads only."""

import sys
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentfs.cli.check import as_json
from agentfs.cli.common import here, print_json, problem_lines_for, start_folder
from agentfs.cli.look import colours, print_lines
from agentfs.cli.reading import read_run
from agentfs.cli.revising import problems_of
from agentfs.core.continuation import with_plan
from agentfs.core.hashing import sha256_bytes
from agentfs.core.plan_changes import difference, effects
from agentfs.core.records import Plan
from agentfs.core.run_state import RunState
from agentfs.disk import read_whole
from agentfs.errors import UserError
from agentfs.views.diff import changed_lines, effect_lines, effect_words
from agentfs.views.words import inert


def check_against(arguments: Namespace) -> int:
    """Tell every problem, else what becomes of the run's steps; exit 2 if there is a problem."""
    workspace = here(arguments)
    run = read_run(workspace.find_run(arguments.against), workspace)
    if run.state is None or run.broken:
        raise UserError(f"{run.run} does not read: {inert(run.broken[0])}")
    if len(arguments.files) != 1:
        raise UserError("--against takes one FILE: the plan that might become that run's")
    name = arguments.files[0]
    source = _bytes(start_folder(arguments) / name, name)
    problems = problems_of(run.folder, workspace, source)
    if problems:
        if arguments.json:
            print_json({"run": run.run, "problems": [as_json(name, problem) for problem in problems]})
        else:
            print_lines(problem_lines_for(sys.stdout, name, problems, source))
        return 2
    page = _page(run.state, source)
    if arguments.json:
        print_json({"run": run.run, "problems": [], **page})
        return 0
    return print_lines(_lines(run.run, inert(name), page))


def _bytes(path: Path, name: str) -> bytes:
    try:
        return read_whole(path)
    except OSError as error:
        raise UserError(f"{inert(name)}: {error.strerror}") from None


def _page(state: RunState, source: bytes) -> dict[str, Any]:
    """Return how the plan differs from the last revision's, and what becomes of the steps once it is the next one."""
    plan = Plan.model_validate_json(source)
    facts = with_plan(replace(state.facts, outcome=None), plan, sha256_bytes(source))
    found = [asdict(one) for one in effects(facts, state.means, plan)]
    return {**asdict(difference(state.facts.plan, plan)), "effects": found, "means": effect_words(found)}


def _lines(run: str, name: str, page: dict[str, Any]) -> list[str]:
    return [
        f"{name}: ok as the plan of {run}",
        *changed_lines(page, colours=colours()),
        *effect_lines(page["effects"]),
    ]

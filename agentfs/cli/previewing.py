"""`check --against RUN FILE`: what a plan would mean for a run, by its results and its tools. Reads only."""

from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentfs.cli.common import here, print_json, start_folder
from agentfs.cli.editing import Opened, opened
from agentfs.cli.look import colours, print_lines, width
from agentfs.cli.make import as_json
from agentfs.cli.revising import problems_of
from agentfs.core.canonical import sha256_bytes
from agentfs.core.differences import difference, effects
from agentfs.core.records import Plan
from agentfs.core.reopening import with_plan
from agentfs.errors import UserError
from agentfs.views.diff import changed_lines, effect_lines, effect_words
from agentfs.views.words import inert


def check_against(arguments: Namespace) -> int:
    """Tell every problem, else what becomes of the run's steps; exit 2 if there is a problem."""
    workspace = here(arguments)
    run = opened(workspace, workspace.find_run(arguments.against))
    if len(arguments.files) != 1:
        raise UserError("--against takes one FILE: the plan that might become that run's")
    name = arguments.files[0]
    source = _bytes(start_folder(arguments) / name, name)
    problems = problems_of(run.folder, workspace, source)
    if problems:
        if arguments.json:
            print_json({"run": run.run, "problems": [as_json(name, problem) for problem in problems]})
        else:
            print_lines([problem.shown(name) for problem in problems])
        return 2
    page = _page(run, source)
    if arguments.json:
        print_json({"run": run.run, "problems": [], **page})
        return 0
    return print_lines(_lines(run, inert(name), page))


def _bytes(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{inert(name)}: {error.strerror}") from None


def _page(run: Opened, source: bytes) -> dict[str, Any]:
    """Return how the plan differs, and what becomes of the steps once it is the next revision."""
    plan = Plan.model_validate_json(source)
    facts = with_plan(replace(run.state.facts, outcome=None), plan, sha256_bytes(source))
    found = [asdict(one) for one in effects(facts, run.state.means, plan)]
    return {**asdict(difference(run.state.facts.plan, plan)), "effects": found, "means": effect_words(found)}


def _lines(run: Opened, name: str, page: dict[str, Any]) -> list[str]:
    return [
        f"{name}: ok as the plan of {run.run}",
        *changed_lines(page, width(), colours=colours()),
        *effect_lines(page["effects"], width()),
    ]

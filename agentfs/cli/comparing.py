"""`compare`: two runs side by side. Reads only."""

from argparse import Namespace

from agentfs.cli.common import here
from agentfs.cli.cost import conversations
from agentfs.cli.look import colours, print_lines, width
from agentfs.cli.reading import read_run
from agentfs.core.costs import Costs, compared, costs_of
from agentfs.core.run_state import RunState
from agentfs.errors import UserError
from agentfs.views.compare import compare_lines
from agentfs.views.words import inert, json_text
from agentfs.workspace import Workspace


def compare(arguments: Namespace) -> int:
    """`agentfs compare RUN RUN`"""
    workspace = here(arguments)
    page = compared(_read(workspace, arguments.run), _read(workspace, arguments.other))
    if arguments.json:
        return print_lines([json_text(page)])
    return print_lines(compare_lines(page, width(), colours=colours()))


def _read(workspace: Workspace, name: str) -> tuple[RunState, Costs]:
    folder = workspace.find_run(name)
    found = read_run(folder, workspace)
    if found.state is None:
        raise UserError(f"{found.run} does not read: {inert(found.broken[0])}")
    return found.state, costs_of(conversations(folder))

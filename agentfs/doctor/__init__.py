"""Examine a machine and a workspace, and say how to fix what is found. Reads; starts nothing that was planted.

    machine.py           git, bubblewrap, what the kernel allows, what a file system can do
    workspace_check.py   agentfs.toml, trust, schemas, user tools (by source), rejected goals, open runs, the ledger
    outside.py           models, coding agents, MCP servers and places that the settings name: can they be reached?

Each is a function from what it examines to findings. What a workspace holds is only read: no tool is imported, no
hook, filter or program of its settings runs, and no endpoint that an untrusted workspace names gets a key.
"""

from collections.abc import Iterator, Mapping

from agentfs.core.problems import Finding
from agentfs.storage.system import missing
from agentfs.storage.workspace import Workspace, is_trusted
from agentfs.ui.reading import settings_of


def examine(workspace: Workspace | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found, the machine first; without a workspace, the machine alone."""
    from agentfs.core.config import Settings
    from agentfs.doctor import machine, outside, workspace_check

    settings, trouble = settings_of(workspace) if workspace else (Settings(), None)
    yield from machine.examine(settings)
    if workspace is None:
        return
    trusted = is_trusted(workspace.root, environment)
    yield from workspace_check.examine(workspace, environment, settings, trouble, trusted=trusted)
    yield from outside.examine_models(settings, environment, trusted=trusted)
    yield from outside.examine_places(settings, workspace.root, environment, trusted=trusted)
    yield from outside.examine_agents(settings, environment) if trusted else ()
    yield from outside.examine_servers(settings, workspace.root, environment)
    drivable = not missing()
    if drivable:
        yield from machine.examine_disks(workspace)
    yield from workspace_check.examine_ledger(workspace)
    if drivable:
        yield from workspace_check.examine_runs(workspace)

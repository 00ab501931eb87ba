"""Examine a machine and a workspace, and say how to mend what is found. Reads; starts nothing that was planted.

    machine.py     git, bubblewrap, what the kernel allows: watches, open files
    disks.py       what a file system can do, tried in a folder of its own that is removed again
    settings.py    agentfs.toml, trust, schemas, a person's own tools (read by their source), goals that were rejected
    endpoints.py   whether models can be reached: by listing them, which costs nothing
    ledger.py      the repository in runs/: whole, on its branch, without stale locks
    runs.py        attempts that claim to run with nobody driving them, folders that were left half made

Each is a function from what it examines to findings. What a workspace holds is only read: no tool is imported, no
hook, filter or program of its settings runs, and no endpoint that a workspace nobody trusts has named is told a key.
"""

from collections.abc import Iterator, Mapping

from agentfs.core.problems import Finding
from agentfs.system import missing
from agentfs.workspace import Workspace, is_trusted


def examine(workspace: Workspace | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found, the machine first; without a workspace, the machine alone."""
    from agentfs.doctor import disks, endpoints, ledger, machine, runs
    from agentfs.doctor import settings as examining

    settings = examining.settings_of(workspace, environment)
    yield from machine.examine(settings)
    if workspace is None:
        return
    trusted = is_trusted(workspace.root, environment)
    yield from examining.examine(workspace, environment, settings, trusted=trusted)
    yield from endpoints.examine(settings, environment, trusted=trusted)
    drivable = not missing()
    if drivable:
        yield from disks.examine(workspace)
    yield from ledger.examine(workspace)
    if drivable:
        yield from runs.examine(workspace)

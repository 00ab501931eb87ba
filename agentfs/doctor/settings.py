"""What a workspace is set up with: settings, trust, schemas, a person's own tools, goals that were turned away."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentfs.core.config import Settings
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.disk import read_whole
from agentfs.errors import AgentfsError
from agentfs.settings import load_settings
from agentfs.views.words import counted, first_line, inert
from agentfs.workspace import Workspace

REJECTED = "rejected"


def settings_of(workspace: Workspace | None, environment: Mapping[str, str]) -> Settings:
    """Return the settings; the defaults where they do not read, which `examine` tells."""
    try:
        return load_settings(workspace.settings, environment) if workspace else Settings()
    except AgentfsError:
        return Settings()


def examine(
    workspace: Workspace, environment: Mapping[str, str], settings: Settings, *, trusted: bool
) -> Iterator[Finding]:
    """Yield what is found in a workspace."""
    yield from _settings(workspace, environment)
    yield from _links(workspace, settings)
    yield _trust(workspace, trusted=trusted)
    yield _schemas(workspace.root / "schemas")
    yield from _tools(workspace.root, settings)
    yield from _rejected(workspace.root / "goals")


def _settings(workspace: Workspace, environment: Mapping[str, str]) -> Iterator[Finding]:
    try:
        load_settings(workspace.settings, environment)
    except AgentfsError as error:
        lines = str(error).splitlines()
        for line in lines:
            yield wrong("settings", inert(line), "fix it; what follows assumes the defaults")
        return
    yield fine("settings", f"{workspace.settings} reads")


def _links(workspace: Workspace, settings: Settings) -> Iterator[Finding]:
    """Yield the folders of the settings that are links which a step may have made, and are not followed."""
    from agentfs.tools.sandbox import readable_path

    named = [
        *(("[goals] workdirs", name) for name in settings.goals.workdirs),
        *(("[tools] read", name) for name in settings.tools.read),
    ]
    for key, name in named:
        path = os.path.join(workspace.root, name)
        if (real := os.path.realpath(path)) != readable_path(path):
            words = f"{inert(name)} of {key} is a link, to {inert(real)}, and is not followed"
            yield wrong("settings", words, "put the folder back, or name the other in agentfs.toml if it is meant")


def _trust(workspace: Workspace, *, trusted: bool) -> Finding:
    if trusted:
        return fine("trust", "you made, or trust, this workspace")
    words = "you did not make this workspace: `run` and `watch` refuse, and no endpoint it names is asked here"
    return remark("trust", words, f"look at its agentfs.toml and tools/, then: agentfs trust {workspace.root}")


def _schemas(folder: Path) -> Finding:
    """Whether editors are shown the rules this program goes by."""
    from agentfs.core.json_schema import all_schemas

    wanted = all_schemas()
    other = [name for name, content in wanted.items() if _content(folder / name) != content]
    if not other:
        return fine("schemas", f"{len(wanted)} in schemas/, as this version writes them")
    missing = [name for name in other if not (folder / name).exists()]
    words = f"{len(missing)} are missing, {len(other) - len(missing)} are of another version or edited"
    return wrong("schemas", f"schemas/: {words} ({', '.join(other[:3])}{' …' if len(other) > 3 else ''})", _INIT)


_INIT = "run `agentfs init` in the workspace: it writes them anew and touches nothing else that is there"


def _content(path: Path) -> bytes | None:
    try:
        return read_whole(path)
    except OSError:
        return None


def _tools(root: Path, settings: Settings) -> Iterator[Finding]:
    """Yield what is found of a person's own tools, by their source: nothing of theirs is run."""
    from agentfs.tools.registry import known_tools

    known = known_tools(root)
    for words in known.broken:
        yield wrong("tools", inert(words), "fix it; runs refuse plans that need such a tool")
    unknown = sorted(set(settings.tools.allow) - set(known.specs))
    for name in unknown:
        yield wrong(
            "tools", f"[tools] allow names {inert(name)!r}, and there is no such tool", "`agentfs tools` lists them"
        )
    if not known.broken and not unknown:
        own = (
            f"{counted(len(known.own), 'tool')} of your own, read by source"
            if known.own
            else "those that come with agentfs"
        )
        yield fine("tools", own)


def _rejected(goals: Path) -> Iterator[Finding]:
    """Say of goals that were turned away: nothing else would, once the daemon's words have scrolled away."""
    try:
        left = sorted(name for name in os.listdir(goals / REJECTED) if not name.endswith(".error.md"))
    except OSError:
        return
    if left:
        words = (
            f"{counted(len(left), 'goal')} could not be taken ({first_line(left[0])}{' …' if len(left) > 1 else ''})"
        )
        yield remark("goals/", words, "the reason is in goals/rejected/NAME.error.md: fix the goal, move it back")

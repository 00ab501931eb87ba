"""A workspace: settings, trust, schemas, user tools, rejected goals; runs that have not ended."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.records import Run
from agentfs.core.text import counted, first_line, inert
from agentfs.errors import AgentfsError
from agentfs.executor.log import marks_in
from agentfs.storage.files import read_whole
from agentfs.storage.locks import held_inodes, is_driven
from agentfs.storage.run_folders import open_runs
from agentfs.storage.safe_open import names_in, subfolders
from agentfs.storage.settings import load_settings
from agentfs.storage.workspace import Workspace
from agentfs.tools.process import ProcessMark, find_survivors

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


_INIT = "run `agentfs init` in the workspace: it writes them again and touches nothing else that is there"


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


# ── runs that have not ended ──────────────────────────────────────────────────────────────────────────────


TOLD = 20  # runs that are told one by one


def examine_runs(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found of the runs that are open, and of what is no run."""
    held = held_inodes()
    found = list(open_runs(workspace.runs))
    driven = sum(is_driven(folder, held) for folder in found)
    yield fine("runs", f"{counted(len(found), 'open run')}, {driven} of them driven now")
    told = [one for folder in found for one in _examine_one(folder, driven=is_driven(folder, held))]
    yield from told[:TOLD]
    if len(told) > TOLD:
        yield remark("runs", f"and {len(told) - TOLD} more of the same kind")
    yield from _half_made(workspace)


def _examine_one(folder: Path, *, driven: bool) -> Iterator[Finding]:
    run = f"{folder.parent.name}/{folder.name}"
    yield from _format(folder, run)
    if driven:
        return
    claimed = _unsettled(folder / paths.STEPS)
    if not claimed:
        return
    left = sorted({pid for log in claimed for mark in _marks(log) for pid in find_survivors(mark)})
    fix = f"agentfs resume {run} (or `agentfs watch`) ends what is left, and records them as interrupted"
    words = f"{run}: {counted(len(claimed), 'attempt')} claim to run, but no process drives it"
    if left:
        yield wrong("runs", f"{words}; still running: {', '.join(map(str, left))}", fix)
    else:
        yield remark("runs", words, fix)


def _format(folder: Path, run: str) -> Iterator[Finding]:
    """Say of a run.json that this version cannot read."""
    try:
        Run.model_validate_json(read_whole(folder / paths.RUN))
    except (OSError, ValueError) as error:
        first = inert(str(error).replace("\n", " "))[:200]
        fix = f"restore it: git -C runs checkout main -- {run}/run.json; or use the agentfs that wrote it"
        yield wrong("runs", f"{run}/run.json cannot be read: {first}", fix)


def _unsettled(steps: Path) -> list[Path]:
    """Return the logs of attempts without a result, but for those that wait for a person's answer."""
    try:
        attempts = paths.by_attempt(names_in(steps))
    except OSError:
        return []
    open_ones = []
    for (step, number), traces in attempts.items():
        kinds = [kind for kind, _ in traces]
        asks = kinds.count("question") > kinds.count("reply")
        if "log" in kinds and "result" not in kinds and not asks:
            open_ones.append(steps / paths.step_file(step, number, "log"))
    return open_ones


def _marks(log: Path) -> Iterator[ProcessMark]:
    try:
        yield from marks_in(log)
    except OSError:
        return


def _half_made(workspace: Workspace) -> Iterator[Finding]:
    """Say of folders in which no run has begun, and of runs that have yet to be deleted."""
    folders = [run for day in subfolders(str(workspace.runs)) for run in subfolders(day)]
    empty = [run for run in folders if not os.path.lexists(f"{run}/{paths.RUN}") and _is_run(run)]
    if empty:
        words = f"{counted(len(empty), 'folder')} without a run.json ({'/'.join(empty[0].rsplit('/', 2)[1:])})"
        fix = "a goal of that name takes such a folder; if none is on its way, delete it"
        yield remark("runs", words, fix)
    if any(subfolders(f"{workspace.runs}/{paths.FORGOTTEN}")):
        words = "runs that were forgotten are not deleted yet"
        yield remark("runs", words, "the next `agentfs run`, `watch` or `forget` finishes that")


def _is_run(folder: str) -> bool:
    return paths.is_run_id("/".join(folder.rsplit("/", 2)[1:]))

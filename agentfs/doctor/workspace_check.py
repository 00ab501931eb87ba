"""A workspace: settings, trust, schemas, user tools, rejected goals; runs that have not ended; its ledger."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.problems import Finding, Problem, fine, remark, wrong
from agentfs.core.records import Run
from agentfs.core.text import first_line, inert, plural
from agentfs.core.tool_spec import split_name
from agentfs.engine.goal_source import GoalSource
from agentfs.engine.intake import judge_goal
from agentfs.engine.means import allowing_own, catalogue_of, has_model
from agentfs.errors import AgentfsError, BadFile, NoModel
from agentfs.executor.attempt_log import marks_in
from agentfs.ledger import Ledger
from agentfs.ledger.branch import UNDERWAY, Claims
from agentfs.ledger.git import BRANCH, LedgerError
from agentfs.ledger.maintenance import Maintenance
from agentfs.ledger.repository import find_damage, find_substitutes
from agentfs.storage.files import read_whole
from agentfs.storage.locks import held_inodes, is_driven
from agentfs.storage.safe_open import names_in, read_text, subfolders
from agentfs.storage.timing import TIMING
from agentfs.storage.workspace import Workspace, load_settings, open_runs
from agentfs.tools.process import ProcessMark, find_survivors
from agentfs.tools.registry import known_tools

REJECTED = "rejected"


def settings_of(workspace: Workspace | None, environment: Mapping[str, str]) -> Settings:
    """Return the settings; the defaults where they do not read, which `examine` reports."""
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
    yield from _find_rejected(workspace.root / "goals")
    yield from _schedules(workspace, environment, settings)


def _settings(workspace: Workspace, environment: Mapping[str, str]) -> Iterator[Finding]:
    try:
        load_settings(workspace.settings, environment)
    except AgentfsError as error:
        lines = str(error).splitlines()
        for line in lines:
            yield wrong("settings", inert(line), "fix it; what follows assumes the defaults")
        return
    yield fine("settings", f"{workspace.settings} is valid")


def _schedules(workspace: Workspace, environment: Mapping[str, str], settings: Settings) -> Iterator[Finding]:
    """Yield which files in schedules/ would not be begun when they are due."""
    from agentfs.daemon.schedules import read_file, schedule_names

    names = schedule_names(workspace.root)
    found = []
    for name in names:
        try:
            file = read_file(workspace.root, name)
        except OSError as error:
            found.append(wrong("schedules", f"{inert(name)} cannot be read: {error.strerror}", "put the goal there"))
            continue
        problems = file.problems or _goal_problems(file.source(file.changed), workspace, environment, settings)
        found += [wrong("schedules", inert(one.shown(file.shown)), "fix it; it is not begun so") for one in problems]
    yield from found
    if names and not found:
        yield fine("schedules", f"{plural(len(names), 'schedule')}, `agentfs schedule` says when")


def _goal_problems(
    source: GoalSource, workspace: Workspace, environment: Mapping[str, str], settings: Settings
) -> Sequence[Problem]:
    known = known_tools(workspace.root)
    settings = allowing_own(settings, known)
    try:
        planner, catalogue = has_model(settings.planner, environment), catalogue_of(settings, environment, known)
        judge_goal(source, workspace.root, settings, catalogue, planner=planner)
    except BadFile as error:
        return error.problems
    except NoModel as error:
        return (error.problem,)
    except AgentfsError as error:
        return (Problem(str(error), ""),)
    return ()


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
        return fine("schemas", f"{len(wanted)} in schemas/, up to date")
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
    known = known_tools(root)
    for words in known.broken:
        yield wrong("tools", inert(words), "fix it; runs refuse plans that need such a tool")
    unknown = sorted(set(settings.tools.allow) - set(known.specs))
    for name in unknown:
        yield wrong(
            "tools", f"[tools] allow names {inert(name)!r}, and there is no such tool", "`agentfs tools` lists them"
        )
    if not known.broken and not unknown:
        from_servers = sum(split_name(name) is not None for name in known.own)
        own = len(known.own) - from_servers
        parts = [
            "the built-in tools",
            *([f"{plural(own, 'tool')} of your own, read by source"] if own else ()),
            *([f"{plural(from_servers, 'tool')} of MCP servers, as you approved them"] if from_servers else ()),
        ]
        yield fine("tools", "; ".join(parts))


def _find_rejected(goals: Path) -> Iterator[Finding]:
    """Say of goals that were turned away: nothing else would, once the daemon's words have scrolled away."""
    try:
        left = sorted(name for name in os.listdir(goals / REJECTED) if not name.endswith(".error.md"))
    except OSError:
        return
    if left:
        words = (
            f"{plural(len(left), 'goal')} could not be taken ({first_line(left[0])}{' …' if len(left) > 1 else ''})"
        )
        yield remark("goals/", words, "the reason is in goals/rejected/NAME.error.md: fix the goal, move it back")


# ── runs that have not ended ──────────────────────────────────────────────────────────────────────────────


MOST_LISTED = 20  # runs that are listed one by one


def examine_runs(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found of the runs that are open, and of what is no run."""
    held = held_inodes()
    found = list(open_runs(workspace.runs))
    driven = sum(is_driven(folder, held) for folder in found)
    yield fine("runs", f"{plural(len(found), 'open run')}, {driven} of them driven now")
    findings = [one for folder in found for one in _examine_one(folder, driven=is_driven(folder, held))]
    yield from findings[:MOST_LISTED]
    if len(findings) > MOST_LISTED:
        yield remark("runs", f"and {len(findings) - MOST_LISTED} more of the same kind")
    yield from _find_half_made(workspace)


def _examine_one(folder: Path, *, driven: bool) -> Iterator[Finding]:
    run = paths.run_id(folder)
    yield from _format(folder, run)
    if driven:
        return
    claimed = _find_unfinished(folder / paths.STEPS)
    if not claimed:
        return
    left = sorted({pid for log in claimed for mark in _marks(log) for pid in find_survivors(mark)})
    fix = f"agentfs resume {run} (or `agentfs watch`) ends what is left, and records them as interrupted"
    words = f"{run}: {plural(len(claimed), 'attempt')} claimed, but no process drives it"
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


def _find_unfinished(steps: Path) -> list[Path]:
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


def _find_half_made(workspace: Workspace) -> Iterator[Finding]:
    """Say of folders in which no run has begun, and of runs that have yet to be deleted."""
    folders = [run for day in subfolders(str(workspace.runs)) for run in subfolders(day)]
    empty = [
        run for run in folders if not os.path.lexists(f"{run}/{paths.RUN}") and paths.is_run_id(paths.run_id(run))
    ]
    if empty:
        words = f"{plural(len(empty), 'folder')} without a run.json ({paths.run_id(empty[0])})"
        fix = "a goal of that name takes such a folder; if none is on its way, delete it"
        yield remark("runs", words, fix)
    if any(subfolders(f"{workspace.runs}/{paths.FORGOTTEN}")):
        words = "runs that were forgotten are not deleted yet"
        yield remark("runs", words, "the next `agentfs run`, `watch` or `forget` finishes that")


# ── the repository in runs/: whole, on its branch, without locks that no process holds any more ───────────


_LEDGER = "ledger"
_COPY = "take runs/.git from a copy, or move it away and run `agentfs init`: the runs' files are not touched"


def examine_ledger(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is found in runs/.git."""
    ledger = Ledger(workspace.runs)
    if words := ledger.trouble():
        yield wrong(_LEDGER, inert(words), _COPY)
        return
    yield from _find_faults(workspace.runs)
    claims = Claims(workspace.runs / ".git")
    yield from _find_locks(claims)
    if dead := claims.dead():
        words = f"{plural(len(dead), 'claim')} of processes that are gone"
        yield remark(_LEDGER, words, "the next commit clears them away")
    yield from _find_other_branch(workspace.runs / ".git")
    if Maintenance(workspace.runs).due():
        words = "many loose objects or packs: `git log` is slower than it could be"
        yield remark(_LEDGER, words, "`agentfs watch` packs them when it is idle, or: git -C runs gc")


def _find_faults(runs: Path) -> Iterator[Finding]:
    for path, does in find_substitutes(runs):
        yield wrong(_LEDGER, f"{path} {does}", "delete it, unless you put it there and know why")
    try:
        lines = find_damage(runs, TIMING.fsck)
    except LedgerError as why:
        yield remark(_LEDGER, f"not looked through: {why}", "`agentfs verify` takes the time it needs; it wants git")
        return
    for line in lines:
        yield wrong(_LEDGER, f"git fsck: {inert(line)}", _COPY)
    if not lines:
        yield fine(_LEDGER, "git fsck finds no damage")


def _find_locks(claims: Claims) -> Iterator[Finding]:
    """Report what a person has under way: agentfs waits for it, and never removes it."""
    git = claims.git
    locks = {name for name in os.listdir(git) if name.endswith(".lock")} | {f"{BRANCH}.lock"}
    for name in sorted(locks | set(UNDERWAY)):
        seen = _identity(git / name)
        if (
            seen and not claims.holds(git / name) and _identity(git / name) == seen
        ):  # else it has come or gone meanwhile
            words = f"{git / name} exists: commits to the branch, or the index, wait for it"
            yield remark(
                _LEDGER, words, "finish what you have begun in runs/; if no git command is running, delete it"
            )


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file from another that takes its name; None where there is none."""
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_ctime_ns


def _find_other_branch(git: Path) -> Iterator[Finding]:
    head = read_text(git / "HEAD").strip()
    if head != f"ref: {BRANCH}":
        words = f"HEAD is not on main ({inert(head)[:60]}): commits go to main all the same"
        yield remark(_LEDGER, words, "git -C runs checkout main shows them in runs/'s index again")

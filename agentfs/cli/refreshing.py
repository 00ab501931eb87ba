"""Today's [tools] for a run that began with others: an edit of `tools` in its plan.json, which only a person makes.

run.json stays as it was written. The edit is a revision like any other: it has an author, says what changed, is
committed, merged, compared and restored; a kill leaves the old plan.json or the new one.
"""

import json
from dataclasses import replace
from typing import Any

from agentfs.cli.common import environment, say
from agentfs.cli.editing import TRIES, Opened, exchanged, opened
from agentfs.cli.revising import problems_of
from agentfs.core import paths
from agentfs.core.config import allowed_tools
from agentfs.core.goal_file import parse_goal
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.problems import Rejected
from agentfs.core.records import Run, Tools
from agentfs.disk import read_whole
from agentfs.errors import BadFile, UserError
from agentfs.means import allowing_own, catalogue_of
from agentfs.settings import load_settings
from agentfs.tools.registry import known_tools
from agentfs.views.words import inert
from agentfs.workspace import goal_path


def refresh_tools(run: Opened) -> Opened:
    """Lay today's [tools] over those a run has; return the run as it is then."""
    today = tools_of_today(run)
    if not _put(run, _overrides(run.state.facts.run, today)):
        say(f"[tools] in agentfs.toml is what {run.run} has already")
        return run
    for words in changed_tools(run.state.facts.settings, run.state.facts.run.with_tools(today)):
        say(f"{run.shown(paths.PLAN)}: {words}")
    return replace(opened(run.workspace, run.folder, run.revision), real=run.real)


def changed_tools(before: Run, now: Run) -> list[str]:
    """Return, in words, what the tools of a run may do now and might not before, or the other way round."""
    was = _as_table(before)
    changed = [(name, value) for name, value in _as_table(now).items() if value != was[name]]
    return [f'"{name}" of "tools" is now {_shown(value)} (it was {_shown(was[name])})' for name, value in changed]


def tools_of_today(run: Opened) -> Tools:
    """Return what the settings give the tools of a run now; its goal may still only tighten that."""
    known = known_tools(run.workspace.root)
    settings = allowing_own(load_settings(run.workspace.settings, environment()), known)
    goal, tools = goal_path(run.folder), settings.tools
    source = read_whole(goal)
    try:
        parsed = parse_goal(source, goal.name, catalogue_of(settings, environment(), known), planned=True)
    except Rejected as rejected:
        raise BadFile(run.shown(goal.name), rejected.problems, source) from None
    return Tools(
        allow=allowed_tools(tools, parsed.fields.tools),
        network=tools.network,
        sandbox=tools.sandbox,
        read=tools.read,
        env=tools.env,
        hosts=tools.hosts,
    )


def _overrides(began: Run, today: Tools) -> dict[str, Any]:
    """Return what a plan has to say so that a run has today's: no more than what differs from what it began with."""
    table = _as_table(began)
    return {name: value for name, value in today.model_dump(mode="json").items() if value != _plain(table[name])}


def _as_table(run: Run) -> dict[str, object]:
    return {"allow" if name == "tools" else name: getattr(run, name) for name in _FIELDS}


_FIELDS = ("tools", "network", "sandbox", "read", "env", "hosts")  # of run.json, in the order of [tools]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return inert(json.dumps(_plain(value), ensure_ascii=False))


def _put(run: Opened, own: dict[str, Any]) -> bool:
    """Set `tools` in plan.json, or remove it; return whether that changes anything. What comes out must be valid."""
    path = run.folder / paths.PLAN
    for _ in range(TRIES):
        if not path.is_file() or path.is_symlink():
            raise UserError(f"{run.run} has no plan yet, so there is nowhere to change its settings: begin it again")
        source = read_whole(path)
        new = _edited(source, own)
        if problems := problems_of(run.folder, run.workspace, new):
            raise BadFile(run.shown(paths.PLAN), problems, new)
        if new == source:
            return False
        if exchanged(run, new, source):
            return True
    raise UserError(f"{run.shown(paths.PLAN)} keeps changing: try again when nobody else writes it")


def _edited(source: bytes, own: dict[str, Any]) -> bytes:
    """Return a plan with these tools; as it is where it is no JSON, which is said when it is judged."""
    try:
        present = json.loads(source).get("tools")
        if own:
            return source if present == own else set_value(source, "/tools", own)
        return source if present is None else remove_value(source, "/tools")
    except (ValueError, AttributeError, RecursionError, Rejected):
        return source

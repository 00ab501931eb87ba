"""`restore`: an earlier revision's plan becomes the next one. History is never rewritten, and no edit is lost."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from agentfs.cli.common import say
from agentfs.cli.editing import TRIES, Opened, changes_a_run, exchanged, opened, reopen
from agentfs.cli.revising import judged, revision_bytes
from agentfs.core import paths
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import set_value
from agentfs.core.plan_changes import difference, effects
from agentfs.core.records import Plan
from agentfs.disk import read_whole
from agentfs.errors import UserError
from agentfs.leftovers import keep_beside
from agentfs.views.diff import changed_lines, effect_lines


@changes_a_run
def restore(run: Opened, _: Namespace) -> None:
    """`agentfs restore RUN@REV`"""
    if run.revision is None:
        raise UserError(f"which revision? agentfs restore {run.run}@N (`agentfs log {run.run}` lists them)")
    source = revision_bytes(run.folder, run.run, run.revision)
    new = _with_status(run, source)
    plan = judged(run.folder, run.workspace, new, f"revision {run.revision}")
    if not _put(run, new):
        say(f"{run.shown(paths.PLAN)} is as it was in revision {run.revision} already")
        return
    say(f"{run.shown(paths.PLAN)}: restored as it was in revision {run.revision}")
    _tell_difference(run, plan)
    reopen(run)


def _with_status(run: Opened, source: bytes) -> bytes:
    """Return what to restore: steps and limits as they were. The switch stays as it is, unless it is off for good."""
    present = run.state.facts.plan
    if present is None or present.status == "cancelled":
        return source
    return source if _status(source) == present.status else set_value(source, "/status", present.status)


def _status(source: bytes) -> str:
    return Plan.model_validate_json(source).status


def _put(run: Opened, new: bytes) -> bool:
    """Exchange plan.json; return whether it changed. What stood there and is in no revision is kept beside it."""
    path = run.folder / paths.PLAN
    for _ in range(TRIES):
        present = read_whole(path) if path.is_file() and not path.is_symlink() else None
        if present == new:
            return False
        kept = _kept(run, present)
        if exchanged(run, new, present):
            if kept:
                say(f"{run.shown(kept.name)}: what stood in plan.json, and in no revision")
            return True
        if kept:
            kept.unlink()
    raise UserError(f"{run.shown(paths.PLAN)} keeps changing: try again when nobody else writes it")


def _kept(run: Opened, present: bytes | None) -> Path | None:
    """Keep a plan.json that nobody has recorded yet, before anything takes its place."""
    recorded = (run.folder / paths.REVISIONS).glob("*.plan.json")
    if present is None or sha256_bytes(present) in {sha256_bytes(read_whole(path)) for path in recorded}:
        return None
    return keep_beside(run.folder, present)


def _tell_difference(run: Opened, plan: Plan) -> None:
    """Say what changed by meaning, and what that does to work already done."""
    say("\n".join(changed_lines(asdict(difference(run.state.facts.plan, plan)), colours=False)))
    if run.real is None:
        after = opened(run.workspace, run.folder).state
        say("\n".join(effect_lines([asdict(one) for one in effects(after.facts, after.means, plan)])))

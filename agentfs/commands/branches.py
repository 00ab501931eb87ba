"""`changes`, `apply`, `discard`: what an isolated run changed, taken over or thrown away."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentfs.commands import CannotPrint
from agentfs.commands.common import colours, here, print_json, print_lines, say
from agentfs.core import paths
from agentfs.core.records import Isolation, Outcome
from agentfs.core.text import GREEN, RED, block, paint, plural
from agentfs.engine.means import run_record
from agentfs.errors import UserError
from agentfs.ledger import LedgerError
from agentfs.ledger.worktrees import Worktree, merge, worktree_of
from agentfs.storage.files import read_whole
from agentfs.storage.locks import is_driven

_COLOURS = {"+": GREEN, "-": RED}


def _worktree(arguments: Namespace) -> tuple[Path, Isolation, Worktree]:
    folder = here(arguments).find_run(arguments.run)
    isolation = run_record(folder).isolation
    if isolation is None:
        run = paths.run_id(folder)
        raise UserError(f"{run} has no branch of its own: its goal does not say `isolate: worktree`")
    try:
        return folder, isolation, worktree_of(folder, isolation.repository, isolation.branch)
    except LedgerError as error:
        raise UserError(str(error)) from None


def _tip(worktree: Worktree) -> str:
    """Return the last commit of a branch that has to be there."""
    tip = worktree.repository.tip(worktree.branch)
    if tip is None:
        raise UserError(f"the branch {worktree.branch} is gone: it was discarded, or merged and deleted")
    return tip


def changes(arguments: Namespace) -> int:
    """`agentfs changes RUN [STEP]`"""
    _, isolation, worktree = _worktree(arguments)
    tip = _tip(worktree)
    listed = [one for one in commits(worktree, isolation.base, tip) if arguments.step in (None, one["step"])]
    if arguments.step and not listed:
        raise UserError(f"{arguments.step} has changed nothing so far")
    if arguments.json:
        patched = [{**one, "patch": _patch(worktree, one).decode("utf-8", "replace")} for one in listed]
        return print_json({"branch": isolation.branch, "base": isolation.base, "commits": patched})
    say(f"branch {isolation.branch}, from {isolation.base[:12]} in {isolation.repository}")
    lines = [f"{one['commit'][:12]}  {one['subject']}  ({one['author']})" for one in listed]
    print_lines([*lines, ""] if lines else ["nothing has changed so far"])
    if listed:
        _print_patch(_patch(worktree, listed[-1]) if arguments.step else worktree.patch(isolation.base, tip))
    return 0


def _patch(worktree: Worktree, commit: dict[str, Any]) -> bytes:
    return worktree.patch(f"{commit['commit']}^", commit["commit"])


def _print_patch(patch: bytes) -> None:
    """Print a patch: to a terminal in colours and with nothing that it obeys, elsewhere byte for byte."""
    if sys.stdout.isatty():
        lines, painting = block(patch.decode("utf-8", "replace")), colours()
        print_lines(paint(line, _COLOURS.get(line[:1]), colours=painting) for line in lines)
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise CannotPrint(error) from None


def commits(worktree: Worktree, base: str, tip: str) -> Iterator[dict[str, Any]]:
    """Yield what is on a branch since its base, oldest first."""
    form = "%H%x00%an%x00%s%x00%(trailers:key=Agentfs-Step,valueonly,separator=%x2C)%x00%aI"
    output = worktree.repository.run("log", "--reverse", f"--format={form}", f"{base}..{tip}")
    for line in filter(None, output.split("\n")):
        commit, author, subject, step, at = line.split("\0")
        yield {"commit": commit, "author": author, "subject": subject, "step": step or None, "at": at}


def apply(arguments: Namespace) -> int:
    """`agentfs apply RUN`"""
    folder, isolation, worktree = _worktree(arguments)
    if is_driven(folder):
        raise UserError(
            f"{arguments.run} is being driven: wait until it has ended, or `agentfs cancel {arguments.run}`"
        )
    new = len([*commits(worktree, isolation.base, _tip(worktree))])
    if not new:
        raise UserError(f"nothing was merged: {arguments.run} has changed nothing")
    try:
        commit = merge(worktree.repository, isolation.branch, squash=arguments.squash)
    except LedgerError as error:
        raise UserError(f"nothing was merged: {error}") from None
    how = " as one" if arguments.squash and new > 1 else ""
    say(f"merged {plural(new, 'commit')}{how} into {isolation.repository}: {commit[:12]}")
    if not _is_done(folder):
        say(f"the run has not ended done: that is what its steps did so far (agentfs show {arguments.run})")
    say(f"no longer needed? agentfs discard {arguments.run}")
    return 0


def _is_done(folder: Path) -> bool:
    try:
        return Outcome.model_validate_json(read_whole(folder / paths.OUTCOME)).status == "done"
    except (OSError, ValueError):
        return False


def discard(arguments: Namespace) -> int:
    """`agentfs discard RUN`"""
    folder, isolation, worktree = _worktree(arguments)
    if is_driven(folder):
        raise UserError(f"{arguments.run} is being driven: `agentfs cancel {arguments.run}` first")
    tip = worktree.repository.tip(isolation.branch)
    try:
        removed = worktree.remove()
    except LedgerError as error:
        raise UserError(str(error)) from None
    if not removed:
        say(f"there is nothing to discard: the branch {isolation.branch} and its worktree are gone already")
        return 0
    say(f"removed the branch {isolation.branch} and its worktree; the run's records stay")
    if tip and tip != isolation.base:
        say(f"to have it back: git -C {isolation.repository} branch {isolation.branch} {tip[:12]}")
    return 0

"""The command that drives everything: watch."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from agentfs.cli.common import environment, here, must_be_trusted
from agentfs.cli.drive import on_signals
from agentfs.clock import Clock
from agentfs.core.config import Settings
from agentfs.daemon.daemon import Daemon
from agentfs.daemon.inbox import Inbox
from agentfs.driving import Stop
from agentfs.means import allowing_own, catalogue_of, has_model
from agentfs.settings import load_settings
from agentfs.views.screen import can_draw
from agentfs.views.watching import Teller
from agentfs.workspace import Workspace
from agentfs.world import known_to, open_world

STOPPED = 130


def watch(arguments: Namespace) -> int:
    """`agentfs watch`: until a person, or the system, asks it to stop."""
    workspace = here(arguments)
    must_be_trusted(workspace)
    settings = load_settings(workspace.settings, environment())
    stop = Stop()
    with ExitStack() as stack:
        teller = stack.enter_context(_teller(workspace, settings, in_json=arguments.json))
        on_signals(stack, stop)
        world = stack.enter_context(open_world(workspace, settings, environment(), teller.note, stop.wake.set))
        known = known_to(world)
        settings = allowing_own(settings, known)
        planner = has_model(settings.planner, environment())
        inbox = Inbox(workspace, settings, catalogue_of(settings, environment(), known), planner)
        Daemon(workspace, settings, world, inbox, stop, teller).run(poll=arguments.poll)
    teller.tell("stopped", "stopped; `agentfs watch` goes on from here")
    return STOPPED


@contextmanager
def _teller(workspace: Workspace, settings: Settings, *, in_json: bool) -> Iterator[Teller]:
    """Yield who is told what happens: JSON on stdout; else a live view on a terminal, and lines anywhere else."""
    if in_json:
        yield Teller(sys.stdout, Clock().stamp)
    elif can_draw(sys.stderr, os.environ.get("TERM", "")):
        from agentfs.views.watching_live import LiveTeller

        with LiveTeller(sys.stderr, workspace.root, settings.limits.parallel, Clock()) as live:
            yield live
    else:
        yield Teller(sys.stderr)

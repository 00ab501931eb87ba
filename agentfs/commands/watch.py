"""`watch`: drive all runs of a workspace, and take the goals that are dropped into it."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from agentfs.commands.common import environment, here, must_be_trusted
from agentfs.commands.run import on_signals
from agentfs.core.config import Settings
from agentfs.daemon.daemon import Daemon
from agentfs.daemon.inbox import Inbox
from agentfs.daemon.reporter import Reporter
from agentfs.engine.foreground import Stop
from agentfs.engine.means import allowing_own, catalogue_of, has_model
from agentfs.engine.world import open_world
from agentfs.storage.clock import Clock
from agentfs.storage.workspace import Workspace, load_settings
from agentfs.ui.progress import LiveReporter
from agentfs.ui.screen import can_draw

STOPPED = 130


def watch(arguments: Namespace) -> int:
    """`agentfs watch`: until a person, or the system, asks it to stop."""
    workspace = here(arguments)
    must_be_trusted(workspace)
    settings = load_settings(workspace.settings, environment())
    stop = Stop()
    with ExitStack() as stack:
        reporter = stack.enter_context(_reporter(workspace, settings, in_json=arguments.json))
        on_signals(stack, stop)
        world = stack.enter_context(open_world(workspace, settings, environment(), reporter.note, stop.wake.set))
        known = world.known
        settings = allowing_own(settings, known)
        planner = has_model(settings.planner, environment())
        catalogue = catalogue_of(settings, environment(), known)
        inbox = Inbox(workspace, settings, catalogue, planner, hide=world.mask.text)
        Daemon(workspace, world, inbox, stop, reporter).run(poll=arguments.poll, wait=arguments.wait)
    reporter.report("stopped", "stopped; `agentfs watch` goes on from here")
    return STOPPED


@contextmanager
def _reporter(workspace: Workspace, settings: Settings, *, in_json: bool) -> Iterator[Reporter]:
    """Yield a reporter: JSON on stdout, a live view on a terminal, or plain lines."""
    if in_json:
        yield Reporter(sys.stdout, Clock().stamp)
    elif can_draw(sys.stderr, os.environ.get("TERM", "")):
        live = LiveReporter(sys.stderr, workspace.root, settings.limits.parallel, Clock())
        try:
            yield live
        finally:
            live.leave_the_screen()
    else:
        yield Reporter(sys.stderr)

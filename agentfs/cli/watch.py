"""The command that drives everything: watch."""

import signal
import sys
from argparse import Namespace
from contextlib import ExitStack

from agentfs.cli.common import environment, here, must_be_trusted
from agentfs.cli.drive import on_signal
from agentfs.clock import Clock
from agentfs.daemon import Daemon
from agentfs.driving import Stop
from agentfs.inbox import Inbox
from agentfs.settings import load_settings
from agentfs.views.watching import Teller
from agentfs.world import allowing_own, catalogue_of, has_model, known_to, open_world

STOPPED = 130


def watch(arguments: Namespace) -> int:
    """`agentfs watch`: until a person, or the system, asks it to stop."""
    workspace = here(arguments)
    must_be_trusted(workspace)
    settings = load_settings(workspace.settings, environment())
    stop = Stop()
    teller = Teller(sys.stdout, Clock().stamp) if arguments.json else Teller(sys.stderr)
    with ExitStack() as stack:
        for number, times in ((signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 2)):
            on_signal(stack, number, stop, times)
        world = stack.enter_context(open_world(workspace, settings, environment(), teller.note, stop.wake.set))
        known = known_to(world)
        settings = allowing_own(settings, known)
        model = has_model(settings.planner, environment()) or has_model(settings.executor, environment())
        inbox = Inbox(workspace, settings, catalogue_of(settings, environment(), known), model)
        Daemon(workspace, settings, world, inbox, stop, teller).run(poll=arguments.poll)
    teller.tell("stopped", "stopped; `agentfs watch` goes on from here")
    return STOPPED

"""`agentfs attempt`: carry out one order for a driver elsewhere. Places start it; people do not."""

import argparse
import os
import sys

from agentfs.errors import UserError


def attempt(_arguments: argparse.Namespace) -> int:
    """Take one assignment from standard input, carry it out, and send what comes of it to standard output."""
    from agentfs.places.channel import standard_channel
    from agentfs.places.elsewhere import serve

    if sys.stdin.isatty():
        raise UserError("this is started by a place (see [places] in agentfs.toml), and talks to a driver over pipes")
    return serve(standard_channel(), os.environ)

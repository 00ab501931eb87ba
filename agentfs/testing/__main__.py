"""Run a command while a script plays the models.

python -m agentfs.testing SCRIPT COMMAND [ARGUMENT…]

The command finds a server on loopback where planner and executor are expected, whatever its settings say. Its exit
code is passed on; 1 if it was 0 and the script was not played to its end, or more was asked than it holds.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from agentfs.errors import UserError
from agentfs.testing.script import MODELS, load_script
from agentfs.testing.server import ScriptedServer


def main(arguments: list[str]) -> int:
    """Play a script; return the exit code."""
    if len(arguments) < 2:
        print("usage: python -m agentfs.testing SCRIPT COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    script, *command = arguments
    try:
        with ScriptedServer() as server:
            count = load_script(Path(script), server)
            code = _run(command, server)
            return code or _verdict(server, count)
    except UserError as error:
        print(f"agentfs.testing: {error}", file=sys.stderr)
        return 2


def _run(command: list[str], server: ScriptedServer) -> int:
    settings = {
        f"AGENTFS_{role.upper()}_{key}": value
        for role, name in MODELS.items()
        for key, value in (("KIND", "model"), ("BASE_URL", server.url), ("MODEL", name))
    }
    try:
        popen = subprocess.Popen(command, env={**os.environ, **settings})
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run: {error.strerror}") from None
    while True:
        with suppress(KeyboardInterrupt):  # the terminal gives Ctrl-C to the command too, which ends as it sees fit
            code = popen.wait()
            return code if code >= 0 else 128 - code  # as a shell says by which signal it was ended


def _verdict(server: ScriptedServer, count: int) -> int:
    try:
        server.done()
    except AssertionError as error:
        print(f"agentfs.testing: {error}", file=sys.stderr)
        return 1
    print(f"the script was played to its end: {count} replies", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The command line: parse, dispatch, turn errors into words and exit codes. Commands are imported when called."""

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from agentfs.cli.parser import parse

    arguments = parse(list(sys.argv[1:] if argv is None else argv))
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `agentfs log | head`: the reader has left, which is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:  # noqa: BLE001 - the last stop: what is not ours is raised again
        from agentfs.errors import AgentfsError

        if not isinstance(error, AgentfsError):
            return _unexpected(error)
        print("\n".join(_lines_of(error)), file=sys.stderr)
        return error.code


def _lines_of(error: Exception) -> list[str]:
    """Return an error of the person's as it is told; on a terminal, of a file that is wrong, with the lines meant."""
    from agentfs.errors import BadFile

    if isinstance(error, BadFile) and sys.stderr.isatty():
        from agentfs.cli.common import problem_lines_for

        return problem_lines_for(sys.stderr, error.file, error.problems, error.source)
    return [f"agentfs: {error}" if "\n" not in str(error) else str(error)]


def _unexpected(error: Exception) -> int:
    """A fault of the machine gets a line; a fault of ours gets its traceback, for whoever mends it."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        print(f"agentfs: {error.strerror}{where}", file=sys.stderr)
        return 2
    raise error

"""The command line: parse, dispatch, turn errors into words and exit codes. Commands are imported when called."""

import sys
from collections.abc import Sequence

from agentfs.commands import streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None:
        streams.begin()
    words = list(sys.argv[1:] if argv is None else argv)
    streams.learn_names(words)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return 130
    except streams.CannotPrint as error:
        streams.drop_rest(1)
        if error.reader_left:  # `agentfs log | head`, which is no mistake
            return 0
        streams.complain(str(error))
        return 2
    except Exception as error:  # noqa: BLE001 - the last stop: what is not ours is raised again
        return _report_failure(error)


def _run(words: list[str]) -> int:
    from agentfs.commands.parser import parse

    arguments = parse(words)
    code: int = arguments.command(arguments)
    sys.stdout.flush()
    return code


def _report_failure(error: Exception) -> int:
    """Report what a person or the machine did wrong in one line; a bug of ours keeps its traceback."""
    from agentfs.core.problems import Rejected
    from agentfs.errors import AgentfsError

    if isinstance(error, AgentfsError | Rejected):
        _complain(error)
        return error.code if isinstance(error, AgentfsError) else 2
    if isinstance(error, OSError) and error.errno is not None:
        streams.complain(f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror))
        return 2
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        streams.complain("no thread can be started: there are too many already (TasksMax=, ulimit -u)")
        return 2
    raise error


def _complain(error: Exception) -> None:
    """Print an error; of a wrong file, on a terminal, with the lines it is about."""
    from agentfs.errors import BadFile

    if isinstance(error, BadFile) and sys.stderr.isatty():
        from agentfs.commands.common import problem_lines_for, say

        say("\n".join(problem_lines_for(sys.stderr, error.file, error.problems, error.source)), colours=True)
        if error.advice:
            say(error.advice)
        return
    streams.complain(str(error))

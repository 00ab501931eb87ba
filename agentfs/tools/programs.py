"""The tools that run programs: shell and python. They run in the sandbox; what they print becomes the output.

`python` is the interpreter that runs agentfs, with `-s -B -c`: no user's packages, no .pyc files left behind;
modules in the working folder can be imported.
"""

import errno
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from agentfs.core.excerpts import with_output
from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.storage.safe_open import Refused
from agentfs.storage.starting import NONE_LEFT, is_shortage
from agentfs.tools import launch
from agentfs.tools.base import Bench, ToolResult
from agentfs.tools.launch import Finished, GaveUp, NotStarted, run_program
from agentfs.tools.output import Capture
from agentfs.tools.protected import Unfenceable
from agentfs.tools.sandbox import environment, hint_for, lay_out, unavailable_because

STRICT = {"sh": ("-e",), "bash": ("-e", "-o", "pipefail")}  # a step ends at its first error; a check is one condition
LONGEST_TEXT = 128 * 1024 - 1  # what Linux takes as one argument
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


OPEN_AIR = 'install bubblewrap, or set sandbox = "off"'
UNCONFINED = "a model's programs are run only in a sandbox, and there is none here (bubblewrap)"


class Shell:
    """Runs shell text; `env` comes only from orders, never from a plan."""

    spec = ToolSpec(
        name="shell",
        summary="Run shell text in the working folder; the first command that fails ends it",
        input_schema={
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1},
                "interpreter": {"enum": ["sh", "bash"], "description": "Default: sh"},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        effects="execute",
        repeatable=False,
        text_field="command",
    )

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        interpreter = given.get("interpreter") or "sh"
        env = given.get("env") or {}
        if not isinstance(env, dict):
            return _refused("input", "env must be an object of variables")
        finished = run_shell(
            str(given["command"]), str(interpreter), env, bench, flags=STRICT.get(str(interpreter), ("-e",))
        )
        return finished if isinstance(finished, ToolResult) else outcome_of(finished, bench)


class Python:
    """Runs Python code."""

    spec = ToolSpec(
        name="python",
        summary="Run Python code in the working folder",
        input_schema={
            "type": "object",
            "properties": {"code": {"type": "string", "minLength": 1}},
            "required": ["code"],
            "additionalProperties": False,
        },
        effects="execute",
        repeatable=False,
        text_field="code",
    )

    def call(self, given: JsonObject, bench: Bench) -> ToolResult:
        finished = _run([sys.executable, "-s", "-B", "-c", str(given["code"])], {}, bench)
        return finished if isinstance(finished, ToolResult) else outcome_of(finished, bench)


def run_shell(
    command: str,
    interpreter: str,
    env: Mapping[str, Any],
    bench: Bench,
    *,
    spill: bool = True,
    flags: Sequence[str] = (),
) -> Finished | ToolResult:
    """Run shell text to its end; a ToolResult says why nothing was run."""
    path = shutil.which(interpreter, path=environment(bench.confinement)["PATH"])
    if path is None:
        return _refused(
            "input", f"there is no {interpreter} on this machine", "install it, or use another interpreter"
        )
    return _run([path, *flags, "-c", command], env, bench, spill=spill)


def _run(argv: Sequence[str], env: Mapping[str, Any], bench: Bench, *, spill: bool = True) -> Finished | ToolResult:
    confinement = bench.confinement
    if not confinement.programs:
        return _refused("sandbox", UNCONFINED, confinement.change(OPEN_AIR))
    if problem := _text_problem(argv[-1], env):
        return problem
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        return _refused("sandbox", why, confinement.change(OPEN_AIR))
    variables = environment(confinement) | {str(name): str(value) for name, value in env.items()}
    try:
        layout, finished = run_program(lambda: lay_out(argv, confinement), env=variables, bench=bench, spill=spill)
    except Unfenceable as error:
        return _refused("sandbox", str(error), "choose another workdir")
    except Refused as refused:
        return ToolResult(failure=refused.failure)
    except GaveUp:
        return _gave_up(bench)
    except NotStarted as error:
        return _refused("sandbox", f"the sandbox could not be set up: {error}")
    except OSError as error:
        if error.errno == errno.E2BIG:
            return _too_long("the command with its variables")
        if is_shortage(error):
            return _refused("interrupted", f"no process could be started: {error.strerror}", NONE_LEFT)
        raise
    harm = layout.view.undo_harm()
    return _refused("outside", harm, "a tool may not change what git or agentfs runs") if harm else finished


def _gave_up(bench: Bench) -> ToolResult:
    if bench.stop.is_set():
        return _refused("interrupted", "it was stopped")
    return _refused("timeout", "it did not end in time and was killed", "raise timeout_s of the step")


def _text_problem(text: str, env: Mapping[str, Any]) -> ToolResult | None:
    for name, value in {"": text, **env}.items():
        what = f"the variable {name}" if name else "the text"
        if name and (not _VARIABLE.match(name) or not isinstance(value, str)):
            return _refused("input", f"{name!r} is not a variable with a text")
        try:
            size = len(value.encode("utf-8")) + len(name) + 1
        except UnicodeEncodeError:
            return _refused("input", f"{what} holds half of a surrogate pair, which no program can be given")
        if "\0" in value:
            return _refused("input", f"{what} holds a NUL character, which no program can be given")
        if size > LONGEST_TEXT:
            return _too_long(what)
    return None


def _too_long(what: str) -> ToolResult:
    return _refused(
        "input",
        f"{what} is longer than {(LONGEST_TEXT + 1) // 1024} KiB, the most that a program can be given",
        "put it into a file and name the file; of another step's output, use {{steps.ID.file}}",
    )


def outcome_of(finished: Finished, bench: Bench) -> ToolResult:
    """Return what a program's end means: its output, or why it failed."""
    failure = failure_of(finished, bench)
    if failure is not None:
        return ToolResult(failure=failure)
    return _output(finished.stdout, bench)


def failure_of(finished: Finished, bench: Bench) -> Failure | None:
    """Return why a program did not succeed; None if it did."""
    match finished.ended_by:
        case "stop":
            return Failure(kind="interrupted", message="it was stopped")
        case "timeout":
            late = bench.limit.failure(then=" and was killed")
            return late.model_copy(update={"message": with_output(late.message, _last_words(finished))})
        case "output":
            message = f"it printed more than {launch.OUTPUT_CAP // 2**20} MiB and was killed"
            return Failure(kind="output", message=message, hint="send long output to a file")
        case "tasks":
            message = f"it started more than {launch.MOST_TASKS} processes and threads and was killed"
            return Failure(kind="tasks", message=message, hint="start fewer at a time")
        case "disk":
            message = f"its output could not be kept, so it was ended: {finished.problem}"
            return Failure(kind="interrupted", message=message)  # no failing of its own: nobody knows how far it came
        case None:
            return _exit_failure(finished, bench)
        case _:
            assert_never(finished.ended_by)


def _exit_failure(finished: Finished, bench: Bench) -> Failure | None:
    if finished.exit_code == 0:
        return None
    hint = hint_for(finished.exit_code, finished.stderr, bench.confinement)
    return Failure(kind="exit", message=with_output(_end(finished), _last_words(finished)), hint=hint)


def _end(finished: Finished) -> str:
    """Return how it ended in words; a shell and bubblewrap report a signal as 128 and its number."""
    if finished.signal is not None:
        return f"it was ended by {_signal_name(finished.signal)}"
    name = _signal_name((finished.exit_code or 0) - 128)
    return f"exit code {finished.exit_code}{f' ({name})' if name.startswith('SIG') else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(finished: Finished) -> str:
    """Return the end of stderr, or of stdout when there is none: where programs say what went wrong."""
    return finished.stderr if finished.stderr.strip() else finished.stdout.tail()


def _output(stdout: Capture, bench: Bench) -> ToolResult:
    text = stdout.text(bench.output_file.name)
    if stdout.spilled:
        return ToolResult(text, cut=True)
    value = _value(text)
    return ToolResult(text.removesuffix("\n") if value is None else value)


def _value(text: str) -> Any:
    """Return the JSON object or array that a text is; None if it is another text, or one that could not be kept."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json_value(text)
    except NotJson:
        return None


def _refused(kind: str, message: str, hint: str | None = None) -> ToolResult:
    return ToolResult(failure=Failure(kind=kind, message=message, hint=hint))

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
from agentfs.tools.base import StepContext, ToolResult, closed_schema, fail
from agentfs.tools.launch import Finished, GaveUp, NotStarted, run_program
from agentfs.tools.output import Capture
from agentfs.tools.protected import Unfenceable
from agentfs.tools.sandbox import Layout, environment, hint_for, lay_out, unavailable_because

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
        input_schema=closed_schema(
            {
                "command": {"type": "string", "minLength": 1},
                "interpreter": {"enum": ["sh", "bash"], "description": "Default: sh"},
            },
            "command",
        ),
        effects="execute",
        repeatable=False,
        text_field="command",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        interpreter = str(given.get("interpreter") or "sh")
        env = given.get("env") or {}
        if not isinstance(env, dict):
            return fail("input", "env must be an object of variables")
        argv = _shell(interpreter, str(given["command"]), context, *STRICT.get(interpreter, ("-e",)))
        finished = argv if isinstance(argv, ToolResult) else run(argv, env, context)
        return finished if isinstance(finished, ToolResult) else outcome_of(finished, context)


class Python:
    """Runs Python code."""

    spec = ToolSpec(
        name="python",
        summary="Run Python code in the working folder",
        input_schema=closed_schema({"code": {"type": "string", "minLength": 1}}, "code"),
        effects="execute",
        repeatable=False,
        text_field="code",
    )

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        finished = run([sys.executable, "-s", "-B", "-c", str(given["code"])], {}, context)
        return finished if isinstance(finished, ToolResult) else outcome_of(finished, context)


def run_shell(command: str, env: Mapping[str, Any], context: StepContext) -> Failure | None:
    """Run a check's shell text; return why it does not hold, None if it does."""
    argv = _shell("sh", command, context)
    finished = argv if isinstance(argv, ToolResult) else run(argv, env, context, spill=False)
    return finished.failure if isinstance(finished, ToolResult) else failure_of(finished, context)


def _shell(interpreter: str, command: str, context: StepContext, *flags: str) -> Sequence[str] | ToolResult:
    path = shutil.which(interpreter, path=environment(context.confinement)["PATH"])
    if path is None:
        return fail("input", f"there is no {interpreter} on this machine", "install it, or use another interpreter")
    return [path, *flags, "-c", command]


def run(
    argv: Sequence[str], env: Mapping[str, Any], context: StepContext, *, spill: bool = True
) -> Finished | ToolResult:
    """Run a program to its end; a ToolResult says why nothing was run."""
    confinement = context.confinement
    if not confinement.programs:
        return fail("sandbox", UNCONFINED, confinement.change(OPEN_AIR))
    if problem := _text_problem(argv[-1], env):
        return problem
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        return fail("sandbox", why, confinement.change(OPEN_AIR))
    traced = {"TRACEPARENT": context.traceparent} if context.traceparent else {}
    variables = traced | environment(confinement) | {str(name): str(value) for name, value in env.items()}
    try:
        layout, finished = run_program(
            lambda: lay_out(argv, confinement), env=variables, context=context, spill=spill
        )
    except NOT_RUN as error:
        return ToolResult(failure=why_not_run(error, context))
    harm = why_harmful(layout)
    return ToolResult(failure=harm) if harm else finished


NOT_RUN = (Unfenceable, Refused, GaveUp, NotStarted, OSError)


def why_not_run(error: Exception, context: StepContext) -> Failure:
    """Return why a program was not run; raises what is no reason."""
    match error:
        case Unfenceable():
            return Failure(kind="sandbox", message=str(error), hint="choose another workdir")
        case Refused():
            return error.failure
        case GaveUp():
            return _gave_up(context)
        case NotStarted():
            return Failure(kind="sandbox", message=f"the sandbox could not be set up: {error}")
        case OSError() if error.errno == errno.E2BIG:
            return _too_long("the command with its variables")
        case OSError() if is_shortage(error):
            message = f"no process could be started: {error.strerror}"
            return Failure(kind="interrupted", message=message, hint=NONE_LEFT)
        case _:
            raise error


def why_harmful(layout: Layout) -> Failure | None:
    """Undo what a program did that no tool may do; return what that was."""
    harm = layout.view.undo_harm()
    hint = "a tool may not change what git or agentfs runs"
    return Failure(kind="outside", message=harm, hint=hint) if harm else None


def _gave_up(context: StepContext) -> Failure:
    if context.stop.is_set():
        return Failure(kind="interrupted", message="it was stopped")
    hint = "raise timeout_s of the step"
    return Failure(kind="timeout", message="it did not end in time and was killed", hint=hint)


def _text_problem(text: str, env: Mapping[str, Any]) -> ToolResult | None:
    for name, value in {"": text, **env}.items():
        what = f"the variable {name}" if name else "the text"
        if name and (not _VARIABLE.match(name) or not isinstance(value, str)):
            return fail("input", f"{name!r} is not a variable with a text")
        try:
            size = len(value.encode("utf-8")) + len(name) + 1
        except UnicodeEncodeError:
            return fail("input", f"{what} holds half of a surrogate pair, which no program can be given")
        if "\0" in value:
            return fail("input", f"{what} holds a NUL character, which no program can be given")
        if size > LONGEST_TEXT:
            return ToolResult(failure=_too_long(what))
    return None


def _too_long(what: str) -> Failure:
    return Failure(
        kind="input",
        message=f"{what} is longer than {(LONGEST_TEXT + 1) // 1024} KiB, the most that a program can be given",
        hint="put it into a file and name the file; of another step's output, use {{steps.ID.file}}",
    )


def outcome_of(finished: Finished, context: StepContext) -> ToolResult:
    """Return what a program's end means: its output, or why it failed."""
    failure = failure_of(finished, context)
    if failure is not None:
        return ToolResult(failure=failure)
    return _read_output(finished.stdout, context)


def failure_of(finished: Finished, context: StepContext) -> Failure | None:
    """Return why a program did not succeed; None if it did."""
    match finished.ended_by:
        case "stop":
            return Failure(kind="interrupted", message="it was stopped")
        case "timeout":
            late = context.limit.failure(then=" and was killed")
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
        case "idle" | "listener":
            return Failure(kind="interrupted", message="it was ended by who listened to it")
        case None:
            return _exit_failure(finished, context)
        case _:
            assert_never(finished.ended_by)


def _exit_failure(finished: Finished, context: StepContext) -> Failure | None:
    if finished.exit_code == 0:
        return None
    hint = hint_for(finished.exit_code, finished.stderr, context.confinement)
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


def _read_output(stdout: Capture, context: StepContext) -> ToolResult:
    text = stdout.text(context.output_file.name)
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

"""The tools shell and python, and how any program is run. What a program prints becomes the output.

The way of one program: `run_program` has `sandbox` lay out what it sees, of which `protected` says what must stay as
it is; `launch` starts it at a gate, compares what is mounted, opens the gate and watches it; then what it did that no
tool may do is undone. `python` is the interpreter that runs agentfs, with `-s -B -c`: no user's packages, no .pyc
files left behind; modules in the working folder can be imported.
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
from agentfs.storage.safe_open import Refused
from agentfs.storage.system import NONE_LEFT, is_shortage
from agentfs.tools import launch
from agentfs.tools.base import StepContext, ToolResult, closed_schema, fail
from agentfs.tools.launch import Finished, GaveUp, Listener, NotStarted, start, watch
from agentfs.tools.output import Capture, json_or_text
from agentfs.tools.sandbox import environment, hint_for, make_layout, unavailable_because

STRICT = {"sh": ("-e",), "bash": ("-e", "-o", "pipefail")}  # a step ends at its first error; a check is one condition
LONGEST_TEXT = 128 * 1024 - 1  # what Linux takes as one argument
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


TRIES = 3  # to start one while folders change
INSTALL_BWRAP = 'install bubblewrap, or set sandbox = "off"'
HARM_HINT = "a tool may not change what git or agentfs runs"
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
        argv = [interpreter, *STRICT.get(interpreter, ("-e",)), "-c", str(given["command"])]
        return _result(_run(argv, env, context), context)


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
        return _result(_run([sys.executable, "-s", "-B", "-c", str(given["code"])], {}, context), context)


def run_shell(command: str, env: Mapping[str, Any], context: StepContext) -> Failure | None:
    """Run a check's shell text; return why it does not hold, None if it does."""
    finished = _run(["sh", "-c", command], env, context, spill=False)
    return finished if isinstance(finished, Failure) else failure_of(finished, context)


def _run(
    argv: Sequence[str], env: Mapping[str, Any], context: StepContext, *, spill: bool = True
) -> Finished | Failure:
    """Run an interpreter with a text that a step brought, if it may be run."""
    confinement = context.confinement
    if not confinement.programs:
        return Failure(kind="sandbox", message=UNCONFINED, hint=confinement.change(INSTALL_BWRAP))
    if problem := _text_problem(argv[-1], env):
        return problem
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        return Failure(kind="sandbox", message=why, hint=confinement.change(INSTALL_BWRAP))
    variables = environment(confinement)
    interpreter = shutil.which(argv[0], path=variables["PATH"])
    if interpreter is None:
        message = f"there is no {argv[0]} on this machine"
        return Failure(kind="input", message=message, hint="install it, or use another interpreter")
    return run_program([interpreter, *argv[1:]], variables | dict(env), context, spill=spill)


def run_program(
    argv: Sequence[str],
    env: dict[str, str],
    context: StepContext,
    *,
    spill: bool = True,
    given: bytes | None = None,
    listener: Listener | None = None,
) -> Finished | Failure:
    """Run a program in the context's sandbox, to its end or ours; a Failure says why not, or what harm it did.

    `spill`: a long stdout also goes to the context's output file. `given`: what it reads on stdin.
    `listener`: who takes its stdout. Raises what `context.claim` raises; then nothing ran.
    """
    traced = {"TRACEPARENT": context.traceparent} if context.traceparent else {}
    failed = 0
    try:
        for one_try in context.starter.tries(context.may_wait):
            if context.stop.is_set():
                raise GaveUp
            with one_try:
                layout = make_layout(argv, context.confinement)
                try:
                    started = start(layout, traced | env, context.stop, context.deadline, given=given)
                    break
                except GaveUp:
                    raise
                except NotStarted:
                    failed += 1
                    if failed == TRIES:
                        raise
        finished = watch(started, context, listener, spill=spill)
    except (Refused, NotStarted, OSError) as error:
        return _why_not_run(error, context)
    harm = layout.view.undo_harm()
    return Failure(kind="outside", message=harm, hint=HARM_HINT) if harm else finished


def _why_not_run(error: Exception, context: StepContext) -> Failure:
    """Return why a program was not run; raise what has nothing to do with starting it."""
    match error:
        case Refused():
            return error.failure
        case GaveUp():
            return context.why_ended(then=" and was killed")
        case NotStarted():
            return Failure(kind="sandbox", message=f"the sandbox could not be set up: {error}")
        case OSError() if error.errno == errno.E2BIG:
            return _too_long("the command with its variables")
        case OSError() if is_shortage(error):
            message = f"no process could be started: {error.strerror}"
            return Failure(kind="interrupted", message=message, hint=NONE_LEFT)
        case _:
            raise error


def _text_problem(text: str, env: Mapping[str, Any]) -> Failure | None:
    """Return why a program cannot be given this text and these variables."""
    for name, value in {"": text, **env}.items():
        what = f"the variable {name}" if name else "the text"
        if name and (not _VARIABLE.match(name) or not isinstance(value, str)):
            return Failure(kind="input", message=f"{name!r} is not a variable with a text")
        try:
            size = len(value.encode("utf-8")) + len(name) + 1
        except UnicodeEncodeError:
            return Failure(
                kind="input", message=f"{what} holds half of a surrogate pair, which no program can be given"
            )
        if "\0" in value:
            return Failure(kind="input", message=f"{what} holds a NUL character, which no program can be given")
        if size > LONGEST_TEXT:
            return _too_long(what)
    return None


def _too_long(what: str) -> Failure:
    return Failure(
        kind="input",
        message=f"{what} is longer than {(LONGEST_TEXT + 1) // 1024} KiB, the most that a program can be given",
        hint="put it into a file and name the file; of another step's output, use {{steps.ID.file}}",
    )


def _result(finished: Finished | Failure, context: StepContext) -> ToolResult:
    """Return a program's output, or why it failed."""
    failure = finished if isinstance(finished, Failure) else failure_of(finished, context)
    if failure is not None or isinstance(finished, Failure):
        return ToolResult(failure=failure)
    return _read_output(finished.stdout, context)


def failure_of(finished: Finished, context: StepContext) -> Failure | None:
    """Return why a program did not succeed; None if it did."""
    match finished.ended_by:
        case "stop":
            return Failure(kind="interrupted", message="it was stopped")
        case "timeout":
            late = context.limit.failure(then=" and was killed")
            return late.model_copy(update={"message": with_output(late.message, _error_output(finished))})
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
    return Failure(kind="exit", message=with_output(_end(finished), _error_output(finished)), hint=hint)


def _end(finished: Finished) -> str:
    """Return how it ended in words; a shell and bubblewrap report signal N as exit code 128 + N."""
    if finished.signal is not None:
        return f"it was ended by {_signal_name(finished.signal)}"
    name = _signal_name((finished.exit_code or 0) - 128)
    return f"exit code {finished.exit_code}{f' ({name})' if name.startswith('SIG') else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error_output(finished: Finished) -> str:
    """Return the end of stderr, or of stdout when that is empty."""
    return finished.stderr if finished.stderr.strip() else finished.stdout.tail()


def _read_output(stdout: Capture, context: StepContext) -> ToolResult:
    text = stdout.text(context.output_file.name)
    if stdout.spilled:
        return ToolResult(text, cut=True)
    value = json_or_text(text)
    return ToolResult(value.removesuffix("\n") if isinstance(value, str) else value)

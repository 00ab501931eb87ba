"""Load and call a person's own tools: in workers in the sandbox (`user_tool_worker`), never in this process."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentfs.core.records import Failure, JsonObject, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.storage.safe_open import Refused, hold_folder
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement, StepContext, ToolResult, fail
from agentfs.tools.launch import GaveUp
from agentfs.tools.programs import HARM_HINT, INSTALL_BWRAP
from agentfs.tools.sandbox import environment, make_layout, unavailable_because
from agentfs.tools.secrets import SecretMask
from agentfs.tools.user_tools import FOLDER, Described, Found, Source, without_clashes
from agentfs.tools.workers import NoWorker, Place, Request, Worker, Workers, no_attempt, result_of

PROGRAM = Path(__file__).with_name("user_tool_worker.py")
PACKAGE = Path(__file__).parent.parent


# ── the sandbox of a worker ───────────────────────────────────────────────────────────────────────────────


def find_place(confinement: Confinement, *source: Source) -> Place:
    """Return the sandbox for these tools in this confinement. Raises Refused."""
    if confinement.sandbox == "bubblewrap" and (why := unavailable_because()):
        raise NoWorker(why, confinement.change(INSTALL_BWRAP))
    inner = replace(confinement, readable=(*confinement.readable, *_readable_for(source, confinement.workspace)))
    argv = [sys.executable, "-I", "-B", str(PROGRAM)]
    with hold_folder(str(confinement.workdir)) as held:
        workdir = os.fstat(held.fd).st_ino
    layout = make_layout(argv, inner)
    plain = {str(inner.workdir), *map(str, inner.readable), *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    locked = (path for path, kind, _ in layout.view.mounts if kind == "shown" and path not in plain)
    marks = (workdir, *map(_change_time, locked), *_tool_files(source))
    return Place(layout, tuple(environment(inner).items()), (source, *marks))


def _readable_for(found: Sequence[Source], root: Path) -> tuple[Path, ...]:
    """Return what a worker must see: tools/, agentfs itself, and where entry points are installed."""
    paths = [root / FOLDER, PACKAGE, *(Path(one.path).parent for one in found if one.path)]
    return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if path.is_dir()))


def _change_time(path: str) -> int | None:
    """Return when a locked file last changed: one that is removed and made again may get the same number."""
    with suppress(OSError):
        return os.stat(path).st_ctime_ns
    return None


def _tool_files(found: Sequence[Source]) -> list[tuple[str, int, int, int]]:
    """Return what changes when a person edits their tools: names, sizes and times of the files in tools/."""
    folders = {os.path.dirname(one.path) for one in found if one.path and one.entry is None}
    marks = []
    with suppress(OSError):
        for folder in folders:
            with os.scandir(folder) as entries:
                files = [(one.name, one.stat()) for one in entries if one.name.endswith(".py")]
            marks += [(name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in files]
    return sorted(marks)


# ── load and call ─────────────────────────────────────────────────────────────────────────────────────────


def load(found: Sequence[Source], root: Path, sandbox: Sandbox, taken: Sequence[str]) -> Found:
    """Return the tools of these sources, loaded in a sandbox that can write nothing; bounded in time."""
    if not found:
        return Found()
    confinement = Confinement(
        workdir=root / FOLDER if (root / FOLDER).is_dir() else PACKAGE,
        workspace=root,
        run_files=root / "runs" / "none" / "none" / "files",
        writable=False,
        sandbox=sandbox,
    )
    context = no_attempt(confinement, TIMING.sandbox_start + TIMING.tool_load, SecretMask({}))
    workers = Workers()
    try:
        worker = workers.borrow(find_place(confinement, *found), context)
        asked = {"sources": [asdict(one) for one in found], "folders": _folders(found), "seconds": TIMING.tool_load}
        try:
            answer = Request(worker, context).send(asked)
        finally:
            worker.end()
    except (Refused, GaveUp) as error:
        return _report_unloaded(found, str(error))
    finally:
        workers.close()
    if isinstance(answer, Failure):
        return _report_unloaded(found, answer.message)
    tools = tuple(
        Described(ToolSpec(**one["spec"]), one["source"], one["line"], one["function"]) for one in answer["tools"]
    )
    return without_clashes(Found(tools, tuple(answer["problems"])), taken)


def _report_unloaded(found: Sequence[Source], why: str) -> Found:
    return Found((), tuple(f"{one.shown} could not be loaded: {why}" for one in found))


def _folders(found: Sequence[Source]) -> list[str]:
    """Return the folders in which the packages of entry points lie."""
    return list(dict.fromkeys(one.folder for one in found if one.folder))


@dataclass(frozen=True, slots=True)
class UserTool:
    """One of a person's own tools."""

    described: Described
    source: Source
    workers: Workers

    @property
    def spec(self) -> ToolSpec:
        return self.described.spec

    def prepare(self, confinement: Confinement) -> None:
        """Begin to start a worker. The call reports what goes wrong."""
        with suppress(Refused):
            self.workers.prepare(find_place(confinement, self.source))

    def call(self, given: JsonObject, context: StepContext) -> ToolResult:
        try:
            place = find_place(context.confinement, self.source)
            worker = self.workers.borrow(place, context)
        except Refused as refused:
            return ToolResult(failure=refused.failure)
        except GaveUp:
            return ToolResult(failure=context.why_ended(then=" and was killed"))
        result = self._call_in(worker, given, context)
        harm = place.layout.view.undo_harm()
        return fail("outside", harm, HARM_HINT) if harm else result

    def _call_in(self, worker: Worker, given: JsonObject, context: StepContext) -> ToolResult:
        try:
            context.claim(worker.mark)  # before anything of the person's runs
        except BaseException:
            self.workers.give_back(worker, spent=False)
            raise
        request = Request(worker, context)
        try:
            answer = request.send(
                {
                    "source": asdict(self.source),
                    "function": self.described.function,
                    "folders": _folders([self.source]),
                    "input": given,
                    "traceparent": context.traceparent,
                }
            )
        finally:
            self.workers.give_back(worker, spent=request.spent)
        if isinstance(answer, Failure):
            return ToolResult(failure=answer)
        if "value" not in answer:
            return fail(str(answer.get("kind")), context.mask.text(str(answer.get("message"))))
        try:
            value = json_value(str(answer["value"]))
        except NotJson as error:
            return fail("tool", f"what it gave back is no JSON value that can be kept: {error}")
        return result_of(value, context)

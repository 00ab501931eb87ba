"""Benches for tests of tools: a real workspace, a claim and a log that remember."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.excerpts import TimeLimit
from agentfs.core.records import Sandbox
from agentfs.executor.checks import RealObserver
from agentfs.storage.files import StepsFolder
from agentfs.tools.base import Confinement, StepContext
from agentfs.tools.process import ProcessMark
from agentfs.tools.sandbox import unavailable_because
from agentfs.tools.secrets import SecretMask

confined = pytest.mark.skipif(unavailable_because() is not None, reason=f"no sandbox: {unavailable_because()}")
each_sandbox = pytest.mark.parametrize("sandbox", ["none", pytest.param("bubblewrap", marks=confined)])


@dataclass(frozen=True)
class RecordedContext:
    """A context, and what was reported to it."""

    context: StepContext
    stop: threading.Event
    claims: list[ProcessMark | None] = field(default_factory=list)
    lines: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def workdir(self) -> Path:
        return self.context.confinement.workdir

    @property
    def workspace(self) -> Path:
        return self.context.confinement.workspace

    def logged(self, stream: str) -> str:
        return "".join(line["text"] for kind, line in self.lines if kind == "output" and line["stream"] == stream)


def a_workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    for folder in ("goals", "schemas", "runs/2026-11-16/demo/files", "runs/2026-11-16/demo/steps"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    (workspace / "agentfs.toml").touch()
    return workspace


def a_context(
    tmp_path: Path,
    sandbox: Sandbox = "none",
    *,
    workdir: Path | None = None,
    deadline_s: float = 30,
    output_bytes: int = 4096,
    environ: Mapping[str, str] | None = None,
    **confinement: Any,
) -> RecordedContext:
    workspace = a_workspace(tmp_path)
    run = workspace / "runs/2026-11-16/demo"
    stop = threading.Event()
    claims: list[ProcessMark | None] = []
    lines: list[tuple[str, Mapping[str, Any]]] = []
    context = StepContext(
        name="steps/demo.1",
        steps_folder=StepsFolder.of(run),
        observer=RealObserver(),
        confinement=Confinement(
            workdir=workdir or run / "files",
            workspace=workspace,
            run_files=run / "files",
            sandbox=sandbox,
            **confinement,
        ),
        deadline=time.monotonic() + deadline_s,
        stop=stop,
        output_bytes=output_bytes,
        output_file=run / "steps/demo.1.output.txt",
        claim=claims.append,
        log=lambda kind, line: lines.append((kind, line)),
        mask=SecretMask(environ or {}),
        limit=TimeLimit(deadline_s),
    )
    return RecordedContext(context, stop, claims, lines)


def in_workspace(tmp_path: Path, sandbox: Sandbox = "none", **more: Any) -> RecordedContext:
    """Return a context whose working folder is the workspace itself."""
    return a_context(tmp_path, sandbox, workdir=a_workspace(tmp_path), **more)


def with_deadline(work: RecordedContext, deadline_s: float) -> RecordedContext:
    until = time.monotonic() + deadline_s
    return replace(work, context=replace(work.context, deadline=until, limit=TimeLimit(deadline_s)))

"""A model that says what a test tells it to, and rooms and orders for it to work with."""

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentfs.core.records import JsonObject, Order, Result, Sandbox, Usage
from agentfs.core.run_state import Bounds
from agentfs.executor.attempt import attempt
from agentfs.executor.task import Asked, LoopRules, Task
from agentfs.models.base import Model, ModelSession, Reply, Request, ToolCall
from agentfs.models.budget import Budget
from agentfs.tools.base import StepContext
from agentfs.tools.process import StopSign
from agentfs.tools.registry import builtins
from tests.builders import NOW, RUN
from tests.contexts import a_context

Turn = Reply | Exception | Callable[[Request], Reply]
_ids = itertools.count(1)
BOUNDS = Bounds(3, 2, 4, 200, 300, 2_000_000, 5.0, 120, 1000, 65536)


@dataclass
class Script:
    """A model that gives these replies, one after the other, and remembers what it was asked."""

    turns: list[Turn]
    name: str = "scripted"
    asked: list[Request] = field(default_factory=list)

    def complete(self, request: Request, session: ModelSession) -> Reply:
        turn = self.turns[len(self.asked)]
        self.asked.append(request)
        session.log_request(request.role, self.name, request.messages)
        usage = Usage(
            role=request.role,
            model=self.name,
            requests=1,
            input_tokens=10,
            cached_tokens=0,
            output_tokens=1,
            cost_usd=0.125,
        )
        if isinstance(turn, Exception):
            session.log_failure(usage.model_copy(update={"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}), {})
            raise turn
        reply = turn if isinstance(turn, Reply) else turn(request)
        session.log_reply(reply.message(), usage, {"finish": reply.finish})
        return reply

    def results(self, turn: int = -1) -> list[str]:
        """Return what the messages of a request say, without the opening."""
        return [str(message["content"]) for message in self.asked[turn].messages[2:]]


def call(name: str, arguments: Mapping[str, Any] | str | None = None, **fields: Any) -> ToolCall:
    """A call of a tool."""
    text = arguments if isinstance(arguments, str) else json.dumps({**(arguments or {}), **fields})
    return ToolCall(f"call-{next(_ids)}", name, text)


def calls(*made: ToolCall) -> Reply:
    """A reply that calls tools."""
    return Reply(tool_calls=made, finish="tool_calls")


def finish(output: Any = "done", *, ok: bool = True, **fields: Any) -> Reply:
    """A reply that ends the step."""
    given = {"ok": ok, "output": output, "surprising": None, "blocked": None, "evidence": [], **fields}
    return calls(call("finish", given))


def verdict(met: object, quote: str = "", because: str = "so it is") -> Reply:
    """A judge's reply."""
    return Reply(json.dumps({"met": met, "because": because, "quote": quote}))


def an_order(**fields: Any) -> Order:
    """An order that a model carries out."""
    given: dict[str, Any] = {
        "run": RUN,
        "step": "look",
        "attempt": 1,
        "revision": 1,
        "key": "0" * 64,
        "after": {},
        "description": "Look at it",
        "tool": None,
        "input": {"material": "what there is"},
        "tools": (),
        "model": None,
        "success_condition": None,
        "checks": (),
        "expects": None,
        "timeout_s": 60.0,
        "repeatable": True,
        "issued_at": NOW,
        **fields,
    }
    return Order(**given)


@dataclass
class Room:
    """A run's folder with a step context in it, and the model that works there."""

    folder: Path
    model: Script
    context: StepContext
    rules: LoopRules = field(default_factory=LoopRules)
    budget: Budget = field(default_factory=lambda: Budget(BOUNDS))
    stop: threading.Event = field(default_factory=threading.Event)
    choose: Callable[[str | None], Model | None] | None = None  # None: the model that works here

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "steps").iterdir())

    def log(self, step: str = "look.1") -> list[JsonObject]:
        lines = (self.folder / "steps" / f"{step}.log.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def attempt(self, order: Order, stop: StopSign | None = None) -> Result | Asked:
        """Let the model do an order."""
        name, context = f"steps/{order.step}.{order.attempt}", replace(self.context, stop=stop or self.stop)
        session = ModelSession(context.log, self.budget, context.stop, context.deadline, name=name)
        model = self.choose(order.model) if self.choose else self.model
        output = Path(context.steps_folder.path(order.step, order.attempt, "output"))
        own = replace(context, name=name, model=model, session=session, output_file=output)
        return attempt(Task(order, self.rules), own)


def a_room(
    tmp_path: Path,
    turns: Iterable[Turn],
    *,
    sandbox: Sandbox = "none",
    workdir: Path | None = None,
    environ: Mapping[str, str] | None = None,
    output_bytes: int = 4096,
    budget: Budget | None = None,
    choose: Callable[[str | None], Model | None] | None = None,
    **rules: Any,
) -> Room:
    """Return a room whose model says these things."""
    work = a_context(tmp_path, sandbox, workdir=workdir, output_bytes=output_bytes, environ=environ)
    folder = work.workspace / "runs/2026-11-16/demo"
    (folder / "revisions").mkdir(exist_ok=True)
    context = replace(work.context, tools=builtins())
    return Room(folder, Script(list(turns)), context, LoopRules(**rules), budget or Budget(BOUNDS), work.stop, choose)

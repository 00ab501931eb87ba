"""A model that says what a test tells it to, and desks, orders and shops for it to work with."""

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentfs.core.records import JsonObject, Order, Sandbox, Usage
from agentfs.core.run_state import Bounds
from agentfs.executor.attempt import Workshop
from agentfs.executor.desk import Desk
from agentfs.models.base import ModelSession, Reply, Request, ToolCall
from agentfs.models.budget import Budget
from agentfs.storage.clock import Clock
from agentfs.storage.steps_folder import Shelf
from agentfs.tools.base import Confinement
from agentfs.tools.registry import builtins
from agentfs.tools.secrets import SecretMask
from tests.benches import a_workspace
from tests.builders import NOW, RUN

Turn = Reply | Exception | Callable[[Request], Reply]
_ids = itertools.count(1)
BOUNDS = Bounds(3, 2, 4, 200, 300, 2_000_000, 5.0, 120, 65536)


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

    def told(self, turn: int = -1) -> list[str]:
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
    """A run's folder with a shop in it, and the model that works there."""

    folder: Path
    model: Script
    shop: Workshop
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "steps").iterdir())

    def log(self, step: str = "look.1") -> list[JsonObject]:
        lines = (self.folder / "steps" / f"{step}.log.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def with_desk(self, **fields: Any) -> "Room":
        assert self.shop.desk is not None
        return replace(self, shop=replace(self.shop, desk=replace(self.shop.desk, **fields)))


def a_room(
    tmp_path: Path, turns: Iterable[Turn], *, sandbox: Sandbox = "none", workdir: Path | None = None, **desk: Any
) -> Room:
    """Return a shop whose model says these things."""
    workspace = a_workspace(tmp_path)
    folder = workspace / "runs/2026-11-16/demo"
    (folder / "revisions").mkdir(exist_ok=True)
    model = Script(list(turns))
    shop = Workshop(
        shelf=Shelf.of(folder),
        confinement=Confinement(
            workdir=workdir or folder / "files", workspace=workspace, run_files=folder / "files", sandbox=sandbox
        ),
        tools=builtins(),
        mask=SecretMask(desk.pop("environ", {})),
        clock=Clock(),
        output_bytes=desk.pop("output_bytes", 4096),
        desk=Desk(**{"choose": lambda _name: model, "meter": Budget(BOUNDS), "workspace": workspace, **desk}),
    )
    return Room(folder, model, shop)

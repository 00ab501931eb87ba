"""The log of a conversation is exact: what was sent can be read back from it, word for word, and no secret is in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Usage
from agentfs.models.base import ModelSession, Request, usage_in
from agentfs.models.budget import Budget
from agentfs.storage.clock import Clock
from agentfs.storage.files import JsonLines
from agentfs.testing import ScriptedServer
from agentfs.tools.secrets import SecretMask
from tests.conversations import Talk, a_model, ask, bounds, message, offer, tool_result


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def sent(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every request of a log as it was sent, by the rule of `keep` and `body`."""
    messages: dict[str, list[Any]] = {}
    body: dict[str, Any] = {}
    found = []
    for line in lines:
        if line["event"] == "request":
            role = line["role"]
            messages[role] = messages.get(role, [])[: line["keep"]] + line["messages"]
            body[role] = line.get("body", body.get(role))
            found.append({"model": line["model"], "messages": messages[role], "stream": True, **body[role]})
    return found


def test_what_was_sent_can_be_read_back(server: ScriptedServer, tmp_path: Path) -> None:
    server.calls(("shell", {"command": "ls"}))
    server.fails(503)
    server.calls(("shell", {"command": "wc -l a.txt"}))
    server.says("Three lines.")
    server.says('{"met": true}')
    model, offers = a_model(tmp_path, server.url), (offer("shell", "command"),)
    path = tmp_path / "1.log.jsonl"
    with JsonLines(path, SecretMask({}), Clock()) as log:
        line = ModelSession(log.write, Budget(bounds()), Talk().stop, float("inf"))
        messages = ask("How long is it?").messages
        for output in ("a.txt", "3 a.txt"):
            reply = model.complete(Request("executor", messages, offers), line)
            messages = (*messages, reply.message(), tool_result(reply.tool_calls[0].id, output))
        model.complete(Request("executor", messages, offers), line)
        model.complete(Request("judge", (message("user", "Is it met?"),)), line)
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    assert sent(lines) == server.requests
    assert [one["keep"] for one in lines if one["event"] == "request"] == [0, 2, 4, 4, 0]
    assert usage_in(path) == line.usage


def test_a_request_whose_end_nobody_saw_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "1.log.jsonl"
    with JsonLines(path, SecretMask({}), Clock()) as log:
        line = ModelSession(log.write, Budget(bounds()), Talk().stop, float("inf"))
        line.log_request("planner", "big", (message("user", "Plan!"),))
    assert usage_in(path) == Usage(
        role="planner", model="big", requests=1, input_tokens=0, cached_tokens=0, output_tokens=0, cost_usd=None
    )


def test_a_reply_is_logged_with_all_that_is_known_of_it(server: ScriptedServer, tmp_path: Path) -> None:
    server.says("Paris", tokens=(100, 60, 20, 5))
    talk = Talk()
    price = {"input": 2.0, "cached": 1.0, "output": 10.0}
    a_model(tmp_path, server.url, price=price).complete(ask(), talk.line)
    logged = talk.logged("reply")[0]
    seconds = logged.pop("seconds")
    assert seconds > 0
    assert logged == {
        "number": 1,
        "message": message("assistant", "Paris"),
        "usage": {
            "model": "tiny",
            "input_tokens": 100,
            "cached_tokens": 60,
            "output_tokens": 20,
            "cost_usd": pytest.approx((40 * 2 + 60 * 1 + 20 * 10) / 1e6),
        },
        "finish": "stop",
        "request_id": "req_1",
        "served_by": "tiny",
        "reasoning_tokens": 5,
    }


def test_no_secret_in_a_log(server: ScriptedServer, tmp_path: Path) -> None:
    server.fails(500, "I was given sk-very-secret by you")
    server.says("Your token is hush-hush-hush.")
    path, environment = tmp_path / "1.log.jsonl", {"OPENAI_API_KEY": "sk-very-secret", "MY_TOKEN": "hush-hush-hush"}
    with JsonLines(path, SecretMask(environment), Clock()) as log:
        line = ModelSession(log.write, Budget(bounds()), Talk().stop, float("inf"))
        reply = a_model(tmp_path, server.url).complete(ask("Is it hush-hush-hush?"), line)
    assert reply.text == "Your token is hush-hush-hush."
    text = path.read_text(encoding="utf-8")
    assert "hush-hush-hush" not in text
    assert "sk-very-secret" not in text
    assert text.count("[secret MY_TOKEN]") == 2
    assert server.headers[0]["authorization"] == "Bearer sk-very-secret"


def test_a_server_of_ones_own_needs_no_key(server: ScriptedServer, tmp_path: Path) -> None:
    server.says("yes")
    a_model(tmp_path, server.url, key="").complete(ask(), Talk().line)
    assert server.headers[0]["authorization"] == "Bearer none"


def test_the_address_may_come_from_the_environment(server: ScriptedServer, tmp_path: Path) -> None:
    from agentfs.core.config import PlannerSettings
    from agentfs.models import create_model

    server.says("yes")
    environment = {"HOME": str(tmp_path), "MY_KEY": "sk-mine", "OPENAI_BASE_URL": server.url}
    model = create_model(PlannerSettings(api_key_env="MY_KEY"), "big", None, environment)
    assert model.complete(ask(), Talk().line).text == "yes"
    assert server.headers[0]["authorization"] == "Bearer sk-mine"

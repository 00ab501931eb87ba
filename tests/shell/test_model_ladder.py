"""Endpoints that take less than others: what they are asked instead, and that it is remembered."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.models.base import Request
from agentfs.testing import ScriptedServer, replies
from tests.conversations import CITY, Talk, a_model, ask, message, offer, tool_result

PARIS = {"name": "Paris", "people": 2_100_000}
ENDPOINTS = ".cache/agentfs/endpoints.json"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def rung(request: dict[str, Any]) -> str:
    """Return how a request asks for JSON."""
    if "tool_choice" in request:
        return "tool"
    return {"json_schema": "schema", "json_object": "object"}.get(
        request.get("response_format", {}).get("type"), "text"
    )


@pytest.mark.parametrize(
    ("refuses", "rungs"),
    [
        ([], ["schema"]),
        (["json_schema"], ["schema", "tool"]),
        (["json_schema", "tool_choice"], ["schema", "tool", "object"]),
        (["json_schema", "tools"], ["schema", "tool", "object"]),
        (["json_schema", "tools", "json_object"], ["schema", "tool", "object", "text"]),
    ],
    ids=str,
)
def test_json_is_asked_for_as_the_endpoint_takes_it(
    refuses: list[str], rungs: list[str], server: ScriptedServer, tmp_path: Path
) -> None:
    server.refuses = frozenset(refuses)
    server.plan(PARIS)
    server.plan(PARIS)
    server.plan(PARIS)
    model = a_model(tmp_path, server.url)
    assert json.loads(model.complete(ask(form=CITY), Talk().line).text) == PARIS
    assert [rung(request) for request in server.requests] == rungs
    model.complete(ask(form=CITY), Talk().line)
    assert [rung(request) for request in server.requests] == [*rungs, rungs[-1]], "it is remembered here"
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    assert [rung(request) for request in server.requests] == [*rungs, rungs[-1], rungs[-1]], "and for the next run"
    server.done()


def test_the_schema_is_put_in_words_where_it_cannot_be_sent(server: ScriptedServer, tmp_path: Path) -> None:
    server.refuses = frozenset({"json_schema", "tools"})
    server.plan(PARIS)
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    system = server.requests[-1]["messages"][0]["content"]
    assert system.startswith("You are brief.\n\n")
    assert json.loads(system.splitlines()[-1]) == CITY.schema
    assert [message["role"] for message in server.requests[-1]["messages"]] == ["system", "user"]


def test_an_endpoint_that_ignores_the_form_is_asked_in_another_way(server: ScriptedServer, tmp_path: Path) -> None:
    server.says("Paris, with about two million people.")
    server.says("As I said: Paris.")
    server.says(f"Sure!\n```json\n{json.dumps(PARIS)}\n```\nAnything else?")
    talk = Talk()
    reply = a_model(tmp_path, server.url).complete(ask(form=CITY), talk.line)
    assert json.loads(reply.text) == PARIS
    assert [rung(request) for request in server.requests] == ["schema", "tool", "object"]
    assert talk.story == ["request", "reply"] * 3, "each was a reply, and cost what it cost"


def test_at_the_end_words_are_all_there_is(server: ScriptedServer, tmp_path: Path) -> None:
    server.answer = lambda _: replies.says("I do not know.")
    model = a_model(tmp_path, server.url)
    assert model.complete(ask(form=CITY), Talk().line).text == "I do not know."
    assert [rung(request) for request in server.requests] == ["schema", "tool", "object"]


def test_other_errors_teach_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    server.fails(500, "response_format: the machine is on fire")
    server.plan(PARIS)
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    assert [rung(request) for request in server.requests] == ["schema", "schema"]


@pytest.mark.parametrize("option", ["temperature", "stream_options"])
def test_what_is_refused_is_left_out_from_then_on(option: str, server: ScriptedServer, tmp_path: Path) -> None:
    server.refuses = frozenset({option})
    server.says("yes")
    server.says("yes")
    model = a_model(tmp_path, server.url, temperature=0.5)
    model.complete(ask(), Talk().line)
    model.complete(ask(), Talk().line)
    assert [option in request for request in server.requests] == [True, False, False]
    a_model(tmp_path, server.url, name="other", temperature=0.5)
    assert list(json.loads((tmp_path / ENDPOINTS).read_bytes())) == [f"{server.url} tiny"]


def test_temperature_is_sent_only_if_set(server: ScriptedServer, tmp_path: Path) -> None:
    server.says("yes")
    server.says("yes")
    a_model(tmp_path, server.url).complete(ask(), Talk().line)
    a_model(tmp_path, server.url, temperature=0).complete(ask(), Talk().line)
    assert [request.get("temperature", "unset") for request in server.requests] == ["unset", 0]
    assert server.requests[0] == {
        "model": "tiny",
        "messages": list(ask().messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_body_of_ones_own(server: ScriptedServer, tmp_path: Path) -> None:
    server.says("yes")
    body = {"reasoning_effort": "low", "options": {"num_ctx": 8192}}
    a_model(tmp_path, server.url, extra_body=body).complete(ask(), Talk().line)
    assert {name: server.requests[0][name] for name in body} == body


def test_tools_are_offered_in_words_where_an_endpoint_takes_none(server: ScriptedServer, tmp_path: Path) -> None:
    server.refuses = frozenset({"tools"})
    server.says("```sh\nls\n```")
    server.says('```json\n{"tool": "look_up", "word": "a"}\n```')
    server.says("There is a.txt.")
    model, offers = a_model(tmp_path, server.url), (offer("shell", "command"), offer("look_up", "word"))
    first = model.complete(ask(offers=offers), Talk().line)
    assert (first.text, first.spoken) == ("", True)
    assert [(call.name, json.loads(call.arguments)) for call in first.tool_calls] == [("shell", {"command": "ls"})]

    messages = (*ask().messages, first.message(), tool_result(first.tool_calls[0].id, ""), message("user", "Go on."))
    second = model.complete(Request("executor", messages, offers), Talk().line)
    messages += (second.message(), tool_result(second.tool_calls[0].id, "a.txt"))
    model.complete(Request("executor", messages, offers), Talk().line)
    sent = server.requests[-1]["messages"]
    assert "tools" not in server.requests[-1]
    assert sent == [
        message(
            "system",
            "You are brief.\n\nEach turn reply with exactly one ```sh block; it is run and you get its output.\n\n"
            "Instead of that, the one block may be json and hold one of these:\n"
            '{"tool": "look_up", "word": "…"}  Does look_up.',
        ),
        message("user", "What is it?\n\nWrite the sh commands that do this, in one sh block."),
        message("assistant", "```sh\nls\n```"),
        message("user", "Result:\n(nothing)\n\nGo on."),
        message("assistant", '```json\n{"tool": "look_up", "word": "a"}\n```'),
        message("user", "Result:\na.txt"),
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (404, "No endpoints found that support tool use."),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_the_ways_in_which_tools_are_refused(status: int, words: str, server: ScriptedServer, tmp_path: Path) -> None:
    server.fails(status, words)
    server.says("yes")
    a_model(tmp_path, server.url).complete(ask(offers=(offer("shell", "command"),)), Talk().line)
    assert ["tools" in request for request in server.requests] == [True, False]


def habits(home: Path, server: ScriptedServer) -> dict[str, Any]:
    known = json.loads((home / ENDPOINTS).read_bytes()) if (home / ENDPOINTS).exists() else {}
    return dict(known.get(f"{server.url} tiny", {}))


def test_an_endpoint_that_writes_its_first_call_as_text_is_known_to_make_none(
    server: ScriptedServer, tmp_path: Path
) -> None:
    written = '```json\n{"name": "shell", "arguments": {"command": "ls"}}\n```'
    server.says(written)
    server.says(written)
    talk, offers = Talk(), (offer("shell", "command"),)
    model = a_model(tmp_path, server.url)
    first = model.complete(ask(offers=offers), talk.line)
    assert (first.tool_calls, first.text, first.restart) == ((), written, True), "what teaches it is not run"
    assert talk.logged("reply")[0]["restart"] is True
    assert (habits(tmp_path, server)["tools"], habits(tmp_path, server)["native"]) == (False, False)
    second = a_model(tmp_path, server.url).complete(ask(offers=offers), talk.line)
    assert [(call.id, call.name) for call in second.tool_calls] == [("call_1", "shell")]
    assert ["tools" in request for request in server.requests] == [True, False], "for the next run, too"
    logged = talk.logged("reply")[1]
    assert logged["message"] == message("assistant", written)
    assert logged["taken_as"] == second.message(), "the reply, and what it was taken for"


def test_after_one_native_call_text_is_text(server: ScriptedServer, tmp_path: Path) -> None:
    written, offers = "```sh\nls\n```", (offer("shell", "command"),)
    server.calls(("shell", {"command": "ls"}))
    for _ in range(3):
        server.says(written)
    model = a_model(tmp_path, server.url)
    assert model.complete(ask(offers=offers), Talk().line).tool_calls
    assert habits(tmp_path, server)["native"] is True
    talked = (*ask().messages, message("assistant", "Well."), message("user", "Call a tool."))
    for another in (model, a_model(tmp_path, server.url)):
        reply = another.complete(Request("executor", talked, offers), Talk().line)
        assert (reply.tool_calls, reply.text, reply.restart) == ((), written, False)
    assert all("tools" in request for request in server.requests)


def test_one_that_only_talks_is_spoken_to_in_words_for_now(server: ScriptedServer, tmp_path: Path) -> None:
    for _ in range(4):
        server.says("I would look first.")
    model, offers = a_model(tmp_path, server.url), (offer("shell", "command"),)
    assert model.complete(ask(offers=offers), Talk().line).restart is False
    talked = (*ask().messages, message("assistant", "I would look first."), message("user", "Call a tool."))
    assert model.complete(Request("executor", talked, offers), Talk().line).restart is True
    assert model.complete(ask(offers=offers), Talk().line).spoken is True
    assert habits(tmp_path, server) == {}, "nothing is remembered for other runs: it is a guess"
    a_model(tmp_path, server.url).complete(ask(offers=offers), Talk().line)
    assert ["tools" in request for request in server.requests] == [True, True, False, True]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"x": 1}', '{"URL tiny": {"json_mode": "fish", "on": "2026-11-16"}}']
)
def test_a_broken_memory_is_no_memory(content: str, server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / ENDPOINTS).parent.mkdir(parents=True)
    (tmp_path / ENDPOINTS).write_text(content.replace("URL", server.url), encoding="utf-8")
    server.plan(PARIS)
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    assert rung(server.requests[0]) == "schema"


def test_what_is_remembered_grows_old(server: ScriptedServer, tmp_path: Path) -> None:
    server.refuses = frozenset({"json_schema"})
    server.plan(PARIS)
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    path = tmp_path / ENDPOINTS
    old = json.loads(path.read_bytes())
    old[f"{server.url} tiny"]["on"] = "2020-01-01"
    path.write_text(json.dumps(old), encoding="utf-8")
    server.refuses = frozenset()
    server.plan(PARIS)
    a_model(tmp_path, server.url).complete(ask(form=CITY), Talk().line)
    assert [rung(request) for request in server.requests] == ["schema", "tool", "schema"]


def test_no_place_to_remember_is_no_error(server: ScriptedServer, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, no folder", encoding="utf-8")
    server.refuses = frozenset({"json_schema"})
    server.plan(PARIS)
    assert json.loads(a_model(home, server.url).complete(ask(form=CITY), Talk().line).text) == PARIS

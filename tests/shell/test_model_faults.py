"""What goes wrong between us and an endpoint, over a real connection: retried, repaired or reported in one line."""

import json
import math
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from agentfs.models.base import Garbled, LimitReached, Model, ModelError, Refused, Reply, Stopped, Unreachable
from agentfs.testing import ScriptedReply, ScriptedServer, replies
from tests.conversations import QUICK, Talk, a_model, ask, bounds, offer, soon


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def model(server: ScriptedServer, tmp_path: Path) -> Model:
    return a_model(tmp_path, server.url)


RETRIED = {
    "408": replies.fails(408),
    "409": replies.fails(409),
    "429": replies.fails(429),
    "500": replies.fails(500),
    "502 with a page": replies.page("<html><h1>Bad Gateway</h1></html>", 502),
    "503": replies.fails(503, retry_after="0"),
    "reset before the answer": ScriptedReply(resets_after=0),
    "reset in the middle": ScriptedReply(text="half of it and more", resets_after=2),
    "no finish_reason": ScriptedReply(text="half of it and more", ends_after=2),
    "a call without its end": ScriptedReply(calls=(("shell", {"command": "rm -r build"}),), ends_after=3),
    "no JSON": ScriptedReply(body=b'data: {"choi\n\ndata: [DONE]\n\n', headers={"Content-Type": "text/event-stream"}),
    "no object": ScriptedReply(body=b"data: 7\n\n", headers={"Content-Type": "text/event-stream"}),
    "an error in the stream": ScriptedReply(
        body=b'data: {"error": {"message": "overloaded", "code": 503}}\n\n',
        headers={"Content-Type": "text/event-stream"},
    ),
    "nothing at all": ScriptedReply(body=b"", headers={"Content-Type": "text/event-stream"}),
    "an empty message": ScriptedReply(text=""),
}


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
def test_what_may_pass_is_tried_again(fault: ScriptedReply, server: ScriptedServer, model: Model) -> None:
    server.add(fault)
    server.says("Paris")
    talk = Talk()
    assert model.complete(ask(offers=(offer("shell", "command"),)), talk.line).text == "Paris"
    assert talk.story == ["request", "failed", "request", "reply"]
    assert talk.budget.spent.requests == 2, "a try is a request"
    assert server.requests[0] == server.requests[1]
    server.done()


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
def test_but_not_for_ever(fault: ScriptedReply, server: ScriptedServer, model: Model) -> None:
    server.answer = lambda _: fault
    talk = Talk()
    with pytest.raises(ModelError):
        model.complete(ask(), talk.line)
    reached = fault.resets_after != 0
    assert len(server.requests) == (QUICK.tries if reached else QUICK.connect_tries)
    assert talk.logged("failed")[-1]["again_in"] is None


def test_an_endpoint_that_cuts_every_stream_is_at_fault_itself(server: ScriptedServer, model: Model) -> None:
    server.answer = lambda _: ScriptedReply(calls=(("shell", {"command": "rm -r build"}),), ends_after=3)
    talk = Talk()
    with pytest.raises(Unreachable, match="the reply broke off: it has no finish_reason"):
        model.complete(ask(offers=(offer("shell", "command"),)), talk.line)
    assert len(server.requests) == QUICK.tries, "it is asked again first"
    assert talk.line.usage is not None
    assert talk.line.usage.cost_usd is None, "it cost something, and nobody knows what"


def test_what_a_server_asks_for_is_waited(server: ScriptedServer, model: Model) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.fails(429, retry_after="0.03")
    server.fails(429, retry_after=soon)
    server.fails(429, retry_after="3600")
    server.fails(429, retry_after="whenever")
    server.says("Paris")
    talk = Talk()
    model.complete(ask(), talk.line)
    waits = [failed["again_in"] for failed in talk.logged("failed")]
    assert waits[:3] == [0.03, QUICK.longest_wait, QUICK.longest_wait], "a date too, and capped"
    assert 0 < waits[3] <= 0.08


def test_waiting_is_cut_by_the_stop_sign(server: ScriptedServer, tmp_path: Path) -> None:
    model = a_model(tmp_path, server.url, policy=replace(QUICK, longest_wait=600))
    server.fails(429, retry_after="600")
    talk = Talk()
    threading.Timer(0.5, talk.stop.set).start()
    with pytest.raises(Stopped):
        model.complete(ask(), talk.line)
    assert talk.story == ["request", "failed"]


def test_waiting_is_cut_by_the_limits(server: ScriptedServer, model: Model) -> None:
    server.answer = lambda _: replies.fails(500)
    talk = Talk(limits=bounds(requests=2))
    with pytest.raises(LimitReached):
        model.complete(ask(), talk.line)
    assert len(server.requests) == 2


UNREACHABLE = {
    "a wrong key": (
        replies.fails(401, "Incorrect API key provided: sk-very-secret.", "invalid_api_key"),
        ("{url} refuses the key in OPENAI_API_KEY (401: Incorrect API key provided: [secret OPENAI_API_KEY].)"),
        "set OPENAI_API_KEY to a key of that endpoint, or api_key_env under [executor] in agentfs.toml",
    ),
    "no such model": (
        replies.fails(404, "The model `tiny` does not exist or you do not have access to it.", "model_not_found"),
        ("{url} has no model 'tiny' (404: The model `tiny` does not exist or you do not have access to it.)"),
        "set model under [executor] in agentfs.toml to one that it has",
    ),
    "no such model, as Ollama has it": (
        replies.fails(404, 'model "tiny" not found, try pulling it first'),
        "{url} has no model 'tiny' (404: model \"tiny\" not found, try pulling it first)",
        "set model under [executor] in agentfs.toml to one that it has",
    ),
    "no such model, as OpenRouter has it": (
        replies.fails(400, "tiny is not a valid model ID"),
        "{url} has no model 'tiny' (400: tiny is not a valid model ID)",
        "set model under [executor] in agentfs.toml to one that it has",
    ),
    "a web page": (
        replies.page(),
        "{url} is no address of a model: it answers with a web page",
        "set base_url under [executor] in agentfs.toml; it often ends in /v1",
    ),
    "nothing at that path": (
        replies.page("<h1>Not Found</h1>", 404),
        "{url} is no address of a model: it answers 404",
        "set base_url under [executor] in agentfs.toml; it often ends in /v1",
    ),
    "no credit": (
        replies.fails(429, "You exceeded your current quota.", "insufficient_quota"),
        "{url} wants to be paid first (429: You exceeded your current quota.)",
        "add credit there, then resume",
    ),
    "a field it does not know": (
        replies.fails(400, "Unrecognized request argument supplied: speed"),
        "{url} does not take the request (400: Unrecognized request argument supplied: speed)",
        "look at [executor] in agentfs.toml",
    ),
}


@pytest.mark.parametrize(("fault", "message", "hint"), UNREACHABLE.values(), ids=UNREACHABLE.keys())
def test_what_a_person_must_fix(
    fault: ScriptedReply, message: str, hint: str, server: ScriptedServer, model: Model
) -> None:
    server.add(fault)
    with pytest.raises(Unreachable) as caught:
        model.complete(ask(), Talk().line)
    failure = caught.value.failure
    assert (failure.kind, failure.message, failure.hint) == ("unreachable", message.format(url=server.url), hint)
    server.done()


@pytest.mark.parametrize("key", ["sk-very-\nsecret", "sk-very-sécret"])
def test_a_key_that_cannot_be_sent_is_not_quoted(key: str, server: ScriptedServer, tmp_path: Path) -> None:
    talk = Talk()
    with pytest.raises(Unreachable) as caught:
        a_model(tmp_path, server.url, key=key).complete(ask(), talk.line)
    assert caught.value.failure.message == "OPENAI_API_KEY holds a line break, or another character that no key has"
    assert (server.requests, talk.story) == ([], ["request", "failed"])
    assert "sk-very" not in repr(talk.events)


SAYS_A = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'
UNUSUAL = {
    "bytes that are no text": (SAYS_A.replace(b'"a"', b'"a\xff"') + b"\n\n", "a\ufffd"),
    "no empty line at the end": (SAYS_A, "a"),
    "events without data": (b"retry: 3\n\nid: 7\n\nevent: ping\n\n: comment\n\n" + SAYS_A + b"\n\n\n\n", "a"),
}


@pytest.mark.parametrize(("body", "text"), UNUSUAL.values(), ids=UNUSUAL.keys())
def test_unusual_streams_are_read(body: bytes, text: str, server: ScriptedServer, model: Model) -> None:
    server.add(ScriptedReply(body=body, headers={"Content-Type": "text/event-stream"}))
    assert model.complete(ask(), Talk().line).text == text


def test_nobody_opens(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        talk = Talk()
        with pytest.raises(Unreachable) as caught:
            a_model(tmp_path, url).complete(ask(), talk.line)
    assert caught.value.failure.message == f"{url} cannot be reached: Connection refused"
    assert "is the server running?" in (caught.value.failure.hint or "")
    assert len(talk.logged("failed")) == QUICK.connect_tries
    assert talk.line.usage is not None
    assert talk.line.usage.cost_usd == 0.0


def test_no_such_host(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"http://nowhere\.invalid/v1 cannot be reached: "):
        a_model(tmp_path, "http://user:hush@nowhere.invalid/v1").complete(ask(), Talk().line)


@pytest.mark.parametrize("url", ["http://[x/v1", "http://a:b/v1", "localhost/v1"])
def test_an_address_that_is_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"{re.escape(url)} cannot be reached: "):
        a_model(tmp_path, url).complete(ask(), Talk().line)


REFUSED = {
    "by a filter in front": (replies.fails(400, "The response was filtered", "content_filter"), "a content filter"),
    "by a filter behind": (replies.says("half", finish="content_filter"), "a content filter stopped the reply"),
    "by the model": (
        ScriptedReply(refusal="I cannot help with that."),
        "the model refused: I cannot help with that.",
    ),
    "for its length": (
        replies.fails(400, "This model's maximum context length is 8192 tokens (9000 in the functions)"),
        "the request is too long for tiny",
    ),
}


@pytest.mark.parametrize(("fault", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_is_not_tried_again(
    fault: ScriptedReply, message: str, server: ScriptedServer, model: Model
) -> None:
    server.add(fault)
    with pytest.raises(Refused, match=message):
        model.complete(ask(offers=(offer("shell", "command"),)), Talk().line)
    server.done()


def test_a_tool_call_cut_short_is_never_given_out(server: ScriptedServer, model: Model) -> None:
    server.calls(("shell", '{"command": "rm -r bui'), finish="length")
    reply = model.complete(ask(offers=(offer("shell", "command"),)), Talk().line)
    assert (reply.tool_calls, reply.finish) == ((), "length"), "the caller says so to the model"


def test_a_reply_without_end_is_let_go_of(server: ScriptedServer, tmp_path: Path) -> None:
    model = a_model(tmp_path, server.url, policy=replace(QUICK, whole=120))
    server.says("x" * 16384, repeats=1024)
    talk = Talk()
    with pytest.raises(Garbled, match="the reply is too large"):
        model.complete(ask(), talk.line)
    assert max(talk.progress) <= 4 * 1024 * 1024
    assert len(talk.logged("failed")[0]["fragment"]) == 20_000


def test_one_event_without_end_is_let_go_of(server: ScriptedServer, model: Model) -> None:
    server.add(ScriptedReply(body=b"data: " + b"x" * 20_000_000, headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(Garbled, match="the reply is too large"):
        model.complete(ask(), Talk().line)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (replace(QUICK, first_byte=0.2, tries=2), "the endpoint is silent: no answer in 0.2 s"),
        (replace(QUICK, between=0.2, tries=2), "the endpoint is silent: nothing more in 0.2 s"),
        (replace(QUICK, whole=0.2, tries=2), "the endpoint is silent: no end after 0.2 s"),
    ],
    ids=["the first byte", "the next piece", "the end"],
)
def test_timeouts_are_ours(policy: Any, message: str, server: ScriptedServer, tmp_path: Path) -> None:
    whole = policy.between == QUICK.between
    server.answer = lambda _: replies.says("Paris and more of it", pause_s=0.25 if whole else 0.5)
    if policy.between == 0.2:
        server.answer = lambda _: _dripping()
    with pytest.raises(Unreachable, match=message):
        a_model(tmp_path, server.url, policy=policy).complete(ask(), Talk().line)
    assert len(server.requests) == 2


def _dripping() -> ScriptedReply:
    """Answer at once, then no more."""
    return ScriptedReply(text="Paris", stalls_after=1)


def test_progress_is_reported_while_a_reply_arrives(server: ScriptedServer, model: Model) -> None:
    server.says("x" * 100)
    talk = Talk()
    model.complete(ask(), talk.line)
    assert talk.progress == sorted(talk.progress)
    assert (talk.progress[0], talk.progress[-1]) == (0, 100)
    assert len(set(talk.progress)) > 3


def test_an_endpoint_that_does_not_stream(server: ScriptedServer, model: Model) -> None:
    whole = replies.whole(replies.calls(("shell", {"command": "ls"}), tokens=(7, 0, 3, 0)), {"model": "tiny"})
    server.add(ScriptedReply(body=json.dumps(whole).encode(), headers={"Content-Type": "application/json"}))
    reply = model.complete(ask(offers=(offer("shell", "command"),)), Talk().line)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("shell", '{"command": "ls"}')]
    assert (reply.finish, reply.tokens.input, reply.tokens.output) == ("tool_calls", 7, 3)


def test_usage_without_details(server: ScriptedServer, model: Model) -> None:
    whole = replies.whole(replies.says("Paris"), {"model": "tiny"})
    whole["usage"] = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}
    server.add(ScriptedReply(body=json.dumps(whole).encode(), headers={"Content-Type": "application/json"}))
    reply = model.complete(ask(), Talk().line)
    assert (reply.tokens.input, reply.tokens.cached, reply.tokens.output) == (7, 0, 3)


def test_many_at_once_keep_within_the_limit(server: ScriptedServer, model: Model) -> None:
    server.answer = lambda _: replies.says("yes", pause_s=0.05)
    talk = Talk(limits=bounds(requests=5))
    done: list[Reply | Exception] = []

    def one() -> None:
        line = replace(talk.line, deadline=math.inf)
        try:
            done.append(model.complete(ask(), line))
        except LimitReached as error:
            done.append(error)

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 5
    assert sum(isinstance(one, LimitReached) for one in done) == 7
    assert (talk.budget.spent.requests, talk.budget.reserved.requests) == (5, 0)


def test_the_deadline_of_a_step_is_kept_while_a_reply_drips(server: ScriptedServer, model: Model) -> None:
    server.says("x" * 10_000, pause_s=0.05)
    talk = Talk(deadline=soon(0.6))
    with pytest.raises(Stopped):
        model.complete(ask(), talk.line)
    assert talk.logged("failed")[0]["error"] == {
        "kind": "timeout",
        "message": "its time was up while a model was asked",
    }

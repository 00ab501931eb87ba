"""An endpoint that means harm: whatever it sends is a reply or one clear failure of that request, within bounds.

Without the bounds: a traceback for an index that is a list, a usage of true or of 10^400 and content nested a thousand
times; 3 GB for 3 MB that were compressed, for an error's body and for the ids of tool calls.
"""

import asyncio
import gzip
import json
import random
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfs.models.base import Model, ModelError, Stopped
from agentfs.models.endpoint import Fault
from agentfs.models.openai import MOST_EVENT_BYTES, bound_pieces
from agentfs.storage.clock import Clock
from agentfs.storage.files import one_line
from agentfs.testing import ScriptedReply, ScriptedServer, replies
from agentfs.tools.secrets import SecretMask
from tests.conversations import QUICK, Talk, a_model, ask, offer
from tests.security.test_bounds import MEGABYTE, measured
from tests.workspaces import Place

EVENTS = {"Content-Type": "text/event-stream"}
COMPRESSED = {**EVENTS, "Content-Encoding": "gzip"}
ONCE = replace(QUICK, tries=1)
MOST_MEMORY = 64 * MEGABYTE
MOST_SECONDS = 10.0
MUTATIONS = 200


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def model(server: ScriptedServer, tmp_path: Path) -> Model:
    return a_model(tmp_path, server.url, policy=ONCE)


def stream(*chunks: Any) -> ScriptedReply:
    return raw(b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n")


def delta(finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "shell", "arguments": "{}"}, **fields}])


def nested(levels: int, inner: str = '"x"') -> str:
    return '[{"text": ' * levels + inner + "}]" * levels


def raw(body: str | bytes, headers: Mapping[str, str] = EVENTS, status: int = 200) -> ScriptedReply:
    source = body if isinstance(body, bytes) else body.encode()
    return ScriptedReply(body=source, status=status, headers=headers)


MANY_CALLS = [call(index=n, id="i" * 1000, function={}) for n in range(400)]
FAILS: dict[str, tuple[ScriptedReply | Callable[[], ScriptedReply], str]] = {
    "an index that is a list": (stream(call(index=[1])), "the reply is malformed: the index of a tool call is [1]"),
    "an index that is true": (stream(call(index=True)), "the reply is malformed: the index of a tool call is true"),
    "a usage that is true": (
        stream(delta(content="x"), {"usage": {"prompt_tokens": True}}),
        "the reply is malformed: prompt_tokens of its usage is true",
    ),
    "a usage beyond all bounds": (
        stream(delta(content="x"), {"usage": {"completion_tokens": 10**30}}),
        f"the reply is malformed: completion_tokens of its usage is 1{'0' * 30}",
    ),
    "content nested six hundred times": (
        raw(f'data: {{"choices": [{{"delta": {{"content": {nested(300)}}}, "finish_reason": "stop"}}]}}\n\n'),
        "the reply is malformed: nested more than 100 levels deep",
    ),
    "arguments nested six hundred times": (
        raw(
            'data: {"choices": [{"delta": {"tool_calls": [{"function": {"name": "shell", "arguments": '
            f'{nested(300)}}}}}]}}, "finish_reason": "stop"}}]}}\n\n'
        ),
        "the reply is malformed: nested more than 100 levels deep",
    ),
    "ids of tool calls without end": (stream(*MANY_CALLS), "the reply is too large"),
    "one id of a tool call without end": (stream(call(id="i" * 5_000_000)), "the reply is too large"),
    "a name without end": (stream(call(function={"name": "n" * 5_000_000})), "the reply is too large"),
    "an event without end": (raw(b"data: " + b"x" * 9_000_000), "the reply is too large"),
    "lines of data without end": (raw(b"data:\n" * 2_000_000), "the reply is too large"),
    "a compressed reply": (
        raw(gzip.compress(b"data: " + b"x" * 100), COMPRESSED),
        "the reply is compressed (gzip), which was not asked for",
    ),
    "a bomb": (
        lambda: raw(gzip.compress(b"data: " + b"x" * 300_000_000, 1), COMPRESSED),
        "the reply is compressed (gzip), which was not asked for",
    ),
    "a bomb as an error": (
        lambda: raw(gzip.compress(b"x" * 300_000_000, 1), COMPRESSED, 500),
        "the reply is compressed (gzip), which was not asked for",
    ),
}


def failing(name: str) -> tuple[ScriptedReply, str]:
    """Return a reply and the message about it; the largest are made where they are used."""
    reply, message = FAILS[name]
    return (reply if isinstance(reply, ScriptedReply) else reply()), message


@pytest.mark.parametrize("name", FAILS)
def test_each_is_one_clear_failure_within_bounds(name: str, server: ScriptedServer, model: Model) -> None:
    reply, message = failing(name)
    server.answer = lambda _: reply
    talk = Talk()
    with pytest.raises(ModelError) as raised, bounded():
        model.complete(ask(offers=(offer("shell", "command"),)), talk.line)
    assert raised.value.failure.message.startswith(message), raised.value.failure.message
    assert len(raised.value.failure.message) < 1000
    assert talk.story == ["request", "failed"]


@pytest.mark.parametrize("status", [302, 400, 429, 500, 599])
@pytest.mark.parametrize("body", ["x" * 30_000_000, '{"error": {"message": "' + "x" * 30_000_000, "[" * 9_000_000])
def test_of_an_error_only_the_beginning_is_read(status: int, body: str, server: ScriptedServer, model: Model) -> None:
    server.answer = lambda _: raw(body, {**EVENTS, "Location": "/v1/elsewhere"}, status)
    talk = Talk()
    with pytest.raises(ModelError) as raised, bounded():
        model.complete(ask(), talk.line)
    assert 0 < len(raised.value.failure.message) < 1000


class bounded:  # noqa: N801 - it reads as one
    """Fails if the block takes more memory or more of the processor than any reply is worth."""

    def __enter__(self) -> None:
        import openai  # noqa: F401 - what it takes to import is not meant

        tracemalloc.start()
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.process_time() - self.began < MOST_SECONDS
        assert peak < MOST_MEMORY, f"{peak // MEGABYTE} MB"


async def passed_on(pieces: Iterable[bytes]) -> bytes:
    async def received() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return b"".join([piece async for piece in bound_pieces(received(), 10.0, is_stream=True)])


def test_pieces_of_one_byte_are_passed_on_in_linear_time() -> None:
    began, body = time.process_time(), b"data: " + b"x" * 100_000
    assert asyncio.run(passed_on(bytes((byte,)) for byte in body)) == body + b"\n\n"
    assert time.process_time() - began < MOST_SECONDS


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_the_bound_is_on_each_event_however_its_end_is_sent(end: str) -> None:
    event = b"data: " + b"x" * (MOST_EVENT_BYTES // 3)
    for cut in range(len(end) + 1):
        pieces = [event + end[:cut].encode(), end[cut:].encode()] * 5
        assert asyncio.run(passed_on(pieces)) == b"".join(pieces) + b"\n\n"
    with pytest.raises(Fault):
        asyncio.run(passed_on([event] * 4))


def test_a_reply_that_never_ends_is_dropped_on_stop(server: ScriptedServer, model: Model) -> None:
    """Bytes that never run out leave no pause in which to look."""
    endless = raw(b": nothing\n\n" * 20_000_000)
    server.answer = lambda _: endless
    talk = Talk()
    threading.Timer(0.5, talk.stop.set).start()
    with pytest.raises(Stopped), bounded():
        model.complete(ask(), talk.line)


# ── mutations ─────────────────────────────────────────────────────────────────────────────────────────────

GOOD: list[Any] = [
    *replies.chunks(
        ScriptedReply(text="I look first.", calls=(("shell", {"command": "ls"}), ("shell", {"command": "pwd"}))),
        {"model": "tiny", "messages": [], "stream_options": {"include_usage": True}},
    )
]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**400, 1e308, float("nan"), "", "x" * 100_000, "\ud800", "\0\x1b[2J", [], {}, [[]],
    [{}], {"a": {}}, [None], json.loads(nested(50)), json.loads(nested(200)), {"text": {"text": {}}}, "tool_calls",
    {"message": 7, "code": "x"}, {"message": ["x"], "code": 10**30}, ["x" * 1000] * 100, "429", -(10**20), 0.5,
)  # fmt: skip


def mutated(seed: int) -> bytes:
    """Return a stream in which something is not as it should be: values, names, order, or the bytes themselves."""
    luck = random.Random(seed)
    chunks = json.loads(json.dumps(GOOD))
    for _ in range(luck.randint(1, 4)):
        _change(luck, chunks)
    if luck.random() < 0.2:
        luck.shuffle(chunks)
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    return _torn(luck, body) if luck.random() < 0.4 else body


def _change(luck: random.Random, value: Any) -> None:
    """Replace, remove, rename or repeat one thing somewhere in a tree."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = luck.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and luck.random() < 0.8:
            value = value[key]
            continue
        match luck.randint(0, 3):
            case 0:
                value[key] = luck.choice(VALUES)
            case 1:
                del value[key]
            case 2 if isinstance(value, dict):
                value[luck.choice(["content", "error", "usage", "index", "delta", "id"])] = value.pop(key)
            case 2 | 3 if isinstance(value, list):
                value.extend([value[key]] * luck.choice([1, 2000]))
            case _:
                value[key] = [value[key]]
        return


def _torn(luck: random.Random, body: bytes) -> bytes:
    at, length = luck.randrange(len(body)), luck.randint(1, 40)
    return luck.choice(
        [
            body[:at],
            body[:at] + body[at + length :],
            body[:at] + luck.randbytes(length) + body[at:],
            body[:at] + b"\r\n" * length + body[at:],
            body[:at] + body[at : at + length] * 1000 + body[at:],
            body.replace(b"data: ", b"data:", 3),
            body.replace(b"\n\n", b"\r\n\r\n"),
            body.replace(b"\n\n", b"\n", 2),
        ]
    )


def test_two_hundred_mutations_of_a_stream_are_replies_or_failures(server: ScriptedServer, model: Model) -> None:
    served: list[bytes] = [b""]
    server.answer = lambda request: raw(served[0]) if request["model"] == "tiny" else replies.fails(400)
    mask, clock, came = SecretMask({}), Clock(), {"reply": 0, "failure": 0}
    for seed in range(MUTATIONS):
        served[0], talk = mutated(seed), Talk()
        try:
            text = json.dumps(model.complete(ask(offers=(offer("shell", "command"),)), talk.line).message())
            came["reply"] += 1
        except ModelError as error:
            text = error.failure.message[:1000]
            came["failure"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert text.encode(), seed
        assert talk.story[-1] in ("reply", "failed"), seed
        for event, fields in talk.events:
            json.loads(one_line(event, fields, mask, clock))
        assert 0 <= talk.budget.spent.tokens < 10**10, seed
    assert min(came.values()) > MUTATIONS // 10, came


# ── a program ─────────────────────────────────────────────────────────────────────────────────────────────

PRINTED = {
    '{"content": "x", "tool_calls": 7}': "x",
    '{"content": "x", "usage": {"cost_usd": 1e300, "input_tokens": 7}}': "x",
    '{"content": "x", "usage": {"cost_usd": true}}': "x",
    '{"content": "x", "usage": {"input_tokens": true}}': "the answer is malformed: input_tokens of its usage is true",
    '{"content": "x", "tool_calls": [{"function": {"name": "a"}, "index": {}}]}': (
        "the answer is malformed: the index of a tool call is {}"
    ),
    f'{{"content": {nested(300)}}}': f'{{"content": {nested(300)}}}',
}


@pytest.mark.parametrize("printed", PRINTED)
def test_a_program_that_answers_nonsense(printed: str, tmp_path: Path) -> None:
    model = a_model(tmp_path, kind="command", command=("printf", "%s", printed))
    try:
        text = model.complete(ask(), Talk().line).text
    except ModelError as error:
        text = error.failure.message
    assert text == PRINTED[printed]


# ── a whole run ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["an index that is a list", "a bomb"])
def test_a_run_waits_and_says_why(name: str, tmp_path: Path, server: ScriptedServer) -> None:
    reply, message = failing(name)
    server.answer = lambda _: reply
    place = Place(tmp_path)
    place.agentfs("init")
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    code, output, memory = measured(place, "run", place.goal("Tidy the shop\n"), "--mode", "split")
    assert (code, memory < 300 * MEGABYTE) == (4, True)
    assert f"the planner could not answer: {message}" in output

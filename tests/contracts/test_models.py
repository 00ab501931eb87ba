"""What every model promises, whatever answers: a server, a program or a script."""

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.models.base import Garbled, LimitReached, Model, Refused, Reply, Stopped, ToolCall, Unreachable
from agentfs.models.budget import Tokens
from agentfs.testing import Scripted, ScriptedReply, ScriptedServer, replies
from tests.conversations import CITY, Talk, a_model, ask, bounds, offer, soon

PARIS = {"name": "Paris", "people": 2_100_000}
Make = Callable[[ScriptedReply], Model]


@pytest.fixture(params=["server", "program", "script"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Return what makes a model that gives one answer."""
    with ScriptedServer() as server:
        makers: dict[str, Make] = {
            "server": lambda reply: _by_server(server, reply, tmp_path),
            "program": lambda reply: _by_program(reply, tmp_path),
            "script": _by_script,
        }
        yield makers[request.param]


def _by_server(server: ScriptedServer, reply: ScriptedReply, home: Path) -> Model:
    server.add(reply)
    return a_model(home, server.url)


def _by_program(reply: ScriptedReply, home: Path) -> Model:
    calls = [{"name": name, "arguments": given} for name, given in reply.calls]
    words = {"content": reply.text, "refusal": reply.refusal, "finish_reason": reply.finish}
    answer: dict[str, Any] = {**words, "tool_calls": calls}
    if reply.tokens:
        names = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
        answer["usage"] = dict(zip(names, reply.tokens, strict=True))
    (home / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    waits = f"sleep {reply.pause_s}; " if reply.pause_s else ""
    fails = "echo no luck >&2; exit 3; " if reply.status != 200 else ""
    script = f"cat >/dev/null; {waits}{fails}cat {shlex.quote(str(home / 'answer.json'))}"
    return a_model(home, kind="command", command=("sh", "-c", script))


def _by_script(reply: ScriptedReply) -> Model:
    from agentfs.core.records import Failure

    if reply.refusal:
        return Scripted(Refused(Failure(kind="model", message=f"the model refused: {reply.refusal}")))
    if reply.status != 200:
        return Scripted(Unreachable(Failure(kind="model", message="no luck")))
    calls = tuple(
        ToolCall(f"call_{n}", name, replies.arguments_of(given)) for n, (name, given) in enumerate(reply.calls, 1)
    )
    finish = replies.finish_of(reply)
    return Scripted(Reply(reply.text, calls, finish, Tokens(*(reply.tokens or (0, 0, 0, 0)))), name="tiny")


def test_text(make: Make) -> None:
    talk = Talk()
    reply = make(replies.says("Paris, it is.", tokens=(10, 4, 5, 2))).complete(ask(), talk.line)
    assert (reply.text, reply.tool_calls, reply.finish) == ("Paris, it is.", (), "stop")
    assert reply.tokens == Tokens(10, 4, 5, 2)
    assert talk.story == ["request", "reply"]


def test_tool_calls(make: Make) -> None:
    talk = Talk()
    model = make(replies.calls(("shell", {"command": "ls"}), ("note", {"text": "ü"}), text="I look."))
    reply = model.complete(ask(offers=(offer("shell", "command"), offer("note", "text"))), talk.line)
    assert reply.text == "I look."
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [
        ("shell", {"command": "ls"}),
        ("note", {"text": "ü"}),
    ]
    assert len({call.id for call in reply.tool_calls}) == 2


def test_json_of_a_form(make: Make) -> None:
    reply = make(replies.plan(PARIS)).complete(ask(form=CITY), Talk().line)
    assert json.loads(reply.text) == PARIS
    assert reply.tool_calls == ()


def test_a_reply_cut_short_says_so(make: Make) -> None:
    reply = make(replies.says("Paris is", finish="length")).complete(ask(), Talk().line)
    assert (reply.text, reply.finish) == ("Paris is", "length")


def test_a_refusal_is_reported_with_its_reason(make: Make) -> None:
    talk = Talk()
    with pytest.raises(Refused, match="I would rather not"):
        make(ScriptedReply(refusal="I would rather not")).complete(ask(), talk.line)
    assert talk.story[0] == "request"
    assert len(talk.story) == 2


def test_every_request_is_counted(make: Make) -> None:
    talk = Talk()
    make(replies.says("yes", tokens=(10, 4, 5, 2))).complete(ask(), talk.line)
    usage = talk.line.usage
    assert usage is not None
    assert usage.model_dump() == {
        "role": "executor",
        "model": "tiny",
        "requests": 1,
        "input_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 5,
        "cost_usd": None,
    }
    assert (talk.budget.spent.requests, talk.budget.spent.tokens, talk.budget.reserved.requests) == (1, 15, 0)


def test_no_request_beyond_the_limits(make: Make) -> None:
    talk = Talk(limits=bounds(requests=0))
    with pytest.raises(LimitReached, match="the limit of 0 requests is reached"):
        make(replies.says("yes")).complete(ask(), talk.line)
    assert talk.story == []


def test_what_cannot_be_reached_is_counted_too(make: Make) -> None:
    talk = Talk()
    with pytest.raises(Unreachable):
        make(replies.fails(401)).complete(ask(), talk.line)
    assert talk.story == ["request", "failed"]
    assert talk.budget.spent.requests == 1
    assert talk.budget.reserved.requests == 0


@pytest.mark.parametrize("make", ["server", "program"], indirect=True)
def test_the_deadline_ends_it(make: Make) -> None:
    talk = Talk(deadline=soon(0.5))
    with pytest.raises(Stopped, match="its time was up"):
        make(replies.says("late", pause_s=60)).complete(ask(), talk.line)
    assert talk.story == ["request", "failed"]


@pytest.mark.parametrize("make", ["server", "program"], indirect=True)
def test_the_stop_sign_ends_it(make: Make) -> None:
    talk = Talk()
    model = make(replies.says("late", pause_s=60))
    threading.Timer(0.3, talk.stop.set).start()
    with pytest.raises(Stopped, match="it was stopped"):
        model.complete(ask(), talk.line)
    assert talk.line.usage is not None
    assert talk.line.usage.cost_usd is None, "nobody knows what it cost"


def test_a_scripted_model_says_when_its_script_is_at_an_end() -> None:
    model = Scripted("one", lambda request: {"asked": request.messages[-1]["content"]}, "three")
    assert model.complete(ask(), Talk().line).text == "one"
    assert json.loads(model.complete(ask("why?"), Talk().line).text) == {"asked": "why?"}
    with pytest.raises(AssertionError, match="1 of the script were never asked for: \\['three'\\]"):
        model.done()
    model.complete(ask(), Talk().line)
    model.done()
    with pytest.raises(Garbled, match="nothing is scripted for request 4"):
        model.complete(ask(), Talk().line)


def test_a_program_may_answer_in_its_own_way(tmp_path: Path) -> None:
    def answers(printed: str) -> Any:
        code = f"import sys; sys.stdin.read(); print({printed!r})"
        model = a_model(tmp_path, kind="command", command=(sys.executable, "-c", code))
        return model.complete(ask(form=CITY), Talk().line).text

    assert json.loads(answers(json.dumps(PARIS))) == PARIS
    assert json.loads(answers(json.dumps({"content": PARIS}))) == PARIS
    assert json.loads(answers(f"Here it is:\n```json\n{json.dumps(PARIS)}\n```")) == PARIS
    whole = {"choices": [{"message": {"content": json.dumps(PARIS)}, "finish_reason": "stop"}]}
    assert json.loads(answers(json.dumps(whole))) == PARIS
    assert answers("I do not know.") == "I do not know."


def test_a_program_has_answered_when_it_exits(tmp_path: Path) -> None:
    model = a_model(tmp_path, kind="command", command=("sh", "-c", "cat >/dev/null; sleep 600 & echo yes"))
    assert model.complete(ask(), Talk(deadline=soon(60)).line).text == "yes"


def test_a_program_that_prints_without_end_is_killed(tmp_path: Path) -> None:
    model = a_model(tmp_path, kind="command", command=("yes",))
    with pytest.raises(Garbled, match="the answer is larger than 8 MiB"):
        model.complete(ask(), Talk(deadline=soon(60)).line)

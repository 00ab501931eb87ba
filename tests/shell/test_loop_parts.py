"""The pure parts of the loop: a conversation within bounds, and circles seen."""

import json
from typing import Any

import pytest

from agentfs.executor.conversation import Conversation
from agentfs.executor.loop import Repeats

OPENING = ({"role": "system", "content": "s"}, {"role": "user", "content": "u" * 500})


def assistant_message(arguments: str) -> dict[str, Any]:
    function = {"name": "t", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def contents(talk: Conversation) -> list[str]:
    return [str(message["content"]) for message in talk.fit()[2:]]


def test_within_its_budget_a_conversation_is_kept_whole() -> None:
    talk = Conversation(OPENING, budget=1000)
    talk.add_message(assistant_message("{}"))
    talk.add_result("1", "x" * 990)
    assert talk.fit() == (
        *OPENING,
        assistant_message("{}"),
        {"role": "tool", "tool_call_id": "1", "content": "x" * 990},
    )


def test_over_it_the_oldest_go_first_until_half_is_free() -> None:
    talk = Conversation(OPENING, budget=2000)
    for sign in "abcd":
        talk.add_message(assistant_message("{}"))
        talk.add_result("1", sign * 600)
    stub = "(dropped to save room: 600 characters, beginning with: {}…)"
    assert contents(talk) == ["", stub.format("a" * 99), "", stub.format("b" * 99), "", stub.format("c" * 99), "", "d" * 600]  # fmt: skip
    assert contents(talk) == contents(talk), "cutting again changes nothing"
    assert talk.messages[:2] == list(OPENING)


def test_the_newest_turn_stays_however_long_it_is() -> None:
    talk = Conversation(OPENING, budget=1000)
    talk.add_message(assistant_message("{}"))
    talk.add_result("1", "a" * 900)
    talk.add_result("2", "b" * 900)
    talk.add_note("a note")
    assert contents(talk) == ["", "a" * 900, "b" * 900, "a note"]


def test_long_arguments_are_dropped_too_and_stay_json() -> None:
    talk = Conversation(OPENING, budget=1000)
    talk.add_message(assistant_message(json.dumps({"content": "x" * 2000})))
    talk.add_result("1", "ok")
    talk.add_message(assistant_message("{}"))
    arguments = talk.fit()[2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"dropped": "2015 characters of arguments, to save room"}


def test_notes_to_the_model_are_never_dropped() -> None:
    talk = Conversation(OPENING, budget=100)
    talk.add_message(assistant_message("{}"))
    talk.add_note("n" * 400)
    talk.add_message(assistant_message("{}"))
    assert contents(talk) == ["", "n" * 400, ""]


A, B, C = ("t", '{"a": 1, "b": 2}', "same"), ("t", "{}", "same"), ("u", "{}", "same")


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ([A, A, A, A, A], [1, 2, 3, 4, 5]),
        ([A, B, A, B, A, B, A, B, A, B], [1, 1, 1, 2, 2, 3, 3, 4, 4, 5]),
        ([A, A, B, A, A], [1, 2, 1, 1, 2]),
        ([A, ("t", '{ "b":2, "a":1 }', "same"), A], [1, 2, 3]),
        ([A, ("t", A[1], "another result"), A], [1, 1, 1]),
        ([("t", "not json", "x"), ("t", "not  json", "x")], [1, 1]),
        ([B, C], [1, 1]),
    ],
)
def test_what_counts_as_the_same_again(calls: list[tuple[str, str, str]], counts: list[int]) -> None:
    repeats = Repeats()
    assert [repeats.count(*one) for one in calls] == counts

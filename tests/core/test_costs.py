"""What a run cost: a table over logs and results. What is unknown stays unknown."""

from typing import Any

from agentfs.core.costs import Asked, Conversation, Costs, Spend, as_page, asked_by, asked_in, costs_of


def request(role: str = "executor", model: str = "tiny") -> dict[str, Any]:
    return {"event": "request", "role": role, "model": model, "messages": []}


def reply(cost: float | None = 0.5, **more: Any) -> dict[str, Any]:
    usage = {"model": "tiny", "input_tokens": 10, "cached_tokens": 4, "output_tokens": 6, "cost_usd": cost}
    return {"event": "reply", "usage": usage, "seconds": 1.5, "reasoning_tokens": 2, **more}


ONE = Spend(1, 10, 4, 6, 2, 0.5, 1.5)
UNSEEN = Spend(1, 0, 0, 0, None, None, None)


def test_every_request_counts() -> None:
    failed = {"event": "failed", "usage": {"cost_usd": 0.0}, "seconds": 0.5}
    entries = [{"event": "claim"}, request(), failed, request(), reply(), {"event": "end"}]
    assert list(asked_in(entries)) == [
        Asked("executor", "tiny", Spend(1, 0, 0, 0, 0, 0.0, 0.5)),
        Asked("executor", "tiny", ONE),
    ]


def test_one_that_nobody_saw_the_end_of_counts_as_unknown() -> None:
    entries = [request("planner", "big"), request("judge"), reply(), request()]
    assert [(one.role, one.spend) for one in asked_in(entries)] == [
        ("planner", UNSEEN),
        ("judge", ONE),
        ("executor", UNSEEN),
    ]


def test_odd_lines_are_read_as_far_as_they_go() -> None:
    entries: list[dict[str, Any]] = [
        {"event": "reply"},
        {"event": "request", "role": 7, "model": None},
        {"event": "reply", "usage": 7, "seconds": "long", "reasoning_tokens": -1},
    ]
    assert list(asked_in(entries)) == [Asked("executor", None, Spend(1, 0, 0, 0, 0, None, None))]


def test_a_result_stands_in_for_a_log_that_is_gone() -> None:
    usage = {
        "role": "planner",
        "model": "big",
        "requests": 3,
        "input_tokens": 9,
        "output_tokens": 1,
        "cost_usd": 0.25,
    }
    assert list(asked_by(usage)) == [Asked("planner", "big", Spend(3, 9, 0, 1, None, 0.25, None))]
    assert list(asked_by(None)) == []


def test_sums_by_everything_that_can_be_blamed() -> None:
    costs = costs_of(
        [
            Conversation((Asked("planner", "big", ONE),), call=1, trigger="first"),
            Conversation((), call=2, trigger="asked"),
            Conversation((Asked("executor", "tiny", ONE), Asked("judge", "tiny", ONE)), step="a", attempt=1),
            Conversation((Asked("executor", "tiny", ONE),), step="a", attempt=2),
            Conversation((), step="b", attempt=1),
        ]
    )
    two = ONE + ONE
    assert costs == Costs(
        total=two + two,
        by_role={"planner": ONE, "executor": two, "judge": ONE},
        by_model={"big": ONE, "tiny": two + ONE},
        by_step={"a": two + ONE},
        by_call={1: ONE},
        triggers={1: "first"},
        attempts={"a": 2},
        models={"planner": ["big"], "executor": ["tiny"], "judge": ["tiny"]},
    )
    page = as_page("2026-11-16/job", costs)
    assert page["by_step"] == [
        {
            "step": "a",
            "attempts": 2,
            "requests": 3,
            "input_tokens": 30,
            "cached_tokens": 12,
            "output_tokens": 18,
            "reasoning_tokens": 6,
            "cost_usd": 1.5,
            "seconds": 4.5,
        }
    ]
    assert [one["trigger"] for one in page["by_call"]] == ["first"]


def test_one_unknown_makes_the_sum_unknown() -> None:
    total = (ONE + UNSEEN) + ONE
    assert total == Spend(3, 20, 8, 12, None, None, None)


def test_nothing_asked_is_nothing() -> None:
    assert costs_of([]).total == Spend()

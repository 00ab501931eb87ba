"""`agentfs cost`: what a run asked of models, read from its files."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentfs.models.budget import Tokens, usage_of
from agentfs.storage.clock import format_moment
from tests.conversations import Talk, message
from tests.workspaces import Place


@pytest.fixture
def asked(place: Place) -> Path:
    """A run that has ended, with conversations beside what it did."""
    place.agentfs("run", place.runbook("### look\n```sh\necho hello\n```\n"))
    return place.run_folder()


def converse(path: Path, *talks: tuple[str, str, Tokens | None, float | None]) -> None:
    """Write a log as a line writes it: who asked which model, what it took, what it cost."""
    talk = Talk()
    for role, model, tokens, cost in talks:
        talk.line.log_request(role, model, (message("user", "go on"),))
        if tokens is None:
            continue
        usage = usage_of(role, model, tokens, cost)  # type: ignore[arg-type]
        talk.line.log_reply(
            message("assistant", "well"), usage, {"seconds": 2.0, "reasoning_tokens": tokens.reasoning}
        )
    with path.open("a", encoding="utf-8") as log:
        log.writelines(json.dumps({"event": name, **fields}) + "\n" for name, fields in talk.events)


def page(place: Place) -> Any:
    return json.loads(place.agentfs("cost", "job", "--json").stdout)


def test_a_runbook_asks_nobody(place: Place, asked: Path) -> None:
    assert place.agentfs("cost", "job").stdout == f"{place.read('run.json')['run']} asked no model\n"
    assert page(place)["total"] == {
        "requests": 0,
        "input_tokens": 0,
        "cached_tokens": 0,
        "output_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": 0.0,
        "seconds": 0.0,
    }


def test_by_role_by_call_and_by_step(place: Place, asked: Path) -> None:
    converse(asked / "planning/1.log.jsonl", ("planner", "gpt-5", Tokens(12_000, 4_000, 900, 300), 0.02))
    converse(
        asked / "steps/look.1.log.jsonl",
        ("executor", "gpt-5-mini", Tokens(1_500_000, 0, 50), 0.375),
        ("judge", "gpt-5-mini", Tokens(200, 0, 10), 0.0001),
    )
    shown = place.agentfs("cost", "job", env={"COLUMNS": "80"}).stdout.splitlines()
    assert shown[0] == f"{place.read('run.json')['run']}: 3 requests to models, $0.3951"
    assert [line.split() for line in shown[2:]] == [
        ["by", "role", "requests", "input", "cached", "output", "reasoning", "cost", "waited"],
        ["planner", "1", "12.0k", "4,000", "900", "300", "$0.0200", "2.0", "s"],
        ["executor", "1", "1.5M", "0", "50", "0", "$0.3750", "2.0", "s"],
        ["judge", "1", "200", "0", "10", "0", "$0.0001", "2.0", "s"],
        [],
        ["by", "call", "requests", "input", "cached", "output", "reasoning", "cost", "waited"],
        ["1", "first", "1", "12.0k", "4,000", "900", "300", "$0.0200", "2.0", "s"],
        [],
        ["by", "step", "requests", "input", "cached", "output", "reasoning", "cost", "waited"],
        ["look", "2", "1.5M", "0", "60", "0", "$0.3751", "4.0", "s"],
        [],
        ["total", "3", "1.5M", "4,000", "960", "300", "$0.3951", "6.0", "s"],
    ]
    assert max(map(len, shown)) <= 80
    shown = page(place)
    assert shown["total"]["input_tokens"] == 1_512_200
    assert [one["model"] for one in shown["by_model"]] == ["gpt-5", "gpt-5-mini"]


def test_what_the_goals_checks_took(place: Place, asked: Path) -> None:
    (asked / "planning/2.checks.json").write_text("{}", encoding="utf-8")
    converse(asked / "planning/2.checks.log.jsonl", ("judge", "gpt-5-mini", Tokens(200, 0, 10), 0.0001))
    shown = page(place)
    assert [(one["call"], one["trigger"], one["requests"]) for one in shown["by_call"]] == [(2, "goal checks", 1)]


def test_what_nobody_knows_is_unknown(place: Place, asked: Path) -> None:
    converse(asked / "steps/look.1.log.jsonl", ("executor", "qwen", Tokens(10, 0, 5), None))
    shown = place.agentfs("cost", "job", env={"COLUMNS": "80"}).stdout
    assert "1 request to models, unknown" in shown
    assert "not every cost of qwen is known" in shown
    assert "$" not in shown
    assert page(place)["total"]["cost_usd"] is None


def test_a_request_under_way_counts(place: Place, asked: Path) -> None:
    converse(asked / "planning/1.log.jsonl", ("planner", "gpt-5", None, None))
    assert page(place)["by_call"][0]["requests"] == 1


def test_logs_may_be_gone_and_torn(place: Place, asked: Path) -> None:
    result = asked / "steps/look.1.result.json"
    record = json.loads(result.read_bytes())
    usage = usage_of("executor", "tiny", Tokens(10, 0, 5), 0.5)
    result.write_text(json.dumps({**record, "usage": usage.model_dump()}), encoding="utf-8")
    (asked / "steps/look.1.log.jsonl").unlink()
    with (asked / "planning/1.log.jsonl").open("w", encoding="utf-8") as log:
        log.write('{"event": "request", "role": "pla')
    shown = page(place)
    assert (shown["total"]["requests"], shown["total"]["cost_usd"], shown["total"]["seconds"]) == (1, 0.5, None)
    assert "unknown" in place.agentfs("cost", "job").stdout


def test_no_such_run(place: Place, asked: Path) -> None:
    assert "nowhere" in place.agentfs("cost", "nowhere", code=2).stderr


# ── all runs ──────────────────────────────────────────────────────────────────────────────────────────────


def dated(path: Path, role: str, model: str, cost: float, at: str) -> None:
    converse(path, (role, model, Tokens(100, 0, 10), cost))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(
        "".join(json.dumps({**line, "at": line.get("at", at)}) + "\n" for line in lines), encoding="utf-8"
    )


def days_ago(days: int) -> str:
    return format_moment(datetime.now(UTC) - timedelta(days=days))


def test_all_runs_by_day_goal_model_and_role(place: Place, asked: Path) -> None:
    place.agentfs("run", "job.md")
    again, old = asked.with_name("job-2"), days_ago(9)
    place.agentfs("run", place.runbook("### look\n```sh\necho hello\n```\n", name="other.md"))
    dated(asked / "planning/1.log.jsonl", "planner", "gpt-5", 0.5, days_ago(40))
    dated(asked / "planning/1.log.jsonl", "planner", "gpt-5", 0.25, old)
    dated(again / "steps/look.1.log.jsonl", "executor", "gpt-5-mini", 0.125, days_ago(0))
    dated(place.run_folder("other") / "steps/look.1.log.jsonl", "executor", "gpt-5-mini", 1.0, days_ago(0))
    env = {"COLUMNS": "80", "TZ": "UTC"}
    shown = place.agentfs("cost", "--since", "30d", env=env).stdout.splitlines()
    today, then = days_ago(0)[:10], old[:10]
    assert shown[0] == f"since {days_ago(30)[:10]}: 3 requests to models by 3 runs, $1.38"
    cells = [line.split() for line in shown[2:] if line]
    assert [(row[0], row[1] if row[0] == "by" else row[-3]) for row in cells] == [
        ("by", "day"), (then, "$0.2500"), (today, "$1.12"),
        ("by", "goal"), ("other", "$1.00"), ("job", "$0.3750"),
        ("by", "model"), ("gpt-5-mini", "$1.12"), ("gpt-5", "$0.2500"),
        ("by", "role"), ("executor", "$1.12"), ("planner", "$0.2500"),
        ("total", "$1.38"),
    ]  # fmt: skip
    page = json.loads(place.agentfs("cost", "--since", "30d", "--json", env=env).stdout)
    assert [*page] == ["since", "runs", "total", "by_day", "by_goal", "by_model", "by_role"]
    assert (page["runs"], page["total"]["cost_usd"], page["total"]["input_tokens"]) == (3, 1.375, 300)
    assert [(one["goal"], one["requests"]) for one in page["by_goal"]] == [("other", 1), ("job", 2)]
    assert json.loads(place.agentfs("cost", "--since", "1d", "--json", env=env).stdout)["total"]["cost_usd"] == 1.125


def test_all_runs_where_logs_are_gone_or_times_are_odd(place: Place, asked: Path) -> None:
    result = asked / "steps/look.1.result.json"
    record, usage = json.loads(result.read_bytes()), usage_of("executor", "tiny", Tokens(10, 0, 5), 0.5)
    result.write_text(json.dumps({**record, "usage": usage.model_dump()}), encoding="utf-8")
    (asked / "steps/look.1.log.jsonl").unlink()
    dated(asked / "planning/1.log.jsonl", "planner", "big", 0.25, "the day before")
    page = json.loads(place.agentfs("cost", "--since", "1h", "--json", env={"TZ": "UTC"}).stdout)
    assert [(one["day"], one["cost_usd"]) for one in page["by_day"]] == [(record["ended_at"][:10], 0.75)]


def test_of_no_run_nothing_is_known(place: Place, asked: Path) -> None:
    assert place.agentfs("cost", "--since", "2026-01-01").stdout == "no run asked a model since 2026-01-01\n"


@pytest.mark.parametrize("words", [(), ("job", "--since", "3d")])
def test_a_run_or_a_time_but_not_both(place: Place, asked: Path, words: tuple[str, ...]) -> None:
    assert "name a run (agentfs cost RUN), or sum up all" in place.agentfs("cost", *words, code=2).stderr


def test_a_time_that_is_none(place: Place, asked: Path) -> None:
    assert "--since soon: write how long ago" in place.agentfs("cost", "--since", "soon", code=2).stderr

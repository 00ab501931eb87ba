"""`[limits] day_usd`: all runs of a workspace together, over what ended since midnight, as the setting is now."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentfs.core.run_state import Reached
from agentfs.engine.means import DayLimit
from agentfs.storage.clock import Clock, format_moment
from agentfs.storage.workspace import Workspace
from agentfs.testing import ScriptedServer
from tests.workspaces import Place, end, wait_for

PRICE = "[executor]\nprice = {input = 0, output = 1000000}\n"  # a dollar for each token that comes back
TWO = "### one\n```summarize\ntext: a\n```\n### two\n```summarize\ntext: b\n```\n"
WAITS = "the limit of $2 a day is reached (limits.day_usd): raise it in agentfs.toml, or wait for tomorrow"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> Place:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
    place.agentfs("init")
    allow(place, 2)
    return place


def allow(place: Place, usd: float) -> None:
    (place.root / "agentfs.toml").write_text(f"{PRICE}[limits]\nday_usd = {usd}\n", encoding="utf-8")


def says(server: ScriptedServer, text: str) -> None:
    server.says(text, tokens=(1, 0, 2, 0))


def test_reached_every_run_waits_and_raised_they_go_on(place: Place, server: ScriptedServer) -> None:
    says(server, "first")
    place.agentfs("run", place.runbook(TWO), code=3)
    assert place.read("steps/one.1.result.json")["usage"]["cost_usd"] == 2
    assert "day_usd" not in place.read("run.json")["limits"]
    other = place.agentfs("run", place.runbook(TWO, name="other.md"), code=3)
    assert WAITS in other.stderr
    [line] = [one for one in json.loads(place.agentfs("status", "--json").stdout) if one["run"].endswith("/other")]
    assert (line["state"], line["why"]) == ("waiting", WAITS)
    allow(place, 3)
    says(server, "second")
    place.agentfs("resume", "job")
    allow(place, 100)
    says(server, "third")
    says(server, "fourth")
    place.agentfs("resume", "other")
    server.done()


def test_a_run_that_asks_no_model_goes_on(place: Place, server: ScriptedServer) -> None:
    says(server, "first")
    place.agentfs("run", place.runbook(TWO), code=3)
    place.agentfs("run", place.runbook("### look\n```sh\necho fine\n```\n", name="look.md"))


def test_watch_takes_up_what_waits_when_the_setting_is_raised(place: Place, server: ScriptedServer) -> None:
    says(server, "first")
    place.agentfs("run", place.runbook(TWO), code=3)
    watch = place.begin("watch")
    try:
        page = place.run_folder() / "STATUS.md"
        wait_for(
            lambda: page.exists() and "a day is reached" in page.read_text(encoding="utf-8"), "the page says why"
        )
        says(server, "second")
        allow(place, 10)
        wait_for((place.run_folder() / "outcome.json").exists, "the run to end")
    finally:
        end(watch)
    server.done()


def test_midnight_frees_what_was_spent(place: Place, server: ScriptedServer) -> None:
    says(server, "first")
    place.agentfs("run", place.runbook(TWO), code=3)
    tomorrow = Clock(wall=lambda: datetime.now(UTC) + timedelta(days=1))
    spent = [
        DayLimit(Workspace(place.root), place.env, clock).reached_by(place.run_folder())
        for clock in (Clock(), tomorrow)
    ]
    assert spent == [Reached("day_usd", "$2 a day"), None]


def test_what_is_gone_or_broken_counts_for_nothing(place: Place, server: ScriptedServer) -> None:
    says(server, "first")
    place.agentfs("run", place.runbook(TWO), code=3)
    result, limit = (
        place.run_folder() / "steps/one.1.result.json",
        DayLimit(Workspace(place.root), place.env, Clock()),
    )
    record = json.loads(result.read_bytes())
    result.write_text('{"usage": {"cost_usd": "much"}}', encoding="utf-8")
    assert limit.reached_by(place.run_folder()) is None
    result.write_text(json.dumps(record), encoding="utf-8")
    answer = place.run_folder() / "planning/7.result.json"
    ended = {"started_at": format_moment(datetime.now(UTC)), "duration_s": 1.5, "usage": {"cost_usd": 1.5}}
    answer.write_text(json.dumps(ended), encoding="utf-8")
    (place.root / "agentfs.toml").write_text(f"{PRICE}[limits]\nday_usd = 3.5\n", encoding="utf-8")
    assert DayLimit(Workspace(place.root), place.env, Clock()).reached_by(place.run_folder()) == Reached(
        "day_usd", "$3.5 a day"
    )

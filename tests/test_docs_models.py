"""docs/models.md holds: its settings are settings, its answer is one, its script runs."""

import json
from pathlib import Path

import pytest

from agentfs.core.documents import read_toml
from agentfs.core.plan_check import check_settings
from agentfs.models.base import ToolCall
from agentfs.models.capabilities import Capabilities
from agentfs.models.endpoint import RequestPolicy
from agentfs.storage.timing import Timing
from agentfs.testing import ScriptedServer
from agentfs.testing.script import load_script
from tests.conversations import Talk, a_model, ask, offer
from tests.test_docs import REPO, fences

PAGE = REPO / "docs" / "models.md"


@pytest.mark.parametrize("text", [one.body for one in fences(PAGE) if one.words == "toml settings"])
def test_its_settings_are_settings(text: str) -> None:
    settings = check_settings(read_toml(text.encode()))
    assert settings.planner.model_fields_set | settings.executor.model_fields_set


def test_its_answer_is_understood(tmp_path: Path) -> None:
    (answer,) = [one.body for one in fences(PAGE) if one.words == "json answer"]
    (tmp_path / "answer.json").write_text(answer, encoding="utf-8")
    model = a_model(tmp_path, kind="command", command=("cat", str(tmp_path / "answer.json")))
    talk = Talk()
    reply = model.complete(ask(offers=(offer("shell", "command"),)), talk.line)
    assert (reply.text, reply.tool_calls) == ("I look first.", (ToolCall("call_1", "shell", '{"command": "ls"}'),))
    assert talk.line.usage is not None
    assert (talk.line.usage.input_tokens, talk.line.usage.cost_usd) == (812, 0.0021)


def test_its_script_runs() -> None:
    (script,) = [one.body for one in fences(PAGE) if one.words == "python"]
    names: dict[str, object] = {}
    exec(script, names)  # noqa: S102 - it is ours
    assert str(names["base_url"]).startswith("http://127.0.0.1:")


def test_its_script_in_a_file_is_one(tmp_path: Path) -> None:
    (script,) = [one.body for one in fences(PAGE) if one.words == "yaml script"]
    (tmp_path / "script.yaml").write_text(script, encoding="utf-8")
    with ScriptedServer() as server:
        assert load_script(tmp_path / "script.yaml", server) == 3


def test_its_figures_are_the_ones_in_force() -> None:
    text = PAGE.read_text(encoding="utf-8")
    policy = RequestPolicy()
    waits = [Timing().retry_first * 2**n for n in range(4)]
    assert (policy.tries, policy.connect_tries, waits, policy.longest_wait) == (5, 3, [0.5, 1, 2, 4], 60)
    assert (policy.first_byte, policy.between, policy.whole) == (600, 180, 3600)
    assert "at most five tries (three if the connection is refused), after 0.5, 1, 2 and 4 seconds" in text
    assert json.dumps(Capabilities().json_mode) == '"schema"'

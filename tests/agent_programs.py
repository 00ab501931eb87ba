"""The real coding agents, installed by name from npm, and how each is pointed at a scripted model on loopback."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.agents.presets import PRESETS
from tests.npm import packages
from tests.sweeps import FULL


@dataclass(frozen=True, slots=True)
class RealAgent:
    """One of them: what to install, what that brings, and what points it at an address."""

    package: str
    program: str  # under node_modules
    settings: Callable[[str], dict[str, Any]]  # address -> [agents.NAME], but for its program
    environment: Callable[[str], dict[str, str]]


def _codex(url: str) -> dict[str, Any]:
    provider = f'{{name="fake",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"'
    more = [
        "-c",
        'model_provider="fake"',
        "-c",
        f"model_providers.fake={provider},request_max_retries=0,stream_max_retries=0}}",
    ]
    head, tail = PRESETS["codex"].command[:2], PRESETS["codex"].command[2:]
    return {"command": [*head, *more, *tail], "model": "fake"}


def _opencode(url: str) -> dict[str, str]:
    model = {
        "name": "fake",
        "tool_call": True,
        "limit": {"context": 100000, "output": 8000},
        "cost": {"input": 3, "output": 15},
    }
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": {"fake": model}}
    config = {"autoupdate": False, "share": "disabled", "snapshot": False, "enabled_providers": ["fake"]}
    config |= {"small_model": "fake/fake", "provider": {"fake": provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


REAL = {
    "codex": RealAgent("@openai/codex", ".bin/codex", _codex, lambda _url: {"OPENAI_API_KEY": "dummy-key"}),
    "claude": RealAgent(
        "@anthropic-ai/claude-code",
        ".bin/claude",
        lambda _url: {"model": "claude-sonnet-4-5"},
        lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy-key", "CLAUDE_CODE_MAX_RETRIES": "0"},
    ),
    "opencode": RealAgent("opencode-ai", ".bin/opencode", lambda _url: {"model": "fake/fake"}, _opencode),
    "gemini": RealAgent(
        "@google/gemini-cli",
        ".bin/gemini",
        lambda _url: {"model": "gemini-2.5-flash"},
        lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy-key"},
    ),
    "goose": RealAgent(
        "@aaif/goose-binary-linux-x64",
        ".bin/goose-binary-linux-x64",
        lambda _url: {"model": "fake"},
        lambda url: {
            "GOOSE_PROVIDER": "openai",
            "OPENAI_HOST": url,
            "OPENAI_BASE_PATH": "v1/chat/completions",
            "OPENAI_API_KEY": "dummy-key",
        },
    ),
}


def installed(name: str) -> Path:
    """Return the program of an agent, of the version that is known; skip the test if it cannot be had."""
    folder = packages(f"{REAL[name].package}@{PRESETS[name].tested}", seconds=240 if FULL else 60)
    return folder / "node_modules" / REAL[name].program


def section(name: str, url: str, program: Path) -> dict[str, Any]:
    """Return [agents.NAME] for a scripted model at an address."""
    own = REAL[name].settings(url)
    command = [str(program), *(own.get("command") or PRESETS[name].command)[1:]]
    return {**own, "command": command, "env": [*PRESETS[name].env, *REAL[name].environment(url)]}

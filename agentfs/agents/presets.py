"""The agents there are: how each is called, what it reads, what it is given; where its program is, which version.

A command is a list of words. `{workdir}`, `{schema}` (a file), `{schema_text}`, `{model}`, `{max_turns}` and
`{max_cost_usd}` are filled in; a word whose value is not known goes, with the flag in front of it.
Every agent's own sandbox is off: agentfs has put it into one, and theirs fail open, or not at all, inside another.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfs.core.config import AgentSettings, Speaks
from agentfs.storage.installation import searched_path
from agentfs.storage.timing import TIMING
from agentfs.tools.base import Confinement
from agentfs.tools.sandbox import environment, is_system, make_layout

_PLACE = re.compile(r"\{(workdir|schema|schema_text|model|max_turns|max_cost_usd)\}")


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent, as it is configured."""

    name: str
    command: tuple[str, ...]
    speaks: Speaks
    env: tuple[str, ...] = ()  # variables of the person's that it gets
    given: Mapping[str, str] = field(default_factory=dict)  # variables that agentfs sets
    aliases: Mapping[str, str] = field(default_factory=dict)  # one that takes another's value while it is unset
    read: tuple[str, ...] = ()  # files of the person's home, copied into its own
    files: Mapping[str, str] = field(default_factory=dict)  # files that agentfs puts into its home
    model: str | None = None
    idle_s: float = TIMING.agent_idle
    fallback: tuple[str, ...] = ()
    tested: str | None = None  # the version that the recordings in tests/recordings/agents are of
    install: str | None = None  # what to type where it is not found
    login: str | None = None  # what else gives it a key


def _words(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


PRESETS: Mapping[str, Agent] = {
    "codex": Agent(
        "codex",
        _words(
            """codex exec --json --skip-git-repo-check --color never --ephemeral
            --dangerously-bypass-approvals-and-sandbox -c check_for_update_on_startup=false -c analytics.enabled=false
            -m {model} --output-schema {schema} -C {workdir} -"""
        ),
        "codex",
        env=("OPENAI_API_KEY", "CODEX_API_KEY"),
        aliases={"CODEX_API_KEY": "OPENAI_API_KEY"},  # the one that exec looks at
        files={".codex/.keep": ""},  # it wants the folder to be there
        tested="0.169.0",
        install="npm install -g @openai/codex",
        login="~/.codex/auth.json",
    ),
    "claude": Agent(
        "claude",
        _words(
            """claude -p --output-format stream-json --verbose --permission-mode bypassPermissions --strict-mcp-config
            --setting-sources '' --model {model} --max-turns {max_turns} --max-budget-usd {max_cost_usd}
            --json-schema {schema_text}"""
        ),
        "claude",
        env=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        given={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
        tested="2.1.197",
        install="npm install -g @anthropic-ai/claude-code",
        login="~/.claude/.credentials.json",
    ),
    "opencode": Agent(
        "opencode",
        _words("opencode run --format json --dir {workdir} --title agentfs -m {model}"),
        "opencode",
        env=_words("OPENAI_API_KEY ANTHROPIC_API_KEY OPENROUTER_API_KEY GEMINI_API_KEY OPENCODE_CONFIG_CONTENT"),
        given={
            "OPENCODE_PERMISSION": '{"*":"allow"}',  # else what it would ask is refused, and it ends there
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        },
        idle_s=600,  # it reports a command when that has ended: silence may be a long one
        tested="1.18.33",
        install="npm install -g opencode-ai",
        login="~/.local/share/opencode/auth.json",
    ),
    "gemini": Agent(
        "gemini",
        _words("gemini --approval-mode yolo --skip-trust --output-format stream-json -m {model}"),
        "gemini",
        env=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"),
        given={"GEMINI_CLI_NO_RELAUNCH": "true", "NO_BROWSER": "1"},
        files={
            ".gemini/settings.json": (
                '{"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},'
                '"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"tools":{"sandbox":false},'
                '"security":{"auth":{"selectedType":"gemini-api-key"}},"model":{"maxSessionTurns":{max_turns}}}'
            )
        },
        tested="0.61.0",
        install="npm install -g @google/gemini-cli",
    ),
    "goose": Agent(
        "goose",
        _words(
            """goose run -i - --output-format stream-json --no-profile --quiet --with-builtin developer
            --max-turns {max_turns} --model {model}"""
        ),
        "goose",
        env=_words(
            """GOOSE_PROVIDER GOOSE_MODEL OPENAI_API_KEY OPENAI_HOST OPENAI_BASE_PATH ANTHROPIC_API_KEY GOOGLE_API_KEY
            OPENROUTER_API_KEY"""
        ),
        given={"GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"},
        tested="1.52.0",
        install="goose's own installer (or npm install -g @aaif/goose-binary-linux-x64, linked as goose)",
        login="~/.config/goose/config.yaml",
    ),
}


def configure_agents(sections: Mapping[str, AgentSettings]) -> dict[str, Agent]:
    """Return every agent there is: the presets, and what the settings say instead, or beside them."""
    agents = dict(PRESETS)
    for name, section in sections.items():
        base = agents.get(name) or Agent(name, (), section.speaks or "text")
        given = {key: value for key, value in section if value is not None}
        agents[name] = replace(base, **given)
    return agents


def fill(words: Sequence[str], values: Mapping[str, str | None]) -> list[str]:
    """Return a command with its places filled in; what has no value goes, with the flag in front of it."""
    filled: list[str] = []
    for word in words:
        wanted = _PLACE.findall(word)
        if any(values.get(name) is None for name in wanted):
            if filled and filled[-1].startswith("-") and word.startswith("{"):
                filled.pop()
            continue
        filled.append(_PLACE.sub(lambda found: values[found[1]] or "", word))
    return filled


# ── where its program is ──────────────────────────────────────────────────────────────────────────────


SHARED = ("bin", ".bin", "sbin", "shims")  # folders in which many programs lie
_NUMBER = re.compile(r"\d+(?:\.\d+)+\S*")
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(?:-S[ \t]+)?(\S+))?")


@dataclass(frozen=True, slots=True)
class Found:
    """A program, and what it needs to start."""

    program: str  # its real path
    shown: tuple[Path, ...]  # what of it lies outside the system's folders
    path: tuple[str, ...]  # folders of PATH in which it finds what runs it


def locate(agent: Agent, given: Mapping[str, str]) -> Found | None:
    """Return where an agent's program is, by the person's PATH; None if it is not there."""
    path = f"{sys.prefix}/bin:{searched_path(given)}"  # as tools search: python is the one that runs agentfs
    if not agent.command or (found := shutil.which(agent.command[0], path=path)) is None:
        return None
    program = os.path.realpath(found)
    runner = _interpreter(program, path)
    named = (os.path.realpath(word) for word in agent.command[1:] if os.path.isabs(word) and os.path.isfile(word))
    shown = [*_find_installation(program), *(_find_interpreter(runner) if runner else ()), *named]
    return Found(program, tuple(map(Path, dict.fromkeys(shown))), (os.path.dirname(runner),) if runner else ())


def _interpreter(program: str, path: str) -> str | None:
    """Return what runs a script, if it is one, where that is not a program of the system's."""
    try:
        with open(program, "rb") as file:
            first = _SHEBANG.match(file.readline(4096))
    except OSError:
        return None
    if first is None:
        return None
    words = [word.decode("utf-8", "surrogateescape") for word in first.groups() if word]
    name = words[1] if os.path.basename(words[0]) == "env" and len(words) > 1 else words[0]
    found = shutil.which(name, path=path)
    return None if found is None or is_system(os.path.realpath(found)) else os.path.realpath(found)


def _find_installation(program: str) -> list[str]:
    """Return the installation of a program: its packages, its folder, or itself where many share one."""
    if is_system(program):
        return []
    parts = program.split("/")
    if "node_modules" in parts:
        return ["/".join(parts[: parts.index("node_modules") + 1])]
    folder = os.path.dirname(program)
    alone = os.path.basename(folder) not in SHARED and folder != os.path.realpath(os.path.expanduser("~"))
    return [folder if alone else program]


def _find_interpreter(runner: str) -> list[str]:
    folder = os.path.dirname(runner)
    return [os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder]


def version_of(found: Found, *, confined: bool) -> str | None:
    """Return what an agent says of its version, started as an attempt would start it; None if it does not say."""
    with tempfile.TemporaryDirectory(prefix="agentfs-") as folder:
        room = Path(os.path.realpath(folder))
        confinement = Confinement(
            workdir=room,
            workspace=room,
            run_files=room,
            readable=found.shown,
            sandbox="bubblewrap" if confined else "none",
            home={},
            programs_at=found.path,
        )
        layout = make_layout([found.program, "--version"], confinement)
        env = environment(confinement) | ({} if confined else {"HOME": folder})
        try:
            ran = subprocess.run(
                [*layout.outer, *layout.argv],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=TIMING.agent_version,
                check=False,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    number = _NUMBER.search(ran.stdout.decode("utf-8", "replace"))
    return number[0] if ran.returncode == 0 and number else None

"""Completion as a shell sees it: bash for real, the others as far as their words go."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentfs.commands import main
from agentfs.commands.completion import BASH, SCRIPTS, candidates
from agentfs.commands.parser import parse

DRIVE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_agentfs
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for run in ("2026-11-15/tidy", "2026-11-16/tidy", "2026-11-16/count-words", "2026-11-16/$(touch hacked)"):
        folder = tmp_path / "work" / "runs" / run
        folder.mkdir(parents=True)
        (folder / "run.json").touch()
    (tmp_path / "work" / "agentfs.toml").touch()
    (tmp_path / "work" / "goal.md").touch()
    (tmp_path / "agentfs").write_text(f'#!/bin/sh\nexec {sys.executable} -m agentfs "$@"\n', encoding="utf-8")
    (tmp_path / "agentfs").chmod(0o755)
    (tmp_path / "script").write_text(BASH, encoding="utf-8")
    return tmp_path / "work"


def replies(workspace: Path, *typed: str, where: Path | None = None) -> set[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVE, "bash", str(workspace.parent / "script"), "agentfs", *typed],
        check=True,
        capture_output=True,
        text=True,
        cwd=where or workspace,
        env={**os.environ, "PATH": f"{workspace.parent}:{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_flags_and_values(workspace: Path) -> None:
    assert replies(workspace, "st") == {"status"}
    assert {"run", "show", "log", "completion", "--version"} <= replies(workspace, "")
    assert "complete" not in replies(workspace, "")
    assert replies(workspace, "status", "--") == {"--help", "--all", "--since", "--state", "--watch", "--json"}
    assert replies(workspace, "run", "--approve", "") == {"never", "plan", "always"}
    assert replies(workspace, "completion", "") == {"bash", "zsh", "fish"}
    assert replies(workspace, "run", "go") == {"goal.md"}
    assert replies(workspace, "forget", "--state", "") == {"done", "failed", "cancelled"}
    assert replies(workspace, "forget", "--older-than", "3d", "co") == {"count-words"}


def test_bash_completes_runs(workspace: Path) -> None:
    assert replies(workspace, "show", "") == {
        "tidy",
        "count-words",
        "2026-11-15/tidy",
        "2026-11-16/tidy",
        "2026-11-16/count-words",
    }
    assert replies(workspace, "run", "--resume", "co") == {"count-words"}
    elsewhere = workspace.parent
    assert replies(workspace, "-C", str(workspace), "log", "2026-11-15", where=elsewhere) == {"2026-11-15/tidy"}
    assert replies(workspace, "log", "", where=elsewhere) == set()


def test_the_name_of_a_folder_is_never_run(workspace: Path) -> None:
    replies(workspace, "show", "")
    assert not (workspace / "hacked").exists()


def test_each_shell_has_a_script_that_asks_agentfs(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, script in SCRIPTS.items():
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == script
        assert "| agentfs complete 2>/dev/null" in script


def test_a_candidate_has_what_it_is_behind_a_tab() -> None:
    assert "status\twhat the runs of this workspace are doing" in [*candidates([], "")]
    assert [*candidates(["run"], "")] == [":files"]
    assert [*candidates(["run", "--workdir"], "")] == [":folders"]
    assert "--squash\tas one commit" in [*candidates(["apply"], "--")]
    assert [*candidates(["nothing"], "")][:1] == ["--help\tshow this help message and exit"]


def test_the_workspace_may_be_named_before_or_behind_a_command() -> None:
    assert [
        parse(typed.split()).folder for typed in ("-C a status", "status -C a", "-C a status -C b", "status")
    ] == [
        "a",
        "a",
        "b",
        ".",
    ]


def test_bash_finds_no_fault_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(BASH, encoding="utf-8")
    done = subprocess.run(["bash", "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

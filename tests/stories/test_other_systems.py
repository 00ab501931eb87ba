"""Elsewhere than on Linux: what only reads works, an edit is an edit, and what drives says in one line what to use instead.

`tests/elsewhere` takes away what macOS or Windows does not have. It stands in for them; it is not them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentfs.commands.parser import build
from tests.test_borders import modules
from tests.workspaces import DEADLINE, Place

ELSEWHERE = Path(__file__).parent.parent / "elsewhere"
PLAYER = """
import contextlib, importlib, io, json, sys
from agentfs.commands import main
asked, played = json.load(sys.stdin), []
for words in asked["commands"]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code
    played.append([code, out.getvalue(), err.getvalue()])
for name in asked["modules"]:
    importlib.import_module(name)
json.dump(played, sys.stdout)
"""
A, FAILS = "### a\n```sh\necho hello\n```\n\n### b\n", "```sh\nfalse\n```\n"
READING = [
    ["--version"], ["--help"], ["status", "--json"], ["status", "gated"], ["show", "gated"], ["show", "failed", "--json"],
    ["show", "failed", "b"], ["log", "gated"], ["log", "failed", "--json"], ["log", "-f", "failed"], ["diff", "gated"],
    ["diff", "gated", "1"], ["blame", "gated"], ["cost", "failed"], ["compare", "gated", "failed"], ["tools"],
    ["tools", "--json"], ["check", "gated.md", "agentfs.toml"], ["check", "broken.md"], ["verify"], ["replay", "failed"],
    ["completion", "bash"], ["complete"], ["schedule"], ["show-goal", "gated.md"], ["export", "failed", "--json"],
]  # fmt: skip
DRIVING = [
    ["run", "gated.md"], ["plan", "gated.md"], ["init", "new"], ["watch"], ["fork", "gated"], ["forget", "failed"],
    ["attempt"],
]  # fmt: skip
DOCTOR = ["doctor", "--json"]
EDITING = [["approve", "gated"], ["retry", "failed", "b"], ["skip", "failed", "b"]]  # a reply, a mark, an exchange
ALIKE = {  # they read or write as those do
    "cancel", "pause", "resume", "reject", "reply", "replan", "restore", "trust", "save", "skill", "report", "web", "mcp",
    "agents", "changes", "apply", "discard",
}  # fmt: skip
Played = dict[tuple[str, ...], tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A workspace with a run that waits at a gate and one that has failed."""
    place = Place(tmp_path_factory.mktemp("made"))
    place.goal("# Broken\n\n## Steps\n\n### a\n```nosuch\n```\n", "broken.md")
    place.agentfs("run", place.runbook(f"{A}gate\n```sh\ncat a\n```\n", name="gated.md"), code=3)
    place.agentfs("run", place.runbook(f"{A}{FAILS}", name="failed.md"), code=1)
    (place.run_folder("gated") / "files" / "a").write_text("hello\n")
    return place


@pytest.fixture(scope="module")
def here(made: Place) -> Played:
    """What the reading commands say on this machine."""
    return play(made, READING, None)


@pytest.fixture(scope="module", params=["macos", "windows"])
def there(made: Place, request: pytest.FixtureRequest) -> Played:
    """What everything but edits says on another system; then every module is imported there."""
    return play(made, [*READING, DOCTOR, *DRIVING], request.param, modules())


def play(place: Place, commands: list[list[str]], system: str | None, imports: list[str] | None = None) -> Played:
    """Play commands, one after the other in one process, on another system; a traceback ends it."""
    path = [str(ELSEWHERE)] if system else []
    done = subprocess.run(
        [sys.executable, "-c", PLAYER],
        input=json.dumps({"commands": commands, "modules": imports or []}),
        cwd=place.root,
        env={**place.env, "PYTHONPATH": os.pathsep.join([*path, place.env["PYTHONPATH"]]), "ELSEWHERE": system or ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        check=False,
    )
    assert done.stderr == ""
    results = [(code, out, err) for code, out, err in json.loads(done.stdout)]
    return dict(zip(map(tuple, commands), results, strict=True))


def test_every_command_reads_edits_or_drives() -> None:
    actions: Any = build()._actions
    known = next(set(action.choices) for action in actions if isinstance(action.choices, dict))
    played = {words[0] for words in (*READING, *EDITING, *DRIVING, DOCTOR)} - {"--version", "--help"}
    assert played | ALIKE == known


def test_what_only_reads_says_the_same_there(here: Played, there: Played) -> None:
    assert {words: there[words] for words in here} == here
    assert {words: results[0] for words, results in here.items() if results[0]} == {("check", "broken.md"): 2}


def test_what_drives_says_in_one_line_what_is_missing_and_makes_nothing(made: Place, there: Played) -> None:
    for words in map(tuple, DRIVING):
        code, out, err = there[words]
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"agentfs: `agentfs {words[0]}` needs Linux; ")
        assert " lacks /proc, " in err
        assert "Use the container (Dockerfile; docs/containers.md)" in err
    assert sorted(path.name for path in made.runs.glob("20*/*")) == ["failed", "gated"]
    assert not (made.root / "new").exists()


def test_the_doctor_says_so_too(there: Played) -> None:
    code, out, err = there[tuple(DOCTOR)]
    assert (code, err) == (2, "")
    wrong = [(one["about"], one["fix"]) for one in json.loads(out)["findings"] if one["grade"] == "wrong"]
    assert wrong == [("system", "drive them on Linux, or in the container (Dockerfile; docs/containers.md)")]


def test_edits_made_there_are_driven_on_linux(made: Place, tmp_path: Path) -> None:
    place = Place(tmp_path)
    shutil.copytree(made.root, place.root, symlinks=True, dirs_exist_ok=True)
    assert [results[0] for results in play(place, EDITING, "windows").values()] == [0, 0, 0]
    place.agentfs("trust", ".")
    assert place.agentfs("run", "--resume", "gated").stdout == "hello\n"
    assert "none of the plan's last steps was done" in place.agentfs("run", "--resume", "failed", code=1).stderr
    place.agentfs("verify")

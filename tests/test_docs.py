"""The documentation holds: its commands are run, its examples are checked, its links and names are looked up.

Fences of EXECUTED pages that are executed:

    ```console demo     `$ ./demo` and what it prints: the example is run in a copy, as ./demo does
    ```console run      `$ command` and what it prints, those of a page one after the other in one new folder
    ````KIND NAME       a file that is in that folder before

Durations, the day and the folder may differ; nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from argparse import _SubParsersAction
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agentfs.commands.parser import build
from agentfs.core import records
from agentfs.core.config import DEFAULT_TOOLS, Settings, ToolSettings, setting_variables
from agentfs.core.documents import read_json
from agentfs.core.goal_file import parse_goal
from agentfs.core.hashing import field_names
from agentfs.core.plan_check import check_plan
from agentfs.core.step_lines import LINES
from agentfs.engine.means import catalogue_of

REPO = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in (
        *REPO.glob("*.md"),
        *REPO.glob("docs/**/*.md"),
        *REPO.glob("examples/**/README.md"),
        REPO / "runs/README.md",
    )
)
README = REPO / "README.md"
RUNBOOKS = REPO / "docs" / "runbooks.md"
MCP = REPO / "docs" / "mcp.md"
TRACES = REPO / "docs" / "traces.md"
COMMANDS = REPO / "docs" / "commands.md"
PICTURE = REPO / "docs" / "run.svg"
FORMAT = REPO / "docs" / "format.md"
SECONDS = 60
_FENCE = re.compile(r"^(`{3,})(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Fence:
    words: str
    body: str


def fences(page: Path) -> list[Fence]:
    return [Fence(words.strip(), body) for _, words, body in _FENCE.findall(page.read_text(encoding="utf-8"))]


def prose(page: Path) -> str:
    """Return a page without its fences and code spans."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def normal(output: str) -> list[str]:
    """Return output with all that may differ from run to run made the same."""
    output = re.sub(r"(?:\d+\.\d|(?<=in )\d+) s\b", "0.0 s", output)
    output = re.sub(r"\d{4}-\d\d-\d\d/", "DAY/", output)
    output = re.sub(r"(/\S+)+?/(?=(?:migration|tidy|hello|greeting|spans)\b)", "/", output)
    return [line.rstrip() for line in output.strip().splitlines() if not line.startswith("WARNING: no sandbox")]


def ran(command: str, folder: Path, home: Path) -> str:
    """Run a command line as a person's shell would; return what it printed, on both streams, as it came."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    script = home / "bin" / "agentfs"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentfs "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    environment = {
        "PATH": f"{home}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": str(REPO),
    }
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout


def dialogue(body: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console fence, each with the output that the page shows."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def test_the_demo_prints_what_is_shown(tmp_path: Path) -> None:
    (demo,) = [fence for page in PAGES for fence in fences(page) if fence.words == "console demo"]
    ((command, shown),) = dialogue(demo.body)
    assert command == "./demo"
    folder = shutil.copytree(REPO / "examples" / "migration", tmp_path / "migration")
    output = ran(f"{sys.executable} shop/setup.py && agentfs run goal.md", folder, tmp_path / "home")
    assert normal(output) == normal(shown)


def test_the_commit_in_the_readme_is_the_one_that_is_made(tmp_path: Path) -> None:
    (shown,) = [fence.body for fence in fences(README) if fence.body.startswith("move-users: revision 2")]
    folder = shutil.copytree(REPO / "examples" / "migration", tmp_path / "migration")
    ran(f"{sys.executable} shop/setup.py && agentfs run goal.md", folder, tmp_path / "home")
    output = ran("git -C runs log -1 --format=%B HEAD~1", folder, tmp_path / "home")
    assert normal(output) == normal(shown)


EXECUTED = [(README, "hello", 1), (RUNBOOKS, "tidy", 2), (MCP, "greeting", 4), (TRACES, "spans", 2)]


@pytest.mark.parametrize(("page", "name", "least"), EXECUTED)
def test_console_fences_print_what_they_show(page: Path, name: str, least: int, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    found = fences(page)
    for fence in found:
        kind, _, file = fence.words.partition(" ")
        if kind != "console" and "." in file:
            (folder / file).write_text(fence.body, encoding="utf-8")
    dialogues = [pair for fence in found if fence.words == "console run" for pair in dialogue(fence.body)]
    assert len(dialogues) >= least
    for command, shown in dialogues:
        assert normal(ran(command, folder, tmp_path / "home")) == normal(shown), command


def test_no_other_page_has_fences_that_look_executed() -> None:
    words = ("console run", "console demo")
    assert {page for page in PAGES for fence in fences(page) if fence.words in words} == {
        page for page, _, _ in EXECUTED
    }


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_picture_in_the_readme_shows_what_a_run_prints(tmp_path: Path) -> None:
    """scripts/picture.py draws it."""

    def texts(picture: Path) -> list[str]:
        lines = ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - it is ours
        return normal("\n".join(" ".join(line.itertext()) for line in lines))

    assert "](docs/run.svg)" in README.read_text(encoding="utf-8")
    subprocess.run([sys.executable, REPO / "scripts/picture.py", tmp_path / "run.svg"], timeout=SECONDS, check=True)
    assert texts(tmp_path / "run.svg") == texts(PICTURE)


@pytest.mark.parametrize(
    ("example", "end"),
    [
        ("migration", "the app finds the same people in the new table"),
        ("migration-surprise", "the app finds the same people in the new table"),
        ("log-audit", "- logs/worker.log:47: disk-full"),
        ("sub-runbooks", "released 1.4: app-1.4.tar.gz"),
    ],
)
def test_the_commands_in_an_examples_readme_lead_to_its_end(example: str, end: str, tmp_path: Path) -> None:
    folder = shutil.copytree(REPO / "examples" / example, tmp_path / example)
    typed = "".join(fence.body for fence in fences(folder / "README.md") if fence.words == "sh")
    assert ran(typed, folder, tmp_path / "home").splitlines()[-1] == end


def test_the_runbooks_in_the_docs_are_good() -> None:
    found = [fence for page in PAGES for fence in fences(page) if fence.words.split()[:1] == ["markdown"]]
    assert len(found) >= 2
    for fence in found:
        settings = Settings(tools=ToolSettings(network="agents", allow=(*DEFAULT_TOOLS, "run")))
        assert parse_goal(fence.body.encode(), "goal.md", catalogue_of(settings, {})).kind == "runbook"


def test_the_json_in_the_docs_is_good() -> None:
    catalogue = catalogue_of(Settings(), {})
    plans = 0
    for page in (README, FORMAT):
        for fence in fences(page):
            if fence.words != "json":
                continue
            value = json.loads(fence.body)
            if "status" in value:
                check_plan(read_json(fence.body.encode()), catalogue)
                plans += 1
            else:
                assert parse_goal(fence.body.encode(), "goal.json", catalogue).kind == "plan"
    assert plans >= 1


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(place), f"{page.name}: {target}"


def commands() -> list[str]:
    parser = build()
    (subparsers,) = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    return sorted(action.dest for action in subparsers._choices_actions)


def test_every_command_is_in_the_table() -> None:
    text = COMMANDS.read_text(encoding="utf-8")
    assert [name for name in commands() if f"`agentfs {name}" not in text] == []


def test_the_lines_a_step_may_hold_are_in_the_docs_as_the_table_has_them() -> None:
    def code(text: str) -> str:
        return f"`` {text} ``" if "`" in text else f"`{text}`"

    table = ["| line | means |", "|---|---|", *(f"| {code(form.shown)} | {form.means} |" for form in LINES)]
    assert "\n".join(table) + "\n\n" in RUNBOOKS.read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return what is under a heading of docs/format.md, up to the next of its level or above."""
    text = FORMAT.read_text(encoding="utf-8")
    match = re.search(rf"^(#+) {re.escape(title)}\n((?:.*\n)*?)(?=^#{{1,3}} |\Z)", text, flags=re.MULTILINE)
    assert match, title
    return match[2]


@pytest.mark.parametrize(
    ("title", "kinds"),
    [
        ("plan.json", (records.Plan, records.Step, records.Limits)),
        ("Goals", (records.Goal,)),
        ("run.json", (records.Run, records.Models)),
        ("Call: planning/C.json", (records.Call,)),
        ("Answer: planning/C.result.json", (records.Answer,)),
        ("Goal checks: planning/C.checks.json", (records.GoalChecks,)),
        ("Revision: revisions/R.json", (records.Revision, records.Author, records.Change)),
        ("Order: steps/ID.N.json", (records.Order,)),
        ("Result: steps/ID.N.result.json", (records.Result, records.Failure, records.CheckResult, records.Usage)),
        ("Outcome: outcome.json", (records.Outcome, records.StepsByEnd)),
    ],
)
def test_every_field_of_a_record_is_in_the_format(title: str, kinds: tuple[type[records.Record], ...]) -> None:
    text = section(title)
    assert [name for kind in kinds for name in field_names(kind) if f"`{name}`" not in text] == []


def test_every_setting_is_in_the_format() -> None:
    text = section("Settings")
    wanted = [(".".join(path), variable) for variable, path in setting_variables()]
    assert [key for key, variable in wanted if f"| `{key}` |" not in text or f"`{variable}`" not in text] == []


def test_every_tool_is_in_the_format() -> None:
    text = section("Tools")
    assert [name for name in catalogue_of(Settings(), {}).tools if f"| `{name}` |" not in text] == []


def test_every_decision_is_listed_and_fits_on_a_page() -> None:
    folder = REPO / "docs" / "decisions"
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert listed == pages
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    assert [name for name in pages if len((folder / name).read_text(encoding="utf-8").splitlines()) > 60] == []


def test_the_two_commands_are_there_and_run_in_a_plain_shell() -> None:
    for name in ("demo", "test", "scripts/environment", ".ci/run"):
        path = REPO / name
        assert os.access(path, os.X_OK), name
        checked = subprocess.run(
            ["sh", "-n", str(path)], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, ""), name


def test_every_module_the_architecture_names_is_there() -> None:
    """A bare name means a module of the layer that its row begins with."""
    named = re.findall(r"`([\w/]+\.py|\w+/)`", (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    missing = [name for name in named if not [*(REPO / "agentfs").rglob(name), *REPO.glob(name)]]
    assert len(named) > 30
    assert set(missing) == {"steps/", "planning/", "revisions/"}  # folders of a run


def test_nothing_generated_is_kept_in_the_repository() -> None:
    kept = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "runs"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert kept.stdout.split() in ([], ["runs/README.md"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """`verify` also wants the command to be there: a unit needs the whole path of it."""
    (unit,) = [fence.body for fence in fences(REPO / "docs" / "watch.md") if fence.words == "ini"]
    command, path = tmp_path / ".local" / "bin" / "agentfs", tmp_path / "agentfs@.service"
    command.parent.mkdir(parents=True)
    command.symlink_to(Path(sys.executable).parent / "agentfs")
    path.write_text(unit, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", path],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

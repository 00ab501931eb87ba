"""Plain git in the ledger shows plan.json by meaning, as `agentfs diff` does, and its own lines when asked for them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces import DEADLINE, Place

BOOK = "### a\n```sh\necho a\n```\n### b\n```sh\necho b\n```\n### c\nafter: a\n```sh\necho c\n```\n"
ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one run of two revisions, the second by Ada."""
    place = Place(tmp_path_factory.mktemp("original"))
    place.agentfs("plan", place.runbook(BOOK))
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo b", "printf 'b\\nB\\n'").replace('"draft"', '"approved"'))
    place.agentfs("run", "--resume", "job", env=ADA)
    return place.root


@pytest.fixture
def edited(place: Place, original: Path) -> Place:
    """A copy of it."""
    shutil.copytree(original, place.root, dirs_exist_ok=True, symlinks=True)
    return place


def shown(place: Place, *words: str, path: str | None = None) -> str:
    """What git prints, with no agentfs on the PATH."""
    env = {**place.env, "GIT_CONFIG_NOSYSTEM": "1", "PATH": path or _only(place, "git", "sh", "cat"), "COLUMNS": "80"}
    argv = ["git", "-C", str(place.runs), *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _only(place: Place, *programs: str) -> str:
    folder = place.root.parent / "few"
    folder.mkdir(exist_ok=True)
    for name in programs:
        if not (folder / name).exists():
            (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


def plan_of(place: Place) -> str:
    return f"{place.run_folder().parent.name}/job/plan.json"


def test_git_diff_is_agentfs_diff(edited: Place) -> None:
    output = shown(edited, "diff", "main~2", "main", "--", plan_of(edited))
    assert output == edited.agentfs("diff", "job", "1..2", env={"COLUMNS": "80"}).stdout + "\n"
    run = plan_of(edited).removesuffix("/plan.json")
    assert output.splitlines() == [
        f"{run}: revision 1 -> revision 2, by Ada: plan.json was edited",
        "  status: draft -> approved",
        "",
        "~ b  changed",
        "    input.command:",
        "      -echo b",
        "      +printf 'b",
        "      +B",
        "      +'",
        "",
        "kept: a, b, c",
        "",
    ]


def test_an_edit_that_is_no_revision_yet(edited: Place) -> None:
    plan = edited.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo c", "echo C"))
    assert shown(edited, "diff") == edited.agentfs("diff", "job", "2", env={"COLUMNS": "80"}).stdout + "\n"
    assert '-        "command": "echo c"\n+        "command": "echo C"\n' in shown(edited, "diff", "--no-ext-diff")


HUNK = """\
@@ -1,5 +1,5 @@
 goal: Job
-status: draft
+status: approved
{}
 step a
   after nothing
@@ -9,7 +9,10 @@ step a
 step b
   after a
   tool: shell
-  input.command: echo b
+  input.command:
+    printf 'b
+    B
+    '
{}
 step c
   after a
""".replace("{}", " ")


@pytest.mark.parametrize("words", [("log", "-p", "-1"), ("show",)])
def test_log_and_show_tell_it_by_step_and_field(edited: Place, words: tuple[str, ...]) -> None:
    output = shown(edited, *words, "main~1", "--", plan_of(edited))
    assert output.partition("@@ -1")[1] + output.partition("@@ -1")[2] == HUNK
    assert shown(edited, *words, "--ext-diff", "main~1", "--", plan_of(edited)).endswith(
        shown(edited, "diff", "main~2", "main~1", "--", plan_of(edited))
    )


@pytest.mark.parametrize("words", [("diff", "main~2", "main~1"), ("log", "-p", "-1", "main~1"), ("show", "main~1")])
def test_the_files_own_lines(edited: Place, words: tuple[str, ...]) -> None:
    output = shown(edited, *words, "--no-ext-diff", "--", plan_of(edited))
    assert '-        "command": "echo b"\n+        "command": "printf \'b\\nB\\n\'"\n' in output.replace(
        "\\\\n", "\\n"
    )
    assert '-  "status": "draft",\n+  "status": "approved",\n' in output
    assert output == shown(edited, *words, "--no-ext-diff", "--no-textconv", "--", plan_of(edited))


def test_blame_and_checkout_have_the_file_as_it_is(edited: Place) -> None:
    text = (edited.run_folder() / "plan.json").read_text()
    blamed = shown(edited, "blame", "-s", "--", plan_of(edited)).splitlines()
    assert [line.split(") ", 1)[1] for line in blamed] == text.splitlines()
    assert shown(edited, "show", f"main:{plan_of(edited)}") == text


def test_what_is_only_laid_out_otherwise_is_no_difference(edited: Place) -> None:
    import json

    plan = edited.run_folder() / "plan.json"
    value = json.loads(plan.read_text())
    del value["steps"][1]["depends_on"]
    plan.write_text(json.dumps(value))
    assert shown(edited, "diff").splitlines()[1] == "  nothing differs by meaning"
    shown(edited, "-c", "user.name=Ada", "-c", "user.email=a@b", "commit", "-qam", "laid out")
    assert "@@" not in shown(edited, "log", "-p", "-1", "--", plan_of(edited))


def test_a_plan_that_does_not_read_is_shown_as_it_is(edited: Place) -> None:
    (edited.run_folder() / "plan.json").write_text("{\n")
    output = shown(edited, "diff")
    assert '-  "status": "approved",' in output
    shown(edited, "-c", "user.name=Ada", "-c", "user.email=a@b", "commit", "-qam", "broken")
    assert "-status: approved" in shown(edited, "log", "-p", "-1", "--", plan_of(edited))


def test_where_agentfs_has_gone_git_shows_the_lines(edited: Place) -> None:
    config = edited.runs / ".git" / "config"
    config.write_text(config.read_text().replace(sys.executable, "/nonexistent/python"))
    plan = edited.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo c", "echo C"))
    for words in (("diff",), ("log", "-p", "-1", "main~1", "--", plan_of(edited))):
        assert '+        "command": ' in shown(edited, *words), words
    edited.agentfs("init")
    assert "~ c  changed" in shown(edited, "diff")


def test_a_workspace_from_before_gets_it_at_the_next_init(edited: Place) -> None:
    config, attributes = edited.runs / ".git" / "config", edited.runs / ".git" / "info" / "attributes"
    new, mine = config.read_text(), "*.png binary\n"
    config.write_text("[core]\n\tbare = false\n[user]\n\tname = Ada")
    attributes.write_text(mine)
    edited.agentfs("trust", ".")
    edited.agentfs("run", "--resume", "job")
    assert attributes.read_text() == mine, "only init writes it"
    edited.agentfs("init")
    block = new[new.index("# agentfs writes") :]
    assert config.read_text() == f"[core]\n\tbare = false\n[user]\n\tname = Ada\n{block}"
    assert attributes.read_text().endswith(f"\n{mine}")
    before = os.stat(config), os.stat(attributes)
    edited.agentfs("init")
    assert (os.stat(config), os.stat(attributes)) == before, "nothing is written that is there already"


def test_settings_that_another_process_is_writing_are_left_alone(edited: Place) -> None:
    config = edited.runs / ".git" / "config"
    config.write_text("[core]\n\tbare = false\n")
    lock = config.with_name("config.lock")
    lock.write_text("theirs")
    edited.agentfs("init")
    assert (config.read_text(), lock.read_text()) == ("[core]\n\tbare = false\n", "theirs")


def test_nothing_beside_a_plan_is_ever_imported(edited: Place, tmp_path: Path) -> None:
    for folder in (edited.runs, edited.run_folder()):
        for name in ("json.py", "sitecustomize.py", "agentfs.py"):
            (folder / name).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    shown(edited, "diff", "main~2", "main~1", "--", plan_of(edited))
    shown(edited, "log", "-p", "--", plan_of(edited))
    assert not (tmp_path / "sprung").exists()

"""Goals that are invalid in every way: each is rejected with its reason, nothing is lost, and the rest runs."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

GOOD = book("echo x >> effect; echo good")
# As root everything can be read: without these two capabilities, a file's mode counts.
UNPRIVILEGED = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    place = Place(tmp_path_factory.mktemp("bad"))
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root can read every file, and setpriv is not installed")
    with Watching(place, under=UNPRIVILEGED if os.geteuid() == 0 else ()) as daemon:
        yield daemon


def ran_once(daemon: Watching, name: str) -> None:
    assert daemon.outcome(name)["answer"] == "good"
    assert (daemon.place.run_folder(name) / "files" / "effect").read_text() == "x\n"


WRITTEN = {
    "empty.md": (b"", "empty.md:1:1: the goal is empty (write down what is to be done)"),
    "blank.yaml": (b"\n \n", "blank.yaml:1:1: the goal is empty (write down what is to be done)"),
    "binary.md": (
        b"\x7fELF\x02\x01\x01\0\0",
        "binary.md:1:8: a NUL byte: this is not text (save the file as UTF-8 text)",
    ),
    "latin.txt": (b"Gr\xfc\xdfe\n", "latin.txt:1:3: byte 0xfc is not UTF-8 (save the file as UTF-8 text)"),
    "words.md": (b"Make me rich\n", "words.md: this goal has no steps, and no model is configured to plan it."),
    "limits.md": (
        book("true", front="limits:\n  attempts: 99").encode(),
        "limits.md:3:3: limits.attempts: 99 is more than 2 (a goal may only tighten the settings; change agentfs.toml, or use a flag)",
    ),
    "outside.md": (
        book("true", front="workdir: ../..").encode(),
        "outside.md:2:1: workdir: '../..' lies outside the folders a goal may work in (.)",
    ),
    "tools.md": (
        book("true", front="tools: [shell, teleport]").encode(),
        "tools.md:2:16: tools: 'teleport' is not in [tools] allow (a goal may only tighten the settings",
    ),
    "unknown.md": (
        book("true", front="colour: red").encode(),
        "unknown.md:2:1: unknown field 'colour' (the fields here are ",
    ),
    "broken.json": (
        b'{"goal": "x", "steps": [}',
        "broken.json:1:25: a value is expected here, not '}' (text goes in double quotes)",
    ),
    "cycle.md": (
        book("true").replace("### a\n", "### a\nafter: a\n").encode(),
        "cycle.md:6:8: the step 'a' depends on itself (remove it from depends_on)",
    ),
}


def test_an_invalid_goal_is_rejected_with_its_reason(watching: Watching) -> None:
    for name, (content, _) in WRITTEN.items():
        (watching.goals / name).write_bytes(content)
    reasons = {name: watching.rejected(name) for name in WRITTEN}
    for name, (content, words) in WRITTEN.items():
        assert reasons[name].startswith(f"# {name} was not taken\n\n    {words}"), reasons[name]
        assert reasons[name].endswith(
            "\nFix it, then move it back into goals/ (`agentfs check FILE` says whether it is valid).\n"
        )
        assert (watching.goals / "rejected" / name).read_bytes() == content
        assert f"rejected: {name}" in watching.output()
    watching.drop("first.md", GOOD)
    ran_once(watching, "first")


def test_what_is_no_file_or_cannot_be_read_is_rejected_with_its_reason(watching: Watching) -> None:
    goals, kept = watching.goals, watching.place.root / "kept.md"
    kept.write_text(GOOD)
    os.mkfifo(goals / "pipe.md")
    (goals / "link.md").symlink_to(kept)
    (goals / "dangling.md").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(goals / "socket.md"))
    (goals / "folder.md").mkdir()
    with (goals / "huge.md").open("wb") as huge:
        huge.truncate(100 * 1024 * 1024)
    (goals / "secret.md").write_text(GOOD)
    (goals / "secret.md").chmod(0)
    expected = {
        "pipe.md": "it is a named pipe, not a file (write the goal into a file, then move it into goals/)",
        "link.md": "it is a symbolic link, not a file (drop the file itself: cp -L)",
        "dangling.md": "it is a symbolic link, not a file (drop the file itself: cp -L)",
        "socket.md": "it is a socket, not a file (write the goal into a file, then move it into goals/)",
        "huge.md": "the goal is larger than 1 MiB (keep large texts in files and name their paths)",
        "secret.md": "cannot be read: Permission denied (give the user that runs agentfs the right to)",
    }
    for name, words in expected.items():
        assert f"\n    {name}:1:1: {words}\n" in watching.rejected(name)
        assert os.path.lexists(goals / "rejected" / name)
    watching.wait_for_output("goals/folder.md is left alone: it is a folder; goals are files")
    assert (goals / "folder.md").is_dir()
    assert kept.read_text() == GOOD
    assert (goals / "rejected" / "huge.md").stat().st_size == 100 * 1024 * 1024


def test_names_of_every_kind(watching: Watching) -> None:
    longest, runs = "n" * 252 + ".md", {}
    for name, run in {
        "my first goal.md": "my-first-goal",
        "日本語.md": "ribenyu",
        "Übergröße (2).MD": "ubergrosse-2",
        "-rf.md": "rf",
        longest: "n" * 48,
        "a\nb.md": "a-b",
        "$(reboot);'.md": "reboot",
        "steps.md": "steps",
        "planning.md": "planning",
    }.items():
        (watching.goals / name).write_text(GOOD)
        runs[name] = run
    too_long = watching.place.root / "too-long.md"
    too_long.write_text(GOOD)
    done = subprocess.run(
        ["cp", str(too_long), str(watching.goals / f"{'n' * 300}.md")], capture_output=True, check=False
    )
    assert b"File name too long" in done.stderr
    for name, run in runs.items():
        ran_once(watching, run)
        assert not (watching.goals / name).exists()


def test_the_same_name_twice_at_once(watching: Watching) -> None:
    for name in ("same.md", "Same.md", "same.txt", "same!.md"):
        (watching.goals / name).write_text(GOOD if name.endswith(".md") else "no steps")
    for name in ("same", "same-2", "same-3"):
        ran_once(watching, name)
    watching.rejected("same.txt")


def test_a_goal_written_for_a_long_time_is_taken_whole(watching: Watching) -> None:
    """By a process that keeps it open, however long; others that come meanwhile do not wait for it."""
    with (watching.goals / "slow.md").open("w") as slow:
        for part in (GOOD[:10], GOOD[10:30]):
            slow.write(part)
            slow.flush()
            watching.drop(f"meanwhile{len(part)}.md", GOOD)
            ran_once(watching, f"meanwhile{len(part)}")
            assert (watching.goals / "slow.md").exists()
        slow.write(GOOD[30:])
    ran_once(watching, "slow")
    assert (watching.place.run_folder("slow") / "goal.md").read_text() == GOOD


def test_a_goal_that_is_taken_back_before_it_is_complete(watching: Watching) -> None:
    with (watching.goals / "regret.md").open("w") as open_one:
        open_one.write(GOOD)
        open_one.flush()
        watching.drop("other.md", GOOD)
        ran_once(watching, "other")
        (watching.goals / "regret.md").unlink()
    watching.drop("another.md", GOOD)
    ran_once(watching, "another")
    assert not any(watching.place.runs.glob("*/regret*"))


def test_nothing_is_left_behind(watching: Watching) -> None:
    """After all of it: goals/ holds what was left alone, every run has ended, and the ledger is sound."""
    (watching.goals / "last.txt").write_text("no steps")  # another worker may have had the rest of this module
    watching.rejected("last.txt")
    wait_for(lambda: set(os.listdir(watching.goals)) <= {"rejected", "folder.md"}, "an empty folder")
    folders: list[Path] = sorted(watching.place.runs.glob("????-??-??/*"))
    assert [one.name for one in folders if not (one / "outcome.json").exists()] == []
    errors = [name for name in os.listdir(watching.goals / "rejected") if name.endswith(".error.md")]
    assert len(os.listdir(watching.goals / "rejected")) == 2 * len(errors)
    wait_for(lambda: len(watching.place.log()) == 2 * len(folders), "the ledger")
    wait_for(lambda: watching.place.git("status", "--porcelain") == "", "the index")
    watching.place.ledger_is_sound()

"""What a planner is shown of real folders: bounded, read only, and never through a link that leads out."""

import os
from pathlib import Path

import pytest

from agentfs.planner.prompt import Material, Surroundings
from agentfs.planner.surroundings import MOST_BYTES, MOST_ENTRIES, Listing, list_folder, look_around, read_text
from tests.builders import a_run


def put(folder: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_folder_is_listed_nearest_first_and_without_what_nobody_reads(tmp_path: Path) -> None:
    put(tmp_path, "b.txt", "src/x.py", "src/deep/y.py", ".git/config", "node_modules/a/b.js", "src/__pycache__/x.pyc")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "odd\x1b\udcff").write_bytes(b"")
    found = list_folder(tmp_path)
    link = len("/etc")
    assert found == Listing(
        {"b.txt": 1, "odd\ufffd\ufffd": 0, "out": link, "src/x.py": 1, "src/deep/y.py": 1},
        ("src", "src/deep"),
        complete=False,
    )
    assert found.lines({}) == (
        "b.txt  1 bytes", "odd\ufffd\ufffd  0 bytes", "out  4 bytes", "src/", "src/deep/", "src/deep/y.py  1 bytes",
        "src/x.py  1 bytes",
    )  # fmt: skip


def test_a_listing_is_bounded(tmp_path: Path) -> None:
    put(tmp_path, *(f"{n:04}.txt" for n in range(MOST_ENTRIES + 5)))
    found = list_folder(tmp_path)
    assert (len(found.files), found.complete) == (MOST_ENTRIES, False)


def test_deep_folders_are_named_and_not_entered(tmp_path: Path) -> None:
    put(tmp_path, "a/b/c/file.txt", "a/b/c/d/file.txt")
    assert list_folder(tmp_path) == Listing({"a/b/c/file.txt": 1}, ("a", "a/b", "a/b/c", "a/b/c/d"), complete=False)
    assert list_folder(tmp_path / "a") == Listing(
        {"b/c/file.txt": 1, "b/c/d/file.txt": 1}, ("b", "b/c", "b/c/d"), complete=True
    )


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list_folder(tmp_path / "no") == Listing({}, (), complete=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_is_not_ours_to_read_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "locked/x", "a")
    (tmp_path / "locked").chmod(0)
    assert list_folder(tmp_path).files == {"a": 1}
    (tmp_path / "locked").chmod(0o700)


def test_texts_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    put(tmp_path, "long.md", text="a" * (MOST_BYTES + 9))
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    put(tmp_path.parent, "secret.txt")
    (tmp_path / "link").symlink_to("../secret.txt")
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path, "long.md") == "a" * MOST_BYTES + "\n[… the rest is left out …]"
    assert read_text(tmp_path, "latin.txt") == "caf\ufffd"
    for name in ("binary", "no", "link", "pipe", ".", "../secret.txt", "/etc/passwd", "a\0b"):
        assert read_text(tmp_path, name) is None, name


def test_all_that_is_shown_of_a_run(tmp_path: Path) -> None:
    workspace, folder = tmp_path / "ws", tmp_path / "ws/runs/2026-11-16/goal"
    put(folder, "files/a.txt", "files/sub/b.txt")
    put(folder, "files/AGENTS.md", text="Use tabs.")
    put(workspace, "docs/style.md", text="Be brief.")
    put(workspace, "a.txt", text="not this one")
    run = a_run().model_copy(update={"read": ("docs",)})
    context = ("docs/style.md", "a.txt", "plain words", "word", "../../etc/passwd", "no-such.md")
    assert look_around(folder, run, workspace, context) == (
        Material(
            (
                ("The file docs/style.md", "Be brief."),
                ("The file a.txt", "x"),
                ("From the goal", "plain words"),
                ("From the goal", "word"),
                ("From the goal", "../../etc/passwd (there is no such text file)"),
                ("From the goal", "no-such.md (there is no such text file)"),
            ),
            ("AGENTS.md  9 bytes", "a.txt  1 bytes", "sub/", "sub/b.txt  1 bytes"),
            complete=True,
            instructions="Use tabs.",
        ),
        Surroundings(
            str(folder / "files"),
            (str(workspace / "docs"),),
            frozenset(("AGENTS.md", "a.txt", "sub/b.txt")),
            frozenset(("sub",)),
            complete=True,
        ),
    )


def test_where_the_workspace_is_the_folder_its_own_parts_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "agentfs.toml", "runs/2026-11-16/goal/run.json", "goals/x.md", "main.py", "sub/runs/x")
    run = a_run().model_copy(update={"workdir": str(tmp_path)})
    material, around = look_around(tmp_path / "runs/2026-11-16/goal", run, tmp_path, "one text\nof two lines")
    assert material == Material(
        (("From the goal", "one text\nof two lines"),),
        ("main.py  1 bytes", "sub/", "sub/runs/", "sub/runs/x  1 bytes"),
        complete=False,
    )
    assert not around.complete

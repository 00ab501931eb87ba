"""Each way out of the working folder, refused to the file tools."""

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Failure
from agentfs.storage import safe_open
from agentfs.tools.base import ToolResult
from agentfs.tools.files import edit_file, list_files, read_file, search_files, write_file
from tests.contexts import RecordedContext, a_context, in_workspace
from tests.sweeps import size

LOOKS = size(90, 300)  # of a race
SECRET = "outside!"


@pytest.fixture(params=["openat2", "step by step"], autouse=True)
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every attack against both ways of opening."""
    if request.param == "step by step":
        monkeypatch.setattr(safe_open, "_opener", lambda: safe_open._step_by_step)
    elif safe_open._opener() is not safe_open._openat2:
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def work(tmp_path: Path) -> RecordedContext:
    (tmp_path / "secret").write_text(SECRET, encoding="ascii")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/secret").write_text(SECRET, encoding="ascii")
    return a_context(tmp_path)


def read(work: RecordedContext, path: str) -> ToolResult:
    return read_file.call({"path": path}, work.context)


def write(work: RecordedContext, path: str, content: str = "evil") -> ToolResult:
    return write_file.call({"path": path, "content": content}, work.context)


def kind(result: ToolResult) -> str:
    assert result.failure is not None, result
    return result.failure.kind


def ways_out(work: RecordedContext, tmp_path: Path) -> Iterator[str]:
    up = "/".join([".."] * len(work.workdir.relative_to(tmp_path).parts))
    (work.workdir / "link").symlink_to(tmp_path / "secret")
    (work.workdir / "relative").symlink_to(f"{up}/secret")
    (work.workdir / "folder").symlink_to(tmp_path / "folder")
    (work.workdir / "chain").symlink_to("folder")
    (work.workdir / "sub").mkdir()
    yield from ("link", "relative", "folder/secret", "chain/secret", f"{up}/secret", f"sub/../{up}/secret")
    yield from (str(tmp_path / "secret"), f"{work.workdir}/{up}/secret", "/etc/passwd", "/proc/self/environ")


def test_no_way_out_for_reading(work: RecordedContext, tmp_path: Path) -> None:
    for path in ways_out(work, tmp_path):
        result = read(work, path)
        assert (path, kind(result) in ("outside", "input"), result.output) == (path, True, None)


def test_no_way_out_for_writing(work: RecordedContext, tmp_path: Path) -> None:
    for path in ways_out(work, tmp_path):
        for result in (
            write(work, path),
            edit_file.call({"path": path, "old": SECRET, "new": "evil"}, work.context),
        ):
            assert (path, kind(result) in ("outside", "input")) == (path, True)
    assert (tmp_path / "secret").read_text(encoding="ascii") == SECRET
    assert (tmp_path / "folder/secret").read_text(encoding="ascii") == SECRET
    assert sorted(os.listdir(tmp_path / "folder")) == ["secret"]


def test_no_way_out_for_listing_and_searching(work: RecordedContext, tmp_path: Path) -> None:
    list(ways_out(work, tmp_path))
    (work.workdir / "mine").write_text(SECRET, encoding="ascii")
    assert list_files.call({}, work.context).output == ["mine"]
    assert search_files.call({"pattern": "outside"}, work.context).output == [
        {"path": "mine", "line": 1, "text": SECRET}
    ]
    for path in ("folder", "..", "/etc", "chain"):
        assert kind(list_files.call({"path": path}, work.context)) in ("outside", "input")
        assert kind(search_files.call({"pattern": "x", "path": path}, work.context)) in ("outside", "input")


def test_the_words_for_a_way_out(work: RecordedContext, opener: str) -> None:
    assert read(work, "../x").failure == Failure(
        kind="outside", message="../x leads out of the working folder", hint="name a file inside it"
    )
    assert read(work, "/etc/passwd").failure == Failure(
        kind="outside",
        message="/etc/passwd lies outside the working folder",
        hint="use a path relative to it, or add its folder to read under [tools] in agentfs.toml",
    )


def test_names_that_are_none(work: RecordedContext) -> None:
    for path in ("a\0b", "a/\ud800", "x" * 300, "/".join(["y" * 200] * 30), "z/" * 2000 + "z"):
        assert kind(read(work, path)) == "input"
        assert kind(write(work, path)) == "input"


def test_what_is_not_a_file_never_blocks(work: RecordedContext) -> None:
    os.mkfifo(work.workdir / "fifo")
    (work.workdir / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(work.workdir, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/socket")  # a short name: addresses are bounded
        finally:
            os.close(here)
        for path in ("fifo", "folder", "socket"):
            assert kind(read(work, path)) == "input"
            assert kind(write(work, path)) == "input"
            assert kind(edit_file.call({"path": path, "old": "a", "new": "b"}, work.context)) == "input"
        (work.workdir / "text").write_text("a", encoding="ascii")
        assert list_files.call({}, work.context).output == ["text"]
        assert len(search_files.call({"pattern": "a"}, work.context).output) == 1


def test_links_that_stay_inside(work: RecordedContext, opener: str) -> None:
    (work.workdir / "real").mkdir()
    (work.workdir / "real/file").write_text("x", encoding="ascii")
    (work.workdir / "to-folder").symlink_to("real")
    (work.workdir / "to-file").symlink_to("real/file")
    if opener == "step by step":
        assert kind(read(work, "to-file")) == "outside"
        assert kind(read(work, "to-folder/file")) == "outside"
        return
    assert read(work, "to-folder/file").output == "x"
    assert write(work, "to-file", "new").output == {"path": "real/file", "bytes": 3}
    assert (work.workdir / "to-file").is_symlink()
    assert (work.workdir / "real/file").read_text(encoding="ascii") == "new"
    assert list_files.call({}, work.context).output == ["real/file", "to-file"]
    hit = {"line": 1, "text": "new"}
    assert search_files.call({"pattern": "n"}, work.context).output == [{"path": "real/file", **hit}]
    assert search_files.call({"pattern": "n", "path": "to-file"}, work.context).output == [{"path": "to-file", **hit}]


def test_a_link_to_itself(work: RecordedContext) -> None:
    (work.workdir / "loop").symlink_to("loop")
    assert kind(read(work, "loop")) == "outside"
    assert kind(write(work, "loop")) == "outside"


@pytest.mark.parametrize(
    "path",
    ["agentfs.toml", "goals/new.md", "goals/sub/new.md", "runs/2026-11-16/demo/plan.json", "schemas/x", "tools/evil.py",
     "prompts/planner.md", ".git/hooks/pre-commit", ".git/config", "sub/.git/hooks/post-merge", ".git/modules/m/config",
     ".git", "sub/.git", ".git/commondir", ".GIT/hooks/x", "goals"],
)  # fmt: skip
def test_protected_parts_cannot_be_written(tmp_path: Path, path: str) -> None:
    work = in_workspace(tmp_path)
    before = sorted(work.workspace.rglob("*"))
    result = write(work, path)
    assert kind(result) == "outside"
    assert "read-only to tools" in (result.failure.message if result.failure else "")
    assert [p for p in sorted(work.workspace.rglob("*")) if p not in before and p.is_file()] == []


def test_protected_parts_cannot_be_written_through_a_link(tmp_path: Path, opener: str) -> None:
    work = in_workspace(tmp_path)
    (work.workspace / "aside").symlink_to("goals")
    (work.workspace / "settings").symlink_to("agentfs.toml")
    for path in ("aside/new.md", "settings", "aside/../goals/new.md", f"{work.workspace}/goals/x", "x/../goals/x"):
        assert (path, kind(write(work, path))) == (path, "outside")
    assert os.listdir(work.workspace / "goals") == []


def test_the_runs_own_files_can_be_written(tmp_path: Path) -> None:
    work = in_workspace(tmp_path)
    path = "runs/2026-11-16/demo/files/own"
    assert write(work, path, "x").output == {"path": path, "bytes": 1}
    assert write(work, "mine/and/deeper", "x").output == {"path": "mine/and/deeper", "bytes": 1}


def test_what_is_added_can_be_read_but_not_written_or_left(tmp_path: Path) -> None:
    shared, output = tmp_path / "shared", tmp_path / "out.txt"
    (shared / "sub").mkdir(parents=True)
    (shared / "sub/x").write_text("shared", encoding="ascii")
    (shared / "out").symlink_to(tmp_path / "private")
    (tmp_path / "private").write_text(SECRET, encoding="ascii")
    output.write_text("output", encoding="ascii")
    work = a_context(tmp_path, readable=(shared, output))
    assert read(work, str(output)).output == "output"
    assert read(work, f"{shared}/sub/x").output == "shared"
    assert list_files.call({"path": str(shared)}, work.context).output == [f"{shared}/sub/x"]
    for path in (
        f"{shared}/out",
        f"{shared}/../private",
        f"{tmp_path}/private",
        f"{output}/../private",
        f"{output}x",
    ):
        assert (path, kind(read(work, path)) in ("outside", "input")) == (path, True)
    assert kind(write(work, f"{shared}/sub/x")) == "outside"


def test_a_hard_link_is_replaced_not_written_through(work: RecordedContext, tmp_path: Path) -> None:
    os.link(tmp_path / "secret", work.workdir / "hard")
    assert write(work, "hard", "new").failure is None
    assert (tmp_path / "secret").read_text(encoding="ascii") == SECRET


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def exchange_for_ever(one: Path, other: Path, stop: threading.Event) -> None:
    """Exchange two names, over and over, so that there is never a moment without either."""
    while not stop.is_set():
        exchange(one, other)


@pytest.mark.parametrize("name", ["race/secret", "race"])
def test_a_link_that_appears_right_after_the_look(
    work: RecordedContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    race, link = work.workdir / "race", work.workdir / "link"
    if "/" in name:
        race.mkdir()
    else:
        race.write_text("inside", encoding="ascii")
    link.symlink_to(tmp_path / "folder" if "/" in name else tmp_path / "secret")
    look = os.stat

    def look_then_exchange(path: Any, **how: Any) -> os.stat_result:
        seen = look(path, **how)
        if path == "race":
            exchange(race, link)
        return seen

    monkeypatch.setattr(os, "stat", look_then_exchange)
    assert read(work, name).output in (None, "inside")


def test_a_race_does_not_lead_out(work: RecordedContext, tmp_path: Path) -> None:
    outside, race = tmp_path / "folder", work.workdir / "race"
    (outside / "only-outside").touch()
    race.mkdir()
    (race / "secret").write_text("inside", encoding="ascii")
    (work.workdir / "link").symlink_to(outside)
    stop = threading.Event()
    thread = threading.Thread(target=exchange_for_ever, args=(race, work.workdir / "link", stop))
    thread.start()
    try:
        seen = {read(work, "race/secret").output for _ in range(LOOKS)}
        written = {write(work, f"race/new-{n % 7}", "x").failure is None for n in range(LOOKS)}
        end = time.monotonic() + 60
        while True not in written and time.monotonic() < end:  # the other thread may hold the better hand for long
            written.add(write(work, "race/new", "x").failure is None)
        listed = {path for _ in range(LOOKS // 3) for path in list_files.call({}, work.context).output}
    finally:
        stop.set()
        thread.join()
    assert seen <= {"inside", None}  # never what lies outside
    assert True in written  # it was not only shut
    assert sorted(os.listdir(outside)) == ["only-outside", "secret"]
    assert not any("only-outside" in path for path in listed)


def test_a_folder_nested_too_deep(work: RecordedContext) -> None:
    subprocess.run(
        [sys.executable, "-c", "import os\nfor _ in range(250): os.mkdir('dddd'); os.chdir('dddd')"],
        cwd=work.workdir,
        check=True,
    )
    assert list_files.call({}, work.context).failure == Failure(
        kind="input", message="folders are nested more than 200 deep", hint="name a smaller folder in path"
    )
    subprocess.run(["rm", "-rf", "dddd"], cwd=work.workdir, check=True)

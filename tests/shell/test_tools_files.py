"""The file tools doing their work."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Failure
from agentfs.tools import files
from agentfs.tools.base import ToolResult
from agentfs.tools.files import edit_file, list_files, read_file, search_files, write_file
from tests.contexts import RecordedContext, a_context


@pytest.fixture
def work(tmp_path: Path) -> RecordedContext:
    return a_context(tmp_path)


def put(work: RecordedContext, path: str, content: str | bytes = "") -> Path:
    file = work.workdir / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def failure(result: ToolResult) -> Failure:
    assert result.failure is not None, result
    return result.failure


# ── read ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_read_gives_the_text_as_it_is(work: RecordedContext) -> None:
    put(work, "a/b.txt", "one\r\ntwo é\n")
    assert read_file.call({"path": "a/b.txt"}, work.context) == ToolResult("one\r\ntwo é\n")
    assert read_file.call({"path": f"{work.workdir}/a/b.txt"}, work.context) == ToolResult("one\r\ntwo é\n")
    assert work.claims == [None, None]


def test_read_what_is_not_there(work: RecordedContext) -> None:
    missing = read_file.call({"path": "nope/x"}, work.context)
    assert failure(missing) == Failure(kind="input", message="there is no nope/x in the working folder")


def test_read_what_is_not_text(work: RecordedContext) -> None:
    put(work, "picture", b"\x89PNG\r\n\xff\xff")
    put(work, "late", b"x" * 100_000 + b"\xff")
    for path in ("picture", "late"):
        assert failure(read_file.call({"path": path}, work.context)) == Failure(
            kind="input", message=f"{path} is not UTF-8 text", hint="use shell or python for other files"
        )
    assert not work.context.output_file.exists()


def test_read_a_long_file(work: RecordedContext) -> None:
    content = "".join(f"line {n}\n" for n in range(10_000))
    put(work, "long", content)
    result = read_file.call({"path": "long"}, work.context)
    assert result.cut
    assert result.output.startswith(content[:2048])
    assert result.output.endswith(content[-2048:])
    assert f"{len(content) - 4096} bytes cut; the whole output is in steps/demo.1.output.txt" in result.output
    assert work.context.output_file.read_text(encoding="utf-8") == content


def test_secrets_do_not_reach_the_output(tmp_path: Path) -> None:
    work = a_context(tmp_path, environ={"DB_PASSWORD": "hunter22"})
    put(work, "x", "pw=hunter22\n")
    assert read_file.call({"path": "x"}, work.context).output == "pw=[secret DB_PASSWORD]\n"
    hits = search_files.call({"pattern": "pw"}, work.context).output
    assert hits == [{"path": "x", "line": 1, "text": "pw=[secret DB_PASSWORD]"}]


# ── write ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_write_makes_folders_and_counts_bytes(work: RecordedContext) -> None:
    result = write_file.call({"path": "a/b/c.txt", "content": "é\n"}, work.context)
    assert result == ToolResult({"path": "a/b/c.txt", "bytes": 3})
    assert (work.workdir / "a/b/c.txt").read_bytes() == "é\n".encode()
    assert os.listdir(work.workdir / "a/b") == ["c.txt"]


def test_write_replaces_whole_and_keeps_the_mode(work: RecordedContext) -> None:
    file = put(work, "run.sh", "a much longer content")
    file.chmod(0o750)
    before = file.stat().st_ino
    assert write_file.call({"path": "run.sh", "content": "short"}, work.context).failure is None
    assert (file.read_text(encoding="ascii"), file.stat().st_mode & 0o777) == ("short", 0o750)
    assert file.stat().st_ino != before


@pytest.mark.parametrize("path", [".", "a/", "a", "a/..", "/"])
def test_write_to_a_folder(work: RecordedContext, path: str) -> None:
    (work.workdir / "a").mkdir()
    assert failure(write_file.call({"path": path, "content": ""}, work.context)).kind in ("input", "outside")
    assert list(work.workdir.iterdir()) == [work.workdir / "a"]


def test_write_under_a_file(work: RecordedContext) -> None:
    put(work, "file", "x")
    assert failure(write_file.call({"path": "file/x", "content": ""}, work.context)) == Failure(
        kind="input", message="file is not a folder"
    )


def test_write_what_is_not_text(work: RecordedContext) -> None:
    assert failure(write_file.call({"path": "x", "content": "\ud800"}, work.context)).kind == "input"
    assert list(work.workdir.iterdir()) == []


def test_write_to_a_full_disk(work: RecordedContext, monkeypatch: pytest.MonkeyPatch) -> None:
    put(work, "x", "old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    found = failure(write_file.call({"path": "x", "content": "new"}, work.context))
    assert found == Failure(kind="disk", message="x cannot be written: No space left on device")
    assert {p.name: p.read_text(encoding="ascii") for p in work.workdir.iterdir()} == {"x": "old"}


# ── edit ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_edit_replaces_the_one_place(work: RecordedContext) -> None:
    file = put(work, "x", "a\r\nb\\1\nc\n")
    assert edit_file.call({"path": "x", "old": "b\\1", "new": "\\g<0>"}, work.context) == ToolResult({"path": "x"})
    assert file.read_bytes() == b"a\r\n\\g<0>\nc\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("b", "the text to replace is not in x"),
        ("aa-aa", "the text to replace occurs 2 times in x"),
        ("aaa", "the text to replace occurs 2 times in x"),
    ],
)
def test_edit_must_match_exactly_once(work: RecordedContext, content: str, message: str) -> None:
    file = put(work, "x", content)
    found = failure(edit_file.call({"path": "x", "old": "aa", "new": "c"}, work.context))
    assert found == Failure(kind="input", message=message, hint="old must match exactly once")
    assert file.read_text(encoding="ascii") == content


def test_edit_what_is_not_there_or_not_text(work: RecordedContext) -> None:
    put(work, "bin", b"\xff")
    for path in ("nope", "bin"):
        assert failure(edit_file.call({"path": path, "old": "a", "new": "b"}, work.context)).kind == "input"
    assert not (work.workdir / "nope").exists()


# ── list ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({}, ["a.md", "b.txt", "sub/c.md", "sub/deep/d.md"]),
        ({"pattern": "*.md"}, ["a.md"]),
        ({"pattern": "**/*.md"}, ["a.md", "sub/c.md", "sub/deep/d.md"]),
        ({"pattern": "sub/**"}, ["sub/c.md", "sub/deep/d.md"]),
        ({"pattern": "**/deep/*"}, ["sub/deep/d.md"]),
        ({"pattern": "*/?.md"}, ["sub/c.md"]),
        ({"pattern": "[ab].*"}, ["a.md", "b.txt"]),
        ({"pattern": "**/**/**/d.md"}, ["sub/deep/d.md"]),
        ({"pattern": "none"}, []),
        ({"path": "sub"}, ["sub/c.md", "sub/deep/d.md"]),
        ({"path": "./sub/", "pattern": "*"}, ["sub/c.md"]),
        ({"path": "sub", "pattern": "**/d.md"}, ["sub/deep/d.md"]),
    ],
)
def test_list(work: RecordedContext, given: dict[str, Any], paths: list[str]) -> None:
    for path in ("b.txt", "a.md", "sub/deep/d.md", "sub/c.md", ".git/objects/x"):
        put(work, path)
    assert list_files.call(given, work.context) == ToolResult(paths)


def test_list_a_pattern_that_could_explode(work: RecordedContext) -> None:
    put(work, "a" * 200)
    started = time.process_time()
    assert list_files.call({"pattern": "*a" * 100 + "b"}, work.context).output == []
    assert list_files.call({"pattern": "**/" * 200 + "b"}, work.context).output == []
    assert time.process_time() - started < 2


def test_list_what_is_not_a_folder(work: RecordedContext) -> None:
    put(work, "x")
    assert failure(list_files.call({"path": "x"}, work.context)).message == "x is not a folder"
    assert failure(list_files.call({"path": "y"}, work.context)).message == "there is no y in the working folder"


def test_list_a_name_that_is_not_utf8(work: RecordedContext) -> None:
    Path(os.fsdecode(os.fsencode(work.workdir) + b"/caf\xe9")).touch()
    assert list_files.call({}, work.context).output == ["caf\ufffd"]


def test_a_long_list_is_cut(work: RecordedContext) -> None:
    for n in range(500):
        put(work, f"file-{n:04}")
    result = list_files.call({}, work.context)
    assert (result.cut, type(result.output)) == (True, str)
    assert "file-0499" in work.context.output_file.read_text(encoding="utf-8")


def test_too_many_files(work: RecordedContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 3)
    for n in range(5):
        put(work, f"{n}")
    assert failure(list_files.call({}, work.context)).message == "there are more than 3 files"


# ── search ────────────────────────────────────────────────────────────────────────────────────────────────


def test_search_gives_path_line_and_text(work: RecordedContext) -> None:
    put(work, "a.txt", "one\ntwo tower\r\nthree\n")
    put(work, "sub/b.txt", "tw\n  two\n")
    put(work, "binary", b"two\0two")
    assert search_files.call({"pattern": "t.o\\b"}, work.context) == ToolResult(
        [{"path": "a.txt", "line": 2, "text": "two tower"}, {"path": "sub/b.txt", "line": 2, "text": "  two"}]
    )
    assert search_files.call({"pattern": "two", "path": "sub"}, work.context).output == [
        {"path": "sub/b.txt", "line": 2, "text": "  two"}
    ]
    assert search_files.call({"pattern": "two", "path": "sub/b.txt"}, work.context).output == [
        {"path": "sub/b.txt", "line": 2, "text": "  two"}
    ]
    assert search_files.call({"pattern": "absent"}, work.context) == ToolResult([])


def test_search_is_bounded(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=2**20)
    put(work, "x", ("y" * 600 + "\n") * 1500)
    hits = search_files.call({"pattern": "y"}, work.context).output
    assert (len(hits), hits[-1]) == (1000, {"path": "x", "line": 1000, "text": "y" * 500})


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "x" * 1001])
def test_search_for_what_is_no_pattern(work: RecordedContext, pattern: str) -> None:
    found = failure(search_files.call({"pattern": pattern}, work.context))
    assert (found.kind, found.message.startswith("the pattern")) == ("input", True)


def test_a_pattern_that_explodes_is_ended(tmp_path: Path) -> None:
    work = a_context(tmp_path, deadline_s=1)
    put(work, "x", "a" * 60 + "!")
    started = time.monotonic()
    found = failure(search_files.call({"pattern": "(a+)+$"}, work.context))
    assert (found.kind, found.message) == ("timeout", "the search took too long")
    assert time.monotonic() - started < 40


def test_a_search_that_is_stopped(work: RecordedContext) -> None:
    put(work, "x", "a" * 60 + "!")
    work.stop.set()
    assert failure(search_files.call({"pattern": "(a+)+$"}, work.context)).kind == "interrupted"

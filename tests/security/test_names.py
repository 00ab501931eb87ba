"""Names and paths: five thousand of each kind, and ten thousand swaps of a link, and nothing is ever outside.

Of paths and swaps only a part by default; all of them with `./test --full`.

Opening without RESOLVE_BENEATH makes the tests of paths fail; an `ID_PATTERN` that lets dots through, that of ids (both
were tried).
"""

import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs.core import paths
from agentfs.core.documents import Document, read_json
from agentfs.core.plan_check import check_plan
from agentfs.core.problems import Rejected
from agentfs.storage import safe_open
from agentfs.tools.base import ToolResult
from agentfs.tools.files import edit_file, list_files, read_file, search_files, write_file
from tests.builders import CATALOGUE
from tests.contexts import RecordedContext, a_context, in_workspace
from tests.security.test_safe_open import exchange_for_ever
from tests.sweeps import size

COUNT = 5_000
PATHS, SWAPS = size(250, 5_000), size(1_000, 10_000)
ODD = (
    *("..", ".", "/", "//", "\\", "\0", "\n", "\r", "\t", " ", "-", "--", "~", "$HOME", "%2e%2e", "CON", "nul", "a", "Z", "0"),
    *(".git", "steps", "result", ".1.result.json", ".1", ".json", "plan.json", "goals", "runs", "\u202e", "é", "e\u0301", "\u0130", "\u017f"),
    *("K", "\u2024", "\u2215", "\uff0e", "\uff0f", "\x7f", "\x1b[2J", "\ud800", "a" * 70, "/etc/passwd", "/proc/self/environ", "*"),
    *("secret", "folder", "link", "way-out", "sub", ":", ";", "|", "&", "<", ">", '"', "'", "`", "$(", ")", "{", "}", "{{goal}}"),
)  # fmt: skip
SAFE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SECRET = "outside!"


def odd_names(seed: str) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(COUNT):
        yield "".join(chance.choices(ODD, k=chance.randrange(6)))


def is_allowed(document: Document) -> bool:
    try:
        check_plan(document, CATALOGUE)
    except Rejected:
        return False
    return True


def test_an_id_is_safe_or_refused() -> None:
    empty = read_json(b"{}")
    allowed = set()
    for name in {*odd_names("ids"), "ok", "ok\n", "a" * 63, "a" * 64, "-a", "0"}:
        step = {"id": name, "tool": "note", "input": {"text": "x"}}
        if is_allowed(empty.with_value({"status": "approved", "steps": [step]})):
            allowed.add(name)
            assert os.path.basename(paths.step_file(name, 1, "result")) == paths.step_file(name, 1, "result")
    assert {name for name in allowed if not SAFE.fullmatch(name)} == set()
    assert {"ok", "a" * 63, "0"} <= allowed


def test_a_run_is_called_something_safe() -> None:
    for name in odd_names("runs"):
        called = paths.run_name(name)
        assert re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?", called), (name, called)
        assert paths.is_run_id(f"2026-11-16/{called}")
    assert not any(paths.is_run_id(name) for name in odd_names("ids of runs") if not name.isdigit())


# ── paths of the file tools ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["openat2", "step by step"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "step by step":
        monkeypatch.setattr(safe_open, "_opener", lambda: safe_open._step_by_step)
    elif safe_open._opener() is not safe_open._openat2:
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    for folder in ("", "folder", "workspace-2", "way-out"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "secret").write_text(SECRET, encoding="ascii")
    return tmp_path


def odd_paths(work: RecordedContext, seed: str) -> Iterator[str]:
    chance = random.Random(seed)
    parts = (*ODD, *(["/", "..", "/..", "sub/", "way-out/", "link"] * 6), str(work.workdir), str(work.workdir.parent))
    for _ in range(PATHS):
        yield "".join(chance.choices(parts, k=chance.randrange(1, 9)))


def tried(work: RecordedContext, path: str) -> Iterator[ToolResult]:
    calls: tuple[Callable[[], ToolResult], ...] = (
        lambda: read_file.call({"path": path}, work.context),
        lambda: write_file.call({"path": path, "content": "evil"}, work.context),
        lambda: edit_file.call({"path": path, "old": SECRET, "new": "evil"}, work.context),
        lambda: list_files.call({"path": path}, work.context),
    )
    for call in calls:
        yield call()


@pytest.mark.parametrize("context", [a_context, in_workspace], ids=["files", "workspace"])
def test_no_path_leads_out(outside: Path, context: Callable[..., RecordedContext], opener: str) -> None:
    """Each path for reading, writing, editing and listing: the four tools, two folders and both ways of opening."""
    work = context(outside, output_bytes=10_000_000)
    (work.workdir / "way-out").symlink_to(outside / "folder")
    (work.workdir / "link").symlink_to(outside / "secret")
    (work.workdir / "sub").mkdir()
    protected = {path: path.read_bytes() for path in work.workspace.rglob("*") if path.is_file()}
    for path in odd_paths(work, opener):
        for result in tried(work, path):
            assert SECRET not in str(result.output), path
            assert result.failure is None or result.failure.kind in ("outside", "input", "output", "timeout"), (
                path,
                result,
            )
    found = {path: path.read_bytes() for path in outside.rglob("secret") if path.is_file()}
    assert {text for path, text in found.items() if not path.is_relative_to(work.workdir)} == {SECRET.encode()}
    assert {path for path, text in protected.items() if path.read_bytes() != text} == set()
    new = {path for path in outside.rglob("*") if path.is_file() and path.read_bytes() == b"evil"}
    assert {path for path in new if not path.resolve().is_relative_to(work.workdir)} == set()
    for part in ("goals", "schemas", "tools", "prompts"):
        assert not any((work.workspace / part).glob("*"))


def test_a_link_that_is_swapped_all_the_time_never_leads_out(outside: Path, opener: str) -> None:
    work = a_context(outside, deadline_s=600)  # ten thousand swaps take more than the half minute of one call
    race = work.workdir / "race"
    race.mkdir()
    (race / "secret").write_text("inside", encoding="ascii")
    (work.workdir / "link").symlink_to(outside / "folder")
    stop = threading.Event()
    thread = threading.Thread(target=exchange_for_ever, args=(race, work.workdir / "link", stop))
    thread.start()
    seen, searched = set(), set()
    try:
        for number in range(SWAPS):
            seen.add(read_file.call({"path": "race/secret"}, work.context).output)
            if number % 5 == 0:
                write_file.call({"path": f"race/new-{number % 7}", "content": "x"}, work.context)
            if number % 200 == 0:
                searched.add(str(search_files.call({"pattern": "outside"}, work.context).output))
    finally:
        stop.set()
        thread.join()
    assert seen <= {"inside", None}
    assert "inside" in seen
    assert searched == {"[]"}
    assert os.listdir(outside / "folder") == ["secret"]

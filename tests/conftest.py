"""Fixtures for every suite. AGENTFS_TEST_VERIFY=1: files and ledger of every workspace a test leaves must agree.

Temporary folders are in memory where there is room: an fsync on a disk takes milliseconds, and there are many.
A test of what only a disk has is marked `disk`.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("_AGENTFS_TIMING_DIVISOR", "10")  # before anything of agentfs is imported

from tests import sweeps
from tests.workspaces import Place, disagreements, end_processes_in, ended_commands

MEMORY, ROOM = "/dev/shm", 2_000_000_000  # bytes

# Tests that are started in the background, or by nohup, may ignore these; the programs they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Yield a folder of the test's own on a disk."""
    with tempfile.TemporaryDirectory(prefix="agentfs-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder of the test's own, in memory; on a disk for a test that is marked so."""
    if not request.node.get_closest_marker("disk"):
        return tmp_path
    folder: Path = request.getfixturevalue("disk_path")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(autouse=True)
def verified(request: pytest.FixtureRequest) -> Iterator[None]:
    with ended_commands():
        yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is not None and "place" in request.node.funcargs:
        end_processes_in(folder)
    if os.environ.get("AGENTFS_TEST_VERIFY") and folder and not request.node.get_closest_marker("tampers"):
        assert [words for root in folder.rglob("agentfs.toml") for words in disagreements(root.parent)] == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Collect what a failed test has left before its source is parsed for the report.

    A warning of an open file, raised while Python parses, is shown with a source that is parsed too: Python 3.11 ends
    that with a SystemError, and pytest the whole run.
    """
    if call.excinfo is not None:
        gc.collect()
    return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="also ask a real model: see tests/live/conftest.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if sweeps.WANTED:  # hundreds of cases in one test
        for item in items:
            item.add_marker(pytest.mark.timeout(sweeps.LONGEST))
    if not config.getoption("--live"):
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="asks a real model: --live"))

"""Fixtures for every suite. AGENTFS_TEST_VERIFY=1: files and ledger of every workspace a test leaves must agree."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspaces import Place, disagreements

# Who starts the tests in the background may have them ignore Ctrl-C; the programs they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(autouse=True)
def verified(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    folder = request.node.funcargs.get("tmp_path")
    if os.environ.get("AGENTFS_TEST_VERIFY") and folder and not request.node.get_closest_marker("tampers"):
        assert [words for root in folder.rglob("agentfs.toml") for words in disagreements(root.parent)] == []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="also ask a real model: see tests/live/conftest.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--live"):
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="asks a real model: --live"))

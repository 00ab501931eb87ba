"""Fixtures for every suite."""

from pathlib import Path

import pytest

from tests.workspaces import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="also ask a real model: see tests/live/conftest.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--live"):
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="asks a real model: --live"))

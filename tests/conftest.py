"""Fixtures for every suite."""

from pathlib import Path

import pytest

from tests.workspaces import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)

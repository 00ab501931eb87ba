"""What may be reached from where depends on the folders above: here every test has its folder on a disk, as people do."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    return disk_path

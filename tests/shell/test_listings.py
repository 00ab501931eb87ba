"""What folders hold, read anew only where a folder has changed: never a listing that is no longer true."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfs.tools import listings
from agentfs.tools.listings import SETTLED_NS, Listings
from tests.workspaces import wait_for


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were read."""
    found: list[str] = []
    real = listings.read

    def read(folder: str) -> tuple[listings.Listed, ...]:
        found.append(folder)
        return real(folder)

    monkeypatch.setattr(listings, "read", read)
    return found


def settled(folder: Path) -> str:
    """Return a folder once its last change is a while ago."""
    wait_for(lambda: time.time_ns() - folder.stat().st_ctime_ns > SETTLED_NS, "a folder that nobody changes")
    return str(folder)


def test_a_folder_that_has_not_changed_is_read_once(tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    (tmp_path / "c").symlink_to("a")
    kept, folder = Listings(), settled(tmp_path)
    first = kept.of(folder)
    assert sorted((one.name, one.is_folder, one.is_file) for one in first) == [
        ("a", True, False),
        ("b", False, True),
        ("c", False, False),
    ]
    assert kept.of(folder) is first
    assert reads == [folder]


def planted(folder: Path) -> None:
    """Put something there and set the folder's time back."""
    before = folder.stat()
    (folder / "new").touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "new").mkdir(),
        lambda folder: (folder / "old").unlink(),
        lambda folder: (folder / "old").rename(folder / "renamed"),
        lambda folder: (folder / "other").replace(folder / "old"),
        planted,
    ],
)
def test_a_change_is_seen(tmp_path: Path, reads: list[str], change: Callable[[Path], object]) -> None:
    (tmp_path / "old").touch()
    (tmp_path / "other").touch()
    kept, folder = Listings(), settled(tmp_path)
    kept.of(folder)
    change(tmp_path)
    assert sorted(one.name for one in kept.of(folder)) == sorted(os.listdir(folder))
    assert len(reads) == 2


def test_what_changes_in_the_moment_of_a_look_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On kernels before 6.13 two changes in one tick bear the same time. With listings kept at once this fails."""
    real, tick = os.stat, 10_000_000

    def stat(path: str) -> SimpleNamespace:
        found = real(path)
        return SimpleNamespace(st_dev=found.st_dev, st_ino=found.st_ino, st_ctime_ns=found.st_ctime_ns // tick * tick)

    monkeypatch.setattr("agentfs.tools.listings.os", SimpleNamespace(stat=stat, scandir=os.scandir))
    kept = Listings()
    for number in range(300):
        (tmp_path / str(number)).touch()
        kept.of(str(tmp_path))
        (tmp_path / f"{number}-again").touch()
        assert len(kept.of(str(tmp_path))) == 2 * number + 2


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    kept = Listings()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").touch()
    assert len(kept.of(settled(folder))) == 1
    folder.rename(tmp_path / "elsewhere")
    assert kept.of(str(folder)) == ()
    folder.mkdir()
    assert kept.of(str(folder)) == ()

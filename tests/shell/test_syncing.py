"""What the kernel makes durable meanwhile: begun, waited for, and told when it cannot be."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs import syncing
from agentfs.syncing import Syncing

ONE = "import sys; from agentfs.syncing import Syncing; s = Syncing(); s.begin(sys.argv[1]); s.finish()"


def test_a_folder_is_synced_by_the_kernel_and_waited_for(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    calls = "trace=io_setup,io_submit,io_getevents,fsync"
    subprocess.run(
        ["strace", "-f", "-e", calls, "-o", trace, sys.executable, "-c", ONE, tmp_path], check=True, timeout=60
    )
    told = trace.read_text()
    if "io_setup(64, [" not in told:
        assert "fsync(" in told
        pytest.skip("no asynchronous I/O here: it is synced at once")
    assert "IOCB_CMD_FSYNC" in told
    assert told.index("io_submit") < told.index("io_getevents")
    assert "fsync(" not in told


def test_without_the_kernels_help_it_is_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(syncing, "_kernel", lambda: None)
    one = Syncing()
    one.begin(str(tmp_path))
    assert synced == [str(tmp_path)]
    one.finish()


def test_what_cannot_be_synced_is_told() -> None:
    one = Syncing()
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):  # nothing in /proc can be made durable
        begin_and_finish(one, "/proc")


def test_what_the_disk_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def begin(self, _descriptor: int) -> bool:
            return True

        def result(self, _descriptor: int) -> int:
            return -errno.EIO

    monkeypatch.setattr(syncing, "_kernel", Broken)
    before = open_files()
    one = Syncing()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        begin_and_finish(one, str(tmp_path))
    assert open_files() == before
    one.finish()  # it was told once


def test_many_at_once_each_learn_of_their_own(tmp_path: Path) -> None:
    before, troubles = open_files(), []

    def often(folder: Path) -> Callable[[], None]:
        def work() -> None:
            one = Syncing()
            for number in range(50):
                (folder / str(number)).touch()
                try:
                    begin_and_finish(one, str(folder))
                except OSError as error:
                    troubles.append(error)

        return work

    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
    threads = [threading.Thread(target=often(folder)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert troubles == []
    assert not any(thread.is_alive() for thread in threads)
    assert open_files() == before


def begin_and_finish(one: Syncing, folder: str) -> None:
    one.begin(folder)
    one.finish()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_forked_child_asks_for_itself(tmp_path: Path) -> None:
    begin_and_finish(Syncing(), str(tmp_path))
    child = os.fork()
    if child == 0:
        try:
            begin_and_finish(Syncing(), str(tmp_path))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

"""Files appear whole, once; plan.json is exchanged without losing anybody's words."""

import errno
import os
import threading
from pathlib import Path

import pytest

from agentfs.storage import files as disk
from agentfs.storage.files import publish, replace
from agentfs.storage.plan_files import install


def test_a_file_appears_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    publish(tmp_path / "a", b"x" * 100_000, durable=True)
    assert (tmp_path / "a").read_bytes() == b"x" * 100_000
    assert os.listdir(tmp_path) == ["a"]


def test_a_fact_is_never_rewritten(tmp_path: Path) -> None:
    publish(tmp_path / "a", b"first", durable=False)
    with pytest.raises(FileExistsError):
        publish(tmp_path / "a", b"second", durable=False)
    assert (tmp_path / "a").read_bytes() == b"first"


@pytest.mark.parametrize("durable", [True, False])
def test_where_files_need_a_name_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    real = os.open

    def without_unnamed(path: str, flags: int, *more: int, **named: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no unnamed files here")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", without_unnamed)
    publish(tmp_path / "a", b"whole", durable=durable)
    with pytest.raises(FileExistsError):
        publish(tmp_path / "a", b"second", durable=durable)
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["a"]


def test_one_of_many_publishers_wins(tmp_path: Path) -> None:
    won: list[int] = []

    def race(number: int) -> None:
        try:
            publish(tmp_path / "a", str(number).encode(), durable=False)
            won.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=race, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int((tmp_path / "a").read_bytes())] == won


def test_a_plan_is_installed_where_there_was_none(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert install(plan, b"new", None) == (True, None)
    assert plan.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_plan_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"a person's")
    assert install(plan, b"new", None) == (False, None)
    assert plan.read_bytes() == b"a person's"


def test_a_known_plan_is_exchanged(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"old")
    placed, leftover = install(plan, b"new", b"old")
    assert placed
    assert leftover is not None
    assert (plan.read_bytes(), leftover.path.read_bytes(), leftover.rescued()) == (b"new", b"old", None)
    leftover.remove()
    assert os.listdir(tmp_path) == ["plan.json"]


def test_an_unseen_edit_goes_back_to_its_place(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"edited")
    placed, leftover = install(plan, b"new", b"old")
    assert not placed
    assert leftover is not None
    assert (plan.read_bytes(), leftover.rescued()) == (b"edited", None)


def test_a_save_into_the_file_that_came_out_is_found(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"old")
    with plan.open("r+b") as editor:
        _, leftover = install(plan, b"new", b"old")
        assert leftover is not None
        editor.write(b"an edit")
    assert leftover.rescued() == b"an edit"


def test_a_deleted_plan_holds_nothing_to_lose(tmp_path: Path) -> None:
    assert install(tmp_path / "plan.json", b"new", b"old")[0]
    assert (tmp_path / "plan.json").read_bytes() == b"new"


def test_where_files_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "no exchange here")

    monkeypatch.setattr(disk, "_renameat2", refuse)
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"old")
    assert install(plan, b"new", b"old")[0]
    assert plan.read_bytes() == b"new"
    assert not install(plan, b"newer", b"old")[0]
    assert plan.read_bytes() == b"new"


def test_a_view_is_replaced_whole(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        replace(tmp_path / "STATUS.md", text)
    assert (tmp_path / "STATUS.md").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["STATUS.md"]

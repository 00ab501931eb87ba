"""Every editor's way of saving plan.json under a running daemon: no save is lost, each is a revision of that person's,
no byte is changed, and nothing that an editor leaves beside it is mistaken for anything."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
ROUNDS = 2
Save = Callable[[Path, str, str], None]  # plan.json; the words to replace, and those in their place


def run(*argv: str, given: str | None = None) -> None:
    subprocess.run(argv, input=given, check=True, capture_output=True, text=True, timeout=60)


def edited(plan: Path, old: str, new: str) -> str:
    """What an editor has in memory, in a layout of its own: nobody may put it in order."""
    return plan.read_text().replace(old, new).replace('"status": ', '"status" :  ', 1)


def with_vim(plan: Path, old: str, new: str) -> None:
    """Writes 4913 to see whether it may, keeps the old file as plan.json~, makes a new one."""
    run(
        "vim",
        "-u",
        "NONE",
        "-N",
        "-es",
        "-c",
        "set backup backupcopy=no",
        "-c",
        f"%s/{old}/{new}/",
        "-c",
        "wq",
        str(plan),
    )


def with_vim_in_place(plan: Path, old: str, new: str) -> None:
    run("vim", "-u", "NONE", "-N", "-es", "-c", "set backupcopy=yes", "-c", f"%s/{old}/{new}/", "-c", "wq", str(plan))


def with_sed(plan: Path, old: str, new: str) -> None:
    run("sed", "-i", f"s/{old}/{new}/", str(plan))


def with_sed_and_backup(plan: Path, old: str, new: str) -> None:
    run("sed", "-i.bak", f"s/{old}/{new}/", str(plan))


def with_ed(plan: Path, old: str, new: str) -> None:
    run("ed", "-s", str(plan), given=f",s/{old}/{new}/\nw\nq\n")


def with_nano(plan: Path, old: str, new: str) -> None:
    """Locks beside, writes in place."""
    lock = plan.with_name(f".{plan.name}.swp")
    lock.write_bytes(b"b0nano")
    plan.write_text(edited(plan, old, new))
    lock.unlink()


def with_mv(plan: Path, old: str, new: str) -> None:
    beside = plan.parent.parent / ".elsewhere.json"
    beside.write_text(edited(plan, old, new))
    run("mv", str(beside), str(plan))


def with_cp(plan: Path, old: str, new: str) -> None:
    source = plan.parent.parent / f".{plan.parent.name}.json"
    source.write_text(edited(plan, old, new))
    run("cp", str(source), str(plan))
    source.unlink()


def slowly(plan: Path, old: str, new: str) -> None:
    """Empties the file, then writes a piece, and another, and has it open all the while."""
    source = plan.parent.parent / f".{plan.parent.name}.json"
    source.write_text(edited(plan, old, new))
    pieces = f"head -c 60 {source}; sleep 0.4; tail -c +61 {source} | head -c 60; sleep 0.4; tail -c +121 {source}"
    run("sh", "-c", f"{{ {pieces}; }} > {plan}")
    source.unlink()


def with_vscode(plan: Path, old: str, new: str) -> None:
    """Opens it for writing, empties it, writes, flushes."""
    text = edited(plan, old, new).encode()
    descriptor = os.open(plan, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, text[:50])
    os.write(descriptor, text[50:])
    os.fsync(descriptor)
    os.close(descriptor)


def with_jetbrains(plan: Path, old: str, new: str) -> None:
    """A safe write: the new file beside, the old one out of the way, the new one in its place."""
    fresh, aside = plan.with_name("plan.json___jb_tmp___"), plan.with_name("plan.json___jb_old___")
    fresh.write_text(edited(plan, old, new))
    os.rename(plan, aside)
    os.rename(fresh, plan)
    aside.unlink()


def with_emacs(plan: Path, old: str, new: str) -> None:
    """Locks with a dangling link, saves what is not saved yet beside, keeps the old file as plan.json~."""
    lock, unsaved, text = plan.with_name(".#plan.json"), plan.with_name("#plan.json#"), edited(plan, old, new)
    lock.symlink_to("you@here.1234:1")
    unsaved.write_text(text)
    os.replace(plan, plan.with_name("plan.json~"))
    plan.write_text(text)
    unsaved.unlink()
    lock.unlink()


def with_gedit(plan: Path, old: str, new: str) -> None:
    fresh = plan.with_name(".goutputstream-AB12CD")
    fresh.write_text(edited(plan, old, new))
    os.rename(fresh, plan)


WAYS: dict[str, Save] = {
    "vim": with_vim,
    "vim-in-place": with_vim_in_place,
    "sed": with_sed,
    "sed-backup": with_sed_and_backup,
    "ed": with_ed,
    "nano": with_nano,
    "mv": with_mv,
    "cp": with_cp,
    "slow": slowly,
    "vscode": with_vscode,
    "jetbrains": with_jetbrains,
    "emacs": with_emacs,
    "gedit": with_gedit,
}
NEEDS = {"vim": "vim", "vim-in-place": "vim", "ed": "ed"}


def test_every_way_of_saving_is_a_revision_of_the_persons(place: Place) -> None:
    missing = {program for program in NEEDS.values() if shutil.which(program) is None}
    ways = {name: save for name, save in WAYS.items() if NEEDS.get(name) not in missing}
    place.env |= ADA
    with Watching(place) as daemon:
        for name in ways:
            daemon.drop(f"{name}.md", book("echo save-0", lines="gate"))
        for name in ways:
            wait_for((daemon.folder(name) / "steps" / "a.1.question.md").exists, f"the question of {name}")
        for number in range(1, ROUNDS + 1):
            saved = {name: _save(daemon.folder(name) / "plan.json", save, number) for name, save in ways.items()}
            for name, source in saved.items():
                _is_revision(daemon, name, number + 1, source)
        for name in ways:
            _approve(daemon.folder(name) / "steps", ROUNDS + 1)
        for name in ways:
            assert daemon.outcome(name)["answer"] == f"save-{ROUNDS}", name
        _nothing_else_happened(daemon, list(ways))
    if missing:
        pytest.skip(f"the others are fine, but there is no {', '.join(sorted(missing))}")


def _save(plan: Path, save: Save, number: int) -> bytes:
    """Save in that way; return what the person sees in the file then."""
    save(plan, f"save-{number - 1}", f"save-{number}")
    source = plan.read_bytes()
    assert f"save-{number}".encode() in source
    return source


def _approve(steps: Path, attempt: int) -> None:
    """Say yes to the last question: every edit of the order spent the number of the one before."""
    wait_for((steps / f"a.{attempt}.question.md").exists, f"the question about attempt {attempt}")
    (steps / f"a.{attempt}.reply.md").write_text("approve\n")


def _is_revision(daemon: Watching, name: str, number: int, source: bytes) -> None:
    folder = daemon.folder(name)
    wait_for((folder / "revisions" / f"{number}.json").exists, f"revision {number} of {name}")
    assert (folder / "revisions" / f"{number}.plan.json").read_bytes() == source, name
    assert (folder / "plan.json").read_bytes() == source, name
    record = daemon.place.read(f"revisions/{number}.json", name)
    assert (record["by"]["role"], record["by"]["name"], record["trigger"]) == ("person", "Ada", "edited")
    assert {change["what"] for change in record["changes"]} == {"input changed"}, name


def _nothing_else_happened(daemon: Watching, names: list[str]) -> None:
    place = daemon.place
    assert sorted(path.name for path in place.runs.glob("????-??-??/*") if not path.name.startswith(".")) == sorted(
        names
    )
    assert [path.name for path in daemon.goals.iterdir() if path.name != "rejected"] == []
    for name in names:
        folder = place.run_folder(name)
        assert len(list((folder / "revisions").glob("*.plan.json"))) == ROUNDS + 1, name
        assert list(folder.glob("plan.saved-*")) == list(folder.glob("plan.error.md")) == [], name
        wait_for(lambda n=name: len(_commits(place, n)) == ROUNDS + 2, f"the commits of {name}")  # type: ignore[misc]
        assert _commits(place, name) == [
            f"agentfs {name}: revision 1, the first plan",
            *(f"Ada {name}: revision {number}, edited by Ada" for number in range(2, ROUNDS + 2)),
            f"agentfs {name}: done, 1 of 1 steps",
        ]


def _commits(place: Place, name: str) -> list[str]:
    return [line for line in place.log() if line.split(" ", 1)[1].startswith(f"{name}: ")]

"""However an editor or a program puts a file into goals/: it runs, exactly once and whole; their litter is ignored."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place

GOOD = book("echo x >> effect; echo good").rstrip() + "\n"


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    with Watching(Place(tmp_path_factory.mktemp("saves"))) as daemon:
        yield daemon


def write(path: Path, *, pieces: int = 2, flags: int = os.O_TRUNC) -> None:
    """Write a file in several pieces, as a program without a buffer does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    size = -(-len(GOOD) // pieces)
    for at in range(0, len(GOOD), size):
        os.write(descriptor, GOOD[at : at + size].encode())
    os.close(descriptor)


def renamed(temp: str) -> Callable[[Path], None]:
    """Write under another name in the same folder, then rename."""

    def save(path: Path) -> None:
        beside = path.with_name(temp.format(path.name))
        write(beside)
        os.rename(beside, path)

    return save


def with_vim(path: Path) -> None:
    if shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    source = path.with_name(".source")
    source.write_text(GOOD)
    argv = [
        "vim",
        "-u",
        "NONE",
        "-N",
        "-es",
        "-c",
        "set backup writebackup",
        "-c",
        f"0read {source}",
        "-c",
        "wq",
    ]
    subprocess.run([*argv, str(path)], check=True, stdin=subprocess.DEVNULL, timeout=60)
    source.unlink()


def with_emacs(path: Path) -> None:
    """It locks with a dangling link, saves what is not saved yet beside, and keeps the file that was there."""
    lock, unsaved = path.with_name(f".#{path.name}"), path.with_name(f"#{path.name}#")
    lock.symlink_to("you@here.1234:1")
    write(unsaved)
    write(path)
    unsaved.unlink()
    lock.unlink()
    write(path.with_name(f"{path.name}~"))


def with_nano(path: Path) -> None:
    lock = path.with_name(f".{path.name}.swp")
    lock.write_bytes(b"b0nano")
    write(path)
    lock.unlink()


def with_jetbrains(path: Path) -> None:
    renamed("{}___jb_tmp___")(path)
    write(path.with_name(f"{path.name}___jb_old___"))


def with_libreoffice(path: Path) -> None:
    lock = path.with_name(f".~lock.{path.name}#")
    lock.write_text(",you,here")
    renamed("lu12345abc.tmp")(path)
    lock.unlink()


def with_rsync(path: Path) -> None:
    """It renames, with the time the file has where it comes from."""
    beside = path.with_name(f".{path.name}.Xy12ab")
    write(beside)
    os.utime(beside, (1_000_000_000, 1_000_000_000))
    os.rename(beside, path)


def with_scp(path: Path) -> None:
    """It writes in place, then sets size and time."""
    write(path, pieces=5)
    os.truncate(path, len(GOOD.encode()))
    os.utime(path, (1_000_000_000, 1_000_000_000))


def with_tail(path: Path) -> None:
    """A program that opens the file for every line."""
    for line in GOOD.splitlines(keepends=True):
        with path.open("a") as file:
            file.write(line)


def with_ln(path: Path) -> None:
    kept = path.parent.parent / f"{path.name}.kept"
    kept.write_text(GOOD)
    os.link(kept, path)


WAYS: dict[str, Callable[[Path], None]] = {
    "vim": with_vim,
    "emacs": with_emacs,
    "nano": with_nano,
    "vscode": write,
    "jetbrains": with_jetbrains,
    "libreoffice": with_libreoffice,
    "gedit": renamed(".goutputstream-AB12CD"),
    "kate": renamed("{}.AbCdEf"),
    "sublime": renamed(".subl1a2.tmp"),
    "sed": renamed("sedKZ6snr"),
    "browser": renamed("{}.crdownload"),
    "rsync": with_rsync,
    "scp": with_scp,
    "tail": with_tail,
    "ln": with_ln,
}


def test_a_save_of_any_program_runs_once(watching: Watching) -> None:
    for name, save in WAYS.items():
        save(watching.goals / f"{name}.md")
    for name in WAYS:
        assert watching.outcome(name)["answer"] == "good", name
        folder = watching.place.run_folder(name)
        assert (folder / "goal.md").read_text() == GOOD, name
        assert (folder / "files" / "effect").read_text() == "x\n", name
    assert not any(watching.place.runs.glob("*/*-2"))
    assert "rejected" not in watching.output()


def test_a_git_checkout_puts_goals_there(watching: Watching) -> None:
    root = watching.place.root
    env = {**watching.place.env, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> None:
        identity = ["-c", "user.name=you", "-c", "user.email=you@here", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *words], cwd=root, env=env, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "nothing yet")
    git("checkout", "-b", "work")
    elsewhere = root / "elsewhere.md"
    elsewhere.write_text(GOOD)
    for name in ("one", "two"):
        blob = subprocess.check_output(["git", "hash-object", "-w", str(elsewhere)], cwd=root, env=env, text=True)
        git("update-index", "--add", "--cacheinfo", f"100644,{blob.strip()},goals/from-git-{name}.md")
    git("commit", "-m", "two goals")
    git("checkout", "-f", "main")
    git("checkout", "-f", "work")
    for name in ("from-git-one", "from-git-two"):
        assert watching.outcome(name)["answer"] == "good"
        assert (watching.place.run_folder(name) / "files" / "effect").read_text() == "x\n"


LITTER = [
    ".x.md.swp", ".x.md.swo", "x.md~", ".x.md.un~", "4913",  # vim
    "#x.md#", "x.md.~1~",  # Emacs
    "x.md.save", "x.md.save.1",  # nano
    ".x.md.kate-swp",  # Kate
    ".goutputstream-AB12CD",  # gedit
    "x.md___jb_tmp___", "x.md___jb_old___",  # JetBrains
    ".subl1a2.tmp",  # Sublime Text
    ".~lock.x.md#", "~$x.md", "~WRL0001.tmp",  # LibreOffice, Word
    "._x.md", ".DS_Store",  # macOS
    "Thumbs.db", "desktop.ini", "x.md:Zone.Identifier",  # Windows
    "x.md.part", "x.md.crdownload", ".x.md.Xy12ab", "x.md.filepart",  # browsers, rsync, WinSCP
    ".syncthing.x.md.tmp", "x.md.orig", "x.md.rej", "x.md.bak", "sedKZ6snr", ".fuse_hidden000001", ".nfs0001",
]  # fmt: skip


def test_the_litter_of_editors_is_ignored(watching: Watching) -> None:
    for name in LITTER:
        (watching.goals / name).write_text(GOOD)
    (watching.goals / ".#x.md").symlink_to("you@here.1234:1")
    watching.drop("beside-it.md", GOOD)
    assert watching.outcome("beside-it")["answer"] == "good"
    assert {*LITTER, ".#x.md"} <= set(os.listdir(watching.goals))
    assert not any(watching.place.runs.glob("*/x*"))
    assert "left alone" not in watching.output().replace("goals/kate.md.AbCdEf is left alone", "")

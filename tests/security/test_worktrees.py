"""`isolate: worktree` in a repository that a step has made or changed: it leads to no other, and nothing of it runs.

Each was seen to get through: the run found the files of a repository in the person's home, whose branches it moved;
`apply` signed with a program that the repository named.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place

ISOLATED = "workdir: {folder}\nisolate: worktree"


def git(folder: Path, *words: str, given: str = "") -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=A", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, env=env, check=True, capture_output=True, text=True, input=given
    ).stdout


def repository(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "code.txt").write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder / ".git"


@pytest.fixture
def secret(place: Place) -> Path:
    """The git folder of a repository that no step may see."""
    place.agentfs("init")
    return repository(place.home / "secret", "1234")


# ── other repositories ────────────────────────────────────────────────────────────────────────────────────


def names_it(folder: Path, secret: Path) -> None:
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {secret}\n")


def is_a_link(folder: Path, secret: Path) -> None:
    folder.mkdir()
    (folder / ".git").symlink_to(secret)


def has_a_commondir(folder: Path, secret: Path) -> None:
    own = repository(folder, "own")
    (own / "commondir").write_text(f"{secret}\n")


def has_links_in_it(folder: Path, secret: Path) -> None:
    own = repository(folder, "own")
    for name in ("refs", "objects"):
        os.rename(own / name, own / f"{name}.own")
        (own / name).symlink_to(secret / name)


def has_linked_objects(folder: Path, secret: Path) -> None:
    own = repository(folder, "own")
    for part in (secret / "objects").iterdir():
        if not (own / "objects" / part.name).exists():
            (own / "objects" / part.name).symlink_to(part)
    (own / "refs/heads/main").write_text((secret / "refs/heads/main").read_text())


def has_alternates(folder: Path, secret: Path) -> None:
    own = repository(folder, "own")
    (own / "objects/info/alternates").write_text(f"{secret / 'objects'}\n")
    (own / "refs/heads/main").unlink()
    (own / "refs/heads/main").symlink_to(secret / "refs/heads/main")


WAYS: list[Callable[[Path, Path], None]] = [
    *(names_it, is_a_link, has_a_commondir, has_links_in_it, has_linked_objects, has_alternates),
]


@pytest.mark.parametrize("plant", WAYS)
def test_a_repository_that_leads_to_another_is_none(
    place: Place, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(place.root / "sub", secret)
    before = git(secret.parent, "for-each-ref")
    goal = book("cat code.txt", front=ISOLATED.format(folder="sub"))
    with Watching(place) as daemon:
        daemon.drop("job.md", goal)
        assert "to reach another repository (take it away first)" in daemon.rejected("job.md")
    (place.root / "job.md").write_text(goal)
    assert "1234" not in place.agentfs("run", "job.md", code=2).stdout
    assert (git(secret.parent, "for-each-ref"), git(secret.parent, "worktree", "list").count("\n")) == (before, 1)


def test_one_that_leads_elsewhere_later_is_let_go_of(place: Place, secret: Path) -> None:
    own = repository(place.root / "sub", "own")
    (place.root / "job.md").write_text(
        book("true", "cat code.txt", front=ISOLATED.format(folder="sub"), lines="gate")
    )
    place.agentfs("run", "job.md", code=3)
    (own / "objects/info/alternates").write_text(f"{secret / 'objects'}\n")
    place.agentfs("approve", "job", "a")
    done = place.agentfs("resume", "job", code=2)
    assert "names another repository" in done.stderr


# ── what agentfs itself reads and writes there ────────────────────────────────────────────────────────────


def has_a_file(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what makes a repository in which one file is something else."""

    def plant(folder: Path) -> None:
        path = repository(folder, "own") / name
        path.unlink(missing_ok=True)
        make(path)

    return plant


def is_a_file(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what makes a folder whose `.git` is something else."""

    def plant(folder: Path) -> None:
        folder.mkdir()
        make(folder / ".git")

    return plant


def names_a_pipe(folder: Path) -> None:
    own = repository(folder, "own").rename(folder / "own")
    (folder / ".git").write_text("gitdir: own\n")
    os.mkfifo(own / "gitdir")


def grow(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (is_a_file(os.mkfifo), "sub-pipe/.git: it is no regular file"),
    "zero": (is_a_file(lambda path: path.symlink_to("/dev/zero")), "sub-zero/.git: it is no regular file"),
    "endless": (is_a_file(grow), "sub-endless/.git: it is larger than 1 MB"),
    "nul": (is_a_file(lambda path: path.write_bytes(b"gitdir: a\0b")), "sub-nul/.git names no folder"),
    "bytes": (
        is_a_file(lambda path: path.write_bytes(b"gitdir: \xff\x1b[2J")),
        "git rev-parse: fatal: not a git repository",
    ),
    "pointer": (names_a_pipe, "names"),
    "exclude": (has_a_file("info/exclude", grow), "info/exclude: it is larger than 8 MB"),
    "index": (has_a_file("index", grow), "index: it is larger than 1000 MB"),
    "torn": (has_a_file("index", lambda path: path.write_text("torn")), "index file smaller than expected"),
    "head": (has_a_file("HEAD", os.mkfifo), "sub-head/.git/HEAD is not a regular file"),
}


def test_no_file_of_a_repository_holds_up_or_ends_what_reads_it(place: Place) -> None:
    """Each was waited for, read into memory, copied to its end, or a traceback."""
    place.agentfs("init")
    for name, (plant, _) in WRONG.items():
        plant(place.root / f"sub-{name}")
    with Watching(place) as daemon:
        for name, (_, words) in WRONG.items():
            daemon.drop(f"{name}.md", book("true", front=ISOLATED.format(folder=f"sub-{name}")))
            reason = daemon.rejected(f"{name}.md")
            assert f"isolate: the repository of {place.root}/sub-{name} cannot be used: " in reason
            assert words in reason
            assert "which is a bug" not in reason
            assert "\x1b" not in reason + daemon.output()


LINKS = {
    "worktrees/{name}/agentfs-at-work": "what agentfs notes there",
    "logs/refs/heads/agentfs": "where git notes what becomes of a branch",
}


@pytest.mark.parametrize("where", LINKS)
def test_nothing_is_written_through_a_link_in_a_repository(place: Place, secret: Path, where: str) -> None:
    """A step of another run works in the repository itself, and so writes where agentfs and git do."""
    own = repository(place.root / "sub", "own")
    (place.root / "job.md").write_text(
        book("echo a > a", "echo b > b", front=ISOLATED.format(folder="sub"), lines="gate")
    )
    place.agentfs("run", "job.md", code=3)
    path = own / where.format(name=next((own / "worktrees").iterdir()).name)
    subprocess.run(["rm", "-rf", str(path)], check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(secret.parent / "code.txt" if "at-work" in where else secret.parent)
    before = sorted(secret.parent.rglob("*"))
    place.agentfs("approve", "job", "a")
    assert f"{path} is a link" in place.agentfs("resume", "job", code=2).stderr
    assert (sorted(secret.parent.rglob("*")), (secret.parent / "code.txt").read_text()) == (before, "1234")


def test_worktrees_and_submodules_of_a_persons_own_are_what_they_say(place: Place, secret: Path) -> None:
    git(secret.parent, "worktree", "add", "-q", "-b", "side", str(place.root / "side"))
    git(place.root, "-c", "protocol.file.allow=always", "clone", "-q", "--recurse-submodules", str(secret), "over")
    git(place.root / "over", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(secret), "under")
    for folder in ("side", "over", "over/under"):
        (place.root / "job.md").write_text(book("cat code.txt", front=ISOLATED.format(folder=folder)))
        assert place.agentfs("run", "job.md").stdout == "1234\n"


# ── programs ──────────────────────────────────────────────────────────────────────────────────────────────


def test_no_program_of_a_repository_signs_or_verifies(place: Place, tmp_path: Path) -> None:
    place.agentfs("init")
    ran = tmp_path / "ran"
    repository(place.root / "sub", "own")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    (place.root / "job.md").write_text(book("echo more >> code.txt", front=ISOLATED.format(folder="sub")))
    place.agentfs("run", "job.md")
    (place.root / "sub" / "theirs.txt").write_text("theirs\n")  # so that the merge is a commit
    git(place.root / "sub", "add", "-A")
    git(place.root / "sub", "commit", "-qm", "two")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    branch = place.read("outcome.json")["branch"]
    raw = git(place.root / "sub", "cat-file", "commit", branch).replace("\n\n", f"\n{signature}\n\n", 1)
    signed = git(place.root / "sub", "hash-object", "-t", "commit", "-w", "--stdin", given=raw).strip()
    git(place.root / "sub", "update-ref", f"refs/heads/{branch}", signed)
    settings = {f"gpg.{kind}program": str(program) for kind in ("", "ssh.", "x509.")}
    settings |= {"log.showSignature": "true", "merge.verifySignatures": "true", "branch.main.mergeOptions": "-S"}
    for name, value in (settings | {"commit.gpgSign": "true"}).items():
        git(place.root / "sub", "config", name, value)
    assert "more" in place.agentfs("changes", "job").stdout
    place.agentfs("apply", "job")
    assert (place.root / "sub" / "code.txt").read_text() == "ownmore\n"
    assert not ran.exists()

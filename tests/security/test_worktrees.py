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

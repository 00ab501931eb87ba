"""A new ledger, one in another repository, and every state in which one cannot be used."""

import os
import socket
from pathlib import Path

import pytest

from agentfs.ledger import Ledger, LedgerBroken, person
from agentfs.ledger.git import read_settings
from agentfs.ledger.repository import BEGIN, END
from tests.ledgers import a_ledger, an_entry, git

LINE = "/runs/"


def test_a_new_ledger_is_a_repository_on_main(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    assert ledger.trouble() is None
    assert git(ledger.root, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(ledger.root, "status", "--porcelain") == ""
    assert git(ledger.root, "config", "core.bare") == "false"


def test_making_it_again_keeps_everything(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    sha = ledger.commit(an_entry())
    exclude = ledger.root / ".git" / "info" / "exclude"
    text = exclude.read_text(encoding="utf-8")
    exclude.write_text(f"mine\n{text}also-mine\n", encoding="utf-8")
    git(ledger.root, "config", "user.name", "Ada")
    Ledger.create(ledger.root)
    assert exclude.read_text(encoding="utf-8") == f"mine\n{text}also-mine\n"
    assert git(ledger.root, "config", "user.name") == "Ada"
    assert git(ledger.root, "rev-parse", "main") == sha


def test_an_old_list_is_renewed_and_a_persons_lines_are_kept(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    exclude = ledger.root / ".git" / "info" / "exclude"
    new = exclude.read_text(encoding="utf-8")
    exclude.write_text(f"mine\n{BEGIN}\n/old\n{END}\nalso-mine", encoding="utf-8")
    Ledger.create(ledger.root)
    assert exclude.read_text(encoding="utf-8") == f"mine\nalso-mine\n{new}"


def test_a_repository_a_person_made_is_taken_over(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk", "runs")
    ledger = a_ledger(tmp_path)
    sha = ledger.commit(an_entry())
    assert git(ledger.root, "rev-parse", "main") == sha
    assert git(ledger.root, "symbolic-ref", "HEAD") == "refs/heads/trunk"


def test_the_enclosing_repository_ignores_runs_once(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    a_ledger(tmp_path)
    a_ledger(tmp_path)
    assert (tmp_path / ".git" / "info" / "exclude").read_text(encoding="utf-8").splitlines().count(LINE) == 1
    assert git(tmp_path, "status", "--porcelain") == ""


def test_an_enclosing_work_tree_shares_the_list_of_its_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "main")
    git(tmp_path / "main", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "tree"))
    Ledger.create(tmp_path / "tree" / "some [odd] place" / "runs")
    assert git(tmp_path / "tree", "status", "--porcelain") == ""
    text = (tmp_path / "main" / ".git" / "info" / "exclude").read_text(encoding="utf-8")
    assert text.splitlines()[-1] == r"/some\ \[odd\]\ place/runs/"


def test_a_list_of_the_enclosing_repository_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    exclude = tmp_path / ".git" / "info" / "exclude"
    exclude.unlink()
    exclude.mkdir()
    assert a_ledger(tmp_path).trouble() is None


def test_no_repository(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    words = f"{root} is not a git repository, so revisions are not committed: run `agentfs init`"
    assert Ledger(root).trouble() == words
    assert Ledger(tmp_path / "none").trouble() is not None
    with pytest.raises(LedgerBroken) as caught:
        Ledger(root).commit(an_entry())
    assert str(caught.value) == words
    assert Ledger(root).sync_index("2026-11-16/x") is False


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "runs")
    root = tmp_path / "runs"
    words = (
        f"{root} is a bare git repository, with no place for the runs' files: "
        "move it away and run `agentfs init`; the runs' files are not touched"
    )
    assert Ledger(root).trouble() == words
    with pytest.raises(LedgerBroken) as caught:
        Ledger.create(root)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("core.bare", "true"), "is marked as bare: run `git -C"),
        (("extensions.objectFormat", "sha256"), "uses sha256 objects"),
        (("extensions.refStorage", "reftable"), "keeps its branches as reftable"),
    ],
)
def test_a_repository_of_a_kind_agentfs_cannot_write(tmp_path: Path, setting: tuple[str, str], words: str) -> None:
    ledger = a_ledger(tmp_path)
    git(ledger.root, "config", *setting)
    assert words in (ledger.trouble() or "")
    with pytest.raises(LedgerBroken, match=words):
        ledger.commit(an_entry())


def test_a_linked_work_tree(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".git").write_text("gitdir: elsewhere\n", encoding="utf-8")
    assert "is a file (a linked work tree or a submodule)" in (Ledger(tmp_path / "runs").trouble() or "")
    with pytest.raises(LedgerBroken, match="linked work tree"):
        a_ledger(tmp_path)


def test_a_ledger_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_ledger(tmp_path)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and real(path, mode))
    assert (ledger.trouble() or "").startswith(f"{ledger.root}/.git cannot be written")


def test_missing_parts(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    (ledger.root / ".git" / "objects").rename(tmp_path / "objects")
    assert (ledger.trouble() or "").startswith(f"{ledger.root}/.git/objects is missing")


# ── who the person is ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_person_is_named_by_the_nearest_setting(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_ledger(home).root
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[user]\nname = X\nemail = x@example.org\n", encoding="utf-8")
    assert person(root) == ("X", "x@example.org")
    (home / ".gitconfig").write_text("[user]\n\tname = Home\n", encoding="utf-8")
    assert person(root) == ("Home", "x@example.org")
    git(root, "config", "user.email", "ada@ledger")
    assert person(root) == ("Home", "ada@ledger")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada Lovelace")
    assert person(root) == ("Ada Lovelace", "ada@ledger")


def test_with_no_identity_the_login_is_the_person(home: Path) -> None:
    name, email = person(home)
    assert name
    assert email.endswith(f"@{socket.gethostname()}")


CONFIGS = [
    '[user]\n\tname = "Ada \\"the first\\" L."  ; her name\n\temail = ada@x # mail\n',
    "[User]NAME=Ada\\\n Lovelace\n[core]\n\tbare\n",
    '[remote "a.B"]\n\turl = x\n[user]\n# name = no\nname = Ada # "x"\nname = Last\n',
    '[user]\nname = a "b  c" d\\ttab\n',
]


@pytest.mark.parametrize("text", CONFIGS)
def test_settings_are_read_as_git_reads_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    listed = git(tmp_path, "config", "--file", str(path), "--list", "-z").split("\0")
    wanted = {key: value or "true" for key, _, value in (each.partition("\n") for each in listed if each)}
    assert read_settings(path) == wanted


def test_an_include_is_not_followed(home: Path) -> None:
    (home / "other").write_text("[user]\nname = Mallory\n", encoding="utf-8")
    (home / ".gitconfig").write_text(f"[include]\npath = {home}/other\n", encoding="utf-8")
    assert person(home)[0] != "Mallory"

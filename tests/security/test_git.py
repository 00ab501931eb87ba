"""Planted git configuration runs nothing, whatever agentfs does; and no tool can plant it in a repository that is there.

Every command is run in a workspace whose ledger, whose own repository, whose run's files and whose environment name a
program that leaves a trace. Taking `core.fsmonitor=false` or `core.hooksPath=/dev/null` out of `ledger/git.py` makes
the first test fail; returning no fences from `survey` makes those about tools fail (both were tried).
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs.tools.base import ToolResult
from agentfs.tools.programs import Shell
from tests.contexts import RecordedContext, a_context, confined, in_workspace
from tests.workspaces import Place, wait_for

HOOKS = (
    "applypatch-msg", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "post-merge",
    "post-index-change", "reference-transaction", "pre-auto-gc", "post-rewrite", "fsmonitor-watchman", "sendemail-validate",
)  # fmt: skip
PROGRAMS = (
    "core.fsmonitor", "core.pager", "core.editor", "sequence.editor", "core.sshCommand", "core.askPass",
    "core.alternateRefsCommand", "core.gitProxy", "diff.external", "diff.evil.command", "diff.evil.textconv",
    "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver", "gpg.program",
    "gpg.ssh.program", "credential.helper", "pager.log", "pager.diff", "pager.show", "gc.recentObjectsHook",
    "interactive.diffFilter", "mergetool.evil.cmd", "uploadpack.packObjectsHook", "remote.origin.uploadpack",
)  # fmt: skip
ALIASES = (
    "log",
    "diff",
    "show",
    "status",
    "update-index",
    "ls-files",
    "cat-file",
    "gc",
    "rev-list",
    "fsck",
    "commit-graph",
)
SWITCHES = {"commit.gpgSign": "true", "filter.evil.required": "true", "remote.origin.promisor": "true",
            "extensions.partialClone": "origin", "diff.evil.cachetextconv": "true"}  # fmt: skip
VARIABLES = ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_ASKPASS", "GIT_PAGER", "PAGER", "EDITOR", "VISUAL",
             "GIT_SEQUENCE_EDITOR", "GIT_PROXY_COMMAND", "SSH_ASKPASS")  # fmt: skip


class Trap:
    """A program that leaves a trace when it runs."""

    def __init__(self, folder: Path) -> None:
        self.program, self.trace = folder / "trap", folder / "sprung"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.trace}\ncat\n', encoding="utf-8")
        self.program.chmod(0o755)

    def plant(self, git: Path) -> int:
        """Plant it in a repository, wherever git knows a program; return in how many places."""
        (git / "hooks").mkdir(exist_ok=True)
        for name in HOOKS:
            (git / "hooks" / name).unlink(missing_ok=True)
            (git / "hooks" / name).symlink_to(self.program)
        aliases = {f"alias.{name}": f"!{self.program}" for name in ALIASES}
        programs = {**dict.fromkeys(PROGRAMS, str(self.program)), **SWITCHES, **aliases}
        for key, value in programs.items():
            subprocess.run(["git", "config", "--file", str(git / "config"), key, value], check=True)
        (git / "info").mkdir(exist_ok=True)
        with (git / "info/attributes").open("a", encoding="utf-8") as file:
            file.write("* filter=evil diff=evil merge=evil\n")
        return len(HOOKS) + len(programs)

    def sprung(self) -> str:
        return self.trace.read_text(encoding="utf-8") if self.trace.exists() else ""


BOOK = """### make
```sh
git init -q nested && git -C nested config core.fsmonitor TRAP && echo '* filter=evil' > .gitattributes && echo made
```

### fail
```sh
cat nested/.git/HEAD; test -e again
```
retries: 0
"""


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_nothing_planted_runs_whatever_agentfs_does(place: Place, tmp_path: Path) -> None:
    trap = Trap(tmp_path)
    git(place.root, "init", "-q")
    place.agentfs("init")
    planted = trap.plant(place.root / ".git") + trap.plant(place.runs / ".git")
    place.env |= dict.fromkeys(VARIABLES, str(trap.program))
    (place.home / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {trap.program}\n\tpager = {trap.program}\n")
    book = place.runbook(BOOK.replace("TRAP", str(trap.program)))
    place.agentfs("run", book, code=1)
    files = place.run_folder() / "files"
    assert (files / "nested/.git/HEAD").exists()
    planted += trap.plant(files / "nested/.git")
    git(files, "init", "-q", "--bare", "bare.git")
    planted += trap.plant(files / "bare.git")
    for words, code in COMMANDS:
        if words[0] == "run":
            place.agentfs(*words, code=code)
        else:
            ended, _, printed = place.looks(*words)
            assert code is None or ended == code, (words, printed)
    with place.begin("watch") as daemon:
        place.goal("# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n", "goals/dropped.md")
        wait_for(lambda: any(place.runs.glob("*/dropped/outcome.json")), "the dropped goal")
        wait_for(lambda: "dropped: done" in _subjects(place), "the ledger")
        daemon.terminate()
        daemon.communicate()
    assert trap.sprung() == ""
    assert planted + len(VARIABLES) > 200
    subprocess.run(["git", "-C", str(place.runs), "status"], env=place.env, capture_output=True, check=False)
    assert trap.sprung() != "", "the trap itself works"


def _subjects(place: Place) -> str:
    """Read the ledger with nothing of its settings: git is trapped."""
    safe = ["git", "-c", "core.fsmonitor=false", "--no-pager", "--git-dir", str(place.runs / ".git")]
    printed = subprocess.run([*safe, "rev-list", "--format=%s", "main"], capture_output=True, text=True, check=False)
    return printed.stdout


COMMANDS: tuple[tuple[tuple[str, ...], int | None], ...] = (
    (("status",), 0),
    (("status", "job"), 0),
    (("show", "job"), 0),
    (("show", "job", "fail"), 0),
    (("log", "job"), 0),
    (("diff", "job"), None),
    (("blame", "job"), 0),
    (("cost", "job"), 0),
    (("tools",), 0),
    (("check", "job.md", "agentfs.toml"), 0),
    (("retry", "job", "fail"), 0),
    (("run", "--resume", "job"), None),
    (("diff", "job", "1..1"), None),
    (("log", "job"), 0),
    (("fork", "job@1"), 0),
    (("compare", "job", "job-2"), None),
    (("restore", "job@1"), 0),
    (("replay", "job"), None),
    (("cancel", "job-2"), None),
    (("forget", "job-2"), None),
    (("doctor",), None),
    (("verify",), None),
    (("init",), 0),
)


# ── what tools could plant ────────────────────────────────────────────────────────────────────────────────


def shell(work: RecordedContext, command: str) -> ToolResult:
    return Shell().call({"command": command}, work.context)


def why(work: RecordedContext, command: str) -> str:
    failure = shell(work, command).failure
    assert failure is not None, command
    return f"{failure.kind}: {failure.message}"


def a_repository(folder: Path, *settings: tuple[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one")
    for key, value in settings:
        git(folder, "config", key, value)
    return folder / ".git"


both_folders = pytest.mark.parametrize("context", [a_context, in_workspace], ids=["files", "workspace"])
Making = Callable[..., RecordedContext]


@confined
@both_folders
def test_a_repository_cannot_be_pointed_elsewhere(tmp_path: Path, context: Making) -> None:
    """`commondir` is not there in most repositories, and git stumbles over an empty one: so it is undone, and reported."""
    trap = Trap(tmp_path)
    work = context(tmp_path, "bubblewrap")
    repository = a_repository(work.workdir)
    evil = f"cp -r .git evil && git config --file evil/config core.fsmonitor {trap.program} && echo ../evil > .git/commondir"
    assert why(work, f"{evil}; echo fine").startswith(
        f"outside: it made {repository}/commondir, by which git would take"
    )
    assert why(work, "setsid sleep 60 & ln -s /x .git/commondir").startswith("outside: it made ")
    git(work.workdir, "status")
    assert trap.sprung() == ""
    assert "?? evil/" in str(shell(work, "git status --short").output)


@confined
def test_all_that_a_program_plants_is_undone(tmp_path: Path) -> None:
    """Looking stopped at the first: what came after it stayed."""
    work = in_workspace(tmp_path, "bubblewrap")
    one, other = a_repository(work.workdir), a_repository(work.workdir / "sub")
    (work.workdir / "sub/agentfs.toml").touch()
    planted = [one / "commondir", other / "commondir"]
    planted += [work.workdir / name for name in (".mcp.json", "mcp.lock.json", "sub/.mcp.json")]
    printed = why(work, "".join(f"echo {{}} > {path}; " for path in planted))
    assert [path for path in planted if path.exists() or str(path) not in printed] == []


@confined
@both_folders
def test_a_repository_that_was_pointed_elsewhere_is_not_worked_in(tmp_path: Path, context: Making) -> None:
    """As a program leaves it that is killed together with agentfs."""
    work = context(tmp_path, "bubblewrap")
    (a_repository(work.workdir) / "commondir").write_text("../evil\n")
    assert "makes git take hooks and settings from elsewhere" in why(work, "true")


@confined
@both_folders
def test_a_repository_cannot_be_unmade(tmp_path: Path, context: Making) -> None:
    work = context(tmp_path, "bubblewrap")
    repository = a_repository(work.workdir)
    assert why(work, "rm .git/HEAD") == (
        f"outside: it took HEAD out of {repository}, so that git would look for another repository there"
    )


@confined
@both_folders
def test_hooks_and_settings_that_settings_name_are_read_only(tmp_path: Path, context: Making) -> None:
    work = context(tmp_path, "bubblewrap")
    settings = [("core.hooksPath", ".husky/_"), ("include.path", "../team.gitconfig")]
    a_repository(work.workdir, *settings)
    (work.workdir / ".husky/_").mkdir(parents=True)
    (work.workdir / "team.gitconfig").write_text("[include]\n\tpath = more.gitconfig\n")
    (work.workdir / "more.gitconfig").write_text("[user]\n\tname = me\n")
    for path in (".husky/_/pre-commit", ".husky/pre-commit", "team.gitconfig", "more.gitconfig"):
        assert "Read-only file system" in why(work, f"echo evil >> {path}")
    for path in (".husky", "team.gitconfig"):
        assert "busy" in why(work, f"mv {path} aside")
    assert shell(work, "echo fine > mine; git add mine; git status --short mine").output == "A  mine"


@confined
@both_folders
def test_hooks_that_are_named_but_not_there_cannot_be_made(tmp_path: Path, context: Making) -> None:
    work = context(tmp_path, "bubblewrap")
    a_repository(work.workdir, ("core.hooksPath", "hooks/of/ours"))
    assert "Read-only file system" in why(work, "mkdir -p hooks/of/ours && echo evil > hooks/of/ours/pre-commit")
    assert "busy" in why(work, "mv hooks away")


@confined
@pytest.mark.parametrize(
    ("key", "value"), [("core.hooksPath", "."), ("include.path", "../missing"), ("core.hooksPath", "linked")]
)
def test_what_cannot_be_fenced_is_not_worked_in(tmp_path: Path, key: str, value: str) -> None:
    work = a_context(tmp_path, "bubblewrap")
    a_repository(work.workdir, (key, value))
    (work.workdir / "linked").symlink_to("elsewhere")
    assert why(work, "true").startswith(f"sandbox: {work.workdir}/.git/config ")


@confined
def test_settings_outside_the_working_folder_are_no_concern(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    a_repository(work.workdir, ("core.hooksPath", str(tmp_path / "hooks")), ("include.path", "~/.gitconfig.local"))
    assert shell(work, "echo fine").output == "fine"


@confined
def test_a_linked_worktree_and_a_repository_that_lies_apart(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    (work.workdir / "main").mkdir()
    a_repository(work.workdir / "main")
    git(work.workdir / "main", "worktree", "add", "-q", "../side")
    git(work.workdir, "init", "-q", "--separate-git-dir", str(work.workdir / "store"), "apart")
    for path in (
        "main/.git/worktrees/side/commondir",
        "store/config",
        "store/hooks/pre-commit",
        "side/.git",
        "apart/.git",
    ):
        assert "Read-only file system" in why(work, f"echo evil >> {path}")
    assert "busy" in why(work, "mv store away")
    assert shell(work, "git -C side status --short && git -C apart status --short && echo fine").output == "fine"


@confined
def test_a_repository_that_is_a_link_is_not_worked_in(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    (work.workdir / "real").mkdir()
    shutil.move(a_repository(work.workdir / "real"), work.workdir / "store")
    (work.workdir / "real/.git").symlink_to("../store")
    assert "is a symbolic link: a program could replace it" in why(work, "true")
    assert os.path.islink(work.workdir / "real/.git")

"""A new repository, its list of ignored files, and what is wrong with one. Runs nothing, not even git."""

import contextlib
import os
import re
from pathlib import Path

from agentfs.core import paths
from agentfs.ledger import showing
from agentfs.ledger.errors import LedgerBroken
from agentfs.ledger.files import read_escaped, sync, write_once
from agentfs.ledger.identity import settings

BEGIN = "# agentfs writes what stands between these two lines; your own lines go above or below"
END = "# agentfs ends here"
_RUN = "/[0-9]*-[0-9]*-[0-9]*/*"
OWN = (
    *(f"{_RUN}/{folder}/" for folder in (paths.STEPS, paths.PLANNING, paths.REVISIONS, paths.FILES)),
    *(f"{_RUN}/{name}" for name in (paths.RUN, "goal.*", paths.PLAN, paths.PLAN_ERROR)),
    *(f"{_RUN}/{name}" for name in (paths.STATUS, paths.OUTCOME, paths.REPLAN, paths.ON_WAIT_LOG)),
    f"{_RUN}/.*",  # a file that is being written
    f"/{paths.FORGOTTEN}/",
)
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\tautocrlf = false
[gc]
\tautoDetach = false
"""
_NEW = "move it away and run `agentfs init`; the runs' files are not touched"


def create(root: Path) -> None:
    """Make `root` a repository, or complete one. What is there already is kept."""
    git = root / ".git"
    if _usable_words(root) is None:
        _exclude_own(git)
    elif _bare(root) or git.is_file():
        raise LedgerBroken(_usable_words(root) or "")
    else:
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (git / folder).mkdir(parents=True, exist_ok=True)
        _exclude_own(git)
        _write_new(
            git / "description", "The ledger of agentfs: every revision of every plan, who, why, on what evidence\n"
        )
        _write_new(git / "config", _CONFIG)
        showing.register(git)
        _write_new(git / "HEAD", "ref: refs/heads/main\n")  # last: with it, it is a repository
    (git / "agentfs").mkdir(exist_ok=True)
    with contextlib.suppress(OSError):  # somebody else's repository may be read-only: agentfs works all the same
        _exclude_from_enclosing(root)


def trouble(root: Path) -> str | None:
    """Return why the ledger cannot be used and how to mend it; None if it can."""
    try:
        return _usable_words(root) or _format_words(root) or _access_words(root)
    except OSError as error:
        return f"{root}/.git cannot be read: {error.strerror}"


def _usable_words(root: Path) -> str | None:
    if _bare(root):
        return f"{root} is a bare git repository, with no place for the runs' files: {_NEW}"
    if (root / ".git").is_file():
        return f"{root}/.git is a file (a linked work tree or a submodule), not a repository of its own: {_NEW}"
    if not (root / ".git" / "HEAD").exists():
        return f"{root} is not a git repository, so revisions are not committed: run `agentfs init`"
    return None


def _bare(root: Path) -> bool:
    return not (root / ".git").exists() and (root / "HEAD").is_file() and (root / "objects").is_dir()


def _format_words(root: Path) -> str | None:
    config = settings(root / ".git" / "config")
    if config.get("core.bare", "false").lower() in ("true", "yes", "on", "1"):
        return f"{root}/.git is marked as bare: run `git -C {root} config core.bare false`"
    if config.get("extensions.objectformat", "sha1").lower() != "sha1":
        return f"{root}/.git uses {config['extensions.objectformat']} objects; agentfs writes sha1 only: {_NEW}"
    if config.get("extensions.refstorage", "files").lower() != "files":
        return (
            f"{root}/.git keeps its branches as {config['extensions.refstorage']}; agentfs knows files only: {_NEW}"
        )
    return None


def _access_words(root: Path) -> str | None:
    for name in ("", "objects", "refs"):
        folder = root / ".git" / name
        if not folder.is_dir():
            return f"{folder} is missing: run `git init` in {root}, then `git fsck`"
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return (
                f"{folder} cannot be written: give yourself the right to it (it may be read-only, or another user's)"
            )
    return None


def _write_new(path: Path, text: str) -> None:
    """Let a file appear whole and durable, unless there is one: half a HEAD would pass for a repository."""
    beside = _beside(path)
    try:
        write_once(beside, text.encode(), 0o644)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def _exclude_own(git: Path) -> None:
    """List agentfs's own files in info/exclude, so that what is not committed yet does not show as untracked."""
    path = git / "info" / "exclude"
    old = read_escaped(path) if path.exists() else ""
    block = "\n".join((BEGIN, *OWN, END)) + "\n"
    kept = re.sub(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n", "", old, flags=re.DOTALL | re.MULTILINE)
    new = (kept if not kept or kept.endswith("\n") else f"{kept}\n") + block
    if block not in old:
        _replace(path, new)


def _exclude_from_enclosing(root: Path) -> None:
    """Keep `runs/` out of the work tree it may lie in, by that repository's own list."""
    for top in root.resolve().parents:
        common = _common_folder(top)
        if common is None:
            continue
        line = f"/{_escaped(root.resolve().relative_to(top).as_posix())}/"
        path = common / "info" / "exclude"
        old = read_escaped(path) if path.exists() else ""
        if line not in old.splitlines():
            path.parent.mkdir(exist_ok=True)
            _replace(path, (old if not old or old.endswith("\n") else f"{old}\n") + f"{line}\n")
        return


def _common_folder(top: Path) -> Path | None:
    """Return where the repository of a work tree keeps what its work trees share; None if it is none."""
    git = top / ".git"
    if git.is_file():
        target = read_escaped(git).removeprefix("gitdir:").strip()
        git = top / target
    if not (git / "HEAD").exists():
        return None
    if (git / "commondir").is_file():
        return git / read_escaped(git / "commondir").strip()
    return git


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _replace(path: Path, text: str) -> None:
    temporary = _beside(path)
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    os.replace(temporary, path)


def _beside(path: Path) -> Path:
    """Return a name for a file on its way; one that a dead process of our number left there is gone."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    return beside

"""Make `runs/` a repository, list the files git should not show there, and say what is wrong with one.

Writes git's small text files (HEAD, config, info/exclude, info/attributes). Only `find_damage` starts git: a
workspace can be made, and looked at, without it.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import agentfs
from agentfs.core import paths
from agentfs.ledger.git import Git, LedgerBroken, LedgerBusy, read_settings
from agentfs.storage.files import publish, replace
from agentfs.storage.safe_open import MOST_RECORD, MOST_SOURCE, read_regular, read_text

BEGIN = "# agentfs writes what stands between these two lines; your own lines go above or below"
DRIVER_BEGIN = "# agentfs writes what stands between these two lines, at every `agentfs init`"
END = "# agentfs ends here"
DRIVER = "agentfs-plan"
_RUN = "/[0-9]*-[0-9]*-[0-9]*/*"
OWN = (
    *(f"{_RUN}/{folder}/" for folder in (paths.STEPS, paths.PLANNING, paths.REVISIONS, paths.FILES)),
    *(f"{_RUN}/{name}" for name in (paths.RUN, "goal.*", paths.REQUEST, paths.PLAN, paths.PLAN_ERROR)),
    *(f"{_RUN}/{name}" for name in (paths.STATUS, paths.OUTCOME, paths.REPLAN, paths.ON_WAIT_LOG, paths.ON_END_LOG)),
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
_DESCRIPTION = "The ledger of agentfs: every revision of every plan, who, why, on what evidence\n"
_NEW = "move it away and run `agentfs init`; the runs' files are not touched"
_FSCK = ("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
_FSCK_LINES, _FSCK_TRIES = 50, 5
_STEP = r'^(step .+|[[:space:]]*"id":[[:space:]]*".*)$'  # what names a step, in the text by meaning and in the file
_RAW = 'git --no-pager diff --no-index --no-ext-diff --no-textconv -- "$2" "$5" || :'


def create(root: Path) -> None:
    """Make `root` a repository, or complete one. What is there already is kept."""
    git = root / ".git"
    unusable = _find_obstacle(root)
    if unusable is not None:
        if _is_bare(root) or git.is_file():
            raise LedgerBroken(unusable)
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (git / folder).mkdir(parents=True, exist_ok=True)
        _write_new(git / "description", _DESCRIPTION)
        _write_new(git / "config", _CONFIG)
        show_plans_by_meaning(git)
    _put_block(git / "info" / "exclude", BEGIN, OWN, locked=False)
    if unusable is not None:
        _write_new(git / "HEAD", "ref: refs/heads/main\n")  # last: with it, it is a repository
    (git / "agentfs").mkdir(exist_ok=True)
    with contextlib.suppress(OSError):  # another user's repository may be read-only: agentfs works all the same
        _exclude_from_enclosing(root)


def find_trouble(root: Path) -> str | None:
    """Return why the ledger cannot be used and how to fix it; None if it can."""
    try:
        return _find_obstacle(root) or next(_find_troubles(root), None)
    except OSError as error:
        return f"{root}/.git cannot be read: {error.strerror}"


def _find_obstacle(root: Path) -> str | None:
    if _is_bare(root):
        return f"{root} is a bare git repository, with no place for the runs' files: {_NEW}"
    if (root / ".git").is_file():
        return f"{root}/.git is a file (a linked work tree or a submodule), not a repository of its own: {_NEW}"
    if not (root / ".git" / "HEAD").exists():
        return f"{root} is not a git repository, so revisions are not committed: run `agentfs init`"
    return None


def _is_bare(root: Path) -> bool:
    return not (root / ".git").exists() and (root / "HEAD").is_file() and (root / "objects").is_dir()


def _find_troubles(root: Path) -> Iterator[str]:
    git = root / ".git"
    config = read_settings(git / "config")
    if config.get("core.bare", "false").lower() in ("true", "yes", "on", "1"):
        yield f"{git} is marked as bare: run `git -C {root} config core.bare false`"
    if (objects := config.get("extensions.objectformat", "sha1")).lower() != "sha1":
        yield f"{git} uses {objects} objects; agentfs writes sha1 only: {_NEW}"
    if (refs := config.get("extensions.refstorage", "files")).lower() != "files":
        yield f"{git} keeps its branches as {refs}; agentfs knows files only: {_NEW}"
    for folder in (git, git / "objects", git / "refs"):
        if not folder.is_dir():
            yield f"{folder} is missing: run `git init` in {root}, then `git fsck`"
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            own = "give yourself the right to it (it may be read-only, or another user's)"
            yield f"{folder} cannot be written: {own}"


def show_plans_by_meaning(git: Path) -> None:
    """Have a person's git compare plans by meaning in the repository of this `.git`; agentfs's own calls never do."""
    run, script = shlex.join([sys.executable, "-I"]), shlex.quote(str(Path(agentfs.__file__).parent / "gitdiff.py"))
    values = {
        "command": f'show() {{ {run} {script} diff "$@" 2>/dev/null || {_RAW}; }}; show',
        "textconv": f'show() {{ {run} -S {script} text $PPID "$1" 2>/dev/null || cat "$1"; }}; show',
        "xfuncname": _STEP,
    }
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in values.items()}
    lines = (f'[diff "{DRIVER}"]', *(f'\t{name} = "{value}"' for name, value in quoted.items()))
    _put_block(git / "info" / "attributes", DRIVER_BEGIN, (f"/*/*/{paths.PLAN} diff={DRIVER}",), first=True)
    _put_block(git / "config", DRIVER_BEGIN, lines)


# ── files of git's ────────────────────────────────────────────────────────────────────────────────────────


def _put_block(path: Path, begin: str, lines: tuple[str, ...], *, first: bool = False, locked: bool = True) -> None:
    """Put our lines into a file of git's, in place of those we wrote before; what a person wrote is kept."""
    path = Path(os.path.realpath(path))
    old = _read_escaped(path)
    block = "\n".join((begin, *lines, END)) + "\n"
    if block in old:
        return
    kept = re.sub(rf"^{re.escape(begin)}\n.*?^{re.escape(END)}\n", "", old, flags=re.DOTALL | re.MULTILINE)
    kept += "" if not kept or kept.endswith("\n") else "\n"
    path.parent.mkdir(exist_ok=True)
    content = (block + kept if first else kept + block).encode("utf-8", "surrogateescape")
    _replace_locked(path, content) if locked else replace(path, content)


def _replace_locked(path: Path, content: bytes) -> None:
    """Replace a file as git does, under its lock; while another program holds that, it is left for the next time."""
    with contextlib.suppress(FileExistsError):
        lock = path.with_name(f"{path.name}.lock")
        with open(lock, "xb") as file:
            file.write(content)
        if path.exists():
            os.chmod(lock, path.stat().st_mode & 0o777)
        os.replace(lock, path)


def _write_new(path: Path, text: str) -> None:
    """Let a file appear whole and durable, unless there is one: half a HEAD would pass for a repository."""
    with contextlib.suppress(FileExistsError):
        publish(path, text.encode(), durable=True)


def _read_escaped(path: Path) -> str:
    """Return the text of a file, to be written back as it was: any bytes may be in it."""
    try:
        return read_regular(path, MOST_SOURCE, links=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _exclude_from_enclosing(root: Path) -> None:
    """Keep `runs/` out of the work tree it may lie in, by that repository's own list."""
    for top in root.resolve().parents:
        common = _find_common_folder(top)
        if common is None:
            continue
        escaped = re.sub(r"([\\*?\[\]!# ])", r"\\\1", root.resolve().relative_to(top).as_posix())
        path = common / "info" / "exclude"
        old = _read_escaped(path)
        if f"/{escaped}/" not in old.splitlines():
            path.parent.mkdir(exist_ok=True)
            text = f"{old}\n" if old and not old.endswith("\n") else old
            replace(path, f"{text}/{escaped}/\n".encode("utf-8", "surrogateescape"))
        return


def _find_common_folder(top: Path) -> Path | None:
    """Return where the repository of a work tree keeps what its work trees share; None if it is none."""
    git = top / ".git"
    if git.is_file():
        git = top / _read_escaped(git).removeprefix("gitdir:").strip()
    if not (git / "HEAD").exists():
        return None
    if (git / "commondir").is_file():
        return git / _read_escaped(git / "commondir").strip()
    return git


# ── whether the repository is whole ───────────────────────────────────────────────────────────────────────


def find_damage(root: Path, seconds: float | None = None) -> list[str]:
    """Return what `git fsck` finds, a line each; raises LedgerError. A person's list of exceptions does not count.

    It lists the objects first and reads the refs later, so a commit made in between seems to have no objects.
    What it finds counts only where no ref and no index has changed meanwhile.
    """
    git = Git(root, "fsck.skipList=/dev/null", "core.commitGraph=false")
    for _ in range(_FSCK_TRIES):
        before = _stamps(root / ".git")
        done = git.run(*_FSCK, seconds=seconds)
        if done.code == 0:
            return []
        if _stamps(root / ".git") == before:
            lines = [*done.out.decode("utf-8", "replace").splitlines(), *done.err.splitlines()]
            return list(filter(str.strip, lines))[:_FSCK_LINES] or [f"`git fsck` ended with {done.code}"]
    raise LedgerBusy("commits are being made; look again when they are done")


def _stamps(git: Path) -> dict[str, tuple[int, int]]:
    """Return when the files changed from which `git fsck` begins."""
    below = (os.path.join(folder, name) for folder, _, names in os.walk(git / "refs") for name in names)
    found = {}
    for path in (*below, *(str(git / name) for name in ("HEAD", "packed-refs", "index"))):
        with contextlib.suppress(FileNotFoundError):
            seen = os.lstat(path)
            found[path] = seen.st_ino, seen.st_ctime_ns
    return {path: stamp for path, stamp in found.items() if not path.endswith(".lock")}


def find_substitutes(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files by which git shows another history than its objects hold, and what each does."""
    git = root / ".git"
    for path in sorted((git / "refs" / "replace").glob("*")):
        yield path, "makes git show another object in the place of one"
    for name, does in (("info/grafts", "gives commits other parents"), ("shallow", "cuts the history off")):
        if os.path.lexists(git / name):
            yield git / name, does
    try:
        packed = read_text(git / "packed-refs", MOST_RECORD)
    except OSError:
        return
    if "refs/replace/" in packed:
        yield git / "packed-refs", "has refs/replace/, which make git show other objects in the place of some"

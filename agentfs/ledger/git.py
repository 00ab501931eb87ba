"""Git, as the ledger starts it: through GitPython, in a clean environment, running nothing of a repository's choice.

Owns how git is called, and who the person is by its settings. Git reads only the repository's own settings, and every
one that names a program is switched off. GitPython takes 80 ms to import: at the first call of git, never before.
"""

import functools
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.storage.installation import find_program, searched_path, why_missing
from agentfs.storage.safe_open import MOST_SOURCE, read_regular
from agentfs.storage.timing import TIMING

if TYPE_CHECKING:
    import git as gitpython

BRANCH = "refs/heads/main"
QUIET = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "protocol.allow=never"),
    *("log.showSignature=false", "gpg.program=false", "gpg.ssh.program=false", "gpg.x509.program=false"),
)
_ENV = "/usr/bin/env"
_READ_BY_NAME = (  # what git opens before it has looked at anything; it would wait for ever for a pipe
    *("HEAD", "config", "config.worktree", "commondir", "packed-refs", "index", "shallow", "info/exclude"),
    *("info/attributes", "info/grafts", "objects/info/alternates", "objects/info/commit-graph", BRANCH),
)
_UNREADABLE, _MORE = "git cannot read the ledger", "`git -C runs fsck` says more"


class LedgerError(Exception):
    """The ledger could not do what was asked; the files of the run are unharmed."""


class LedgerBusy(LedgerError):
    """Another process holds a lock: try again later, nothing was changed."""


class LedgerBroken(LedgerError):
    """The repository cannot be used until a person fixes it; the message says how."""


class NoGit(LedgerBroken):
    """There is no git to start."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a git command ended."""

    code: int
    out: bytes
    err: str

    @property
    def why(self) -> str:
        """The first line of git's error."""
        return next(iter(self.err.strip().splitlines()), f"git ended with {self.code}")


class Git:
    """Git in the repository of one folder, with settings and variables for what it is asked to do."""

    def __init__(self, root: Path, *settings: str, **variables: str) -> None:
        self.root, self.folder = root, root / ".git"
        self._settings, self._variables = settings, {**environment(root), **variables}

    def run(self, *words: str, given: bytes = b"", seconds: float | None = TIMING.git) -> Done:
        """Run git to its end; raises NoGit, or LedgerBusy if it takes too long or there is no room for it."""
        process = self.start(*words, given=subprocess.PIPE)
        try:
            out, err = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise LedgerBusy(f"`git {words[0]}` takes longer than {seconds:g} s") from None
        finally:  # of a Ctrl-C too
            if process.poll() is None:
                end(process)
                process.communicate()
        return Done(process.returncode, out, err.decode("utf-8", "replace"))

    def output(self, *words: str, given: bytes = b"", seconds: float | None = TIMING.git) -> bytes:
        """Return what git prints; raises LedgerBroken with git's own words if it fails."""
        done = self.run(*words, given=given, seconds=seconds)
        if done.code != 0:
            raise LedgerBroken(f"{_UNREADABLE}: {done.why}. {_MORE}")
        return done.out

    def start(self, *words: str, given: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """Start git; raises NoGit, LedgerBusy, or LedgerBroken where it would wait for a file that is none."""
        self._check_files()
        gitpython = _load_gitpython()
        wrapper = gitpython.GitCommandWrapperType(str(self.root.absolute()))
        wrapper.update_environment(**self._variables)
        chosen = (part for one in self._settings for part in ("-c", one))
        try:
            started = wrapper.execute(["git", *chosen, *words], istream=given, as_process=True)
        except (OSError, *gitpython.errors) as error:
            raise LedgerBusy(f"git cannot be started: {error}") from None
        process: subprocess.Popen[bytes] = started.proc
        started.proc = None  # it would end the process when it is collected
        return process

    def _check_files(self) -> None:
        for name in _READ_BY_NAME:
            try:
                is_regular = stat.S_ISREG(os.stat(self.folder / name).st_mode)
            except OSError:  # git says what it thinks of that
                continue
            if not is_regular:
                raise LedgerBroken(f"{self.folder / name} is not a regular file: take {self.folder} from a copy")

    @contextmanager
    def repository(self) -> Iterator["gitpython.Repo"]:
        """Yield the repository as GitPython knows it; what it cannot read there is raised as LedgerBroken."""
        self._check_files()
        gitpython = _load_gitpython()
        try:
            repo = gitpython(str(self.root.absolute()), expand_vars=False)
            repo.git.update_environment(**self._variables)
            repo.git.set_persistent_git_options(c=list(self._settings))
            try:
                yield repo
            finally:
                repo.close()
        except gitpython.errors as error:
            words = str(getattr(error, "stderr", None) or error).strip().removeprefix("stderr: ").strip("'")
            raise LedgerBroken(f"{_UNREADABLE}: {words.partition(chr(10))[0]}. {_MORE}") from None


def end(process: "subprocess.Popen[bytes]") -> None:
    """End git and what it has started: asked, it removes its own locks; it is killed only if it does not listen."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TIMING.git_stop)
            return


def environment(root: Path) -> dict[str, str]:
    """Return all that git sees of an environment; no object replaces another, whatever the repository says."""
    return {
        "PATH": searched_path(os.environ),
        "GIT_DIR": str((root / ".git").absolute()),
        "GIT_WORK_TREE": str(root.absolute()),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null/none",
        "LC_ALL": "C",
    }


@functools.cache
def _load_gitpython() -> Any:
    """Return a class of repositories whose git is ours, with our environment alone; their wrapper starts git."""
    git = _import_gitpython()

    class CleanGit(git.Git):  # type: ignore[misc, name-defined]
        """GitPython adds to the environment of this process; `env -i` begins with none."""

        def execute(self, command: Sequence[str], **options: Any) -> Any:
            program = find_program("git")
            if program is None:
                raise NoGit(why_missing("git"))
            quiet = (part for one in QUIET for part in ("-c", one))
            given = (f"{name}={value}" for name, value in self.environment().items())
            clean = (_ENV, "-i", *given) if sys.platform != "win32" else ()
            # In a session of its own: a Ctrl-C is for us, and what git has begun for a run is done to its end.
            words = [*clean, program, "--no-pager", *quiet, *command[1:]]
            return super().execute(words, start_new_session=True, **options)

    class CleanRepo(git.Repo):  # type: ignore[misc, name-defined]
        GitCommandWrapperType = CleanGit
        errors = (git.GitError, git.ODBError)  # git ended with an error; an object is missing or damaged

    return CleanRepo


def _import_gitpython() -> Any:
    """Import it without the `git version` that it starts then, by PATH and with all of our environment."""
    names = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": os.devnull}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        import git
    except ImportError as error:  # even so it tries to start something: there may be no room for a process now
        for name in [one for one in sys.modules if one.partition(".")[0] == "git"]:
            del sys.modules[name]  # half of it is there: the next try begins again
        raise LedgerBusy(f"git cannot be started: {error}") from None
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return git


# ── settings, and who the person is ───────────────────────────────────────────────────────────────────────

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"?|([#;].*)|((?:[^"#;\\]|\\.)+|\\)')
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


def read_settings(path: Path) -> dict[str, str]:
    """Return the settings of one git config file as `section.key` or `section.sub.key`; the last one counts.

    Follows no include, and starts nothing: every run reads them when it begins.
    """
    try:
        text = read_regular(path, MOST_SOURCE, links=True).decode("utf-8", "replace")  # people link their settings
    except OSError:
        return {}
    found: dict[str, str] = {}
    section = ""
    for raw in re.sub(r"\\\r?\n", "", text).splitlines():
        line = raw.strip()
        if head := _SECTION.match(line):
            section = head[1].lower() + (f".{head[2]}" if head[2] is not None else "")
            line = line[head.end() :].strip()
        if line[:1] not in ("", "#", ";") and (setting := _SETTING.match(line)):
            found[f"{section}.{setting[1].lower()}"] = "true" if setting[2] is None else _value(setting[2])
    return found


def _value(text: str) -> str:
    """Return a setting's value: quotes removed, escapes read, a comment cut off."""
    parts: list[str] = []
    for match in _PIECE.finditer(text):
        if match[2] is not None:
            break
        parts.append(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[1] or match[3] or ""))
    return "".join(parts).strip()


def person(root: Path) -> tuple[str, str]:
    """Return name and address of the person at this machine: git's identity if there is one, else the login's."""
    files = [read_settings(path) for path in (root / ".git" / "config", *_global_files())]

    def look(variable: str, key: str) -> str | None:
        candidates = (os.environ.get(variable), *(file.get(key) for file in files))
        return next((text.strip() for text in candidates if text and text.strip()), None)

    login, full_name = _login()
    return (
        look("GIT_AUTHOR_NAME", "user.name") or full_name or login,
        look("GIT_AUTHOR_EMAIL", "user.email") or f"{login}@{socket.gethostname()}",
    )


def _global_files() -> list[Path]:
    """Return the person's own config files, the one that counts first."""
    if chosen := os.environ.get("GIT_CONFIG_GLOBAL"):
        return [Path(chosen)]
    home = Path(os.environ.get("HOME") or os.environ.get("USERPROFILE") or "/nonexistent")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [home / ".gitconfig", xdg / "git" / "config"]


def _login() -> tuple[str, str]:
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except ImportError:  # Windows
        return os.environ.get("USERNAME") or "user", ""
    except KeyError:  # a container may run as a number without a name
        return f"user-{os.getuid()}", ""
    return entry.pw_name, entry.pw_gecos.partition(",")[0].strip()

"""Python runs this when it starts, if its folder is on PYTHONPATH: what only Linux has is then gone.

ELSEWHERE=macos: no /proc, no leases, no inotify, no O_TMPFILE, no renameat2, no pidfd, no waitid, no prctl.
ELSEWHERE=windows: also no fcntl, resource, pwd, termios; no flags of POSIX's, no dir_fd, no folder that can be opened,
no libc to load by no name, no signals but six.
"""

import builtins
import ctypes
import io
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

SYSTEM = os.environ["ELSEWHERE"]
LINUX_CALLS = (
    "O_TMPFILE O_PATH P_PIDFD pidfd_open waitid memfd_create eventfd copy_file_range splice getrandom posix_fadvise "
    "posix_fallocate fdatasync sched_getaffinity setns unshare setxattr getxattr"
)
POSIX_CALLS = (
    "O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_NOCTTY O_SYNC O_DSYNC O_ASYNC getuid geteuid getgid getegid getgroups "
    "getpgrp getpgid setpgid getsid setsid killpg fork forkpty register_at_fork statvfs fstatvfs major minor makedev "
    "fchmod fchown chown lchown fchdir chroot uname mkfifo mknod tcgetpgrp tcsetpgrp ttyname openpty ctermid sysconf "
    "confstr pathconf nice getpriority getloadavg wait wait3 wait4 WEXITED WNOWAIT P_PID sync set_blocking pread "
    "pwrite preadv pwritev readv writev sendfile lockf"
)
LINUX_MODULES: tuple[str, ...] = ()
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses", "spwd")
WINDOWS_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
LIBC = ("renameat2", "statfs", "fstatfs", "inotify_init", "inotify_init1", "prctl", "syscall", "openat2")


class _Gone(MetaPathFinder):
    """Finds, before anyone else, that a module is not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _take_away(owner: object, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)


def _is_proc(path: object) -> bool:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return isinstance(path, str) and (path == "/proc" or path.startswith("/proc/"))


def _without_proc(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        if given and _is_proc(given[0]):
            raise FileNotFoundError(2, os.strerror(2), os.fspath(given[0]))
        return real(*given, **more)

    return call


def _without_folders(real: Callable[..., Any]) -> Callable[..., Any]:
    """Windows opens no folder as a file, and nothing beneath one that is open."""

    def call(path: Any, *given: Any, **more: Any) -> Any:
        if more.get("dir_fd") is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            raise PermissionError(13, os.strerror(13), os.fspath(path))
        return real(path, *given, **more)

    return call


class _Libc(ctypes.CDLL):
    def __getattr__(self, name: str) -> Any:
        if name in LIBC:
            raise AttributeError(f"symbol {name!r} not found")
        return super().__getattr__(name)


def _no_libc(name: object = None, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"LoadLibrary() argument 1 must be str, not {type(name).__name__}")


def _leave(windows: bool) -> None:
    sys.meta_path.insert(0, _Gone((*LINUX_MODULES, *(POSIX_MODULES if windows else ()))))
    for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink"):
        setattr(os, name, _without_proc(getattr(os, name)))
    builtins.open = io.open = _without_proc(io.open)
    os.supports_dir_fd.update((os.open, os.stat))
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    _take_away(os, LINUX_CALLS.split())
    _take_away(signal, ("SIGRTMIN", "SIGRTMAX", "SIGPOLL"))
    if windows:
        os.open = _without_folders(os.open)
        _take_away(os, POSIX_CALLS.split())
        for one in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            one.clear()
        # What the standard library would do otherwise there:
        shutil._use_fd_functions = shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
        subprocess._PopenSelector = selectors.SelectSelector  # type: ignore[attr-defined]
        subprocess.Popen.kill = subprocess.Popen.terminate  # type: ignore[method-assign]
        _take_away(select, ("poll", "epoll"))
        _take_away(signal, [name for name in dir(signal) if name[:3] == "SIG" and name.isupper() and name[3] != "_"
                            and name not in WINDOWS_SIGNALS])  # fmt: skip
        _take_away(signal, ("pthread_sigmask", "sigwait", "set_wakeup_fd", "setitimer", "alarm", "pause"))
        ctypes.CDLL = _no_libc  # type: ignore[assignment,misc]
        for name in POSIX_MODULES:
            sys.modules.pop(name, None)
    else:
        import fcntl

        _take_away(fcntl, ("F_SETLEASE", "F_GETLEASE", "F_NOTIFY", "F_OFD_SETLK"))
        ctypes.CDLL = _Libc  # type: ignore[misc]


_leave(windows=SYSTEM == "windows")

"""Faults at chosen system calls of a real agentfs: look once at what a command does to files, then cut it off there.

strace counts the calls of each thread and each kind on its own, and can look at those only that have to do with one path.
So a point is a kind of call, a path and a number. A file that has another name every time has no path to be found by: there
the number alone has to do, and what it hits is the first thread that gets so far.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from agentfs.storage.workspace import trust
from tests import warm
from tests.crash.forking import Forks
from tests.workspaces import DEADLINE, Place, wait_for

T = TypeVar("T")
AT_ONCE = 2
CHANGES = [
    "write",
    "fsync",
    "fdatasync",
    "link",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "utimensat",
    "ftruncate",
]
LOOKS = ("openat", "flock", "sendfile", "copy_file_range", "getdents64", "read")
_LINE = re.compile(r"(\d+) +([a-z0-9_]+)\((.*)")
_HERE = re.compile(r"AT_FDCWD<[^>]*>")
_PATH = re.compile(r'[<"](/[^<>"]+)[>"]')
_PASSING = re.compile(
    r"\.tmp$|/#\d|tmp_obj_|/\.git/(agentfs/\d|objects/[0-9a-f]{2}(/|$)|.*\.lock$)"
)  # names of one time only

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@dataclass(frozen=True, slots=True, repr=False)
class Point:
    """The moment before the `number`th call of this kind by one thread; with a path: the `number`th that concerns it."""

    call: str
    number: int
    path: str = ""  # in the workspace
    what: str = field(default="", compare=False)  # that call, when it was looked at

    def __repr__(self) -> str:
        return f"{self.call}#{self.number} {self.path or self.what}"

    def options(self, place: Place, fault: str, *, lasting: bool = False) -> list[str]:
        """Return what to tell strace to have a fault there."""
        inject = f"inject={self.call}:{fault}:when={self.number}{'+' if lasting else ''}"
        return [*(("-P", str(place.root / self.path)) if self.path else ()), "-e", inject]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command under strace came to its end, and the calls that were seen."""

    code: int
    out: str
    err: str
    trace: str

    @property
    def killed(self) -> bool:
        return self.code in (-9, 137)


# ── where ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def in_memory() -> Iterator[Path]:
    """Yield a folder on a file system in memory: what is synced there costs nothing."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="agentfs-sweep-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_of(place: Place, root: Path) -> Place:
    """Return the same place once more: a trusted one, though a copy is another folder."""
    root.mkdir()
    copy = Place(root)
    os.rmdir(copy.root)
    shutil.copytree(place.root, copy.root, symlinks=True)
    copy.env = {**place.env, "HOME": str(copy.home)}
    if (copy.root / "agentfs.toml").exists():
        trust(copy.root, copy.env)
    return copy


# ── under strace ──────────────────────────────────────────────────────────────────────────────────────────


class Traced:
    """A command that strace follows from its first call on: what is injected happens in agentfs, not while Python starts."""

    def __init__(self, place: Place, *words: str, calls: Iterable[str], options: Sequence[str] = ()) -> None:
        assert warm.can_start(place.env)
        self._log = place.root.parent / "trace"
        self.command = warm.begin(words, place.root, place.env, held=True)
        argv = [
            "strace",
            "-f",
            "--quiet=exit",
            "-y",
            "-s",
            "0",
            "--signal=none",
            *options,
            "-p",
            str(self.command.pid),
        ]
        argv += ["-o", str(self._log), "-e", f"trace={','.join((*dict.fromkeys(calls), 'execve'))}"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has ended
        self._strace = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=self._said, start_new_session=True)
        wait_for(self._is_attached, "strace")
        self.command.release()

    def _is_attached(self) -> bool:
        output = os.pread(self._said.fileno(), 4096, 0)
        assert self._strace.poll() is None, output
        return b" attached" in output

    def wait(self) -> Ended:
        """Wait for its end."""
        out, err = self.command.communicate(DEADLINE * 2)
        self._strace.wait(DEADLINE * 2)
        self._said.close()
        assert "Traceback" not in err, err
        return Ended(self.command.wait(), out, err, self._log.read_text(errors="replace"))


def strace(place: Place, *words: str, calls: Iterable[str], options: Sequence[str] = ()) -> Ended:
    """Run a command to its end under strace, looking at these calls."""
    return Traced(place, *words, calls=calls, options=options).wait()


def killed_at(point: Point, place: Place, *words: str) -> Ended:
    """Run a command that is killed at a point, if it gets there."""
    return strace(place, *words, calls=[point.call], options=point.options(place, "signal=KILL"))


def points(trace: str, root: Path, *, looks: bool = False) -> list[Point]:
    """Return the points at which agentfs itself was about to change a file of this folder, or also to look at one."""
    counts: Counter[tuple[str, ...]] = Counter()
    seen: set[Point] = set()
    found: list[Point] = []
    programs: set[str] = set()  # the processes that agentfs started
    for line in trace.splitlines():
        if not (match := _LINE.match(line)):
            continue
        thread, call, what = match.groups()
        if call == "execve":
            programs |= {thread} if counts else set()
        counts[thread, call] += 1
        paths = [path for path in _PATH.findall(_HERE.sub("", what)) if path.startswith(f"{root}/")]
        for path in dict.fromkeys(paths):
            counts[thread, call, path] += 1
        point = _point(call, paths, counts, thread, root, what)
        if point not in seen:
            seen.add(point)
            found += [point] if paths and thread not in programs and (looks or changes_something(call, what)) else []
    return found


def _point(
    call: str, paths: Sequence[str], counts: Counter[tuple[str, ...]], thread: str, root: Path, what: str
) -> Point:
    lasting = [path for path in paths if not _PASSING.search(path)]
    if not lasting:
        return Point(call, counts[thread, call], what=what[:160].replace(str(root), "."))
    return Point(call, counts[thread, call, lasting[-1]], lasting[-1].removeprefix(f"{root}/"))


def changes_something(call: str, what: str) -> bool:
    """Whether a call changes what is on disk, rather than look at it."""
    return call in CHANGES or (call == "openat" and ("O_CREAT" in what or "O_TMPFILE" in what or "O_TRUNC" in what))


# ── many of them ──────────────────────────────────────────────────────────────────────────────────────────


def _shorten(text: str) -> str:
    """Return the head and the tail of a text: a traceback says at its end what went wrong."""
    return text if len(text) <= 4000 else f"{text[:1000]}\n…\n{text[-3000:]}"


def sweep(what: str, cases: Sequence[T], one: Callable[[T, Path, Forks], str], folder: Path) -> Counter[str]:
    """Try every case in a folder of its own; fail with all that went wrong; say how many came to what."""
    wrong: list[str] = []
    kinds: Counter[str] = Counter()

    def attempt(case: T) -> None:
        own = Path(tempfile.mkdtemp(prefix="case-", dir=folder))
        try:
            kinds[one(case, own, Forks())] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the other points are tried, too
            wrong.append(f"{case}: {type(error).__name__}: {str(error)[:3000]}")
        finally:
            shutil.rmtree(own, ignore_errors=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(attempt, cases))
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    tell(f"{what}: {len(cases)} points: {counts or 'none'}; {len(wrong)} wrong", wrong)
    assert not wrong, f"{len(wrong)} of {len(cases)} went wrong:\n" + "\n".join(wrong[:20])
    return kinds


def tell(figures: str, wrong: Sequence[str]) -> None:
    """Say what a sweep has reached; a full one takes long, and its figures are wanted before its end."""
    print(figures)
    if report := os.environ.get("AGENTFS_SWEEP_REPORT"):
        with open(report, "a", encoding="utf-8") as file:
            print(figures, *wrong, sep="\n    ", file=file)

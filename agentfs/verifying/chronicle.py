"""The commits of `main`, oldest first, with what each changed. Git tells it as a stream: it takes no memory.

Only plumbing is asked, which no setting of a repository makes run anything; replace refs, grafts and the
commit-graph, which could tell another history, are left out of it.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from agentfs.core.commit_messages import trailers
from agentfs.installation import find_program, why_missing
from agentfs.ledger.program import command, environment
from agentfs.ledger.refs import BRANCH
from agentfs.ledger.soundness import AS_IT_IS, NoGit

_CHANGE = re.compile(rb":\d+ (\d+) ([0-9a-f]{40}) ([0-9a-f]{40}) ([A-Z])")
_WHO = re.compile(r"(.*?) ?<([^>]*)> (-?\d+) ([+-]\d{4})\Z")
_LINK = b"120000"


@dataclass(frozen=True, slots=True)
class Changed:
    """One file in one commit: A added, M modified, D deleted, T of another kind."""

    how: str
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Told:
    """One commit: its bytes, taken apart as far as needed, and the files it changed against its first parent."""

    sha: str
    content: bytes
    changes: tuple[Changed, ...]

    @cached_property
    def head(self) -> list[tuple[str, str]]:
        lines = self.content.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
        return [(key, value) for key, _, value in (line.partition(" ") for line in lines) if key]

    @property
    def parents(self) -> list[str]:
        return [value for key, value in self.head if key == "parent"]

    @property
    def tree(self) -> str:
        return next((value for key, value in self.head if key == "tree"), "")

    @cached_property
    def message(self) -> str:
        return self.content.partition(b"\n\n")[2].decode("utf-8", "replace")

    @cached_property
    def trailers(self) -> dict[str, list[str]]:
        return trailers(self.message)

    def who(self, role: str) -> tuple[str, str, str]:
        """Return name, address and time of author or committer."""
        signed = next((value for key, value in self.head if key == role), "")
        match = _WHO.match(signed)
        return (match[1], match[2], f"{match[3]} {match[4]}") if match else (signed, "", "")


def chronicle(runs: Path, run: str | None = None) -> Iterator[Told]:
    """Yield the commits of `main`, of one run those that touch it; raises NoGit."""
    program = find_program("git")
    if program is None:
        raise NoGit(why_missing("git"))
    places = () if run is None else ("--", f":(literal){run}/")
    graph = "core.commitGraph=true" if run else "core.commitGraph=false"  # of all, what the objects say
    with ExitStack() as stack:
        git = _Git(program, runs, graph, stack)
        listed = stack.enter_context(tempfile.TemporaryFile())
        git.run("rev-list", "--reverse", "--topo-order", "--full-history", BRANCH, *places, into=listed)
        told = git.stream(listed, "cat-file", "--batch", "--buffer")
        words = ("diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--root", "--always", "--no-abbrev")
        changes = _Changes(git.stream(listed, *words, *places))
        listed.seek(0)
        for line in listed:
            sha = line.decode().strip()
            yield Told(sha, _content(told, sha), tuple(changes.of(sha)))


@dataclass(frozen=True, slots=True)
class _Git:
    program: str
    root: Path
    graph: str
    stack: ExitStack

    def run(self, *words: str, into: IO[bytes]) -> None:
        done = subprocess.run(
            self._line(*words), env=environment(self.root, **AS_IT_IS), cwd=self.root, check=False,
            stdin=subprocess.DEVNULL, stdout=into, stderr=subprocess.PIPE,
        )  # fmt: skip
        if done.returncode != 0:
            raise NoGit(_first(done.stderr) or f"git ended with {done.returncode}")

    def stream(self, given: IO[bytes], *words: str) -> IO[bytes]:
        """Start git on a list of commits; return what it prints as it comes. It ends with the stack."""
        with tempfile.TemporaryFile() as again:  # each reader needs a place of its own in the list
            given.seek(0)
            shutil.copyfileobj(given, again)
            again.seek(0)
            popen = subprocess.Popen(
                self._line(*words), env=environment(self.root, **AS_IT_IS), cwd=self.root,
                stdin=again, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.stack.callback(_end, popen)
        if popen.stdout is None:
            raise NoGit("git has no output")
        return popen.stdout

    def _line(self, *words: str) -> list[str]:
        return command(self.program, *words, settings=(self.graph, "core.quotePath=false"))


def _end(popen: "subprocess.Popen[bytes]") -> None:
    popen.kill()
    if popen.stdout:
        popen.stdout.close()
    popen.wait()


def _first(said: bytes) -> str:
    return next(iter(said.decode("utf-8", "replace").strip().splitlines()), "")


def _content(stream: IO[bytes], sha: str) -> bytes:
    """Return the next commit that `cat-file --batch` tells; nothing where it is missing, which fsck says too."""
    words = stream.readline().split()
    if len(words) != 3 or words[0].decode() != sha:
        return b""
    content = stream.read(int(words[2]))
    stream.read(1)
    return content


class _Changes:
    """What `diff-tree --stdin -z` tells: a commit's name, then of each file how it changed and its path."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._words = _words(stream)
        self._ahead = next(self._words, None)

    def of(self, sha: str) -> Iterator[Changed]:
        if self._ahead is None or self._ahead.strip() != sha.encode():
            return
        while self._step().startswith(b":"):
            match = _CHANGE.match(self._ahead or b"")
            path = next(self._words, b"").decode("utf-8", "surrogateescape")
            if match:
                how = "T" if match[1] == _LINK else match[4].decode()
                yield Changed(how, path, match[2].decode(), match[3].decode())

    def _step(self) -> bytes:
        self._ahead = next(self._words, None)
        return self._ahead or b""


def _words(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield what stands between zero bytes."""
    rest = b""
    while block := stream.read(65536):
        *whole, rest = (rest + block).split(b"\0")
        yield from whole
    if rest:
        yield rest

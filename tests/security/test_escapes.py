"""Over a hundred ways out of the sandbox, tried by steps of a goal that a running daemon takes: none succeeds.

Each is tried in the run's own files/ and with the workspace itself as the working folder, as this user and, where
that is root, as nobody. The daemon is asked for another run afterwards: it is still up.

Taking `--unshare-all`, `--cap-drop ALL`, `--remount-ro /` or the workspace's fences out of `agentfs.tools.sandbox`, or
putting `--share-net` in, makes this fail (each was tried).
"""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contexts import confined
from tests.daemons import Watching, book
from tests.security import escapes
from tests.workspaces import Place, wait_for

pytestmark = confined

# Git reads no repository of another user's unless told to.
OF_ANOTHER = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
AS_NOBODY = pytest.param(
    NOBODY,
    id="nobody",
    marks=pytest.mark.skipif(
        os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv to be someone else"
    ),
)
each_user = pytest.mark.parametrize("under", [pytest.param((), id="me"), AS_NOBODY])
each_workdir = pytest.mark.parametrize("workdir", [None, "."], ids=["files", "workspace"])


@dataclass
class Prison:
    """A place that a daemon runs in, and what lies around it."""

    place: Place
    outside: Path
    under: tuple[str, ...]

    def watching(self) -> Watching:
        return Watching(self.place, under=self.under, PLANTED_KEY="planted-7f3a9c")


@contextmanager
def a_prison(under: tuple[str, ...]) -> Iterator[Prison]:
    """A place that anybody may enter: nobody could not enter a test's own folder."""
    root = Path("/var/tmp") / f"agentfs-escapes-{os.getpid()}"
    root.mkdir()
    try:
        place = Place(root)
        outside = root / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret")
        (place.home / ".ssh").mkdir()
        (place.home / ".ssh/id").write_text("private")
        _init(place)
        (place.root / ".env").write_text("KEY=private")
        if under:
            subprocess.run(["chown", "-R", "65534:65534", str(root)], check=True)
        yield Prison(place, outside, under)
    finally:
        shutil.rmtree(root)


def _init(place: Place) -> None:
    """Make a workspace in a person's repository, with everything of git's that could run something."""
    place.agentfs("init")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place.root)]
    for words in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "one"],
        ["worktree", "add", "-q", "side"],
        ["config", "core.hooksPath", ".husky"],
        ["config", "include.path", "../shared.gitconfig"],
    ):
        subprocess.run([*git, *words], check=True, capture_output=True)
    shutil.copytree(place.root / ".git/objects", place.root / ".git/modules/sub/objects")
    for name in ("HEAD", "config"):
        shutil.copy(place.root / ".git" / name, place.root / ".git/modules/sub" / name)
    (place.root / ".husky").mkdir()
    (place.root / ".husky/pre-commit").write_text("#!/bin/sh\n")
    (place.root / "shared.gitconfig").write_text("[user]\n\tname = me\n")


def a_goal(workdir: str | None, *steps: dict[str, Any]) -> str:
    fields = {"goal": "Escape", **({"workdir": workdir} if workdir else {})}
    common = {"depends_on": [], "on_failure": "continue", "max_attempts": 1}
    return json.dumps({**fields, "steps": [{**step, **common} for step in steps]})


def python(name: str, code: str) -> dict[str, Any]:
    """A step by whichever Python there is: nobody may not enter the folder of ours."""
    return {"id": name, "tool": "shell", "input": {"command": f"python3 - <<'END'\n{code}\nEND\n"}}


def everything(root: Path, *, but: Path) -> dict[str, bytes | str]:
    """Return every file under a folder with what is in it, but for those in another."""
    found: dict[str, bytes | str] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) != but]
        for path in (Path(folder, name) for name in files):
            if path.is_socket():
                continue
            found[str(path.relative_to(root))] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


def listening(stack: ExitStack, kind: int, address: Any) -> socket.socket:
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    listener = stack.enter_context(socket.socket(family, kind))
    listener.bind(address)
    listener.setblocking(False)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


def was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


@each_user
@each_workdir
def test_no_way_out(workdir: str | None, under: tuple[str, ...]) -> None:
    with a_prison(under) as prison, ExitStack() as stack:
        tcp = listening(stack, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = listening(stack, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        unix = listening(stack, socket.SOCK_STREAM, str(prison.outside / "socket"))
        (prison.outside / "socket").chmod(0o777)
        abstract = listening(stack, socket.SOCK_STREAM, f"\0{prison.outside}")
        daemon = stack.enter_context(prison.watching())
        daemon.drop("other.md", book("echo private"))
        daemon.outcome("other")
        run = next(prison.place.runs.glob("*/other")).with_name("escape")
        before = everything(prison.place.root.parent, but=prison.place.runs)
        names = {
            "W": str(prison.place.root),
            "R": str(run),
            "OUT": str(prison.outside),
            "HOME": str(prison.place.home),
            "DAEMON": daemon.popen.pid,
            "TCP": tcp.getsockname()[1],
            "UDP": udp.getsockname()[1],
            "UNIX": str(prison.outside / "socket"),
            "ABSTRACT": str(prison.outside),
        }
        groups = {"writes": escapes.WRITES, "reads": escapes.READS, "kernel": escapes.KERNEL}
        groups |= {"network": escapes.NETWORK, "simple": escapes.FORGERIES}
        steps = [python(name, escapes.script(attempts, names)) for name, attempts in groups.items()]
        daemon.drop("escape.json", a_goal(workdir, *steps, python("udp", escapes.script({"x": escapes.UDP}, names))))
        outcome = daemon.outcome("escape")
        assert outcome["steps"]["failed"] == [], {
            name: prison.place.read(f"steps/{name}.1.result.json", "escape")["error"]
            for name in outcome["steps"]["failed"]
        }
        verdicts = {name: prison.place.read(f"steps/{name}.1.result.json", "escape")["output"] for name in groups}
        assert {name: sorted(verdict) for name, verdict in verdicts.items()} == {
            n: sorted(a) for n, a in groups.items()
        }
        got_in = {
            name: words for verdict in verdicts.values() for name, words in verdict.items() if "GOT IN" in words
        }
        assert got_in == {}
        assert [was_reached(one) for one in (tcp, udp, unix, abstract)] == [False] * 4
        after = everything(prison.place.root.parent, but=prison.place.runs)
        log = daemon.log.relative_to(prison.place.root.parent)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed <= {str(log)}
        daemon.drop("still.md", book("echo here"))
        assert daemon.outcome("still")["answer"] == "here"
        forged = [path.name for path in (run / "steps").iterdir() if path.name.split(".")[0] not in {*groups, "udp"}]
        assert forged == []
        prison.place.env |= OF_ANOTHER
        wait_for(lambda: len(prison.place.log()) == 6, "the ledger")

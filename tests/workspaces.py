"""A workspace in a temp folder, and the installed command driven from outside, as a person would."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentfs.commands.doctor import line_of
from agentfs.ledger.verify import Verification
from agentfs.storage.timing import DIVISOR
from agentfs.storage.workspace import Workspace
from tests import warm

DEADLINE = 60.0
_begun: "list[subprocess.Popen[str] | warm.Command]" = []  # oldest first


def wait_for(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Wait until a condition holds; fail with words if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)


class Place:
    """A folder to run agentfs in, with a home of its own and no secrets around."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        self.home = root / "home"
        self.root.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "COLUMNS": "200",
            DIVISOR: os.environ.get(DIVISOR, "1"),
            "AGENTFS_PROOF_ACCEPTANCE": "false",  # what models are asked for beside the work: tests/proof
            "AGENTFS_EXECUTOR_REPAIR": "false",
        }

    def agentfs(self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None, **more: Any) -> Any:
        """Run a command to its end; assert its exit code, and that it showed no traceback."""
        environment, folder = {**self.env, **(env or {})}, more.pop("cwd", self.root)
        seconds = more.pop("seconds", DEADLINE * 2)
        if not more.keys() - {"input"} and warm.can_start(environment):
            done = warm.run(words, folder, environment, more.get("input"), seconds)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "agentfs", *words],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                **more,
            )
        assert "Traceback" not in done.stderr, done.stderr
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
        return done

    def looks(self, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Run a command that starts nothing, in this very process: a tenth of the time of a new one."""
        from agentfs.commands import main

        out, err, before, folder = io.StringIO(), io.StringIO(), dict(os.environ), os.getcwd()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                os.chdir(self.root)
                os.environ.clear()
                os.environ.update({**self.env, **(env or {})})
                code = main(words)
            except SystemExit as left:
                code = int(left.code or 0)
            finally:
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(before)
        return code, out.getvalue(), err.getvalue()

    def begin(self, *words: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str] | warm.Command":
        """Start a command and leave it running."""
        environment = {**self.env, **(env or {})}
        if warm.can_start(environment):
            _begun.append(warm.begin(words, self.root, environment))
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", "agentfs", *words],
                cwd=self.root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            _begun.append(process)
        return _begun[-1]

    def goal(self, text: str, name: str = "job.md") -> str:
        """Write a goal file and return its name."""
        (self.root / name).write_text(text, encoding="utf-8")
        return name

    def runbook(self, steps: str, front: str = "", name: str = "job.md") -> str:
        """Write a runbook of these steps and return its name."""
        head = f"---\n{front}\n---\n" if front else ""
        return self.goal(f"{head}# Job\n\n## Steps\n\n{steps}", name)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_folder(self, name: str = "job") -> Path:
        found = sorted(self.runs.glob(f"????-??-??/{name}"))
        assert len(found) == 1, found
        return found[0]

    def read(self, path: str, name: str = "job") -> Any:
        """Return a JSON file of a run."""
        return json.loads((self.run_folder(name) / path).read_text(encoding="utf-8"))

    def tree(self, name: str = "job") -> list[str]:
        """Return every file of a run but its working files."""
        folder = self.run_folder(name)
        files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return sorted(str(path) for path in files if path.parts[0] != "files")

    def git(self, *words: str) -> str:
        """Ask git about the ledger."""
        env = {**self.env, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(self.runs), *words],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE,
        )
        return done.stdout

    def log(self) -> list[str]:
        """Return the ledger as `author subject`, oldest first."""
        return self.git("log", "--reverse", "--format=%an %s", "--branches=[m]ain").splitlines()  # or none yet

    def ledger_is_sound(self) -> None:
        """Assert that the ledger is whole and that nothing of ours shows as changed."""
        self.git("fsck", "--strict")
        changed = self.git("status", "--porcelain")
        assert not changed, changed


def disagreements(root: Path) -> list[str]:
    """Return in what files and ledger of a workspace disagree, a line each; mere notices are left out."""
    found = Verification(Workspace(root)).disagreements() if (root / "runs" / ".git").is_dir() else ()
    return [line_of(one) for one in found if one.grade == "wrong"]


def end(
    process: "subprocess.Popen[str] | warm.Command", number: signal.Signals = signal.SIGKILL
) -> tuple[int, str, str]:
    """End a process that a test started; return its exit code and what it printed."""
    if process.poll() is None:
        process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE)
    return process.wait(), out, err


@contextlib.contextmanager
def ended_commands() -> Iterator[None]:
    """End every command that the test began: one that failed halfway leaves them running, with open pipes.

    What a fixture of the whole module began before is left alone.
    """
    before = len(_begun)
    yield
    while len(_begun) > before:
        process = _begun.pop()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def end_processes_in(folder: Path) -> None:
    """Kill every process whose working folder lies in a test's: what a driver has left when it was killed, say."""
    inside = f"{os.path.realpath(folder)}{os.sep}"
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd").startswith(inside) and int(name) != os.getpid():
                os.kill(int(name), signal.SIGKILL)


def path_without(tmp_path: Path, program: str) -> str:
    """Return a PATH with everything on it but one program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for part in os.environ["PATH"].split(":"):
        for path in Path(part).glob("*") if part else ():
            if path.name != program and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return str(folder)

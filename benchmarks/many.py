"""A workspace with many finished runs, made quickly: one real run; copies of its files and commits with other names.

Each day has fifty of them, the newest day being the one of the real run. The ledger holds two commits per run, in one
pack, and the index is in step, as after maintenance.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from measuring import chain, run_steps

PER_DAY = 50
MOMENT = 1_780_000_000  # of the first copy's commits, a minute apart


@dataclass(frozen=True)
class Commit:
    """One commit of the run that is copied: its message, and its files by path in the run's folder."""

    message: bytes
    files: dict[str, bytes]


def finished_runs(root: Path, count: int, steps: int = 2) -> list[str]:
    """Fill a workspace with this many finished runs; return their ids, the oldest day first."""
    folder = run_steps(root, chain(steps), "model").folder
    model = f"{folder.parent.name}/{folder.name}"
    commits = list(_commits(root / "runs", model))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ids = list(_ids(folder.parent.name, count - 1))
    for one in ids:
        _copy(root / "runs" / one, {path: _renamed(content, model, one) for path, content in files.items()})
    _import(root / "runs", model, commits, ids)
    return [*ids, model]


def _ids(newest: str, count: int) -> Iterator[str]:
    days = (count + PER_DAY - 1) // PER_DAY
    for number in range(count):
        day = date.fromisoformat(newest) - timedelta(days=days - number // PER_DAY)
        yield f"{day}/run-{number}"


def _renamed(content: bytes, model: str, one: str) -> bytes:
    name, other = model.rpartition("/")[2], one.rpartition("/")[2]
    return content.replace(model.encode(), one.encode()).replace(b"%s:" % name.encode(), b"%s:" % other.encode())


def _copy(folder: Path, files: dict[str, bytes]) -> None:
    for part in ("planning", "revisions", "steps", "files"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (folder / path).write_bytes(content)


def _commits(runs: Path, model: str) -> Iterator[Commit]:
    """Yield the commits of the model's run, the oldest first."""
    for sha in _git(runs, "rev-list", "--reverse", "main").decode().split():
        paths = _git(runs, "ls-tree", "-r", "--name-only", sha, f"{model}/").decode().split()
        files = {path.removeprefix(f"{model}/"): _git(runs, "show", f"{sha}:{path}") for path in paths}
        yield Commit(_git(runs, "log", "-1", "--format=%B", sha), files)


def _import(runs: Path, model: str, commits: list[Commit], ids: list[str]) -> None:
    """Put the same commits into the ledger for every copy, on top of those of the model."""
    stream = bytearray(b"reset refs/heads/main\nfrom refs/heads/main^0\n\n")
    for number, one in enumerate(ids):
        for commit in commits:
            stream += b"commit refs/heads/main\n"
            stream += b"committer agentfs <agentfs@localhost> %d +0000\n" % (MOMENT + 60 * number)
            stream += _quoted(_renamed(commit.message, model, one))
            for path, content in commit.files.items():
                stream += f"M 644 inline {one}/{path}\n".encode() + _quoted(_renamed(content, model, one))
    _git(runs, "fast-import", "--quiet", given=bytes(stream))
    _git(runs, "read-tree", "main")


def _quoted(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def _git(runs: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", *words], cwd=runs, input=given, capture_output=True, check=True).stdout

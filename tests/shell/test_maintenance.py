"""A ledger of many runs is kept fast by git, and nothing is lost by it: not to a kill, not to commits that go on."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs.ledger import Ledger, maintenance
from agentfs.ledger.git import Git
from agentfs.ledger.maintenance import Maintained, Maintenance, Upkeep
from agentfs.storage.timing import TIMING
from tests.ledgers import RUN, SEEN_BY_GIT, a_ledger, a_run, an_entry, assert_sound, git, put
from tests.workspaces import wait_for

HERE = Path(__file__).parents[2]
SLOW_GIT = """#!/bin/sh
sleep 600 &
echo $! >> {pids}
wait
"""


def a_large_ledger(tmp_path: Path, runs: int = 40) -> Ledger:
    """Return a ledger of which git thinks that it is time."""
    ledger = a_ledger(tmp_path)
    git(ledger.root, "config", "gc.auto", "1")
    for number in range(runs):
        files = {**a_run(), "goal.md": b"%d" % number, "run.json": SEEN_BY_GIT[number % 3]}
        ledger.commit(an_entry(files, run=f"2026-11-16/run-{number}", message=f"run {number}"))
    return ledger


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_large_ledger(tmp_path_factory.mktemp("made")).root


@pytest.fixture
def ledger(tmp_path: Path, made: Path) -> Ledger:
    """A large ledger of the test's own."""
    return Ledger(shutil.copytree(made, tmp_path / "runs", symlinks=True))


def loose(ledger: Ledger) -> list[Path]:
    return list((ledger.root / ".git" / "objects").glob("[0-9a-f][0-9a-f]/*"))


def maintained(ledger: Ledger) -> Maintained:
    done = Maintenance(ledger.root).do(threading.Event())
    assert done is not None
    return done


def test_a_young_ledger_is_left_alone_and_an_old_one_is_not(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.commit(an_entry())
    upkeep = Maintenance(ledger.root)
    assert not upkeep.due()
    folder = ledger.root / ".git" / "objects" / "17"
    folder.mkdir(exist_ok=True)
    for number in range(27 - len(list(folder.iterdir()))):
        (folder / f"{number:038x}").touch()
    (folder / "tmp_obj_x").touch()
    assert not upkeep.due()  # git's own limit is 6,700, and this is one folder of 256
    (folder / f"{99:038x}").touch()
    assert upkeep.due()
    git(ledger.root, "config", "gc.auto", "0")
    assert not upkeep.due(), "a person has switched it off"


def test_many_packs_are_a_reason_too(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    pack = ledger.root / ".git" / "objects" / "pack"
    for number in range(51):
        (pack / f"pack-{number}.pack").touch()
    assert Maintenance(ledger.root).due()
    (pack / "pack-0.keep").touch()
    assert not Maintenance(ledger.root).due()


def test_what_was_loose_is_packed_and_the_graph_knows_paths(ledger: Ledger) -> None:
    before = len(loose(ledger))
    assert Maintenance(ledger.root).due()
    done = maintained(ledger)
    assert (done.packed, done.trouble) == (before, None)
    assert loose(ledger) == []
    assert not Maintenance(ledger.root).due()
    assert b"BDAT" in (ledger.root / ".git" / "objects" / "info" / "commit-graph").read_bytes()[:200]
    assert (ledger.root / ".git" / "refs" / "heads" / "main").exists(), "the branch stays a file: no lock was needed"
    assert ledger.commit(an_entry())
    assert len(ledger.history()) == 41
    assert_sound(ledger.root)


def test_the_ledger_goes_on_where_everything_is_packed(ledger: Ledger) -> None:
    git(ledger.root, "pack-refs", "--all")
    maintained(ledger)
    assert not (ledger.root / ".git" / "refs" / "heads" / "main").exists()
    for one in (ledger, Ledger(ledger.root)):
        assert set(one.committed("2026-11-16/run-7")) == set(a_run())
        assert len(one.history()) == 40
    put(ledger.root, a_run())
    assert ledger.commit(an_entry())
    assert ledger.sync_index(RUN)
    assert git(ledger.root, "rev-list", "--count", "main") == "41"
    assert_sound(ledger.root)


def test_what_nothing_refers_to_has_gits_two_weeks(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "draft").write_text("a person's, staged and taken back", encoding="utf-8")
    sha = git(ledger.root, "hash-object", "-w", str(tmp_path / "draft"))
    maintained(ledger)
    assert git(ledger.root, "cat-file", "-t", sha) == "blob"


@pytest.mark.parametrize(
    "lock", ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock", "rebase-merge"]
)
def test_while_a_persons_lock_exists_it_waits(ledger: Ledger, lock: str) -> None:
    before = len(loose(ledger))
    (ledger.root / ".git" / lock).mkdir() if lock == "rebase-merge" else (ledger.root / ".git" / lock).touch()
    words = (
        f"{ledger.root / '.git' / lock} exists; it is tried again (if no git command is running, delete that file)"
    )
    assert maintained(ledger).trouble == words
    assert (ledger.root / ".git" / lock).exists()
    assert len(loose(ledger)) == before


def test_a_persons_own_gc_is_not_disturbed_and_a_dead_one_is_no_hindrance(ledger: Ledger) -> None:
    pid = ledger.root / ".git" / "gc.pid"
    for holder in (f"{os.getpid()} {os.uname().nodename}", "1 elsewhere"):
        pid.write_text(holder, encoding="ascii")
        assert (maintained(ledger).packed, maintained(ledger).trouble) == (0, "a `git gc` is under way")
    pid.write_text(f"4194305 {os.uname().nodename}", encoding="ascii")
    assert maintained(ledger).trouble is None
    assert pid.exists()


def test_many_packs_become_one(ledger: Ledger) -> None:
    git(ledger.root, "config", "gc.autoPackLimit", "2")
    for number in range(3):
        ledger.commit(an_entry({**a_run(), "goal.md": b"%d more" % number}))
        git(ledger.root, "repack", "-d", "-q")
    assert Maintenance(ledger.root).due()
    assert maintained(ledger).trouble is None
    assert len(list((ledger.root / ".git" / "objects" / "pack").glob("*.pack"))) == 1
    assert not Maintenance(ledger.root).due()
    assert len(Ledger(ledger.root).history()) == 43
    assert_sound(ledger.root)


def test_what_git_says_is_passed_on(ledger: Ledger) -> None:
    lock = ledger.root / ".git" / "objects" / "info" / "commit-graph.lock"
    lock.touch()
    done = maintained(ledger)
    assert f"Unable to create '{lock}': File exists" in (done.trouble or "")
    assert lock.exists()


def test_it_ends_at_once_with_everything_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_large_ledger(tmp_path, runs=3)
    pids = tmp_path / "pids"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(SLOW_GIT.format(pids=pids), encoding="utf-8")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    stop, ended = threading.Event(), threading.Event()
    found: list[Maintained | None] = []

    def work() -> None:
        found.append(Maintenance(ledger.root).do(stop))
        ended.set()

    threading.Thread(target=work).start()
    wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), "git to begin")
    stop.set()
    assert ended.wait(30)
    assert found == [None]
    (pid,) = pids.read_text().split()
    wait_for(lambda: not _lives(int(pid)), "the end of what git had started")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


COMMITTER = """
import sys
from pathlib import Path
from tests.ledgers import SEEN_BY_GIT, an_entry
from agentfs.ledger import Ledger
ledger, who = Ledger(Path(sys.argv[1])), sys.argv[2]
for number in range(40):
    files = {"goal.md": SEEN_BY_GIT[number + 40 * (who == "a")], "run.json": b"%d" % number}
    assert ledger.commit(an_entry(files, run=f"2026-11-17/{who}-{number}", message=f"{who} {number}"))
"""


@pytest.mark.parametrize("hard", [False, True])
def test_commits_that_go_on_meanwhile_are_all_there(ledger: Ledger, *, hard: bool) -> None:
    """Two processes commit; git packs again and again, and in one case is stopped again and again."""
    started = [subprocess.Popen([sys.executable, "-c", COMMITTER, ledger.root, who], cwd=HERE) for who in "ab"]
    times = 0
    while any(one.poll() is None for one in started):
        stop = threading.Event()
        timer = threading.Timer(0.005 * (times % 20), stop.set)
        if hard:
            timer.start()
        Maintenance(ledger.root).do(stop)
        timer.cancel()
        times += 1
    assert [one.wait(60) for one in started] == [0, 0]
    assert times > 1
    subjects = git(ledger.root, "log", "--format=%s").splitlines()
    assert sorted(s for s in subjects if s[0] in "ab") == sorted(f"{who} {n}" for who in "ab" for n in range(40))
    assert len(subjects) == 120
    assert Ledger(ledger.root).committed("2026-11-17/a-0") != {}
    assert_sound(ledger.root)
    maintained(ledger)
    assert any((ledger.root / ".git" / "objects" / "pack").glob("*.pack"))
    assert_sound(ledger.root)


def test_a_killed_git_loses_nothing_and_the_next_one_goes_on(ledger: Ledger) -> None:
    tip = git(ledger.root, "rev-parse", "main")
    for number in range(8):
        popen = Git(ledger.root, *maintenance.SETTINGS).start(*maintenance.PACK)
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(0.003 * number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()
    assert git(ledger.root, "rev-parse", "main") == tip
    maintained(ledger)
    assert not Maintenance(ledger.root).due()
    assert len(Ledger(ledger.root).history()) == 40
    assert_sound(ledger.root)


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────


def upkeep_of(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> tuple[Upkeep, list[tuple[str, str]]]:
    monkeypatch.setattr("agentfs.ledger.maintenance.TIMING", replace(TIMING, idle=0.0))
    reported: list[tuple[str, str]] = []
    return Upkeep(Maintenance(ledger.root), lambda event, words: reported.append((event, words))), reported


def test_only_while_there_is_nothing_to_do(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(loose(ledger))
    upkeep, reported = upkeep_of(ledger, monkeypatch)
    upkeep.tend(idle=False)
    assert not upkeep.is_running()
    upkeep.tend(idle=True)
    assert upkeep.is_running()
    wait_for(lambda: bool(reported), "the line")
    assert [event for event, _ in reported] == ["maintained"]
    assert reported[0][1].startswith(f"the ledger was maintained: {before} loose objects packed in ")
    upkeep.close()
    upkeep.tend(idle=True)
    assert not upkeep.is_running(), "not again for a while"


def test_it_gives_way_to_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_large_ledger(tmp_path, runs=20)
    pids = tmp_path / "pids"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(SLOW_GIT.format(pids=pids), encoding="utf-8")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    upkeep, reported = upkeep_of(ledger, monkeypatch)
    upkeep.tend(idle=True)
    wait_for(pids.exists, "git to begin")
    upkeep.tend(idle=False)
    wait_for(lambda: not upkeep.is_running(), "the end of it")
    assert reported == []

"""kill -9 in a run with a worktree of its own: the branch holds exactly the done steps, and the person's tree is theirs.

Cut off before every change of a file by agentfs itself, and before every start of git.
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forking import Forks
from tests.crash.stories import SETTINGS, run_of, words_to_go_on
from tests.crash.sweeping import (
    CHANGES,
    Point,
    copy_of,
    in_memory,
    killed_at,
    needs_strace,
    points,
    strace,
    sweep,
)
from tests.sweeps import some
from tests.workspaces import Place

pytestmark = needs_strace
GOAL = """\
---
workdir: repo
isolate: worktree
---
# Job

## Steps

### one
```sh
echo 1 >> numbers; echo ignored > x.log
```
check: `echo dropped > dropped; echo dropped >> numbers`

### wrong
```sh
echo junk > junk; test -e ../tried || { touch ../tried; exit 1; }; rm junk; echo 2 >> numbers
```

### three
```sh
test ! -e junk; test ! -e half; test ! -e dropped; echo half > half; mv half done; echo 3 >> numbers
```
"""
STARTS = ("vfork", "clone3", "clone", "fork")
_START = re.compile(r"(\d+) +(vfork|clone3|clone|fork)\(")


def git(top: Path, *words: str) -> str:
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(["git", "-C", str(top), *words], capture_output=True, text=True, check=True, env=env).stdout


def tree_of(place: Place) -> dict[str, bytes]:
    """Return what of the person's must stay byte for byte: index, HEAD, their branch, settings, and files."""
    top = place.root / "repo"
    own = [top / ".git" / name for name in ("index", "HEAD", "refs/heads/trunk", "config")]
    return {str(path): path.read_bytes() for path in (*own, *top.iterdir()) if path.is_file()}


@pytest.fixture(scope="module")
def begins() -> Iterator[Place]:
    with in_memory() as folder:
        place = Place(folder)
        place.agentfs("init", ".")
        (place.root / "agentfs.toml").write_text(SETTINGS)
        top = place.root / "repo"
        top.mkdir()
        git(top, "init", "-q", "-b", "trunk")
        (top / "a.txt").write_text("one\n")
        (top / ".gitignore").write_text("*.log\n")
        git(top, "add", "-A")
        git(top, "-c", "user.name=P", "-c", "user.email=p@x", "commit", "-qm", "first")
        (top / "a.txt").write_text("not committed\n")
        place.goal(GOAL)
        yield place


def starts_of(trace: str) -> list[Point]:
    """Return the moments before each start of a program, by the thread that starts most."""
    counts = Counter((found[1], found[2]) for found in _START.finditer(trace))
    return [
        Point(call, number)
        for call in STARTS
        for number in range(1, max((n for (_, c), n in counts.items() if c == call), default=0) + 1)
    ]


def assert_branch_is_what_is_done(place: Place) -> None:
    """At any moment the branch holds the commits of done results, in order, and nothing of an attempt that is not."""
    folder = run_of(place)
    if folder is None:
        return
    results = [json.loads(path.read_text()) for path in (folder / "steps").glob("*.result.json")]
    named = [one["commit"] for one in sorted(results, key=lambda one: one["ended_at"]) if one.get("commit")]
    top, branch = place.root / "repo", f"agentfs/{folder.parent.name}/{folder.name}"
    if git(top, "branch", "--list", branch):
        there = git(top, "rev-list", "--reverse", branch, "^trunk").split()
        assert there in (named, named[:-1]), (there, named)  # the result comes before the branch


def killed_once(begins: Place, point: Point, own: Path, forks: Forks) -> str:
    place = copy_of(begins, own / "place")
    before = tree_of(place)
    cut = killed_at(point, place, "run", "job.md")
    assert tree_of(place) == before
    assert_branch_is_what_is_done(place)
    for _ in range(6):
        forks.command(place, *words_to_go_on(place))
        folder = run_of(place)
        if folder and (folder / "outcome.json").exists():
            break
    else:
        raise AssertionError("it does not end")
    outcome = json.loads((folder / "outcome.json").read_text())
    assert outcome["status"] == "failed" or outcome["status"] == "done", outcome
    assert tree_of(place) == before
    top = place.root / "repo"
    assert git(top, "rev-list", "--reverse", outcome["branch"], "^trunk").split() == outcome["commits"]
    subjects = git(top, "log", "--reverse", "--format=%s", outcome["branch"], "^trunk").split("\n")
    assert [one for one in subjects if one] == ["one: shell", "wrong: shell", "three: shell"]
    assert git(top, "show", f"{outcome['branch']}:numbers") == "1\n2\n3\n"
    assert git(top, "ls-tree", "-r", "--name-only", outcome["branch"]).split() == [
        ".gitignore",
        "a.txt",
        "done",
        "numbers",
    ]
    return "killed" if cut.killed else "not reached"


def test_an_isolated_run_killed_anywhere(begins: Place) -> None:
    place = copy_of(begins, begins.root.parent / "looked-at")
    seen = strace(place, "run", "job.md", calls=[*CHANGES, "openat", *STARTS])
    assert seen.code == 0, seen.err
    cuts = [
        one
        for one in points(seen.trace, place.root)
        if any(part in one.path for part in ("/steps/", "job/", "worktrees/"))
    ]
    chosen = some([*cuts, *starts_of(seen.trace)], 1, about="isolated")
    # Between the result of a done step and the clean-up behind it: what its check dropped is not a person's.
    published = [at for at, one in enumerate(cuts) if one.path.endswith(".1.result.json") and one.call == "linkat"]
    always = some([cuts[published[0] + 1], cuts[published[-1]]], 1, about="isolated results")

    def one(point: Point, own: Path, forks: Forks) -> str:
        return killed_once(begins, point, own, forks)

    came_to = sweep("killed in an isolated run", [*dict.fromkeys((*chosen, *always))], one, begins.root.parent)
    assert came_to["killed"] >= len(always)

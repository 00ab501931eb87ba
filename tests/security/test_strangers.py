"""What another user made: a workspace put where a trusted one was, records that do not end, locks that a step holds.

Each was seen to get through in the first release: a folder made again under the same inode was trusted unseen; a step
that locked `goals/` kept everybody from watching it; `status` in a clone filled the memory or waited for ever.
"""

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agentfs.planner.answer import PlanContext
from agentfs.planner.evaluation import evaluate_answer
from agentfs.planner.prompt import Surroundings
from agentfs.storage.locks import own_folder
from agentfs.tools.files import list_files, read_file
from agentfs.tools.programs import Shell
from tests.builders import CATALOGUE
from tests.contexts import a_context, confined
from tests.daemons import Watching, book
from tests.sweeps import FULL
from tests.workspaces import Place, end, wait_for


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ── trust ─────────────────────────────────────────────────────────────────────────────────────────────────


NOT_IT = "is not the folder that you trusted: it was made again or copied, or an older agentfs trusted it."


def planted(root: Path) -> None:
    """Put a workspace of another user into a folder."""
    (root / "goals").mkdir(parents=True)
    (root / "agentfs.toml").write_text('on_wait = "touch ran"\n')


def refused(place: Place, why: str) -> None:
    for words in (("run", "job.md"), ("watch",)):
        assert f"{place.root} {why}" in place.agentfs(*words, code=2).stderr, words


def test_a_folder_made_again_at_the_same_path_is_not_trusted(place: Place) -> None:
    """Also where the file system gives it the same inode, as here."""
    place.agentfs("init")
    inode = place.root.stat().st_ino
    for path in place.root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    planted(place.root)
    place.runbook("### a\n```sh\necho fine\n```\n")
    assert place.root.stat().st_ino == inode
    refused(place, NOT_IT)
    place.agentfs("trust", ".")
    place.agentfs("run", "job.md")


def test_a_workspace_that_brings_a_secret_along_is_not_trusted(place: Place) -> None:
    """What was trusted is given away, with its secret, and comes back changed at the same path."""
    place.agentfs("init")
    place.runbook("### a\n```sh\necho fine\n```\n")
    copy = place.root.with_name("copy")
    shutil.copytree(place.root, copy)
    (copy / "agentfs.toml").write_text('on_wait = "touch ran"\n')
    os.rename(place.root, place.root.with_name("away"))
    os.rename(copy, place.root)
    refused(place, NOT_IT)


def test_a_copy_elsewhere_is_not_trusted(place: Place) -> None:
    place.agentfs("init")
    place.runbook("### a\n```sh\necho fine\n```\n")
    shutil.copytree(place.root, place.root.with_name("copy"))
    place.root = place.root.with_name("copy")
    refused(place, "was not made by you.")


def test_trusting_writes_a_new_secret(place: Place) -> None:
    """One that is there was another user's to choose, or to give away."""
    place.agentfs("init")
    place.runbook("### a\n```sh\necho fine\n```\n")
    (secret,) = own_folder(place.runs).glob("trusted-*")
    known, mode = secret.read_bytes(), secret.stat().st_mode & 0o777
    assert (len(known), mode) == (65, 0o600)
    (place.home / ".local/state/agentfs/trusted").unlink()
    place.agentfs("trust", ".")
    assert secret.read_bytes() != known
    assert known.decode().strip() not in (place.home / ".local/state/agentfs/trusted").read_text()
    place.agentfs("run", "job.md")


def test_what_an_older_agentfs_trusted_is_asked_about_again(place: Place) -> None:
    """It knew a folder by its inode alone, so nobody can tell whether this is the one."""
    planted(place.root)
    place.runbook("### a\n```sh\necho fine\n```\n")
    state = place.home / ".local/state/agentfs"
    state.mkdir(parents=True)
    (state / "trusted").write_text(f"{place.root.stat().st_ino} {place.root}\n")
    refused(place, NOT_IT)


# ── what agentfs keeps for itself ─────────────────────────────────────────────────────────────────────────


@confined
@pytest.mark.parametrize("read", [False, True], ids=["hidden", "[tools] read names runs"])
def test_no_step_sees_what_agentfs_keeps_for_itself(tmp_path: Path, read: bool) -> None:
    workspace = tmp_path / "workspace"
    own = workspace / "runs/.git/agentfs-own"
    for folder in (own / "locks", workspace / "runs/.git/agentfs"):
        folder.mkdir(parents=True)
        (folder / "held").write_text("mine!")
    (workspace / "runs/.git/HEAD").write_text("ref: refs/heads/main\n")
    readable = (workspace / "runs",) if read else ()
    work = a_context(tmp_path, "bubblewrap", workdir=workspace, readable=readable)
    looked = Shell().call({"command": "cat runs/.git/HEAD || true; find runs -name held; echo looked"}, work.context)
    assert looked.output == ("ref: refs/heads/main\nlooked" if read else "looked")
    for path in ("runs/.git/agentfs-own/locks/held", "runs/.git/agentfs/held"):
        result = read_file.call({"path": path}, work.context)
        assert result.failure is not None, path
        assert "hidden from tools" in result.failure.message
    listed = list_files.call({"path": "runs/.git" if read else ".", "pattern": "**"}, work.context)
    assert "held" not in str(listed.output)


LOCK_ALL = """
import fcntl, os, time
kept = []
seen = [folder for folder, _, _ in os.walk(".")]
for folder in seen:  # what a lock is called is no secret: where it lies must be out of reach
    for one in map(os.stat, seen):
        try:
            os.makedirs(os.path.join(folder, "locks"), exist_ok=True)
            os.close(os.open(os.path.join(folder, "locks", f"{one.st_dev}-{one.st_ino}"), os.O_CREAT | os.O_WRONLY))
        except OSError:
            pass
for folder, folders, files in os.walk("."):
    for name in (folder, *(os.path.join(folder, file) for file in files)):
        try:
            kept.append(os.open(name, os.O_RDONLY))
            fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
open("locked", "w").close()
time.sleep(600)
"""


@confined
def test_a_step_that_locks_all_it_sees_keeps_nobody_from_driving(place: Place) -> None:
    place.agentfs("init")
    place.goal(book("echo fine", lines="gate"), "waits.md")
    place.agentfs("run", "waits.md", code=3)
    place.runbook(f"### a\n```python\n{LOCK_ALL}```\n", front="workdir: .", name="locks.md")
    holder = place.begin("run", "locks.md")
    try:
        wait_for((place.root / "locked").exists, "the step to have locked what it sees")
        with Watching(place) as watch:
            (watch.goals / "dropped.md").write_text(book("echo fine"))
            wait_for(lambda: bool([*place.runs.glob("*/dropped/outcome.json")]), "the dropped goal to be done")
            place.agentfs("approve", "waits")
            wait_for((place.run_folder("waits") / "outcome.json").exists, "the other run to be done")
        assert "is being driven" in place.agentfs("run", "--resume", "locks", code=2).stderr
    finally:
        end(holder, signal.SIGTERM)


# ── records that do not end ───────────────────────────────────────────────────────────────────────────────

MOST_MEMORY = 1_500_000_000  # more than the process has anyway
MOST_SECONDS = 60
READING: tuple[tuple[str, ...], ...] = (
    ("status",), ("status", "job"), ("status", "--json"), ("show", "job"), ("show", "job", "a"), ("show", "job", "--json"),
    ("log", "job"), ("diff", "job"), ("blame", "job"), ("cost", "job"), ("verify",), ("verify", "job"), ("doctor",), ("tools",),
    ("compare", "job", "job"), ("replay", "job"), ("check", "agentfs.toml"),
)  # fmt: skip
RECORDS = (
    "run.json", "goal.md", "plan.json", "outcome.json", "planning/1.json", "planning/1.result.json", "planning/1.plan.1.json",
    "revisions/1.json", "revisions/1.plan.json", "steps/a.1.json", "steps/a.1.log.jsonl", "steps/a.1.result.json",
)  # fmt: skip
ELSEWHERE = ("agentfs.toml", "tools/own.py", "schemas/plan.schema.json", "runs/.git/HEAD", "runs/.git/packed-refs")


def link_without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3_000_000_000)


def nested(path: Path) -> None:
    path.write_text('{"a":' * 100_000)


HARM: dict[str, Callable[[Path], None]] = {
    "link": link_without_end, "pipe": os.mkfifo, "sparse": sparse, "nested": nested,
}  # fmt: skip


def look(place: Place, words: tuple[str, ...]) -> None:
    """Run a reading command in a child of this process: it ends soon, takes little memory, and raises nothing."""
    report = place.home / "report"
    report.write_text("it was ended")
    if (child := os.fork()) == 0:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MOST_MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.alarm(int(MOST_SECONDS))
            _, out, err = place.looks(*words)
            report.write_text(err if "Traceback" in err or "MemoryError" in err + out else "")
        except BaseException as error:  # noqa: BLE001 - reported by the parent
            report.write_text(repr(error))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert (status, report.read_text()) == (0, ""), words


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a workspace with a run that has ended, to be copied."""
    place = Place(tmp_path_factory.mktemp("made"))
    place.agentfs("init")
    (place.root / "tools").mkdir()
    (place.root / "tools/own.py").write_text("from agentfs import tool\n")
    place.agentfs("run", place.runbook("### a\n```sh\necho fine\n```\n"))
    return place


def hostile(clone: Place, tmp_path: Path, names: tuple[str, ...], harm: Callable[[Path], None]) -> Iterator[Place]:
    """Yield copies of a workspace, in each of which one file means harm."""
    for name in names:
        place = Place(tmp_path)
        place.env = {**clone.env, "HOME": str(place.home)}
        shutil.rmtree(place.root)
        shutil.copytree(clone.root, place.root)
        path = place.root / name if name in ELSEWHERE else place.run_folder() / name
        path.unlink(missing_ok=True)
        harm(path)
        yield place


@pytest.mark.parametrize("kind", HARM)
def test_looking_at_what_another_user_made_ends(clone: Place, tmp_path: Path, kind: str) -> None:
    """By default every file once, each with another command; all of them with `./test --full`."""
    names = (*RECORDS, *ELSEWHERE)
    for number, place in enumerate(hostile(clone, tmp_path, names, HARM[kind])):
        turn = number + 5 * [*HARM].index(kind)
        for words in READING if FULL else (READING[turn % len(READING)], ("status", "job")):
            look(place, words)


@pytest.mark.parametrize("words", [("log", "job"), ("diff", "job"), ("verify",)], ids=" ".join)
def test_no_pipe_in_the_ledger_is_waited_for(clone: Place, tmp_path: Path, words: tuple[str, ...]) -> None:
    for place in hostile(clone, tmp_path, ("runs/.git/HEAD", "runs/.git/packed-refs"), os.mkfifo):
        look(place, words)


def test_folders_of_a_run_that_are_links_are_not_followed(clone: Place, tmp_path: Path) -> None:
    for name in ("steps", "planning", "revisions"):
        (place,) = hostile(clone, tmp_path, ("outcome.json",), lambda _: None)
        shutil.rmtree(place.run_folder() / name)
        (place.run_folder() / name).symlink_to("/proc/self/fd")
        for words in (("status",), ("show", "job"), ("log", "job"), ("verify",)):
            look(place, words)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def answer(kind: str, count: int) -> str:
    """Return a planner's answer of so many steps."""
    inputs: dict[str, Callable[[int], dict[str, object]]] = {
        "scripts": lambda n: {"tool": "shell", "input": {"command": f"grep -c x f{n} > out{n}\n" + "echo hello; " * 20}},
        "references": lambda n: {
            "tool": "shell",
            "input": {"command": "echo " + " ".join(f'"{{{{steps.s-{m}.output}}}}"' for m in range(max(0, n - 10), n))},
        },
        "placeholders": lambda n: {"tool": "note", "input": {"text": f"{{{{s-{n}}}}} <output of s-{n}> {{{{x_{n}}}}} " * 5}},
        "one file": lambda _: {"tool": "write_file", "input": {"path": "same.txt", "content": "x"}},
        "missing files": lambda n: {"tool": "read_file", "input": {"path": f"f{n}"}},
        "wrong references": lambda n: {"tool": "shell", "input": {"command": f"echo '{{{{steps.gone-{n}.output}}}}'"}},
        "circles": lambda n: {"tool": "note", "input": {"text": "x"}, "depends_on": [f"s-{n ^ 1}"]},
    }  # fmt: skip
    steps = [
        {
            "id": f"s-{n}",
            "description": f"do {n}",
            "success_condition": f"out{n} has {n} lines",
            "depends_on": [f"s-{n - 1}"] if n else [],
            **inputs[kind](n),
        }
        for n in range(count)
    ]
    return json.dumps({"steps": steps})


@pytest.mark.parametrize(
    "kind",
    ["scripts", "references", "placeholders", "one file", "missing files", "wrong references", "circles"],
)
def test_the_time_to_judge_an_answer_grows_with_its_length(kind: str) -> None:
    """Two thousand steps took minutes. What is compared is two measures of one machine, not seconds."""
    around = Surroundings(workdir="/w", complete=True)

    def seconds(count: int) -> float:
        text, began = answer(kind, count), time.process_time()
        evaluate_answer(text, PlanContext("title"), CATALOGUE, around)
        return time.process_time() - began

    seconds(50)  # what is made once
    small = min(seconds(250) for _ in range(3))
    assert seconds(2000) < 8 * small * 4 + 0.5


@pytest.mark.parametrize(
    "text", ["```a\n" * 100_000, "[1," * 300 + "1," * 500_000, "<think>" * 100_000, "{" * 500_000]
)
def test_replies_that_hold_nothing_are_soon_read(text: str) -> None:
    began = time.process_time()
    assert evaluate_answer(text, PlanContext("title"), CATALOGUE, Surroundings()).hard
    assert time.process_time() - began < 5


def test_an_answer_of_too_many_steps_is_refused_at_once() -> None:
    steps = json.dumps({"steps": [{"id": f"s-{n}"} for n in range(20_000)]})
    (problem,) = evaluate_answer(steps, PlanContext("title"), CATALOGUE, Surroundings()).hard
    assert problem.startswith("steps: a plan of 20000 steps: 10000 are the most")


def test_judging_an_answer_can_be_stopped() -> None:
    """The stop signal and the time limit are checked between any two parts of the work."""
    asked: list[float] = []
    evaluate_answer(
        answer("references", 2000),
        PlanContext("title"),
        CATALOGUE,
        Surroundings(),
        lambda: asked.append(time.process_time()),
    )
    pauses = [later - sooner for sooner, later in pairwise(asked)]
    assert len(asked) > 8
    assert max(pauses) < 3

    class Raised(Exception):
        pass

    def stop() -> None:
        raise Raised

    with pytest.raises(Raised):
        evaluate_answer(answer("scripts", 10), PlanContext("title"), CATALOGUE, Surroundings(), stop)


def test_init_writes_through_no_link(place: Place) -> None:
    """`run` makes a workspace where there is none, in a clone too."""
    target = place.home / "settings"
    (place.root / "agentfs.toml").symlink_to(target)
    output = place.agentfs("init", code=2).stderr
    assert output == f"agentfs: cannot make a workspace in {place.root}: File exists ({place.root}/agentfs.toml)\n"
    assert not target.exists()

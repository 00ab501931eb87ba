"""The power goes: of what was published nothing is absent, empty or torn, and the run goes on from what is on the disk.

A run on a file system of its own, in an image that is copied whenever something was linked, renamed or synced. What the
kernel had not written by then is not in the copy, as after a power cut. `./test --full` looks at every image; by
default at a few, chosen by a seed.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentfs.storage.workspace import trust
from tests.crash import stories
from tests.crash.forking import Forks
from tests.crash.stories import Expected, effects, live_on, results, words_to_go_on
from tests.crash.sweeping import copy_of, in_memory, tell
from tests.sweeps import FULL, SEED, WANTED
from tests.workspaces import Place

MEGABYTES = 24
FEW = int(WANTED or 5) / 250 if not FULL else 1.0  # of the images, by chance
EVERY = 3  # of the images that are looked at, one in so many is also gone on from
ORDER = re.compile(r" M .*/steps/[a-z0-9-]+\.[0-9]\.json")
NOTES = "".join(f"\n### note-{number}\n```note\n{number}\n```\n" for number in range(6))
GONE = 1 << 30  # no process has that number
STOPPING = Path(__file__).parent / "stopping"


@contextmanager
def loop_mounted(image: Path, folder: Path) -> Iterator[Path]:
    """Mount an image, as after a restart: the journal is replayed."""
    folder.mkdir()
    done = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no image can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def new_image(path: Path) -> Path:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    with path.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    return path


@dataclass(frozen=True)
class Moment:
    """What was on the disk after one publish, and what a process saw then."""

    number: int
    image: Path
    ordered: dict[str, dict[str, int]]  # of every order that stood: which results it rests on
    over: bool = False  # the command has ended


def moments(place: Place, words: tuple[str, ...], image: Path, folder: Path) -> Iterator[Moment]:
    """Run a command and copy the image after every publish, and once more when it has ended."""
    env = {**place.env, "PYTHONPATH": f"{STOPPING}:{place.env['PYTHONPATH']}"}
    argv = [sys.executable, "-m", "agentfs", *words]
    out = subprocess.DEVNULL
    process = subprocess.Popen(argv, cwd=place.root, env=env, stdout=out, stderr=out, start_new_session=True)
    over = False
    for number in itertools.count():
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        over = not os.WIFSTOPPED(status)
        copy = folder / f"{number}.img"
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        yield Moment(number, copy, ordered(place), over)
        copy.unlink()
        if over:
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode in (0, 3)
            return
        os.kill(process.pid, signal.SIGCONT)


def ordered(place: Place) -> dict[str, dict[str, int]]:
    found = {}
    for path in place.runs.glob("*/*/steps/*.[0-9].json"):
        order = json.loads(path.read_bytes())
        found[order["step"]] = order["after"]
    return found


# ── what must be on the disk ──────────────────────────────────────────────────────────────────────────────


def nothing_is_torn(folder: Path) -> None:
    """Assert that what is published for good is whole; orders, and logs of repeatable steps, need not be."""
    kept = ("run.json", "plan.json", "outcome.json", "planning/*.json", "revisions/*.json", "steps/*.result.json")
    for path in (path for pattern in kept for path in folder.glob(pattern)):
        assert path.read_bytes().endswith(b"}\n"), f"{path.relative_to(folder)} is empty or torn"
        json.loads(path.read_bytes())
    for path in folder.glob("*/*.question.md"):
        assert path.read_bytes(), f"{path.relative_to(folder)} is empty"


def nothing_is_absent(folder: Path, moment: Moment) -> None:
    """Assert that what others have acted upon is there: of each step that was begun, all that came before it."""
    done = results(folder)
    for step, after in moment.ordered.items():
        missing = {name: number for name, number in after.items() if number not in done.get(name, {})}
        assert missing == {}, f"{step} was ordered, but not on the disk is the result of {missing}"
        assert (folder / "revisions" / "1.json").exists()
        assert (folder / "plan.json").exists()
    for step in effects(folder):
        if step in ("send", "release"):
            claim = folder / "steps" / f"{step}.1.log.jsonl"
            assert claim.exists(), f"{step} had its effect, but its claim is not on the disk"
            assert json.loads(claim.read_bytes().splitlines()[0])["event"] == "claim"
    for path in folder.glob("revisions/[0-9].json"):
        record = json.loads(path.read_bytes())
        assert path.with_name(f"{record['revision']}.plan.json").exists()
        assert record["call"] is None or (folder / "planning" / f"{record['call']}.result.json").exists()


def ledger_holds(place: Place) -> None:
    if (place.runs / ".git" / "refs" / "heads" / "main").exists():
        place.git("fsck", "--strict")
        place.log()


def survives(moment: Moment, expected: Expected, folder: Path, forks: Forks | None) -> None:
    """Look at an image as the next start finds it, and with `forks` let it go on from there."""
    with loop_mounted(moment.image, folder / f"mounted-{moment.number}") as mounted:
        place = there(mounted)
        ledger_holds(place)
        run = stories.run_of(place)
        assert run or not moment.ordered
        if run is not None:
            nothing_is_torn(run)
            nothing_is_absent(run, moment)
        if forks is not None:
            live_on(place, forks)
            ended = Expected.of(place)
            assert ended == expected
            place.git("fsck", "--strict")
            changed = place.git("status", "--porcelain").splitlines()
            assert [line for line in changed if not ORDER.fullmatch(line)] == []  # an order may be empty: git has it


def there(mounted: Path) -> Place:
    """Return the place that is in an image: it is trusted, though it is another folder, and the process that wrote it is gone."""
    place = Place(mounted)
    trust(place.root, place.env)
    for claim in (place.runs / ".git" / "agentfs").glob("*.*.*"):
        claim.rename(claim.with_name(f"{GONE}.{claim.name.partition('.')[2]}"))  # it is only stopped, in truth
    return place


def begin(mounted: Path) -> Place:
    """Make the workspace of the story; its steps see to it themselves that their effects are on the disk.

    It ends with notes, which the driver carries out itself.
    """
    place = stories.five_steps(Place(mounted))
    place.runbook(stories.STEPS.replace(">> effects;", ">> effects; sync effects .;") + NOTES)
    os.sync()
    return place


def undisturbed(place: Place, root: Path) -> Expected:
    copy = copy_of(place, root)
    live_on(copy)
    return Expected.of(copy)


def test_the_power_goes_after_any_publish() -> None:
    wrong, looked, chance = [], 0, random.Random(SEED)
    with ExitStack() as stack:
        folder = stack.enter_context(in_memory())
        disk = stack.enter_context(loop_mounted(new_image(folder / "disk.img"), folder / "disk"))
        place = begin(disk)
        expected = undisturbed(place, folder / "undisturbed")
        while not (run := stories.run_of(place)) or not (run / "outcome.json").exists():
            for moment in moments(place, words_to_go_on(place), folder / "disk.img", folder):
                if not moment.over and chance.random() > FEW:
                    continue
                looked += 1
                try:
                    survives(moment, expected, folder, None if looked % EVERY else Forks())
                except (AssertionError, subprocess.CalledProcessError) as error:
                    wrong.append(f"image {moment.number}: {error}")
            stories.answer(place.run_folder())
    tell(f"the power goes: {looked} images, {len(wrong)} wrong", wrong)
    assert wrong == []

"""A disk that is full, broken, over quota or read-only, at any call: it is reported, nothing is torn, and the run goes on later.

`./test --full` tries every point; by default a few, chosen by a seed.
"""

import errno
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.crash.forking import Forks
from tests.crash.playing import Act, Story
from tests.crash.stories import assert_ended_well, assert_whole, live_on, results, run_of
from tests.crash.sweeping import Ended, Point, copy_of, needs_strace, strace, sweep
from tests.daemons import Watching, book
from tests.mounts import mounted
from tests.shell.test_full_disk import fill
from tests.sweeps import some
from tests.workspaces import Place, wait_for

pytestmark = needs_strace
CALLS = ("write", "fsync", "link", "linkat", "rename", "renameat2", "openat")
WRITING = Path(__file__).parent / "writing"
PYTHONPATH = str(Path(__file__).parent.parent.parent)
WRITES = 20  # of agentfs itself in each act, and not many more
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS")


@dataclass(frozen=True)
class Fault:
    """An error at one point; `lasting`: and at every call of that kind from then on."""

    act: Act
    point: Point
    error: str
    lasting: bool

    @property
    def words(self) -> str:
        return os.strerror(getattr(errno, self.error))

    def strike(self, place: Place) -> Ended:
        options = self.point.options(place, f"error={self.error}", lasting=self.lasting)
        return strace(place, *self.act.words, calls=[self.point.call], options=options)

    def __str__(self) -> str:
        return f"{self.error}{' for good' if self.lasting else ''} at {self.point}"


def faults(story: Story) -> Iterator[Fault]:
    """Yield a fault for every point, each error in its turn, every third one lasting."""
    errors, lasting = itertools.cycle(ERRORS), itertools.cycle((False, False, True))
    for act, point in story.cuts():
        if point.call in CALLS:
            may_report = point.call != "write"  # else it could not be reported
            yield Fault(act, point, next(errors), lasting=next(lasting) and may_report)


def struck(story: Story, fault: Fault, own: Path, forks: Forks) -> str:
    place = copy_of(fault.act.begins, own / "place")
    ended = fault.strike(place)
    if "(INJECTED)" not in ended.trace:
        return "not reached"
    is_reported = fault.words in ended.err or any(fault.words in error for error in errors_in_results(place))
    struck_calls = hit(ended)
    is_harmless = ended.code == fault.act.code and all("O_RDONLY" in call for call in struck_calls)  # it looks again
    is_unsayable = any("write(2<" in call for call in struck_calls)  # threads count their calls apart
    assert is_reported or is_harmless or is_unsayable, (
        f"it was not reported: exit {ended.code}\n{ended.err}\n{struck_calls}"
    )
    seen = assert_whole(place, story.expected)
    live_on(place, forks)
    assert_ended_well(place, story.expected, seen)
    return f"{'reported' if is_reported else 'not reported'}, exit {ended.code}"


def hit(ended: Ended) -> list[str]:
    """Return the calls that failed; one that another thread interrupted takes two lines."""
    begun: dict[str, str] = {}
    found = []
    for line in ended.trace.splitlines():
        thread = line.partition(" ")[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line
        elif "(INJECTED)" in line:
            found.append(begun[thread] + line if " resumed>" in line else line)
    return found


def errors_in_results(place: Place) -> Iterator[str]:
    """Yield what the results of a run say went wrong: a step's own program may have met the fault."""
    folder = run_of(place)
    for tries in results(folder).values() if folder else ():
        yield from (str(result["error"]) for result in tries.values())


def test_a_call_that_fails_is_reported_and_the_run_goes_on_later(five: Story) -> None:
    cases = some(
        list(faults(five)), 2, about="faults", also=lambda fault: fault.point.path.endswith("send.1.result.json")
    )
    sweep("a call fails", cases, partial(struck, five), five.folder)


# ── writes that take less than they were given ────────────────────────────────────────────────────────────


def writing(place: Place, **how: int) -> Place:
    place.env["PYTHONPATH"] = f"{WRITING}:{PYTHONPATH}"
    place.env |= {name: str(value) for name, value in how.items()}
    return place


def as_before(place: Place) -> Place:
    place.env["PYTHONPATH"] = PYTHONPATH
    return place


def logs_read(place: Place) -> None:
    """Assert that every line of every log is whole."""
    for path in place.runs.glob("*/*/*/*.log.jsonl"):
        for line in path.read_bytes().splitlines():
            json.loads(line)


@pytest.mark.parametrize("most", [1, 100])
def test_short_writes_are_gone_on_with(five: Story, tmp_path: Path, most: int) -> None:
    place = writing(copy_of(five.acts[0].begins, tmp_path / "place"), SHORT_WRITES=most)
    live_on(place)
    assert_ended_well(place, five.expected)
    logs_read(place)


def test_a_disk_that_is_full_in_the_middle_of_a_write(five: Story) -> None:
    def one(case: tuple[Act, int], own: Path, forks: Forks) -> str:
        act, number = case
        place = writing(copy_of(act.begins, own / "place"), FULL_AT=number)
        ended = place.agentfs(*act.words, code=None)
        if ended.returncode == 2 or os.strerror(errno.ENOSPC) in ended.stderr:
            assert os.strerror(errno.ENOSPC) in ended.stderr
        else:
            return "not reached"
        seen = assert_whole(place, five.expected)
        live_on(as_before(place), forks)
        assert_ended_well(place, five.expected, seen)
        return f"reported, exit {ended.returncode}"

    cases = some([(act, number) for act in five.acts for number in range(1, WRITES + 1)], 2, about="full")
    sweep("full in the middle of a write", cases, one, five.folder)


# ── a disk that is full for a while ───────────────────────────────────────────────────────────────────────


def test_watch_pauses_while_the_disk_is_full_and_goes_on_when_there_is_room(place: Place) -> None:
    go = place.root.parent / "go"
    with mounted("tmpfs", "size=4m", place.root):
        place.agentfs("init")
        (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "off"\n')
        with Watching(place) as daemon:
            daemon.drop("job.md", book(f"while ! test -e {go}; do sleep 0.02; done", "echo b", lines="repeatable"))
            wait_for((daemon.folder("job") / "steps" / "a.1.log.jsonl").exists, "the first step")
            first = ["agentfs job: revision 1, the first plan"]
            wait_for(lambda: place.log() == first, "its commit: what git gives up again would be room")
            filler = fill(place)
            go.touch()
            daemon.wait_for_output("/job: set aside: No space left on device; it goes on when there is room")
            filler.unlink()
            assert daemon.outcome("job")["status"] == "done"
            daemon.wait_for_output("/job: goes on")
        place.ledger_is_sound()

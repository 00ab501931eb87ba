"""Goals in schedules/ from outside: `watch` runs them, `schedule` says when, `forget` keeps what would run again."""

import json
import os
import re
import shutil
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.daemons import Watching
from tests.workspaces import Place, wait_for

DAILY = 'schedule: "0 0 * * *"\ntimezone: UTC\ncatch_up: 36h'


def book(front: str, command: str = "echo ok") -> str:
    return f"---\n{front}\n---\n# Back up\n\n## Steps\n\n### copy\n```sh\n{command}\n```\n"


@pytest.fixture
def schedules(place: Place) -> Path:
    place.agentfs("init")
    place.env["TZ"] = "UTC"
    (place.root / "schedules").mkdir()
    return place.root / "schedules"


def put(folder: Path, name: str, text: str) -> None:
    """Write a schedule as it has been there for long."""
    (folder / name).write_text(text, encoding="utf-8")
    os.utime(folder / name, (1_700_000_000, 1_700_000_000))


def dues(place: Place, name: str = "backup*") -> list[str]:
    found = place.runs.glob(f"????-??-??/{name}/run.json")
    return sorted(str(json.loads(path.read_text())["due"]) for path in found)


def ended(place: Place, count: int) -> bool:
    return len(list(place.runs.glob("????-??-??/*/outcome.json"))) == count


def today() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def test_a_time_has_one_run_also_after_a_kill(place: Place, schedules: Path) -> None:
    put(schedules, "backup.md", book(DAILY))
    with Watching(place) as daemon:
        daemon.wait_for_output(f"began schedules/backup.md, due {today():%Y-%m-%d} 00:00")
        second = place.agentfs("watch", code=2)
        assert "is being watched already" in second.stderr
        wait_for(lambda: ended(place, 1), "the run to end")
        with Watching(place, "--wait", log="second.log", until="waiting: ") as second_daemon:
            daemon.end(signal.SIGKILL)
            second_daemon.wait_for_output("drop goals into")
            second_daemon.drop("other.md", book("name: other"))
            wait_for(lambda: ended(place, 2), "another run to end")
    assert dues(place) == [f"{today():%Y-%m-%d}T00:00:00.000000Z"]
    shown = place.agentfs("schedule")
    rows = [re.split("  +", line) for line in shown.stdout.splitlines()]
    day, tomorrow = f"{today():%Y-%m-%d} 00:00", f"{today() + timedelta(days=1):%Y-%m-%d} 00:00"
    assert rows == [["SCHEDULE", "TIMES", "LAST", "NEXT", "WHY"], ["backup", "0 0 * * * UTC", day, tomorrow]]
    assert shown.stderr == "nothing starts them now; start: agentfs watch\n"
    (page,) = json.loads(place.agentfs("schedule", "--json").stdout)
    assert (page["newest"]["what"], page["overlap"], page["catch_up"], page["problems"]) == ("ran", None, "36h", [])
    kept = place.agentfs("forget", "backup", code=2)
    assert "is kept: schedules/backup.md would run again for" in kept.stderr
    assert len(dues(place)) == 1
    (schedules / "backup.md").unlink()
    place.agentfs("forget", "backup")
    assert dues(place) == []
    place.ledger_is_sound()


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
def test_a_clock_that_is_set_while_it_watches(place: Place, schedules: Path) -> None:
    preload = subprocess.check_output(["faketime", "-f", "+0d", "printenv", "LD_PRELOAD"], text=True).strip()
    patched, hands = place.root.parent / "patched", place.root.parent / "clock"
    patched.mkdir()  # where the monotonic clock is left alone, faketime breaks the way Python sleeps
    (patched / "sitecustomize.py").write_text(
        "import select, time\ntime.sleep = lambda s: select.select([], [], [], s)\n"
    )
    hands.write_text("+0d")
    fake = (
        f"LD_PRELOAD={preload}",
        f"PYTHONPATH={patched}:{place.env['PYTHONPATH']}",
        f"FAKETIME_TIMESTAMP_FILE={hands}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
    )
    put(schedules, "backup.md", book(DAILY))
    with Watching(place, under=("env", *fake)) as daemon:
        wait_for(lambda: ended(place, 1), "today's run to end")
        hands.write_text("+1d")
        wait_for(lambda: ended(place, 2), "tomorrow's run to end")
        hands.write_text("+0d")
        daemon.drop("other.md", book("name: other"))
        wait_for(lambda: ended(place, 3), "another run to end")
    assert dues(place) == [f"{today() + timedelta(days=n):%Y-%m-%d}T00:00:00.000000Z" for n in (0, 1)]


def test_files_that_are_no_schedule(place: Place, schedules: Path) -> None:
    put(schedules, "a.md", book('schedule: "0 0 30 2 *"\ntimezone: Europe/Berln'))
    put(schedules, "b.md", book("name: b"))
    put(schedules, "c.md", book(DAILY, "echo {{params.x}}"))
    put(schedules, "d.md", book(DAILY))
    code, out, _ = place.looks("check", *(f"schedules/{name}.md" for name in "abcd"))
    assert (code, [line.partition(": ")[0] for line in out.splitlines()]) == (
        2,
        ["schedules/a.md:2:11", "schedules/a.md:3:11", "schedules/b.md:1:1", "schedules/c.md:12:6"],
    )
    code, out, _ = place.looks("schedule")
    assert (code, out.count("schedules/a.md:2:11: schedule: '0 0 30 2 *' never comes true")) == (2, 1)
    assert "schedules/c.md:12:6: {{params.x}}: there is no parameter 'x'" in out, "before it is due"


def test_the_fields_of_a_schedule_mean_nothing_elsewhere(place: Place) -> None:
    place.agentfs("init")
    place.goal(book('schedule: "0 * * * *"\ncatch_up: 1h'))
    refused = place.agentfs("run", "job.md", code=2)
    assert [line.partition(" (")[0] for line in refused.stderr.splitlines()] == [
        "job.md:2:1: 'schedule' means something only in schedules/",
        "job.md:3:1: 'catch_up' means something only in schedules/",
    ]


def test_a_person_may_run_one_now(place: Place, schedules: Path) -> None:
    put(schedules, "backup.md", book(f"{DAILY}\napprove: never"))
    (place.root / "agentfs.toml").write_text('approve = "plan"\n')
    assert place.agentfs("run", "schedules/backup.md").stdout == "ok\n"
    record = place.read("run.json", "backup")
    assert (record["schedule"], record["due"], record["approve"]) == (None, None, "never")


def test_everything_wrong_with_a_file_is_reported_with_its_place(place: Place, schedules: Path) -> None:
    put(schedules, "maybe.md", book('schedule: "0 3 * * *"\noverlap: maybe'))
    refused = place.agentfs("check", "schedules/maybe.md", code=2).stdout
    assert refused == (
        "schedules/maybe.md:3:10: 'overlap' must be skip or queue, not \"maybe\" (write skip or queue) [/overlap]\n"
    )
    put(schedules, "both.md", book("schedule: every day\ntools: [shell, shel]"))
    refused = place.agentfs("check", "schedules/both.md", code=2).stdout
    assert "both.md:2:11: schedule: 'every day' is not an interval" in refused
    assert "both.md:3:16: tools: 'shel' is not in [tools] allow" in refused
    (place.root / "runbooks").mkdir()
    place.goal(book("name: x"), "runbooks/backup.md")
    place.goal("uses: runbooks/backup.md\nschedule: every 1h\n", "now.yaml")
    refused = place.agentfs("run", "now.yaml", code=2).stderr
    assert "now.yaml:2:1: 'schedule' means something only in schedules/" in refused
    place.goal(book("schedule: every 1h"), "runbooks/backup.md")
    put(schedules, "used.yaml", "uses: runbooks/backup.md\nschedule: every 1h\n")
    refused = place.agentfs("check", "schedules/used.yaml", code=2).stdout
    assert "runbooks/backup.md:2:1: 'schedule' means something only in schedules/" in refused


def test_no_schedule_and_how_to_make_one(place: Place) -> None:
    place.agentfs("init")
    words = 'no schedules: put a goal with `schedule: "0 3 * * *"` into schedules/\n'
    assert place.looks("schedule") == (0, "", words)

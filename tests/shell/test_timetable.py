"""Schedules in a folder: which runs begin at which time. The clock is the test's; runs are made, and not driven."""

import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentfs.commands.common import init_workspace
from agentfs.core.config import Settings
from agentfs.daemon.inbox import Inbox
from agentfs.daemon.reporter import Reporter
from agentfs.daemon.schedules import Timetable, why_needed
from agentfs.engine.means import catalogue_of
from agentfs.storage.workspace import Workspace
from tests.workspaces import wait_for

HOURLY = 'schedule: "0 * * * *"\ntimezone: UTC'


def book(front: str, command: str = "echo ok") -> str:
    return f"---\n{front}\n---\n# Back up\n\n## Steps\n\n### copy\n```sh\n{command}\n```\n"


class Stage:
    """A workspace with schedules, a clock with hands, and daemons that look once."""

    def __init__(self, root: Path) -> None:
        self.workspace: Workspace = init_workspace(root, dict(os.environ))[0]
        self.schedules = root / "schedules"
        self.schedules.mkdir()
        self.settings, self.output = Settings(), io.StringIO()
        self.now = datetime(2026, 11, 18, 12, 0, 30, tzinfo=UTC)
        self.start()

    def start(self) -> None:
        """Begin with a daemon that remembers nothing."""
        inbox = Inbox(self.workspace, self.settings, catalogue_of(self.settings, {}), planner=False)
        self.timetable = Timetable(inbox, Reporter(self.output), wall=lambda: self.now)

    def put(self, name: str, text: str, changed: str = "2026-11-01") -> Path:
        """Write a schedule as it has been there since then."""
        path = self.schedules / name
        path.write_text(text, encoding="utf-8")
        moment = datetime.fromisoformat(changed).replace(tzinfo=UTC).timestamp()
        os.utime(path, (moment, moment))
        return path

    def look(self, now: str | None = None) -> list[str]:
        """Look at a time of that day; return the runs that begin."""
        if now:
            self.now = datetime.fromisoformat(f"2026-11-18T{now}+00:00")
        still = self.timetable._completeness
        files = [path for path in self.schedules.iterdir() if not path.is_symlink()]
        wait_for(lambda: all(still.is_complete(path) for path in files), "the files to hold still", 10)
        begun = self.timetable.take(self.timetable.due)
        for entry in self.timetable._entries.values():
            entry.again_at = 0.0
        for _, hold in begun:
            hold.close()
        return [f"{folder.parent.name}/{folder.name}" for folder, _ in begun]

    def end(self, run: str, at: str) -> None:
        ended = {"ended_at": f"2026-11-18T{at}.000000Z"}
        (self.workspace.runs / run / "outcome.json").write_text(json.dumps(ended))

    def due(self, run: str) -> str:
        return str(json.loads((self.workspace.runs / run / "run.json").read_text())["due"])

    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_time_has_one_run_however_many_daemons_look(stage: Stage) -> None:
    stage.put("backup.md", book(HOURLY))
    assert stage.look("11:59:59") == []  # 11:00 is an hour old
    assert stage.look("12:00:00") == ["2026-11-18/backup"]
    assert stage.due("2026-11-18/backup") == "2026-11-18T12:00:00.000000Z"
    assert stage.look("12:00:01") == []
    stage.start()
    assert stage.look("12:00:02") == []
    stage.end("2026-11-18/backup", "12:00:10")
    stage.start()
    assert stage.look("12:00:20") == []
    assert stage.look("13:00:00") == ["2026-11-18/backup-2"]
    assert stage.lines() == [
        "2026-11-18/backup: began schedules/backup.md, due 2026-11-18 12:00",
        "2026-11-18/backup-2: began schedules/backup.md, due 2026-11-18 13:00",
    ]


def test_one_run_makes_up_for_what_was_missed_within_catch_up(stage: Stage) -> None:
    stage.put("late.md", book('schedule: "0 3 * * *"\ntimezone: UTC\ncatch_up: 6h'))
    stage.put("hourly.md", book(f"{HOURLY}\ncatch_up: 6h"))
    stage.put("never.md", book('schedule: "0 3 * * *"\ntimezone: UTC'))
    assert stage.look("08:50:00") == ["2026-11-18/hourly", "2026-11-18/late"]
    assert (stage.due("2026-11-18/hourly"), stage.due("2026-11-18/late")) == (
        "2026-11-18T08:00:00.000000Z",
        "2026-11-18T03:00:00.000000Z",
    )
    stage.start()
    assert stage.look("08:51:00") == []


def test_a_time_that_comes_while_one_is_under_way_is_skipped_and_reported_once(stage: Stage) -> None:
    stage.put("slow.md", book(f"{HOURLY}\ncatch_up: 1h"))
    assert stage.look("12:00:00") == ["2026-11-18/slow"]
    assert stage.look("13:00:00") == []
    assert stage.look("13:00:01") == []
    stage.end("2026-11-18/slow", "13:30:00")
    stage.start()
    assert stage.look("13:31:00") == []  # that time lies in the run, whatever catch_up says
    assert stage.look("14:00:00") == ["2026-11-18/slow-2"]
    skipped = "schedules/slow.md: 2026-11-18 13:00 is skipped: 2026-11-18/slow was under way"
    assert stage.lines().count(skipped) == 2  # by each of the two daemons


def test_with_queue_it_begins_when_the_other_has_ended(stage: Stage) -> None:
    stage.put("slow.md", book(f"{HOURLY}\noverlap: queue"))
    assert stage.look("12:00:00") == ["2026-11-18/slow"]
    assert stage.look("13:00:00") == []
    assert stage.look("14:20:00") == []
    stage.end("2026-11-18/slow", "14:30:00")
    assert stage.look("14:30:01") == ["2026-11-18/slow-2"]
    assert stage.due("2026-11-18/slow-2") == "2026-11-18T14:00:00.000000Z"  # the newest stands for both
    assert stage.look("14:30:02") == []


def test_a_file_that_is_edited_renamed_or_deleted_while_it_is_due(stage: Stage) -> None:
    edited = stage.put("edited.md", book(f"{HOURLY}\ncatch_up: 1h"), changed="2026-11-18 12:00:10")
    stage.put("done.md", book(f"{HOURLY}\ncatch_up: 1h"))
    stage.put("gone.md", book(f"{HOURLY}\ncatch_up: 1h")).unlink()
    assert stage.look("12:00:30") == ["2026-11-18/done"]
    stage.end("2026-11-18/done", "12:00:31")
    (stage.schedules / "done.md").rename(stage.schedules / "renamed.md")
    assert stage.look("12:00:40") == []  # the same goal had its run for that time
    stage.put("edited.md", book(f"{HOURLY}\ncatch_up: 1h", "echo other"), changed="2026-11-18 12:30:00")
    assert stage.look("12:30:01") == []
    assert stage.look("13:00:00") == ["2026-11-18/edited", "2026-11-18/renamed"]
    assert edited.exists()


def test_a_clock_that_is_set_back_begins_nothing_twice(stage: Stage) -> None:
    stage.put("backup.md", book(f"{HOURLY}\ncatch_up: 30m"))
    assert stage.look("14:00:05") == ["2026-11-18/backup"]
    stage.end("2026-11-18/backup", "14:00:06")
    assert stage.look("13:59:00") == []  # 13:00 is too old by now
    assert stage.look("14:00:07") == []
    assert stage.look("13:10:00") == ["2026-11-18/backup-2"]  # it had no run
    stage.end("2026-11-18/backup-2", "13:10:01")
    assert stage.look("14:00:30") == []


def test_local_time_and_daylight_saving(stage: Stage) -> None:
    stage.put("night.md", book('schedule: "30 2 * * *"\ntimezone: Europe/Berlin'), changed="2026-01-01")
    days = {"2026-03-29T01:00:00": True, "2026-03-29T01:30:00": False, "2026-10-25T00:30:00": True}
    for moment, begins in {**days, "2026-10-25T01:30:00": False}.items():
        stage.now = datetime.fromisoformat(f"{moment}+00:00")
        found = stage.look()
        assert bool(found) == begins, moment
        for run in found:
            (stage.workspace.runs / run / "outcome.json").write_text(json.dumps({"ended_at": f"{moment}.000000Z"}))


def test_a_schedule_may_use_a_runbook_with_values(stage: Stage) -> None:
    (stage.workspace.root / "runbooks").mkdir()
    (stage.workspace.root / "runbooks" / "copy.md").write_text(book("params: {what: string}", "echo {{params.what}}"))
    stage.put("photos.yaml", f"uses: runbooks/copy.md\nparams: {{what: photos}}\n{HOURLY}\n")
    assert stage.look("12:00:00") == ["2026-11-18/photos"]
    record = json.loads((stage.workspace.runs / "2026-11-18/photos/run.json").read_text())
    assert (record["params"], record["schedule"]) == ({"what": "photos"}, "photos")
    assert stage.look("12:00:01") == []


def test_a_schedule_is_a_persons_own_and_may_ask_for_no_approval(stage: Stage) -> None:
    stage.settings = Settings(approve="always")
    stage.start()
    stage.put("backup.md", book(f"{HOURLY}\napprove: never"))
    assert stage.look("12:00:00") == ["2026-11-18/backup"]
    assert json.loads((stage.workspace.runs / "2026-11-18/backup/run.json").read_text())["approve"] == "never"


def test_files_that_are_not_schedules_are_reported_once_and_stay(stage: Stage) -> None:
    stage.put("a.md", book('schedule: "0 0 30 2 *"\ntimezone: Europe/Berln'))
    stage.put("b.md", book("name: b"))
    stage.put("c.md", book(HOURLY, "echo {{params.x}}"))
    stage.put("d.md", book('schedule: "0 3 * * *"', "echo {{params.x}}"))  # not due, and reported all the same
    (stage.schedules / "link.md").symlink_to("/etc/passwd")
    (stage.schedules / "notes.toml").write_text("x")
    assert stage.look("12:00:00") == []
    assert stage.look("12:00:01") == []
    cron = "schedule: '0 0 30 2 *' never comes true"
    fields = 'write five cron fields ("0 3 * * *": minute, hour, day, month, weekday) or every 6h'
    zone = "timezone: 'Europe/Berln' is not a known time zone (write it like Europe/Berlin or UTC) [/timezone]"
    assert [line for line in stage.lines() if "link" not in line] == [
        f"schedules/a.md cannot run: schedules/a.md:2:11: {cron} ({fields}) [/schedule]; schedules/a.md:3:11: {zone}",
        f"schedules/b.md cannot run: schedules/b.md:1:1: a goal in schedules/ needs a schedule ({fields})",
        (
            "schedules/c.md cannot run: schedules/c.md:11:6: {{params.x}}: there is no parameter 'x'"
            " (declare it under params) [/steps/0/input/command]"
        ),
        (
            "schedules/d.md cannot run: schedules/d.md:10:6: {{params.x}}: there is no parameter 'x'"
            " (declare it under params) [/steps/0/input/command]"
        ),
    ]
    assert sum("link.md cannot be read" in line for line in stage.lines()) == 1
    (stage.schedules / "c.md").write_text(book(HOURLY))
    os.utime(stage.schedules / "c.md", (0, 0))
    assert stage.look("12:00:02") == ["2026-11-18/c"]  # it was corrected while it was due


def test_a_run_is_needed_while_its_time_would_be_made_up_for(stage: Stage) -> None:
    stage.put("backup.md", book(f"{HOURLY}\ncatch_up: 6h"))
    (run,) = stage.look("12:00:00")
    folder = stage.workspace.runs / run
    assert why_needed(folder, datetime(2026, 11, 18, 18, 0, tzinfo=UTC)) == (
        "schedules/backup.md would run again for 2026-11-18T12:00:00.000000Z, which is within its catch_up"
    )
    assert why_needed(folder, datetime(2026, 11, 18, 18, 0, 1, tzinfo=UTC)) is None
    (stage.schedules / "backup.md").unlink()
    assert why_needed(folder, datetime(2026, 11, 18, 12, 0, 1, tzinfo=UTC)) is None

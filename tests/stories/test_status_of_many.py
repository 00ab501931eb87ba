"""`agentfs status` over many runs: what a person has to do first, then what is under way, then the newest that ended."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from agentfs.commands import parser
from agentfs.commands.status import runs_table
from agentfs.core.attention import Phase
from agentfs.ui import reading
from tests.daemons import Watching
from tests.workspaces import Place, end, wait_for

SAY = "### say\n```note\nhello\n```\n"
GATE = "### say\ngate\n```note\nhello\n```\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace with one run that is done, `job`, and one that waits, `ask`."""
    made = Place(tmp_path)
    made.agentfs("run", made.runbook(SAY))
    made.agentfs("run", made.runbook(GATE, name="ask.md"), code=3)
    return made


def copy_of(place: Place, name: str, new: str, **outcome: Any) -> Path:
    """Make a run of the files of another; what is given of its outcome differs."""
    folder = place.run_folder(name)
    copy = folder.parent / new
    shutil.copytree(folder, copy)
    ended(copy, **outcome)
    return copy


def ended(folder: Path, **outcome: Any) -> None:
    path = folder / "outcome.json"
    if outcome:
        path.write_text(json.dumps({**json.loads(path.read_text()), **outcome}))
        moment = datetime.fromisoformat(outcome["ended_at"]).timestamp() if "ended_at" in outcome else None
        os.utime(path, (moment, moment) if moment is not None else None)


def ago(**passed: float) -> str:
    return (datetime.now(UTC) - timedelta(**passed)).isoformat()


def listed(place: Place, *words: str) -> list[str]:
    """Return the names of the runs a table lists, in its order; the same as JSON has them, but for the older ones."""
    lines = place.agentfs("status", *words).stdout.splitlines()
    return [line.split()[0].partition("/")[2] for line in lines[1:] if line[:1].isdigit()]


def as_json(place: Place, *words: str) -> list[str]:
    return [one["run"].partition("/")[2] for one in json.loads(place.agentfs("status", "--json", *words).stdout)]


def test_what_a_person_has_to_do_comes_first(place: Place) -> None:
    ended(place.run_folder("job"), ended_at=ago(hours=3))
    for name, status in (("a-draft", "draft"), ("a-paused", "paused"), ("a-running", "approved")):
        copy = copy_of(place, "job", name)
        (copy / "outcome.json").unlink()
        for path in (copy / "steps").iterdir():
            path.unlink()
        plan = copy / "plan.json"
        for path in (plan, copy / "revisions" / "1.plan.json"):
            path.write_text(plan.read_text().replace('"approved"', f'"{status}"'))
    copy_of(place, "job", "newer", ended_at=ago(minutes=5))
    order = ["a-running", "a-paused", "newer", "job"]
    assert set(listed(place)[:2]) == {"ask", "a-draft"}
    assert listed(place)[2:] == as_json(place)[2:] == order
    states = [one["state"] for one in json.loads(place.agentfs("status", "--json").stdout)]
    assert states[2:] == ["running", "paused", "done", "done"]
    assert set(states[:2]) == {"waiting", "draft"}


def test_of_the_ended_ones_the_newest_and_how_to_see_the_others(place: Place) -> None:
    ended(place.run_folder("job"), ended_at=ago(days=60))
    names = [f"n{number:02}" for number in range(25)]
    for number, name in enumerate(names):
        copy_of(place, "job", name, ended_at=ago(hours=number + 1))
    lines = place.agentfs("status").stdout.splitlines()
    assert lines[-1] == "… and 6 older runs that ended (agentfs status --all)"
    assert listed(place) == ["ask", *names[:20]]
    assert listed(place, "--all") == as_json(place) == ["ask", *names, "job"]
    assert listed(place, "--since", "4h") == as_json(place, "--since", "4h") == ["ask", *names[:3]]
    assert listed(place, "--since", "25h") == ["ask", *names[:24]]
    assert listed(place, "--state", "done") == names[:20]


def test_since_goes_by_what_the_outcome_says(place: Place) -> None:
    job = place.run_folder("job")
    ended(job, ended_at=ago(days=3))
    os.utime(job / "outcome.json")  # copied here just now
    assert listed(place, "--since", "2d") == ["ask"]
    day = (datetime.now() - timedelta(days=5)).strftime("%Y-%m-%d")  # noqa: DTZ005 - a day as a person types it
    assert listed(place, "--since", day) == ["ask", "job"]
    assert listed(place, "--since", "1w") == ["ask", "job"]


def test_a_run_that_nothing_drives_is_not_called_running_and_the_list_says_what_to_type(place: Place) -> None:
    steps = "### slow\nrepeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.05; done\n```\n"
    driver = place.begin("run", place.runbook(steps, name="slow.md"))
    wait_for(lambda: any(place.runs.glob("*/slow/files/begun")), "the step to begin")
    folder = place.run_folder("slow")
    day = folder.parent.name
    assert [line.split()[1] for line in place.agentfs("status").stdout.splitlines()[1:] if "/slow" in line] == [
        "running"
    ]
    end(driver, signal.SIGTERM)
    assert place.agentfs("status").stdout.splitlines()[1:5] == [
        f"{day}/ask   waiting     0/1    just now  say: needs approval",
        f"  agentfs approve {day}/ask",
        f"{day}/slow  not driven  0/1    just now  slow is next",
        f"  agentfs resume {day}/slow",
    ]
    one = next(one for one in json.loads(place.agentfs("status", "--json").stdout) if one["run"] == f"{day}/slow")
    assert (one["state"], one["driven"], one["ways"]) == ("running", False, [f"agentfs resume {day}/slow"])
    assert place.agentfs("status", "slow").stdout.startswith(f"{day}/slow: not driven, 0 of 1 steps done\n")
    assert place.agentfs("show", "slow").stdout.startswith(f"{day}/slow: not driven, slow is next\n")
    page = (folder / "STATUS.md").read_text()
    assert "**not driven**: slow is next\n" in page
    assert f"Nothing drives it; go on with: `agentfs resume {day}/slow`\n" in page


def test_a_daemon_that_stops_leaves_no_page_that_says_running(place: Place) -> None:
    steps = "### slow\nrepeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.05; done\n```\n"
    with Watching(place) as daemon:
        (daemon.goals / "slow.md").write_text(f"# Job\n\n## Steps\n\n{steps}")
        wait_for(lambda: any(place.runs.glob("*/slow/files/begun")), "the step to begin")
    assert "**not driven**" in (place.run_folder("slow") / "STATUS.md").read_text()


def test_what_to_type_is_never_cut(place: Place) -> None:
    folder = copy_of(place, "ask", "a-run-whose-name-is-as-long-as-names-may-be-to-48")
    run = f"{folder.parent.name}/{folder.name}"
    runs = [one for one in json.loads(place.agentfs("status", "--json").stdout) if one["run"] == run]
    runs[0]["ways"] = [f"agentfs reply {run} a-step again, and so on", *(f"agentfs approve {n}" for n in range(4))]
    lines = runs_table(runs, datetime.now(UTC), 80, colours=False)
    assert lines[2:] == [
        "  agentfs reply \\",
        f"      {run} a-step \\",
        "      again, and so on",
        "  agentfs approve 0",
        f"  agentfs status {run}",
    ]
    assert max(map(len, lines)) <= 80


def test_by_state(place: Place) -> None:
    copy_of(place, "job", "bad", status="failed")
    copy_of(place, "job", "off", status="cancelled")
    assert listed(place, "--state", "waiting") == ["ask"]
    assert set(listed(place, "--state", "failed,cancelled")) == {"bad", "off"}
    assert set(as_json(place, "--state", "failed", "--state", "waiting")) == {"ask", "bad"}
    assert (
        place.agentfs("status", "--state", "paused").stdout
        == f"none of the 4 runs in {place.root} matches (agentfs status --all lists them)\n"
    )
    assert as_json(place, "--state", "paused") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--since", "yesterday"),
            "--since yesterday: write how long ago (90min, 3h, 2d, 4w), or a day (2026-11-01)",
        ),
        (("--since", "\x1b[31m"), "--since ␛[31m: write how long ago"),
        (
            ("--state", "failing"),
            "--state 'failing': choose from waiting, draft, running, planning, paused, done, failed",
        ),
        (("--state", ""), "--state '': choose from"),
        (("ask", "--state", "done"), "--since and --state choose among runs: leave them out, or leave out RUN"),
    ],
)
def test_mistakes_get_words(place: Place, words: tuple[str, ...], message: str) -> None:
    assert message in place.agentfs("status", *words, code=2).stderr


def test_every_state_can_be_asked_for() -> None:
    assert set(parser.STATES) == set(get_args(Phase))
    assert parser.ENDS == reading.ENDS


BREAKS: dict[str, Callable[[Path], object]] = {
    "run.json is not valid": lambda folder: (folder / "run.json").write_text("{"),
    "No such file or directory": lambda folder: (folder / "run.json").unlink(),
    "there is no goal file": lambda folder: (folder / "goal.md").unlink(),
    "steps/say.1.result.json is not valid": lambda folder: (folder / "steps" / "say.1.result.json").write_text("[]"),
    "Not a directory": lambda folder: (
        (folder / "steps").rename(folder / "old").joinpath("say.1.json").rename(folder / "steps")
    ),
    "outcome.json cannot be read": lambda folder: (folder / "outcome.json").mkdir(),
    "outcome.json is not valid": lambda folder: (folder / "outcome.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("words", BREAKS)
def test_a_broken_run_is_shown_with_what_is_wrong_and_hides_nobody(place: Place, words: str) -> None:
    broken = copy_of(place, "job", "broken")
    (broken / "outcome.json").unlink()
    BREAKS[words](broken)
    found = {one["run"].partition("/")[2]: one for one in json.loads(place.agentfs("status", "--json").stdout)}
    assert set(found) == {"broken", "job", "ask"}
    assert found["broken"]["state"] == "waiting"
    assert words in found["broken"]["why"]
    assert words[:20] in place.agentfs("status").stdout


def test_a_folder_that_is_no_run_is_passed_over(place: Place) -> None:
    day = place.run_folder("job").parent
    for name in ("being-made", ".hidden", "No Run"):
        (day / name / "steps").mkdir(parents=True)
    os.symlink(place.run_folder("job"), day / "linked")
    assert listed(place) == ["ask", "job"]


def test_the_table_fits_a_terminal_and_is_whole_elsewhere_and_obeys_nobody(place: Place) -> None:
    ended(
        place.run_folder("job"),
        summary="zwei \x1b[31mrote\x1b[0m 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\n次",
    )
    whole = place.agentfs("status", env={"COLUMNS": "20"}).stdout
    assert whole.splitlines()[-1].endswith("zwei ␛[31mrote␛[0m 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字")
    runs = json.loads(place.agentfs("status", "--json").stdout)
    for columns in (20, 30, 40, 60, 80, 100):
        lines = runs_table(runs, datetime.now(UTC), columns, colours=False)
        assert max(sum(2 if character >= "⺀" else 1 for character in line) for line in lines) <= columns
        day = place.run_folder().parent.name
        assert [line[:11] for line in lines] == ["RUN".ljust(11), f"{day}/", "  agentfs a", f"{day}/"] or columns < 40
        assert ("␛[31mrote" in "\n".join(lines)) == (columns >= 60)

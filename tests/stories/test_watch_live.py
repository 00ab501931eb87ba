"""`agentfs watch` on a terminal: a person looks at it, types what it says, presses Ctrl-C."""

import os
import re
from pathlib import Path

import pytest

from tests.daemons import book
from tests.terminals import OnTerminal
from tests.workspaces import Place

BAD = "\x1b[31mnot a runbook\x1b[0m\n\n## Steps\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.agentfs("init")
    return found


def drop(place: Place, name: str, text: str) -> None:
    beside = place.root / f".{name}"
    beside.write_text(text, encoding="utf-8")
    os.rename(beside, place.root / "goals" / name)


def watching(place: Place, *words: str, columns: int = 100, rows: int = 24, **environment: str) -> OnTerminal:
    return OnTerminal(["watch", *words], place.root, {**place.env, **environment}, columns, rows)


def row_of(screen: list[str], name: str) -> list[str]:
    """Return the cells of a run's line, without what passes: how old it is, or when it ended."""
    line = next(line for line in screen if re.match(rf"[?▸✓✗] {name} ", line))
    return [cell for cell in re.split(r" {2,}", line[2:]) if not re.fullmatch(r"\d+ (s|min)|\d\d:\d\d", cell)]


def test_a_person_looks_types_and_leaves(place: Place) -> None:
    held = place.root / "held"
    held.mkdir()
    with watching(place) as shown:
        screen = shown.wait_to_see("no open run: drop a goal into goals/ · 0 of 4 places used · since")
        assert screen[:2] == ["", f"agentfs watch  {place.root}"]
        assert not shown.terminal.shows_cursor()

        drop(place, "count.md", book("echo five words"))
        drop(place, "send.md", book("true", "echo sent", lines="gate").replace("gate", "", 1))
        drop(place, "works.md", book("while ! test -e go; do sleep 0.02; done", front="workdir: held"))
        screen = shown.wait_to_see("2 open runs, 1 waits for you · 1 of 4 places used", "five words")
        assert row_of(screen, "send") == ["send", "waiting", "1/2", "b: needs approval"]
        assert screen[screen.index("    agentfs approve send") + 1].startswith("▸ works ")
        assert row_of(screen, "works") == ["works", "running", "0/1", "a"]
        assert row_of(screen, "count") == ["count", "done", "1/1", "five words"]

        drop(place, "bad.md", BAD)
        screen = shown.wait_to_see("rejected: bad.md:3:4: there is no step under '## Steps'")
        assert re.fullmatch(
            r"\d\d:\d\d \d{4}-\d\d-\d\d/count: done, 1 of 1 steps \(claimed, not checked\)", screen[0]
        )
        assert re.match(r"\d\d:\d\d rejected: bad.md", screen[1])

        place.agentfs("approve", "send")
        shown.wait_to_see("1 open run · 1 of 4 places used", "sent")
        (held / "go").touch()
        shown.wait_to_see("no open run")
        shown.press_control_c()
        assert shown.wait() == (130, "")
    assert shown.terminal.shows_cursor()
    left = [re.sub(r"^\d\d:\d\d \d{4}-\d\d-\d\d/", "", line) for line in shown.terminal.everything]
    assert left[-3:] == [
        "send: done, 2 of 2 steps (claimed, not checked)",
        "works: done, 1 of 1 steps (claimed, not checked)",
        "stopped; `agentfs watch` goes on from here",
    ]
    assert "agentfs watch  " not in "\n".join(left)


def test_twice_ctrl_c_says_what_was_cut_and_what_is_left(place: Place) -> None:
    drop(place, "send.md", book("echo sent", lines="gate"))
    drop(place, "works.md", book("while true; do sleep 0.02; done"))
    with watching(place) as shown:
        shown.wait_to_see("1 waits for you · 1 of 4 places used")
        shown.press_control_c()
        shown.wait_to_see("what runs finishes; Ctrl-C again ends it", "▸ works")
        shown.press_control_c()
        assert shown.wait() == (130, "")
    left = shown.terminal.everything
    assert re.match(r"\d\d:\d\d \S+/works: a: cut off in .* \(attempt 1\): it was stopped", left[-4])
    assert left[-3:] == [
        "2 runs are left open",
        "  send waits for you: agentfs approve send",
        "stopped; `agentfs watch` goes on from here",
    ]
    assert shown.terminal.shows_cursor()


def test_it_follows_the_size_of_the_terminal_and_names_stay_inert(place: Place) -> None:
    hostile = "Do \u202eit\x1b[31m, 日本語"
    goal = book("true", lines="gate").replace("```sh", f"{hostile}\n```sh", 1)
    for number in range(9):
        drop(place, f"a-run-with-a-long-name-{number}.md", goal)
    with watching(place, "--poll", columns=60, rows=20) as shown:
        shown.wait_to_see("9 open runs, 9 wait for you", "and 2 more, of which 2 wait for you: agentfs status")
        assert "looking every second: drop goals into" in shown.terminal.everything[0]
        shown.resize(120, 40)
        screen = shown.wait_to_see("agentfs approve a-run-with-a-long-name-8", "looking every second")
        assert row_of(screen, "a-run-with-a-long-name-8")[3] == "a: Do <U+202E>it␛[31m, 日本語"
        shown.resize(60, 20)
        shown.wait_to_see("and 2 more, of which 2 wait for you: agentfs status")
    assert "\x1b[31m" not in shown.raw
    assert "\u202e" not in shown.raw


def test_a_plan_that_is_broken_by_hand_is_shown_above(place: Place) -> None:
    drop(place, "send.md", book("echo sent", lines="gate"))
    with watching(place) as shown:
        shown.wait_to_see("agentfs approve send")
        plan = place.run_folder("send") / "plan.json"
        whole = plan.read_text()
        plan.write_text(whole[:-9])
        shown.wait_to_see("fix runs/", "/plan.json: plan.error.md beside it says how")
        shown.wait_to_see("/send: plan: plan.json is not valid")
        plan.write_text(whole)
        shown.wait_to_see("    agentfs approve send")


def test_a_run_whose_folder_is_gone_leaves_the_view(place: Place) -> None:
    drop(place, "send.md", book("echo sent", lines="gate"))
    with watching(place) as shown:
        shown.wait_to_see("agentfs approve send")
        place.run_folder("send").rename(place.root / "elsewhere")
        shown.wait_to_see("no open run", "/send: its folder was moved or deleted; what ran in it is ended")


def test_without_colours_and_on_a_dumb_terminal(place: Place) -> None:
    with watching(place) as shown:
        shown.wait_to_see("no open run")
        assert shown.terminal.colours
    with watching(place, NO_COLOR="1") as shown:
        shown.wait_to_see("no open run")
        assert not shown.terminal.colours
    with watching(place, TERM="dumb") as shown:
        shown.wait_to_see("watching: drop goals into")
        drop(place, "count.md", book("echo five words"))
        shown.wait_to_see("count: done, 1 of 1 steps")
    assert "\x1b" not in shown.raw


def test_programs_get_json_though_a_person_looks(place: Place) -> None:
    with watching(place, "--json") as shown:
        assert shown.popen.stdout is not None
        assert '"event": "watching"' in shown.popen.stdout.readline()
    assert shown.raw == ""

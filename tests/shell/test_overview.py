"""The view of many runs: states in, lines out."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.facts import Attempt, Facts, PlanFile
from agentfs.core.problems import Problem
from agentfs.core.run_state import derive
from agentfs.core.text import columns
from agentfs.ui.overview import Overview, Row, choose_runs, ended_row, overview_lines, row_of
from agentfs.ui.screen import Look
from tests.builders import PureWorld, a_plan, a_result, a_step, an_order, facts, means

NOW = datetime(2026, 11, 16, 10, 5, tzinfo=UTC)
TODAY = "2026-11-16"


def began(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def a_row(name: str, **fields: Any) -> Row:
    given: dict[str, Any] = {"state": "running", "done": 1, "total": 3, "words": "fetch: Get it", "at": began(1)}
    return Row(**{"name": name, **given, **fields})


def asking(name: str, **fields: Any) -> Row:
    return a_row(
        name,
        **{"state": "waiting", "words": "send: Send it", "ways": (f"agentfs approve {name}",), **fields},
        for_a_person=True,
    )


def view_of(rows: Sequence[Row], ended: Sequence[Row] = (), **fields: Any) -> Overview:
    given: dict[str, Any] = {"workspace": "/home/you/shop", "since": began(24), "used": 1, "places": 4, "how": ""}
    return Overview(**{**given, **fields}, rows=rows, ended=ended)


def lines(view: Overview, width: int = 79, height: int = 23, **fields: Any) -> list[str]:
    return overview_lines(view, Look(width, height, NOW, **fields))


RUNS = [
    a_row("audit", under_way=True, at=began(2)),
    a_row("nightly", done=0, words="fetch is next", next="fetch", at=began(0.2)),
    asking("tidy-invoices", done=2, at=began(4)),
    a_row("site", state="planning", total=0, words="the planner is thinking", at=began(0.1)),
]
ENDED = [
    a_row("count", state="done", done=3, words="the text has 5 words", at=began(3)),
    a_row("move", state="failed", words="copy failed: exit code 3", at=began(1)),
]


def test_the_whole_view() -> None:
    assert lines(view_of(RUNS, ENDED, used=4)) == [
        "",
        "agentfs watch  /home/you/shop",
        "4 open runs, 1 waits for you · 4 of 4 places used · since 09:41",
        "",
        "? tidy-invoices     waiting   2/3    4 min   send: Send it",
        "    agentfs approve tidy-invoices",
        "▸ audit             running   1/3    2 min   fetch: Get it",
        "▸ nightly           running   0/3    12 s    waits for a place: fetch is next",
        "▸ site              planning         6 s     the planner is thinking",
        "",
        "✓ count             done      3/3    10:02   the text has 5 words",
        "✗ move              failed    1/3    10:04   copy failed: exit code 3",
    ]


def test_the_picture_in_the_documentation_is_what_it_shows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "watch.md").read_text(encoding="utf-8")
    picture = page.split("```text view\n")[1].split("```")[0].splitlines()
    rows = [
        replace(RUNS[0], words="parse: Read every log of the last month"),
        RUNS[1],
        replace(RUNS[2], words="send: Send the totals to the book-keeper"),
        RUNS[3],
    ]
    ended = [ENDED[0], replace(ENDED[1], words="copy failed: exit code 3; 1 of 3 steps done, 1 failed")]
    shown = lines(view_of(rows, ended, used=4, workspace="/home/you/demo"), width=99)
    assert picture[2:] == shown


def test_with_nothing_to_do_it_says_how_to_begin() -> None:
    since = began(60 * 24)
    assert lines(view_of([], used=0, places=1, how="looking every second", since=since)) == [
        "",
        "agentfs watch  /home/you/shop",
        "no open run: drop a goal into goals/ · 0 of 1 place used · looking every second",
        "",
    ]
    assert lines(view_of([], since=since), width=99)[2].endswith("· since 2026-11-15 10:05")


def test_sixty_columns_and_fewer() -> None:
    view = view_of([asking("import-of-the-customers-2"), *RUNS[:2]], ENDED[:1])
    assert lines(view, 59, 9) == [
        "agentfs watch  /home/you/shop",
        "3 open runs, 1 waits for you · 1 of 4 places used",
        "? import-of-…ers-2  waiting   1/3    1 min   send: Send it",
        "    agentfs approve import-of-the-customers-2",
        "▸ audit             running   1/3    2 min   fetch: Get it",
        "▸ nightly           running   0/3    12 s    fetch is next",
    ]
    assert lines(view, 30, 9)[2:4] == ["? import-of-…ers-2  waiting", "    agentfs approve import-of…"]


def test_of_sixty_runs_those_that_wait_come_first_and_the_rest_is_counted() -> None:
    waiting = [asking(f"gate-{n:02}", at=began(100 - n)) for n in range(20)]
    working = [a_row(f"work-{n:02}", at=began(50 - n), under_way=n in (7, 30)) for n in range(40)]
    shown = lines(view_of([*working, *waiting]))
    assert len(shown) == 23
    assert [line.split()[1] for line in shown[4:-1] if line[0] in "?▸"] == [
        *(f"gate-{n:02}" for n in range(6)),
        *("work-00", "work-01", "work-02", "work-03", "work-07", "work-30"),
    ]
    assert shown[-1] == "  and 48 more, of which 14 wait for you: agentfs status"


def test_what_is_paused_comes_after_what_waits() -> None:
    rows = [asking("b", state="paused", at=began(9)), asking("a", at=began(1))]
    assert [row.name for row in choose_runs(rows, 9)] == ["a", "b"]


def test_several_ways_on_are_counted() -> None:
    ways = ("agentfs approve x a", "agentfs approve x b")
    assert lines(view_of([asking("x", ways=ways)]))[5] == "    agentfs approve x a  (and 1 more)"


@pytest.mark.parametrize("plain", [False, True])
def test_whatever_the_names_and_the_size_it_fits(plain: bool) -> None:
    hostile = "日本語\x1b[2J\u202eevil\u0301 " * 9
    rows = [*RUNS, asking("n" * 60, words=hostile, ways=(hostile,)), a_row("m" * 60, words=hostile)]
    view = view_of(rows, [a_row("o" * 60, state="done", words=hostile)], workspace=f"/tmp/{hostile}", how=hostile)
    for width in range(1, 140, 3):
        for height in (1, 2, 3, 5, 9, 10, 11, 14, 24, 60):
            shown = lines(view, width, height, plain=plain)
            assert len(shown) <= height
            assert all(columns(line) <= width for line in shown), (width, height)
            assert all(line.isprintable() for line in shown)


def test_colours_change_nothing_but_colours() -> None:
    view = view_of(RUNS, ENDED)
    coloured = lines(view, colours=True)
    assert coloured[1] == "\x1b[1magentfs watch\x1b[0m  \x1b[2m/home/you/shop\x1b[0m"
    assert coloured[4].startswith("\x1b[33m? \x1b[0mtidy-invoices")
    assert "\x1b" not in "".join(lines(view))
    assert lines(view, plain=True)[6].startswith("> audit")


# ── from states ───────────────────────────────────────────────────────────────────────────────────────────

WIDE = a_plan(*(a_step(name, depends_on=[], description=f"Do {name}") for name in "abcde"))


def running(given: Facts, *steps: str) -> Facts:
    for step in steps:
        view = derive(given, means()).steps[step]
        given = given.with_attempt(step, Attempt(1, order=an_order(view), claimed=True))
    return given


def failed_once() -> Facts:
    given = facts(WIDE)
    failed = given.with_attempt("a", Attempt(1, result=a_result(derive(given, means()).steps["a"], "failed")))
    order = an_order(derive(failed, means()).steps["a"])
    return failed.with_attempt("a", Attempt(2, order=order, claimed=True))


def played(*steps: Any, **fields: Any) -> Facts:
    return PureWorld().play(facts(a_plan(*steps, **fields)))[0]


def unreadable_plan() -> Facts:
    file = PlanFile("f" * 64, None, (Problem("bad"),))
    return replace(facts(WIDE), plan_file=file, notes={"plan.error.md": "x"})


GATE = a_step("send", gate=True, description="Send the letters", depends_on=[])


@pytest.mark.parametrize(
    ("given", "state", "words", "ways"),
    [
        (facts(), "planning", "there is no plan yet", ()),
        (facts(WIDE), "running", "a is next", ()),
        (running(facts(WIDE), "a"), "running", "a: Do a", ()),
        (running(facts(WIDE), *"abcd"), "running", "a, b, c and 1 more", ()),
        (failed_once(), "running", "a (attempt 2): Do a", ()),
        (played(GATE), "waiting", "send: Send the letters", ("agentfs approve goal",)),
        (
            played(GATE, a_step("call", gate=True, depends_on=[])),
            "waiting",
            "send: Send the letters",
            ("agentfs approve goal send", "agentfs approve goal call"),
        ),
        (
            played(a_step("who", tool="ask", input={"question": "Who?"}, description="Ask who")),
            "waiting",
            "who: Ask who",
            ("agentfs reply goal who TEXT",),
        ),
        (
            PureWorld(fate=lambda *_: "interrupted").play(facts(a_plan(a_step("cut", repeatable=False))))[0],
            "waiting",
            "cut: it was cut off and is not repeatable: a person must say what became of it",
            tuple(f"agentfs reply goal cut {word}" for word in ("again", "done", "failed")),
        ),
        (
            facts(a_plan(a_step("a"), status="draft")),
            "draft",
            "the plan is a draft: approve it",
            ("agentfs approve goal",),
        ),
        (
            facts(a_plan(a_step("a"), status="paused")),
            "paused",
            "the plan is paused: resume it",
            ("agentfs resume goal",),
        ),
        (
            facts(WIDE, limits={"minutes": 0.0}),
            "waiting",
            "the limit of 0 minutes is reached (limits.minutes): raise it in plan.json",
            ("agentfs resume goal --add-minutes N",),
        ),
        (
            unreadable_plan(),
            "waiting",
            "plan.json is not valid: see plan.error.md",
            ("fix runs/2026-11-16/goal/plan.json: plan.error.md beside it says how",),
        ),
        (replace(facts(WIDE), broken=("steps/a.1.json is torn",)), "waiting", "steps/a.1.json is torn", ()),
    ],
)
def test_a_run_in_a_line(given: Facts, state: str, words: str, ways: tuple[str, ...]) -> None:
    row = row_of(derive(given, means()), TODAY)
    assert (row.name, row.state, row.words, row.ways) == ("goal", state, words, ways)
    assert row.for_a_person == (state in ("waiting", "draft", "paused"))


def test_a_run_that_goes_on_while_a_person_is_asked_comes_first_too() -> None:
    given = played(GATE)
    plan = a_plan(GATE, a_step("work", depends_on=[], description="Work"))
    both = replace(facts(plan), attempts=given.attempts)
    row = row_of(derive(running(both, "work"), means()), TODAY)
    assert (row.state, row.words, row.ways, row.for_a_person, row.under_way) == (
        "running",
        "work: Work",
        ("agentfs approve goal",),
        True,
        True,
    )


def test_a_run_of_another_day_is_named_in_full() -> None:
    row = row_of(derive(played(GATE), means()), "2026-11-17")
    assert (row.name, row.ways) == ("2026-11-16/goal", ("agentfs approve 2026-11-16/goal",))


def test_an_ended_run_tells_its_answer_or_why_it_has_none() -> None:
    done, failed = played(a_step("a")), PureWorld(fate=lambda *_: "failed").play(facts(a_plan(a_step("a"))))[0]
    assert done.outcome
    assert failed.outcome
    assert ended_row(derive(done, means()), done.outcome, TODAY).words == "a"
    row = ended_row(derive(failed, means()), failed.outcome, TODAY)
    assert (row.state, row.done, row.total, row.words) == ("failed", 0, 1, failed.outcome.summary)

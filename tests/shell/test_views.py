"""What people see while a run is driven: inert, within the terminal, and the same last words everywhere."""

import json
import os
import re
from pathlib import Path

import pytest

from agentfs.commands.common import problem_lines
from agentfs.core.attention import choose_steps
from agentfs.core.problems import Problem
from agentfs.core.records import Failure, Result, Step
from agentfs.core.steps import Move, Status, StepView
from agentfs.core.text import (
    Cell,
    age,
    ago,
    answer_text,
    block,
    columns,
    cut,
    cut_front,
    cut_middle,
    duration,
    first_line,
    inert,
    json_text,
    table,
    wrap_line,
)
from agentfs.engine.report import result_line
from agentfs.ui.overview import about, rest_words
from tests.terminals import OnTerminal

HOSTILE = "a\x1b[2Jb\x9bc\u202ed\x07\x7fe\u2028f\u200bg"
GOAL = """\
# Both

## Steps

### good
after: nothing
```sh
echo fine
```

### bad
after: nothing
```sh
printf 'no \\033]0;title\\007 [red]luck[/red]\\n' >&2; exit 3
```
retries: 1
"""


def test_nothing_hostile_survives() -> None:
    assert inert(HOSTILE) == "a␛[2Jb<U+009B>c<U+202E>d␇␡e<U+2028>f<U+200B>g"
    assert inert(HOSTILE).isprintable()
    assert inert("ein schöner Tag, 日本 [bold]x[/bold]") == "ein schöner Tag, 日本 [bold]x[/bold]"
    assert inert("a\tb\u00a0c\ud800") == "a b c<U+D800>"
    assert first_line("\n  \n  yes\x1b \nno") == "yes␛"
    assert block("one\r\n\ttwo\n\n") == ["one", "    two"]


def test_json_is_inert_and_means_the_same() -> None:
    value = {"text": HOSTILE, "astral": "\U000e0041", "plain": "schön"}
    assert json.loads(json_text(value)) == value
    assert json_text(value).replace("\n", "").isprintable()
    assert "schön" in json_text(value)


def test_an_answer_is_raw_for_programs_and_inert_for_terminals() -> None:
    assert answer_text("a\x1b[1mb\n", terminal=False) == "a\x1b[1mb\n"
    assert answer_text("a\x1b[1mb\nc", terminal=True) == "a␛[1mb\nc"
    assert json.loads(answer_text({"a": "\x9b"}, terminal=True)) == {"a": "\x9b"}


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("abc", 0, ""), ("a b", 2, "a…")],
)
def test_text_is_cut_by_columns(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert columns(cut(text, width)) <= width


def test_a_path_keeps_its_end_and_a_name_both() -> None:
    assert [cut_front("/home/日本", width) for width in (10, 6, 5, 1, 0)] == [
        "/home/日本",
        "…/日本",
        "…日本",
        "…",
        "",
    ]
    assert [cut_middle("import-customers-2", width) for width in (18, 12, 6, 4, 1)] == [
        "import-customers-2",
        "import-…rs-2",
        "imp…-2",
        "imp…",
        "…",
    ]


def test_durations_and_moments_read_well() -> None:
    assert [duration(s) for s in (0.04, 9.94, 9.96, 89.6, 3700)] == [
        "0.0 s",
        "9.9 s",
        "10 s",
        "1 min 30 s",
        "1 h 1 min",
    ]
    assert [ago(s) for s in (3, 60, 7300, 200_000)] == ["just now", "1 min ago", "2 h ago", "2 d ago"]
    assert [age(s) for s in (-1, 3.9, 60, 7300, 200_000)] == ["0 s", "3 s", "1 min", "2 h", "2 d"]


def test_a_table_fits_and_is_coloured_only_when_asked() -> None:
    rows = [[("run", None), ("done", 32), ("x" * 90, None)]]
    assert table(rows, 20, colours=False) == ["run  done  xxxxxxxx…"]
    assert table(rows, 20, colours=True) == ["run  \x1b[32mdone\x1b[0m  xxxxxxxx…"]


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────


def a_view(number: int, status: Status, result: Result | None = None, move: Move | None = None) -> StepView:
    step = Step(id=f"s{number}", description="does a thing")
    return StepView(step, status, f"it is {status}", attempt=1, result=result, move=move)


def a_failure(attempt: int, message: str) -> Result:
    return Result(
        run="2026-11-16/x", step="s1", attempt=attempt, revision=1, key="0" * 64, after={}, status="failed",
        error=Failure(kind="exit", message=message), sandbox="none", started_at="2026-11-16T00:00:00.000000Z",
        ended_at="2026-11-16T00:00:01.000000Z", duration_s=1.0,
    )  # fmt: skip


def test_a_failed_attempt_says_whether_it_is_tried_again() -> None:
    again = a_view(1, "ready", a_failure(1, "exit code 3\nmore"), "order")
    assert result_line(again) == "s1: FAILED in 1.0 s (attempt 1): exit code 3; retrying"
    assert about(again) == "tried again: exit code 3"
    assert result_line(a_view(1, "failed", a_failure(2, "x\x1b"))) == "s1: FAILED in 1.0 s (attempt 2): x␛"
    long = result_line(a_view(1, "ready", a_failure(1, "y" * 999), "order"))
    assert long == f"s1: FAILED in 1.0 s (attempt 1): {'y' * 999}; retrying"


def test_of_a_thousand_steps_the_telling_ones_are_shown() -> None:
    runs: tuple[tuple[Status, int], ...] = (
        ("done", 3),
        ("failed", 1),
        ("done", 496),
        ("running", 4),
        ("waiting", 496),
    )
    states = [state for state, count in runs for _ in range(count)]
    views = [a_view(number, state) for number, state in enumerate(states)]
    shown = choose_steps(views, 12)
    assert len(shown) == 12
    assert [view.id for view in shown[:1]] == ["s3"]
    assert [view.id for view in shown if view.status == "running"] == ["s500", "s501", "s502", "s503"]
    assert rest_words(views[:5]) == "5 more: 4 done, 1 failed"
    assert choose_steps(views[:12], 12) == views[:12]


# ── whole runs ────────────────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(tmp_path: Path, columns: int = 80, rows: int = 24, **more: str) -> OnTerminal:
    """Run the goal with stderr on a real terminal, to its end."""
    (tmp_path / "both.md").write_text(GOAL, encoding="utf-8")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), **more}
    with OnTerminal(["run", "both.md"], tmp_path, environment, columns, rows) as shown:
        assert shown.wait() == (1, "")
    return shown


WHY = "exit code 3: no  [red]luck[/red]"
CLOSING = [f"  bad: {WHY}", "see what happened: agentfs show"]


def test_the_live_table_stays_with_the_last_words_below(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path, columns=150)
    terminal = shown.terminal
    lines = [re.sub(r"\d\.\d s", "T", line) for line in terminal.everything]
    run = lines[-1].removeprefix("see what happened: agentfs show ")
    assert lines == [
        f"no workspace here yet: made one in {tmp_path}",
        f"{run}  works in {tmp_path}/runs/{run}/files",
        "",
        f"✗ bad   failed      2/2  T   {WHY}",
        "✓ good  done        1/1  T",
        "",
        f"{'━' * 40}  1 of 2 steps, 1 failed  T",
        f"{run}: failed, bad failed 2 times, last: {WHY}; 1 of 2 steps done, 1 failed",
        CLOSING[0],
        f"{CLOSING[1]} {run}",
    ]
    assert f"\x1b[31m{'━' * 20}\x1b[0m\x1b[31m{'━' * 20}\x1b[0m" in shown.raw  # nothing of it is green
    assert terminal.shows_cursor()
    assert terminal.colours


def test_the_live_table_fits_a_small_terminal(tmp_path: Path) -> None:
    terminal = on_a_terminal(tmp_path, columns=40, rows=6, NO_COLOR="1").terminal
    assert not terminal.colours
    assert any(line.startswith("✗ bad  failed") for line in terminal.everything)
    assert "  and 1 more: 1 done" in terminal.everything


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path, columns=200, TERM="dumb")
    assert "\x1b" not in shown.raw
    lines = shown.terminal.everything
    assert any(line.startswith("bad: FAILED in") and line.endswith("; retrying") for line in lines)
    assert lines[-2] == CLOSING[0]
    assert lines[-1].startswith(CLOSING[1])


def test_a_problem_is_shown_with_its_line_on_a_terminal_only() -> None:
    wrong = Problem("there is no step 'b'", "did you mean 'a'?", "/steps/1/depends_on/0", 2, 8)
    line = "job.md:2:8: there is no step 'b' (did you mean 'a'?) [/steps/1/depends_on/0]"
    assert problem_lines("job.md", [wrong], b"x\nafter: b\n") == [line]
    assert problem_lines("job.md", [wrong], b"x\r\nafter: b\r\n", 80) == [
        line,
        "    2 | after: b",
        "      |        ^",
    ]
    assert problem_lines("job.md", [wrong], b"", 80) == [line]  # the file has changed since


@pytest.mark.parametrize(
    ("text", "column", "shown"),
    [
        ("\t\u65e5\u672c\tBAD\x1b[31m", 5, ["    1 |  \u65e5\u672c BAD\u241b[31m", "      |       ^"]),
        (
            "a" * 50 + "BAD" + "b" * 50,
            51,
            ["    1 | \u2026aaaaaaaaaaaaaaaBADbbbbbbbbbbbb\u2026", "      |                 ^"],
        ),
        ("a" * 50 + "BAD", 51, ["    1 | \u2026" + "a" * 28 + "BAD", "      | " + " " * 29 + "^"]),
        ("BAD" + "b" * 50, 1, ["    1 | BAD" + "b" * 28 + "\u2026", "      | ^"]),
    ],
)
def test_the_mark_is_below_the_column_in_any_line(text: str, column: int, shown: list[str]) -> None:
    assert problem_lines("f", [Problem("x", "y", "", 1, column)], text.encode(), 40)[1:] == shown


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("one two", 7, ["one two"]),
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 8, ["one two", "three"]),
        ("onetwothree four", 4, ["onet", "woth", "ree", "four"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
        ("漢", 1, ["漢"]),
    ],
)
def test_a_long_line_goes_on_below(text: str, width: int, lines: list[str]) -> None:
    assert wrap_line(text, width) == lines


def test_a_table_without_a_width_is_whole_and_one_that_wraps_loses_nothing() -> None:
    rows: list[list[Cell]] = [[("a" * 50, None), ("b", None), ("one two three four", None)]]
    assert table(rows, None, colours=False) == [f"{'a' * 50}  b  one two three four"]
    assert table(rows, 40, colours=False, widest=20, wrap=True) == [
        f"{'a' * 19}…  b  one two three",
        f"{' ' * 25}four",
    ]

"""The screen: frames drawn over one another, words that stay above them, and a terminal left as it was."""

import os
import pty
import subprocess
import sys

import pytest

from agentfs.ui.screen import can_draw, can_move_the_cursor, painted_frame
from tests.terminals import Terminal


def drawn(
    terminal: Terminal, messages: list[str], lines: list[str], *, fresh: bool = False, last: bool = False
) -> Terminal:
    terminal.feed(painted_frame(messages, lines, fresh=fresh, last=last))
    return terminal


def test_a_frame_takes_the_place_of_the_one_before() -> None:
    terminal = drawn(Terminal(10, 5), [], ["one", "two", "three"], fresh=True)
    assert terminal.screen == ["one", "two", "three"]
    assert not terminal.shows_cursor()
    assert drawn(terminal, [], ["1", "", "3", "4"]).screen == ["1", "", "3", "4"]
    assert drawn(terminal, [], ["x"]).screen == ["x"]
    assert drawn(terminal, [], []).screen == []


def test_messages_stay_above_and_scroll_away_whole() -> None:
    terminal = drawn(Terminal(10, 5), [], ["a", "b", "c"], fresh=True)
    drawn(terminal, ["kept for good"], ["a", "b", "c"], fresh=True)
    assert terminal.everything == ["kept for g", "ood", "a", "b", "c"]
    drawn(terminal, ["more"], ["a", "b", "c"], fresh=True)
    assert terminal.everything == ["kept for g", "ood", "more", "a", "b", "c"]
    assert terminal.screen == ["ood", "more", "a", "b", "c"]


def test_a_line_too_wide_takes_one_row_all_the_same() -> None:
    terminal = drawn(Terminal(10, 5), [], ["0123456789abc", "日本語日本語", "end"], fresh=True)
    assert [line[:4] for line in terminal.screen] == ["0123", "日本語日", "end"]
    drawn(terminal, [], ["a", "b", "end"])
    assert terminal.screen == ["a", "b", "end"]


@pytest.mark.parametrize(("lines", "left"), [(["a", "b"], ["a", "b", "$ "]), ([], ["$ "])])
def test_at_the_end_the_cursor_is_back_below(lines: list[str], left: list[str]) -> None:
    terminal = drawn(Terminal(10, 5), [], ["a", "b", "c"], fresh=True)
    drawn(terminal, [], lines, last=True)
    assert terminal.shows_cursor()
    terminal.feed("$ x")
    assert terminal.screen == [*left[:-1], "$ x"]


def test_only_terminals_that_can_draw_get_the_live_view() -> None:
    assert [can_move_the_cursor(term) for term in ("xterm-256color", "dumb", "unknown", "")] == [
        True,
        False,
        False,
        False,
    ]


IN_THE_BACKGROUND = """
import os, signal, sys
from agentfs.ui.screen import can_draw
before = can_draw(sys.stderr, "xterm")
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os._exit(1 if can_draw(sys.stderr, "xterm") else 0)
sys.exit(0 if before and os.waitpid(child, 0)[1] == 0 else 1)
"""


def test_a_job_in_the_background_does_not_draw_on_the_terminal_of_another() -> None:
    """`agentfs watch &`: the shell goes on using the terminal."""
    ours, theirs = pty.openpty()
    code = f"import fcntl, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0)\n{IN_THE_BACKGROUND}"
    done = subprocess.run([sys.executable, "-c", code], stderr=theirs, start_new_session=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0


def test_what_is_no_terminal_is_not_drawn_on() -> None:
    with open(os.devnull, "w", encoding="utf-8") as stream:
        assert not can_draw(stream, "xterm")

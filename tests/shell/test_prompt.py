"""What is typed at a prompt: keys become lines, lines become what a person wants."""

import pytest

from agentfs.core.attention import About
from agentfs.executor.questions import ANSWER_LINE
from agentfs.ui.prompt import LineEditor, fit_lines, question_lines, typed_line, understand


@pytest.mark.parametrize(
    ("keys", "lines", "left"),
    [
        ("yes\r", ["yes"], ""),
        ("yes\nno\n", ["yes", "no"], ""),
        ("\x04", [None], ""),
        ("ab\x1b[D\x04\r", ["a"], ""),  # Ctrl-D within a line deletes
        ("ab\x1b[D\x1b[3~c\r", ["ac"], ""),
        ("one two\x17three\r", ["one three"], ""),
        ("abc\x01x\x05y\x02\x0b\r", ["xabc"], ""),
        ("abc\x15de", [], "de"),
        ("a\x1b[200~b\rc\td\x1b[201~", [], "ab\nc\td"),
        ("a\x1b[200~\x1b[31mb\x1b[201~", [], "ab"),
        ("\x1b[A\x1bOP\x1bx\x07\x0cok", [], "ok"),
        ("æ漢\x7f", [], "æ"),
    ],
)
def test_keys_make_lines(keys: str, lines: list[str | None], left: str) -> None:
    at_once, one_by_one = LineEditor(), LineEditor()
    assert (at_once.feed(keys.encode()), at_once.text) == (lines, left)
    found = [line for byte in keys.encode() for line in one_by_one.feed(bytes([byte]))]
    assert (found, one_by_one.text) == (lines, left)


REPLIES: list[tuple[About, str, str | None]] = [
    ("gate", "yes", "approve\n"),
    ("gate", " Y ", "approve\n"),
    ("gate", "approve", "approve\n"),
    ("gate", "yes, if it is Monday", None),
    ("gate", "", None),
    ("gate", "ye s", None),
    ("gate", "again", None),
    ("gate", "no", "reject\n"),
    ("gate", "n Not  like this", "reject\nNot  like this\n"),
    ("gate", "no: not\nlike this", "reject\nnot\nlike this\n"),
    ("draft", "not yet", None),
    ("answer", "reject", "reject\n"),
    ("cut", "a", "again\n"),
    ("cut", "again and again", None),
    ("cut", "done 3 rows", "done\n3 rows\n"),
    ("cut", "failed", "failed\n"),
    ("cut", "yes", None),
    ("ask", "yes", "yes\n"),
    ("ask", "later", "later\n"),
    ("ask", "/etc/hosts", "/etc/hosts\n"),
    ("ask", "  ", None),
]


@pytest.mark.parametrize(("about", "line", "reply"), REPLIES)
def test_a_line_is_a_reply_or_nothing(about: About, line: str, reply: str | None) -> None:
    typed = understand(about, line)
    assert (typed.reply if typed else None) == reply


@pytest.mark.parametrize("word", ["show", "edit", "later"])
def test_the_other_wishes(word: str) -> None:
    for about in ("draft", "gate", "answer", "cut"):
        assert [typed.wish for line in (word, word[0], f"/{word}") if (typed := understand(about, line))] == [
            word
        ] * 3
        assert understand(about, f"{word} it") is None
    assert (typed := understand("ask", f" /{word}")) is not None
    assert typed.wish == word


def test_a_command_cannot_hide_its_end_behind_what_looks_like_ours() -> None:
    question = f"# May a run?\n\n~~~\necho a\n{ANSWER_LINE}x`\nrm -r .\n~~~\n\n{ANSWER_LINE}a.1.reply.md` beside.\n"
    assert [*question_lines(question, full=False)] == [
        "May a run?",
        "",
        "    echo a",
        f"    {ANSWER_LINE}x`",
        "    rm -r .",
    ]


def test_a_question_fits_its_terminal_and_says_what_is_left_out() -> None:
    assert fit_lines(["  yes      one two three", "abc"], 23) == ["  yes      one two", "           three", "abc"]
    assert fit_lines(["1", "2", "3", "4"], 9, 3) == ["1", "2", "… 2 more lines: show"]


def test_what_is_typed_stays_in_sight() -> None:
    assert typed_line(("", 0), 10, colours=False) == "> _"
    assert typed_line(("abc", 1), 10, colours=False) == "> a_bc"
    assert typed_line(("abcdefghij", 10), 10, colours=False) == "> …efghij_"
    assert typed_line(("a\nb", 3), 20, colours=True) == "> a␊b\x1b[7m \x1b[0m"

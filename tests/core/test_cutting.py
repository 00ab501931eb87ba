"""Long texts made short: nothing is lost without a word, and the same text is always cut alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfs.core.excerpts import as_text, fence_text, head_and_tail
from agentfs.core.text import one_line


@pytest.mark.parametrize(
    ("text", "most", "whole", "cut"),
    [
        ("", 9, 0, ""),
        ("123456789", 9, 0, "123456789"),
        ("1234567890", 9, 0, "123456\n… 1 characters cut …\n890"),
        ("1234567890", 9, 1000, "123456\n… 991 characters cut …\n890"),
        ("1234567890", 1, 0, "\n… 10 characters cut …\n"),
    ],
)
def test_head_and_tail(text: str, most: int, whole: int, cut: str) -> None:
    assert head_and_tail(text, most, whole) == cut


@given(st.text(max_size=200), st.integers(1, 100))
def test_what_is_kept_and_what_is_reported_missing_add_up(text: str, most: int) -> None:
    cut = head_and_tail(text, most)
    if len(text) <= most:
        assert cut == text
        return
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    assert cut == f"{head}\n… {len(text) - len(head) - len(tail)} characters cut …\n{tail}"
    assert len(head) + len(tail) <= most


def test_values_as_text() -> None:
    assert [as_text(value) for value in ("ä", {"ä": 1}, None, [True])] == ["ä", '{"ä": 1}', "null", "[true]"]


def test_one_line() -> None:
    assert one_line("  a\n\n b\t c ", 9) == "a b c"
    assert one_line("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("text", "fence"), [("a", "```"), ("```\na\n```", "````"), ("``````", "```````"), ("``", "```")]
)
def test_a_fence_that_nothing_inside_can_close(text: str, fence: str) -> None:
    assert fence_text(text) == f"{fence}\n{text}\n{fence}"

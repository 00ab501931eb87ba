"""TOML with places: every mistake points at its line."""

import pytest

from agentfs.core.documents import read_toml
from agentfs.core.problems import Rejected

SOURCE = b"""\
mode = "auto"

[limits]
  parallel = 3
[tools.web_search]
url = "x"
"quoted key" = 1
a.b = 2
"""


def test_places_of_tables_and_keys() -> None:
    document = read_toml(SOURCE)
    assert document.value["limits"] == {"parallel": 3}
    assert document.locate("/mode", key=True) == (1, 1)
    assert document.locate("/mode") == (1, 8)
    assert document.locate("/limits/parallel", key=True) == (4, 3)
    assert document.locate("/limits") == (3, 2)
    assert document.locate("/tools/web_search/url", key=True) == (6, 1)
    assert document.locate("/tools/web_search/a/b", key=True) == (8, 1)
    assert document.locate("/limits/parallel/deeper", key=True) == (4, 3)
    assert document.locate("/nowhere") == (1, 1)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (b"mode = auto\n", 1, "not TOML"),
        (b"a = 1\nb = \n", 2, "not TOML"),
        (b"a = [1, 2\n", 1, "not TOML"),
        (b"a = " + b"9" * 5000 + b"\n", 1, "too large"),
        (b"a = " + b"9" * 400 + b"\n", 1, "too large"),
        (b"a = " + b"[" * 5000 + b"]" * 5000 + b"\n", 1, "nested"),
        (b"a = " + b"[" * 150 + b"]" * 150 + b"\n", 1, "nested"),
        (b"x = 1\na = inf\n", 2, "inf"),
        (b"x = 1\na = [nan]\n", 2, "nan"),
        (b"x = 1\na = 2026-11-16\n", 2, "date"),
        (b"\xff", 1, "UTF-8"),
    ],
)
def test_mistakes(source: bytes, line: int, words: str) -> None:
    with pytest.raises(Rejected) as caught:
        read_toml(source)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.message
    assert problem.fix

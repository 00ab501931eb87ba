"""`docs/timing.md` is what the record of times says, and no other module keeps seconds of its own.

`python tests/test_timing.py` rewrites the table after a change of the record.
"""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from agentfs.storage.timing import DIVISOR, Timing, kind_of, times, timing_of

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "timing.md"
HEAD = "| time | seconds | kind | what it is |\n|---|---|---|---|\n"
_TABLE = re.compile(r"^\| time \|.*\n(?:\|.*\n)+", re.MULTILINE)
_OWN = re.compile(r"^[A-Z_]*(?:SECONDS|_S|_NS|TIMEOUT|PAUSE|PATIENCE|GRACE)\b.* = \d", re.MULTILINE)
_SLEEPS = re.compile(r"(?:sleep\(|timeout=)(?!0\))\d")
# What a planner may write, what the kernel counts, and a script that runs isolated.
_EXCEPTIONS = {"agentfs/planner/answer_form.py", "agentfs/tools/process.py", "agentfs/tools/minder.py"}


def table() -> str:
    rows = [f"| `{one.name}` | {one.default:g} | {kind_of(one)} | {one.metadata['means']} |\n" for one in times()]
    return HEAD + "".join(rows)


def test_the_page_is_what_the_record_says() -> None:
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found
    assert found[0] == table()


def test_no_module_keeps_seconds_of_its_own() -> None:
    sources = {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in REPO.glob("agentfs/**/*.py")}
    own = {name: _OWN.findall(text) + _SLEEPS.findall(text) for name, text in sources.items()}
    assert {name for name, lines in own.items() if lines} - _EXCEPTIONS == set()


def test_every_time_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in REPO.glob("agentfs/**/*.py"))
    assert [one.name for one in times() if not re.search(rf"\bTIMING\.{one.name}\b", text)] == []


@pytest.mark.parametrize(
    ("divisor", "by"), [("10", 10.0), ("1", 1.0), ("0", 1.0), ("nan", 1.0), ("x", 1.0), ("", 1.0)]
)
def test_pauses_are_divided_and_nothing_else(divisor: str, by: float) -> None:
    usual, divided = asdict(Timing()), asdict(timing_of({DIVISOR: divisor}))
    assert {name: usual[name] / seconds for name, seconds in divided.items() if seconds} == {
        one.name: pytest.approx(by if kind_of(one) == "pause" else 1.0) for one in times()
    }


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")

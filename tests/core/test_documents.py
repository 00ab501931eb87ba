"""Bytes become a value that knows its places, or a refusal in words."""

import json
import time
from typing import Any

import pytest

from agentfs.core.documents import MAX_YAML_BYTES, Document, find_faults, read_json, read_yaml
from agentfs.core.hashing import canonical, render_plan, sha256_bytes, sha256_of
from agentfs.core.problems import Lines, Problem, Rejected, pointer_to, pointer_tokens


def refusal(source: bytes | str, *, yaml: bool = False) -> Problem:
    with pytest.raises(Rejected) as caught:
        read_yaml(source) if yaml else read_json(source if isinstance(source, bytes) else source.encode())
    return caught.value.problems[0]


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────

PLACED = '{\n "a": [1,\r\n  {"b~/": "ü", "c": 2}],\n "ü": {}\n}\n'


@pytest.mark.parametrize(
    ("pointer", "value", "name"),
    [
        ("", (1, 1), (1, 1)),
        ("/a", (2, 7), (2, 2)),
        ("/a/0", (2, 8), (2, 8)),
        ("/a/1", (3, 3), (3, 3)),
        ("/a/1/b~0~1", (3, 11), (3, 4)),
        ("/a/1/c", (3, 21), (3, 16)),
        ("/ü", (4, 7), (4, 2)),
        ("/a/7", (2, 7), (2, 2)),
        ("/a/0/x/y", (2, 8), (2, 8)),
        ("/ü/x", (4, 7), (4, 2)),
        ("/nowhere", (1, 1), (1, 1)),
    ],
)
def test_places_in_json(pointer: str, value: tuple[int, int], name: tuple[int, int]) -> None:
    document = read_json(PLACED.encode())
    assert (document.locate(pointer), document.locate(pointer, key=True)) == (value, name)
    assert document.locate(pointer) == value  # the second time from what is known


def test_a_document_made_by_hand_has_one_place() -> None:
    assert Document({"a": 1}).locate("/a") == (1, 1)


def test_a_bare_list_as_a_field() -> None:
    document = read_json(b"[\n 1,\n 2]").wrapped("steps")
    assert document.value == {"steps": [1, 2]}
    assert [document.locate(pointer) for pointer in ("/steps/1", "/steps", "/status", "/stepsx/1")] == [
        (3, 2),
        (1, 1),
        (1, 1),
        (1, 1),
    ]
    assert document.with_value({"steps": []}).locate("/steps/1") == (3, 2)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"a": {"x": 1,\n "x": 2}}', Problem("the field 'x' is there twice", "keep one of the two", "/a/x", 2, 2)),
        ('["ab", NaN]', Problem("NaN is not JSON", "write a number, null, or put it in quotes", "/1", 1, 8)),
        ('{"a": [0, 1e999]}', Problem("the number is too large", 'put it in quotes: "…"', "/a/1", 1, 11)),
        ('{"a": 1,\n}\n', Problem("a comma before }", "remove the comma", "", 2, 1)),
        (
            '{"a": [1\n\n\n',
            Problem("the file ends in the middle", "close what is open: a } or a ] is missing", "", 1, 8),
        ),
    ],
)
def test_refusals_say_where(source: str, expected: Problem) -> None:
    assert refusal(source) == expected


def test_an_invalid_byte_is_pointed_at() -> None:
    assert refusal(b'{\n "\xc3\xbc": \xff}') == Problem(
        "byte 0xff is not UTF-8", "save the file as UTF-8 text", "", 2, 7
    )


def test_a_byte_order_mark_may_be_let_through() -> None:
    document = read_json(b"\xef\xbb\xbf[1]", lenient_bom=True)
    assert (document.value, document.locate("/0")) == ([1], (1, 2))


def test_duplicate_keys_are_reported_up_to_a_limit() -> None:
    with pytest.raises(Rejected) as caught:
        read_json(b'[{"a":1,"a":1},{"b":{"c":1,"c":1}}]')
    assert [problem.pointer for problem in caught.value.problems] == ["/0/a", "/1/b/c"]
    with pytest.raises(Rejected) as caught:
        read_json(b"[" + b"NaN," * 1000 + b"1]")
    assert len(caught.value.problems) == 50


def test_depth_is_bounded_at_a_hundred() -> None:
    assert read_json(b"[" * 100 + b"]" * 100).locate("/0/0") == (1, 3)
    assert refusal(b"[" * 101 + b"]" * 101).column == 101
    assert refusal(b'{"a":' * 500 + b"1" + b"}" * 500).message == "nested more than 100 levels deep"


def test_numbers_up_to_what_a_double_holds() -> None:
    assert read_json(b"-" + b"9" * 308).value == -int("9" * 308)
    assert refusal(b"-" + b"9" * 309).message == "the number is too large"


@pytest.mark.parametrize("text", ["", "}", "]]", ",,", '"a', "[1, 2", '{"a" "a": 1e}', "nonsense 1x", '{"a": "\\'])
def test_what_is_not_json_has_one_fault(text: str) -> None:
    assert len(find_faults(text)) == 1


def test_a_text_that_is_deep_and_full_of_quotes_is_refused_at_once() -> None:
    started = time.process_time()
    assert refusal("[" * 100_000 + '"\\' * 500_000).message == "nested more than 100 levels deep"
    assert time.process_time() - started < 2


def test_a_hundred_megabytes_are_refused_at_once() -> None:
    source = b" " * 100_000_000
    started = time.process_time()
    assert refusal(source).message == "larger than 4096 KiB"
    assert time.process_time() - started < 1


def test_lines_count_from_the_given_first_line() -> None:
    lines = Lines("ab\n\ncd\n", first_line=5)
    assert [lines.at(offset) for offset in (0, 2, 3, 4, 99)] == [(5, 1), (5, 2), (6, 1), (7, 1), (7, 2)]
    assert Lines("").at(0) == (1, 1)


def test_pointers_there_and_back() -> None:
    assert pointer_to("a/b", 0, "~") == "/a~1b/0/~0"
    assert pointer_tokens("/a~1b/0/~0") == ["a/b", "0", "~"]


# ── YAML ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("~", None),
        ("a: [yes, no, on, off, y, 2026-11-16, 12:30, 1_000]", {"a": ["yes", "no", "on", "off", "y", "2026-11-16", "12:30", "1_000"]}),
        ("a: [null, Null, ~, '', ]", {"a": [None, None, None, ""]}),
        ("a: [true, False, TRUE, tRUE]", {"a": [True, False, True, "tRUE"]}),
        ("a: [1, -2, +3, 007, 0o17, 0x1F]", {"a": [1, -2, 3, 7, 15, 31]}),
        ("a: [1.5, .5, 1., 1e3, -2.5E-1]", {"a": [1.5, 0.5, 1.0, 1000.0, -0.25]}),
        ("a: ['1', \"true\", '~']", {"a": ["1", "true", "~"]}),
        ("a: |\n  1\n  2\n", {"a": "1\n2\n"}),
        ("on: 1\n<<: 2\n'1': 3", {"on": 1, "<<": 2, "1": 3}),
        ("- a\n- b: {c: [1]}", ["a", {"b": {"c": [1]}}]),
        ("---\na: 1\n...\n", {"a": 1}),
        ("a: Grüße 🙂", {"a": "Grüße 🙂"}),
    ],
)  # fmt: skip
def test_yaml_means_what_json_could_say(text: str, value: Any) -> None:
    assert read_yaml(text).value == value
    assert read_yaml(text.encode()).value == value
    assert [type(one) for one in _flat(read_yaml(text).value)] == [type(one) for one in _flat(value)]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for inner in value.values() for one in _flat(inner)]
    return [one for inner in value for one in _flat(inner)] if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("a: 1\na: 2", 2, 1, "the field 'a' is there twice"),
        ("a:\n  1: x", 2, 3, "a field's name must be text"),
        ("null: x", 1, 1, "a field's name must be text"),
        ("? [a]\n: b", 1, 3, "a field's name must be text, not a list or a table"),
        ("a: &x 1", 1, 4, "anchors (&) and aliases (*) are not read here"),
        ("&x a: 1", 1, 1, "anchors (&) and aliases (*) are not read here"),
        ("a: [*x]", 1, 5, "anchors (&) and aliases (*) are not read here"),
        ("a: !!python/object/apply:os.system [ls]", 1, 4, "tags (!) are not read here"),
        ("a: ! 1", 1, 4, "tags (!) are not read here"),
        ("a: !!str 1", 1, 4, "tags (!) are not read here"),
        ("---\na: 1\n---\nb: 2", 3, 1, "a second document begins here"),
        ("a:\n\t- b", 2, 1, "a tab where YAML wants spaces"),
        ("a: b: c", 1, 5, "a ': ' inside text without quotes"),
        ("a: 1\nb\nc: 1", 2, 1, "a field's name without ': '"),
        ("a: @x", 1, 4, "text without quotes may not begin like this"),
        ("a: [1", 1, 6, "not YAML"),
        ("a: .nan", 1, 4, ".nan is not a number that JSON knows"),
        ("a: -.inf", 1, 4, "-.inf is not a number that JSON knows"),
        ("a: 1e999", 1, 4, "the number is too large"),
        ("a: " + "9" * 400, 1, 4, "the number is too large"),
        ('a: "\\ud800"', 1, 4, "half of a character pair"),
        ("a: 1\nb: \x01", 2, 4, "a control character"),
        ("[" * 101 + "]" * 101, 1, 101, "nested more than 100 levels deep"),
        ("[" * 100_000, 1, 101, "nested more than 100 levels deep"),
        ("x" * (MAX_YAML_BYTES + 1), 1, 1, "larger than 1024 KiB"),
    ],
)
def test_yaml_refusals(text: str, line: int, column: int, says: str) -> None:
    problem = refusal(text, yaml=True)
    assert says in problem.message
    assert problem.fix
    assert (problem.line, problem.column) == (line, column)


def test_yaml_bytes_must_be_utf_8() -> None:
    assert refusal(b"a: \xff", yaml=True).message == "byte 0xff is not UTF-8"
    assert refusal(b"x" * (MAX_YAML_BYTES + 1), yaml=True).message == "larger than 1024 KiB"


@pytest.mark.parametrize(
    ("pointer", "value", "name"),
    [
        ("", (3, 1), (3, 1)),
        ("/a", (3, 4), (3, 1)),
        ("/b", (5, 3), (4, 1)),
        ("/b/1/y", (6, 8), (6, 5)),
        ("/b/9", (5, 3), (4, 1)),
        ("/zz", (3, 1), (3, 1)),
    ],
)
def test_places_in_yaml(pointer: str, value: tuple[int, int], name: tuple[int, int]) -> None:
    document = read_yaml("a: 1\nb:\n  - x\n  - y: 2\n", first_line=3)
    assert (document.locate(pointer), document.locate(pointer, key=True)) == (value, name)


def test_an_empty_yaml_has_a_place_too() -> None:
    assert read_yaml("", first_line=4).locate("/a") == (4, 1)


# ── the other way: values to bytes ────────────────────────────────────────────────────────────────────────


def test_canonical_is_one_spelling() -> None:
    assert canonical({"b": [1, 1.5, None], "a": "ü"}) == '{"a":"ü","b":[1,1.5,null]}'.encode()
    assert sha256_of({"a": 1, "b": 2}) == sha256_of(json.loads('{"b": 2, "a": 1}')) == sha256_bytes(b'{"a":1,"b":2}')
    for bad in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(ValueError):
            canonical({"x": bad})


def test_a_plan_is_written_for_people() -> None:
    plan = {
        "steps": [
            {
                "checks": [{"path": "ü", "contains": None, "kind": "file"}, {"schema": {"b": 1, "a": None}, "kind": "output"}],
                "depends_on": [],
                "input": {"z": None, "a": 1},
                "why": None,
                "tool": "t",
                "id": "a",
            }
        ],
        "limits": {"cost_usd": 1, "replans": 2, "tokens": None},
        "goal": "g",
        "status": "draft",
        "$schema": "s",
    }  # fmt: skip
    assert render_plan(plan).decode() == (
        """{
  "$schema": "s",
  "goal": "g",
  "status": "draft",
  "limits": {
    "replans": 2,
    "cost_usd": 1
  },
  "steps": [
    {
      "id": "a",
      "tool": "t",
      "input": {
        "z": null,
        "a": 1
      },
      "depends_on": [],
      "checks": [
        {
          "kind": "file",
          "path": "ü"
        },
        {
          "kind": "output",
          "schema": {
            "b": 1,
            "a": null
          }
        }
      ]
    }
  ]
}
"""
    )


def test_a_plan_without_limits() -> None:
    assert json.loads(render_plan({"status": "draft", "steps": [{"id": "a"}]})) == {
        "status": "draft",
        "steps": [{"id": "a"}],
    }

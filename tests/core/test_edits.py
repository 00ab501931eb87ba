"""A command changes the bytes of the value it sets, and no other."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.problems import Rejected, pointer_to, pointer_tokens
from tests.sweeps import size

PLAN = """{
  "goal": "Tidy",
  "status": "draft",
  "steps": [
    {
      "id": "a",
      "tool": "note",
      "max_attempts": 1
    }
  ]
}
"""


def changed(text: str, pointer: str, value: Any) -> str:
    return set_value(text.encode(), pointer, value).decode()


# ── by example ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_replaced_in_place() -> None:
    assert changed(PLAN, "/status", "approved") == PLAN.replace('"draft"', '"approved"')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"status":"draft","steps":[]}', '{"status":"paused","steps":[]}'),
        (
            '{\r\n\t"status" : "draft",\r\n\t"steps": []\r\n}\r\n',
            '{\r\n\t"status" : "paused",\r\n\t"steps": []\r\n}\r\n',
        ),
        ('{ "status": null }', '{ "status": "paused" }'),
        ('  {"st\\u0061tus": "dr\\u0061ft", "é": 1.50e+3}', '  {"st\\u0061tus": "paused", "é": 1.50e+3}'),
        ('{"a": {"status": "draft"}, "status": "draft"}', '{"a": {"status": "draft"}, "status": "paused"}'),
    ],
)
def test_odd_formatting_stays(text: str, expected: str) -> None:
    assert changed(text, "/status", "paused") == expected


def test_a_missing_field_takes_its_place_among_its_siblings() -> None:
    assert changed(PLAN, "/steps/0/skip", "not today") == PLAN.replace(
        '"max_attempts": 1\n', '"max_attempts": 1,\n      "skip": "not today"\n'
    )
    assert changed(PLAN, "/steps/0/description", "é") == PLAN.replace(
        '"id": "a",\n', '"id": "a",\n      "description": "é",\n'
    )
    assert changed(PLAN, "/$schema", "x") == PLAN.replace('{\n  "goal"', '{\n  "$schema": "x",\n  "goal"')


def test_a_missing_object_is_laid_out_like_the_rest() -> None:
    assert changed(PLAN, "/limits", {"minutes": 5, "replans": 1}) == PLAN.replace(
        '"draft",\n', '"draft",\n  "limits": {\n    "minutes": 5,\n    "replans": 1\n  },\n'
    )


@pytest.mark.parametrize(
    ("text", "pointer", "value", "expected"),
    [
        ('{"status":"draft","steps":[]}', "/limits", {"a": 1, "b": 2}, '{"status":"draft","limits":{"a":1,"b":2},"steps":[]}'),
        ('{"status": "draft"}', "/steps", [1, 2], '{"status": "draft", "steps": [1, 2]}'),
        ('{"status":"draft"}', "/steps", [1, 2], '{"status":"draft","steps":[1,2]}'),
        ('{"a": 1 ,"b" :2}', "/c", 3, '{"a": 1 ,"b" :2 ,"c" :3}'),
        ('{\r\n\t"a": 1\r\n}', "/c", {"d": []}, '{\r\n\t"a": 1,\r\n\t"c": {\r\n\t\t"d": []\r\n\t}\r\n}'),
        ('{\n    "a": 1\n  , "b": 2\n}', "/c", 3, '{\n    "a": 1\n  , "b": 2\n  , "c": 3\n}'),
        ("{}", "/a", 1, '{"a": 1}'),
        ('{"limits": { }}', "/limits/minutes", 1, '{"limits": {"minutes": 1 }}'),
        ('{\n  "limits": {\n  }\n}', "/limits/minutes", 1, '{\n  "limits": {\n    "minutes": 1\n  }\n}'),
        ('{"limits": {"tokens": 1, "attempts": 2}}', "/limits/parallel", 3, '{"limits": {"tokens": 1, "attempts": 2, "parallel": 3}}'),
        ("[1, 2]", "/1", "b", '[1, "b"]'),
        (" 1\n", "", [], " []\n"),
        ('{"a~/b": 1}', "/a~0~1b", 2, '{"a~/b": 2}'),
    ],
)  # fmt: skip
def test_the_manner_of_the_siblings_is_kept(text: str, pointer: str, value: Any, expected: str) -> None:
    assert changed(text, pointer, value) == expected


@pytest.mark.parametrize(
    ("text", "pointer", "expected"),
    [
        ('{"a": 1, "b": 2, "c": 3}', "/a", '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "/b", '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "/c", '{"a": 1, "b": 2}'),
        ('{\n  "a": 1,\n  "b": 2\n}\n', "/b", '{\n  "a": 1\n}\n'),
        ('{\n  "a": 1\n}\n', "/a", "{}\n"),
        ("[1, [2, 3]]", "/1/0", "[1, [3]]"),
    ],
)
def test_a_member_leaves_with_its_comma(text: str, pointer: str, expected: str) -> None:
    assert remove_value(text.encode(), pointer).decode() == expected


@pytest.mark.parametrize(
    ("text", "pointer", "message"),
    [
        ("{", "/a", "the file ends in the middle"),
        ('{"a": 1, "a": 2}', "/a", "the field 'a' is there twice"),
        ("\ufeff{}", "/a", "the file begins with a byte order mark"),
        ("{}", "/limits/minutes", "there is no place for /limits/minutes: there is no 'limits'"),
        ('{"limits": 3}', "/limits/minutes", "there is no place for /limits/minutes: a plain value holds nothing"),
        ("[1]", "/1", "there is no place for /1: a list has only the members it has"),
    ],
)
def test_what_cannot_be_changed_is_refused(text: str, pointer: str, message: str) -> None:
    with pytest.raises(Rejected) as refused:
        set_value(text.encode(), pointer, 1)
    assert refused.value.problems[0].message == message


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(Rejected, match="there is nothing to remove"):
        remove_value(b'{"a": 1}', "/b")
    with pytest.raises(Rejected, match="cannot be without its value"):
        remove_value(b'{"a": 1}', "")


@pytest.mark.parametrize("value", ["\ud800", float("nan"), float("inf")])
def test_what_json_cannot_hold_is_not_written(value: Any) -> None:
    with pytest.raises(Rejected, match="cannot be written as JSON"):
        set_value(b"{}", "/a", value)


# ── for any text ──────────────────────────────────────────────────────────────────────────────────────────

_NAMES = st.sampled_from(["goal", "status", "limits", "steps", "skip", "é", 'q"', "a/b", "c~d", ""])
_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([1.5, -2e10])
    | st.sampled_from(["", "x", 'é"\n'])
)
_VALUES = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=8
)
_BLANKS = st.sampled_from(["", "", " ", "\n", "\r\n\t", "\n    "])
Spans = dict[str, tuple[int, int]]


class Writer:
    """Writes a value with any blank space between its tokens, and notes where each part is."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.text, self.spans = draw, "", Spans()

    def blank(self) -> None:
        self.text += self.draw(_BLANKS)

    def write(self, value: Any, pointer: str = "") -> None:
        start = len(self.text)
        if isinstance(value, dict | list):
            self.container(value, pointer)
        else:
            self.text += json.dumps(value, ensure_ascii=self.draw(st.booleans()))
        self.spans[pointer] = (start, len(self.text))

    def container(self, value: Any, pointer: str) -> None:
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        self.text += "{" if isinstance(value, dict) else "["
        self.blank()
        for place, (name, one) in enumerate(pairs):
            if place:
                self.text += ","
                self.blank()
            if isinstance(value, dict):
                self.text += json.dumps(name)
                self.blank()
                self.text += ":"
                self.blank()
            self.write(one, pointer + pointer_to(name))
            self.blank()
        self.text += "}" if isinstance(value, dict) else "]"


@st.composite
def texts(draw: Any) -> tuple[str, Any, Spans]:
    writer, value = Writer(draw), draw(_VALUES)
    writer.blank()
    writer.write(value)
    writer.blank()
    return writer.text, value, writer.spans


def with_value(value: Any, tokens: list[str], new: Any) -> Any:
    """Return the value with one part set, the slow and simple way."""
    if not tokens:
        return new
    if isinstance(value, list):
        return [with_value(one, tokens[1:], new) if str(n) == tokens[0] else one for n, one in enumerate(value)]
    return {**value, tokens[0]: with_value(value.get(tokens[0]), tokens[1:], new)}


def without(value: Any, tokens: list[str]) -> Any:
    if len(tokens) == 1 and isinstance(value, list):
        return [one for n, one in enumerate(value) if str(n) != tokens[0]]
    if len(tokens) == 1:
        return {name: one for name, one in value.items() if name != tokens[0]}
    if isinstance(value, list):
        return [without(one, tokens[1:]) if str(n) == tokens[0] else one for n, one in enumerate(value)]
    return {**value, tokens[0]: without(value[tokens[0]], tokens[1:])}


def is_cut_from(short: str, long: str) -> bool:
    """Whether one stretch taken out of the longer text leaves the shorter."""
    return any(long[:at] + long[at + len(long) - len(short) :] == short for at in range(len(short) + 1))


@settings(max_examples=size(75, 1500), deadline=None)
@given(texts(), _VALUES, st.randoms(use_true_random=False))
def test_setting_a_value_touches_nothing_else(case: tuple[str, Any, Spans], new: Any, random: Any) -> None:
    text, value, spans = case
    pointer = random.choice(sorted(spans))
    start, end = spans[pointer]
    got = changed(text, pointer, new)
    assert json.loads(got) == with_value(value, pointer_tokens(pointer), new)
    assert got[:start] == text[:start]
    assert got[len(got) - (len(text) - end) :] == text[end:]


@settings(max_examples=size(75, 1500), deadline=None)
@given(texts(), _NAMES, _VALUES, st.randoms(use_true_random=False))
def test_a_new_field_is_the_only_new_thing(case: tuple[str, Any, Spans], name: str, new: Any, random: Any) -> None:
    text, value, spans = case
    objects = [pointer for pointer, (start, _) in spans.items() if text[start] == "{"]
    if not objects:
        return
    parent = random.choice(sorted(objects))
    pointer = parent + pointer_to(name)
    if pointer in spans:
        return
    got = changed(text, pointer, new)
    assert json.loads(got) == with_value(value, pointer_tokens(pointer), new)
    assert is_cut_from(text, got)
    if any(other.startswith(f"{parent}/") for other in spans):
        assert remove_value(got.encode(), pointer).decode() == text


@settings(max_examples=size(75, 1500), deadline=None)
@given(texts(), st.randoms(use_true_random=False))
def test_removing_takes_one_stretch_out(case: tuple[str, Any, Spans], random: Any) -> None:
    text, value, spans = case
    pointers = sorted(pointer for pointer in spans if pointer)
    if not pointers:
        return
    pointer = random.choice(pointers)
    got = remove_value(text.encode(), pointer).decode()
    assert json.loads(got) == without(value, pointer_tokens(pointer))
    assert is_cut_from(got, text)

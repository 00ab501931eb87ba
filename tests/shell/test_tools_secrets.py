"""The mask over secrets, in every form in which they are commonly written."""

import base64
import json
from urllib.parse import quote

import pytest

from agentfs.tools.capture import Capture
from agentfs.tools.secrets import SecretMask, is_secret

VALUE = 'p@ss/w"ör d\\1'


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("GITHUB_TOKEN", True),
        ("my_secret_thing", True),
        ("PGPASSWORD", True),
        ("PATH", False),
        ("PASSPORT", False),
    ],
)
def test_which_variables_are_secret(name: str, *, secret: bool) -> None:
    assert is_secret(name) == secret


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        quote(VALUE),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        base64.b64encode(VALUE.encode()).decode().rstrip("="),
    ],
)
def test_every_form_is_masked(form: str) -> None:
    mask = SecretMask({"A_PASSWORD": VALUE, "PATH": "/usr/bin"})
    assert mask.text(f"<{form}> /usr/bin") == "<[secret A_PASSWORD]> /usr/bin"
    assert mask.data(f"<{form}>".encode()) == b"<[secret A_PASSWORD]>"
    assert mask.longest >= len(form.encode())


def test_short_values_and_no_values() -> None:
    mask = SecretMask({"A_KEY": "12345", "B_KEY": ""})
    assert (mask.text("12345"), mask.data(b"12345"), mask.longest) == ("12345", b"12345", 0)


def test_a_value_that_is_part_of_the_mask_itself() -> None:
    assert SecretMask({"A_KEY": "secret", "B_KEY": "abcdef"}).text("secret abcdef") == "secret [secret B_KEY]"


def test_the_longer_of_two_wins() -> None:
    mask = SecretMask({"A_KEY": "abcdef", "B_KEY": "abcdefghi"})
    assert mask.text("abcdefghi abcdef") == "[secret B_KEY] [secret A_KEY]"


def test_nested_values() -> None:
    mask = SecretMask({"A_KEY": "abcdef"})
    value = {"x-abcdef": ["abcdef", 1, None, {"y": "an abcdef"}], "n": True}
    assert mask.value(value) == {
        "x-[secret A_KEY]": ["[secret A_KEY]", 1, None, {"y": "an [secret A_KEY]"}],
        "n": True,
    }


def test_a_value_that_is_not_utf8() -> None:
    mask = SecretMask({"A_KEY": b"caf\xe9-caf\xe9".decode("utf-8", "surrogateescape")})
    assert mask.data(b"x caf\xe9-caf\xe9 y") == b"x [secret A_KEY] y"


@pytest.mark.parametrize("size", range(1, 12))
def test_a_stream_in_pieces_of_any_size(size: int) -> None:
    mask = SecretMask({"A_KEY": "abcdef"})
    stream = b"ab abcdef abcabcdefdef abcde"
    capture = Capture(1000, mask, None)
    known = b"".join(capture.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + capture.end()
    assert known == b"ab [secret A_KEY] abc[secret A_KEY]def abcde"

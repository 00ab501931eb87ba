"""The mask over secrets: which values it hides, in every form in which they are commonly written, and what it leaves."""

import base64
import html
import json
import random
from collections.abc import Iterator
from itertools import product
from math import ceil
from typing import Any, get_args
from urllib.parse import quote, quote_plus

import pytest

from agentfs.core.config import ExecutorSettings, PlannerSettings, Settings, ToolSettings
from agentfs.core.records import (
    Answer,
    CheckResult,
    Failure,
    Foreign,
    GoalChecks,
    JsonObject,
    Outcome,
    Plan,
    Record,
    Result,
    Step,
    Usage,
)
from agentfs.storage.clock import Clock
from agentfs.storage.files import one_line
from agentfs.tools.output import Capture
from agentfs.tools.secrets import SecretMask, is_secret, mask_for

VALUE = 'p@ss/w"ör d\\1'
LONG = "sk-proj-" + "".join(random.Random(7).choices("abcdefghijkMNOPQRSTUVWX0123456789_-", k=48))
PEM = "-----BEGIN KEY-----\n" + "\n".join("MIIE" + letter * 60 for letter in "abc") + "\n-----END KEY-----\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("GITHUB_TOKEN", True),
        ("my_secret_thing", True),
        ("PGPASSWORD", True),
        ("DB_PASSWD", True),
        ("PATH", False),
        ("PASSPORT", False),
        ("AGENTFS_LIMITS_TOKENS", False),
        ("AGENTFS_PLANNER_API_KEY_ENV", False),
    ],
)
def test_which_variables_are_secret(name: str, *, secret: bool) -> None:
    assert is_secret(name) == secret


def test_variables_that_settings_name_are_secret_whatever_they_are_called() -> None:
    settings = Settings(
        planner=PlannerSettings(api_key_env="MY_LLM", base_url="https://me:hidden%2Fword@127.0.0.1/v1"),
        executor=ExecutorSettings(api_key_env="THEIR_LLM"),
        tools=ToolSettings(env=("DATABASE_URL", "HOME", "PYTHONPATH", "LANG")),
    )
    environ = {
        "MY_LLM": "first-key",
        "THEIR_LLM": "second-key",
        "DATABASE_URL": "db://u:p@h/d",
        "HOME": "/home/me",
        "PYTHONPATH": "/srv/lib",
        "LANG": "de_DE.UTF-8",
        "OTHER": "not-named",
    }
    message = "first-key second-key db://u:p@h/d /home/me /srv/lib de_DE.UTF-8 not-named hidden/word"
    assert mask_for(settings, environ, ()).text(message) == (
        "[secret MY_LLM] [secret THEIR_LLM] [secret DATABASE_URL] /home/me /srv/lib de_DE.UTF-8 not-named "
        "[secret planner.base_url]"
    )


@pytest.mark.parametrize("value", [VALUE, LONG, "abcdef", "ghp_1/+", "7f3a9c"])
@pytest.mark.parametrize(
    "write",
    [
        str,
        quote,
        quote_plus,
        html.escape,
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="").lower() if text.lower() == text else quote(text),
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text).replace("/", r"\/")[1:-1],
        lambda text: json.dumps(json.dumps(text))[3:-3],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: repr(text)[1:-1],
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: b64(text).rstrip("="),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    ],
)
def test_every_form_is_masked(value: str, write: Any) -> None:
    mask = SecretMask({"A_PASSWORD": value, "PATH": "/usr/bin"})
    assert mask.text(f"<{write(value)}> /usr/bin") == "<[secret A_PASSWORD]> /usr/bin"
    assert mask.data(f"<{write(value)}>".encode()) == b"<[secret A_PASSWORD]>"


@pytest.mark.parametrize("value", [VALUE, LONG, "abcdef"])
@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_more_than_the_value(value: str, alphabet: Any) -> None:
    """At any alignment; what is left of it holds nothing of the value."""
    mask = SecretMask({"A_KEY": value})
    for user, behind in product(("", "u", "me", "user", "someone@example"), ("", "!", "?!", " and so on")):
        encoded = alphabet(f"{user}:{value}{behind}".encode()).decode()
        before, label, after = mask.text(encoded).partition("[secret A_KEY]")
        assert (label, encoded.startswith(before), encoded.endswith(after)) == ("[secret A_KEY]", True, True)
        assert len(before) <= (len(user) + 1) * 4 / 3
        assert len(after.rstrip("=")) <= ceil(len(behind) * 4 / 3)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    ", r"\n", r"\r\n"])
@pytest.mark.parametrize("encode", [lambda text: text.encode().hex(), b64, str])
def test_a_form_that_was_wrapped(end: str, encode: Any) -> None:
    mask = SecretMask({"A_KEY": LONG})
    for width, before in product((20, 23, 64, 76), range(0, 80, 9)):
        encoded = encode("x" * before + LONG + "y" * before)
        wrapped = end.join(encoded[at : at + width] for at in range(0, len(encoded), width))
        masked = mask.text(f"key:\n{wrapped}\nend")
        assert masked.count("[secret A_KEY]") == 1
        assert len(masked) < 30 + 2.1 * len(end) * (1 + len(encoded) / width) + 2 * len(encode("x" * before))
        assert mask.data(f"key:\n{wrapped}\nend".encode()) == masked.encode()


def test_lines_of_prose_are_not_joined() -> None:
    mask = SecretMask({"A_KEY": "agreement"})
    assert mask.text("they agree\nment\nal") == "they agree\nment\nal"


def test_every_line_of_a_secret_of_several_lines() -> None:
    mask = SecretMask({"A_KEY": PEM})
    line = "MIIE" + "b" * 60
    assert mask.text(f"  {line}\n  other") == "  [secret A_KEY]\n  other"
    assert mask.text(f"<{PEM}>") == "<[secret A_KEY]\n>"
    assert mask.text("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


def test_a_very_long_secret() -> None:
    value = "".join(random.Random(1).choices("abcdefgh0123456789", k=5000))
    assert SecretMask({"A_KEY": value}).text(f"<{value}>") == "<" + "[secret A_KEY]" * 5 + ">"


def test_short_values_and_no_values() -> None:
    """What is shorter than six characters is found in ordinary words and numbers: it is not masked."""
    mask = SecretMask({"A_KEY": "12345", "B_KEY": "", "C_KEY": "  ab  "})
    assert (mask.text("12345 ab"), mask.data(b"12345"), mask.stream().feed(b"12345")) == (
        "12345 ab",
        b"12345",
        b"12345",
    )


def test_blanks_around_a_value_are_not_part_of_it() -> None:
    assert SecretMask({"A_KEY": " abcdef\n"}).text("<abcdef>") == "<[secret A_KEY]>"


def test_a_value_that_is_part_of_the_mask_itself() -> None:
    assert SecretMask({"A_KEY": "secret", "B_KEY": "abcdef"}).text("secret abcdef") == "secret [secret B_KEY]"


def test_the_longer_of_two_wins() -> None:
    mask = SecretMask({"A_KEY": "abcdef", "B_KEY": "abcdefghi"})
    assert mask.text("abcdefghi abcdef") == "[secret B_KEY] [secret A_KEY]"


def test_nested_values() -> None:
    mask = SecretMask({"A_KEY": "abcdef", "PIN_SECRET": "123456"}, fixed=("x-abcdef",))
    value = {"y-abcdef": ["abcdef", 1, None, 123456, {"y": "an abcdef"}], "n": True, "t": "x-abcdef"}
    assert mask.value(value, keys=True) == {
        "y-[secret A_KEY]": ["[secret A_KEY]", 1, None, "[secret PIN_SECRET]", {"y": "an [secret A_KEY]"}],
        "n": True,
        "t": "x-abcdef",
    }
    assert mask.value({"abcdef": "abcdef", "at": "abcdef"}, ours=("at",)) == {
        "abcdef": "[secret A_KEY]",
        "at": "abcdef",
    }


def test_names_that_become_the_same_lose_nothing() -> None:
    mask = SecretMask({"A_KEY": "abcdef"})
    assert mask.value({"abcdef": 1, "YWJjZGVm": 2, "616263646566": 3}, keys=True) == {
        "[secret A_KEY]": 1,
        "[secret A_KEY] 2": 2,
        "[secret A_KEY] 3": 3,
    }


def test_a_value_that_is_not_utf8() -> None:
    mask = SecretMask({"A_KEY": b"caf\xe9-caf\xe9".decode("utf-8", "surrogateescape")})
    assert mask.data(b"x caf\xe9-caf\xe9 y") == b"x [secret A_KEY] y"


# ── records and logs ──────────────────────────────────────────────────────────────────────────────────────

HASH = "0123456789abcdef" * 4
OWN_WORDS = [
    *("failed", "status", "output", "agentfs/result-1", "agentfs", "result", "bubblewrap", "attempt", "first-step"),
    *("message", "abcdef", "123456", "2026-11", "format", "executor", "command", "shell-step", "approve", "deploy"),
]
STEP: dict[str, Any] = {
    "id": "first-step",
    "description": "deploy it",
    "tool": "command",
    "input": {"command": "echo deploy", "status": ["deploy"]},
    "depends_on": [],
    "success_condition": "it is deployed",
    "checks": [{"kind": "command", "run": "test deploy"}, {"kind": "output", "schema": {"type": "object"}}],
    "on_failure": "continue",
    "expects": {"type": "object", "properties": {"status": {"type": "string"}}},
}


def a_result() -> Result:
    return Result(
        run="2026-11-16/deploy",
        step="first-step",
        attempt=1,
        revision=1,
        key=HASH,
        after={"first-step": 1},
        status="failed",
        output={"said": "it failed with status 123456"},
        surprising=True,
        surprise="no output",
        error=Failure(kind="command", message="the command failed", hint="look at output"),
        checks=(CheckResult(kind="command", ok=False, detail="exit status 1"),),
        evidence=("output of command",),
        sandbox="bubblewrap",
        prompt_sha256=HASH,
        usage=Usage(
            role="executor",
            model="m",
            requests=1,
            input_tokens=123456,
            cached_tokens=0,
            output_tokens=1,
            cost_usd=0.123456,
        ),
        started_at="2026-11-16T10:00:00.123456Z",
        ended_at="2026-11-16T10:00:01.123456Z",
        duration_s=1.123456,
    )


def an_answer() -> Answer:
    plan: JsonObject = {"$schema": "../command.json", "goal": "deploy", "status": "approved", "steps": [STEP]}
    return Answer(call=1, verdict="plan", plan=plan, answer="approve it", prompt_sha256=HASH, duration_s=0.5)


@pytest.mark.parametrize("word", OWN_WORDS)
@pytest.mark.parametrize("record", [a_result(), an_answer()])
def test_a_secret_that_is_a_word_of_our_own_breaks_no_record(record: Record, word: str) -> None:
    masked = SecretMask({"A_KEY": word}, fixed=("command",)).record(record)
    again = type(record).model_validate_json(masked.model_dump_json(by_alias=True))
    assert again == masked
    free = {"output", "surprise", "error", "checks", "evidence", "plan", "answer"}
    kept = {name for name in type(record).model_fields if name not in free}
    assert masked.model_dump(include=kept) == record.model_dump(include=kept)
    if isinstance(masked, Answer):
        plan = Plan.model_validate_json(json.dumps(masked.plan))
        step = plan.steps[0]
        assert (step.id, step.tool, plan.status, step.on_failure) == ("first-step", "command", "approved", "continue")
        assert [check.kind for check in step.checks or ()] == ["command", "output"]
        assert isinstance(step.expects, dict)
        assert (step.expects["type"], sorted(step.input or ())) == ("object", ["command", "status"])


def test_what_is_foreign_in_a_record_is_masked() -> None:
    masked = SecretMask({"A_KEY": "failed", "B_KEY": "output"}).record(a_result())
    assert masked.output == {"said": "it [secret A_KEY] with status 123456"}
    assert masked.error == Failure(
        kind="command", message="the command [secret A_KEY]", hint="look at [secret B_KEY]"
    )
    assert (masked.surprise, masked.evidence) == ("no [secret B_KEY]", ("[secret B_KEY] of command",))
    plan = SecretMask({"A_KEY": "deploy"}).record(an_answer()).plan
    assert plan == {
        "$schema": "../command.json",
        "goal": "[secret A_KEY]",
        "status": "approved",
        "steps": [
            {
                **STEP,
                "description": "[secret A_KEY] it",
                "input": {"command": "echo [secret A_KEY]", "status": ["[secret A_KEY]"]},
                "success_condition": "it is [secret A_KEY]ed",
                "checks": [{"kind": "command", "run": "test [secret A_KEY]"}, STEP["checks"][1]],
            }
        ],
    }


OURS = {  # texts in records that are written by agentfs alone: ids, names, words of the format
    "Result": {
        "format",
        "run",
        "step",
        "key",
        "after",
        "status",
        "sandbox",
        "held_before",
        "prompt_sha256",
        "started_at",
        "ended_at",
        "agent",
        "commit",
        "place",
        "host",
        "traceparent",
        "items",
        "skipped_by",
    },
    "Answer": {"format", "verdict", "prompt_sha256"},
    "CheckBefore": {"sha256"},
    "Outcome": {"format", "run", "status", "reason", "blame", "started_at", "ended_at"},
    "ProofOfDone": {"level", "unproven"},
    "StepChecks": {"step"},
    "GoalChecks": {"format", "after"},
    "Failure": {"kind", "cause"},
    "CheckResult": {"kind", "error"},
    "Usage": {"role", "model"},
    "StepsByEnd": {"done", "failed", "skipped", "not_reached"},
    "Plan": {"$schema", "status"},
    "Tools": {"allow", "network", "sandbox", "read", "env", "hosts"},
    "Step": {"id", "tool", "depends_on", "on_failure", "tools", "agent", "place"},
    **{f"{kind}Check": {"kind"} for kind in ("Command", "File", "Output", "Http", "Judge")},
}


def pieces(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from pieces(part)


@pytest.mark.parametrize("record", [Result, Answer, Outcome, GoalChecks, Plan, Step])
def test_every_text_in_a_record_is_foreign_or_ours(record: type[Record]) -> None:
    """A new field has to say which it is."""
    inner = set()
    for name, field in record.model_fields.items():
        parts = [*field.metadata, *pieces(field.annotation)]
        inner |= {part for part in parts if isinstance(part, type) and issubclass(part, Record)} - {record}
        texts = any(part is str or isinstance(part, str) for part in parts)
        foreign = any(isinstance(part, Foreign) for part in parts)
        ours = (field.alias or name) in OURS.get(record.__name__, set())
        assert (name, foreign or ours or not texts or bool(inner), foreign and ours) == (name, True, False)
    for one in inner:
        test_every_text_in_a_record_is_foreign_or_ours(one)


@pytest.mark.parametrize("word", ["stdout", "output", "assistant", "function", "executor", "shell_tool", "2026-11"])
def test_a_line_of_a_log_keeps_its_form(word: str) -> None:
    mask = SecretMask({"A_KEY": word}, fixed=("shell_tool",))
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "shell_tool", "arguments": f'{{"x": "{word}!"}}'},
    }
    fields = {
        "at": "2026-11-16T10:00:00.123456Z",
        "stream": "stdout",
        "text": f"<{word}>",
        "messages": [{"role": "assistant", "content": f"<{word}>", "tool_calls": [call]}],
        "role": "executor",
        "number": 2,
    }
    line = json.loads(one_line("output", fields, mask, Clock()))
    call["function"] = {"name": "shell_tool", "arguments": '{"x": "[secret A_KEY]!"}'}
    message = {"role": "assistant", "content": "<[secret A_KEY]>", "tool_calls": [call]}
    assert line == {"event": "output", **fields, "text": "<[secret A_KEY]>", "messages": [message]}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


def fed(mask: SecretMask, stream: bytes, size: int) -> bytes:
    capture = Capture(1_000_000, mask, None)
    return b"".join(capture.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + capture.end()


@pytest.mark.parametrize("size", range(1, 12))
def test_a_stream_in_pieces_of_any_size(size: int) -> None:
    mask = SecretMask({"A_KEY": "abcdef", "B_KEY": "abcdefghi", "C_KEY": "efgxyz"})
    stream = b"ab abcdef abcabcdefdef abcdefghi abcdefgxyz abcde"
    assert fed(mask, stream, size) == (
        b"ab [secret A_KEY] abc[secret A_KEY]def [secret B_KEY] [secret A_KEY]gxyz abcde"
    )


@pytest.mark.parametrize("size", [1, 7, 19, 76, 77, 200])
def test_a_wrapped_secret_in_a_stream(size: int) -> None:
    mask = SecretMask({"A_KEY": LONG})
    for before in range(0, 80, 7):
        encoded = base64.encodebytes(b"u" * before + LONG.encode() + b"v" * before)
        masked = fed(mask, b"said:\n" + encoded + b"over\n", size)
        assert masked.count(b"[secret A_KEY]") == 1
        assert len(masked) <= 30 + 2 * (before + 3) * 78 / 57  # what is left of the value is a part of a character


def test_whole_lines_are_not_kept_back() -> None:
    """What a program prints is shown when it prints it, but for what may be the beginning of a secret."""
    stream = SecretMask({"A_KEY": LONG, "B_KEY": PEM}).stream()
    assert [stream.feed(line) for line in (b"step 1 done\n", b"ask\n", b"a word: sk-pr", b"oject\n")] == [
        b"step 1 done\n",
        b"ask\n",
        b"a word: ",
        b"sk-project\n",
    ]

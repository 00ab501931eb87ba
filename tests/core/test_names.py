"""Names of files and ids, both ways."""

import pytest

from agentfs.core import paths
from agentfs.core.paths import CallFile, StepFile


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("list.1.json", StepFile("list", 1, "order")),
        ("list.1.log.jsonl", StepFile("list", 1, "log")),
        ("a-b.12.result.json", StepFile("a-b", 12, "result")),
        ("send.1.question.md", StepFile("send", 1, "question")),
        ("send.1.question-2.md", StepFile("send", 1, "question", 2)),
        ("send.1.reply.md", StepFile("send", 1, "reply")),
        ("send.1.reply-3.md", StepFile("send", 1, "reply", 3)),
        ("x.2.again.md", StepFile("x", 2, "again")),
        ("x.2.output.txt", StepFile("x", 2, "output")),
    ],
)
def test_step_files(name: str, file: StepFile) -> None:
    assert paths.parse_step_file(name) == file
    assert paths.step_file(file.step, file.attempt, file.kind, file.nth) == name


@pytest.mark.parametrize(
    "name",
    ["", "x", "x.json", "x.0.json", "x.01.json", "X.1.json", "x.1.txt", "x.1.json~", ".x.1.json.swp", "x.1.json\n",
     "x.1.question-0.md", "-x.1.json", "x.1234567890.json", "x.1.question-2.txt"],
)  # fmt: skip
def test_names_that_are_none_of_ours_under_steps(name: str) -> None:
    assert paths.parse_step_file(name) is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("1.json", CallFile(1, "call")),
        ("1.log.jsonl", CallFile(1, "log")),
        ("1.result.json", CallFile(1, "answer")),
        ("1.plan.1.json", CallFile(1, "plan")),
        ("10.plan.2.json", CallFile(10, "plan", 2)),
        ("2.question.md", CallFile(2, "question")),
        ("2.reply.md", CallFile(2, "reply")),
        ("3.asked.md", CallFile(3, "asked")),
        ("3.checks.json", CallFile(3, "checks")),
    ],
)
def test_call_files(name: str, file: CallFile) -> None:
    assert paths.parse_call_file(name) == file
    assert paths.call_file(file.call, file.kind, file.nth) == name


@pytest.mark.parametrize("name", ["0.json", "1.plan.json", "1.plan.0.json", "a.json", "1.txt", "1"])
def test_names_that_are_none_of_ours_under_planning(name: str) -> None:
    assert paths.parse_call_file(name) is None


def test_revision_files() -> None:
    assert paths.parse_revision_file(paths.revision_file(3)) == (3, "record")
    assert paths.parse_revision_file(paths.revision_plan_file(3)) == (3, "plan")
    assert paths.parse_revision_file("3.txt") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Tidy Invoices", "tidy-invoices"),
        ("  --Ünïcode & 日本--  ", "unicode-riben"),
        ("x" * 100, "x" * 48),
        ("a" * 47 + " b", "a" * 47),
        ("ÄÖ", "ao"),
        ("A\u0308O\u0308", "ao"),
        ("Größe: 5 m²", "grosse-5-m2"),
        ("Счёт за март", "schet-za-mart"),
        ("請求書", "qingqiushu"),
        ("서울 2026", "seoul-2026"),
        ("ß" * 30, "s" * 48),
        ("caf\udce9", "caf"),
        ("…—!", "goal"),
        ("", "goal"),
        ("../../etc/passwd", "etc-passwd"),
    ],
)
def test_run_names(text: str, name: str) -> None:
    assert paths.run_name(text) == name


def test_run_ids() -> None:
    assert paths.is_run_id("2026-11-16/tidy-invoices-2")
    assert not any(
        map(paths.is_run_id, ["2026-11-16", "tidy", "2026-11-16/..", "2026-11-16/A", "2026-1-1/a", "2026-11-16/a\n"])
    )

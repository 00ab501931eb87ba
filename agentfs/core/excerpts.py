"""Long texts made short: head and tail, one line, the line of an output that says what went wrong. Pure.

The first line of a message says what happened; what a program printed follows below it, as far as it is kept. So a
view with room for one line takes the first, and does not have to look for the reason again.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentfs.core.records import CheckResult, Failure
from agentfs.core.text import without_colours


def head_and_tail(text: str, most: int, whole: int = 0) -> str:
    """Return at most so many characters of a text, two thirds from its head, the rest from its tail, saying so.

    `whole`: how long it was before its middle was lost, if that was longer.
    """
    if len(text) <= most:
        return text
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    return f"{head}\n… {max(whole, len(text)) - len(head) - len(tail)} characters cut …\n{tail}"


def as_text(value: Any) -> str:
    """Return a JSON value as a reader wants it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def list_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def fence_text(text: str) -> str:
    """Return a text between fences that nothing inside it can close."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


# ── why something failed ─────────────────────────────────────────────────────────────────────────────────


LINE = 300  # characters of a reason
COMMAND = 120  # of a command that is named in one
OUTPUT = 2000  # of what a program printed
LOGGED = 10  # lines after a stack trace that show that the program went on: it was only logged
_TRACEBACK = re.compile(r"(.*?)(?:Exception Group )?Traceback \(most recent call last\):\s*\Z")  # Python
_FRAME = re.compile(r"\s+(?:at \S.*(?:\(|:\d)|from \S+:\d+:in |\.\.\. \d+ more)")  # JavaScript, Java, C#, Ruby
_PANIC = re.compile(r"(?:panic|fatal error): ")  # Go


def telling_line(output: str) -> str:
    """Return the line of an output that says what went wrong: of a stack trace the exception, else the last one."""
    lines = [line.rstrip() for line in output.splitlines()]
    place = max(_exceptions(lines), default=(-1, ""))
    after = [line.strip() for line in lines[place[0] + 1 :] if _says_something(line)]
    if place[1] and len(after) <= LOGGED:
        return _ends_of(place[1], LINE)
    return _ends_of(after[-1], LINE) if after else ""


def _exceptions(lines: Sequence[str]) -> Iterable[tuple[int, str]]:
    """Yield where the exceptions of stack traces are, and what they say."""
    for number, line in enumerate(lines):
        if header := _TRACEBACK.match(line):
            yield from _below(lines, number + 1, len(header[1]))
        elif _FRAME.match(line) and _says_something(before := lines[max(0, number - 1)]) and not _FRAME.match(before):
            yield number - 1, before.strip()
        elif line.startswith("goroutine ") and line.endswith("]:"):
            yield from ((n, found) for n, found in enumerate(lines[:number]) if _PANIC.match(found))


def _below(lines: Sequence[str], start: int, margin: int) -> Iterable[tuple[int, str]]:
    """Yield the first line that is not indented below a traceback's own: its frames are."""
    for number in range(start, len(lines)):
        text = lines[number][margin:]
        if text and not text[0].isspace():
            yield number, text
            return


def _says_something(line: str) -> bool:
    return any(map(str.isalnum, line))


def with_output(what: str, output: str) -> str:
    """Return what happened and the line of the output that says why, with the end of the output below it."""
    output = without_colours(output)
    text, line = output.strip(), telling_line(output)
    said = f"{what}: {line}" if line else what
    if text in ("", line):
        return said
    return f"{said}\n{'…' if len(text) > OUTPUT else ''}{text[-OUTPUT:]}"


def reason(message: str) -> str:
    """Return the line of a message that says what happened."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "no reason given")


def join_messages(messages: Iterable[str]) -> str:
    """Return several messages as one: all that happened on its first line, what programs printed below."""
    parts = [message.partition("\n") for message in messages]
    return "\n".join(["; ".join(head for head, _, _ in parts), *(body for _, _, body in parts if body)])


def shorten(message: str, most: int) -> str:
    """Return a message of about so many characters: its first line and its end, saying what is left out."""
    if len(message) <= most:
        return message
    head, _, body = message.partition("\n")
    head = head[:most]
    tail = body[len(body) - max(0, most - len(head)) :] if len(head) < most else ""
    left = len(message) - len(head) - len(tail)
    return "\n".join(filter(None, [head, f"[… {left} characters left out …]", tail.partition("\n")[2] or tail]))


def check_words(check: CheckResult) -> str:
    """Return what a check found, its command named."""
    return f"`{_ends_of(' '.join(check.run.split()), COMMAND)}`: {check.detail}" if check.run else check.detail


def hints_of(checks: Iterable[CheckResult]) -> str | None:
    """Return what to do about checks that failed, each hint once; None where there is none."""
    return "; ".join(dict.fromkeys(check.hint for check in checks if check.hint)) or None


def _ends_of(line: str, most: int) -> str:
    """Return a line; of a long one the beginning, and more of the end, where the news is."""
    head = most // 3
    return line if len(line) <= most else f"{line[:head]} … {line[head + 3 - most :]}"


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long something is given, and by what."""

    seconds: float
    by: Literal["step", "check"] = "step"

    def failure(self, what: str = "it did not end", then: str = "") -> Failure:
        """Return that the time was up, how long it was, and where to give more."""
        message = f"{what} within {self.seconds:g} s{then}"
        more = self.seconds * 2
        hint = (
            f'give it more time: the line `timeout: {more:g}s` in the runbook, or "timeout_s": {more:g} in plan.json'
            if self.by == "step"
            else "no check is given more: let a step do what takes so long, and check what it made"
        )
        return Failure(kind="timeout", message=message, hint=hint)

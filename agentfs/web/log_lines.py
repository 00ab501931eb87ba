"""Lines of a log as people read them: the time, what happened, a program's own colours. Reads only."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from agentfs.core.text import inert, log_entry
from agentfs.storage.safe_open import reading
from agentfs.web.html import Child, Html, el

TAIL_BYTES = 128 * 1024
MOST_LINE = 4_000  # characters of one line
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
COLOURS = {30 + n: f"c{n}" for n in range(8)} | {90 + n: f"c{n}" for n in range(8)}


def log_els(source: bytes) -> list[Html]:
    """Return the lines of a log; what a program printed piece by piece of one line is joined."""
    found = []
    for (at, event, is_output), pieces in itertools.groupby(_entries(source), key=lambda one: one[:3]):
        texts = [words for *_, words in pieces]
        if not is_output:
            found += [
                el("li", _at(at), " ", el("b", event), " ", inert(words)[:MOST_LINE], class_="event")
                for words in texts
            ]
            continue
        kind = event if event in ("stdout", "stderr") else "other"
        lines = "".join(texts).rstrip("\n").split("\n")
        found += [
            el("li", _at(at), " ", el("span", colour_output(line[:MOST_LINE]), class_=f"out {kind}"))
            for line in lines
        ]
    return found


def _entries(source: bytes) -> Iterator[tuple[str, str, bool, str]]:
    """Yield when something happened, what or on which stream, whether it was printed, and its words."""
    for line in source.splitlines():
        if entry := log_entry(line):
            at, event, words = entry
            stream = event.removeprefix("output ")
            yield at, stream, stream != event, words


def _at(at: str) -> Html:
    return el("span", at, class_="at")


def colour_output(text: str) -> Iterator[Child]:
    """Yield a program's output with the colours it asked for; nothing else that it asks of a terminal is done."""
    style, place = "", 0
    text = _ESCAPES.sub("", text)
    for match in _SGR.finditer(text):
        yield from _piece(text[place : match.start()], style)
        style, place = _style_of(style, match[1]), match.end()
    yield from _piece(text[place:], style)


def _piece(text: str, style: str) -> Iterator[Child]:
    if text:
        yield el("span", text, class_=style) if style else text


def _style_of(style: str, codes: str) -> str:
    for code in codes.split(";"):
        number = int(code) if code.isascii() and code.isdigit() and len(code) < 4 else 0
        if number == 0:
            style = ""
        elif number == 1:
            style = f"{style} bold".strip()
        elif number in COLOURS:
            style = " ".join([*(word for word in style.split() if word == "bold"), COLOURS[number]])
    return style


def tail(path: Path, before: int | None = None) -> tuple[list[Html], int, int]:
    """Return the last lines of a log before an offset, where they begin, and where they end."""
    try:
        with reading(path) as file:
            size = file.seek(0, 2)
            end = size if before is None else min(before, size)
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            source = file.read(end - start)
    except OSError:
        return [], 0, 0
    if start:
        cut = source.find(b"\n") + 1
        start, source = start + cut, source[cut:]
    whole = source[: source.rfind(b"\n") + 1]
    return log_els(whole), start, start + len(whole)

"""A log of JSON lines, written as it goes: appended to, never edited, with secrets hidden."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentfs.core.mask import Mask
from agentfs.storage.clock import Clock
from agentfs.storage.files import write_all
from agentfs.storage.safe_open import lines_of, read_text
from agentfs.storage.system import flags

_APPEND = flags("O_WRONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_APPEND", "O_CREAT", "O_CLOEXEC", "O_BINARY")
_TEXT = json.JSONEncoder(ensure_ascii=False)
# What is in these fields of a line is agentfs's own, and never masked: names, hashes, and words of the format.
OURS = frozenset(
    ("at", "host", "boot_id", "key", "thing", "what", "file", "kind", "role", "type", "stream", "status")
)


def one_line(event: str, fields: Mapping[str, Any], mask: Mask, clock: Clock) -> bytes:
    """Return one line of a log."""
    line = _TEXT.encode({"event": event, "at": clock.stamp(), **mask.value(dict(fields), ours=OURS)})
    return line.encode("utf-8", "replace") + b"\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that can be read; the last may be torn, and there may be no log yet."""
    try:
        for line in lines_of(path):
            if (entry := _entry(line)) is not None:
                yield entry
    except FileNotFoundError:
        return


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


class JsonLines:
    """Appends to a file that is made with its first line."""

    def __init__(self, path: Path, mask: Mask, clock: Clock) -> None:
        self.path, self._mask, self._clock = path, mask, clock
        self._descriptor: int | None = None

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _APPEND, 0o644)
        write_all(self._descriptor, one_line(event, fields, self._mask, self._clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


LARGEST_OUTPUT = 64 * 1024 * 1024


def whole_output(path: Path) -> Any:
    """Return an output that did not fit into its result: the value if it is a JSON object or array, else the text."""
    text = read_text(path, LARGEST_OUTPUT)
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(text)
    return text.removesuffix("\n")

"""Takes an output as it comes: masks it, keeps head and tail, and puts the whole into a file when it is long.

Touches nothing but that one file, which must not exist yet.
"""

import codecs
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentfs.core.mask import Mask
from agentfs.core.values import NotJson, json_value
from agentfs.tools.base import StepContext, ToolResult


class Capture:
    """At most `keep` bytes in memory, however long the output is."""

    def __init__(self, keep: int, mask: Mask, file: Path | None) -> None:
        self.total = 0  # bytes after masking
        self.valid = True  # as UTF-8
        self._keep, self._stream, self._file = keep, mask.stream(), file
        self._head, self._tail = bytearray(), bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._fd: int | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return what of the output is now known, masked."""
        return self._keep_some(self._stream.feed(chunk))

    def end(self) -> bytes:
        """Take what was held back; return it."""
        last = self._keep_some(self._stream.end())
        self._check(b"", final=True)
        if not self.valid and self._fd is None:
            self._spill()  # the exact bytes are worth keeping, however few
        if self._fd is not None:
            os.fsync(self._fd)  # a result will refer to it
        self.close()
        return last

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._file = None, None

    @property
    def cut(self) -> bool:
        return self.total > self._keep

    @property
    def spilled(self) -> bool:
        return self.cut or not self.valid

    def tail(self) -> str:
        """Return the end of the output as text."""
        return _trim_start(bytes(self._tail[-self._keep :] if self.cut else self._head)).decode("utf-8", "replace")

    def text(self, file: str) -> str:
        """Return the output as text; when it is too long, its head and its tail, naming the file with the whole."""
        if not self.cut:
            return self._head.decode("utf-8", "replace")
        half = self._keep // 2
        head, tail = _trim_end(bytes(self._head[:half])), _trim_start(bytes(self._tail[half - self._keep :]))
        gap = f"\n… {self.total - len(head) - len(tail)} bytes cut; the whole output is in steps/{file} …\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")

    def _keep_some(self, known: bytes) -> bytes:
        self.total += len(known)
        self._check(known)
        room = self._keep - len(self._head)
        if self.cut and self._fd is None:
            self._spill()
        self._head += known[: max(0, room)]
        self._tail += known
        if len(self._tail) > 4 * self._keep:
            del self._tail[: -self._keep]
        self._write(known)
        return known

    def _check(self, known: bytes, *, final: bool = False) -> None:
        try:
            if self.valid:
                self._decoder.decode(known, final)
        except UnicodeDecodeError:
            self.valid = False

    def _spill(self) -> None:
        """Begin the file with all there is so far, which is still in the head."""
        if self._file is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._file, flags, 0o644)
            self._write(bytes(self._head))

    def _write(self, known: bytes) -> None:
        rest = memoryview(known)
        while self._fd is not None and rest:
            rest = rest[os.write(self._fd, rest) :]


@contextlib.contextmanager
def capturing(context: StepContext) -> Iterator[Capture]:
    """Yield what captures a tool's output, to its end."""
    capture = Capture(context.output_bytes, context.mask, context.output_file)
    try:
        yield capture
        capture.end()
    finally:
        capture.close()


def text_result(text: str, context: StepContext) -> ToolResult:
    """Return a text as a tool's result: masked, and cut when it is too long."""
    source = text.encode("utf-8", "replace")
    whole = context.mask.text(source.decode("utf-8"))
    if len(whole.encode("utf-8", "replace")) <= context.output_bytes:
        return ToolResult(whole)
    with capturing(context) as capture:
        capture.feed(source)
    return ToolResult(capture.text(context.output_file.name), cut=capture.cut)


def value_result(value: Any, context: StepContext) -> ToolResult:
    """Return a JSON value as a tool's result: itself, or cut text when it is too long."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    if len(text.encode("utf-8", "replace")) > context.output_bytes:
        return text_result(text, context)
    return ToolResult(context.mask.value(value, keys=True))


def json_or_text(text: str, *, is_json: bool = False) -> Any:
    """Return the JSON value that a text is, by default only an object or an array; else the text itself."""
    if is_json or text.lstrip().startswith(("{", "[")):
        with contextlib.suppress(NotJson):
            return json_value(text)
    return text


def _trim_end(part: bytes) -> bytes:
    """Drop a character that was cut in its middle; bytes that are no text stay."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(part[-4:])
    return part.removesuffix(decoder.getstate()[0])


def _trim_start(part: bytes) -> bytes:
    skip = 0
    while skip < min(3, len(part)) and part[skip] & 0xC0 == 0x80:
        skip += 1
    return part[skip:]


class OutputLog:
    """Writes output into the attempt's log, up to a bound; then one line that says so."""

    def __init__(self, context: StepContext) -> None:
        self._context, self._room = context, context.output_bytes
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def output(self, name: str, known: bytes) -> None:
        if not known or self._room <= 0:
            return
        text = self._decoders[name].decode(known[: self._room])
        self._room -= len(known)
        if text:
            self._context.log("output", {"stream": name, "text": text})
        if self._room <= 0:
            self._context.log(
                "output", {"stream": name, "text": "… the rest of the output is not logged …", "cut": True}
            )

    def finish(self) -> None:
        for name, decoder in self._decoders.items():
            if self._room > 0 and (text := decoder.decode(b"", final=True)):
                self._context.log("output", {"stream": name, "text": text})

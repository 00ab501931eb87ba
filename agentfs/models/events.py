"""Server-sent events out of bytes, however they arrive. Pure, and bounded: no event is larger than it may be."""

from dataclasses import dataclass, field

LARGEST_EVENT = 8 * 1024 * 1024


class TooLarge(Exception):
    """One event is larger than anything a model says."""


@dataclass(slots=True)
class Events:
    """Collects bytes and gives out the text of each whole event."""

    largest: int = LARGEST_EVENT
    _rest: bytearray = field(default_factory=bytearray)
    _lines: list[bytes] = field(default_factory=list)

    def feed(self, piece: bytes) -> list[str]:
        """Return the events that are whole now."""
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        events = [event for line in lines for event in self._line(bytes(line).rstrip(b"\r"))]
        if len(self._rest) + sum(map(len, self._lines)) > self.largest:
            raise TooLarge
        return events

    def end(self) -> list[str]:
        """Return what a server that forgot the last empty line left."""
        line, self._rest = bytes(self._rest), bytearray()
        return [*self._line(line), *self._line(b"")]

    def _line(self, line: bytes) -> list[str]:
        """Take one line; an empty one ends an event. Comments and other fields carry nothing for us."""
        if line.startswith(b"data:"):
            self._lines.append(line[5:].removeprefix(b" "))
        if line or not self._lines:
            return []
        text = b"\n".join(self._lines).decode("utf-8", "replace")
        self._lines.clear()
        return [text]

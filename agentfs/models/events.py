"""Server-sent events out of bytes, however they arrive. Pure and linear; no event is larger than it may be."""

from dataclasses import dataclass, field

from agentfs.models.bounding import TooLarge

LARGEST_EVENT = 8 * 1024 * 1024
LINE_COSTS = 64  # bytes that a line takes beside its own


@dataclass(slots=True)
class Events:
    """Collects bytes and gives out the text of each whole event."""

    largest: int = LARGEST_EVENT
    _rest: bytearray = field(default_factory=bytearray)  # of the line that has not ended yet
    _lines: list[bytes] = field(default_factory=list)  # of the event that has not ended yet
    _held: int = 0  # bytes of these

    def feed(self, piece: bytes) -> list[str]:
        """Return the events that are whole now."""
        events: list[str] = []
        *ends, rest = piece.split(b"\n")  # the new bytes only: what is held is never looked at again
        for end in ends:
            self._hold(end)
            events += self._line(bytes(self._rest).rstrip(b"\r"))
            self._rest.clear()
        self._hold(rest)
        return events

    def end(self) -> list[str]:
        """Return what a server that forgot the last empty line left."""
        return [*self._line(bytes(self._rest)), *self._line(b"")]

    def _hold(self, piece: bytes) -> None:
        self._rest += piece
        if len(self._rest) + self._held > self.largest:
            raise TooLarge

    def _line(self, line: bytes) -> list[str]:
        """Take one line; an empty one ends an event. Comments and other fields carry nothing for us."""
        if line.startswith(b"data:"):
            self._lines.append(line[5:].removeprefix(b" "))
            self._held += len(line) + LINE_COSTS
        if line or not self._lines:
            return []
        text = b"\n".join(self._lines).decode("utf-8", "replace")
        self._lines.clear()
        self._held = 0
        return [text]

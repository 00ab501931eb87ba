"""One line of text while a person types it: what the keys of a terminal do to it. Pure: bytes in, lines out.

Keys: arrows, Home, End, Delete, Backspace, Ctrl-A, -E, -K, -U, -W; Enter ends the line; Ctrl-D on an empty line is
the end of input. What is pasted is text: a line break in it does not end the line.
"""

import codecs
import re
from dataclasses import dataclass, field

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"  # terminals that know it put marks around what is pasted
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\[O])|[^\x1b]", re.DOTALL)
_ALIASES = {
    "\x1b[C": "\x06", "\x1bOC": "\x06",  # right
    "\x1b[D": "\x02", "\x1bOD": "\x02",  # left
    "\x1b[H": "\x01", "\x1bOH": "\x01", "\x1b[1~": "\x01",
    "\x1b[F": "\x05", "\x1bOF": "\x05", "\x1b[4~": "\x05",
    "\x1b[3~": "\x04", "\b": "\x7f", "\n": "\r",
}  # fmt: skip
_LAST_WORD = re.compile(r"\S+\s*\Z|\s+\Z")
_MOST = 1_000_000  # characters of a line: what comes beyond is dropped


@dataclass(slots=True)
class LineEditor:
    """A line, where its cursor is, and keys that are only half there."""

    text: str = ""
    cursor: int = 0
    _partial: str = ""
    _pasting: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, typed: bytes) -> list[str | None]:
        """Take what was typed; return the lines it completes, None for each end of input."""
        keys, self._partial = self._partial + self._decoder.decode(typed), ""
        found: list[str | None] = []
        place = 0
        while place < len(keys):
            match = _KEY.match(keys, place)
            if match is None:
                self._partial = keys[place:]  # an escape sequence whose end is yet to come
                break
            place = match.end()
            self._press(match[0], found)
        return found

    def _press(self, key: str, found: list[str | None]) -> None:
        if key in (_PASTE_BEGINS, _PASTE_ENDS):
            self._pasting = key == _PASTE_BEGINS
        elif self._pasting:
            self._insert("\n" if key == "\r" else key)
        elif (key := _ALIASES.get(key, key)) == "\r":
            found.append(self.text)
            self.text, self.cursor = "", 0
        elif key == "\x04" and not self.text:
            found.append(None)
        elif key.isprintable():
            self._insert(key)
        else:
            self._edit(key)

    def _insert(self, text: str) -> None:
        if (text.isprintable() or text in "\n\t") and len(self.text) < _MOST:
            self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
            self.cursor += len(text)

    def _edit(self, key: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        match key:
            case "\x06":
                before, after = before + after[:1], after[1:]
            case "\x02":
                before, after = before[:-1], before[-1:] + after
            case "\x01":
                before, after = "", before + after
            case "\x05":
                before, after = before + after, ""
            case "\x7f":
                before = before[:-1]
            case "\x04":
                after = after[1:]
            case "\x0b":
                after = ""
            case "\x15":
                before = ""
            case "\x17":
                before = _LAST_WORD.sub("", before)
        self.text, self.cursor = before + after, len(before)

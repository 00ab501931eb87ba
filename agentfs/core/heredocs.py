"""Here-documents in shell text: the word after <<, and where the text ends. Pure."""

import re
from dataclasses import dataclass

_NAME_ENDS = " \t\n;&|<>()"
_ODD_NAME = re.compile(r"[$`\n{]|['\"].*\\|\\.*['\"]|\\\Z")
_QUOTES = re.compile(r"['\"\\]")


@dataclass(frozen=True, slots=True)
class HereDocument:
    """A here-document whose text is still to come."""

    name: str  # the line that ends it
    tabs: bool  # <<-: tabs before the name do not count
    quoted: bool  # a backslash in its text is only a backslash
    odd: bool  # a name that shells may read differently


def word_after(text: str, at: int, *, tabs: bool) -> tuple[HereDocument, int]:
    """Return the here-document that the word at or after a position begins, and where that word ends."""
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    end, quote = at, ""
    while end < len(text) and (quote or text[end] not in _NAME_ENDS):
        if text[end] == quote:
            quote = ""
        elif not quote and text[end] in "'\"":
            quote = text[end]
        end += 1
    written = text[at:end]
    name = _QUOTES.sub("", written)
    odd = bool(quote or _ODD_NAME.search(written) or not name)
    return HereDocument(name, tabs, quoted=name != written, odd=odd), end


def text_of(text: str, at: int, document: HereDocument) -> tuple[int, bool]:
    """Return where a here-document ends, and whether its name stood on a continued line before."""
    joined = continued = False
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        at = end + 1
        if (line.lstrip("\t") if document.tabs else line) == document.name:
            if not joined:
                break
            continued = True
        joined = not document.quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
    return at, continued

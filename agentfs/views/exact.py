r"""Text in which nothing is hidden: what differs looks different. Pure, and quick to import.

A line is shown as it is where that leaves no doubt, and else as JSON: `"echo a "`, `"\techo"`, `"no\u00a0break"`.
Lines that differ and would look alike are shown in ASCII alone.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)  # Unicode calls them printable, and nothing is seen of them
_TWINS = str.maketrans(
    dict(zip("аеорсухіјѕԁһӏԛԝАВЕКМНОРСТХУІЈЅԌ", "aeopcyxijsdhlqwABEKMHOPCTXYIJSG", strict=True))  # noqa: RUF001
    | dict(zip("αορνυικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aopvuikABEZHIKMNOPTYX", strict=True))
    | dict(zip("ıɡɑ‐‑‒–—−‘’‚′“”„″⁄∕∣ǃ։׃∶", "iga------''''\"\"\"\"//|!:::", strict=True))  # noqa: RUF001
)


def exact(line: str) -> str:
    """Return a line as it is, or as JSON where a reader could take it for another."""
    plain = line.isprintable() and not line.endswith(" ") and not _UNSEEN.search(line)
    return line if plain and not (line.startswith('"') and is_json(line)) else quoted(line)


def is_json(text: str) -> bool:
    """Whether a text could be taken for a value that is no text."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def quoted(text: str) -> str:
    """Return a text as JSON, what nobody would see as escapes."""
    shown = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() and not _UNSEEN.match(c) else json.dumps(c)[1:-1] for c in shown)


def in_ascii(text: str) -> str:
    """Return a text as JSON in which every sign beyond ASCII is an escape."""
    return json.dumps(text)


def look(line: str) -> str:
    """Return what a reader sees of a line: the same for two that look alike."""
    seen = _UNSEEN.sub("", "".join(_seen(character) for character in line.expandtabs(4)))
    return unicodedata.normalize("NFKC", seen).translate(_TWINS).rstrip()


def _seen(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ""


def look_alikes(lines: Iterable[str]) -> frozenset[str]:
    """Return the looks that several lines share which differ."""
    counts = Counter(map(look, set(lines)))
    return frozenset(seen for seen, count in counts.items() if count > 1)

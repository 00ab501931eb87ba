"""Read TOML into a document that knows where its keys stand. Pure."""

import re
import tomllib

from agentfs.core.documents import Document
from agentfs.core.problems import Problem, Rejected

_TABLE = re.compile(r"\s*\[([^\[\]]+)\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")
_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")


def read_toml(source: bytes) -> Document:
    """Return the value of a TOML file; raise `Rejected` where it is none."""
    try:
        text = source.decode("utf-8-sig")
        value = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise Rejected([Problem("the file is not UTF-8", f"byte {error.start} is not text")]) from None
    except tomllib.TOMLDecodeError as error:
        raise Rejected([_syntax(str(error), source)]) from None
    places = _places(text)

    def locate(pointer: str, key: bool = False) -> tuple[int, int]:
        parts = pointer.split("/")
        while len(parts) > 1 and "/".join(parts) not in places:
            parts.pop()
        return places.get("/".join(parts), (1, 1))

    return Document(value, locate)


def _syntax(message: str, source: bytes) -> Problem:
    place = _PLACE.search(message)
    words = _PLACE.sub("", message).strip()
    if place and place[1]:
        return Problem(words, "see toml.io for the format", line=int(place[1]), column=int(place[2]))
    return Problem(words, "see toml.io for the format", line=source.count(b"\n") + 1)


def _places(text: str) -> dict[str, tuple[int, int]]:
    """Return where each key stands, by its JSON pointer."""
    found: dict[str, tuple[int, int]] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.match(line):
            table = "/" + "/".join(part.strip().strip('"') for part in match[1].split("."))
            found[table] = (number, line.index("[") + 1)
        elif match := _KEY.match(line):
            found[f"{table}/{match[1]}"] = (number, match.start(1) + 1)
    return found

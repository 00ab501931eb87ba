"""Looks for a regular expression, in a process of its own: a pattern that explodes can be ended from outside.

Run as a script: on stdin {"pattern", "folder": the number of an open folder, "paths", "most", "width"},
on stdout the hits; or {"pattern", "text"}, and whether it matches anywhere.
Imports only what opens files safely: it has to start quickly.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))  # the last: nothing that lies there takes the place of a package

from agentfs.storage.safe_open import read_regular

LARGEST = 64 * 1024 * 1024


def read(folder: int, path: str) -> bytes | None:
    """Return a regular file's bytes; None if it is none, or too large."""
    if stat.S_ISREG(os.fstat(folder).st_mode):  # the one file that is searched, already open
        return os.read(folder, LARGEST)
    try:
        return read_regular(path, LARGEST, folder=folder)
    except OSError:
        return None


def hits(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every line that the pattern matches, text files only."""
    pattern = re.compile(asked["pattern"])
    for path in asked["paths"]:
        content = read(asked["folder"], path)
        if content is None or b"\0" in content[:8192]:
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                yield {"path": path, "line": number, "text": line[: asked["width"]]}


def main() -> None:
    asked = json.load(sys.stdin)
    if "text" in asked:
        found: Any = re.search(asked["pattern"], asked["text"], re.MULTILINE) is not None
    else:
        found = [hit for hit, _ in zip(hits(asked), range(asked["most"]), strict=False)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

"""Answers one question that may take for ever, in a process of its own that can be ended from outside.

Run as a script, the question on stdin, the answer on stdout (`process.ask`):
{"pattern", "folder": the number of an open folder, "paths", "most", "width"}: lines that match an expression
{"pattern", "text"}: whether it matches anywhere
{"schema", "value"}: how a value violates a JSON Schema, or null
It has to start quickly, and imports what opens files safely; a validator only where one is needed.
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


def answer(asked: dict[str, Any]) -> Any:
    if "schema" in asked:
        from agentfs.core.conformance import mismatch

        return mismatch(asked["schema"], asked["value"])
    if "text" in asked:
        return re.search(asked["pattern"], asked["text"], re.MULTILINE) is not None
    return [hit for hit, _ in zip(hits(asked), range(asked["most"]), strict=False)]


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)

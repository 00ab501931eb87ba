"""What a person's git runs to show plan.json by meaning. Started by its path: it needs no PATH.

    gitdiff.py diff PATH OLD-FILE …    for `git diff`: what `agentfs diff` prints of these two plans
    gitdiff.py text PID FILE           for `git log -p` and `git show`: one plan as lines that git compares itself

Reads only. If anything fails the exit code says so, nothing has been printed, and git shows the file as it is.
"""

import os
import sys
from pathlib import Path

RAW = {b"--no-ext-diff", b"blame", b"annotate"}  # git is asked for the file's own lines, but calls us all the same


def main(words: list[str]) -> int:
    """Print one of the two; the exit code is 0 only if all of it could be made."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    match words:
        case ["diff", path]:
            text = f"* Unmerged path {path}\n".encode()
        case ["diff", path, old, _, _, new, *_]:
            text = _compare(path, Path(old).read_bytes(), Path(new).read_bytes())
        case ["text", pid, path]:
            text = _text(pid, Path(path).read_bytes())
        case _:
            return 2
    sys.stdout.buffer.write(text)
    return 0


def _text(pid: str, source: bytes) -> bytes:
    from agentfs.core.plan_diff import plan_text

    return source if RAW & _words_of(pid) else plan_text(source).encode("utf-8", "replace")


def _words_of(pid: str) -> set[bytes]:
    """Return what the git that calls us was called with: `--no-ext-diff` does not reach us in any other way."""
    try:
        return set(Path(f"/proc/{int(pid)}/cmdline").read_bytes().split(b"\0"))
    except (OSError, ValueError):
        return set()


def _compare(path: str, old: bytes, new: bytes) -> bytes:
    from agentfs.commands.history import between

    lines = between(Path.cwd() / path, old, new, colours=_colours())
    return "".join(f"{line}\n" for line in [*lines, ""]).encode("utf-8", "replace")


def _colours() -> bool:
    """Whether a terminal is at the other end, if only behind a pager."""
    seen = sys.stdout.isatty() or os.environ.get("GIT_PAGER_IN_USE") == "true"
    return seen and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

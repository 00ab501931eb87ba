"""Draw docs/run.svg: what a terminal shows when the example `migration` is run.

    .venv/bin/python scripts/picture.py [FILE]

The example runs in a temporary folder, on a pseudo-terminal. What it prints becomes lines of SVG text, in the colours
that the terminal would show. The folder's name becomes /tmp; nothing else is changed.
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

REPO = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 120, 40
COMMANDS = ("agentfs run goal.md", "git -C runs log --format=%s")
SECONDS = 120
CELL, LINE, MARGIN = 8.4, 20, 20  # pixels; a cell is 0.6 of the font's size
BACKGROUND, FOREGROUND = "#0d1117", "#e6edf3"
STYLES = {
    "1": 'font-weight="bold"',
    "2": 'fill="#8b949e"',
    "31": 'fill="#ff7b72"',
    "32": 'fill="#3fb950"',
    "33": 'fill="#d29922"',
    "36": 'fill="#39c5cf"',
}
FRAME_BEGINS, FRAME_ENDS = "\x1b[?2026h", "\x1b[?2026l"
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER_SEQUENCE = re.compile(r"\x1b\[[?0-9;]*[A-Za-ln-z]|\r")


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs" / "run.svg"
    with tempfile.TemporaryDirectory() as folder:
        lines = list(record(Path(folder)))
    target.write_text(draw(lines), encoding="utf-8")


def record(folder: Path) -> Iterator[str]:
    """Run the commands in a copy of the example; yield the lines that stand on the terminal at the end."""
    place = shutil.copytree(REPO / "examples" / "migration", folder / "migration")
    subprocess.run([sys.executable, "shop/setup.py"], cwd=place, check=True)
    for command in COMMANDS:
        yield f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m"
        yield from last_screen(on_terminal(command, place).replace(str(folder), "/tmp"))  # noqa: S108 - only shown
        yield ""


def on_terminal(command: str, folder: Path) -> str:
    """Return all that a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder.parent),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "GIT_PAGER": "cat",
    }
    started = subprocess.Popen(
        command.split(), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b"".join(iter(lambda: read(ours), b""))
    os.close(ours)
    if started.wait(SECONDS):
        sys.exit(f"`{command}` ended with {started.returncode}:\n{written.decode()}")
    return written.decode()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last writer is gone
        return b""


def last_screen(written: str) -> Iterator[str]:
    """Yield the lines of what was written, of frames drawn over each other only the last."""
    before, begins, rest = written.partition(FRAME_BEGINS)
    frames, _, after = rest.rpartition(FRAME_ENDS)
    shown = before + frames.rpartition(FRAME_BEGINS)[2] + after if begins else before
    yield from _OTHER_SEQUENCE.sub("", shown).rstrip("\n").split("\n")


def draw(lines: list[str]) -> str:
    """Return the picture of a terminal that shows these lines."""
    while not lines[-1]:
        lines = lines[:-1]
    width, height = round(COLUMNS * CELL) + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    texts = (
        f'<text y="{MARGIN + number * LINE + 14}">{spans(line)}</text>' for number, line in enumerate(lines) if line
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
            f'  width="{width}" height="{height}"',
            f'  font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="{FOREGROUND}">',
            "<title>agentfs runs a migration; its third step fails and an alternative takes its place</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            '<g xml:space="preserve">',
            *texts,
            "</g>",
            "</svg>",
            "",
        )
    )


def spans(line: str) -> str:
    """Return a line as spans, each at its column: no font can push the next one aside."""
    found, style, column = [], "", 0
    for number, piece in enumerate(_COLOUR.split(line)):
        if number % 2:
            style = " ".join(STYLES[code] for code in piece.split(";") if code in STYLES)
            continue
        if piece.strip():
            start = MARGIN + (column + len(piece) - len(piece.lstrip())) * CELL
            found.append(f'<tspan x="{start:.1f}"{f" {style}" if style else ""}>{escape(piece.strip())}</tspan>')
        column += len(piece)
    return "".join(found)


if __name__ == "__main__":
    main()

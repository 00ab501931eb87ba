"""Text for people: made inert, cut to a width, in columns, shown exactly; how states look. Quick to import.

Nothing a terminal would obey gets through. Where two texts are compared, what differs looks different: a line is
shown as it is where that leaves no doubt, and else as JSON; lines that would look alike are shown in ASCII alone.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

ELLIPSIS = "…"
NARROW = "\u0300"  # every character before this one takes one column
ROWS = 4  # of a terminal that one line of a log may take
GREEN, RED, YELLOW, CYAN = 32, 31, 33, 36  # colours, by their ANSI numbers
BOLD, DIM = 1, 2  # in the place of a colour
_KERNEL = ("driver", "pgid", "start_time", "boot_id")  # of a claim: for finding survivors, not for people
_NOT_PLAIN = re.compile(r"[^ -~]")
_SEQUENCE = re.compile(r"\x1b\[[0-9;:?]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")  # what a program asks of a terminal
_SPACES = re.compile(r"\s+")


def inert(text: str) -> str:
    """Return one line that no terminal obeys: controls, escapes and marks that reorder text become visible."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control character: ␛ for an escape
    if code == 0x7F:
        return "\u2421"
    return f"<U+{code:04X}>"


def without_colours(text: str) -> str:
    """Return what a program printed without its colours, and whatever else it asks of a terminal."""
    return _SEQUENCE.sub("", text)


def first_line(text: str) -> str:
    """Return the first line that says something, inert."""
    return next((inert(line.strip()) for line in text.splitlines() if line.strip()), "")


def flatten(text: str) -> str:
    """Return a text with every run of white space made one blank."""
    return _SPACES.sub(" ", text).strip()


def one_line(text: str, most: int) -> str:
    """Return a text on one line, its spaces made one, at most so long."""
    flat = flatten(text)
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def block(text: str) -> list[str]:
    """Return text as inert lines, for showing it whole."""
    return [inert(line.expandtabs(4)) for line in text.replace("\r\n", "\n").rstrip("\n").split("\n")]


def in_markdown(line: str) -> str:
    """Return a line that stays in its place on a page: no table, no HTML, no Markdown of its own."""
    for sign in "\\`*_[]<>|!#":
        line = line.replace(sign, f"\\{sign}")
    return line


def fence(lines: Iterable[str]) -> str:
    """Return inert lines as they are: nothing in them can end the block, for none begins with its marks."""
    return "\n".join(["~~~", *(f" {line}" if line.lstrip().startswith("~~~") else line for line in lines), "~~~"])


def columns(text: str) -> int:
    """Return how many columns of a terminal a line takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character < NARROW:
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    """Return a line that takes at most that many columns; what is missing is marked. None: as many as it takes."""
    if width is None or (text.isascii() and len(text) <= width):
        return text
    taken = kept = 0
    for number, character in enumerate(text):
        taken += _columns(character)
        if taken < width:
            kept = number + 1
        if taken > width:
            return text[:kept].rstrip() + ELLIPSIS if width > 0 else ""
    return text


def cut_front(text: str, width: int) -> str:
    """Return a line that takes at most that many columns and keeps its end, as is best for a path."""
    return text if columns(text) <= width else cut(text[::-1], width)[::-1]


def cut_middle(text: str, width: int | None) -> str:
    """Return a line that takes at most that many columns and keeps both ends, as is best for a name."""
    if width is None or columns(text) <= width:
        return text
    end = text[-(width // 3) :] if width >= 6 else ""
    return cut(text, max(0, width - columns(end))) + end


def wrap_line(text: str, width: int) -> list[str]:
    """Return a line as several of at most that many columns, broken between words where that is possible."""
    lines, rest = [], text
    while columns(rest) > width > 0:
        head = cut(rest, width + 1).removesuffix(ELLIPSIS)
        space = head.rfind(" ", 1)
        head = head[:space] if space > 0 and rest[len(head) : len(head) + 1] != " " else head
        head = head or rest[0]
        lines.append(head)
        rest = rest[len(head) :].lstrip(" ")
    return [*lines, rest] if rest or not lines else lines


def pad(text: str, width: int) -> str:
    """Return a line filled up with blanks to a width."""
    return text + " " * (width - columns(text))


def paint(text: str, colour: int | None, *, colours: bool) -> str:
    """Return text in a colour, where colours are wanted."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colours and colour is not None else text


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────


GAP = 2
LEAST = 8  # columns that the last one is worth having with
Cell = tuple[str, int | None]  # text, colour


def table(
    rows: Sequence[Sequence[Cell]], width: int | None, *, colours: bool, widest: int = 40, wrap: bool = False
) -> list[str]:
    """Return lines that fit a width: the last column takes what is left, and a long cell is cut.

    Where there is not enough room, columns are left out from the right; two stay, and the wider one is cut. `wrap`:
    the last column goes on below instead. With no width every cell is whole.
    """
    if not rows:
        return []
    sizes = [max(columns(row[n][0]) for row in rows) for n in range(len(rows[0]))]
    if width is not None:
        sizes = _fit([min(widest, size) for size in sizes[:-1]], width)
    wraps = wrap and width is not None and len(sizes) == len(rows[0])
    lines = [part for row in rows for part in (_wrap(row, sizes[-1]) if wraps else [row])]
    return [_row_line(row[: len(sizes)], sizes, colours=colours).rstrip() for row in lines]


def _wrap(row: Sequence[Cell], size: int) -> list[Sequence[Cell]]:
    """Return a row as several: what the last cell has no room for goes on below."""
    text, colour = row[-1]
    first, *more = wrap_line(text, size)
    blank: list[Cell] = [("", None)] * (len(row) - 1)
    return [[*row[:-1], (first, colour)], *([*blank, (line, colour)] for line in more)]


def _fit(sizes: list[int], width: int) -> list[int]:
    """Return how wide the columns are that fit, given those before the last."""
    room = width - sum(sizes) - GAP * len(sizes)
    if room >= LEAST:
        return [*sizes, room]
    while len(sizes) > 2 and sum(sizes) + GAP * (len(sizes) - 1) > width:
        sizes = sizes[:-1]
    over = sum(sizes) + GAP * (len(sizes) - 1) - width
    return [max(1, size - over) if over > 0 and size == max(sizes) else size for size in sizes]


def _row_line(row: Sequence[Cell], sizes: Sequence[int], *, colours: bool) -> str:
    cells = []
    for (text, colour), size in zip(row, sizes, strict=True):
        shown = cut(text, size)
        cells.append(paint(shown, colour, colours=colours) + " " * (size - columns(shown)))
    return (" " * GAP).join(cells)


def line_of(cells: Sequence[Cell], width: int, *, colours: bool) -> str:
    """Return cells in a row, with no gaps but their own blanks; what goes beyond the width is cut."""
    parts, room = [], width
    for text, colour in cells:
        shown = cut(text, room)
        parts.append(paint(shown, colour, colours=colours and bool(shown.strip())))
        room -= columns(shown)
    return "".join(parts).rstrip()


def align_columns(pairs: Sequence[tuple[str, str]], indent: int = 2) -> list[str]:
    """Return `name  words` lines, the names in a column."""
    widest = max((columns(name) for name, _ in pairs), default=0)
    return [f"{' ' * indent}{pad(name, widest)}  {words}".rstrip() for name, words in pairs]


# ── numbers and states in words ──────────────────────────────────────────────────────────────────────────


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 89.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def age(seconds: float) -> str:
    """Return how old something is, short enough for a column."""
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {word}"
    return f"{max(0, int(seconds))} s"


def ago(seconds: float) -> str:
    """Return how long ago something was, short enough for a column."""
    return f"{age(seconds)} ago" if seconds >= 60 else "just now"


def plural(number: int, word: str) -> str:
    """Return `1 step`, `2 steps`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def counts_words(counts: Mapping[str, int]) -> str:
    """Return `2 of 5 steps done, 2 failed, 1 skipped`."""
    more = "".join(f", {counts[end]} {end}" for end in ("failed", "skipped") if counts[end])
    return f"{counts['done']} of {counts['total']} steps done{more}"


def state_and_why(state: str, why: str) -> str:
    """Return `done, 3 of 3 steps` or `failed, a failed: …`; the words for a state are defined once."""
    if why.startswith(state):
        return why
    return f"{state}, {why.replace(' steps done', ' steps', 1) if state == 'done' else why}"


def left_words(revision: int | None) -> str:
    """Return that a step has left the plan, and in which revision."""
    return "" if revision is None else f" (left the plan in revision {revision})"


def size(count: int) -> str:
    """Return how much room something takes, as people say it."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if amount >= 9.95 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def json_text(value: Any) -> str:
    """Return JSON that reads well and is inert too: what a terminal might obey is written as an escape."""
    return _NOT_PLAIN.sub(_escape, json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    """Return the same on one line."""
    return _NOT_PLAIN.sub(_escape, json.dumps(value, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return character if character == "\n" or character.isprintable() else json.dumps(character)[1:-1]


# ── text in which nothing is hidden ───────────────────────────────────────────────────────────────────────


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
    return line if plain and not (line.startswith('"') and is_json(line)) else quote(line)


def is_json(text: str) -> bool:
    """Whether a text could be taken for a value that is no text."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def quote(text: str) -> str:
    """Return a text as JSON, what nobody would see as escapes."""
    shown = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() and not _UNSEEN.match(c) else json.dumps(c)[1:-1] for c in shown)


def in_ascii(text: str) -> str:
    """Return a text as JSON in which every sign beyond ASCII is an escape."""
    return json.dumps(text)


def look(line: str) -> str:
    """Return what a reader sees of a line: the same for two that look alike."""
    seen = _UNSEEN.sub("", "".join(_look_of(character) for character in line.expandtabs(4)))
    return unicodedata.normalize("NFKC", seen).translate(_TWINS).rstrip()


def _look_of(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ""


def look_alikes(lines: Iterable[str]) -> frozenset[str]:
    """Return the looks that several lines share which differ."""
    counts = Counter(map(look, set(lines)))
    return frozenset(seen for seen, count in counts.items() if count > 1)


# ── how states look ──────────────────────────────────────────────────────────────────────────────────────


class Mark(NamedTuple):
    """A sign for a state, one for terminals that know only ASCII, and a colour by its ANSI number."""

    sign: str
    plain: str
    colour: int | None = None


ASKS = "asks"  # of a step that runs, and waits for a person
WRONG = frozenset(("failed", "blocked", "rejected"))

MARKS: dict[str, Mark] = {
    "waiting": Mark("·", "."),
    "ready": Mark("○", "o"),
    "gated": Mark("?", "?", YELLOW),
    "ordered": Mark("▸", ">", CYAN),
    "running": Mark("▸", ">", CYAN),
    "done": Mark("✓", "+", GREEN),
    "failed": Mark("✗", "x", RED),
    "blocked": Mark("✗", "x", RED),
    "interrupted": Mark("!", "!", YELLOW),
    "rejected": Mark("✗", "x", RED),
    "skipped": Mark("-", "-"),
    "stale": Mark("○", "o"),
    ASKS: Mark("?", "?", YELLOW),
}
RUN_MARKS: dict[str, Mark] = {
    "planning": Mark("▸", ">", CYAN),
    "draft": Mark("?", "?", YELLOW),
    "running": Mark("▸", ">", CYAN),
    "waiting": Mark("?", "?", YELLOW),
    "paused": Mark("‖", "=", YELLOW),
    "done": Mark("✓", "+", GREEN),
    "failed": Mark("✗", "x", RED),
    "cancelled": Mark("✗", "x", RED),
}
UNKNOWN = Mark("?", "?")


def mark_of(state: str) -> Mark:
    return MARKS.get(state, UNKNOWN)


def mark_of_run(state: str) -> Mark:
    return RUN_MARKS.get(state, UNKNOWN)


def wrong_first(steps: Iterable[T], state: Callable[[T], str]) -> list[T]:
    """Return steps as people are shown them: what went wrong first, the rest in its order."""
    return sorted(steps, key=lambda step: state(step) not in WRONG)


NOT_DRIVEN = "not driven"


def shown_run_state(run: Mapping[str, Any]) -> str:
    """Return the state of a run as people see it: what could go on is not running while nothing drives it."""
    return NOT_DRIVEN if run["state"] in ("running", "planning") and not run["driven"] else str(run["state"])


# ── answers and logs ─────────────────────────────────────────────────────────────────────────────────────


def answer_text(answer: object, *, terminal: bool) -> str:
    """Return text as it is, anything else as JSON; on a terminal both inert, for an answer may come from anywhere."""
    if isinstance(answer, str):
        return "\n".join(block(answer)) if terminal else answer
    return json_text(answer) if terminal else json.dumps(answer, indent=2, ensure_ascii=False)


def most_of(width: int | None) -> int | None:
    """Return how much of one line is shown: on a terminal a few of its rows, elsewhere all of it."""
    return None if width is None else width * ROWS


def log_entry(line: bytes) -> tuple[str, str, str] | None:
    """Return when a line of a log was written, what happened, and more in words; None if there is nothing to see.

    For output, what happened is its stream, and the words are the text as it was printed.
    """
    try:
        entry = json.loads(line)
        event, at = str(entry.pop("event")), str(entry.pop("at"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if event == "output":
        return at[11:19], f"output {entry.get('stream')}", str(entry.get("text", ""))
    if event == "agent_event":  # without words, the raw line is in the file and says nothing to a person
        words = "; ".join(map(str, entry.get("words") or ()))
        return (at[11:19], "agent", words) if words else None
    if event in ("agent", "agent_end"):
        return at[11:19], "agent", _agent_words(event, entry)
    shown = {key: value for key, value in entry.items() if value is not None and key not in _KERNEL}
    return at[11:19], event, " ".join(f"{key}={value}" for key, value in shown.items())


def _agent_words(event: str, entry: Mapping[str, Any]) -> str:
    """Return how a coding agent began or ended; its command, and what it printed on stderr, are in the file."""
    if event == "agent":
        network = "on" if entry.get("network") else "off"
        return f"starts: {entry.get('agent')} (sandbox {entry.get('sandbox')}, network {network})"
    code = entry.get("exit_code")
    return f"ended: {entry.get('detail') or ('by a signal' if code is None else f'exit code {code}')}"


def log_line(line: bytes, most: int | None) -> str | None:
    """Return one line of a log in words, so much of it; None if there is nothing to see."""
    if (entry := log_entry(line)) is None:
        return None
    at, event, words = entry
    colon = ":" if event.startswith("output ") else ""
    return cut(inert(f"{at} {event}{colon} {words.rstrip()}"), most)

"""The words of a prompt: how a question reads on a terminal, what may be typed, and what that means. Pure."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from agentfs.core.openings import About, Opening
from agentfs.questions import ANSWER_LINE
from agentfs.ui.table import painted
from agentfs.ui.text import block, columns, counted, cut, cut_front, first_line, inert, wrapped

_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|!#])")
_BEFORE_WORDS = re.compile(r" *(?:\S+ {2,}|- )?")  # the name in a list, and the gap after it
INVERSE = 7

_CHOICES = {
    "draft": "yes, no [why], show, edit, later",
    "gate": "yes, no [why], show, edit, later",
    "answer": "yes, no [why], show, edit, later",
    "cut": "again, done [output], failed [why], show, edit, later",
    "ask": "type the answer, or /show, /edit, /later",
}
_MEANINGS = {
    "yes": "go on as shown",
    "no": "do not; words after it say why",
    "again": "run it once more",
    "done": "it did its work; words after it are its output",
    "failed": "it did not; words after it say why",
    "show": "print the question in full",
    "later": "leave it open (Ctrl-D does the same)",
}
_EDITS = {
    "draft": "open plan.json in $EDITOR; a changed plan is asked about again",
    "gate": "open plan.json in $EDITOR; if what the step would do changes, it is asked about again",
    "answer": "open plan.json in $EDITOR; if what would change changes, it is asked about again",
    "cut": "write the reply in $EDITOR: again, done or failed on its first line, more below",
    "ask": "write the answer in $EDITOR",
}
_WORDS = {"yes": "approve", "no": "reject", "again": "again", "done": "done", "failed": "failed"}
_SAME = {"approve": "yes", "reject": "no", "?": "help"}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person wants with a question."""

    wish: Literal["reply", "show", "edit", "later", "help"]
    reply: str = ""  # what goes into the reply file


_WISHES = {"show": Typed("show"), "edit": Typed("edit"), "later": Typed("later"), "help": Typed("help")}


def choices(one: Opening) -> str:
    """Return what may be typed, in a line."""
    return f"{'plan.json' if one.about == 'draft' else one.name}: {_CHOICES[one.about]}"


def meanings(about: About) -> list[str]:
    """Return what each word does."""
    sign = "/" if about == "ask" else ""
    rows = [(word, _MEANINGS[word]) for word in _decisions(about)]
    rows += [(f"{sign}show", _MEANINGS["show"]), (f"{sign}edit", _EDITS[about]), (f"{sign}later", _MEANINGS["later"])]
    if about == "ask":
        rows.insert(0, ("TEXT", "all of it is the answer"))
    return [f"  {word:<8} {meaning}" for word, meaning in rows]


def _decisions(about: About) -> tuple[str, ...]:
    if about == "ask":
        return ()  # any words are an answer
    return ("again", "done", "failed") if about == "cut" else ("yes", "no")


def understand(about: About, line: str) -> Typed | None:
    """Return what a line means; None: nothing."""
    if about == "ask":
        return _understand_text(line)
    first, *rest = line.strip().split(maxsplit=1) or [""]
    first, words = first.casefold().rstrip(",:.").removeprefix("/"), "".join(rest).strip()
    known = _decisions(about)
    word = _whole_word(_SAME.get(first, first), (*known, "show", "edit", "later", "help"))
    if word in _WISHES:
        return None if words else _WISHES[word]
    if word not in known or (words and word in ("yes", "again")):
        return None  # a yes with conditions is none
    return Typed("reply", f"{_WORDS[word]}\n{words}\n" if words else f"{_WORDS[word]}\n")


def _understand_text(line: str) -> Typed | None:
    match line.strip():
        case "":
            return None
        case "/show" | "/edit" | "/later" | "/help" as wish:
            return _WISHES[wish[1:]]
        case _:
            return Typed("reply", f"{line}\n")


def _whole_word(typed: str, words: tuple[str, ...]) -> str:
    """Return the word that is meant: its first letters are enough where no other word has them."""
    found = [word for word in words if typed and word.startswith(typed)]
    return found[0] if len(found) == 1 else ""


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────


def question_lines(text: str, *, full: bool) -> Iterator[str]:
    """Yield a question file as a person reads it on a terminal; not `full`: only what comes before how to answer."""
    lines = [inert(line) for line in text.split("\n")]
    if not full:
        lines = lines[: _answer_part(lines)]
    fence = ""
    for line in _without_blank_ends(lines):
        if fence:
            if line == fence:
                fence = ""
            else:
                yield f"    {line}".rstrip()
        elif line == "~~~" or line.startswith("```"):
            fence = line[:3]
        elif not line.startswith("<!--"):
            yield _ESCAPED.sub(r"\1", line.lstrip("#").lstrip() if line.startswith("#") else line)


def _answer_part(lines: list[str]) -> int:
    """Return where the part begins that says how to answer. The last one counts: what a step says comes before."""
    places = [place for place, line in enumerate(lines) if line.startswith(ANSWER_LINE)]
    place = places[-1] if places else len(lines)
    while place and (not lines[place - 1] or lines[place - 1].startswith("## ")):
        place -= 1
    return place


def _without_blank_ends(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def draft_lines(source: bytes, *, full: bool) -> Iterator[str]:
    """Yield a draft as a person reads it on a terminal: each step and what it does."""
    from agentfs.ui.plan_diff import plan_text

    plan = json.loads(source)
    steps = plan["steps"]
    yield f"May this plan be carried out? {counted(len(steps), 'step')}:"
    yield ""
    if full:
        yield from (f"  {line}".rstrip() for line in plan_text(source).splitlines())
        return
    widest = max((len(step["id"]) for step in steps), default=0)
    for step in steps:
        gate = "  (asks before it runs)" if step.get("gate") else ""
        about = first_line(str(step.get("description") or ""))
        yield f"  {inert(step['id']):<{widest}}  {about}{gate}".rstrip()
        does = list(_does(step))
        yield from (f"  {'':<{widest}}    {line}" for line in does)


def _does(step: dict[str, Any]) -> Iterator[str]:
    given = step.get("input")
    given = given if isinstance(given, dict) else {}
    text = given.get("command") or given.get("code")
    if isinstance(text, str):
        yield from block(text)
    elif step.get("tool"):
        yield f"{inert(str(step['tool']))} {inert(json.dumps(given, ensure_ascii=False)) if given else ''}".rstrip()


def fitted(lines: list[str], width: int, height: int | None = None) -> list[str]:
    """Return lines broken to a width; of more than there is room for, the first, and how many there are."""
    rows = [row for line in lines for row in (_wrapped(line, width) if columns(line) > width else [line])]
    if height is None or len(rows) <= height:
        return rows
    kept = max(1, height - 1)
    return [*rows[:kept], f"… {counted(len(rows) - kept, 'more line')}: show"]


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line as several, each as far in as the words of the first."""
    match = _BEFORE_WORDS.match(line)
    begin = (match[0] if match else "")[: width // 2]
    first, *more = wrapped(line[len(begin) :], max(1, width - len(begin)))
    return [f"{begin}{first}", *(f"{' ' * len(begin)}{part}" for part in more)]


# ── the line that is typed ────────────────────────────────────────────────────────────────────────────────


def typed_line(shown: tuple[str, int], width: int, *, colours: bool) -> str:
    """Return what has been typed so far with its cursor; of a long line, what is around the cursor."""
    text, cursor = shown
    before, after = inert(text[:cursor]), inert(text[cursor:])
    room = max(4, width - 3)  # the sign before it, and the cursor
    before = cut_front(before, room) if columns(after) < room // 2 else cut_front(before, room // 2)
    under, after = (after[:1], after[1:]) if colours else ("_", after)
    rest = cut(after, max(0, room - columns(before)))
    return f"> {before}{painted(under or ' ', INVERSE, colours=colours)}{rest}".rstrip()

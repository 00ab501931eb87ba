"""The lines a step of a runbook may hold, one function for each form. Pure.

    after: inspect, backup      what comes first; `after: nothing`; without it, the step above
    check: `command`            must exit with 0 after the step; as many as you like
    needs: `command`            must exit with 0 before it; as many as you like
    retries: 2                  tries after the first
    timeout: 90s                s, m, h, 1m30s; a bare number is seconds
    gate                        a person approves the order before it runs
    repeatable, not repeatable  whether it may run twice
    on failure: stop            or continue, or replan
    on failure of: ID           clean-up: runs only when that step has failed for good
    instead of: ID              alternative: takes that step's place when it has failed for good
    why: words                  why the step is there
    success: words              when it counts as done, in words
    tools: shell, read_file     for a step without a fence, which a model does

A line may begin with a list's `-` or `*`. Case does not matter in the keyword. Any other line is prose, unless
it is so near to one of these that it must be a slip.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from agentfs.core.markdown import Prose
from agentfs.core.names import STEP_ID
from agentfs.core.places import Place, Places
from agentfs.core.problems import Problem

_FORM = re.compile(r"([A-Za-z][A-Za-z_-]*(?: [A-Za-z_-]+){0,2})[ \t]*:(?:[ \t]+|\Z)(.*)", re.DOTALL)
_COLONLESS = re.compile(r"(retries|timeout)[ \t]+([0-9][0-9a-z.]*)\Z", re.IGNORECASE)
_BULLET = re.compile(r"[-*+][ \t]+")
_TIME = re.compile(r"(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8}(?:\.[0-9]{1,6})?)s?)?\Z")
_ID = re.compile(rf"{STEP_ID}\Z")
_SYNONYMS = {"retry": "retries", "depends on": "after", "depends_on": "after", "time": "timeout"}
_SURE = 0.75  # how near a word must come to a keyword to be taken for a slip


@dataclass(slots=True)
class Draft:
    """A step while its lines are being read."""

    id: str
    places: Places
    fields: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    instead_of: str | None = None
    on_failure_of: str | None = None
    seen: dict[str, Place] = field(default_factory=dict)  # keyword -> where its value stands
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, place: Place, message: str, mend: str = "") -> None:
        self.problems.append(Problem(message, mend).at(*place))

    def put(self, name: str, value: Any, place: Place) -> None:
        self.fields[name] = value
        self.places.marks[f"/{name}"] = place


@dataclass(frozen=True, slots=True)
class Said:
    """`keyword: value`, and where the value stands."""

    keyword: str
    value: str
    line: int
    column: int

    @property
    def place(self) -> Place:
        return self.line, self.column


def read_line(draft: Draft, prose: Prose) -> None:
    """Take one line into the step: a form, a slip, or words of its description."""
    skipped = bullet.end() if (bullet := _BULLET.match(prose.text)) else 0
    text, column = prose.text[skipped:], prose.column + skipped
    if prose.indented:
        _describe(draft, prose)
    elif (word := text.lower()) in _WORDS:
        _WORDS[word](draft, Said(word, "", prose.line, column))
    elif form := _FORM.match(text):
        said = Said(" ".join(form[1].lower().split()), form[2], prose.line, column + form.start(2))
        _form(draft, said, prose, (prose.line, column))
    elif slip := _slip(text):
        draft.refuse((prose.line, column), f"{text!r} is not a line a step can hold", slip)
    else:
        _describe(draft, prose)


def _form(draft: Draft, said: Said, prose: Prose, start: Place) -> None:
    if said.keyword in _WORDS:
        draft.refuse(start, f"{said.keyword!r} takes no value", f"write {said.keyword} on a line of its own")
    elif read := _FORMS.get(said.keyword):
        if _first_time(draft, said, start):
            read(draft, said)
    elif meant := _nearest(said.keyword):
        draft.refuse(start, f"a step holds no line {said.keyword + ':'!r}", f"did you mean {meant + ':'!r}?")
    else:
        _describe(draft, prose)


def _first_time(draft: Draft, said: Said, start: Place) -> bool:
    """Tell whether a form that may stand once stands for the first time; an empty one is a mistake too."""
    if not said.value:
        draft.refuse(start, f"{said.keyword + ':'!r} says nothing", _EXAMPLES[said.keyword])
        return False
    if said.keyword not in _MANY and said.keyword in draft.seen:
        draft.refuse(start, f"{said.keyword + ':'!r} stands twice in the step {draft.id!r}", "keep one of them")
        return False
    draft.seen[said.keyword] = said.place
    return True


def _nearest(keyword: str) -> str | None:
    if keyword in _SYNONYMS:
        return _SYNONYMS[keyword]
    close = get_close_matches(keyword, sorted(_FORMS), n=1, cutoff=_SURE)
    return close[0] if close else None


def _slip(text: str) -> str:
    """Return how to mend a line that all but is a form; empty for prose."""
    if match := _COLONLESS.match(text):
        return f"write {match[1].lower()}: {match[2]}"
    close = get_close_matches(text.lower(), sorted(_WORDS), n=1, cutoff=0.8) if len(text) < 20 else []
    return f"did you mean {close[0]!r}?" if close else ""


def _describe(draft: Draft, prose: Prose) -> None:
    draft.places.marks.setdefault("/description", (prose.line, prose.column))
    draft.words.append(prose.text)


# ── one function for each form ────────────────────────────────────────────────────────────────────────────


def _after(draft: Draft, said: Said) -> None:
    draft.put("depends_on", [], said.place)
    if said.value.lower() == "nothing":
        return
    for name, column in _names(said):
        if not _ID.match(name):
            draft.refuse((said.line, column), f"{name!r} is no step id", _EXAMPLES["after"])
            continue
        draft.places.marks[f"/depends_on/{len(draft.fields['depends_on'])}"] = (said.line, column)
        draft.fields["depends_on"].append(name)


def _tools(draft: Draft, said: Said) -> None:
    draft.put("tools", [], said.place)
    for at, (name, column) in enumerate(_names(said)):
        draft.places.marks[f"/tools/{at}"] = (said.line, column)
        draft.fields["tools"].append(name)


def _names(said: Said) -> list[tuple[str, int]]:
    """Return the parts of `a, b` with their columns."""
    found, column = [], said.column
    for part in said.value.split(","):
        found.append((part.strip(), column + len(part) - len(part.lstrip())))
        column += len(part) + 1
    return found


def _command(name: str) -> Callable[[Draft, Said], None]:
    def read(draft: Draft, said: Said) -> None:
        if not (span := _code_span(said.value)):
            wrong = f"{said.keyword + ':'!r} wants a command between backticks"
            draft.refuse(said.place, wrong, "two backticks on each side hold a command that has one inside")
            return
        command, start = span
        listed = draft.fields.setdefault(name, [])
        draft.places.marks.setdefault(f"/{name}", said.place)
        draft.places.marks[f"/{name}/{len(listed)}"] = (said.line, said.column + start)
        listed.append({"kind": "command", "run": command})

    return read


def _code_span(text: str) -> tuple[str, int] | None:
    """Return what stands between the backticks, and from which character on; None if that is not all there is."""
    runs = [len(run) for run in re.findall("`+", text)]
    if len(runs) < 2 or not text[0] == text[-1] == "`" or runs[0] != runs[-1] or runs[0] in runs[1:-1]:
        return None
    ticks = runs[0]
    inner = text[ticks:-ticks]
    if not inner.strip():
        return None
    if inner.startswith(" ") and inner.endswith(" "):
        return inner[1:-1], ticks + 1
    return inner, ticks


def _retries(draft: Draft, said: Said) -> None:
    if not re.fullmatch("[0-9]{1,6}", said.value):
        draft.refuse(said.place, f"{said.value!r} is no number of retries", _EXAMPLES["retries"])
    else:
        draft.put("max_attempts", int(said.value) + 1, said.place)


def _timeout(draft: Draft, said: Said) -> None:
    match = _TIME.match(said.value.replace(" ", "")) if len(said.value) < 40 else None
    seconds = float(match[1] or 0) * 3600 + float(match[2] or 0) * 60 + float(match[3] or 0) if match else 0.0
    if seconds <= 0:
        draft.refuse(said.place, f"{said.value!r} is no length of time", _EXAMPLES["timeout"])
    else:
        draft.put("timeout_s", int(seconds) if seconds.is_integer() else seconds, said.place)


def _on_failure(draft: Draft, said: Said) -> None:
    if said.value.lower() not in ("stop", "continue", "replan"):
        draft.refuse(said.place, f"{said.value!r} is nothing to do on failure", _EXAMPLES["on failure"])
    else:
        draft.put("on_failure", said.value.lower(), said.place)


def _fallback(draft: Draft, said: Said) -> None:
    if draft.instead_of or draft.on_failure_of:
        wrong = f"the step {draft.id!r} cannot be both an alternative and a clean-up"
        draft.refuse(said.place, wrong, "make two steps of it")
    elif not _ID.match(said.value):
        draft.refuse(said.place, f"{said.value!r} is no step id", _EXAMPLES[said.keyword])
    elif said.keyword == "instead of":
        draft.instead_of = said.value
    else:
        draft.on_failure_of = said.value


def _text(name: str) -> Callable[[Draft, Said], None]:
    return lambda draft, said: draft.put(name, said.value, said.place)


def _flag(name: str, value: bool) -> Callable[[Draft, Said], None]:
    def read(draft: Draft, said: Said) -> None:
        if name in draft.fields:
            draft.refuse(said.place, f"the step {draft.id!r} says {name!r} twice", "keep one line")
        else:
            draft.put(name, value, said.place)

    return read


_WORDS: dict[str, Callable[[Draft, Said], None]] = {
    "gate": _flag("gate", value=True),
    "repeatable": _flag("repeatable", value=True),
    "not repeatable": _flag("repeatable", value=False),
}
_FORMS: dict[str, Callable[[Draft, Said], None]] = {
    "after": _after,
    "check": _command("checks"),
    "needs": _command("needs"),
    "retries": _retries,
    "timeout": _timeout,
    "on failure": _on_failure,
    "on failure of": _fallback,
    "instead of": _fallback,
    "why": _text("why"),
    "success": _text("success_condition"),
    "tools": _tools,
}
_MANY = ("check", "needs")
_EXAMPLES = {
    "after": "name steps by their ids: after: a, b; or write after: nothing",
    "check": "write check: `command`",
    "needs": "write needs: `command`",
    "retries": "write a whole number: retries: 2",
    "timeout": "write timeout: 90s, 5m, 1h or 1m30s",
    "on failure": "write on failure: stop, continue or replan",
    "on failure of": "name one step by its id: on failure of: a",
    "instead of": "name one step by its id: instead of: a",
    "why": "write why: and the reason",
    "success": "write success: and when the step counts as done",
    "tools": "name tools: tools: shell, read_file",
}

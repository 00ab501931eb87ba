"""The lines a step of a runbook may hold: one table, and a function that reads each. Pure.

`LINES` is all that the parser, the search for near misses (`near_misses`), the help and docs/runbooks.md know of
them. A line may begin with a list's `-`, `*` or `+`; case does not matter in the keyword. Any other line is prose,
unless it is so near to one of these that it was surely meant as one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from agentfs.core.markdown import Prose
from agentfs.core.paths import STEP_ID
from agentfs.core.problems import Place, Places, Problem

_FORM = re.compile(r"([A-Za-z][A-Za-z_-]*(?: [A-Za-z_-]+){0,2})[ \t]*:(?:[ \t]+|\Z)(.*)", re.DOTALL)
_BULLET = re.compile(r"[-*+][ \t]+")
_TIME = re.compile(r"(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8}(?:\.[0-9]{1,6})?)s?)?\Z")
_RETRIES = re.compile(r"([0-9]{1,6})(?:[ \t]+every[ \t]+(\S.*))?\Z", re.IGNORECASE)
_ID = re.compile(rf"{STEP_ID}\Z")
_AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_SENTENCE_ENDS = ".!?:;)`"


@dataclass(slots=True)
class Draft:
    """A step while its lines are being read. The pointers of its problems begin at the step."""

    id: str
    places: Places
    fields: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    of: str | None = None  # the step that this one is a fallback of, which kind of one, and where the goal says so
    kind: Literal["instead", "cleanup"] = "cleanup"
    of_place: Place = (1, 1)
    seen: dict[str, Place] = field(default_factory=dict)  # keyword -> where its value is
    problems: list[Problem] = field(default_factory=list)
    near_misses: list[Problem] = field(default_factory=list)  # read as prose, and surely not meant so
    open_line: int = 0  # the last line of prose, if its sentence goes on below

    def refuse(self, place: Place, message: str, fix: str = "", pointer: str = "") -> None:
        self.problems.append(Problem(message, fix, pointer).at(*place))

    def put(self, name: str, value: Any, place: Place) -> None:
        self.fields[name] = value
        self.places.marks[f"/{name}"] = place

    def describe(self, prose: Prose) -> None:
        self.places.marks.setdefault("/description", (prose.line, prose.column))
        self.words.append(prose.text)
        self.open_line = 0 if prose.text[-1] in _SENTENCE_ENDS else prose.line


@dataclass(frozen=True, slots=True)
class LineForm:
    """A line with a meaning."""

    keyword: str
    shown: str  # as people write it
    field: str  # the step's field it sets; empty: none
    read: "Callable[[Draft, LineValue], None]"
    means: str  # in Markdown, for help and docs/runbooks.md
    write: str  # what to write in place of a line that is wrong
    takes: Literal["value", "words", "nothing"] = "value"  # words: any text is right
    names: Literal["", "steps", "tools"] = ""  # what its value names
    many: bool = False  # may occur more than once
    also: tuple[str, ...] = ()  # what it is called by people who do not remember its name

    @property
    def pointer(self) -> str:
        return f"/{self.field}" if self.field else ""

    @property
    def plain(self) -> str:
        """What it means, without Markdown."""
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.means).replace("*", "").replace("`", "")


@dataclass(frozen=True, slots=True)
class LineValue:
    """`keyword: value`, and where the value is."""

    form: LineForm
    value: str
    line: int
    column: int

    @property
    def place(self) -> Place:
        return self.line, self.column


def read_form(draft: Draft, prose: Prose) -> bool:
    """Take a line into the step if it is one with a meaning; return whether it is."""
    if prose.indented:
        return False
    skipped = bullet.end() if (bullet := _BULLET.match(prose.text)) else 0
    given = read_line(prose.text[skipped:], prose.line, prose.column + skipped)
    if given is None:
        return False
    start = (prose.line, prose.column + skipped)
    if given.form.takes == "nothing" and given.column > start[1]:
        draft.refuse(start, f"{given.form.keyword!r} takes no value", given.form.write, given.form.pointer)
    elif given.form.takes == "nothing" or _is_first(draft, given, start):
        given.form.read(draft, given)
    return True


def read_line(text: str, line: int = 1, column: int = 1) -> LineValue | None:
    """Return what a bare line says; None if it is none of the forms."""
    alone = _BY_KEYWORD.get(text.lower())
    if alone and alone.takes == "nothing":
        return LineValue(alone, "", line, column)
    match = _FORM.match(text)
    form = _BY_KEYWORD.get(" ".join(match[1].lower().split())) if match else None
    return LineValue(form, match[2], line, column + match.start(2)) if match and form else None


def takes_value(form: LineForm, value: str) -> bool:
    """Whether a value is one that this form takes."""
    scratch = Draft("a", Places())
    if value:
        form.read(scratch, LineValue(form, value, 1, 1))
    return bool(value) and not scratch.problems


def _is_first(draft: Draft, given: LineValue, start: Place) -> bool:
    """Return whether a form that may occur once occurs for the first time; an empty one is a mistake too."""
    form, name = given.form, f"{given.form.keyword}:"
    if not given.value:
        draft.refuse(start, f"{name!r} says nothing", form.write, form.pointer)
        return False
    if not form.many and form.keyword in draft.seen:
        draft.refuse(start, f"{name!r} occurs twice in the step {draft.id!r}", "keep one of them", form.pointer)
        return False
    draft.seen[form.keyword] = given.place
    return True


# ── one function for each form ────────────────────────────────────────────────────────────────────────────


def _after(draft: Draft, given: LineValue) -> None:
    draft.put("depends_on", [], given.place)
    if given.value.lower() == "nothing":
        return
    for name, column in names_in(given):
        pointer = f"/depends_on/{len(draft.fields['depends_on'])}"
        if not _ID.match(name):
            draft.refuse((given.line, column), f"{name!r} is not a step id", given.form.write, pointer)
            continue
        draft.places.marks[pointer] = (given.line, column)
        draft.fields["depends_on"].append(name)


def _tools(draft: Draft, given: LineValue) -> None:
    draft.put("tools", [], given.place)
    for at, (name, column) in enumerate(names_in(given)):
        draft.places.marks[f"/tools/{at}"] = (given.line, column)
        draft.fields["tools"].append(name)


def names_in(given: LineValue) -> list[tuple[str, int]]:
    """Return the parts of `a, b` with their columns."""
    found, column = [], given.column
    for part in given.value.split(","):
        found.append((part.strip(), column + len(part) - len(part.lstrip())))
        column += len(part) + 1
    return found


def _command(draft: Draft, given: LineValue) -> None:
    pointer = f"{given.form.pointer}/{len(draft.fields.get(given.form.field, ()))}"
    if span := _read_command(draft, given, pointer):
        command, start = span
        draft.places.marks.setdefault(given.form.pointer, given.place)
        draft.places.marks[pointer] = (given.line, given.column + start)
        draft.fields.setdefault(given.form.field, []).append({"kind": "command", "run": command})


def _condition(draft: Draft, given: LineValue) -> None:
    if span := _read_command(draft, given, given.form.pointer):
        command, start = span
        draft.put("when", {"kind": "command", "run": command}, given.place)
        draft.places.marks["/when/run"] = (given.line, given.column + start)


def _read_command(draft: Draft, given: LineValue, pointer: str) -> tuple[str, int] | None:
    """Return the command between backticks, and from which character on; report it if there is none."""
    if not (span := code_span(given.value)):
        wrong = f"'{given.form.keyword}:' wants a command between backticks"
        fix = f"{given.form.write}; two backticks on each side hold a command that has one inside"
        draft.refuse(given.place, wrong, fix, pointer)
    return span


def _each(draft: Draft, given: LineValue) -> None:
    if "{{" in given.value:
        draft.put("each", given.value, given.place)
    else:
        draft.put("each", [name for name, _ in names_in(given) if name], given.place)


def code_span(text: str) -> tuple[str, int] | None:
    """Return what is between the backticks, and from which character on; None if that is not all there is."""
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


def _retries(draft: Draft, given: LineValue) -> None:
    match = _RETRIES.match(given.value)
    pause = _seconds(match[2]) if match and match[2] else 0
    if match is None or (match[2] and not pause):
        draft.refuse(given.place, f"{given.value!r} is not a number of retries", given.form.write, given.form.pointer)
        return
    draft.put("max_attempts", int(match[1]) + 1, given.place)
    if pause:
        draft.put("retry_wait_s", pause, (given.line, given.column + match.start(2)))


def _seconds(text: str) -> float | int:
    """Return a length of time in seconds; 0 if it is none."""
    match = _TIME.match(text.replace(" ", "")) if len(text) < 40 else None
    seconds = float(match[1] or 0) * 3600 + float(match[2] or 0) * 60 + float(match[3] or 0) if match else 0.0
    return int(seconds) if seconds.is_integer() else seconds


def _fallback(draft: Draft, given: LineValue) -> None:
    if draft.of is not None:
        wrong = f"the step {draft.id!r} cannot be both an alternative and a clean-up"
        draft.refuse(given.place, wrong, "make two steps of it")
    elif not _ID.match(given.value):
        draft.refuse(given.place, f"{given.value!r} is not a step id", given.form.write)
    else:
        draft.of, draft.of_place = given.value, given.place
        draft.kind = "instead" if given.form.keyword == "instead of" else "cleanup"


def _reader(parse: Callable[[str], Any], what: str) -> Callable[[Draft, LineValue], None]:
    """Return how a form is read that takes one value of a kind; `parse` returns nothing for what is none."""

    def read(draft: Draft, given: LineValue) -> None:
        if value := parse(given.value):
            draft.put(given.form.field, value, given.place)
        else:
            draft.refuse(given.place, f"{given.value!r} is not {what}", given.form.write, given.form.pointer)

    return read


def _agent_name(value: str) -> str | None:
    return value if _AGENT.match(value) else None


def _on_failure(value: str) -> str | None:
    return value.lower() if value.lower() in ("stop", "continue", "replan") else None


def _flag(value: bool) -> Callable[[Draft, LineValue], None]:
    def read(draft: Draft, given: LineValue) -> None:
        if (name := given.form.field) in draft.fields:
            draft.refuse(
                given.place, f"the step {draft.id!r} says {name!r} twice", "keep one line", given.form.pointer
            )
        else:
            draft.put(name, value, given.place)

    return read


# fmt: off
LINES = (
    LineForm("check", "check: `command`", "checks", _command, many=True,
        means="must exit with 0 after the step, else the step failed; as many as you like",
        write="write check: `command`",
        also=("verify", "assert", "ensure", "post check")),
    LineForm("needs", "needs: `command`", "needs", _command, many=True,
        means="must exit with 0 before the step, and before its gate asks, else it is *blocked*; as many as "
              "you like",
        write="write needs: `command`",
        also=("precondition", "pre check")),
    LineForm("when", "when: `command`", "when", _condition,
        means="a condition, looked at once before all else: it must exit with 0, else the step is *skipped*, "
              "and so is what uses its output; what only comes after it goes on",
        write="write when: `command`",
        also=("only if", "only when", "skip unless", "run if")),
    LineForm("each", "each: {{steps.ID.output}}", "each", _each,
        means="a list, or text with one item on each line: the step is done once for each item, several at a "
              "time; `{{item}}`, `{{item.path}}` and `{{index}}` stand for it in the step",
        write="write each: {{steps.ID.output}}, or a list: each: a, b",
        also=("for each", "foreach", "with items", "loop over")),
    LineForm("after", "after: a, b", "depends_on", _after, names="steps",
        means="what comes first; `after: nothing` for a step that waits for none. Without it: the step above",
        write="name steps by their ids: after: a, b; or write after: nothing",
        also=("depends on", "run after", "runs after")),
    LineForm("retries", "retries: 2", "max_attempts", _retries,
        means="tries after the first; `retries: 3 every 10s` waits 10 s before the next, then 20 s, then 40 "
              "s. Without it a step that fails has failed: only what is `repeatable`, or what a model does, "
              "is tried again (`limits.attempts`, 2)",
        write="write a whole number: retries: 2, or retries: 3 every 10s",
        also=("retry",)),
    LineForm("timeout", "timeout: 90s", "timeout_s", _reader(_seconds, "a length of time"),
        means="`s`, `m`, `h`, `1m30s`; without it 600 s",
        write="write timeout: 90s, 5m, 1h or 1m30s",
        also=("time limit",)),
    LineForm("gate", "gate", "gate", _flag(value=True), takes="nothing",
        means="a person approves the resolved order before it exists",
        write="write gate on a line of its own",
        also=("approval", "needs approval", "requires approval", "approval required", "manual approval")),
    LineForm("repeatable", "repeatable", "repeatable", _flag(value=True), takes="nothing",
        means="it may simply run again. Default: tools that only read, and `write_file`, may; `sh` may not",
        write="write repeatable on a line of its own",
        also=("idempotent",)),
    LineForm("not repeatable", "not repeatable", "repeatable", _flag(value=False), takes="nothing",
        means="once done or cut off it runs again only with a person's permission",
        write="write not repeatable on a line of its own",
        also=("unrepeatable", "non repeatable", "not idempotent")),
    LineForm("on failure", "on failure: stop", "on_failure", _reader(_on_failure, "stop, continue or replan"),
        means="or `continue`: what depends on it runs all the same; or `replan`, the default",
        write="write on failure: stop, continue or replan",
        also=("on error", "if it fails")),
    LineForm("instead of", "instead of: ID", "", _fallback, names="steps",
        means="an alternative: takes that step's place when it has failed for good. A step you reject is not "
              "replaced",
        write="name one step by its id: instead of: a",
        also=("instead", "alternative to", "fallback for")),
    LineForm("on failure of", "on failure of: ID", "", _fallback, names="steps",
        means="a clean-up: runs when that step has failed for good and nothing takes its place, or when you "
              "reject it; the run ends failed",
        write="name one step by its id: on failure of: a",
        also=("on error of", "clean up of", "cleanup of")),
    LineForm("why", "why: words", "why", _reader(str, "text"), takes="words",
        means="why the step is there. For people",
        write="write why: and the reason"),
    LineForm("success", "success: words", "success_condition", _reader(str, "text"), takes="words",
        means="when the step counts as done. For people, and for a model that does the step",
        write="write success: and when the step counts as done"),
    LineForm("tools", "tools: shell, read_file", "tools", _tools, names="tools",
        means="for a step with no fence, which [a model does](executor.md)",
        write="name tools: tools: shell, read_file"),
    LineForm("place", "place: NAME", "place", _reader(str, "text"),
        means="where the step runs: a [place](places.md) of the settings",
        write="name a place of [places]: place: cluster",
        also=("runs on",)),
    LineForm("agent", "agent: codex", "agent", _reader(_agent_name, "an agent's name"),
        means="a [coding agent](agents.md) does it: the prose is its task. No fence",
        write="name one agent: agent: codex",
        also=("coding agent",)),
)
# fmt: on
_BY_KEYWORD = {form.keyword: form for form in LINES}

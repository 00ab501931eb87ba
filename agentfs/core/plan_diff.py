"""How two plans differ by meaning, and what that does to work already done. Quick to import.

Nothing that differs is left out or cut, whatever the width: a terminal wraps what is long. The order of keys, the
layout, a `depends_on` that only spells out the step before do not show.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentfs.core.text import (
    GREEN,
    RED,
    YELLOW,
    exact,
    first_line,
    in_ascii,
    inert,
    is_json,
    json_line,
    json_text,
    look,
    look_alikes,
    paint,
    plural,
    quote,
)

if TYPE_CHECKING:
    from agentfs.core.facts import Proposal
    from agentfs.core.run_state import RunState

SHORT = 60  # a value of one line up to this long is shown on the line of its field
AROUND = 2  # lines around a change
GAP = "…"  # lines that are the same in both
ARROW = " -> "
NOTHING = "nothing"
SIGNS: dict[str, tuple[str, int]] = {"added": ("+", GREEN), "removed": ("-", RED), "changed": ("~", YELLOW)}
FATES = {
    "again": "runs again",
    "first": "still to run",
    "on": "runs on",
    "stopped": "is stopped",
    "failed": "has failed",
    "skipped": "left out",
    "kept": "kept",
}
WITH_REASONS = ("again", "stopped", "failed")


def diff_lines(page: dict[str, Any], *, colours: bool) -> list[str]:
    """Return the whole difference."""
    lines = [f"{page['run']}: {heading(page)}", *changed_lines(page, colours=colours)]
    return [*lines, "", *fate_lines(page["effects"])]


def changed_lines(page: dict[str, Any], *, colours: bool) -> list[str]:
    """Return what differs: the plan's own fields, then step by step."""
    lines = [f"  {line}" for change in page["plan"] for line in _field(change, colours=colours)]
    for step in page["steps"]:
        lines += ["", *_step(step, colours=colours)]
    return lines or ["  nothing differs by meaning"]


def effect_lines(effects: list[dict[str, Any]]) -> list[str]:
    """Return what a plan means for work already done: in a line, and step by step."""
    return ["", f"{effect_words(effects)}:", *(f"  {line}" for line in fate_lines(effects))]


def effect_words(effects: Sequence[Mapping[str, Any]]) -> str:
    """Return `reruns 2 steps, keeps 9`."""
    again, kept = (sum(one["fate"] in fates for one in effects) for fates in (("again", "stopped"), ("kept", "on")))
    return f"reruns {plural(again, 'step')}, keeps {kept}"


def heading(page: dict[str, Any]) -> str:
    """Return which two are compared, and who made the second."""
    waiting = page.get("question")
    before = "a plan that is no revision" if page["from"] is None else _name_of(page["from"])
    after = f"the answer of call {waiting['call']}" if waiting else _name_of(page["to"])
    by = page["by"]
    why = f": {first_line(by['detail'])}" if by and page["from"] != 0 else ""  # a first plan needs no reason
    who = f", by {first_line(by['name']) or by['role']}{why}" if by else ""
    return f"{before} -> {after}{who}"


def _name_of(revision: int | None) -> str:
    if revision is None:
        return "plan.json"
    return f"revision {revision}" if revision else "nothing"


def stat_line(page: dict[str, Any]) -> str:
    """Return how much differs, in one line."""
    kinds = [step["kind"] for step in page["steps"]]
    parts = [f"{kinds.count(kind)} {kind}" for kind in SIGNS if kind in kinds]
    parts += [f"the plan's {change['field']} changed" for change in page["plan"]]
    again, kept = (len([e for e in page["effects"] if e["fate"] == fate]) for fate in ("again", "kept"))
    differs = ", ".join(parts) or "nothing differs"
    return f"{heading(page).partition(',')[0]}: {differs}; {plural(again, 'step')} again, {kept} kept"


def _step(step: dict[str, Any], *, colours: bool) -> Iterator[str]:
    sign, colour = SIGNS[step["kind"]]
    yield paint(f"{sign} {inert(step['step'])}", colour, colours=colours) + f"  {step['kind']}"
    if after := step["after"]:
        was = "" if step["kind"] == "added" else f" (it came after {list_steps(after['old'])})"
        yield f"    after {list_steps(after['new'])}{was}"
    for change in step["fields"]:
        for line in _field(change, colours=colours, new=step["kind"] == "added"):
            yield f"    {line}"


def list_steps(steps: Sequence[str]) -> str:
    return ", ".join(map(inert, steps)) or "nothing"


def _field(change: dict[str, Any], *, colours: bool, new: bool = False) -> list[str]:
    """Return a field with its old and new value: on one line if both are short, else line by line."""
    name, old, now = exact(change["field"]), change["old"], change["new"]
    if is_short(old) and is_short(now):
        return [f"{name}: {ARROW.join(spell_values(*((now,) if new else (old, now))))}"]
    return [f"{name}:", *(f"  {line}" for line in _compare(old, now, colours=colours))]


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────


def is_short(value: Any) -> bool:
    """Whether a value fits on the line of its field."""
    text = value if isinstance(value, str) else json_line(value)
    return "\n" not in text and len(text) <= SHORT


def text_of(value: Any) -> str:
    """Return a value as text, which may have many lines."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def spell_values(*values: Any) -> list[str]:
    """Return short values in words, such that those that differ look different."""
    shown = [_describe_value(value) for value in values]
    if len({look(text) for text in shown}) < len({json.dumps(value) for value in values}):
        return [NOTHING if value is None else json.dumps(value) for value in values]
    return shown


def _describe_value(value: Any) -> str:
    if value is None:
        return NOTHING
    if not isinstance(value, str):
        return json_line(value)
    doubtful = value in ("", NOTHING) or value.startswith(" ") or ARROW in value or is_json(value)
    return quote(value) if doubtful else exact(value)


def lines_of(values: list[Any]) -> list[list[str]]:
    """Return each value as lines, such that values that differ have lines that do. None has none."""
    texts = [text_of(value) for value in values]
    if len(set(texts)) < len({json.dumps(value) for value in values if value is not None}):
        texts = [in_ascii(value) if isinstance(value, str) else text_of(value) for value in values]
    found = [[] if value is None else text.split("\n") for value, text in zip(values, texts, strict=True)]
    if all(not lines or lines[-1] == "" for lines in found):
        return [lines[:-1] for lines in found]  # all end with a line break: that need not be shown
    return found


def shown_lines(values: list[Any]) -> list[list[str]]:
    """Return each value as lines to be looked at side by side."""
    sides = lines_of(values)
    shown = _painter(sides)
    return [[shown(line) for line in lines] for lines in sides]


def _painter(sides: list[list[str]]) -> Callable[[str], str]:
    """Return how a line is shown beside all others: exactly, and in ASCII if one that differs looks like it."""
    doubles = look_alikes(line for lines in sides for line in lines)
    return lambda line: in_ascii(line) if look(line) in doubles else exact(line)


def compare_lines(old: Any, new: Any) -> Iterator[tuple[list[str], list[str]] | None]:
    """Yield two long values piece by piece: all that differs, a little around it, None for what is left out.

    A piece is what the old value has there and what the new one has: lines of both that are the same are one list.
    """
    before, after = lines_of([old, new])
    shown = _painter([before, after])
    for number, hunk in enumerate(difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(AROUND)):
        if number:
            yield None
        for kind, *(i, j, k, m) in hunk:
            mine = [*map(shown, before[i:j])]
            yield (mine, mine) if kind == "equal" else (mine, [*map(shown, after[k:m])])


def _compare(old: Any, new: Any, *, colours: bool) -> Iterator[str]:
    """Yield two long values as a difference of lines."""
    for piece in compare_lines(old, new):
        if piece is None:
            yield GAP
            continue
        mine, theirs = piece
        if mine is theirs:
            yield from (f" {line}" for line in mine)
            continue
        if colours and len(mine) == len(theirs):
            pairs = [_mark(*pair) for pair in zip(mine, theirs, strict=True)]
            mine, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        yield from (paint(f"-{line}", RED, colours=colours) for line in mine)
        yield from (paint(f"+{line}", GREEN, colours=colours) for line in theirs)


def _mark(old: str, new: str) -> tuple[str, str]:
    """Return two lines in which the part that differs stands out."""
    start, end = differing(old, new)
    return _reverse(old, start, len(old) - end), _reverse(new, start, len(new) - end)


def differing(old: str, new: str) -> tuple[int, int]:
    """Return how many characters two lines share at their beginning, and at their end."""
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - start
    ends = zip(reversed(old), reversed(new), strict=False)
    return start, next((n for n, (a, b) in enumerate(ends) if n == most or a != b), most)


def _reverse(line: str, start: int, end: int) -> str:
    return f"{line[:start]}\x1b[7m{line[start:end]}\x1b[27m{line[end:]}" if start < end else line


# ── what it means ─────────────────────────────────────────────────────────────────────────────────────────


def fate_lines(effects: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what becomes of the steps, those to which something happens first."""
    for fate, words in FATES.items():
        found = [effect for effect in effects if effect["fate"] == fate]
        if not found:
            continue
        if fate in WITH_REASONS:
            yield f"{words}:"
            yield from (f"  {inert(one['step'])}: {first_line(one['why'])}" for one in found)
        else:
            yield f"{words}: {', '.join(inert(one['step']) for one in found)}"


# ── an answer that waits for a yes ────────────────────────────────────────────────────────────────────────


NOT_YET = "0" * 64  # the hash of a plan that is nowhere yet
SIDES = {"base": "it was", "mine": "yours", "theirs": "the answer"}


def proposal_page(run: str, state: "RunState", proposal: "Proposal") -> dict[str, Any]:
    """Return all there is to say about an answer that is not in effect: what `diff --question --json` prints."""
    from agentfs.core import paths
    from agentfs.core.continuation import with_plan
    from agentfs.core.plan_changes import difference, effects
    from agentfs.core.planner_calls import question_of

    facts, plan = state.facts, proposal.plan
    one = facts.planner_call(proposal.call)
    asked = question_of(one, facts)
    path = paths.call_path(one.number, "question", asked.count) if asked else None
    page: dict[str, Any] = {
        "run": run,
        "from": len(facts.revisions),
        "to": None,
        "by": None,
        "question": {
            "call": proposal.call,
            "path": path,
            "reasons": list(proposal.reasons),
            "conflicts": [asdict(conflict) for conflict in proposal.conflicts],
            "by_hand": list(proposal.touched),
        },
        "plan": [],
        "steps": [],
        "effects": [],
    }
    if plan is None:
        return page
    then = with_plan(facts, plan, NOT_YET, proposal.call)
    fates = [asdict(one) for one in effects(then, state.means, plan)]
    return page | asdict(difference(facts.plan, plan)) | {"effects": fates}


def proposal_lines(page: dict[str, Any], *, colours: bool) -> list[str]:
    """Return an answer that waits, for a terminal."""
    head, *rest = diff_lines(page, colours=colours)
    return [head, *reason_lines(page), *conflict_lines(page), *rest]


def reason_lines(page: dict[str, Any]) -> Iterator[str]:
    """Yield why a person is asked."""
    yield from (f"- {inert(reason)}" for reason in page["question"]["reasons"])


def conflict_lines(page: dict[str, Any]) -> Iterator[str]:
    """Yield where an answer goes against a person's edits, with all its values."""
    for conflict in page["question"]["conflicts"]:
        yield ""
        if conflict["field"] is None:
            yield f"! {conflict['step']}  you {conflict['mine']} it; {_whole(conflict['theirs'])}"
            continue
        yield f"! {conflict['step']}  {conflict['field']}"
        yield from _values([(label, conflict[side]) for side, label in SIDES.items()])


def _whole(theirs: str) -> str:
    return f"the answer {theirs} it" if theirs in ("removed", "changed") else f"it is {theirs}"


def _values(sides: list[tuple[str, Any]]) -> Iterator[str]:
    """Yield the values of the sides: each on a line where all are short, else line by line."""
    values = [value for _, value in sides]
    if all(map(is_short, values)):
        yield from (f"    {label}: {words}" for (label, _), words in zip(sides, spell_values(*values), strict=True))
        return
    for (label, value), lines in zip(sides, shown_lines(values), strict=True):
        yield f"    {label}: nothing" if value is None else f"    {label}:"
        yield from (f"      {line}" for line in lines)


# ── a plan as the lines of text that git compares ─────────────────────────────────────────────────────────


FIRST = ("description", "why", "tool", "input")  # of a step, as plan.json has them; the rest by name
NESTED = ("input", "limits", "tools")


def plan_text(source: bytes) -> str:
    """Return a plan by meaning; raise if it is none."""
    plan = json.loads(source)
    return "".join(f"{line}\n" for line in _plan_lines(plan))


def _plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    for name in ("goal", "status", "limits", "tools"):
        yield from _text_field(name, plan.get(name))
    before: list[str] = []
    for step in plan["steps"]:
        yield from ("", f"step {inert(step['id'])}")
        given = step.get("depends_on")
        after = before if given is None else given
        yield f"  after {', '.join(sorted(map(inert, after))) or 'nothing'}"
        rest = sorted(step.keys() - {*FIRST, "id", "depends_on"})
        for name in (*FIRST, *rest):
            yield from (f"  {line}" for line in _text_field(name, step.get(name)))
        before = [step["id"]]


def _text_field(name: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    if name in NESTED and isinstance(value, dict):
        for key in sorted(value):
            yield from _text_field(f"{name}.{key}", value[key])
        return
    lines = _value_lines(value)
    if len(lines) == 1:
        yield f"{exact(name)}: {lines[0]}"
    else:
        yield from (f"{exact(name)}:", *(f"  {line}" for line in lines))


def _value_lines(value: Any) -> list[str]:
    """Return a value as lines; a text that could be taken for another value is quoted."""
    if isinstance(value, str) and (is_json(value) or value.startswith(" ")):
        return [quote(value)]
    text = value if isinstance(value, str) else json_text(json.loads(json.dumps(value, sort_keys=True)))
    return [exact(line) for line in text.split("\n")]

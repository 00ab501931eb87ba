"""What `diff` prints: how two revisions differ, by meaning, and what that does to work already done."""

import difflib
from collections.abc import Iterator
from typing import Any

from agentfs.views.marks import painted
from agentfs.views.words import block, counted, cut, first_line, inert, json_text

GREEN, RED, YELLOW = 32, 31, 33
SHORT = 60  # a value of one line up to this long is told on the line of its field
LINES = 40  # of one text
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


def diff_lines(page: dict[str, Any], width: int, *, colours: bool) -> list[str]:
    """Return the whole difference."""
    lines = [f"{page['run']}: {heading(page)}", *changed_lines(page, width, colours=colours)]
    return [*lines, "", *fate_lines(page["effects"], width)]


def changed_lines(page: dict[str, Any], width: int, *, colours: bool) -> list[str]:
    """Return what differs: the plan's own fields, then step by step."""
    lines = [f"  {line}" for change in page["plan"] for line in _field(change, width, colours=colours)]
    for step in page["steps"]:
        lines += ["", *_step(step, width, colours=colours)]
    return lines or ["  nothing differs by meaning"]


def effect_lines(effects: list[dict[str, Any]], width: int) -> list[str]:
    """Return what a plan means for work already done: in a line, and step by step."""
    return ["", f"{effect_words(effects)}:", *(f"  {line}" for line in fate_lines(effects, width - 2))]


def effect_words(effects: list[dict[str, Any]]) -> str:
    """Return `reruns 2 steps, keeps 9`."""
    again, kept = (sum(one["fate"] in fates for one in effects) for fates in (("again", "stopped"), ("kept", "on")))
    return f"reruns {counted(again, 'step')}, keeps {kept}"


def heading(page: dict[str, Any]) -> str:
    """Return which two are compared, and who made the second."""
    waiting = page.get("question")
    before = "a plan that is no revision" if page["from"] is None else _called(page["from"])
    after = f"the answer of call {waiting['call']}" if waiting else _called(page["to"])
    by = page["by"]
    who = f", by {first_line(by['name']) or by['role']}: {first_line(by['detail'])}" if by else ""
    return f"{before} -> {after}{who}"


def _called(revision: int | None) -> str:
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
    return f"{heading(page).partition(',')[0]}: {differs}; {counted(again, 'step')} again, {kept} kept"


def _step(step: dict[str, Any], width: int, *, colours: bool) -> Iterator[str]:
    sign, colour = SIGNS[step["kind"]]
    yield painted(f"{sign} {inert(step['step'])}", colour, colours=colours) + f"  {step['kind']}"
    if after := step["after"]:
        was = "" if step["kind"] == "added" else f" (it came after {_listed(after['old'])})"
        yield cut(f"    after {_listed(after['new'])}{was}", width)
    for change in step["fields"]:
        for line in _field(change, width, colours=colours, new=step["kind"] == "added"):
            yield f"    {line}"


def _listed(steps: list[str]) -> str:
    return ", ".join(map(inert, steps)) or "nothing"


def _field(change: dict[str, Any], width: int, *, colours: bool, new: bool = False) -> list[str]:
    """Return a field with its old and new value: on one line if both are short, else line by line."""
    name, old, now = inert(change["field"]), change["old"], change["new"]
    if is_short(old) and is_short(now):
        words = said(now) if new else f"{said(old)} -> {said(now)}"
        return [f"{name}: {words}"]
    return [f"{name}:", *(f"  {line}" for line in _compared(old, now, width, colours=colours))]


def is_short(value: Any) -> bool:
    """Whether a value fits on the line of its field."""
    text = text_of(value)
    return "\n" not in text and len(text) <= SHORT


def text_of(value: Any) -> str:
    """Return a value as text, which may have many lines."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def said(value: Any) -> str:
    """Return a short value in words."""
    if value is None:
        return "nothing"
    return inert(value) if isinstance(value, str) else json_text(value)


def _compared(old: Any, new: Any, width: int, *, colours: bool) -> list[str]:
    """Return two long values as a small difference of lines, as far as it is worth reading."""
    before, after = (block(text_of(value)) if value is not None else [] for value in (old, new))
    lines = [line for line in difflib.unified_diff(before, after, n=2, lineterm="") if line[:3] not in ("---", "+++")]
    lines = [line for line in lines if not line.startswith("@@")]
    shown = [painted(cut(line, max(20, width - 8)), _colour(line), colours=colours) for line in lines[:LINES]]
    return shown if len(lines) <= LINES else [*shown, f"… {len(lines) - LINES} more lines"]


def _colour(line: str) -> int | None:
    return {"+": GREEN, "-": RED}.get(line[:1])


def fate_lines(effects: list[dict[str, Any]], width: int) -> Iterator[str]:
    """Yield what becomes of the steps, those to which something happens first."""
    for fate, words in FATES.items():
        found = [effect for effect in effects if effect["fate"] == fate]
        if not found:
            continue
        if fate in WITH_REASONS:
            yield f"{words}:"
            yield from (cut(f"  {inert(one['step'])}: {first_line(one['why'])}", width) for one in found)
        else:
            yield f"{words}: {', '.join(inert(one['step']) for one in found)}"

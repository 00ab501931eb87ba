"""What changed in a plan, who changed it, why, and what that reran or would rerun. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentfs.core import paths
from agentfs.core.commit_messages import reason_of
from agentfs.core.plan_diff import (
    FATES,
    SIDES,
    WITH_REASONS,
    compare_lines,
    differing,
    effect_words,
    is_short,
    list_steps,
    shown_lines,
    spell_values,
)
from agentfs.core.records import Author, Revision
from agentfs.core.text import exact, first_line, plural
from agentfs.web.gather import RevisionView, RunPage
from agentfs.web.html import Child, Html, between, el, join
from agentfs.web.marks import share_el, step_anchor, time_el

Page = Mapping[str, Any]
SIGNS = {"added": "+", "removed": "\u2212", "changed": "~"}
LISTED = 8  # names in a row
IN_WORDS = frozenset(("description", "why", "success_condition", "goal"))  # fields that are no code
ON_ONE_LINE = 32  # characters that an old and a new value take beside each other
FATE_TONES = {"kept": "good", "on": "busy", "again": "person", "stopped": "bad", "failed": "bad", "first": "quiet"}
FOLDED_STEPS = 12  # differences of steps that are open at once
OPEN_REVISIONS = 8  # the newest: they are open, the rest is folded


def revisions_section(page: RunPage) -> Html | None:
    """Return every revision, the newest first: who, why, what, and what ran because of it."""
    if not page.revisions:
        return None
    newest = page.revisions[::-1]
    cards = [_card(page, one, is_open=place < OPEN_REVISIONS) for place, one in enumerate(newest)]
    return el("ol", (el("li", card) for card in cards), class_="revisions", reversed=True)


def who(by: Author) -> str:
    """Return a person by name, a planner with its model, a runbook as such."""
    if by.role == "person":
        return first_line(by.name) or "a person"
    if by.role == "runbook":
        return "the runbook"
    return first_line(f"{by.role} {by.model or ''}")


def _card(page: RunPage, one: RevisionView, *, is_open: bool) -> Html:
    record = one.record
    parts = (
        el("span", f"Revision {record.revision}", class_="number"),
        el("span", who(record.by), class_=f"who {record.by.role}"),
        el("span", reason_of(record), class_="why"),
        _counts(one),
        time_el(record.at, page.zone),
    )
    head = el("summary", between(parts))
    return el("details", head, _card_body(page, one), open=is_open, id=f"revision-{record.revision}", class_="card")


def _counts(one: RevisionView) -> Html | None:
    """Return how much a revision changed and reran, so that the list alone tells it."""
    if one.change is None or one.record.revision == 1:
        return None
    kinds = [step.kind for step in one.change.steps]
    found = [
        el("span", f"{sign}{kinds.count(kind)}", class_=kind, title=f"{kind} steps")
        for kind, sign in SIGNS.items()
        if kind in kinds
    ]
    if one.again:
        found.append(el("span", f"reran {len(one.again)}", class_="again"))
    return el("span", between(found), class_="counts") if found else None


def _card_body(page: RunPage, one: RevisionView) -> Html:
    record = one.record
    detail = el("p", record.detail, class_="detail") if record.trigger not in ("first", "edited") else None
    if record.revision == 1 and one.change is not None:
        what: Child = el("p", f"The first plan, {plural(len(one.change.steps), 'step')}.", class_="quiet")
    elif one.change is None:
        what = el("p", "One of the two plans cannot be read: restore it from the ledger.", class_="quiet")
    else:
        what = difference_el(asdict(one.change))
    return el(
        "div",
        detail,
        _evidence(page, record),
        what,
        _ran(one),
        el("p", "commit ", el("code", one.commit[:12]), class_="quiet") if one.commit else None,
        class_="body",
    )


def _evidence(page: RunPage, record: Revision) -> Html | None:
    """Return what a revision rests on: attempts lead to their step."""
    if not record.evidence:
        return None
    shown: list[Child] = []
    for path in record.evidence[:LISTED]:
        file = paths.parse_step_file(path.rpartition("/")[2]) if path.startswith(f"{paths.STEPS}/") else None
        known = file is not None and any(view.id == file.step for view in page.steps)
        name = el("code", path)
        shown += [el("a", name, href=step_anchor(file.step)) if file and known else name, " "]
    more = len(record.evidence) - LISTED
    return el("p", "evidence: ", shown, f"and {more} more" if more > 0 else None, class_="quiet evidence")


def _ran(one: RevisionView) -> Html:
    """Return what was done because of a revision: that is what it really cost."""
    reran = f"reran {plural(len(one.again), 'step')}: {_names(one.again)}"
    parts: list[Child] = [
        el("span", reran, class_="again") if one.again else None,
        f"kept {one.kept}" if one.kept else None,
        f"ran {plural(len(one.ran), 'step')} for the first time" if one.ran and one.record.revision > 1 else None,
        f"ran {plural(len(one.ran), 'step')}" if one.ran and one.record.revision == 1 else None,
    ]
    if not (one.again or one.ran):
        return el("p", "Nothing ran under it.", class_="consequence")
    return el("p", "It ", between(parts, ", "), ".", class_="consequence")


def _names(steps: Sequence[str]) -> str:
    more = f" and {len(steps) - LISTED} more" if len(steps) > LISTED else ""
    return ", ".join(steps[:LISTED]) + more


# ── a difference ──────────────────────────────────────────────────────────────────────────────────────────


def difference_el(page: Page) -> Html:
    """Return how two plans differ, by meaning: the plan's own fields, then step by step."""
    own = [_field(change) for change in page["plan"]]
    steps = [_step(step, folded=len(page["steps"]) > FOLDED_STEPS) for step in page["steps"]]
    if not own and not steps:
        return el("p", "Nothing differs by meaning.", class_="quiet")
    return el("div", el("dl", own, class_="fields") if own else None, steps, class_="difference")


def _step(step: Page, *, folded: bool) -> Html:
    kind = step["kind"]
    head = [
        el("span", SIGNS[kind], class_="sign", aria_hidden="true"),
        el("code", step["step"]),
        el("span", kind, class_="kind"),
        _moved_el(step),
    ]
    fields = [_field(change, new=kind == "added") for change in step["fields"]]
    if not fields:
        return el("div", el("p", between(head), class_="head"), class_=f"step {kind}")
    return el(
        "details",
        el("summary", between(head), class_="head"),
        el("dl", fields, class_="fields"),
        open=not folded,
        class_=f"step {kind}",
    )


def _moved_el(step: Page) -> Html | None:
    after = step["after"]
    if not after:
        return None
    was = "" if step["kind"] == "added" else f" (it came after {list_steps(after['old'])})"
    return el(
        "span", f"{'' if step['kind'] == 'added' else 'now '}after {list_steps(after['new'])}{was}", class_="moved"
    )


def _field(change: Page, *, new: bool = False) -> Html:
    name, old, now = exact(change["field"]), change["old"], change["new"]
    kind = None if name in IN_WORDS else "value"
    return join(el("dt", el("code", name)), el("dd", _values(old, now, new=new), class_=kind))


def _values(old: Any, now: Any, *, new: bool) -> Child:
    """Return both values: on one line if both are short, else line by line with a little around what differs."""
    if is_short(old) and is_short(now):
        if new:
            return el("ins", spell_values(now)[0])
        was, is_now = spell_values(old, now)
        if len(was) + len(is_now) <= ON_ONE_LINE or old is None or now is None:
            return [el("del", was), " → ", el("ins", is_now)]
        return el("pre", _pair(was, is_now), class_="lines")
    return el("pre", _lines(old, now), class_="lines")


def _lines(old: Any, now: Any) -> Iterator[Html]:
    for piece in compare_lines(old, now):
        if piece is None:
            yield el("span", "…\n", class_="gap")
            continue
        mine, theirs = piece
        if mine is theirs:
            yield from (el("span", f"  {line}\n") for line in mine)
            continue
        if len(mine) == len(theirs):
            for pair in zip(mine, theirs, strict=True):
                yield from _pair(*pair)
            continue
        yield from (el("del", f"- {line}\n") for line in mine)
        yield from (el("ins", f"+ {line}\n") for line in theirs)


def _pair(old: str, new: str) -> Iterator[Html]:
    """Yield a line that was and the one in its place, with what differs between them marked."""
    start, end = differing(old, new)
    if _is_in_word(old, start) or _is_in_word(new, start):
        start = old.rfind(" ", 0, start) + 1
    if _is_in_word(old, len(old) - end) or _is_in_word(new, len(new) - end):
        end = len(old) - space if (space := old.find(" ", len(old) - end)) >= 0 else 0
    for name, sign, line in (("del", "- ", old), ("ins", "+ ", new)):
        middle = line[start : len(line) - end]
        yield el(name, sign, line[:start], el("mark", middle) if middle else None, line[len(line) - end :], "\n")


def _is_in_word(line: str, place: int) -> bool:
    return not (line[:place] or " ")[-1].isspace() and not (line[place:] or " ")[0].isspace()


# ── what a plan would mean ────────────────────────────────────────────────────────────────────────────────


def effects_el(effects: Sequence[Page]) -> Html:
    """Return what becomes of each step under a plan: in a line, then by fate, with reasons where work is lost."""
    counts = {fate: [one for one in effects if one["fate"] == fate] for fate in FATES}
    reruns, _, keeps = effect_words(effects).partition(", ")
    lost = counts["again"] or counts["stopped"]
    head = el("p", el("strong", reruns, class_="again" if lost else None), f", {keeps}", class_="consequence")
    rows = []
    for fate, words in FATES.items():
        if found := counts[fate]:
            rows += [el("dt", words), el("dd", _fates(fate, found))]
    bar = share_el(*((100 * len(counts[fate]) / max(1, len(effects)), tone) for fate, tone in FATE_TONES.items()))
    return el("div", head, bar, el("dl", rows, class_="fates"), class_="effects")


def _fates(fate: str, found: Sequence[Page]) -> Child:
    if fate not in WITH_REASONS:
        return (
            between([el("code", one["step"]) for one in found[:60]], " ")
            if len(found) <= 60
            else f"{len(found)} steps"
        )
    return el("ul", (el("li", el("code", one["step"]), f" {first_line(one['why'])}") for one in found[:60]))


def proposal_el(page: Page) -> Html:
    """Return an answer that waits: why a person is asked, where it goes against their edits, what it changes."""
    asked = page["question"]
    return el(
        "div",
        el("ul", (el("li", reason) for reason in asked["reasons"]), class_="reasons") if asked["reasons"] else None,
        [_conflict(one) for one in asked["conflicts"]],
        effects_el(page["effects"]) if page["effects"] else None,
        difference_el(page),
        class_="proposal",
    )


def _conflict(one: Page) -> Html:
    """Return where an answer and a person's edit want otherwise, side by side."""
    if one["field"] is None:
        head = el("p", el("strong", one["step"]), " as a whole", class_="head")
        return el("div", head, el("p", f"you {one['mine']} it; the answer: {one['theirs']}"), class_="conflict")
    field, values = _narrowed(one["field"], [one[side] for side in SIDES])
    head = el("p", el("strong", one["step"]), " ", el("code", exact(field)), class_="head")
    cells = [
        el("div", el("h4", label), el("pre", "\n".join(text) if value is not None else "nothing"), class_=side)
        for (side, label), value, text in zip(SIDES.items(), values, shown_lines(values), strict=True)
    ]
    return el("div", head, el("div", cells, class_="sides"), class_="conflict")


def _narrowed(field: str, values: list[Any]) -> tuple[str, list[Any]]:
    """Return where in a field its values differ, if that is one place: what is around it is the same for all."""
    while all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        differ = [key for key in keys if any(value.get(key) != values[0].get(key) for value in values)]
        if len(differ) != 1:
            break
        field, values = f"{field}.{differ[0]}", [value.get(differ[0]) for value in values]
    return field, values


def comparison_el(page: Page) -> Html:
    """Return two revisions compared, and what the second means for the work that is done."""
    return el("div", effects_el(page["effects"]), difference_el(page), class_="comparison")

"""A step with `each`: one attempt per item of a list that is known only at run time. Pure.

plan.json keeps the one step. Its items are attempted under ids of their own, STEP~SLUG, as any step is; once all of
them have ended, code writes one result for the step. To everything else, that is the step.

    dependencies open, or no list          -> as any step: waiting, skipped, blocked
    its condition or gate is not settled   -> the step's own: no item gets an order
    an item has not ended                  -> running; each item's view says what it calls for
    and the run has                        -> interrupted; waiting where no item began
    every item has ended                   -> `gather`: the result is written; then done or failed
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.excerpts import reason
from agentfs.core.facts import GATE_WORDS, Attempt, explain_uncounted, gate_word
from agentfs.core.hashing import canonical, sha256_of
from agentfs.core.records import Step
from agentfs.core.references import INDEX, find
from agentfs.core.references import ITEM as THE_ITEM
from agentfs.core.resolve import Output, Unresolved, item_limit, resolve_list
from agentfs.core.steps import (
    A_NO,
    Around,
    Status,
    StepBase,
    StepView,
    condition_sha256,
    done_view,
    move_on_failure,
    output_path,
    rejected_view,
    result_path,
    skipped_words,
    unfinished_view,
    unreachable_view,
    view,
)

LONGEST_NAME, HEAD, DIGITS = 24, 15, 8  # of an item's slug
SHOWN = 3  # items named in one message
STARTING_MOVES = frozenset(("order", "retry", "start"))  # what an item calls for that needs the step's permission
OVER = frozenset(("done", "failed", "blocked", "rejected", "skipped"))


def slugs(items: Collection[JsonValue]) -> list[str]:
    """Return a name for each item that files can have: its own where that will do; no two are the same."""
    taken: set[str] = set()
    found = []
    for item in items:
        base = name = item_slug(item)
        number = 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        found.append(name)
    return found


def item_slug(item: JsonValue) -> str:
    """Return an item's text, or its `id` or `name`, if that is short and plain; else its beginning and a hash."""
    own = (item.get("id") or item.get("name") or item) if isinstance(item, dict) else item
    text = own if isinstance(own, str) else canonical(own).decode()
    if text and len(text) <= LONGEST_NAME and paths.plain_name(text, LONGEST_NAME) == text:
        return text
    head = paths.plain_name(text[:200], HEAD)
    return "-".join(part for part in (head, sha256_of(item)[:DIGITS]) if part)


def items_in(step: Step, outputs: Mapping[str, Output], around: Around) -> tuple[JsonValue, ...] | Unresolved:
    """Return the list that a step goes through: text counts as its non-empty lines."""
    found = resolve_list(step, outputs, around.goal, around.params)
    if isinstance(found, Unresolved):
        return found
    source = listed_step(step) or step.id
    if isinstance(found, str):
        found = [line for line in found.splitlines() if line.strip()]
    if not isinstance(found, list):
        what = "an object" if isinstance(found, dict) else canonical(found).decode()
        return Unresolved(source, f"each takes a list or text, not {what}")
    if len(found) > around.items:
        why = f"the list has {len(found)} items, more than limits.items ({around.items}): raise it in plan.json"
        return Unresolved(source, why)
    written, room = len(canonical(step.input or {})), item_limit_of(step, len(found), around)
    if written > room:
        why = f"{len(found)} times the {written} bytes of its input are too many: at most {room} bytes for each item"
        return Unresolved(source, why)
    return tuple(found)


def item_limit_of(step: Step, items: int, around: Around) -> int:
    """Return how many bytes one of so many items may come to: all of them are kept, and asked about together."""
    return item_limit(around.room, items, gated=bool(step.gate) or around.is_gated(step))


def listed_step(step: Step) -> str | None:
    """Return the step whose output is the list; None: it is written down, or a parameter."""
    return next((one.step for one in find(step.each) if one.step), None) if isinstance(step.each, str) else None


def view_each(
    step: Step,
    before: Mapping[str, StepView],
    attempts: Mapping[str, tuple[Attempt, ...]],
    around: Around,
    lists: Collection[str],
    known: StepView | None = None,
    touched: Collection[str] = (),
) -> StepView:
    """Return the state these files mean for a step with `each`. `lists`: dependencies that its items do not follow.

    `known`: an earlier view of the same step after the same dependencies; of its items only the `touched` are new.
    """
    follows = {name: one for name, one in before.items() if name not in lists}
    base = StepBase.of(step, follows, attempts.get(step.id, ()), around)
    if base.latest.is_unfinished:
        return unfinished_view(base)  # an attempt from before it had `each`
    if step.skip:
        return base.view("skipped", f"left out: {step.skip}", satisfied=True)
    if open_ones := [name for name, dependency in before.items() if not dependency.satisfied]:
        stale = base.latest.result is not None and base.latest.result.status == "done"
        shown = ", ".join(open_ones[:SHOWN])
        return base.view("stale" if stale else "waiting", f"waits for {shown}")
    if lost := StepBase.of(step, before, (), around).lost_outputs():
        conditional = all(before[name].conditional for name in lost)
        why = f"uses the output of {', '.join(lost[:SHOWN])}, which has none"
        return base.view("skipped", why, satisfied=True, conditional=conditional)
    if known is not None and known.key is not None:
        return _with_items(base, _view_again(step, known, follows, attempts, around, touched), known)
    found = _items(step, before, follows, attempts, around)
    if isinstance(found, Unresolved):
        return unreachable_view(StepBase.of(step, before, base.attempts, around), found)
    return _with_items(base, found)


def _items(
    step: Step,
    before: Mapping[str, StepView],
    follows: Mapping[str, StepView],
    attempts: Mapping[str, tuple[Attempt, ...]],
    around: Around,
) -> tuple[StepView, ...] | Unresolved:
    outputs = {
        name: Output(*around.whole(name, one.attempt, one.result), output_path(name, one.attempt))
        for name, one in before.items()
        if one.status == "done" and one.result is not None
    }
    values = items_in(step, outputs, around)
    if isinstance(values, Unresolved):
        return values
    found = []
    around_items = _around_items(step, len(values), around)
    for index, (slug, value) in enumerate(zip(slugs(values), values, strict=True)):
        mine = item_step(step, slug, once=around.is_gated(step))
        params = {**around.params, THE_ITEM: value, INDEX: index}
        found.append(view(mine, follows, attempts.get(mine.id, ()), replace(around_items, params=params)))
    return tuple(found)


def item_step(step: Step, slug: str, *, once: bool = False) -> Step:
    """Return what is done with one item: a step without what is the whole step's. `once`: a yes is for one try."""
    own = {"id": f"{step.id}{paths.ITEM}{slug}", "max_attempts": 1 if once or step.gate else step.max_attempts}
    return step.model_copy(update={**own, **dict.fromkeys(("each", "when", "gate", "on_failure", "skip"))})


def _around_items(step: Step, items: int, around: Around) -> Around:
    """Return what an item's state depends on: permission is the step's question, and all share its room."""
    room = item_limit_of(step, items, around)
    return replace(around, room=room, planner_made_stale=lambda _step, _since: False, gated=frozenset())


def _view_again(
    step: Step,
    known: StepView,
    follows: Mapping[str, StepView],
    attempts: Mapping[str, tuple[Attempt, ...]],
    around: Around,
    touched: Collection[str],
) -> tuple[StepView, ...]:
    """Return the items with those looked at again whose files have changed."""
    found, around_items = list(known.items), _around_items(step, len(known.items), around)
    for place in sorted({known.item_at[name] for name in touched if name in known.item_at}):
        one = found[place]
        slug = one.id.partition(paths.ITEM)[2]
        mine = item_step(step, slug, once=around.is_gated(step))  # not one.step: words in it are filled in, once
        own = replace(around_items, params=one.params or {})
        found[place] = view(mine, follows, attempts.get(one.id, ()), own, one)
    return tuple(found)


def _with_items(base: StepBase, items: tuple[StepView, ...], known: StepView | None = None) -> StepView:
    """Return the state of a step whose list is known; what an item does is the same after the same dependencies."""
    found = _state_of(base, items, known.key if known else None)
    return replace(found, item_at=known.item_at if known else {one.id: place for place, one in enumerate(items)})


def _state_of(base: StepBase, items: tuple[StepView, ...], key: str | None) -> StepView:
    if key is None and (unknown := next((one for one in items if one.key is None and one.status == "blocked"), None)):
        why = f"{unknown.id}: {unknown.why}"
        return replace(unreachable_view(base, Unresolved(listed_step(base.step) or base.step.id, why)), items=items)
    key = key or sha256_of({"each": [one.key for one in items]})
    if ended := _view_skipped(base, key, items) or _view_refused(base, key, items):
        return ended
    waiting = [one for one in items if not is_over(one)]
    if any(one.move in STARTING_MOVES for one in waiting) and (held := _view_held(base, key, items)):
        return held
    if waiting:
        return base.view(_unended(base, items), progress(items), key=key, items=items, is_open=True)
    return _view_ended(base, key, items)


def _unended(base: StepBase, items: tuple[StepView, ...]) -> Status:
    """Return the state of a step that has no result for its items: nothing runs in a run that has ended."""
    if not base.around.ended:
        return "running"
    return "interrupted" if any(one.attempt for one in items) else "waiting"


def is_over(item: StepView) -> bool:
    """Whether nothing more happens to an item by itself."""
    return item.status in OVER and item.move in (None, "call", "halt")


def progress(items: tuple[StepView, ...]) -> str:
    """Return `197/200, 3 failed`."""
    done = failed = 0
    for one in items:
        if one.status == "done":
            done += 1
        elif is_over(one):
            failed += 1
    return f"{done}/{len(items)}{f', {failed} failed' if failed else ''}"


# ── the step's own condition and gate ─────────────────────────────────────────────────────────────────────


def _view_skipped(base: StepBase, key: str, items: tuple[StepView, ...]) -> StepView | None:
    """Return that the step's condition does not hold, while that counts."""
    result, condition = base.latest.result, base.condition()
    if result is None or base.latest.again or result.status != "skipped" or condition is None:
        return None
    if result.key != key or result.when_sha256 != condition_sha256(condition) or not base.fits(result):
        return None
    return base.view("skipped", skipped_words(result), satisfied=True, conditional=True, key=key, items=items)


def _view_refused(base: StepBase, key: str, items: tuple[StepView, ...]) -> StepView | None:
    """Return that a person said no to the step's gate, or that its condition gave no verdict, while that counts."""
    result = base.latest.result
    if result is None or base.latest.again or result.status not in ("rejected", "blocked") or result.key != key:
        return None
    if base.around.spent.get(result_path(base.step.id, result.attempt)) in ("plan", "finished", "impossible"):
        return None
    return replace(rejected_view(base, key, None, result), items=items)


def _view_held(base: StepBase, key: str, items: tuple[StepView, ...]) -> StepView | None:
    """Return what comes before the first order of an item: the step's condition, then its gate; None: neither."""
    last = base.attempts[-1] if base.attempts else Attempt(0)
    open_question = last.talks[-1] if last.talks and last.result is None else None
    asked = open_question if open_question is not None and open_question.key == key else None
    more: dict[str, object] = {"key": key, "items": items}
    begun = any(one.attempt for one in items)
    condition = base.condition()
    if condition and not asked and not begun and (base.step.id, key) not in base.around.held:
        return base.view("ready", "its condition is looked at first", move="look", condition=condition, **more)
    if not _needs_permission(base, items):
        return None
    if asked is None:
        return base.view("gated", "needs approval", move="ask", **more)
    more["next"] = last.number
    match gate_word(asked.reply):
        case "approve":
            return None
        case "reject":
            return base.view("gated", A_NO, move="reject", **more)
        case None:
            why = explain_uncounted(asked.reply, GATE_WORDS) or "needs approval"
            return base.view("gated", why, move="person", **more)


def _needs_permission(base: StepBase, items: tuple[StepView, ...]) -> bool:
    if base.around.is_gated(base.step):
        return True
    around, step = base.around, base.step
    if around.repeatable(step):
        return False
    redone = [one.result for one in items if one.status == "stale" and one.move in STARTING_MOVES]
    return any(result is not None and around.planner_made_stale(step.id, result.revision) for result in redone)


# ── the end of all items ──────────────────────────────────────────────────────────────────────────────────


def _view_ended(base: StepBase, key: str, items: tuple[StepView, ...]) -> StepView:
    """Return the state of a step all of whose items have ended."""
    result, attempts = base.latest.result, {one.id.partition(paths.ITEM)[2]: one.attempt for one in items}
    current = result is not None and result.key == key and result.items == attempts and base.fits(result)
    if result is None or not current or base.latest.again:
        return base.view(_unended(base, items), progress(items), key=key, items=items, move="gather")
    if result.status == "done":
        done = done_view(base, key, None, result)
        return replace(done, items=items, why=done.why if done.trigger else progress(items))
    failed = tuple(one for one in items if one.status != "done")
    evidence = (result_path(base.step.id, result.attempt), *(result_path(one.id, one.attempt) for one in failed))
    repeated = any(one.trigger == "repeated_failure" for one in failed)
    return base.view(
        "failed",
        reason(result.error.message) if result.error else progress(items),
        key=key,
        items=items,
        satisfied=base.step.on_failure == "continue",
        move=move_on_failure(base),
        trigger="repeated_failure" if repeated else "step_failed",
        evidence=tuple(sorted(evidence)),
    )


def gather_items(view: StepView) -> tuple[bool, str | None]:
    """Return whether a step all of whose items have ended is done, and what went wrong with those that failed."""
    failed = [one for one in view.items if one.status != "done"]
    if not failed:
        return True, None
    named = "; ".join(f"{one.id}: {one.why}" for one in failed[:SHOWN])
    more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    words = f"{progress(view.items)}: {named}{more}"
    return view.step.on_failure == "continue" and len(failed) < len(view.items), words


def surprises(view: StepView) -> Iterator[str]:
    for one in view.items:
        if one.result is not None and one.result.surprising:
            yield f"{one.id}: {one.result.surprise}"

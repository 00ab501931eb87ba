"""What a planner is given when it is called: facts and state -> one text in sections. Pure: others read the files.

Text that comes from files, tools, models or people other than the goal's is fenced, and marked as material. Of an
executor's conversation nothing is here but what its result says.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentfs.core import paths
from agentfs.core.excerpts import as_text, check_words, fence_text, shorten
from agentfs.core.facts import RUN, Facts
from agentfs.core.hashing import check_value
from agentfs.core.plan_merge import HandEdits
from agentfs.core.proof import acceptance_checks
from agentfs.core.records import Call, Result, Trigger
from agentfs.core.run_state import RunState, seconds_left, used_by
from agentfs.core.steps import result_path
from agentfs.core.tool_spec import Catalogue, ToolSpec
from agentfs.planner.answer import PlanContext

CONTEXT_CHARACTERS = 40_000  # of all context together
OUTPUTS_CHARACTERS = 24_000  # of all outputs together
OUTPUT_CHARACTERS = 2_000  # of one
ERROR_CHARACTERS = 1_500
_DONE_TEXT = 300  # of one text in a step that is done

_OUTPUTS = {
    "shell": "what it prints: a JSON object or list as a value, anything else as text",
    "python": "what it prints, as shell",
    "read_file": "the text",
    "write_file": "{path, bytes}",
    "edit_file": "{path}",
    "list_files": "a list of paths",
    "search_files": "a list of {path, line, text}",
    "http_get": "the body: a value if it is JSON, else text",
    "web_search": "a list of {title, url, snippet}",
    "summarize": "text",
    "ask": "a person's reply",
    "run": "the answer of that run",
    "note": "the text",
}
MOST_RUNBOOKS = 50  # goals that a planner is shown
_WHY: dict[Trigger, str] = {
    "first": "Write the first plan.",
    "goal_changed": "The goal was edited. Change the plan to fit it; what is finished stays.",
    "asked": "A person asks for another plan. Their words are below.",
    "step_unreachable": "A step cannot be done as it stands. Find another way.",
    "repeated_failure": "A step failed again and again: the approach is wrong, not the luck. Find another.",
    "step_failed": "A step failed and may not be tried again as it is. Find another way.",
    "unexpected_state": "A step succeeded, but its result is surprising. Does the plan still make sense?",
    "goal_checks_failed": "Every step is done, but the goal's own checks do not hold. Add what is missing.",
    "drift": "One loop tried to do all of it and got nowhere, or needs a plan. Plan it in steps.",
    "next_step": "The last step is done. Add the one next step, or say that the goal is reached.",
    "every_step": "A step is done. Look over the rest of the plan: keep it, or change it.",
    "edited": "The plan was edited.",
}


@dataclass(frozen=True, slots=True)
class Material:
    """What was read for the planner, each within its bounds."""

    context: tuple[tuple[str, str], ...] = ()  # where it is from -> its text
    listing: tuple[str, ...] = ()  # the working folder: one line per entry
    complete: bool = True  # the listing names everything
    instructions: str | None = None  # the working folder's AGENTS.md
    kept: str | None = None  # context and instructions as they were at the first call, in sections


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The working folder as the planner was shown it."""

    workdir: str = "/"  # its real path
    readable: tuple[str, ...] = ()  # other folders that tools may read
    files: frozenset[str] = frozenset()  # relative to it
    folders: frozenset[str] = frozenset()
    complete: bool = False  # there is nothing else


def briefing(
    call: Call, state: RunState, context: PlanContext, material: Material, catalogue: Catalogue, hand_edits: HandEdits
) -> str:
    """Return everything a planner gets for one call, beside its context instructions."""
    facts = state.facts
    sections = [
        ("Goal", [facts.goal.text, *_params(facts), *_goal_checks(facts)]),
        ("Working folder", [_listing(material)]),
        ("Tools", [_tools(catalogue)]),
        ("Limits left", [_limits(state, context)]),
        ("The plan as it stands", [_plan(context)] if context.plan is not None else []),
        ("Set by a person's hand", [_hand_edits(hand_edits, context)] if hand_edits else []),
        ("Results so far", [*_results(state, call)]),
        ("Why you are called", [*_triggers(call, state), *_mode(context)]),
    ]
    kept = material.kept if material.kept is not None else context_page(material)
    return "\n\n".join(part for part in (_page(sections[:1]), kept.strip(), _page(sections[1:])) if part)


def context_page(material: Material) -> str:
    """Return what a planner is given to read beside the goal, in sections: read once, for steps could change it."""
    instructions = [fence_text(cut(material.instructions, 8000))] if material.instructions else []
    return _page([("Context", [*_context(material)]), ("AGENTS.md of the working folder", instructions)])


def _page(sections: Sequence[tuple[str, list[str]]]) -> str:
    return "\n\n".join("\n\n".join([f"# {title}", *parts]) for title, parts in sections if parts)


def cut(text: str, most: int) -> str:
    """Return a text that is not too long: its head and its tail, with a note of what is missing in between."""
    if len(text) <= most:
        return text
    tail = most // 3
    head = most - tail
    return f"{text[:head]}\n[… {len(text) - most} characters left out …]\n{text[-tail:]}"


# ── what is there ─────────────────────────────────────────────────────────────────────────────────────────


def _params(facts: Facts) -> Iterator[str]:
    """Yield the values that the run was given: a plan names them, so that it can be run again with others."""
    if given := facts.run.params:
        example = next(iter(given))
        yield (
            "These values were given as parameters. Wherever a step uses one, write its reference, like "
            f"{{{{params.{example}}}}}, not the value:\n{fence_text(cut(_json(given), 8000))}"
        )


def _goal_checks(facts: Facts) -> Iterator[str]:
    if wanted := acceptance_checks(facts) if facts.plan else facts.goal.checks:
        checks = [check_value(check) for check in wanted]
        yield f"When every step is done these checks must hold:\n{fence_text(_json(checks))}"


def _context(material: Material) -> Iterator[str]:
    left = CONTEXT_CHARACTERS
    for source, text in material.context:
        shown = cut(text, max(left, 200))
        left -= len(shown)
        yield f"{source}:\n{fence_text(shown)}"


def _listing(material: Material) -> str:
    if not material.listing:
        return "It is empty."
    more = "" if material.complete else "\n(and more that is not listed)"
    return fence_text("\n".join(material.listing)) + more


def _tools(catalogue: Catalogue) -> str:
    lines = [_tool(catalogue.tools[name]) for name in sorted(catalogue.usable())]
    if RUN in catalogue.usable():
        listed = [f"  - {_json(line)}" for line in catalogue.runbooks()[:MOST_RUNBOOKS]]
        lines += [
            "  `uses` of run is one of these, word for word; a person is asked before each such step:",
            *(listed or ["  (there is none: do not use run)"]),
        ]
    if catalogue.agent is not None:
        lines.append(
            f"- no tool: the coding agent {catalogue.agent} does the step by itself, in the working folder, with "
            "tools of its own (leave `tools` out). Give it whole pieces of work, with checks that run what it made. "
            "It sees the step's description, success_condition and input "
            '(`{"material": text}`), and nothing else of the plan. Output: its text, or JSON.'
        )
    elif catalogue.model:
        lines.append(
            "- no tool: a model does the step by itself, with the tools in `tools` only. It sees the step's "
            'description, success_condition and input (`{"material": text}`), and nothing else of the plan. '
            "Output: its text, or JSON."
        )
    if agents := catalogue.usable_agents():
        lines.append(
            "- no tool, and in `agent` one of "
            + ", ".join(agents)
            + ": that coding agent does the step, with tools of its own (leave `tools` out)."
        )
    if catalogue.places:
        names = ", ".join(catalogue.places)
        lines.append(f"- `place`: where a step runs, if not where the others do. One of {names}; seldom needed.")
    return "\n".join(lines)


def _tool(spec: ToolSpec) -> str:
    effects = {"none": "no effects", "execute": "runs a program"}.get(spec.effects, f"effects: {spec.effects}")
    output = f" Output: {_OUTPUTS[spec.name]}." if spec.name in _OUTPUTS else ""
    if spec.touches:  # the words are a stranger's
        asked = "a person is asked before each call, and no model may be given it; " if spec.gated else ""
        return f"- {spec.name} ({asked}its server says of it: {_json(spec.summary)}). Input: {_signature(spec)}."
    return f"- {spec.name} ({effects}): {spec.summary}. Input: {_signature(spec)}.{output}"


def _signature(spec: ToolSpec) -> str:
    schema = spec.input_schema
    if "$defs" in schema:
        return _json(schema)
    required = schema.get("required", ())
    fields = (
        f'"{name}"{"" if name in required else " (optional)"}: {_type(field)}'
        for name, field in schema.get("properties", {}).items()
    )
    return "{" + ", ".join(fields) + "}"


def _type(field: Any) -> str:
    match field:
        case {"enum": [*values]}:
            return " | ".join(_json(value) for value in values)
        case {"type": str() as kind} if kind in ("string", "number", "integer", "boolean"):
            return kind
        case _:
            return _json(field)


def _limits(state: RunState, context: PlanContext) -> str:
    bounds, used = state.bounds, used_by(state)
    minutes = max(0.0, seconds_left(bounds, state.spent, state.calls_spent) / 60)
    parts = [
        f"{max(0, bounds.replans - state.calls.replans)} replans after failures",
        f"{bounds.attempts} attempts at a step that a model does or that is repeatable, 1 at any other",
        f"{max(0, bounds.requests - used.requests)} requests to models",
        f"{max(0, bounds.tokens - used.tokens)} tokens",
        f"${max(0.0, bounds.cost_usd - used.cost_usd):.2f}",
        f"{minutes:.0f} minutes of work",
    ]
    if context.mode == "stepwise":
        parts.append(f"{max(0, bounds.steps - len(context.steps))} steps")
    return ", ".join(parts) + "."


# ── what has happened ─────────────────────────────────────────────────────────────────────────────────────


def _plan(context: PlanContext) -> str:
    kept = context.kept
    finished = [_shorten(step) for step in kept.values()]
    parts = [f"Finished, stays as it is (do not list it again):\n{fence_text(_json(finished))}"] if finished else []
    unfinished = [*context.open.values()]
    if unfinished:
        words = "Unfinished, in full. What your answer does not list is dropped:"
        parts.append(f"{words}\n{fence_text(_json(unfinished))}")
    return "\n\n".join(parts)


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, _DONE_TEXT)
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, dict):
        return {name: _shorten(item) for name, item in value.items()}
    return value


def _hand_edits(hand_edits: HandEdits, context: PlanContext) -> str:
    """Tell which fields are a person's; those of steps that are finished cannot change anyway."""
    lines = [f"- {step}: {', '.join(sorted(hand_edits[step]))}" for step in context.open if step in hand_edits]
    head = "Leave these fields as they are; a change of one has to be approved by a person:"
    return "\n".join([head, *lines]) if lines else "Nothing that is still open."


def _results(state: RunState, call: Call) -> Iterator[str]:
    tried = [(view.id, view.status, view.why, view.result) for view in state.steps.values() if view.result]
    present = {step for step, *_ in tried}
    for step, attempts in state.facts.attempts.items():
        results = [attempt.result for attempt in attempts if attempt.result]
        if step not in state.steps and step not in present and results:
            tried.append((step, results[-1].status, "it has left the plan", results[-1]))
    each = max(200, min(OUTPUT_CHARACTERS, OUTPUTS_CHARACTERS // max(1, len(tried))))
    for step, status, why, result in tried:
        path = result_path(result.step, result.attempt)
        most = OUTPUT_CHARACTERS if path in call.evidence else each
        yield "\n".join(
            [
                f"- {step}: {status} ({cut(why, 300)}), {path}",
                *_result(result, most),
            ]
        )


def _result(result: Result, most: int) -> Iterator[str]:
    if result.status == "done":
        more = f", cut: the whole is {{{{steps.{result.step}.file}}}}" if result.cut else ""
        yield f"output{more}:\n{fence_text(cut(as_text(result.output), most))}"
    if result.surprising:
        yield f"surprising:\n{fence_text(cut(result.surprise or '', ERROR_CHARACTERS))}"
    if result.error:
        hint = f"\nhint: {result.error.hint}" if result.error.hint else ""
        yield f"error ({result.error.kind}):\n{fence_text(shorten(result.error.message, ERROR_CHARACTERS) + hint)}"
    if failed := [check for check in result.checks if not check.ok]:
        words = [shorten(f"{one.kind}: {check_words(one)}", ERROR_CHARACTERS // len(failed)) for one in failed]
        lines = "\n".join(words)
        yield f"checks that failed:\n{fence_text(lines)}"
    if result.evidence:
        yield f"evidence: {cut(', '.join(result.evidence), ERROR_CHARACTERS)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ── why now ───────────────────────────────────────────────────────────────────────────────────────────────


def _triggers(call: Call, state: RunState) -> Iterator[str]:
    detail = "" if call.trigger == "goal_changed" else call.detail  # who edited it is no business of a model's
    yield _trigger(call.trigger, detail, call.evidence)
    listed = {(call.trigger, call.step)}
    for pending in state.pending:
        if (pending.trigger, pending.step) not in listed:
            listed.add((pending.trigger, pending.step))
            yield _trigger(pending.trigger, pending.detail, pending.evidence)
    yield from _list_checks(call, state.facts)


def _trigger(trigger: Trigger, detail: str, evidence: Sequence[str]) -> str:
    parts = [f"{trigger}: {_WHY[trigger]}"]
    if detail:
        parts.append(fence_text(cut(detail, ERROR_CHARACTERS)))
    if evidence:
        parts.append(f"Evidence: {', '.join(evidence)}")
    return "\n".join(parts)


def _list_checks(call: Call, facts: Facts) -> Iterator[str]:
    """Yield what the goal's own checks found, where the call is about that."""
    for one in facts.calls:
        path = paths.call_path(one.number, "checks")
        if one.checks is not None and path in call.evidence:
            most = OUTPUT_CHARACTERS // max(1, len(one.checks.checks))
            lines = "\n".join(
                shorten(f"{'holds' if check.ok else 'FAILS'}: {check.kind}: {check_words(check)}", most)
                for check in one.checks.checks
            )
            yield f"The goal's checks ({path}):\n{fence_text(lines)}"


def _mode(context: PlanContext) -> Iterator[str]:
    if context.mode == "stepwise":
        yield "This run goes step by step: answer with exactly one new step, or with finished."
    verdicts = ["steps", *(["keep"] if context.may_keep else []), *(["finished"] if context.may_finish else [])]
    yield f"You may answer with: {', '.join([*verdicts, 'impossible'])}."

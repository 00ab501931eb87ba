"""The parts of a run's page beside its steps and revisions: what it is, what waits, proof, cost, files. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from agentfs.core.attention import open_questions, places_in_use, ways_on
from agentfs.core.outcome import tally
from agentfs.core.records import Outcome, ProofOfDone
from agentfs.core.run_state import goal_checks, used_by
from agentfs.core.steps import StepView
from agentfs.core.text import WRONG, answer_text, duration, first_line, left_words, plural, size, without_colours
from agentfs.executor.questions import ANSWER_LINE
from agentfs.web.changes import proposal_el, revisions_section
from agentfs.web.gather import QuestionView, RunPage
from agentfs.web.graph import plan_graph
from agentfs.web.html import Child, Html, between, el, join
from agentfs.web.marks import run_pill, run_tone, share_el, step_anchor, time_el
from agentfs.web.site import Site
from agentfs.web.steps import clip, error_el, input_el, run_link, steps_section, verdict_el
from agentfs.web.timeline import timeline

MOST_TEXT, MOST_INPUT = 20_000, 4_000
SHOWN_DRAFT = 20  # steps of a draft that are shown at once
_FENCE = re.compile(r"^~~~\n(.*?)^~~~$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!\\)`([^`\n]+)`")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|!#])")
SHOWN_FILES = 40
_PROOF = {
    "checked": "Checks that failed before the work, or that a person wrote, hold now.",
    "judged": "A model looked at the evidence and says that it is done.",
    "claimed": "Nothing but the steps themselves says that it is done.",
}
_PROOF_TONES = {"checked": "good", "judged": "busy", "claimed": "person"}


def section(name: str, title: str, *children: Child, quiet: str | None = None) -> Html | None:
    """Return a part of a page under its title; None where there is nothing in it."""
    body = join(*children)
    if not body:
        return None
    note = el("span", quiet, class_="quiet") if quiet else None
    head = el("h2", el("a", title, href=f"#{name}"), " ", note)
    return el("section", head, body, id=name, aria_label=title, data_live=True)


def run_parts(page: RunPage, site: Site) -> Html:
    """Return the page of a run, part by part: what waits for a person first."""
    counts, made = tally(page.state), plural(len(page.revisions), "revision")
    main = join(
        _waits(page, site),
        _outcome_el(page, site),
        section("plan", "Plan", plan_graph(page, site), quiet=counts.words if counts.total else "no plan yet"),
        section("time", "Timeline", timeline(page)),
        section("changes", "What changed", revisions_section(page), quiet=f"{made}, the newest first"),
        section("steps", "Steps", steps_section(page, site)) if page.steps else None,
        section("questions", "Questions and answers", _answered_el(page)),
    )
    aside = join(_facts(page, site), _limits(page, site), _costs(page), _files(page, site), _goal(page))
    return join(header(page, site), el("div", el("div", main, class_="main"), el("aside", aside), class_="columns"))


def header(page: RunPage, site: Site) -> Html:
    """Return what the run is, in what state, and why."""
    return el(
        "header",
        el("p", site.crumb(), class_="crumb"),
        el("h1", clip(first_line(page.title), 300)),
        el(
            "p",
            run_pill(page.phase),
            " ",
            el("span", first_line(without_colours(page.why)), class_="reason"),
            class_="state",
        ),
        [el("p", words, class_="trouble") for words in _trouble(page)],
        el("p", f"plan.json has an edit that becomes revision {len(page.revisions) + 1} when the run goes on.")
        if _has_new_edit(page)
        else None,
        site.run_acts(page),
        class_=f"run {run_tone(page.phase)}",
        id="head",
        data_live=True,
    )


def _trouble(page: RunPage) -> Iterator[str]:
    yield from page.reading.broken
    for problem in page.state.facts.plan_file.problems[:10]:
        yield f"plan.json is not valid, so the last revision holds: {problem.shown('plan.json')}"
    if page.state.facts.goal.problems:
        yield f"the goal is not valid, so the last good one holds: {page.state.facts.goal.problems[0].message}"


def _has_new_edit(page: RunPage) -> bool:
    """Whether plan.json is valid and no revision yet: no process has looked at it."""
    file, revisions = page.state.facts.plan_file, page.state.facts.revisions
    return bool(revisions) and file.plan is not None and file.sha256 != revisions[-1].plan_sha256


# ── what waits for a person ───────────────────────────────────────────────────────────────────────────────


def _waits(page: RunPage, site: Site) -> Html | None:
    if page.state.facts.outcome is not None:
        return None
    cards = [_question(page, one, site) for one in page.questions if one.open is not None]
    if any(one.about == "draft" for one in open_questions(page.state)):
        cards.insert(0, _draft(page, site))
    if not cards and page.phase in ("waiting", "paused", "not driven"):
        ways = ways_on(page.state, page.run) or (f"agentfs resume {page.run}",)
        broken = page.state.facts.plan_file.problems
        how = el("p", ways[0], class_="quiet") if broken else _commands(ways)
        cards = [el("div", el("p", first_line(page.why)), _below(page, site), how, class_="card person")]
    return section("waits", "Waits for you", cards)


def _below(page: RunPage, site: Site) -> Html | None:
    """Return the runs that steps of this one are: what waits in one of them, waits here."""
    rows = [
        el("li", between((run_pill(one.state), run_link(site, one.run), first_line(without_colours(one.why)))))
        for one in page.below.values()
    ]
    return join(el("p", "Look there first:"), el("ul", rows, class_="items")) if rows else None


def _draft(page: RunPage, site: Site) -> Html:
    steps = len(page.state.steps)
    return el(
        "article",
        el(
            "h3",
            f"Revision {len(page.revisions)} is a draft of {plural(steps, 'step')}: nothing runs before your yes",
        ),
        el(
            "details",
            el("summary", "What each step would do"),
            el("ol", (_planned_el(view) for view in page.steps if view.left is None), class_="planned"),
            open=steps <= SHOWN_DRAFT,
        ),
        el("p", "Approving it approves this revision and no other.", class_="quiet"),
        site.draft_form(page) or _commands([f"agentfs approve {page.run}@{len(page.revisions)}"]),
        class_="card person",
    )


def _planned_el(view: StepView) -> Html:
    """Return a step that has not run, as one who approves it needs to see it."""
    step = view.step
    words = el("p", el("code", step.id), " ", el("span", step.description or "", class_="quiet"))
    gate = el("p", "It asks again before it runs.", class_="quiet") if step.gate else None
    return el("li", words, input_el(step, None, MOST_INPUT), gate)


def _question(page: RunPage, one: QuestionView, site: Site) -> Html:
    opening = one.open
    if opening is None:
        return join()
    form = site.answer_form(page, one) or _commands(opening.commands(page.run))
    noted = el("p", opening.uncounted, class_="trouble") if opening.uncounted else None
    if opening.about == "answer" and page.proposal is not None:
        title = "The planner wants to change the plan, and needs your yes"
        inner: Child = [proposal_el(page.proposal), _as_file(one)]
    else:
        title = _asks(one)
        inner = _question_el(one)
    return el(
        "article", el("h3", title), inner, noted, form, class_="card person", id=f"question-{one.step or one.number}"
    )


def _asks(one: QuestionView) -> str:
    match one.open.about if one.open else "":
        case "gate":
            return f"{one.step} asks before attempt {one.number}"
        case "cut":
            return f"{one.step} was cut off in attempt {one.number}: was it done?"
        case _:
            return f"{one.step} asks"


def _question_el(one: QuestionView) -> Html:
    """Return a question; how a file answers it, and the order in full, are there for who wants to see them."""
    words, begins, _ = one.text.partition(f"\n{ANSWER_LINE}")
    if not begins:
        return _text(one.text)
    title, _, rest = words.partition("\n")
    is_said = title.startswith(("# May ", "# What became of ")) or title.endswith(" asks")  # by the card's own title
    return join(prose(rest if is_said else words), _as_file(one))


def _as_file(one: QuestionView) -> Html:
    return el("details", el("summary", "As it is in ", el("code", one.path)), _text(one.text))


def prose(text: str) -> Html:
    """Return what agentfs wrote as Markdown: headings, paragraphs, blocks between `~~~`; nothing else counts."""
    found: list[Html] = []
    for number, part in enumerate(_FENCE.split(text)):
        if number % 2:
            found.append(_text(part.rstrip("\n")))
            continue
        for words in filter(None, (paragraph.strip() for paragraph in part.split("\n\n"))):
            pieces = [_ESCAPED.sub(r"\1", piece) for piece in _CODE.split(words.lstrip("# "))]
            line = join(*(el("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)))
            found.append(el("p", el("strong", line) if words.startswith("# ") else line))
    return join(*found)


def _text(text: str) -> Html:
    return el("pre", clip(text, MOST_TEXT), class_="question", tabindex="0")


def _commands(ways: Any) -> Html:
    return el("p", "type: ", [join(el("code", way), " ") for way in ways], class_="quiet")


def _answered_el(page: RunPage) -> Html | None:
    """Return the questions that have had their answer, or that nobody waits for any more."""
    rows = []
    for one in page.questions:
        if one.open is not None:
            continue
        name = one.step or f"the planner, call {one.number}"
        reply = first_line(one.reply) if one.reply else "no answer: it was overtaken"
        head = el(
            "summary",
            el("code", name),
            el("span", reply, class_="about"),
            time_el(one.replied_at or one.asked_at, page.zone),
        )
        words = _text(one.reply) if one.reply and len(one.reply.strip().splitlines()) > 1 else None
        rows.append(el("details", head, _text(clip(one.text, 2_000)), words, class_="card"))
    return el("div", rows, class_="answered") if rows else None


# ── how it ended ──────────────────────────────────────────────────────────────────────────────────────────


def _outcome_el(page: RunPage, site: Site) -> Html | None:
    if (outcome := page.state.facts.outcome) is None:
        return None
    if outcome.status == "failed":
        return section("outcome", "What went wrong", _failure(page, outcome, site), _proof(page, outcome))
    answer = None
    if outcome.answer not in (None, ""):
        text = answer_text(outcome.answer, terminal=False)
        answer = el("div", el("h3", "Answer"), el("pre", clip(text, MOST_TEXT), class_="answer", tabindex="0"))
    return section("outcome", "Outcome", answer, _proof(page, outcome))


def _failure(page: RunPage, outcome: Outcome, site: Site) -> Html | None:
    """Return the first failure, with what can be done about it."""
    view = next((one for one in page.steps if one.status in WRONG), None)
    error = view.result.error if view is not None and view.result is not None else None
    if view is None or error is None:
        return el("div", el("p", outcome.summary), class_="card bad")
    tried = f"{view.status} in attempt {view.attempt}" if view.attempt else view.status
    return el(
        "div",
        el("h3", el("a", el("code", view.id), href=step_anchor(view.id)), f" {tried}{left_words(view.left)}"),
        error_el(error.message, MOST_INPUT),
        el("p", "Hint: ", error.hint, class_="hint") if error.hint else None,
        site.step_acts(page, view),
        class_="card bad",
    )


def _proof(page: RunPage, outcome: Outcome) -> Html | None:
    checks = _goal_checks(page)
    if outcome.proof is None:
        return checks
    proof = outcome.proof
    return el(
        "div",
        el("h3", "Proof: ", el("span", proof.level, class_=f"pill {_PROOF_TONES[proof.level]}")),
        el("p", _PROOF[proof.level], class_="quiet"),
        el("ul", (el("li", words) for words in _proof_words(proof))),
        checks,
    )


def _proof_words(proof: ProofOfDone) -> Iterator[str]:
    by = proof.by
    if by.person:
        yield f"{plural(by.person, 'check')} that a person wrote"
    if by.planner:
        yield f"{plural(by.planner, 'check')} that a model wrote, and that failed before the work"
    if by.judge:
        yield f"{plural(by.judge, 'condition')} that a judge says are met"
    if proof.held_before:
        yield f"{plural(proof.held_before, 'check')} held before the work: they prove nothing"
    yield from (f"changed by a step, though a check reads it: {name}" for name in proof.touched[:20])
    yield from (f"no longer holds: {words}" for words in proof.shed[:20])
    if proof.unproven:
        more = len(proof.unproven) - 20
        rest = f" and {plural(more, 'more step')}" if more > 0 else ""
        yield f"looked at by no check or judge: {', '.join(proof.unproven[:20])}{rest}"


def _goal_checks(page: RunPage) -> Html | None:
    """Return what the goal's own checks found at the end."""
    checked = goal_checks(page.state)
    if checked is None or checked.checks is None or not checked.checks.checks:
        return None
    rows = [
        el("li", verdict_el(one), el("span", f" {first_line(one.detail)}", class_="quiet"))
        for one in checked.checks.checks
    ]
    return el("div", el("h3", "Checks of the goal"), el("ul", rows, class_="checks"))


# ── beside it ─────────────────────────────────────────────────────────────────────────────────────────────


def _facts(page: RunPage, site: Site) -> Html | None:
    facts, outcome = page.state.facts, page.state.facts.outcome
    run = facts.run
    rows: dict[str, Child] = {
        "began": time_el(run.started_at, page.zone),
        "ended": time_el(outcome.ended_at, page.zone) if outcome else None,
        "worked": duration(page.state.spent.seconds) if page.state.spent.seconds else None,
        "driven": None if outcome else "yes, now" if page.driven else "by no process",
        "is a step of": run_link(site, run.parent.run, run.parent.step) if run.parent else None,
        "works in": el("code", run.workdir),
        "places": "; ".join(one.in_words() for one in places_in_use(page.state)) or None,
        "branch": _branch(page),
        "mode": f"{run.mode}, approve {run.approve}",
        "planner": run.models.called("planner") or "no model",
        "executor": run.models.called("executor") or "no model",
        "failed in": outcome.blame if outcome else None,
        "network": "on" if facts.settings.network else "off",
        "from": run.source,
    }
    shown = (join(el("dt", name), el("dd", value)) for name, value in rows.items() if value)
    return section("about", "About", el("dl", shown, class_="table"))


def _branch(page: RunPage) -> Html | None:
    """Return where the work of an isolated run is, and how it is taken."""
    outcome = page.state.facts.outcome
    if outcome is None or outcome.branch is None:
        return None
    made = plural(len(outcome.commits or ()), "commit")
    return join(el("code", outcome.branch), f", {made}: ", el("code", f"agentfs apply {page.run}"))


def _limits(page: RunPage, site: Site) -> Html | None:
    """Return what was used of each limit, and what is left."""
    bounds, used = page.state.bounds, used_by(page.state)
    minutes = (page.state.spent.seconds + page.state.calls_spent.seconds) / 60
    models = page.state.facts.run.models
    asked = [
        _meter("money", used.cost_usd, bounds.cost_usd, f"{money(used.cost_usd)} of ${bounds.cost_usd:g}"),
        _meter("tokens", used.tokens, bounds.tokens, f"{used.tokens:,} of {bounds.tokens:,}"),
        _meter("requests", used.requests, bounds.requests, f"{used.requests} of {bounds.requests}"),
    ]
    rows = [
        *(asked if used.requests or models.planner or models.executor else ()),
        _meter("minutes", minutes, bounds.minutes, f"{minutes:.1f} of {bounds.minutes:.4g}"),
        _meter(
            "replans", page.state.calls.replans, bounds.replans, f"{page.state.calls.replans} of {bounds.replans}"
        ),
    ]
    return section("limits", "Limits", el("div", rows, class_="meters"), site.limit_acts(page))


def _meter(name: str, used: float, limit: float, words: str) -> Html:
    part = min(1.0, used / limit) if limit else 1.0 if used else 0.0
    tone = "bad" if part >= 1 else "person" if part >= 0.8 else "good"
    return el(
        "div", el("span", name), el("span", words, class_="value"), share_el((100 * part, tone)), class_="meter"
    )


def _costs(page: RunPage) -> Html | None:
    costs = page.costs
    if not costs["total"]["requests"]:
        return None
    rows = [("by role", one["role"], one) for one in costs["by_role"]]
    rows += [("by model", one["model"], one) for one in costs["by_model"]]
    rows += [("by step", one["step"], one) for one in costs["by_step"][:12]]
    head = el("tr", el("td"), [el("th", name, scope="col") for name in ("requests", "tokens", "cost")])
    body = []
    for place, (group, name, one) in enumerate(rows):
        if not place or rows[place - 1][0] != group:
            body.append(el("tr", el("th", group, scope="rowgroup", colspan=4)))
        tokens = one["input_tokens"] + one["output_tokens"]
        body.append(
            el(
                "tr",
                el("td", name),
                el("td", one["requests"]),
                el("td", f"{tokens:,}"),
                el("td", money(one["cost_usd"])),
            )
        )
    whole = money(costs["total"]["cost_usd"])
    return section("cost", "Cost", el("table", el("thead", head), el("tbody", body)), quiet=whole)


def money(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:.4f}" if amount else "$0"


def _files(page: RunPage, site: Site) -> Html | None:
    if not page.files and not page.patch:
        return None
    rows = []
    for file, count in page.files[:SHOWN_FILES]:
        where, name = site.file(file), el("code", file)
        rows.append(el("li", el("a", name, href=where) if where else name, el("span", size(count), class_="quiet")))
    more = len(page.files) - len(rows) + page.more_files
    patch = site.file("changes.patch") if page.patch else None
    return section(
        "files",
        "Files",
        el("p", el("a", "changes.patch", href=patch) if patch else el("code", "changes.patch"))
        if page.patch
        else None,
        el("ul", rows, class_="files"),
        el("p", f"and {plural(more, 'more file')}", class_="quiet") if more else None,
    )


def _goal(page: RunPage) -> Html | None:
    text = page.state.facts.goal.text
    if not text.strip():
        return None
    return section(
        "goal", "Goal", el("details", el("summary", "What was asked"), el("pre", clip(text, MOST_TEXT), tabindex="0"))
    )

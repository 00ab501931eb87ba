"""The pages of the live view that are looked at: all runs, a run, a step. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from agentfs.core.steps import StepView
from agentfs.core.text import first_line, shown_run_state, without_colours
from agentfs.ui.reading import Glance
from agentfs.web.gather import RunPage
from agentfs.web.html import Child, Html, between, el, join
from agentfs.web.marks import run_pill, share_el, step_pill, time_el
from agentfs.web.sections import run_parts
from agentfs.web.site import Site
from agentfs.web.steps import room_for, step_body

STATES = ("waiting", "draft", "running", "planning", "paused", "done", "failed", "cancelled")
PAGE = 50  # ended runs on one page


def crumb(*way: tuple[str, str]) -> Html:
    """Return where a page is: the list of runs, then what leads from there to it."""
    links = [el("a", words, href=where) for words, where in (("Runs", "/"), *way)]
    return el("p", (join(" / " if n else None, link) for n, link in enumerate(links)), class_="crumb")


# ── all runs ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Listed:
    """The runs on one page: the open ones, a part of the ended ones, and how many there are of those."""

    waiting: Sequence[Glance]
    busy: Sequence[Glance]
    ended: Sequence[Glance]
    total: int
    first: int
    name: str = ""
    state: str = ""
    rejected: Sequence[str] = ()  # goals that could not be taken
    places: Sequence[str] = ()  # how full each one is that is in use


def overview(site: Site, runs: Listed) -> Html:
    """Return all runs: what waits for a person first."""
    nothing = not (runs.waiting or runs.busy or runs.total or runs.name or runs.state)
    places = el("p", "Places: ", "; ".join(runs.places), class_="quiet") if runs.places else None
    body = join(
        el("div", el("h1", "Runs"), _filter(runs) if not nothing else None, class_="title"),
        _list("waits", "Waits for you", runs.waiting),
        _list("busy", "Under way", runs.busy, places),
        _rejected_el(runs.rejected),
        _list("ended", "Ended", runs.ended, _more(runs)),
        _empty(site) if nothing else None,
        el("p", "No run matches.", class_="quiet")
        if not (nothing or runs.waiting or runs.busy or runs.ended)
        else None,
    )
    title = f"{len(runs.waiting)} waiting · runs" if runs.waiting else "Runs"
    return site.page(title, el("div", body, id="runs", data_live=True), events="/events")


def _filter(runs: Listed) -> Html:
    options = [el("option", "any state", value="")]
    options += [el("option", word, value=word, selected=word == runs.state) for word in STATES]
    return el(
        "form",
        el("input", type="search", name="name", value=runs.name, placeholder="name contains…", aria_label="Name"),
        el("select", options, name="state", aria_label="State"),
        el("button", "Filter", type="submit", class_="button"),
        method="get",
        action="/",
        class_="filter",
        role="search",
    )


def _list(name: str, title: str, runs: Sequence[Glance], more: Child = None) -> Html | None:
    if not runs:
        return None
    rows = el("ul", (el("li", _glance(one)) for one in runs), class_="rows runs")
    return el(
        "section", el("h2", title, " ", el("span", len(runs), class_="quiet")), rows, more, aria_label=title, id=name
    )


def _glance(one: Glance) -> Html:
    within = el("span", f" in {one.parent.rpartition('/')[2]}", class_="quiet") if one.parent else None
    name = el("span", el("strong", one.run.rpartition("/")[2]), within, class_="name")
    parts = (
        run_pill(shown_run_state(one.as_json())),
        el("span", name, " ", el("span", first_line(without_colours(one.why)), class_="about"), class_="what"),
        _progress(one.steps) if one.steps["total"] else el("span", class_="progress"),
        time_el(one.at or None, None, form="short"),
    )
    return el("a", between(parts), href=f"/run/{quote(one.run)}", class_="run")


def _progress(steps: Mapping[str, int]) -> Html:
    """Return how far a run has come, in words and as a bar."""
    done, total = steps["done"], steps["total"]
    bar = share_el((100 * done / total, "good"), (100 * steps.get("failed", 0) / total, "bad"))
    return el("span", bar, el("span", f"{done}/{total}"), class_="progress")


def _more(runs: Listed) -> Html | None:
    """Return the way to older and newer runs."""
    if runs.total <= PAGE:
        return None
    last = runs.first + len(runs.ended)
    kept = {"name": runs.name, "state": runs.state}
    newer = el("a", "Newer", href=f"/?{urlencode({**kept, 'first': max(0, runs.first - PAGE)})}", class_="button")
    older = el("a", "Older", href=f"/?{urlencode({**kept, 'first': last})}", class_="button")
    where = f"{runs.first + 1} to {last} of {runs.total}"
    return el(
        "p", newer if runs.first else None, " ", where, " ", older if last < runs.total else None, class_="pages"
    )


def _rejected_el(names: Sequence[str]) -> Html | None:
    if not names:
        return None
    rows = [el("li", el("code", f"goals/rejected/{name}")) for name in names[:10]]
    return el("section", el("h2", "Goals that could not be taken"), el("ul", rows), aria_label="Rejected goals")


def _empty(site: Site) -> Html:
    begin = None if site.read_only else el("p", el("a", "Write a goal", href="/new", class_="button main"))
    return el(
        "div",
        el("h2", "No runs yet"),
        el("p", "Write down what you want. agentfs makes a plan of steps, runs them, and checks what came of it."),
        begin,
        el("p", "Or on a terminal: ", el("code", 'agentfs run "what you want"'), class_="quiet"),
        el("p", "Goals that are dropped are taken up while ", el("code", "agentfs watch"), " runs.", class_="quiet"),
        class_="card empty",
    )


# ── one run, one step ─────────────────────────────────────────────────────────────────────────────────────


def run_page(site: Site, page: RunPage, notice: Child = None) -> Html:
    """Return the page of a run."""
    title = f"{page.phase}: {first_line(page.title)[:100]}"
    own = site.base if notice is not None else None
    return site.page(title, notice, run_parts(page, site), events=f"{site.base}/events", own=own)


def broken_page(site: Site, run: str, words: Sequence[str]) -> Html:
    """Return what is shown of a run that does not read."""
    return site.page(run, crumb(), el("h1", run), [el("p", one, class_="trouble") for one in words], events=None)


def log_page(site: Site, step: str, attempt: int, log: Html) -> Html:
    """Return an earlier part of a log."""
    way = crumb((site.run, site.base), (step, site.step(step)))
    title = f"{step}, attempt {attempt}: earlier lines"
    return site.page(
        title, way, el("h1", title), el("h2", "Lines", class_="unseen"), el("div", log, class_="card alone")
    )


def step_page(site: Site, page: RunPage, view: StepView) -> Html:
    """Return one step by itself, with its log."""
    word = "asks" if view.id in page.asking else view.status
    body = step_body(page, view, site, room_for(4))
    return site.page(
        f"{view.id}, {word}",
        crumb((page.run, f"{site.base}#step-{view.id}")),
        el("h1", el("code", view.id), " ", step_pill(word), id="head", data_live=True),
        el("p", first_line(view.step.description or "")),
        el("h2", "Details", class_="unseen"),
        el("div", body, class_="card alone", id="step", data_live=True),
        events=f"{site.base}/events",
    )

"""Around a page: where its links lead, and what can be done on it. In a report nothing; in the live view, acts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from agentfs.core import paths
from agentfs.core.facts import CUT_WORDS, Attempt
from agentfs.core.steps import StepView
from agentfs.web.gather import QuestionView, RunPage
from agentfs.web.html import DOCTYPE, Child, Html, el, join
from agentfs.web.log_lines import tail

SHOWN_LINES = 200


@dataclass(frozen=True, slots=True)
class Site:
    """Where a page is: by itself, as a report, or in the live view of a workspace, where forms become commands."""

    run: str = ""  # that the page is about
    workspace: str = ""  # whose live view it is part of; empty: a report, which links to itself alone
    token: str = ""  # of the session: every form has it
    read_only: bool = True
    folder: Path = Path()  # of the run, for its logs
    logs: bool = False  # they are part of the page: of a step that is shown by itself

    @property
    def is_live(self) -> bool:
        return bool(self.workspace)

    @property
    def base(self) -> str:
        return f"/run/{quote(self.run)}"

    # ── where things are ──────────────────────────────────────────────────────────────────────────────────

    def crumb(self) -> Html:
        """Return where this page is among others."""
        run = el("code", self.run)
        return join(el("a", "Runs", href="/"), " / ", run) if self.is_live else run

    def step(self, step: str) -> str:
        """Return where a step is shown by itself."""
        return f"{self.base}/step/{quote(step)}" if self.is_live else f"#step-{step}"

    def item(self, item: str) -> str | None:
        """Return where an item of `each` is shown by itself."""
        return self.step(item) if self.is_live else None

    def step_part(self, step: str) -> str | None:
        """Return where the details of a step are loaded from."""
        return f"{self.step(step)}?part=1" if self.is_live else None

    def other(self, run: str) -> str | None:
        """Return where another run is shown."""
        return f"/run/{quote(run)}" if self.is_live else None

    def file(self, name: str) -> str | None:
        """Return where a file can be read."""
        return f"{self.base}/file?{urlencode({'path': name})}" if self.is_live else None

    def log(self, step: str, attempt: Attempt) -> Html | None:
        """Return the log of an attempt."""
        if not self.logs or (not attempt.claimed and attempt.result is None):
            return None
        path = self.folder / paths.STEPS / paths.step_file(step, attempt.number, "log")
        return log_el(path, f"{self.base}/log/{quote(step)}/{attempt.number}", runs=attempt.result is None)

    # ── a page of the live view ───────────────────────────────────────────────────────────────────────────

    def page(self, title: str, *body: Child, events: str | None = None, own: str | None = None) -> Html:
        """Return a page, whose style and script come from this server, and only from there.

        `events`: what keeps it current; `own`: its address, where it answers a form.
        """
        head = el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", f"{title} · agentfs"),
            el("link", rel="stylesheet", href="/assets/style.css"),
            el("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
            el("script", src="/assets/live.js", defer=True),
        )
        skip = el("a", "Skip to the content", href="#main", class_="skip")
        home = el("a", el("strong", "agentfs"), href="/", class_="home")
        where = el("span", self.workspace.rpartition("/")[2], class_="where", title=self.workspace)
        state = el("span", id="connection", role="status", data_events=events, data_self=own)
        new = el("a", "New goal", href="/new", class_="button")
        last = el("span", "read-only", class_="quiet") if self.read_only else new
        nav = el("nav", home, where, state, last, class_="top", aria_label="Workspace")
        main = el("main", *body, id="main", tabindex="-1")
        return join(DOCTYPE, el("html", head, el("body", skip, nav, main), lang="en"))

    def form(self, action: str, *inner: Child, hidden: Mapping[str, str] | None = None, **more: str | None) -> Html:
        """Return a form that does something: it carries the session's token, and what it is bound to."""
        given = {"token": self.token, **(hidden or {})}
        fields = [el("input", type="hidden", name=name, value=value) for name, value in given.items()]
        return el("form", fields, *inner, method="post", action=action, **more)

    # ── acts ──────────────────────────────────────────────────────────────────────────────────────────────

    def act_link(self, act: str, label: str, kind: str = "button", **fields: str) -> Html:
        """Return a link to the page that says what an act would write and cause, and then does it."""
        query = f"?{urlencode(fields)}" if fields else ""
        return el("a", label, href=f"{self.base}/do/{act}{query}", class_=kind)

    def run_acts(self, page: RunPage) -> Html | None:
        """Return what a person can do with the run."""
        if not self.is_live:
            return None
        links: list[Child] = [] if self.read_only else [*self._run_links(page)]
        if len(page.revisions) > 1:
            links.append(el("a", "Compare revisions", href=f"{self.base}/compare", class_="button"))
        links.append(el("a", "Report", href=f"{self.base}/report", class_="button"))
        if not self.read_only and page.state.facts.outcome is None:
            links.append(self.act_link("cancel", "Cancel", kind="button bad"))
        return el("nav", *links, class_="acts", aria_label="What you can do with this run")

    def _run_links(self, page: RunPage) -> Iterator[Html]:
        facts, outcome = page.state.facts, page.state.facts.outcome
        plan = facts.plan_file.plan or facts.plan  # what a person saved last, a revision or not
        if plan is not None:
            yield el("a", "Edit the plan", href=f"{self.base}/edit", class_="button")
        if outcome is None and plan is not None and plan.status == "approved":
            yield self.act_link("pause", "Pause")
        limit = page.state.limit_reached is not None and outcome is None
        held = plan is not None and plan.status == "paused"
        if limit or held or (outcome is not None and outcome.status != "done") or page.state.calls.failed:
            yield self.act_link("resume", "Top up" if limit else "Resume")
        if not facts.goal.has_steps:
            yield self.act_link("replan", "Replan")
        if plan is not None:
            yield self.act_link("fork", "Fork")
        if len(page.revisions) > 1:
            yield self.act_link("restore", "Restore")

    def step_acts(self, page: RunPage, view: StepView) -> Html | None:
        """Return what a person can do with a step."""
        links: list[Child] = []
        if self.is_live and not self.logs:
            links.append(el("a", "Log and details", href=self.step(view.id), class_="button"))
        is_item = paths.ITEM in view.id  # it has no fields of its own
        if not self.read_only and view.left is None:
            if view.attempt and view.status not in ("ordered", "running"):
                links.append(self.act_link("retry", "Retry", step=view.id))
            if not is_item and not view.step.skip and view.status != "done":
                links.append(self.act_link("skip", "Skip", step=view.id))
            if not is_item and page.state.facts.plan is not None:
                links.append(el("a", "Edit", href=f"{self.base}/edit?step={quote(view.id)}", class_="button"))
        return el("p", links, class_="acts") if links else None

    def limit_acts(self, page: RunPage) -> Html | None:
        """Return how a limit is raised."""
        outcome = page.state.facts.outcome
        if self.read_only or page.state.facts.plan is None or (outcome is not None and outcome.status == "done"):
            return None
        return el("p", self.act_link("resume", "Raise a limit"), class_="acts")

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────

    def answer_form(self, page: RunPage, one: QuestionView) -> Html | None:
        """Return how a question is answered here."""
        if self.read_only or one.open is None:
            return None
        bound = {"question": one.path, "key": one.key or "", "seen": str(len(page.revisions)), "step": one.open.name}
        match one.open.about:
            case "ask":
                words = _words("text", "Your answer", rows=3)
                return self._answer("reply", bound, words, _button("Reply", "reply", "main"))
            case "cut":
                words = _words("text", "If it was done: its output", rows=2)
                buttons = [_button(word.capitalize(), f"reply:{word}") for word in CUT_WORDS]
                return self._answer("reply", bound, words, *buttons)
            case _:
                return self._answer("approve", bound, _words("because", "If you reject it: why", rows=2), *_YES_NO)

    def draft_form(self, page: RunPage) -> Html | None:
        """Return how a draft is approved here."""
        if self.read_only:
            return None
        bound = {"revision": str(len(page.revisions)), "seen": str(len(page.revisions)), "step": paths.PLAN}
        if page.state.facts.goal.has_steps:  # nobody would answer a no: it is the person's own plan
            edit = el("a", "Edit it first", href=f"{self.base}/edit", class_="button")
            return self._answer("approve", bound, _YES_NO[0], edit)
        words = _words("because", "If you reject it: what is wrong with it", rows=2)
        return self._answer("approve", bound, words, *_YES_NO)

    def _answer(self, act: str, bound: Mapping[str, str], *inner: Child) -> Html:
        return self.form(f"{self.base}/answer", *inner, hidden=bound, class_="answer", data_act=act)


def log_el(path: Path, where: str, *, runs: bool, before: int | None = None) -> Html:
    """Return the end of a log; one that is still written goes on by itself where scripts run."""
    lines, start, end = tail(path, before)
    shown = lines[-SHOWN_LINES:] if before is None else lines
    earlier = f"{where}?before={start if before is not None else end}"
    follow = f"{where}?from={end}" if runs and before is None else None
    only = el("input", type="search", class_="filter", placeholder="only lines with…", aria_label="Only lines with")
    return el(
        "section",
        el("h3", "Log"),
        el("p", only, class_="find"),
        el("p", el("a", "Earlier lines", href=earlier), class_="earlier")
        if start or len(shown) < len(lines)
        else None,
        el("ol", shown, class_="log", tabindex="0", data_follow=follow),
        id="log",
        class_="log",
    )


def _words(name: str, label: str, *, rows: int) -> Html:
    return el("label", label, el("textarea", name=name, rows=rows))


def _button(label: str, value: str, kind: str = "") -> Html:
    return el("button", label, type="submit", name="act", value=value, class_=f"button {kind}".strip())


_YES_NO = (_button("Approve", "approve", "main"), _button("Reject", "reject", "bad"))

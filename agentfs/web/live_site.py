"""Where things lead in the live view, and what can be done there: forms that become commands."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from agentfs.core import paths
from agentfs.core.facts import CUT_WORDS, Attempt
from agentfs.core.steps import StepView
from agentfs.web.gather import QuestionView, RunPage
from agentfs.web.html import Child, Html, el, join
from agentfs.web.log_lines import tail
from agentfs.web.site import Site

SHOWN_LINES = 200


@dataclass(frozen=True, slots=True)
class LiveSite(Site):
    """The live view of one run."""

    token: str = ""  # of the session: every form has it
    read_only: bool = False
    folder: str = ""  # of the run, for its logs
    logs: bool = False  # they are part of the page: of a step that is shown by itself

    @property
    def is_live(self) -> bool:
        return True

    def crumb(self) -> Html:
        return join(el("a", "Runs", href="/"), " / ", el("code", self.run))

    def step(self, step: str) -> str:
        return f"{self.base}/step/{quote(step)}"

    def other(self, run: str) -> str | None:
        return f"/run/{quote(run)}"

    def item(self, item: str) -> str | None:
        return self.step(item)

    def step_part(self, step: str) -> str | None:
        return f"{self.step(step)}?part=1"

    def file(self, name: str) -> str | None:
        return f"{self.base}/file?{urlencode({'path': name})}"

    # ── acts ──────────────────────────────────────────────────────────────────────────────────────────────

    def act_link(self, act: str, label: str, kind: str = "button", **fields: str) -> Html:
        """Return a link to the page that says what an act would write and cause, and then does it."""
        query = f"?{urlencode(fields)}" if fields else ""
        return el("a", label, href=f"{self.base}/do/{act}{query}", class_=kind)

    def run_acts(self, page: RunPage) -> Html | None:
        links = list(self._run_links(page))
        looks: list[Child] = [
            el("a", "Compare revisions", href=f"{self.base}/compare", class_="button")
            if len(page.revisions) > 1
            else None,
            el("a", "Report", href=f"{self.base}/report", class_="button"),
        ]
        if not self.read_only and page.state.facts.outcome is None:
            looks.append(self.act_link("cancel", "Cancel", kind="button bad"))
        return el("nav", *links, *looks, class_="acts", aria_label="What you can do with this run")

    def _run_links(self, page: RunPage) -> Iterator[Html]:
        if self.read_only:
            return
        facts = page.state.facts
        outcome, plan = (
            facts.outcome,
            facts.plan_file.plan or facts.plan,
        )  # what a person saved last, a revision or not
        if plan is not None:
            yield el("a", "Edit the plan", href=f"{self.base}/edit", class_="button")
        if outcome is None and plan is not None and plan.status == "approved":
            yield self.act_link("pause", "Pause")
        limit = page.state.limit_reached is not None and outcome is None
        held = plan is not None and plan.status == "paused"
        if limit or held or (outcome is not None and outcome.status != "done") or page.state.calls.failed:
            yield self.act_link("resume", "Top up" if limit else "Resume")
        if not page.state.facts.goal.has_steps:
            yield self.act_link("replan", "Replan")
        if plan is not None:
            yield self.act_link("fork", "Fork")
        if len(page.revisions) > 1:
            yield self.act_link("restore", "Restore")

    def step_acts(self, page: RunPage, view: StepView) -> Html | None:
        links: list[Child] = (
            [el("a", "Log and details", href=self.step(view.id), class_="button")] if not self.logs else []
        )
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
        outcome = page.state.facts.outcome
        if self.read_only or page.state.facts.plan is None or (outcome is not None and outcome.status == "done"):
            return None
        return el("p", self.act_link("resume", "Raise a limit"), class_="acts")

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────

    def answer_form(self, page: RunPage, one: QuestionView) -> Html | None:
        if self.read_only or one.open is None:
            return None
        bound = {"question": one.path, "key": one.key or "", "seen": str(len(page.revisions)), "step": one.open.name}
        if one.open.about == "ask":
            return self._form(
                "reply", bound, _words("text", "Your answer", rows=3), _button("Reply", "reply", "main")
            )
        if one.open.about == "cut":
            words = _words("text", "If it was done: its output", rows=2)
            buttons = [_button(word.capitalize(), f"reply:{word}") for word in CUT_WORDS]
            return self._form("reply", bound, words, *buttons)
        words = _words("because", "If you reject it: why", rows=2)
        return self._form(
            "approve", bound, words, _button("Approve", "approve", "main"), _button("Reject", "reject", "bad")
        )

    def draft_form(self, page: RunPage) -> Html | None:
        if self.read_only:
            return None
        bound = {"revision": str(len(page.revisions)), "seen": str(len(page.revisions)), "step": paths.PLAN}
        words = _words("because", "If you reject it: what is wrong with it", rows=2)
        approve = _button("Approve", "approve", "main")
        if page.state.facts.goal.has_steps:  # nobody would answer a no: it is the person's own plan
            return self._form(
                "approve", bound, approve, el("a", "Edit it first", href=f"{self.base}/edit", class_="button")
            )
        return self._form("approve", bound, words, approve, _button("Reject", "reject", "bad"))

    def _form(self, act: str, hidden: dict[str, str], *inner: Child) -> Html:
        fields = [el("input", type="hidden", name=name, value=value) for name, value in hidden.items()]
        token = el("input", type="hidden", name="token", value=self.token)
        return el(
            "form", token, fields, *inner, method="post", action=f"{self.base}/answer", class_="answer", data_act=act
        )

    # ── logs ──────────────────────────────────────────────────────────────────────────────────────────────

    def log(self, step: str, attempt: Attempt) -> Html | None:
        if not attempt.claimed and attempt.result is None:
            return None
        where = f"{self.base}/log/{quote(step)}/{attempt.number}"
        if not self.logs:
            return None
        path = Path(self.folder) / paths.STEPS / paths.step_file(step, attempt.number, "log")
        return log_el(path, where, runs=attempt.result is None)


def log_el(path: Path, where: str, *, runs: bool, before: int | None = None) -> Html:
    """Return the end of a log; one that is still written goes on by itself where scripts run."""
    lines, start, end = tail(path, before)
    shown = lines[-SHOWN_LINES:] if before is None else lines
    earlier = start > 0 or len(shown) < len(lines)
    return el(
        "section",
        el("h3", "Log"),
        el(
            "p",
            el("input", type="search", class_="filter", placeholder="only lines with…", aria_label="Only lines with"),
            class_="find",
        ),
        el(
            "p",
            el("a", "Earlier lines", href=f"{where}?before={start if before is not None else end}"),
            class_="earlier",
        )
        if earlier
        else None,
        el(
            "ol",
            shown,
            class_="log",
            tabindex="0",
            data_follow=f"{where}?from={end}" if runs and before is None else None,
        ),
        id="log",
        class_="log",
    )


def _words(name: str, label: str, *, rows: int) -> Html:
    return el("label", label, el("textarea", name=name, rows=rows))


def _button(label: str, value: str, kind: str = "") -> Html:
    return el("button", label, type="submit", name="act", value=value, class_=f"button {kind}".strip())

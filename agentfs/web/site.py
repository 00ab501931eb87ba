"""Where things lead, and what can be done there: nothing in a report, everything in the live view. Pure."""

from dataclasses import dataclass
from urllib.parse import quote

from agentfs.core.facts import Attempt
from agentfs.core.steps import StepView
from agentfs.web.gather import QuestionView, RunPage
from agentfs.web.html import Html, el


@dataclass(frozen=True, slots=True)
class Site:
    """A page by itself: links lead into it, and nothing can be done."""

    run: str

    @property
    def is_live(self) -> bool:
        return False

    @property
    def base(self) -> str:
        return f"/run/{quote(self.run)}"

    def crumb(self) -> Html:
        """Return where this page is among others."""
        return el("code", self.run)

    def step(self, step: str) -> str:
        """Return where a step is shown by itself."""
        return f"#step-{step}"

    def other(self, run: str) -> str | None:  # noqa: ARG002 - the live one needs it
        """Return where another run is shown."""
        return None

    def item(self, item: str) -> str | None:  # noqa: ARG002 - the live one needs it
        """Return where an item of `each` is shown by itself."""
        return None

    def step_part(self, step: str) -> str | None:  # noqa: ARG002 - the live one needs it
        """Return where the details of a step are loaded from."""
        return None

    def log(self, step: str, attempt: Attempt) -> Html | None:  # noqa: ARG002 - the live one needs them
        """Return the log of an attempt."""
        return None

    def step_acts(self, page: RunPage, view: StepView) -> Html | None:  # noqa: ARG002 - the live one needs them
        """Return what a person can do with a step."""
        return None

    def run_acts(self, page: RunPage) -> Html | None:  # noqa: ARG002 - the live one needs it
        """Return what a person can do with the run."""
        return None

    def limit_acts(self, page: RunPage) -> Html | None:  # noqa: ARG002 - the live one needs it
        """Return how a limit is raised."""
        return None

    def answer_form(self, page: RunPage, one: QuestionView) -> Html | None:  # noqa: ARG002 - the live one needs them
        """Return how a question is answered here."""
        return None

    def draft_form(self, page: RunPage) -> Html | None:  # noqa: ARG002 - the live one needs it
        """Return how a draft is approved here."""
        return None

    def file(self, name: str) -> str | None:  # noqa: ARG002 - the live one needs it
        """Return where a file can be read."""
        return None

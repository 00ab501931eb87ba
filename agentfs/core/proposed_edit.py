"""What another program wants of a plan: an edit that it proposes, or another plan that it asks for in words. Pure.

Both are a wish (`replan.md`), and what comes of them is a question to a person. An edit brings its own answer to the
trigger `asked`, held to a planner's rules.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from agentfs.core.excerpts import one_line

_FORM = re.compile(
    r"<!-- edit_plan base: ([0-9a-f]{64}) by: ([^\n<>]{1,80}) -->\n(.*?)\n```json\n(.*)\n```\n?\Z", re.DOTALL
)
_WISH = re.compile(r"<!-- replan by a client -->\n(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProposedEdit:
    """Another plan, for one that was read."""

    base_sha256: str
    by: str
    why: str
    steps: Any  # as they were given

    @property
    def detail(self) -> str:
        return f"{self.by} proposes an edit: {self.why}"


def render_edit(edit: ProposedEdit) -> str:
    """Return the wish as a file: words and steps for people, and what tells it from a wish in words."""
    steps = json.dumps({"steps": edit.steps}, indent=2, ensure_ascii=False)
    by = re.sub(r"[<>\n-]+", " ", one_line(edit.by, 60)).strip() or "a client"
    return f"<!-- edit_plan base: {edit.base_sha256} by: {by} -->\n{edit.why.strip()}\n\n```json\n{steps}\n```\n"


def proposed_edit(words: str | None) -> ProposedEdit | None:
    """Return the edit that a wish brings; None where it is a wish in words."""
    match = _FORM.match(words or "")
    if match is None:
        return None
    try:
        steps = json.loads(match[4])["steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ProposedEdit(match[1], match[2], one_line(match[3], 200) or "no reason was given", steps)


def render_wish(words: str) -> str:
    """Return a client's wish in words as a file, which tells it from a person's."""
    return f"<!-- replan by a client -->\n{words.strip()}\n"


def clients_wish(words: str | None) -> str | None:
    """Return what a client asked for in words; None where a person did, or it brings an edit."""
    match = _WISH.match(words or "")
    return f"a client asks for another plan: {match[1].strip() or 'it does not say why'}" if match else None

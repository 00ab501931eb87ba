"""The plans of a run's revisions, and what follows from them. Reads only; each is read once, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from agentfs.core import paths
from agentfs.core.plan_merge import HandEditHistory, HandEdits, plan_without_edits
from agentfs.core.records import Plan, Revision
from agentfs.errors import UserError
from agentfs.storage.files import read_whole


class LostPlan(UserError):
    """The plan of a revision is not there, or does not read."""


@dataclass(slots=True)
class PastPlans:
    """Reads the copies that `revisions/` keeps."""

    folder: Path
    _held: HandEditHistory = field(default_factory=HandEditHistory)

    def plan(self, revision: int) -> Plan:
        """Return the plan of a revision; raise if it does not read."""
        name = f"{paths.REVISIONS}/{paths.revision_plan_file(revision)}"
        try:
            return Plan.model_validate_json(read_whole(self.folder / name))
        except (OSError, ValidationError):
            raise LostPlan(f"{name} does not read: take it back from the ledger") from None

    def pins(self, revisions: Sequence[Revision], last: Plan | None = None) -> HandEdits:
        """Return the fields that a person set by hand; nothing is read where nobody edited. `last`: the last plan."""
        if not _edited(revisions):
            return {}
        if self._held.revisions > len(revisions):
            self._held = HandEditHistory()
        for revision in revisions[self._held.revisions :]:
            known = last if revision is revisions[-1] else None
            self._held = self._held.after(revision, known or self.plan(revision.revision))
        return self._held.hand_edits

    def unedited(self, revisions: Sequence[Revision]) -> Plan | None:
        """Return the plan as it would be had no person edited it; None where nobody did."""
        return plan_without_edits((one, self.plan(one.revision)) for one in revisions) if _edited(revisions) else None


def _edited(revisions: Sequence[Revision]) -> bool:
    return any(revision.trigger == "edited" for revision in revisions)

"""What an examination found: fine, worth a remark, or wrong; and how to mend it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Grade = Literal["fine", "remark", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    about: str  # which part of the machine or the workspace
    grade: Grade
    what: str
    fix: str | None = None  # what to do; always there where something is wrong

    def as_json(self) -> dict[str, str | None]:
        return {"about": self.about, "grade": self.grade, "what": self.what, "mend": self.fix}


def fine(about: str, what: str) -> Finding:
    return Finding(about, "fine", what)


def remark(about: str, what: str, fix: str | None = None) -> Finding:
    """Something to know: agentfs works all the same."""
    return Finding(about, "remark", what, fix)


def wrong(about: str, what: str, fix: str) -> Finding:
    """Something that keeps agentfs, or a part of it, from working as it promises."""
    return Finding(about, "wrong", what, fix)


def is_well(findings: Iterable[Finding]) -> bool:
    return all(one.grade != "wrong" for one in findings)

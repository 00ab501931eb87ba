"""What a commit says: messages from records, and their trailers read back. Pure.

Details come from tools, models and people. They are laid flat (no line break, no control character), kept out of the
last paragraph, and cut: nothing in them can pass for a subject or a trailer.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from agentfs.core.records import Outcome, Revision, Trigger, Usage

AGENTFS = ("agentfs", "agentfs@localhost")
PLANNER = ("agentfs planner", "agentfs@localhost")

_SUBJECT_LENGTH = 120
_VALUE_LENGTH = 300
_DETAIL_LENGTH = 1000
_CHANGES = 40
_EVIDENCE = 100
_WIDTH = 72
_TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
_REASONS: dict[Trigger, str] = {
    "first": "the first plan",
    "edited": "edited by {by}",
    "goal_changed": "after the goal changed",
    "asked": "as asked",
    "step_unreachable": "after {step} could not be reached",
    "repeated_failure": "after {step} failed {times}",
    "step_failed": "after {step} failed",
    "unexpected_state": "after {step} surprised",
    "goal_checks_failed": "after the goal's checks failed",
    "drift": "after {step} drifted",
    "next_step": "the next step",
    "every_step": "looked over after {step}",
}
_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)\s*:\s*(.*)")

Trailer = tuple[str, str | None]


def revision_message(run: str, revision: Revision, usage: Usage | None) -> str:
    """Return the message of the commit that holds a revision: why it was made, what changed, on what evidence."""
    by = revision.by
    cost = usage.cost_usd if usage else None
    return _message(
        f"{_name(run)}: revision {revision.revision}, {reason_of(revision)}",
        [_wrap(revision.detail), _changes(revision)],
        [
            ("Agentfs-Run", run),
            ("Agentfs-Revision", str(revision.revision)),
            ("Agentfs-By", by.role if by.name in ("", by.role) else f"{by.role}: {by.name}"),
            ("Agentfs-Trigger", revision.trigger),
            ("Agentfs-Step", revision.step),
            *(("Agentfs-Evidence", path) for path in revision.evidence[:_EVIDENCE]),
            ("Agentfs-Model", (usage.model if usage else None) or by.model),
            ("Agentfs-Cost-USD", None if cost is None else _dollars(cost)),
        ],
    )


def outcome_message(run: str, outcome: Outcome, *, in_plan: int | None = None) -> str:
    """Return the message of the commit that holds an outcome.

    `in_plan`: how many steps the last plan has. In a run that is done, those that left it on the way do not count.
    """
    total = in_plan if outcome.status == "done" and in_plan else len(_name_steps(outcome))
    return _outcome_message(run, outcome, total)


def outcome_message_of_0_1(run: str, outcome: Outcome, *, in_plan: int) -> str:
    """Return the message as agentfs 0.1 wrote it: it counted the steps of the last plan however the run ended."""
    return _outcome_message(run, outcome, in_plan or len(_name_steps(outcome)))


def _name_steps(outcome: Outcome) -> list[str]:
    ends = outcome.steps
    return [*ends.done, *ends.failed, *ends.skipped, *ends.not_reached]


def _outcome_message(run: str, outcome: Outcome, total: int) -> str:
    ends = outcome.steps
    groups = (("failed", ends.failed), ("skipped", ends.skipped), ("not reached", ends.not_reached))
    lists = "\n".join(_wrap(f"{word}: {', '.join(ids)}") for word, ids in groups if ids)
    return _message(
        f"{_name(run)}: {outcome.status}, {len(ends.done)} of {total} steps",
        [_wrap(outcome.summary), lists],
        [
            ("Agentfs-Run", run),
            ("Agentfs-Outcome", f"{outcome.status} {outcome.reason}"),
            ("Agentfs-Cost-USD", _cost_words(outcome)),
        ],
    )


def as_it_stood_message(run: str) -> str:
    """Return the message of the commit that holds what a run says beyond its revisions and outcome."""
    words = "What was edited after the run had ended, and what does not read, is kept as it is."
    return _message(f"{_name(run)}: as it stood when it was forgotten", [_wrap(words)], [("Agentfs-Run", run)])


def forgotten_message(runs: Sequence[str]) -> str:
    """Return the message of the commit that takes runs out of the tree."""
    subject = f"{_name(runs[0])}: forgotten" if len(runs) == 1 else f"{len(runs)} runs forgotten"
    words = f"Its files are no longer on disk. What they were: git log -- {runs[0]}"
    if len(runs) > 1:
        words = "Their files are no longer on disk. What they were: git log -- RUN"
    return _message(subject, [words], [("Agentfs-Run", run) for run in runs])


def author_of(revision: Revision, person: tuple[str, str]) -> tuple[str, str]:
    """Return name and address of a revision's author; `person` is at this machine now, and may be another."""
    if revision.by.role == "person":
        return revision.by.name or person[0], person[1]
    return PLANNER if revision.by.role == "planner" else AGENTFS


def trailers(message: str) -> dict[str, list[str]]:
    """Return the trailers of a message: its last paragraph, if every line of it is one."""
    paragraphs = [part for part in re.split(r"\n[ \t]*\n", message.strip("\n")) if part.strip()]
    if len(paragraphs) < 2:
        return {}
    found: dict[str, list[str]] = {}
    for line in paragraphs[-1].strip("\n").split("\n"):
        if not (match := _TRAILER.fullmatch(line)):
            return {}
        found.setdefault(match[1], []).append(match[2].rstrip())
    return found


def reason_of(revision: Revision) -> str:
    """Return why a revision was made, in the words that follow `revision N,`."""
    if revision.rejected is not None:
        return f"after a person rejected {revision.rejected}"
    by, step = revision.by.name or "a person", revision.step or "a step"
    return _REASONS[revision.trigger].format(by=by, step=step, times=_times(revision))


def _times(revision: Revision) -> str:
    """Return how often the step failed, counted by the results it lists."""
    results = sum(bool(re.search(r"\.result\.json\Z", path)) for path in revision.evidence)
    return _TIMES.get(results, f"{results} times" if results > 2 else "again and again")


def _changes(revision: Revision) -> str:
    lines = [f"- {change.step or 'plan'}: {change.what}" for change in revision.changes[:_CHANGES]]
    if (more := len(revision.changes) - _CHANGES) > 0:
        lines.append(f"- and {more} more")
    return "\n".join(_flat(line, _VALUE_LENGTH) for line in lines)


def _message(subject: str, body: Iterable[str], given: Iterable[Trailer]) -> str:
    """Return subject, paragraphs and trailers as git wants them: apart by one empty line each."""
    last = "\n".join(f"{key}: {flat}" for key, value in given if value and (flat := _flat(value, _VALUE_LENGTH)))
    return "\n\n".join(filter(None, (_flat(subject, _SUBJECT_LENGTH), *body, last))) + "\n"


def _name(run: str) -> str:
    return run.rpartition("/")[2]


def _flat(text: str, length: int) -> str:
    """Return a text as one line of at most `length` printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def _wrap(text: str) -> str:
    """Return a text as one paragraph. `---` may not begin a line: git would take the rest for a patch."""
    lines = textwrap.wrap(_flat(text, _DETAIL_LENGTH), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f" {line}" if line.startswith("---") else line for line in lines)


def _cost_words(outcome: Outcome) -> str | None:
    """Return what the run cost; None where nothing was asked of a model, or a part of the cost is unknown."""
    costs = [usage.cost_usd for usage in (outcome.usage.planner, outcome.usage.executor) if usage]
    known = [cost for cost in costs if cost is not None]
    return _dollars(sum(known)) if known and len(known) == len(costs) else None


def _dollars(cost: float) -> str:
    return f"{cost:.6f}".rstrip("0").rstrip(".")

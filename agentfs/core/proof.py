"""What shows that a run is done: which checks run before the end, whose they are, and what they prove. Pure.

An acceptance check says what is true when the goal is met. One that a model wrote was run before the work
(`before` in the answer that brought it): if it held already, or was written after the work began, it proves nothing.
A check of any other origin is a person's, and counts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from agentfs.core import paths
from agentfs.core.excerpts import list_first
from agentfs.core.facts import Facts
from agentfs.core.hashing import canonical, check_value, sha256_of
from agentfs.core.paths import step_of
from agentfs.core.planner_calls import loops
from agentfs.core.records import (
    Check,
    CheckResult,
    CommandCheck,
    FileCheck,
    GoalChecks,
    JsonObject,
    JudgeCheck,
    ProofLevel,
    ProofOfDone,
    ProvenBy,
    Reason,
    ResolvedCheck,
    Step,
)
from agentfs.core.run_state import RunState

LEVELS: tuple[ProofLevel, ...] = ("claimed", "judged", "checked")  # the weakest first
Blame = Literal["planning", "execution"]
_WORD = re.compile(r"[^\s|&;:,<>()$`\"'=*?\[\]{}]+")
_FIRST = re.compile(r"""\s*(?:"([^"$`\\]+)"|'([^']+)'|([\w./+@%:,-]+))""")
_LOOKS = (CommandCheck, FileCheck)  # checks that only look, so that they can be run again


def check_sha256(check: Check | ResolvedCheck) -> str:
    return sha256_of(check_value(check))


def acceptance_checks(facts: Facts) -> tuple[Check, ...]:
    """Return what must hold before the run may end done. A run of the first release has only the goal's own."""
    own = facts.plan.checks if facts.plan else None
    if own is None and facts.run.proof is None:
        return facts.goal.checks
    return own or ()


def held_before(facts: Facts) -> dict[str, bool]:
    """Return the acceptance checks that models wrote, by hash: whether each held before the work."""
    return {one.sha256: one.ok for call in facts.calls if call.answer for one in call.answer.before}


def wants_acceptance(facts: Facts) -> bool:
    """Whether a model has to write acceptance checks: the goal is in words, and a person wrote none."""
    proof = facts.run.proof
    return proof is not None and proof.acceptance and not facts.goal.has_steps and not facts.goal.checks


# ── checks of steps, run again ────────────────────────────────────────────────────────────────────────────


def steps_to_check(state: RunState) -> tuple[Step, ...]:
    """Return steps with the checks to run again: those of done steps, and those that a planner dropped or weakened.

    Only where a model plans: a person's own steps are done as written, and may well undo what an earlier one made.
    """
    facts = state.facts
    if facts.goal.has_steps or facts.run.proof is None:
        return ()
    done = [one for view in state.steps.values() if view.status == "done" for one in view.items or (view,)]
    found = {one.id: _looking(one.step.checks) for one in done if one.status == "done" and one.step.each is None}
    for name, checks in _find_dropped(facts):
        known = [check_sha256(one) for one in found.get(name, ())]
        more = [one for one in checks if check_sha256(one) not in known]
        found[name] = (*found.get(name, ()), *more)
    return tuple(_bearer(name, checks) for name, checks in found.items() if checks)


def _bearer(name: str, checks: tuple[Check, ...]) -> Step:
    """Return a step that bears checks, or an item, whose id no plan may have."""
    return Step(id=paths.step_of(name), checks=checks).model_copy(update={"id": name})


def _looking(checks: Iterable[Check] | None) -> tuple[Check, ...]:
    return tuple(one for one in checks or () if isinstance(one, _LOOKS))


def _find_dropped(facts: Facts) -> Iterator[tuple[str, tuple[Check, ...]]]:
    """Yield the checks of each plan that took effect; what a person edited is theirs to drop."""
    applied = {revision.call for revision in facts.revisions}
    edited = {
        change.step
        for revision in facts.revisions
        if revision.trigger == "edited"
        for change in revision.changes
        if change.step is not None
    }
    for call in facts.calls:
        plan = call.answer.plan if call.answer and call.number in applied else None
        for step in _steps_of(plan):
            if step.id not in edited and step.id in facts.attempts and step.each is None:
                yield step.id, _looking(step.checks)


def _steps_of(plan: JsonObject | None) -> Iterator[Step]:
    steps = plan.get("steps") if plan else None
    for value in steps if isinstance(steps, list) else ():
        if isinstance(value, dict) and value.get("checks"):
            yield Step.model_validate_json(_bare(value))


def _bare(value: JsonObject) -> bytes:
    return canonical({name: value[name] for name in ("id", "checks", "each") if name in value})


# ── whose a check of a step is ────────────────────────────────────────────────────────────────────────────


def planners_checks(facts: Facts) -> frozenset[str]:
    """Return the hashes of every check of a step that a model planned."""
    if facts.goal.has_steps:
        return frozenset()
    answers = (call.answer.plan for call in facts.calls if call.answer)
    return frozenset(
        check_sha256(check) for plan in answers for step in _steps_of(plan) for check in step.checks or ()
    )


def written_by_models(facts: Facts) -> frozenset[str]:
    """Return the hashes of every check that a model wrote: of the goal, and of steps."""
    return planners_checks(facts) | held_before(facts).keys()


def persons_checks(state: RunState) -> tuple[Check, ...]:
    """Return the checks that a person wrote: of the goal, and of its steps."""
    planned = planners_checks(state.facts)
    of_steps = [check for view in state.steps.values() for check in view.step.checks or ()]
    return (*persons_goal_checks(state.facts), *(check for check in of_steps if check_sha256(check) not in planned))


def persons_goal_checks(facts: Facts) -> tuple[Check, ...]:
    """Return the goal's checks that a person wrote."""
    written = held_before(facts)
    return tuple(check for check in acceptance_checks(facts) if check_sha256(check) not in written)


def names_in(check: Check) -> Iterator[str]:
    """Yield the words of a check that may be files."""
    if isinstance(check, FileCheck):
        yield check.path
    if isinstance(check, CommandCheck):
        yield from words_in(check.run)


def words_in(text: str) -> Iterator[str]:
    """Yield the words of a shell text or a script that may be files."""
    yield from (word.removeprefix("./") for word in _WORD.findall(text) if not word.startswith("-"))


def settings_of(check: Check) -> Iterator[str]:
    """Yield patterns of files that decide what a command does, though it does not name them: a Makefile, say."""
    for word in names_in(check):
        yield from _SETTINGS.get(word.rsplit("/", 1)[-1], ())


def tests_of(check: Check) -> Iterator[str]:
    """Yield patterns of files that a command finds by itself and runs as tests."""
    for word in names_in(check):
        yield from _TESTS.get(word.rsplit("/", 1)[-1], ())


_PYTEST = ("conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml")
_NODE = ("package.json", "jest.config.*", "vitest.config.*")
_SETTINGS: dict[str, tuple[str, ...]] = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "pytest": _PYTEST,
    "tox": _PYTEST,
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun", "jest", "vitest"), _NODE),
    "cargo": ("Cargo.toml", "build.rs"),
    "just": ("justfile", "Justfile"),
}
_TESTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pytest", "unittest", "tox"), ("test*.py", "*_test.py")),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun", "jest", "vitest"), ("*.test.*", "*.spec.*")),
    "go": ("*_test.go",),
}


def first_word(check: Check) -> str | None:
    """Return what a command check runs; None where that is not plain to see."""
    found = _FIRST.match(check.run) if isinstance(check, CommandCheck) else None
    return found[1] or found[2] or found[3] if found else None


# ── the proof ─────────────────────────────────────────────────────────────────────────────────────────────


def required_level(facts: Facts) -> ProofLevel:
    """Return the least proof with which this run may end done."""
    proof = facts.run.proof
    if proof is None:
        return "claimed"
    return proof.require or ("judged" if proof.acceptance and not facts.goal.has_steps else "claimed")


def is_enough(proof: ProofOfDone, facts: Facts) -> bool:
    return LEVELS.index(proof.level) >= LEVELS.index(required_level(facts))


def proof_of(state: RunState, found: GoalChecks | None) -> ProofOfDone:
    """Return what shows that every step is done and the goal is met. `found`: by the checks before the end."""
    facts, before, planned = state.facts, held_before(state.facts), planners_checks(state.facts)
    person = planner = judge = 0
    accepted = zip(acceptance_checks(facts), found.checks if found else (), strict=False)
    for check, result in accepted:
        held = before.get(check_sha256(check))
        if not result.ok:
            continue
        if isinstance(check, JudgeCheck):
            judge += 1
        elif held is None:
            person += 1
        elif not held:
            planner += 1
    accepted_judges = judge
    unproven = []
    held_in_steps = 0
    for view in (one for step in state.steps.values() for one in step.items or (step,)):
        if view.status != "done" or view.result is None:
            continue
        held_in_steps += len(view.result.held_before)
        passed = [one for one in view.result.checks if one.ok]
        judge += sum(one.kind == "judge" for one in passed)
        person += sum(check_sha256(one) not in planned for one in _certain(view.step.checks)) if passed else 0
        if not _is_proven(passed, view.result.held_before) and not loops(facts):
            unproven.append(step_of(view.id))
    level: ProofLevel = "checked" if person or planner else "judged" if accepted_judges else "claimed"
    return ProofOfDone(
        level=level,
        by=ProvenBy(person=person, planner=planner, judge=judge),
        held_before=sum(before.get(check_sha256(one), False) for one in acceptance_checks(facts)) + held_in_steps,
        touched=found.touched if found else (),
        shed=tuple(shed_in(found)),
        unproven=tuple(dict.fromkeys(unproven)),
    )


def _certain(checks: Iterable[Check] | None) -> tuple[Check, ...]:
    return tuple(one for one in checks or () if not isinstance(one, JudgeCheck))


def _is_proven(passed: list[CheckResult], held: tuple[str, ...]) -> bool:
    return any(one.kind == "judge" for one in passed) or len(passed) > len(held)


def shed_in(found: GoalChecks | None) -> Iterator[str]:
    """Yield the checks of steps that no longer hold, in words."""
    for step in found.steps if found else ():
        for check in step.checks:
            if not check.ok:
                yield f"{step.step}: {check.run or check.detail.partition(chr(10))[0]}"


def proof_words(proof: ProofOfDone) -> str:
    """Return the proof as it is shown beside `done`."""
    parts = [_LEVEL_WORDS[proof.level]]
    if proof.touched:
        parts.append(f"changed by a step: {list_first(proof.touched)}")
    if proof.shed:
        parts.append(f"no longer holds: {list_first(proof.shed)}")
    return "; ".join(parts)


_LEVEL_WORDS: dict[ProofLevel, str] = {
    "checked": "checked",
    "judged": "judged by a model",
    "claimed": "claimed, not checked",
}


# ── what failed ───────────────────────────────────────────────────────────────────────────────────────────


def blame_for(state: RunState, reason: Reason) -> Blame | None:
    """Return whether planning or execution failed; None where nothing did.

    A tool does exactly what the plan says: where a model planned it, a tool step that fails was planned wrongly.
    """
    match reason:
        case "steps_done" | "cancelled":
            return None
        case "impossible" | "rejected":
            return "planning"
        case "unproven":
            return "execution"
        case "goal_checks_failed":
            return "execution" if loops(state.facts) or state.facts.goal.has_steps else "planning"
        case _:
            return _blame_for_step(state)


def _blame_for_step(state: RunState) -> Blame:
    failed = [view for view in state.steps.values() if view.status in ("failed", "blocked")]
    if not failed or state.facts.goal.has_steps:
        return "execution" if state.facts.goal.has_steps else "planning"
    last = failed[-1]
    by_model = last.step.tool is None
    return "execution" if by_model and last.status == "failed" else "planning"


# ── what a judge is shown, and what became of a folder ────────────────────────────────────────────────────


MOST_NAMES = 200  # of what changed that are written down
KINDS_OF_CHANGE = ("added", "changed", "removed")

Snapshot = Mapping[str, tuple[int, int, int]]  # path -> size, and when it was written and touched last


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of evidence: what it is, and what it says. Only what it says can be quoted."""

    label: str
    body: str


Gather = Callable[[str], Sequence[Piece]]  # the evidence for a condition


def no_evidence(_condition: str) -> Sequence[Piece]:
    """Return nothing: where no judge can be asked."""
    return ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What the checks of a person rest on."""

    names: tuple[str, ...] = ()  # files, folders and other words
    settings: tuple[str, ...] = ()  # patterns of files that count wherever they lie, also where one is put there
    tests: tuple[str, ...] = ()  # patterns of files that count wherever they lie, if they were there

    def has(self, path: str) -> bool:
        """Whether a file that was there is one of them."""
        return is_named(path, self.names) or _is_like(path, (*self.settings, *self.tests))

    def has_new(self, path: str) -> bool:
        """Whether a file counts that was not there."""
        return _is_like(path, self.settings)


def is_named(path: str, words: Iterable[str]) -> bool:
    """Whether one of these words is a file, or a folder that it lies in."""
    return any(path == word or path.startswith(f"{word}/") for word in words)


def _is_like(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a folder."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def as_json(self, watched: Watched) -> JsonObject:
        """Return as many names as are written down; those that are watched come first."""
        found: JsonObject = {}
        for what, names in self.by_kind():
            if names:
                found[what] = [*sorted(names, key=lambda name: not watched.has(name))[:MOST_NAMES]]
        return found

    def by_kind(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return zip(KINDS_OF_CHANGE, (self.added, self.changed, self.removed), strict=True)

    def all(self) -> tuple[str, ...]:
        return (*self.added, *self.changed, *self.removed)

    def lines(self) -> Iterator[str]:
        for what, names in self.by_kind():
            yield from (f"{what}: {name}" for name in names[:MOST_NAMES])


def compare(before: Snapshot, after: Snapshot) -> Changes:
    return Changes(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(path for path in after.keys() & before.keys() if after[path] != before[path])),
        tuple(sorted(before.keys() - after.keys())),
    )

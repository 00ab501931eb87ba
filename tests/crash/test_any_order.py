"""Goals dropped, plans edited, gates opened, steps that fail, cancelled, tried again, and agentfs killed at any moment, in any order.

A small model says what should be true. `./test --full` tries 2,000 orders of things, a number a few dozen; by
default it is a handful, chosen by a seed.
"""

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.crash.forking import Forks
from tests.crash.stories import CUT_OFF, effects, results, save
from tests.crash.sweeping import copy_of, in_memory
from tests.sweeps import FULL, SEED, WANTED
from tests.workspaces import Place

EXAMPLES = 2000 if FULL else int(WANTED or 6)
KINDS = {
    "plain": "repeatable",
    "gated": "repeatable\ngate",
    "once": "not repeatable",
    "fragile": "repeatable\nretries: 0",
    "listed": "repeatable\nwhen: `true`\neach: x, y",
    "nested": "",
    "spared": "repeatable\nretries: 0\n\n### d\ninstead of: b\n```sh\necho d >> effects; echo d\n```\nrepeatable",
}
BOOK = """\
# Job

## Steps

### a
```sh
echo a >> effects; echo a
```
repeatable

### b
```sh
{guard}echo b >> effects; echo b
```
{lines}

### c
```sh
echo c >> effects; echo word0
```
repeatable
"""
PLACES = ("steps/a.", "steps/b.", "steps/c.", "plan", "revisions/", "planning/", "outcome", "goal", ".git/")
GUARDS = {"fragile": "test ! -e broken || exit 1; ", "spared": "test -e never || exit 1; "}


@dataclass
class Run:
    """What is known of a run without looking at its records."""

    name: str
    kind: str
    word: str = "word0"  # what c says, by the last edit
    status: str = "approved"  # as the person has set it
    permitted: int = 1  # how often b may have its effect
    facts: dict[str, bytes] = field(default_factory=dict)  # every record that was ever seen
    saved: list[bytes] = field(default_factory=list)  # every plan that a person has saved


NESTED = """### b
```run
uses: runbooks/inner.md
```

"""
INNER = """# Inner

## Steps

### b
gate
repeatable
```sh
echo b >> effects; echo b
```
"""


def book(kind: str) -> str:
    if kind == "nested":
        head, _, rest = BOOK.partition("### b\n")
        return f"{head}{NESTED}### c{rest.partition('### c')[2]}"
    return BOOK.format(guard=GUARDS.get(kind, ""), lines=KINDS[kind])


class AnyOrder(RuleBasedStateMachine):
    """One workspace, one person, and an agentfs that may die whenever it runs."""

    forks: Forks
    begins: Place

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.begins.root.parent.parent))
        self.place = copy_of(self.begins, self.folder / "place")
        self.runs: dict[str, Run] = {}
        self.edits = 0

    def teardown(self) -> None:
        try:
            if self.runs:
                self.end_all()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ── what a person does ────────────────────────────────────────────────────────────────────────────────

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def first(self, kind: str) -> None:
        self.drop(kind)

    @precondition(lambda self: len(self.runs) < 3)
    @rule(kind=st.sampled_from(sorted(KINDS)))
    def drop(self, kind: str) -> None:
        run = Run(f"{kind}-{len(self.runs)}", kind)
        self.runs[run.name] = run
        save(self.place.root / "goals" / f"{run.name}.md", book(kind))

    @rule(choice=st.integers(0, 2))
    def edit(self, choice: int) -> None:
        """Let c say something else."""
        if (run := self.chosen(choice)) and (folder := self.open_folder(run)) and (folder / "plan.json").exists():
            self.edits += 1
            run.word = f"word{self.edits}"
            source = (folder / "plan.json").read_text()
            save(folder / "plan.json", re.sub(r"echo word\d+", f"echo {run.word}", source))
            run.saved.append((folder / "plan.json").read_bytes())

    @rule(choice=st.integers(0, 2))
    def answer(self, choice: int) -> None:
        if (run := self.chosen(choice)) and (folder := self.open_folder(run)):
            self.answer_all(run, folder)

    def children_of(self, run: Run) -> list[Path]:
        """Return the runs that are steps of a run."""
        return [path.parent for path in self.place.runs.glob(f"*/{run.name}-b*/goal.md")]

    @rule(choice=st.integers(0, 2), broken=st.booleans())
    def fail(self, choice: int, broken: bool) -> None:
        """Let b fail from now on, or no longer."""
        if (run := self.chosen(choice)) and (folder := self.folder_of(run)):
            if broken:
                (folder / "files" / "broken").touch()
            else:
                (folder / "files" / "broken").unlink(missing_ok=True)

    @rule(choice=st.integers(0, 2), word=st.sampled_from(["cancel", "pause", "resume"]))
    def switch(self, choice: int, word: str) -> None:
        if (run := self.chosen(choice)) and (folder := self.folder_of(run)) and (folder / "plan.json").exists():
            code, output = self.forks.run(self.place.root, self.place.env, word, run.name)
            assert code in ((0, 1, 2, 3) if word == "resume" else (0, 2)), output  # it drives the run
            if code != 2:
                run.status = {"cancel": "cancelled", "pause": "paused", "resume": "approved"}[word]
                run.saved.append((folder / "plan.json").read_bytes())  # the last save, with another status

    @rule(choice=st.integers(0, 2), step=st.sampled_from("abc"))
    def retry(self, choice: int, step: str) -> None:
        if (run := self.chosen(choice)) and self.folder_of(run):
            code, output = self.forks.run(self.place.root, self.place.env, "retry", run.name, step)
            assert code in (0, 2), output
            if code == 0:
                run.permitted += 1  # of a step before b too: b is stale then; a cancelled run stays cancelled

    # ── what agentfs does ─────────────────────────────────────────────────────────────────────────────────

    @rule()
    def work(self) -> None:
        """Let it work until nothing is left to do but to wait for a person."""
        code, output = self.forks.run(self.place.root, self.place.env)
        assert code == 0, output
        for run in self.runs.values():
            self.rests_rightly(run)

    @rule(cut=st.integers(0, 300))
    def die(self, cut: int) -> None:
        """Let it work until so many changes of the disk, then kill it."""
        code, output = self.forks.run(self.place.root, self.place.env, cut=cut)
        assert code in (0, -9), output

    @rule(near=st.sampled_from(PLACES), cut=st.integers(0, 8))
    def die_near(self, near: str, cut: int) -> None:
        """Kill it where it matters: by chance alone it dies between an effect and its result once in hundreds of times."""
        code, output = self.forks.run(self.place.root, self.place.env, cut=cut, near=near)
        assert code in (0, -9), output

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def every_goal_is_there_once(self) -> None:
        waiting = [path.stem for path in (self.place.root / "goals").glob("*.md")]
        taken = {path.parent.name for name in ("goal.md", ".dropped") for path in self.place.runs.glob(f"*/*/{name}")}
        children = {path.parent.name for path in self.place.runs.glob("*/nested-?-b*/run.json")}
        assert sorted([*waiting, *taken - children]) == sorted(self.runs)
        for run in self.runs.values():
            if folder := self.folder_of(run):
                claims = len(list(folder.glob("steps/b.*.log.jsonl"))) if run.kind == "nested" else 0
                mine = [name for name in children if name.startswith(f"{run.name}-b")]
                assert len(mine) <= claims, f"{mine} of {claims} attempts"

    @invariant()
    def no_record_is_torn_or_changes(self) -> None:
        for run in self.runs.values():
            if folder := self.folder_of(run):
                now = dict(records(folder))
                gone = [name for name, source in run.facts.items() if not now.get(name, b"").startswith(source)]
                assert gone == []
                run.facts = now

    @invariant()
    def no_save_is_lost(self) -> None:
        for run in self.runs.values():
            if folder := self.folder_of(run):
                kept = {
                    path.read_bytes() for path in (*folder.glob("revisions/*.plan.json"), *folder.glob("plan*.json"))
                }
                assert not run.saved or run.saved[-1] in kept

    @invariant()
    def nothing_is_done_twice_unnoticed(self) -> None:
        for run in self.runs.values():
            if folder := self.folder_of(run):
                done = effects(folder)
                logs = [path.name.partition(".")[0] for path in folder.glob("steps/*.log.jsonl")]
                claims = Counter(name.partition("~")[0] for name in logs)
                assert all(done[step] <= claims[step] for step in done), f"{done} {claims}"
                assert run.kind != "once" or done["b"] <= run.permitted

    def rests_rightly(self, run: Run) -> None:
        """Assert what should be true of a run that nobody drives because nothing is left to do."""
        folder = self.folder_of(run)
        assert folder, f"{run.name} was not taken"
        logs = [path for path in folder.glob("steps/*.log.jsonl") if '"child": ' not in path.read_text()]
        is_unfinished = [path for path in logs if not settled(path)]
        assert is_unfinished == [], "an attempt claims to run"
        outcome = json.loads((folder / "outcome.json").read_bytes()) if (folder / "outcome.json").exists() else None
        if outcome is None:
            asked = [one for mine in (folder, *self.children_of(run)) for one in open_questions(mine)]
            assert run.status == "paused" or asked, f"{run.name} waits for nothing"
        elif outcome["status"] == "done":
            assert outcome["answer"] == run.word
        elif outcome["status"] == "cancelled":
            assert run.status == "cancelled"
        else:
            cut_often = [step for step, tries in results(folder).items() if interruptions(tries) >= 3]
            assert run.kind == "fragile" or cut_often, f"{run.name} failed: {outcome}"

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────

    def end_all(self) -> None:
        """Answer everything, let everything succeed; then the ledger must have one commit for every revision."""
        for run in self.runs.values():
            self.switch_back(run)
        for _ in range(6):
            self.work()
            if all(self.has_ended(run) for run in self.runs.values()):
                break
            for run in self.runs.values():
                if folder := self.open_folder(run):
                    self.answer_all(run, folder)
                    self.switch_back(run)
        assert all(self.has_ended(run) for run in self.runs.values())
        self.no_record_is_torn_or_changes()
        self.nothing_is_done_twice_unnoticed()
        self.ledger_tells_all()

    def ledger_tells_all(self) -> None:
        self.place.git("fsck", "--strict")
        self.place.ledger_is_sound()
        changed = self.place.git(
            "log",
            "--format=%(trailers:key=Agentfs-Run,valueonly,separator=)/%(trailers:key=Agentfs-Revision,valueonly,separator=)",
        )
        wanted = [
            f"{folder.parent.name}/{folder.name}/{path.name.partition('.')[0]}"
            for run in self.runs.values()
            if (found := self.folder_of(run))
            for folder in (found, *self.children_of(run))
            for path in folder.glob("revisions/*.plan.json")
        ]
        assert sorted(line for line in changed.split() if not line.endswith("/")) == sorted(wanted)

    def switch_back(self, run: Run) -> None:
        folder = self.open_folder(run)
        if folder and (folder / "plan.json").exists() and run.status == "paused":
            assert self.forks.run(self.place.root, self.place.env, "resume", run.name)[0] in (0, 1, 3)
            run.status = "approved"

    def answer_all(self, run: Run, folder: Path) -> None:
        for question in [one for mine in (folder, *self.children_of(run)) for one in open_questions(mine)]:
            cut_off = question.read_text().startswith(CUT_OFF)
            run.permitted += cut_off
            save(
                question.with_name(question.name.replace("question", "reply")), "again\n" if cut_off else "approve\n"
            )

    def chosen(self, choice: int) -> Run | None:
        runs = list(self.runs.values())
        return runs[choice] if choice < len(runs) else None

    def folder_of(self, run: Run) -> Path | None:
        found = list(self.place.runs.glob(f"*/{run.name}/goal.md"))
        return found[0].parent if found else None

    def open_folder(self, run: Run) -> Path | None:
        folder = self.folder_of(run)
        return folder if folder and not (folder / "outcome.json").exists() else None

    def has_ended(self, run: Run) -> bool:
        return self.folder_of(run) is not None and self.open_folder(run) is None


def records(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the facts of a run; those that are JSON must read."""
    for part in ("steps", "planning", "revisions"):
        for path in (folder / part).iterdir():
            if not path.name.startswith(".") and ".reply" not in path.name and has_number(path):
                source = path.read_bytes()
                if path.suffix == ".json":
                    json.loads(source)
                yield f"{part}/{path.name}", source


def has_number(path: Path) -> bool:
    """Whether a file is a fact for good: the copy of a plan is one once its revision has its number."""
    return not path.name.endswith(".plan.json") or path.with_name(path.name.replace(".plan", "")).exists()


def settled(log: Path) -> bool:
    return log.with_name(log.name.replace(".log.jsonl", ".result.json")).exists()


def open_questions(folder: Path) -> Iterator[Path]:
    for question in (*folder.glob("steps/*.question*.md"), *folder.glob("planning/*.question*.md")):
        step = question.name.partition(".question")[0]
        is_acted_upon = (question.parent / f"{step}.result.json").exists() and not question.read_text().startswith(
            CUT_OFF
        )
        if not question.with_name(question.name.replace("question", "reply")).exists() and not is_acted_upon:
            yield question


def interruptions(tries: dict[int, Any]) -> int:
    return sum(result["status"] == "interrupted" for result in tries.values())


@pytest.fixture(scope="module")
def machine() -> Iterator[type[AnyOrder]]:
    with in_memory() as folder:
        (folder / "begins").mkdir()
        place = Place(folder / "begins")
        place.agentfs("init")
        allowed = '[tools]\nsandbox = "off"\nallow = ["shell", "run"]\n'
        (place.root / "agentfs.toml").write_text(f"{allowed}[limits]\nattempts = 2\n")
        (place.root / "runbooks").mkdir()
        (place.root / "runbooks" / "inner.md").write_text(INNER)
        yield type("AnyOrderHere", (AnyOrder,), {"forks": Forks(), "begins": place})


def test_in_any_order(machine: type[AnyOrder]) -> None:
    phases = (Phase.generate, Phase.shrink)
    run_state_machine_as_test(
        seed(SEED)(machine),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"in any order: {EXAMPLES} examples, 0 divergences")

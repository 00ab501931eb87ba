"""What is cut off: a run of five steps, with one that fails, a replan, a gate and a hand edit; and who lives with it.

Every step leaves a line in `effects` when it has its effect. So what was done twice shows, whatever the records say.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.forking import Forks
from tests.workspaces import Place

SETTINGS = '[tools]\nsandbox = "off"\n[limits]\nparallel = 1\n'
STEPS = """\
### fetch
```sh
echo fetch >> effects; echo fetched
```
repeatable

### risky
```sh
echo risky >> effects; exit 1
```
retries: 0
repeatable

### spare
instead of: risky
```sh
echo spare >> effects; echo spared
```
repeatable

### send
```sh
echo send >> effects; echo sent
```
not repeatable

### release
```sh
echo release >> effects; echo released
```
not repeatable
gate

### tell
```sh
echo tell >> effects; echo told "{{steps.send.output}}"
```
repeatable
"""
PLANNED = 'mode = "split"\napprove = "never"\n[planner]\nkind = "command"\ncommand = {command}\n' + SETTINGS
PLANNER = (
    "if grep -q risky; then cat {folder}/second.json; else cat {folder}/first.json; fi"  # it sees what was planned
)
OUTPUTS = {"send": "sent", "release": "released"}
CUT_OFF = "# What became of"
FACTS = ("steps", "planning", "revisions")
Files = dict[str, bytes]


def five_steps(place: Place) -> Place:
    """Make a workspace with the goal in it."""
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(SETTINGS)
    place.runbook(STEPS)
    return place


def four_steps(place: Place) -> Place:
    """Make a workspace whose goal a program plans, and plans again when `risky` has failed."""
    place.agentfs("init")
    command = json.dumps(["sh", "-c", PLANNER.format(folder=place.root.parent.parent / "planner")])
    (place.root / "agentfs.toml").write_text(PLANNED.format(command=command))
    place.goal("Send it, then tell\n")
    return place


def put_planner(folder: Path) -> None:
    """Put the answers of the program that plans into a folder."""
    first = (_step("fetch"), _step("risky", code=1, max_attempts=1), _step("send"), _step("tell"))
    second = (_step("spare"), _step("send"), _step("tell"))
    folder.mkdir()
    for name, steps in (("first", first), ("second", second)):
        (folder / f"{name}.json").write_text(json.dumps({"steps": steps}))


def _step(name: str, code: int = 0, **more: Any) -> dict[str, Any]:
    words = {"id": name, "description": name, "success_condition": f"effects has a line {name}"}
    command = f"echo {name} >> effects; echo {OUTPUTS.get(name, name)}; exit {code}"
    return {**words, "tool": "shell", "input": {"command": command}, **more}


def run_of(place: Place) -> Path | None:
    """Return the folder of the run, if the goal has become one."""
    found = [path.parent for path in place.runs.glob("????-??-??/*/goal.md")]
    assert len(found) < 2, f"one goal, {len(found)} runs: {found}"
    return found[0] if found else None


# ── a person ──────────────────────────────────────────────────────────────────────────────────────────────


def words_to_go_on(place: Place) -> tuple[str, ...]:
    """Return what a person types to begin, or to go on after a crash."""
    return ("run", "job.md") if run_of(place) is None else ("run", "--resume", "job")


def live_on(place: Place, forks: Forks | None = None) -> None:
    """Start it, answer, and start it again, until the run has ended. With `forks` a start costs little."""
    for _ in range(12):
        if forks is None:
            place.agentfs(*words_to_go_on(place), code=None)
        else:
            forks.command(place, *words_to_go_on(place))
        folder = run_of(place)
        assert folder, "the goal was not taken"
        if (folder / "outcome.json").exists():
            return
        answer(folder)
    raise AssertionError(f"it does not end: {sorted(snapshot(place))}")


def answer(folder: Path) -> None:
    """Answer every open question; at the gate, also edit a step that is yet to come."""
    for question in (folder / "steps").glob("*.question*.md"):
        reply = question.with_name(question.name.replace("question", "reply"))
        if reply.exists():
            continue
        step = question.name.partition(".")[0]
        if question.read_text().startswith(CUT_OFF):
            again = step not in effects(folder) or _is_repeatable(
                folder, step
            )  # a torn claim of such a step asks, too
            save(reply, "again\n" if again else what_became_of(step))
        else:
            edit(folder)
            save(reply, "approve\n")


def _is_repeatable(folder: Path, step: str) -> bool:
    steps = json.loads((folder / "plan.json").read_bytes())["steps"]
    return any(one["id"] == step and one.get("repeatable") is True for one in steps)


def what_became_of(step: str) -> str:
    """Return what a person says of an attempt that was cut off, and had its effect."""
    return "failed\n" if step == "risky" else f"done\n{OUTPUTS.get(step, step)}\n"


def edit(folder: Path) -> None:
    plan = folder / "plan.json"
    save(plan, plan.read_text().replace("echo told", "echo said"))


def save(path: Path, text: str) -> None:
    """Save as most editors do: beside it, synced, then over it."""
    beside = path.with_name(f"{path.name}~")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(beside, path)


# ── what is there ─────────────────────────────────────────────────────────────────────────────────────────


def effects(folder: Path) -> Counter[str]:
    path = folder / "files" / "effects"
    return Counter(path.read_text().split() if path.exists() else ())


def snapshot(place: Place) -> Files:
    """Return the files of the run that are facts: written once, whole, and never touched again."""
    folder = run_of(place)
    if folder is None:
        return {}
    paths = [path for part in FACTS for path in (folder / part).iterdir() if not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def results(folder: Path) -> dict[str, dict[int, Any]]:
    """Return every result, by step and attempt."""
    found: dict[str, dict[int, Any]] = {}
    for path in (folder / "steps").glob("*.result.json"):
        step, number, _ = path.name.split(".", 2)
        found.setdefault(step, {})[int(number)] = json.loads(path.read_bytes())
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """How the run ends when nobody interferes."""

    outcome: dict[str, Any]
    plans: list[bytes]
    log: list[str]
    outputs: dict[str, Any]

    @classmethod
    def of(cls, place: Place) -> "Expected":
        folder = place.run_folder()
        return cls(_outcome(folder), _plans(folder), place.log(), _outputs(folder))


def _outcome(folder: Path) -> dict[str, Any]:
    value = json.loads((folder / "outcome.json").read_bytes())
    return {key: value[key] for key in ("status", "reason", "answer", "steps", "revisions")}


def _plans(folder: Path) -> list[bytes]:
    copies = sorted((folder / "revisions").glob("*.plan.json"), key=lambda path: int(path.name.partition(".")[0]))
    return [path.read_bytes() for path in copies]


def _outputs(folder: Path) -> dict[str, Any]:
    """Return how each step settled in the end, and what it gave."""
    last = {step: tries[max(tries)] for step, tries in results(folder).items()}
    return {step: (result["status"], result["output"]) for step, result in last.items()}


# ── what must hold ────────────────────────────────────────────────────────────────────────────────────────


def assert_whole(place: Place, expected: Expected) -> Files:
    """Assert that right after a crash nothing is torn; return the facts."""
    facts = snapshot(place)
    for name, source in facts.items():
        if name.endswith(".json"):
            json.loads(source)
    folder = run_of(place)
    if folder is not None and (folder / "plan.json").exists():
        known = [*expected.plans, *(plan.replace(b"echo told", b"echo said") for plan in expected.plans)]
        assert (folder / "plan.json").read_bytes() in known, "plan.json is neither the old plan nor the new one"
    return facts


def assert_ended_well(place: Place, expected: Expected, *seen: Files) -> None:
    """Assert that the run ended as if nothing had happened, and that what was done twice was noticed."""
    folder = place.run_folder()
    assert _outcome(folder) == expected.outcome
    assert _plans(folder) == expected.plans
    assert _outputs(folder) == expected.outputs
    _assert_kept(snapshot(place), seen)
    _assert_noticed(folder)
    assert place.log() == expected.log
    place.ledger_is_sound()
    assert [path.name for path in folder.rglob("*") if path.name.endswith((".tmp", ".lock"))] == []


def _assert_kept(now: Files, seen: tuple[Files, ...]) -> None:
    """Assert that no fact that was ever there has changed or gone, and that no step that was done ran again."""
    for before in seen:
        lost = [name for name, source in before.items() if not now.get(name, b"").startswith(source)]
        assert lost == [], f"lost or rewritten: {lost}"
        for name, source in before.items():
            if name.endswith(".result.json") and name.startswith("steps/") and json.loads(source)["status"] == "done":
                step, number = name.removeprefix("steps/").split(".")[:2]
                assert f"steps/{step}.{int(number) + 1}.json" not in now, f"{step} was done, and was done again"


def _assert_noticed(folder: Path) -> None:
    tries, done = results(folder), effects(folder)
    for step in done:
        claimed = len(list((folder / "steps").glob(f"{step}.*.log.jsonl")))
        assert done[step] <= claimed, f"{step} had its effect {done[step]} times in {claimed} attempts"
        settled = [result["status"] for _, result in sorted(tries[step].items())]
        assert settled[:-1] == ["interrupted"] * (len(settled) - 1), f"{step}: {settled}"
        if not may_repeat(folder, step):
            assert done[step] == 1, f"{step} had its effect {done[step]} times"
    is_unfinished = [path.name for path in (folder / "steps").glob("*.log.jsonl") if not _result_of(path).exists()]
    assert is_unfinished == []


def may_repeat(folder: Path, step: str) -> bool:
    return all(json.loads(path.read_bytes())["repeatable"] for path in (folder / "steps").glob(f"{step}.[0-9].json"))


def _result_of(log: Path) -> Path:
    return log.with_name(log.name.replace(".log.jsonl", ".result.json"))

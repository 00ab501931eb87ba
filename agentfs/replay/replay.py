"""The fold: the files of a run are put into an empty folder again, in the order in which they appeared.

    for each file:  decide(derive(the files before it))  must hold the action that made it;
                    that action is performed, and what it writes is compared with the file;
                    then the recorded file takes its place

So every decision is judged on the recorded past, and one difference does not bring about others. What people did has
no time of its own: it is put in place when what came next could not be without it.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations, islice
from pathlib import Path

from agentfs.core import actions as acts
from agentfs.core import paths
from agentfs.core.decide import decide
from agentfs.core.facts import ConditionHeld, Facts, apply
from agentfs.core.hashing import sha256_bytes
from agentfs.core.paths import kind_of
from agentfs.core.records import Call, Order, Result, Revision
from agentfs.core.run_state import derive, used_by
from agentfs.core.underway import without_abandoned
from agentfs.engine.driver import Driver
from agentfs.engine.perform import perform
from agentfs.engine.world import asked_of_models
from agentfs.models.budget import Budget
from agentfs.replay.playback import Playback
from agentfs.replay.recorded_world import open_recorded, recorded_settings
from agentfs.replay.recording import (
    ABSENT,
    PARTS,
    PRESENT,
    Departure,
    Recording,
    Unreplayable,
    compare,
    events,
    list_files,
    missing_parts,
    parse_record,
    read_recording,
    workspace_of,
)
from agentfs.storage.files import read_whole
from agentfs.storage.files import replace as save
from agentfs.tools.secrets import given_secrets, mask_for

MOST_GUESSES = 300  # sets of people's acts that are tried to explain one file
MOST_TURNS = 8  # until one file is written: a gate asks, an order follows; a plan is installed, then gets its number


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went."""

    run: str
    departures: tuple[Departure, ...]
    calls: int
    attempts: int
    revisions: int
    outcome: str | None  # how the recorded run ended; None: it has not

    def same(self, *, lenient: bool = False) -> bool:
        """Whether it went as recorded; `lenient`: whatever the models were asked."""
        return all(lenient and departure.request for departure in self.departures)


def replay(
    folder: Path | str, *, workspace: Path | None = None, environment: Mapping[str, str] | None = None
) -> Replayed:
    """Replay the run in a folder, which stays as it is, and return where that departs from the recording.

    `workspace`: whose prompts/, tools/ and settings there were (default: the one that the folder lies in, if any).
    Raises Unreplayable.
    """
    recording = read_recording(Path(folder).resolve())
    workspace = workspace or workspace_of(recording.folder)
    if lacking := list(missing_parts(recording)):
        raise Unreplayable("\n".join([f"{folder} cannot be replayed:", *(f"  {part}" for part in lacking)]))
    settings = recorded_settings(recording, workspace)
    with tempfile.TemporaryDirectory(prefix="agentfs-replay-") as temp:
        root = Path(temp).resolve()
        scratch = _set_up(recording, root)
        mask = mask_for(settings, os.environ if environment is None else environment, recording.run.tools)
        mask = mask.also(given_secrets(recording.run.env))
        playback = Playback(recording, scratch, mask, same_paths(recording.folder, scratch, recording.run.run))
        Fold(playback, open_recorded(playback, settings, workspace or root)).run()
    return Replayed(
        run=recording.run.run,
        departures=tuple(playback.departures),
        calls=len(recording.all(Call)),
        attempts=len(recording.all(Result)),
        revisions=len(recording.all(Revision)),
        outcome=recording.outcome.status if recording.outcome else None,
    )


# ── the fold ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Fold:
    """Puts one recorded file after the other in place, and looks whether agentfs would have written it."""

    playback: Playback
    driver: Driver
    facts: Facts = field(init=False)  # of the recorded files that are in place
    now: str = ""
    plan: bytes = b""  # of the latest revision, as it came
    came: dict[str, bytes] = field(default_factory=dict)  # written by the replay; its time has not come yet

    def __post_init__(self) -> None:
        self.facts = self.driver.facts

    @property
    def recording(self) -> Recording:
        return self.playback.recording

    @property
    def folder(self) -> Path:
        return self.playback.folder

    def run(self) -> None:
        for path, at in events(self.recording):
            self.now = at
            self._put_questions()
            self._put_edits(path)
            self._cancel_with_parent(path)
            if kind_of(path) in ("result", "answer") and self.recording.was_killed(_stem(path)):
                self.came.pop(path, None)  # it was interrupted, which nobody decided
            else:
                self._make(path)
                self._compare(path)
            self._keep(path)
        self._put_questions()
        self._compare_rest()

    def _cancel_with_parent(self, path: str) -> None:
        """Cancel the run that this one was in, once a file shows it: its own plan never does."""
        error, outcome = self.recording.error(_stem(path)), self.recording.outcome
        is_cancelled = (error is not None and error.kind == "cancelled") or path == paths.OUTCOME
        if is_cancelled and self.recording.run.parent and outcome is not None and outcome.status == "cancelled":
            self.driver.reader.above = "cancelled"

    # ── deciding ────────────────────────────────────────────────────────────────────────────────────────

    def _decide(self) -> list[acts.Action]:
        """Return what is decided on the files that are in place."""
        driver = self.driver
        self.facts = driver.facts = driver.reader.read(self.facts)
        driver.state = derive(self.facts, driver.world.means, driver.state)
        actions = decide(driver.state, driver.places, self.now)
        return [*actions, *(one for one in without_abandoned(driver.state, actions) if one not in actions)]

    def _make(self, path: str) -> None:
        """Have the driver write a file: on what is in place, else with the fewest acts of people that explain it."""
        while path not in self.came and (self._advance(path) or self._advance_with_people(path)):
            pass

    def _advance_with_people(self, path: str) -> bool:
        for some in islice(_subsets(self._acts_of_people(path)), MOST_GUESSES):
            for one in some:
                save(self.folder / one, read_whole(self.recording.folder / one))
            if self._advance(path):
                return True
            for one in some:
                (self.folder / one).unlink()
        return False

    def _advance(self, path: str) -> bool:
        """Perform what is decided about this file until it is written; return whether anything was decided."""
        for turn in range(MOST_TURNS):
            action = next((one for one in self._decide() if self._leads_to(one, path)), None)
            if path in self.came or action is None:
                return turn > 0
            self._perform(action)
        return False

    def _leads_to(self, action: acts.Action, path: str) -> bool:
        """Whether an action writes a file, or has to come before it."""
        items = f"{paths.STEPS}/{action.view.id}{paths.ITEM}" if isinstance(action, acts.LookAtCondition) else None
        if items and path.startswith(items):
            return True
        return path.startswith(f"{self._about(action)}.")

    def _about(self, action: acts.Action) -> str | None:
        """Return what the files of an action are called, without their endings."""
        match action:
            case acts.IssueOrder(view=view) | acts.AskPerson(view=view, about="gate"):
                return paths.conversation(view.id, view.next)
            case acts.RecordReply(view=view, about="gate" | "cut"):
                return paths.conversation(view.id, view.next)
            case acts.GatherItems(view=view) | acts.LookAtCondition(view=view):
                return paths.conversation(view.id, view.next)
            case acts.StartAttempt(view=view) | acts.AskPerson(view=view) | acts.RecordReply(view=view):
                return paths.conversation(view.id, view.attempt)
            case acts.StopAttempt(step=step, attempt=number) | acts.TakeOutcome(step=step, attempt=number):
                return paths.conversation(step, number)
            case acts.CallPlanner(call=number) | acts.RunGoalChecks(call=number) | acts.AskAnswer(call=number):
                return paths.call_conversation(number)
            case acts.InstallPlan() | acts.RecordRevision():
                return f"{paths.REVISIONS}/{len(self.facts.revisions) + 1}"
            case acts.EndRun():
                return paths.OUTCOME.removesuffix(".json")
            case _:
                return None

    def _perform(self, action: acts.Action) -> None:
        """Perform an action, and take what it wrote out of the folder: it is put there when its time has come."""
        driver = self.driver
        driver.budget = Budget(driver.state.bounds, used_by(driver.state))
        for usage in asked_of_models(self.folder, self.facts):
            driver.budget.spent = driver.budget.spent.plus_usage(usage)
        if isinstance(action, acts.CallPlanner):
            self.playback.call = action.call
        before = set(list_files(self.folder))
        perform(action, driver)
        for path in set(list_files(self.folder)) - before:
            if kind_of(path) in _TIMED or path.startswith(f"{paths.REVISIONS}/"):
                self.came[path] = read_whole(self.folder / path)
                (self.folder / path).unlink()
        while not driver.reports.empty():
            _, report = driver.reports.get()
            if isinstance(report, ConditionHeld):  # no file says so before the first order of an item
                self.facts = apply(report, self.facts)

    # ── comparing ───────────────────────────────────────────────────────────────────────────────────────

    def _compare(self, path: str) -> None:
        """Note how what came differs from the recorded file."""
        source = self.came.pop(path, None)
        if source is None or not self._is_stopped(path):
            self.playback.note(path, "", PRESENT, f"nothing: {self._instead()}")
            return
        recorded = self.recording.records[path]
        if isinstance(recorded, Revision):
            plan = path.replace(".json", ".plan.json")
            self.plan = self.came.pop(plan, b"")
            was, now = sha256_bytes(self.recording.plan(recorded.revision)), sha256_bytes(self.plan)
            if was != now:
                self.playback.note(plan, "sha256", was, now)
        came = parse_record(path, source)
        self.playback.departures += compare(path, recorded, came, self.playback.paths)

    def _is_stopped(self, path: str) -> bool:
        """Whether an attempt that agentfs stopped is stopped; True of anything else."""
        error = self.recording.error(_stem(path)) if kind_of(path) == "result" else None
        if error is None or error.kind not in ("superseded", "cancelled"):
            return True
        result = self.recording.result(_stem(path))
        if result is not None and result.child:
            return True  # a run in a run sees for itself that this one is cancelled
        stopped = (one for one in self._decide() if isinstance(one, acts.StopAttempt))
        return any(self._about(one) == _stem(path) for one in stopped)

    def _instead(self) -> str:
        """Return what is decided in the place of what was recorded."""
        action = self._decide()[0]
        return f"the run waits: {action.why}" if isinstance(action, acts.Wait) else f"{_title(action)}: {action.why}"

    def _compare_rest(self) -> None:
        """Note the questions that were asked then and not now, and all that came and was never recorded."""
        recorded = self.recording.files
        asked = {path for path in list_files(self.folder) if kind_of(path) == "question"}
        for path in sorted({path for path in recorded if kind_of(path) == "question"} - asked):
            self.playback.note(path, "", PRESENT, ABSENT)
        for path in sorted((asked | self.came.keys()) - recorded):
            if kind_of(path) == "question" or not self.recording.was_killed(_stem(path)):
                self.playback.note(path, "", ABSENT, PRESENT)

    # ── putting in place ────────────────────────────────────────────────────────────────────────────────

    def _keep(self, path: str) -> None:
        """Put a recorded file in place, with what belongs to it."""
        save(self.folder / path, read_whole(self.recording.folder / path))
        record, log = self.recording.records[path], f"{_stem(path)}.log.jsonl"
        if isinstance(record, Revision):
            plan = self.recording.plan(record.revision)
            if sha256_bytes(plan) != record.plan_sha256 == sha256_bytes(self.plan):
                plan = self.plan  # the recorded one was changed since
            save(self.folder / paths.REVISIONS / paths.revision_plan_file(record.revision), plan)
            save(self.folder / paths.PLAN, plan)
        if isinstance(record, Call) and (self.folder / paths.REPLAN).exists():  # it was not decided
            os.rename(self.folder / paths.REPLAN, self.folder / f"{_stem(path)}.asked.md")
        if isinstance(record, Order) and log not in self.recording.files:  # nobody took it up
            (self.folder / log).unlink(missing_ok=True)
            self.came.pop(path.replace(".json", ".result.json"), None)

    def _put_edits(self, path: str) -> None:
        """Do what a person did to plan.json, the goal or replan.md before a file that shows it."""
        match self.recording.records[path]:
            case Revision(revision=number, call=None):
                save(self.folder / paths.PLAN, self.recording.plan(number))
            case Call(call=number, goal_sha256=goal):
                if goal != self.facts.goal.sha256:
                    save(self.folder / self.recording.goal_name, self.recording.goals[goal])
                words_of_person = paths.call_path(number, "asked")
                if words_of_person in self.recording.files:
                    save(self.folder / paths.REPLAN, read_whole(self.recording.folder / words_of_person))

    def _put_questions(self) -> None:
        """Ask what was asked then. A gate with an order asks just before it: until then its step may be edited."""
        for action in self._decide():
            if isinstance(action, acts.AskPerson | acts.AskAnswer) and self._was_asked(action):
                self._perform(action)
                self._decide()

    def _was_asked(self, action: acts.AskPerson | acts.AskAnswer) -> bool:
        about = self._about(action)
        if isinstance(action, acts.AskPerson) and action.about == "gate" and f"{about}.json" in self.recording.files:
            return False
        return any(one.startswith(f"{about}.question") for one in self.recording.files)

    def _acts_of_people(self, path: str) -> list[str]:
        """Return the replies and retries that could be in place by now and are not; those about this file first."""
        found = [
            one
            for one in self.recording.files
            if kind_of(one) in ("reply", "again") and not (self.folder / one).exists() and self._can_be(one)
        ]
        return sorted(found, key=lambda one: (not one.startswith(f"{_stem(path)}."), one))

    def _can_be(self, act: str) -> bool:
        """Whether what an act is about is in place: a question, or something that has ended."""
        if kind_of(act) == "reply":
            return (self.folder / act.replace(".reply", ".question")).exists()
        endings = (".result.json", ".checks.json")
        return any((self.folder / act.replace(".again.md", ending)).exists() for ending in endings)


_TIMED = ("call", "answer", "checks", "order", "result", "outcome")


def _subsets(found: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield every set of some of these, small ones first."""
    return chain.from_iterable(combinations(found, size) for size in range(1, len(found) + 1))


def _stem(path: str) -> str:
    return path.removesuffix(".json").removesuffix(".result").removesuffix(".checks")


def _title(action: acts.Action) -> str:
    """Return the name of an action in words."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(action).__name__).lower()


# ── the folder ────────────────────────────────────────────────────────────────────────────────────────────


def same_paths(recorded: Path, replayed: Path, run: str) -> Callable[[str], str]:
    """Return what makes texts of both runs comparable: where the run lies is not a difference."""
    anywhere = re.compile(rf"(?:/[^\s/\"'`]+)*/{re.escape(run)}(?=/|\b)")

    def plain(text: str) -> str:
        for folder in (str(replayed), str(recorded)):
            text = text.replace(folder, f"/{run}")
        return anywhere.sub("RUN", text)

    return plain


def _set_up(recording: Recording, root: Path) -> Path:
    """Make a workspace with the run as it began, and return the run's folder."""
    folder = root / "runs" / recording.run.run
    for part in (*PARTS, paths.FILES):
        (folder / part).mkdir(parents=True)
    (root / paths.SETTINGS).touch()
    calls = sorted(recording.all(Call), key=lambda call: call.call)
    goal = recording.goals[calls[0].goal_sha256] if calls else next(iter(recording.goals.values()))
    save(folder / recording.goal_name, goal)
    for name in (paths.RUN, paths.REQUEST, f"{paths.PLANNING}/{paths.CONTEXT}"):
        if (recording.folder / name).is_file():
            save(folder / name, read_whole(recording.folder / name))
    return folder

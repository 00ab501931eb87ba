"""Play a recording on the real engine, event by event, and say where it departs from it."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import Settings
from agentfs.core.decide import Wait
from agentfs.disk import replace as save
from agentfs.engine import World
from agentfs.errors import UserError
from agentfs.replaying.compare import Departure, compare
from agentfs.replaying.hints import hints_in
from agentfs.replaying.playback import DriverDied, Playback
from agentfs.replaying.recording import RecordedAttempt, Recording, Unreplayable, missing, read_recording
from agentfs.replaying.saving import settings_in, whole_recording, workspace_of
from agentfs.replaying.stage import CuedDriver, Cues, open_cued, recorded_world, same_paths, set_up
from agentfs.replaying.timeline import Died, Edit, EditGoal, Event, Made, Put, Settled, timeline
from agentfs.tools.secrets import given_secrets, mask_for

MOST_TURNS = 10_000  # between two events; an engine that takes more goes in circles


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went."""

    run: str
    departures: tuple[Departure, ...]
    calls: int
    attempts: int
    revisions: int
    outcome: str | None  # how the recorded run ended; None: it has not
    folder: Path  # the run as it was replayed, if it was kept

    def same(self, *, lenient: bool = False) -> bool:
        """Whether it went as recorded; `lenient`: whatever the models were asked."""
        return all(lenient and departure.request for departure in self.departures)


def replay(
    folder: Path | str,
    *,
    into: Path | None = None,
    workspace: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Replayed:
    """Play the run in a folder again, in a workspace of its own, and return where that departs from the recording.

    `into`: where to leave what was replayed (default: nowhere). `workspace`: whose prompts/, tools/ and settings
    there were (default: the one that the folder lies in, if it does). Raises Unreplayable.
    """
    recording = whole_recording(Path(folder).resolve())
    workspace = workspace or workspace_of(recording.folder)
    if lacking := missing(recording):
        raise Unreplayable("\n".join([f"{folder} cannot be replayed:", *(f"  {words}" for words in lacking)]))
    with ExitStack() as stack:
        root = into or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentfs-replay-")))
        if root.exists() and any(root.iterdir()):
            raise UserError(f"{root} is not empty: a replay needs a folder of its own")
        mine = set_up(recording, root.resolve())
        paths = same_paths(recording.folder, mine, recording.run.run)
        hints = hints_in(recording)
        chosen = hints.applied(settings_in(workspace))
        mask = mask_for(chosen, os.environ if environment is None else environment, recording.run.tools)
        mask = mask.also(given_secrets(recording.run.env))
        playback = Playback(recording, mine, mask, paths)
        world = stack.enter_context(recorded_world(playback, chosen, hints, workspace))
        conductor = Conductor(playback, chosen, world)
        conductor.play(timeline(recording))
        return _told(recording, conductor, paths)


def _told(recording: Recording, conductor: "Conductor", paths: Callable[[str], str]) -> Replayed:
    came = read_recording(conductor.playback.folder)
    noted = {(one.file, one.what) for one in conductor.playback.departures}
    found = [one for one in compare(recording, came, paths) if conductor.reached(one)]
    found = [one for one in found if (one.file, one.what) not in noted]
    place = {file: number for number, file in enumerate(conductor.files)}
    departures = sorted(
        [*conductor.playback.departures, *found], key=lambda one: place.get(_file(one.file), len(place))
    )
    return Replayed(
        run=recording.run.run,
        departures=tuple(departures),
        calls=sum(one.call is not None for one in recording.calls.values()),
        attempts=len([one for one in recording.attempts.values() if one.result]),
        revisions=len(recording.revisions),
        outcome=recording.outcome.status if recording.outcome else None,
        folder=conductor.playback.folder,
    )


def _file(name: str) -> str:
    """Return the file that stands for another in the order of things."""
    if name.endswith(".log.jsonl"):
        return name.replace(".log.jsonl", ".result.json")
    return name.replace(".plan.json", ".json")


@dataclass(slots=True)
class Conductor:
    """Gives the engine what came from outside, each thing at its place, and lets it decide everything else."""

    playback: Playback
    settings: Settings
    world: World
    files: list[str] = field(default_factory=list)  # in the order of the recording
    stuck: int | None = None  # how many of them were reached, if it could not go on
    cues: Cues = field(init=False)
    driver: CuedDriver = field(init=False)

    def __post_init__(self) -> None:
        self.cues = Cues(self.recording)
        self.driver = open_cued(self.playback, self.settings, self.world, self.cues)

    @property
    def recording(self) -> Recording:
        return self.playback.recording

    @property
    def folder(self) -> Path:
        return self.playback.folder

    def play(self, events: list[Event]) -> None:
        """Play all of it, or as far as it goes."""
        self.files = [event.path for event in events if isinstance(event, Made | Settled | Died)]
        played = 0
        for event in events:
            if not self._plays(event):
                self.stuck = played
                return
            played += isinstance(event, Made | Settled | Died)
        if self.recording.outcome is not None:
            self._quiesce()

    def reached(self, departure: Departure) -> bool:
        """Whether a difference is one: not what was never reached, nor what an open run would have done next."""
        if departure.came == "it is there" and not departure.what and self.recording.outcome is None:
            return False
        if self.stuck is None or departure.what:
            return True
        return _file(departure.file) not in self.files[self.stuck :] and departure.file != paths.OUTCOME

    def _plays(self, event: Event) -> bool:
        match event:
            case Put() | Edit() | EditGoal():
                return self._act(event)
            case Made(path=path):
                self.cues.given.add(path)
                self._quiesce()
                return True
            case Settled():
                return self._settle(event)
            case Died():
                return self._die(event)

    # ── the engine ──────────────────────────────────────────────────────────────────────────────────────

    def _quiesce(self) -> None:
        """Let the engine turn until it has nothing to do that the recording has come to."""
        for _ in range(MOST_TURNS):
            actions = self.driver.turn()
            if self.driver.trouble is not None:
                raise self.driver.trouble
            if all(isinstance(action, Wait) for action in actions) and self.driver.mail.empty():
                return
        raise RuntimeError("the engine does not come to rest")

    def _why(self) -> str:
        """Return what the engine does instead of what was recorded."""
        outcome = self.driver.facts.outcome
        if outcome is not None:
            return f"the run ended: {outcome.summary}"
        waits = [action.why for action in self.driver.turn() if isinstance(action, Wait)]
        return f"it waits: {waits[0]}" if waits else "it does something else"

    # ── what came from outside ──────────────────────────────────────────────────────────────────────────

    def _settle(self, event: Settled) -> bool:
        self.cues.given.add(event.path)
        self._quiesce()
        if (self.folder / event.path).exists():
            return True  # decided at once, with nobody else's help
        if event.job not in self.driver.held:
            self.playback.note(event.path, "", "it is there", f"nothing, for {self._why()}")
            return False
        self.driver.let_go(event.job)
        self._quiesce()
        return True

    def _die(self, event: Died) -> bool:
        """End the driver in the middle of what it did, as it was ended then, and let another take over."""
        self._quiesce()
        if (self.folder / event.path).exists():
            return True
        for one in self._cut_with(event):
            if one in self.driver.held:
                self.driver.let_go(one)
                news = self.driver.mail.get()[1]
                if not isinstance(news, DriverDied):
                    self.playback.note(event.path, "", "agentfs was ended here", "it came to an end by itself")
        self.driver = open_cued(self.playback, self.settings, self.world, self.cues)
        self._quiesce()
        return True

    def _cut_with(self, event: Died) -> list[tuple[str, str, int]]:
        """Return all that was under way when the driver was ended: it is settled together."""
        attempts = [
            ("attempt", *key) for key in self.recording.attempts if self.playback.died(paths.conversation(*key))
        ]
        calls = [("call", "", n) for n in self.recording.calls if self.playback.died(paths.call_conversation(n))]
        return [event.job, *(one for one in (*attempts, *calls) if one != event.job)]

    def _act(self, event: Put | Edit | EditGoal) -> bool:
        """Do what a person did."""
        self._quiesce()
        if isinstance(event, Put) and event.after and not (self.folder / event.after).exists():
            self.playback.note(event.after, "", "it is there", f"no such question, for {self._why()}")
            return False
        ended = (self.folder / paths.OUTCOME).exists()
        if ended:
            self._set_aside()
        match event:
            case Put(path=path, content=content):
                save(self.folder / path, content)
            case Edit(revision=number):
                save(self.folder / paths.PLAN, self.recording.revisions[number].plan)
            case EditGoal(sha256=sha):
                save(self.folder / self.recording.goal_name, self.recording.goals[sha])
        if ended:
            (self.folder / paths.OUTCOME).unlink()
        self.driver.look_again()
        return True

    def _set_aside(self) -> None:
        """Set aside all that failed, as `resume` does in one go, before an ended run goes on."""
        for (step, number), one in self.recording.attempts.items():
            result = self.folder / paths.STEPS / paths.step_file(step, number, "result")
            if one.again is not None and _failed(one) and result.exists():
                save(self.folder / paths.STEPS / paths.step_file(step, number, "again"), one.again)
        for number, call in self.recording.calls.items():
            answered = self.folder / paths.PLANNING / paths.call_file(number, "answer")
            checked = self.folder / paths.PLANNING / paths.call_file(number, "checks")
            if call.again is not None and (answered.exists() or checked.exists()):
                save(self.folder / paths.PLANNING / paths.call_file(number, "again"), call.again)


def _failed(attempt: RecordedAttempt) -> bool:
    return attempt.result is not None and attempt.result.status != "done"

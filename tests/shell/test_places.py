"""An attempt elsewhere, over pipes and on a Dask cluster: what its driver writes down, and that nothing runs twice."""

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import agentfs
from agentfs.core.records import Failure, Order, Result
from agentfs.core.run_state import Bounds
from agentfs.executor.attempt import Halt
from agentfs.executor.attempt_log import AlreadyClaimed, AttemptLog, marks_in
from agentfs.executor.task import LoopRules
from agentfs.places.assignment import Assignment, Token, Tokens, check_token, encode
from agentfs.places.channel import Closed, CommandLine, CommandPlace, Message
from agentfs.places.dask_place import Connection, DaskLine, DaskPlace
from agentfs.places.relay import Lost, Relay
from agentfs.storage.clock import Clock
from agentfs.storage.files import StepsFolder
from agentfs.storage.system import Starter
from agentfs.storage.timing import Timing
from agentfs.tools.base import Confinement
from agentfs.tools.process import ProcessMark, boot_id, read_stat
from agentfs.tools.secrets import SecretMask

HERE = [sys.executable, "-m", "agentfs", "attempt"]
SHORT = replace(Timing(), place_alive=0.2, place_silence=20.0, place_orphan=3.0, place_start=0.5)
BOUNDS = Bounds(
    replans=3, attempts=2, parallel=4, steps=200, items=1000, requests=300, tokens=2_000_000, cost_usd=5.0, minutes=120.0,
    output_bytes=65536,
)  # fmt: skip


class Stage:
    """A run's folder, and orders of it that are carried out elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root, self.run = root, root / "runs" / "2026-11-18" / "job"
        for part in ("steps", "revisions", "files"):
            (self.run / part).mkdir(parents=True)
        self.files = self.run / "files"
        self.steps, self.clock, self.stop = StepsFolder.of(self.run), Clock(), Halt()
        self.mask = SecretMask({})
        self.token = Token(str(self.files / ".agentfs-token"), uuid.uuid4().hex)
        Path(self.token.path).write_text(self.token.text, encoding="ascii")

    def order(self, command: str, **more: Any) -> Order:
        given: dict[str, Any] = {
            "run": "2026-11-18/job",
            "step": "work",
            "attempt": 1,
            "revision": 1,
            "key": "0" * 64,
            "after": {},
            "description": None,
            "tool": "shell",
            "input": {"command": command},
            "tools": None,
            "model": None,
            "success_condition": None,
            "checks": (),
            "expects": None,
            "timeout_s": 60,
            "repeatable": True,
            "issued_at": self.clock.stamp(),
        }
        return Order(**{**given, **more})

    def message(self, order: Order, **more: Any) -> Message:
        given: dict[str, Any] = {
            "version": agentfs.__version__,
            "place": "box",
            "order": order,
            "loop": LoopRules(),
            "proof": None,
            "retry_wait_s": 0.0,
            "agent": None,
            "confinement": Confinement(self.files, self.root, self.files),
            "env": (),
            "sandbox": "auto",
            "unconfined": True,
            "output_bytes": 1024,
            "left": BOUNDS,
            "model": None,
            "search_url": "",
            "token": self.token,
            "silence_s": SHORT.place_silence,
            "alive_s": SHORT.place_alive,
        }
        assignment = Assignment(**{**given, **more})
        return {"kind": "assignment", "version": agentfs.__version__, "assignment": encode(assignment)}

    def relay(self, order: Order, place: Any) -> Relay:
        log = AttemptLog(self.steps, order, self.mask, self.clock)
        return Relay(order, place, self.steps, log, self.stop, self.mask, self.clock)

    def events(self) -> list[str]:
        text = (self.run / "steps" / "work.1.log.jsonl").read_text(encoding="utf-8")
        return [json.loads(line)["event"] for line in text.splitlines()]

    def names(self) -> list[str]:
        return sorted(os.listdir(self.run / "steps"))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("agentfs.places.relay.TIMING", SHORT)
    return Stage(tmp_path)


def box(command: list[str] = HERE, environment: dict[str, str] | None = None) -> CommandPlace:
    return CommandPlace("box", command, 4, environment or dict(os.environ), Starter())


def carry_out(stage: Stage, order: Order, place: Any = None, **more: Any) -> Result:
    found = stage.relay(order, place or box()).run(stage.message(order, **more))
    assert isinstance(found, Result)
    return found


def test_the_driver_writes_down_what_comes_back(stage: Stage) -> None:
    order = stage.order("echo hello > made; cat made")
    result = carry_out(stage, order)
    assert (result.status, result.output, result.place, result.sandbox) == ("done", "hello", "box", "bubblewrap")
    assert stage.names() == ["work.1.log.jsonl", "work.1.result.json"]
    assert stage.events() == ["claim", "output", "end"]
    written = Result.model_validate_json((stage.run / "steps" / "work.1.result.json").read_bytes())
    assert written == result


def test_a_long_output_arrives_whole(stage: Stage) -> None:
    result = carry_out(stage, stage.order("seq 100000"))
    assert (result.status, result.cut) == ("done", True)
    whole = (stage.run / "steps" / "work.1.output.txt").read_text(encoding="utf-8")
    assert whole.split() == [str(number) for number in range(1, 100001)]
    assert os.listdir(stage.run / "revisions") == []


def test_checks_run_where_the_step_ran(stage: Stage) -> None:
    from agentfs.core.records import ResolvedCommandCheck

    check = ResolvedCommandCheck(kind="command", run="test -e nothing")
    result = carry_out(stage, stage.order("true", checks=(check,)))
    assert (result.status, result.error and result.error.kind) == ("failed", "check")


def test_variables_are_read_there_and_hidden_in_what_comes_back(stage: Stage) -> None:
    environment = {**os.environ, "DEPLOY_TOKEN": "correct-horse-battery"}
    order = stage.order('echo "${#DEPLOY_TOKEN} $DEPLOY_TOKEN"')
    message = stage.message(order, env=("DEPLOY_TOKEN",))
    assert "correct-horse" not in json.dumps(message)
    result = stage.relay(order, box(environment=environment)).run(message)
    assert isinstance(result, Result)
    assert result.output == "21 [secret DEPLOY_TOKEN]"


class Twice:
    """A place that starts every attempt twice, as an engine may that takes a worker for lost."""

    name, slots = "twice", 1

    def __init__(self, refused: Path) -> None:
        self.answers: list[str] = []
        self.refused = refused  # appears when one of them has got its no

    def start(self, message: Message) -> "TwoLines":
        return TwoLines([box().start(message), box().start(message)], self.answers, self.refused)

    def close(self) -> None: ...


class TwoLines:
    def __init__(self, lines: list[CommandLine], answers: list[str], refused: Path) -> None:
        self.lines, self.answers, self.refused = lines, answers, refused

    def send(self, message: Message) -> None:
        if "to" in message:
            self.answers.append(message["kind"])
            if message["kind"] == "no":
                self.refused.touch()
        for line in self.lines:
            with suppress(Closed):  # the one that got its no has gone
                line.send(message)

    def receive(self, timeout: float) -> Message | None:
        for line in self.lines:
            try:
                if message := line.receive(timeout):
                    return message
            except Closed:
                line.close()
                self.lines.remove(line)
                return None
        if not self.lines:
            raise Closed
        return None

    def has_another(self) -> bool:
        return False

    def close(self) -> None:
        for line in self.lines:
            line.close()


def test_a_second_start_of_an_attempt_does_nothing(stage: Stage) -> None:
    place = Twice(stage.files / "refused")
    order = stage.order("echo done >> effects; until test -e refused; do sleep 0.05; done")
    result = carry_out(stage, order, place)
    assert (result.status, place.answers) == ("done", ["go", "no"])
    assert (stage.files / "effects").read_text(encoding="utf-8") == "done\n"


def test_an_attempt_that_another_executor_has_is_left_alone(stage: Stage) -> None:
    order = stage.order("echo done >> effects")
    AttemptLog(stage.steps, order, stage.mask, stage.clock).claim(None)
    with pytest.raises(AlreadyClaimed):
        carry_out(stage, order)
    assert not (stage.files / "effects").exists()


@contextmanager
def stopped_when(stage: Stage, path: Path, because: Failure | None = None) -> Iterator[None]:
    """Stop the attempt once it has made a file."""
    from tests.workspaces import wait_for

    def watch() -> None:
        wait_for(path.exists, "the step has begun")
        stage.stop.halt(because)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()


def test_stop_reaches_it(stage: Stage) -> None:
    order = stage.order("touch begun; sleep 60; touch late")
    with stopped_when(stage, stage.files / "begun", Failure(kind="superseded", message="the plan has changed")):
        result = carry_out(stage, order)
    assert (result.status, result.error) == (
        "interrupted",
        Failure(kind="superseded", message="the plan has changed"),
    )


def test_a_timeout_holds_there(stage: Stage) -> None:
    result = carry_out(stage, stage.order("sleep 60", timeout_s=1))
    assert (result.status, result.error and result.error.kind) == ("failed", "timeout")


def test_a_process_that_dies_is_an_interruption_once_it_has_surely_ended(stage: Stage) -> None:
    order = stage.order("touch begun; sleep 60")

    class Dies(CommandPlace):
        def start(self, message: Message, worker: str | None = None) -> CommandLine:
            line = CommandPlace.start(self, message, worker)

            def kill() -> None:
                from tests.workspaces import wait_for

                wait_for((stage.files / "begun").exists, "the step has begun")
                line._process.kill()

            threading.Thread(target=kill).start()
            return line

    result = carry_out(stage, order, Dies("box", HERE, 1, dict(os.environ), Starter()))
    assert (result.status, result.place) == ("interrupted", "box")
    assert result.error is not None
    assert result.error.message == "the attempt at box was lost: the command ended with -9"


def test_an_attempt_ends_itself_without_its_driver(stage: Stage) -> None:
    """The driver is gone, the line still open: nothing more comes from it."""
    order = stage.order("touch begun; sleep 60; touch late")
    line = box().start(stage.message(order, silence_s=2.0))
    begin = None
    while begin is None or begin["kind"] != "begin":
        begin = line.receive(30)
    line.send({"kind": "go", "to": begin["from"]})
    seen = [*_until_closed(line)]
    line.close()
    result = next(json.loads(one["text"]) for one in seen if one["kind"] == "put")
    assert (result["status"], result["error"]["message"]) == (
        "interrupted",
        "nothing came from its driver for 2 s",
    )


def _until_closed(line: CommandLine) -> Iterator[Message]:
    with suppress(Closed):
        while message := line.receive(60):
            yield message


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/nowhere/ssh", "agentfs", "attempt"], "/nowhere/ssh: No such file or directory"),
        (["sh", "-c", "echo connection refused >&2; exit 255"], "the command ended with 255: connection refused"),
    ],
)
def test_a_place_that_cannot_be_reached(stage: Stage, command: list[str], why: str) -> None:
    result = carry_out(stage, stage.order("true"), box(command))
    assert (result.status, result.error) == (
        "failed",
        Failure(
            kind="place",
            message=f"the place box cannot carry it out: {why}",
            hint="`agentfs doctor` probes every place",
        ),
    )
    assert stage.names() == ["work.1.result.json"]  # nothing was claimed


def test_another_release_refuses(stage: Stage) -> None:
    order = stage.order("true")
    message = {**stage.message(order), "version": "0.1.0"}
    result = stage.relay(order, box()).run(message)
    assert isinstance(result, Result)
    assert result.error is not None
    assert result.error.message == (
        f"the place box cannot carry it out: {os.uname().nodename} has agentfs {agentfs.__version__}, the driver is 0.1.0"
    )


def test_a_folder_that_is_not_shared_is_found_out(stage: Stage) -> None:
    order = stage.order("true")
    missing = Token(str(stage.root / "elsewhere" / ".agentfs-token"), "x")
    result = carry_out(stage, order, token=missing)
    assert result.error is not None
    assert (
        f"is not the driver's working folder on {os.uname().nodename}: No such file or directory"
        in result.error.message
    )
    other = Token(stage.token.path, "another text")
    order = stage.order("true", attempt=2)
    result = carry_out(stage, order, token=other)
    assert result.error is not None
    assert f"is another folder on {os.uname().nodename}" in result.error.message


def test_a_lost_attempt_that_was_stopped_is_left_to_recovery(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C where the place no longer answers: nobody knows whether it has ended, so no result says so."""
    silent = [sys.executable, "-c", SILENT]
    order = stage.order("true")
    stage.stop = Halt()
    timer = threading.Timer(1.0, stage.stop.leave)
    timer.start()
    relay = stage.relay(order, box(silent))
    monkeypatch.setattr("agentfs.places.relay.TIMING", replace(SHORT, place_orphan=60, place_stop=0.5))
    with pytest.raises(Lost):
        relay.run(stage.message(order))
    assert stage.names() == ["work.1.log.jsonl"]


def test_a_lost_attempt_that_is_no_longer_wanted_is_waited_for(stage: Stage) -> None:
    """Cancelled, or its step was edited: what follows may not start while it may still run."""
    because = Failure(kind="superseded", message="the plan has changed")
    order, log = stage.order("true"), stage.run / "steps" / "work.1.log.jsonl"
    with stopped_when(stage, log, because):
        result = carry_out(stage, order, box([sys.executable, "-c", SILENT]))
    assert (result.status, result.error, result.place) == ("interrupted", because, "box")
    ended = datetime.fromisoformat(result.ended_at).timestamp()
    assert ended - log.stat().st_mtime >= SHORT.place_orphan - 0.1


SILENT = """
import json, sys, time
sys.stdin.readline()
claim = json.dumps({"event": "claim", "at": "", "key": "0" * 64, "repeatable": True})
print(json.dumps({"kind": "begin", "from": "me", "host": "h", "name": "work.1.log.jsonl", "line": claim}), flush=True)
time.sleep(60)
"""


def test_a_scheduler_file_does_not_hide_where_it_leads(tmp_path: Path) -> None:
    """The address is in a file that another program writes: the rule holds for what it says."""
    file = tmp_path / "scheduler.json"
    place = DaskPlace("cluster", 1, scheduler_file=str(file))
    asked = []
    for text in (None, "no JSON", '{"address": "tcp://10.1.2.3:8786"}'):
        if text is not None:
            file.write_text(text, encoding="utf-8")
        with pytest.raises(Closed) as closed:
            place.start({"kind": "probe"})
        asked.append(str(closed.value))
    assert asked == [
        f"{file}: No such file or directory",
        f"{file} is not a scheduler file",
        "tcp://10.1.2.3:8786 is beyond this machine, and not protected by TLS",
    ]


def test_the_end_of_a_task_does_not_overtake_its_messages() -> None:
    """Dask reports the end of a task by another way than its messages take; they may be late on a busy machine."""
    sent: list[Any] = []
    up: Any = SimpleNamespace(put=lambda item, **_: sent.append(item))
    client: Any = SimpleNamespace(status="running")
    connection = Connection(client, "driver", up)
    line = DaskLine(connection)
    over = {"kind": "over", "from": "me"}
    sent.append(["worker", "mailbox", [(line.ident, over)]])
    line._done(cast("Any", SimpleNamespace(status="finished")))

    def deliver() -> None:
        for one in sent:
            connection._deliver(one)

    late = threading.Timer(0.5, deliver)
    late.start()
    assert line.receive(30) == over
    with pytest.raises(Closed, match="its task ended"):
        line.receive(30)
    late.join()


def test_numbers_of_processes_elsewhere_mean_nothing_here(stage: Stage) -> None:
    """A container has the boot of its machine, and process numbers of its own: those here are other programs."""
    innocent = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        stat = read_stat(innocent.pid)
        assert stat is not None
        mark = ProcessMark(innocent.pid, innocent.pid, stat.start_time, boot_id())
        found = []
        for attempt, more in ((1, {}), (2, {"place": "box"})):
            order = stage.order("true", attempt=attempt)
            log = AttemptLog(stage.steps, order, stage.mask, stage.clock)
            log.create({"key": order.key, "repeatable": True, **asdict(mark), **more})
            log.close()
            found.append(marks_in(log.path))
        assert found == [[mark], []]
    finally:
        innocent.kill()
        innocent.wait()


def test_a_token_stays_while_any_driver_holds_it(tmp_path: Path) -> None:
    """Two drivers, or a driver and `doctor`, in one folder; a step that removes it; a driver that was killed."""
    one, other, file = Tokens(), Tokens(), tmp_path / ".agentfs-token"
    token = one.of(tmp_path)
    assert (other.of(tmp_path), one.of(tmp_path)) == (token, token)
    other.close()
    assert check_token(token) is None
    file.unlink()
    again = one.of(tmp_path)
    assert (check_token(again), again == token) == (None, False)
    one.close()
    assert not file.exists()
    file.write_text("left by a driver that was killed", encoding="ascii")
    assert one.of(tmp_path).text == "left by a driver that was killed"
    one.close()
    assert not file.exists()

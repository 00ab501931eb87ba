"""Every pause and every deadline of agentfs, in seconds, in one record. docs/timing.md is a table of it.

`pause`: how long agentfs waits before it looks or acts, though nothing happens. A shorter one costs work and changes
nothing else, so the tests divide pauses. `tick`: how often something that has no event is looked at while agentfs
waits for it. `limit`: how long something may take. Ticks and limits are never divided.

What is not here: seconds that a person sets (timeout_s, retry_wait_s, limits.minutes), and those of tools/minder.py,
which runs isolated.
"""

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, Self

Kind = Literal["pause", "tick", "limit"]
DIVISOR = "_AGENTFS_TIMING_DIVISOR"  # set by the tests, for the processes that they start
MOST = 1000.0


def _time(kind: Kind, seconds: float, means: str) -> Any:
    return field(default=seconds, metadata={"kind": kind, "means": means})


def _pause(seconds: float, means: str) -> Any:
    return _time("pause", seconds, means)


def _tick(seconds: float, means: str) -> Any:
    return _time("tick", seconds, means)


def _limit(seconds: float, means: str) -> Any:
    return _time("limit", seconds, means)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds."""

    # files that others write
    complete: float = _pause(
        0.3, "without a change until a file that no process has open for writing counts as complete"
    )
    complete_without_lease: float = _pause(2.0, "the same, where the file system cannot tell who has a file open")
    displaced_plan: float = _pause(
        3.0, "for which a command looks after a plan that it displaced and an editor has open"
    )
    racy: float = _limit(0.02, "within which two changes of a folder may carry the same time")
    racy_longest: float = _limit(0.05, "the same, for the sums of a day")

    # looking at a run
    rescan: float = _pause(10.0, "between two looks at everything, whether or not events come")
    restless: float = _pause(0.1, "between two looks while a file of a run is being written")
    calm: float = _pause(0.05, "without anything new until what has begun is shown")
    shortest: float = _tick(0.01, "the least that is waited for a moment: clocks do not agree to the microsecond")
    status_page: float = _pause(1.0, "between two versions of STATUS.md while a step runs")
    log_follow: float = _pause(0.5, "between two looks of `log --follow`: appending raises no event")

    # the daemon
    glance: float = _pause(0.5, "between two glances at every open run")
    schedule_again: float = _pause(5.0, "before a schedule that waits, or cannot begin, is looked at again")
    glance_longest: float = _limit(0.03, "that one glance takes; the rest comes with the next")
    own_doing: float = _pause(1.0, "after an action, for which changes of a run's folders are its driver's own")
    reread: float = _pause(10.0, "until an active run is read in full all the same")
    crowded: float = _pause(0.1, "between two goals that are taken while many runs have something to do")
    inbox: float = _pause(1.0, "between two looks at goals/, whether or not events come")
    inbox_restless: float = _pause(0.05, "the same, while a file there is being written")
    events_late: float = _pause(1.0, "for which the file system may hold back events")
    inbox_again: float = _pause(10.0, "until what failed for want of room or rights is tried again")

    # starting processes and threads
    start_again: float = _pause(0.2, "until a process that could not be started is started again")
    start_patience: float = _limit(60.0, "for which that is tried, where nothing else sets a deadline")

    # programs and tools
    tick: float = _tick(0.05, "between two looks at whether a program, a request or a command is to stop")
    poll: float = _tick(0.01, "between two looks at what sends no event")
    poll_ended: float = _tick(0.005, "between two looks at whether a killed process is gone")
    grace: float = _limit(2.0, "between SIGTERM and SIGKILL, and for what was killed to be gone")
    drain: float = _limit(0.2, "for what a program left in its pipes when a child of it holds them open")
    sandbox_start: float = _limit(30.0, "for a sandbox to be set up")
    sandbox_probe: float = _limit(20.0, "for a program that is only asked what it is able to do")
    private_known: float = _limit(60.0, "for which what is private in /etc counts as known")
    private_there: float = _limit(0.25, "for which that counts as still there")
    tool_load: float = _limit(10.0, "for a person's own tools to be loaded")
    mcp_start: float = _limit(60.0, "for an MCP server to start")
    mcp_list: float = _limit(30.0, "for an MCP server to list its tools")
    mcp_begin: float = _limit(60.0, "for a run that a client started to be planned before the client is answered")
    search: float = _limit(60.0, "for one search through files")
    repository: float = _limit(10.0, "for git to describe a working folder")
    web_silence: float = _limit(30.0, "that a web server may be silent")
    step: float = _limit(600.0, "for a step without timeout_s")
    check: float = _limit(120.0, "for one check")
    check_before: float = _limit(20.0, "for one check before the work: a model wrote it, and nobody has looked at it")
    surprise: float = _limit(10.0, "for one `surprising if` pattern")
    conform: float = _limit(10.0, "for one output to be compared with its schema")

    # attempts elsewhere
    place_alive: float = _pause(5.0, "between two signs of life of a driver and an attempt elsewhere")
    place_silence: float = _pause(30.0, "without a message from its driver until an attempt elsewhere ends itself")
    place_orphan: float = _pause(60.0, "without a message from an attempt elsewhere until it counts as ended")
    place_stop: float = _limit(5.0, "for an attempt elsewhere to end when it is asked to")
    place_again: float = _pause(1.0, "until a place that could not start an attempt is asked again")
    place_start: float = _pause(60.0, "for which that is tried")
    place_connect: float = _limit(10.0, "for a Dask scheduler to answer")
    place_probe: float = _limit(20.0, "for a place to answer `doctor`")

    # models
    day_limit: float = _pause(5.0, "between two looks at whether the limit of the day still holds")
    day_setting: float = _pause(1.0, "for which that limit counts as known")
    day_runs: float = _pause(2.0, "for which the list of the day's runs counts as known")
    connect: float = _limit(10.0, "for a connection to an endpoint")
    first_byte: float = _limit(600.0, "until a reply begins: a long prompt on a small machine is read for minutes")
    between_pieces: float = _limit(180.0, "between two pieces of a reply")
    whole_reply: float = _limit(3600.0, "for one reply")
    retry_first: float = _pause(0.5, "before the second try of a request; doubled for each one more")
    retry_longest: float = _limit(60.0, "the longest of these, also of what a server asks for")
    close: float = _limit(2.0, "for closing a connection")

    # other agents
    agent_version: float = _limit(30.0, "for another agent's program to say its version")
    agent_idle: float = _limit(120.0, "that another agent may be silent, where its preset says nothing else")

    # the ledger
    commit_pause: float = _pause(0.5, "between what happens in a run and its commit: the next steps go first")
    commit_more: float = _pause(0.7, "for which a run's commit waits for those of others, while more keep coming")
    commit_again: float = _pause(0.5, "until a commit that was not possible is tried again")
    commit_longest: float = _limit(60.0, "for one batch of commits, in this process or in one of its own")
    flush: float = _limit(5.0, "at the end of a command, for what is yet to be committed")
    git: float = _limit(60.0, "for one git command")
    git_stop: float = _limit(5.0, "for a git command that is asked to end")
    ledger_lock: float = _limit(60.0, "for another process of agentfs to let go of the ledger")
    poll_lock: float = _tick(0.002, "between two tries to lock a file: flock has no deadline of its own")
    person_in_git: float = _pause(5.0, "for a person's git command to end, where `forget` needs the index")
    verify_patience: float = _pause(3.0, "for a process that has just ended a run to commit it")
    idle: float = _pause(10.0, "with nothing to do, until the ledger is maintained")
    idle_look: float = _pause(60.0, "between two looks at whether it needs that")
    idle_again: float = _pause(300.0, "until it is maintained again; twice as long each time it was of no use")
    maintain_after_run: float = _limit(10.0, "for maintenance after a run in the foreground")
    maintain_tick: float = _tick(0.02, "between two looks at whether maintenance is to stop")
    fsck: float = _limit(60.0, "for `doctor` to check the ledger")

    # people
    frame: float = _pause(0.25, "between two frames of a live view, at least")
    frame_stale: float = _pause(1.0, "how old a frame may be, though nothing has changed: it shows ages")
    terminal_look: float = _pause(0.5, "until it is noticed that the terminal is ours again")
    withdrawn: float = _pause(0.5, "after a question was withdrawn: what is typed meanwhile was meant for that one")
    web_look: float = _pause(0.4, "between two looks at what a page shows, and at a log")
    web_beat: float = _pause(15.0, "of silence until a page is sent a comment, so that one that has gone is noticed")
    on_wait: float = _limit(60.0, "for the command of `on_wait`")
    on_wait_linger: float = _limit(2.0, "for it at the end of a process; a slower one runs on by itself")
    doctor_event: float = _limit(2.0, "for the event of a file that `doctor` writes")
    export: float = _limit(5.0, "for one request of `export`, all tries together")
    doctor_endpoint: float = _limit(5.0, "for an endpoint to list its models")

    def divided(self, by: float) -> Self:
        """Return the same with every pause so many times shorter."""
        return replace(self, **{one.name: getattr(self, one.name) / by for one in times() if kind_of(one) == "pause"})


def times() -> tuple[Field[Any], ...]:
    """Return the fields of the record, in its order."""
    return fields(Timing)


def kind_of(one: Field[Any]) -> Kind:
    kind: Kind = one.metadata["kind"]
    return kind


def timing_of(environment: Mapping[str, str]) -> Timing:
    """Return the times of a process; the tests divide them. What is no number from 1 to 1000 divides nothing."""
    try:
        by = float(environment.get(DIVISOR, "1"))
    except ValueError:
        by = 1.0
    return Timing().divided(by if 1.0 <= by <= MOST else 1.0)


TIMING = timing_of(os.environ)

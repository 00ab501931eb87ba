"""Starting a program, watching it, ending it: real processes."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs.core.records import Failure, Sandbox
from agentfs.storage.system import NONE_LEFT, ROOM_AGAIN, Starter
from agentfs.storage.timing import TIMING
from agentfs.tools import launch
from agentfs.tools.launch import Finished
from agentfs.tools.process import ProcessMark, end_survivors, find_survivors, mark_of, read_stat
from agentfs.tools.programs import run_program
from agentfs.tools.sandbox import environment
from tests.contexts import RecordedContext, a_context, confined, each_sandbox

COUNT = itertools.count()


@pytest.fixture
def word() -> str:
    """Return seconds to sleep that no other test sleeps: so its process can be found."""
    return f"{60000 + next(COUNT)}.{os.getpid():07}"


def run(work: RecordedContext, command: str) -> Finished:
    finished = run_program(["sh", "-c", command], environment(work.context.confinement), work.context)
    assert isinstance(finished, Finished), finished
    return finished


def eventually(true: Callable[[], bool], within_s: float = 5) -> bool:
    until = time.monotonic() + within_s
    while not (held := true()) and time.monotonic() < until:
        time.sleep(0.01)
    return held


def alive(pid: int) -> bool:
    found = read_stat(pid)
    return found is not None and found.state not in "ZX"


def running_with(word: str) -> list[int]:
    """Return the processes that have this word in their arguments, wherever they run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if word.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


@each_sandbox
def test_output_exit_code_and_log(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    finished = run(work, "echo out; echo err >&2; exit 3")
    assert (finished.exit_code, finished.signal, finished.ended_by) == (3, None, None)
    assert finished.stdout.text("x") == "out\n"
    assert finished.stderr == "err\n"
    assert (work.logged("stdout"), work.logged("stderr")) == ("out\n", "err\n")


@each_sandbox
def test_stdin_is_empty(tmp_path: Path, sandbox: Sandbox) -> None:
    assert run(a_context(tmp_path, sandbox), "cat; echo end").stdout.text("x") == "end\n"


def test_the_claim_names_the_process_before_anything_runs(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    effect = work.workdir / "effect"
    seen: list[tuple[ProcessMark | None, bool]] = []
    context = replace(work.context, claim=lambda mark: seen.append((mark, effect.exists())))
    finished = run(replace(work, context=context), "echo $PPID; touch effect")
    (mark, existed) = seen[0]
    assert len(seen) == 1
    assert mark is not None
    assert (mark.pid, mark.pgid) == (int(finished.stdout.text("x")), mark.pid)
    assert mark.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert (existed, effect.exists()) == (False, True)


def test_nothing_runs_when_the_claim_is_taken(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    marks: list[ProcessMark] = []

    def taken(mark: ProcessMark | None) -> None:
        assert mark is not None
        marks.append(mark)
        raise FileExistsError("claimed by another")

    with pytest.raises(FileExistsError, match="claimed by another"):
        run(replace(work, context=replace(work.context, claim=taken)), "touch effect")
    assert not (work.workdir / "effect").exists()
    assert not alive(marks[0].pid)


def test_nothing_runs_when_we_die_before_the_gate_opens(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, sys
        from dataclasses import replace
        from pathlib import Path
        from agentfs.tools.programs import run_program
        from tests.contexts import a_context
        work = a_context(Path(sys.argv[1]))
        def die(mark):
            print(mark.pid, flush=True)
            os._exit(9)
        context = replace(work.context, claim=die)
        run_program(("/usr/bin/touch", "effect"), {}, context)
    """)
    died = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert died.returncode == 9, died.stderr
    assert eventually(lambda: not alive(int(died.stdout)))
    assert not (a_context(tmp_path).workdir / "effect").exists()


@each_sandbox
def test_a_hanging_program_is_ended_at_the_deadline(tmp_path: Path, sandbox: Sandbox, word: str) -> None:
    started = time.monotonic()
    finished = run(a_context(tmp_path, sandbox, deadline_s=0.5), f"echo before; sleep {word}; echo after")
    assert finished.ended_by == "timeout"
    assert finished.stdout.text("x") == "before\n"
    assert time.monotonic() - started < 40
    assert eventually(lambda: running_with(word) == [])


@each_sandbox
def test_a_program_may_clean_up_before_it_is_killed(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox, deadline_s=2)
    finished = run(work, "trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    assert (finished.ended_by, finished.exit_code) == ("timeout", 7)
    assert finished.stdout.text("x").splitlines()[-1] == "cleaned"


@each_sandbox
def test_one_that_ignores_the_request_is_killed(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(launch, "TIMING", replace(TIMING, grace=0.2))
    work = a_context(tmp_path, sandbox, deadline_s=2)
    finished = run(work, f"trap '' TERM; while :; do sleep {word}; done")
    assert (finished.ended_by, finished.signal) == ("timeout", signal.SIGKILL)
    assert eventually(lambda: running_with(word) == [])


@each_sandbox
def test_the_stop_sign_ends_it(tmp_path: Path, sandbox: Sandbox, word: str) -> None:
    work = a_context(tmp_path, sandbox)

    def stop_when_it_speaks() -> None:
        eventually(lambda: bool(work.lines))
        work.stop.set()

    thread = threading.Thread(target=stop_when_it_speaks)
    thread.start()
    finished = run(work, f"echo ready; sleep {word}")
    thread.join()
    assert finished.ended_by == "stop"
    assert eventually(lambda: running_with(word) == [])


@each_sandbox
def test_a_stop_sign_that_is_set_from_the_beginning(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    work.stop.set()
    stopped = Failure(kind="interrupted", message="it was stopped")
    assert run_program(["touch", "effect"], environment(work.context.confinement), work.context) == stopped
    assert not (work.workdir / "effect").exists()
    assert work.claims == []


@each_sandbox
def test_a_stop_sign_that_is_set_as_the_gate_opens(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(
        launch, "TIMING", replace(TIMING, grace=60.0)
    )  # it ends because it was asked to, not because it was killed
    work = a_context(tmp_path, sandbox)
    work = replace(work, context=replace(work.context, claim=lambda _mark: work.stop.set()))
    started = time.monotonic()
    assert run(work, f"sleep {word}").ended_by == "stop"
    assert time.monotonic() - started < 40
    assert eventually(lambda: running_with(word) == [])


@each_sandbox
def test_children_do_not_outlive_it_nor_hold_us(tmp_path: Path, sandbox: Sandbox, word: str) -> None:
    started = time.monotonic()
    finished = run(a_context(tmp_path, sandbox), f"sleep {word} & sleep {word} >/dev/null 2>&1 & echo done")
    assert (finished.exit_code, finished.stdout.text("x")) == (0, "done\n")
    assert time.monotonic() - started < 40
    assert eventually(lambda: running_with(word) == [])


@confined
def test_in_the_sandbox_not_even_one_with_its_own_session_outlives_it(tmp_path: Path, word: str) -> None:
    work = a_context(tmp_path, "bubblewrap")
    finished = run(work, f"setsid sleep {word} >/dev/null 2>&1 & echo done")
    assert finished.exit_code == 0
    assert eventually(lambda: running_with(word) == [])


def test_a_program_that_dies_by_a_signal(tmp_path: Path) -> None:
    finished = run(a_context(tmp_path), "kill -SEGV $$")
    assert (finished.exit_code, finished.signal) == (None, signal.SIGSEGV)


def test_a_child_that_prints_for_ever_after_its_parent_left(tmp_path: Path, word: str) -> None:
    finished = run(a_context(tmp_path), f"yes {word} & echo done; sleep 0.1")
    assert finished.exit_code == 0
    assert eventually(lambda: running_with(word) == [])


def test_long_output_keeps_head_and_tail_and_goes_to_the_file(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=1000)
    finished = run(work, "seq 1 100000")
    whole = "".join(f"{n}\n" for n in range(1, 100001))
    assert work.context.output_file.read_text(encoding="ascii") == whole
    text = finished.stdout.text("demo.1.output.txt")
    assert (
        text
        == f"{whole[:500]}\n… {len(whole) - 1000} bytes cut; the whole output is in steps/demo.1.output.txt …\n{whole[-500:]}"
    )
    assert finished.stdout.cut
    *logged, last = [line for _, line in work.lines]
    assert "".join(line["text"] for line in logged) == whole[:1000]
    assert last == {"stream": "stdout", "text": "… the rest of the output is not logged …", "cut": True}


def test_exactly_the_limit_is_not_cut(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=1000)
    finished = run(work, "head -c 1000 /dev/zero | tr '\\0' x")
    assert (finished.stdout.text("x"), finished.stdout.cut) == ("x" * 1000, False)
    assert not work.context.output_file.exists()


def test_characters_are_not_cut_in_half(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=1001)
    finished = run(work, "yes é€😀 | head -n 500")
    text = finished.stdout.text("x")
    assert finished.stdout.valid
    assert "\ufffd" not in text
    assert text.startswith("é€😀\n")
    assert text.endswith("é€😀\n")


def test_endless_output_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setattr(launch, "OUTPUT_CAP", 4 * 2**20)
    work = a_context(tmp_path)
    finished = run(work, f"head -c 1000M /dev/zero; sleep {word}")
    assert (finished.ended_by, finished.signal is not None) == ("output", True)
    assert 4 * 2**20 <= work.context.output_file.stat().st_size <= 5 * 2**20


def test_stderr_counts_towards_the_cap_and_keeps_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = run(a_context(tmp_path), "seq 1 10000 >&2")
    assert finished.stderr.endswith("9999\n10000\n")
    assert len(finished.stderr) <= launch.STDERR_KEPT
    monkeypatch.setattr(launch, "OUTPUT_CAP", 2**20)
    assert run(a_context(tmp_path), "head -c 100M /dev/zero >&2").ended_by == "output"


def test_both_streams_at_once_do_not_block(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    finished = run(work, "for i in 1 2 3 4 5 6; do head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2; done")
    assert (finished.exit_code, finished.stdout.total) == (0, 600000)


def test_a_full_disk_ends_the_program_and_says_so(tmp_path: Path, word: str) -> None:
    work = a_context(tmp_path, output_bytes=256)
    context = replace(work.context, output_file=Path("/dev/full/none"))
    finished = run(replace(work, context=context), f"seq 1 100000; sleep {word}")
    assert finished.ended_by == "disk"
    assert "Not a directory" in (finished.problem or "")
    assert eventually(lambda: running_with(word) == [])


def test_the_output_file_is_never_written_over(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=256)
    work.context.output_file.write_text("a fact", encoding="utf-8")
    assert run(work, "seq 1 100000").ended_by == "disk"
    assert work.context.output_file.read_text(encoding="utf-8") == "a fact"


def test_a_secret_split_over_chunks_is_masked_everywhere(tmp_path: Path) -> None:
    secret = "s3cr3t-" + "x" * 30
    work = a_context(tmp_path, output_bytes=300, environ={"API_KEY": secret})
    halves = f"printf {secret[:20]}; sleep 0.1; printf '{secret[20:]}\\n'"
    finished = run(work, f"{halves}; ({halves}) >&2; seq 1 300; {halves}")
    everything = [finished.stdout.text("x"), finished.stderr, work.logged("stdout"), work.logged("stderr")]
    everything.append(work.context.output_file.read_text(encoding="utf-8"))
    assert all(secret[:20] not in text and secret[20:] not in text for text in everything)
    assert everything[4] == "[secret API_KEY]\n" + "".join(f"{n}\n" for n in range(1, 301)) + "[secret API_KEY]\n"
    assert everything[1] == "[secret API_KEY]\n"


def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    run(a_context(tmp_path), "echo x")
    assert os.listdir("/proc/self/fd") == before


# ── survivors ─────────────────────────────────────────────────────────────────────────────────────────────


def a_group(command: str) -> tuple[subprocess.Popen[bytes], ProcessMark]:
    child = subprocess.Popen(["sh", "-c", command], start_new_session=True, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()  # it has started what it starts
    mark = mark_of(child.pid)
    assert mark is not None
    return child, mark


def ended(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


def test_survivors_are_found_and_ended_with_their_leader(word: str) -> None:
    child, mark = a_group(f"sleep {word} & echo; wait")
    try:
        assert len(find_survivors(mark)) == 2
        assert end_survivors(mark)
        assert eventually(lambda: running_with(word) == [])
        assert find_survivors(mark) == ()
        assert not end_survivors(mark)
    finally:
        ended(child)


def test_survivors_are_found_when_their_leader_is_gone(word: str) -> None:
    child, mark = a_group(f"sleep {word} & echo; exit 0")
    assert child.stdout is not None
    child.stdout.close()
    child.wait()
    assert len(find_survivors(mark)) == 1
    assert end_survivors(mark)
    assert eventually(lambda: running_with(word) == [])


DRIVER = """
import json, sys
from dataclasses import asdict, replace
from pathlib import Path
from agentfs.tools.programs import Shell
from tests.contexts import a_context
work = a_context(Path(sys.argv[1]), sys.argv[2])
context = replace(
    work.context,
    claim=lambda mark: print(json.dumps(asdict(mark)), flush=True),
    log=lambda kind, line: print(line["text"], flush=True),
)
Shell().call({"command": "echo ready; sleep " + sys.argv[3]}, context)
"""


@each_sandbox
def test_a_killed_driver_leaves_nothing_behind(tmp_path: Path, sandbox: Sandbox, word: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), sandbox, word],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as driver:
        assert driver.stdout is not None
        mark = ProcessMark(**json.loads(driver.stdout.readline()))
        assert driver.stdout.readline() == b"ready\n"
        driver.kill()
    assert eventually(lambda: running_with(word) == [])
    assert eventually(lambda: find_survivors(mark) == ())


def test_another_process_of_the_same_number_is_left_alone(word: str) -> None:
    child, mark = a_group(f"echo; sleep {word}")
    try:
        assert not end_survivors(replace(mark, start_time=mark.start_time - 1))
        assert not end_survivors(replace(mark, boot_id="00000000-0000-0000-0000-000000000000"))
        assert alive(child.pid)
    finally:
        end_survivors(mark)
        ended(child)


def test_our_own_group_is_never_a_survivor() -> None:
    mark = mark_of(os.getpid())
    assert mark is not None
    assert find_survivors(replace(mark, pgid=os.getpgrp())) == ()


@confined
def test_a_sandbox_that_finds_no_room_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bubblewrap says that it began nothing; a program that only prints the same words is not run again."""
    no_room = "bwrap: Creating new namespace failed: Resource temporarily unavailable"
    (tmp_path / "bin").mkdir()
    bwrap, tries = tmp_path / "bin" / "bwrap", tmp_path / "tries"
    bwrap.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && exec /usr/bin/env bwrap --help\necho try >> {tries}\n[ "$(wc -l < {tries})" -gt 2 ] && exec /usr/bin/env bwrap "$@"\n'
        f'echo "{no_room}" >&2\nexit 1\n'
    )
    bwrap.chmod(0o755)
    messages: list[str] = []
    work = a_context(tmp_path, "bubblewrap")
    context = replace(work.context, starter=Starter(messages.append))
    program = f"echo once >> effect; echo '{no_room}' >&2; exit 1"
    monkeypatch.setenv("PATH", f"{bwrap.parent}:{os.environ['PATH']}")
    finished = run_program(["/bin/sh", "-c", program], environment(context.confinement), context)
    assert isinstance(finished, Finished)
    assert (finished.exit_code, finished.stderr) == (1, f"{no_room}\n")
    assert ((work.workdir / "effect").read_text(), tries.read_text()) == ("once\n", "try\n" * 3)
    assert messages == [NONE_LEFT, ROOM_AGAIN]

"""What a daemon could not hear it finds all the same, once: it was stopped, the kernel dropped events, a callback failed."""

import os
import signal
import time

from tests.daemons import Watching, book
from tests.sweeps import size
from tests.workspaces import Place, disagreements, wait_for

NOTE = '{"goal": "x", "steps": [{"id": "a", "tool": "note", "input": {"text": "%d"}}]}'
FOUND_WITHIN = 15.0


def test_goals_dropped_while_it_is_stopped_are_all_taken_once(place: Place) -> None:
    """In full, 20,000 of them: the kernel keeps 16,384 events and drops the rest.

    Without the look at the folder when events were lost, 16,701 of 20,000 were never noticed.
    """
    count = size(120, 20_000)
    with Watching(place) as daemon:
        daemon.popen.send_signal(signal.SIGSTOP)
        for number in range(count):
            (daemon.goals / f".g{number}").write_text(NOTE % number)
            os.rename(daemon.goals / f".g{number}", daemon.goals / f"g{number}.json")
        daemon.popen.send_signal(signal.SIGCONT)
        began = time.monotonic()
        wait_for(lambda: any(place.runs.glob("*/*/goal.json")), "the first goal to be taken", FOUND_WITHIN)
        found = time.monotonic() - began
        wait_for(lambda: not any(daemon.goals.glob("*.json")), "the last goal to be taken", 60 + count / 20)
        taken = time.monotonic() - began
        for number in range(count):
            assert daemon.outcome(f"g{number}")["answer"] == str(number)
    print(f"{count} goals: the first taken after {found:.1f} s, the last after {taken:.1f} s")
    assert len(list(place.runs.glob("*/*/run.json"))) == count
    assert "rejected" not in daemon.output()
    if count <= 2000:
        assert disagreements(place.root) == []


FAILING = """
import agentfs.storage.watcher as watcher
real = watcher.Enqueue.on_any_event
def on_any_event(self, event):
    if "boom" in str(event.src_path) + str(event.dest_path):
        raise RuntimeError("planted")
    real(self, event)
watcher.Enqueue.on_any_event = on_any_event
"""


def test_an_exception_in_a_callback_ends_no_watching(place: Place) -> None:
    """The thread of an observer dies of it: goals and runs are looked at all the time, so nothing is missed."""
    planted = place.root.parent / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(FAILING)
    with Watching(place, PYTHONPATH=f"{planted}:{place.env['PYTHONPATH']}") as daemon:
        daemon.drop("asks.md", book("echo x >> effect; echo sent", lines="gate"))
        steps = daemon.folder("asks") / "steps"
        wait_for((steps / "a.1.question.md").exists, "the question")
        daemon.drop("boom.md", book("echo boom"))
        wait_for(lambda: "RuntimeError: planted" in daemon.output(), "the thread to end")
        (steps / "a.1.reply.md").write_text("approve\n")
        daemon.drop("later.md", book("echo later"))
        for name, answer in {"asks": "sent", "later": "later", "boom": "boom"}.items():
            wait_for((daemon.folder(name) / "outcome.json").exists, f"the end of {name}", FOUND_WITHIN)
            assert daemon.outcome(name)["answer"] == answer
        daemon.log.write_text("")  # the traceback of the thread
    assert (place.run_folder("asks") / "files" / "effect").read_text() == "x\n"

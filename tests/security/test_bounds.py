"""What others write is judged within bounds: of memory, of time, and until it is stopped.

Broken on purpose, each of these failed: references without `room` took 1.6 GB; a schema judged in this process was ended
by nothing, not even SIGTERM.
"""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces import DEADLINE, Place, end, wait_for

MEGABYTE = 1024 * 1024


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    return place


MEASURE = """import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])  # of a small process: what its parent holds counts as its own
_, status, usage = os.wait4(process.pid, 0)
print(f"\\n{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss * 1024}")
"""


def measured(place: Place, *words: str) -> tuple[int, str, int]:
    """Run a command; return its exit code, its output, and the most memory it had, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, "-m", "agentfs", *words],
        cwd=place.root,
        env=place.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        check=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    code, memory = done.stdout.splitlines()[-1].split()
    return int(code), done.stderr, int(memory)


def test_references_come_to_no_more_than_the_limit(place: Place) -> None:
    """The goal is its own text, and every step refers to all of it: 0.8 MB that come to 1.6 GB."""
    steps = "".join(f"### s{n}\nafter: nothing\n```note\n{{{{goal}}}} {'p' * 360}\n```\n\n" for n in range(2000))
    goal = place.goal(f"# Job\n\n## Steps\n\n{steps}")
    code, output, memory = measured(place, "run", goal)
    assert code == 1
    why = "all that 's0' refers to comes to more than 134217 bytes; read goal.md instead"
    assert f"s0 cannot start: the goal cannot be referred to: {why}" in output
    assert memory < 300 * MEGABYTE


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("kind", ["references", "words"])
def test_a_list_comes_to_no_more_than_the_limit(place: Place, kind: str, gate: bool) -> None:
    """A goal of a few hundred bytes came to a question of 860 MB, which took 6 GB and could not be read again."""
    text = "{{item}} " + ("{{steps.big.output}} " * 15 if kind == "references" else "x" * 500_000)
    steps = [
        {
            "id": "big",
            "tool": "shell",
            "input": {"command": "head -c 60000 /dev/zero | tr '\\0' x"},
            "depends_on": [],
        },
        {
            "id": "list",
            "tool": "note",
            "each": [*range(1000)],
            "input": {"text": text},
            "depends_on": ["big"],
            "gate": gate,
        },
    ]
    code, output, memory = measured(place, "run", place.goal(json.dumps({"goal": "Job", "steps": steps}), "job.json"))
    assert code == 1, output
    why = "comes to more than" if kind == "references" else "1000 times the 500020 bytes of its input are too many"
    assert why in output
    assert memory < 300 * MEGABYTE
    assert sum(path.stat().st_size for path in place.runs.rglob("*") if path.is_file()) < 20 * MEGABYTE


DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {"type": "null"}}
UNIQUE = {"uniqueItems": True, "items": {"anyOf": [{"$ref": "#/$defs/a0"}]}, "$defs": DOUBLED}


@pytest.mark.parametrize("where", ["checks", "expects"])
def test_a_schema_that_never_ends_can_be_stopped(place: Place, where: str) -> None:
    judged = {"expects": UNIQUE} if where == "expects" else {"checks": [{"kind": "output", "schema": UNIQUE}]}
    step = {"id": "a", "tool": "shell", "input": {"command": "echo '[null]'"}, "repeatable": True, **judged}
    process = place.begin("run", place.goal(json.dumps({"goal": "Judge", "steps": [step]}), "job.json"))
    wait_for(lambda: any(b"bounded_worker" in words for words in children(process.pid)), "the schema to be judged")
    process.send_signal(signal.SIGTERM)
    code, _, output = end(process, signal.SIGTERM)
    assert (code, "Traceback" in output) == (130, False)
    result = place.read("steps/a.1.result.json")
    if where == "checks":
        assert (result["status"], result["error"]["kind"]) == ("interrupted", "interrupted")
    else:
        assert (result["status"], result["surprise"]) == ("done", "it was stopped before the schema was judged")


def children(pid: int) -> list[bytes]:
    """Return the command lines of what a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append((path / "cmdline").read_bytes())
    return found

"""What becomes of a command whose streams are closed, full or left by their readers, and in any locale and time zone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import Watching, book
from tests.workspaces import Place, wait_for

ANSWER = "é ✓ 𝄞"
JOB = f"### a\n```sh\necho '{ANSWER}'\n```\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    place.runbook(JOB)
    return place


def in_shell(place: Place, command: str, **environment: str) -> tuple[int, str, str]:
    """Run `$AGENTFS …` in a shell; return the exit code and what came out."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place.root,
        env={**place.env, "AGENTFS": f"{sys.executable} -m agentfs", **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in err, err
    return done.returncode, out, err


def outcomes(place: Place) -> list[Path]:
    return sorted(place.runs.glob("*/*/outcome.json"))


def test_streams_that_were_closed(place: Place) -> None:
    """Work is done all the same, and reported where it can be; what cannot be printed is a failure with a message."""
    code, out, err = in_shell(place, "$AGENTFS run job.md >&-")
    assert (code, out, err.splitlines()[-2:]) == (
        2,
        "",
        [
            f"the run is done, but its answer cannot be printed: `agentfs show {run_of(err)}` has it",
            "agentfs: cannot write to stdout: Bad file descriptor",
        ],
    )
    assert in_shell(place, "$AGENTFS run job.md 2>&-") == (0, f"{ANSWER}\n", "")
    assert in_shell(place, "$AGENTFS run job.md >&- 2>&-") == (2, "", "")
    assert in_shell(place, "$AGENTFS run job.md 2>&1 >/dev/null <&-")[0] == 0
    assert len(outcomes(place)) == 4
    bad = "agentfs: cannot write to stdout: Bad file descriptor\n"
    assert in_shell(place, "$AGENTFS status >&-") == (2, "", bad)
    assert in_shell(place, "$AGENTFS check job.md >&-") == (0, "", "job.md: ok\n"), "it had nothing to print"
    assert in_shell(place, "$AGENTFS show nope 2>&-") == (2, "", "")
    assert in_shell(place, "$AGENTFS status 2>&- | head -1")[1].startswith("RUN")


def run_of(err: str) -> str:
    return err.partition(": ")[0]


def test_streams_that_are_full(place: Place) -> None:
    full = "agentfs: cannot write to stdout: No space left on device"
    assert in_shell(place, "$AGENTFS status > /dev/full") == (2, "", f"{full}\n")
    code, _, err = in_shell(place, "$AGENTFS run job.md > /dev/full")
    assert (code, err.splitlines()[-1]) == (2, full)
    assert in_shell(place, "$AGENTFS run job.md 2> /dev/full") == (0, f"{ANSWER}\n", "")
    assert len(outcomes(place)) == 2


def test_readers_that_leave(place: Place) -> None:
    """`| head` is no mistake; a run goes on though nobody looks at its progress any more."""
    place.runbook("".join(f"### s{n}\n```sh\necho {n}\n```\n" for n in range(5)), name="five.md")
    code, out, err = in_shell(
        place, "{ $AGENTFS run five.md; echo $? >&3; } 3>code 2>&1 >answer | head -1; cat code answer"
    )
    assert (code, out.splitlines()[1:], err) == (0, ["0", "4"], "")
    code, out, err = in_shell(place, "$AGENTFS show five --json | head -1; echo ${PIPESTATUS[0]}")
    assert (code, out, err) == (0, "{\n0\n", "")
    assert in_shell(place, "{ sleep 0.2; $AGENTFS status; echo $? >&2; } | true") == (0, "", "0\n")


def test_a_daemon_whose_reader_leaves_goes_on(place: Place) -> None:
    command = "{ $AGENTFS watch --json & echo $! >&3; wait; } 3>pid 2>said | head -1"
    env = {**place.env, "AGENTFS": f"{sys.executable} -m agentfs"}
    shell = subprocess.Popen(["bash", "-c", command], cwd=place.root, env=env, stdout=subprocess.PIPE)
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline().startswith(b'{"at"')
        (place.root / "goals" / "later.md").write_text(book("echo done"), encoding="utf-8")
        wait_for(lambda: bool(outcomes(place)), "the run of a goal that was dropped later")
    finally:
        subprocess.run(["kill", (place.root / "pid").read_text().strip()], check=True)
        shell.communicate(timeout=60)
    output = (place.root / "said").read_text()
    assert output == "agentfs: cannot write to stdout: Broken pipe; going on without it\n"


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"LC_ALL": "POSIX"}, ANSWER),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ANSWER),
        ({"PYTHONIOENCODING": "ascii"}, r"\xe9 \u2713 \U0001d11e"),
        ({"PYTHONIOENCODING": "latin-1"}, "\ufffd \\u2713 \\U0001d11e"),
    ],
)
def test_a_locale_that_is_not_utf8(place: Place, environment: dict[str, str], shown: str) -> None:
    """Files and programs see UTF-8 whatever the locale; only what is printed goes by the encoding one asks for."""
    folder = place.root / "Büro"
    folder.mkdir()
    name = place.runbook(JOB.replace("echo", "pwd >&2; touch ü; echo"), name="täglich.md")
    code, out, _ = in_shell(place, f"$AGENTFS run {name} --workdir Büro", **environment)
    assert (code, out) == (0, f"{shown}\n")
    assert place.read("steps/a.1.result.json", "taglich")["output"] == ANSWER
    assert place.read("run.json", "taglich")["workdir"] == str(folder)
    assert (folder / "ü").exists()
    looks = ("status", "show taglich --json")
    assert in_shell(place, " && ".join(f"$AGENTFS {words}" for words in looks), **environment)[0] == 0


@pytest.mark.parametrize("zone", ["UTC+24", "AAA-167:59", ":/no/such/file"])
def test_a_time_zone_that_there_is_none(place: Place, zone: str) -> None:
    assert in_shell(place, "$AGENTFS run job.md && $AGENTFS status > /dev/null", TZ=zone)[:2] == (0, f"{ANSWER}\n")


def test_a_daemon_in_such_a_zone_and_locale(place: Place) -> None:
    with Watching(place, TZ="UTC+99", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") as daemon:
        daemon.drop("grün.md", book(f"echo '{ANSWER}'"))
        wait_for(lambda: bool(outcomes(place)), "the end of the run")
    assert place.read("outcome.json", "grun")["answer"] == ANSWER

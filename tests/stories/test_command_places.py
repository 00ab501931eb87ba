"""Places behind a command: another machine over ssh (a real sshd on loopback), and a container made by bubblewrap."""

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from tests.clusters import free_port
from tests.workspaces import Place, end, wait_for

HERE = Path(__file__).parent.parent.parent
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
ATTEMPT = f"PYTHONPATH={HERE} {sys.executable} -m agentfs attempt"
SLOW = "### slow\nplace: there\nrepeatable\n```sh\necho begun > begun; while :; do date +%s%N >> beats; sleep 0.05; done\n```\n"


@contextmanager
def sshd(folder: Path) -> Iterator[list[str]]:
    """Yield the words of an ssh command that reaches a server of the test's own."""
    assert SSHD is not None
    folder.chmod(0o700)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    port = free_port()
    config = f"""Port {port}
ListenAddress 127.0.0.1
HostKey {folder / "host"}
AuthorizedKeysFile {folder / "authorized"}
PidFile {folder / "pid"}
UsePAM no
StrictModes no
PasswordAuthentication no
AcceptEnv _AGENTFS_TIMING_DIVISOR
"""
    (folder / "sshd_config").write_text(config, encoding="utf-8")
    os.makedirs("/run/sshd", exist_ok=True)  # it separates its privileges there
    with open(folder / "sshd.txt", "wb") as log:
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: b"listening" in (folder / "sshd.txt").read_bytes(), "sshd listens")
        options = [
            "StrictHostKeyChecking=no",
            f"UserKnownHostsFile={folder / 'known'}",
            "BatchMode=yes",
            "LogLevel=ERROR",
        ]
        options.append("SendEnv=_AGENTFS_TIMING_DIVISOR")
        words = [word for option in options for word in ("-o", option)]
        yield ["ssh", "-p", str(port), "-i", str(folder / "client"), *words, f"{getpass.getuser()}@127.0.0.1"]
    finally:
        server.terminate()
        server.wait(30)


def container(place: Place, mounted: Path | None = None) -> list[str]:
    """Return a command that makes a container: its own processes and root, and the working folder mounted.

    `mounted`: what is there in its place.
    """
    system = [word for path in ("/usr", "/bin", "/lib", "/lib64", "/etc") for word in ("--ro-bind-try", path, path)]
    python = [word for path in {sys.prefix, sys.base_prefix, str(HERE)} for word in ("--ro-bind", path, path)]
    return [
        *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-uts", "--hostname", "box", "--die-with-parent"),
        *("--tmpfs", "/", *system, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *python),
        *("--bind", str(mounted or place.root), str(place.root), "--setenv", "PYTHONPATH", str(HERE)),
        *(sys.executable, "-m", "agentfs", "attempt"),
    ]


@pytest.fixture(params=["ssh", "container"])
def there(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Iterator[Place]:
    """Yield a workspace with a place `there`."""
    if request.param == "ssh":
        if SSHD is None or os.getuid() != 0:
            pytest.skip("needs sshd, and to be root")
        folder = tmp_path / "ssh"
        folder.mkdir()
        with sshd(folder) as words:
            settle(place, [*words, ATTEMPT])
            yield place
    else:
        settle(place, container(place))
        yield place


def settle(place: Place, command: list[str]) -> None:
    place.agentfs("init")
    section = f'[places.there]\nkind = "command"\nslots = 2\ncommand = {json.dumps(command)}\n'
    (place.root / "agentfs.toml").write_text(section, encoding="utf-8")


def beats(place: Place) -> list[int]:
    path = place.run_folder() / "files" / "beats"
    return [int(line) for line in path.read_text(encoding="ascii").split()]


def test_a_step_runs_there_and_a_signal_reaches_it(there: Place) -> None:
    steps = "### make\nplace: there\n```sh\necho made > thing; hostname; cat thing\n```\ncheck: `grep made thing`\n"
    done = there.agentfs("run", there.runbook(steps, name="first.md"))
    host = there.read("steps/make.1.result.json", "first")["host"]
    assert done.stdout == f"{host}\nmade\n"
    found = json.loads(there.agentfs("doctor", "--json", code=None).stdout)["findings"]
    assert [one["grade"] for one in found if one["about"] == "[places.there]"][-1] == "fine"
    driver = there.begin("run", there.runbook(SLOW))
    wait_for(lambda: any(there.runs.glob("*/job/files/begun")), "it has begun")
    assert there.agentfs("status").stdout.splitlines()[-1] == "place there: 1 of 2 slots in use"
    asked = time.time()
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(30) == 130
    end(driver)
    assert there.read("steps/slow.1.result.json")["status"] == "interrupted"
    assert beats(there)[-1] / 1e9 - asked < 5


@pytest.mark.parametrize("there", ["ssh"], indirect=True)  # in a container a driver's death is the end of a pipe, too
def test_its_driver_is_killed(there: Place) -> None:
    driver = there.begin("run", there.runbook(SLOW))
    wait_for(lambda: any(path.stat().st_size for path in there.runs.glob("*/job/files/beats")), "it has begun")
    end(driver, signal.SIGKILL)
    stopped = there.begin("resume", "job")
    wait_for(lambda: any(there.runs.glob("*/job/steps/slow.2.log.jsonl")), "it was tried again")
    end(stopped, signal.SIGTERM)
    first = there.read("steps/slow.1.result.json")
    assert (first["status"], first["error"]["message"]) == (
        "interrupted",
        "the attempt at there was lost: its driver ended",
    )
    again = datetime.fromisoformat(there.read("steps/slow.2.json")["issued_at"]).timestamp()
    orphan = [beat / 1e9 for beat in beats(there) if beat / 1e9 < again]
    assert again - orphan[-1] > 1  # the first attempt had ended before the second was ordered


def test_a_container_without_the_working_folder(place: Place, tmp_path: Path) -> None:
    """Something else is mounted there: nothing is claimed, and the message names the path."""
    other = tmp_path / "other"
    other.mkdir()
    settle(place, container(place, other))
    output = place.agentfs(
        "run", place.runbook("### one\nplace: there\n```sh\necho 1 > effect\n```\n"), code=1
    ).stderr
    files = place.run_folder() / "files"
    why = f"{files} is not the driver's working folder on box: No such file or directory"
    assert f"the place there cannot carry it out: {why}" in output
    assert place.read("steps/one.1.result.json")["error"]["kind"] == "place"
    assert (os.listdir(files), [*place.run_folder().glob("steps/*.log.jsonl")]) == ([], [])
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    assert [one["what"] for one in found if (one["about"], one["grade"]) == ("[places.there]", "wrong")] == [
        f"{place.root} is not the driver's working folder on box: No such file or directory"
    ]


@pytest.mark.parametrize("there", ["ssh"], indirect=True)
def test_the_network_is_cut(there: Place) -> None:
    """The line lives on and carries nothing: both ends give up by themselves."""
    driver = there.begin("run", there.runbook(SLOW))
    wait_for(lambda: any(path.stat().st_size for path in there.runs.glob("*/job/files/beats")), "it has begun")
    (line,) = [pid for pid, command in children_of(driver.pid) if command.startswith(b"ssh\0")]
    os.kill(line, signal.SIGSTOP)
    wait_for(lambda: any(there.runs.glob("*/job/steps/slow.2.log.jsonl")), "it was tried again")
    end(driver, signal.SIGTERM)
    first = there.read("steps/slow.1.result.json")
    assert first["status"] == "interrupted"
    assert first["error"]["message"].startswith("the attempt at there was lost: nothing came from it for ")
    again = datetime.fromisoformat(there.read("steps/slow.2.json")["issued_at"]).timestamp()
    assert again - max(beat / 1e9 for beat in beats(there) if beat / 1e9 < again) > 1


def children_of(parent: int) -> list[tuple[int, bytes]]:
    """Return the processes that a process has started, each with its command."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append((int(path.name), (path / "cmdline").read_bytes()))
    return found

"""A Dask cluster of real processes on loopback: a scheduler and workers that tests may kill, stop and start again."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentfs.storage.timing import DIVISOR
from tests import warm
from tests.workspaces import Place, wait_for

Process = subprocess.Popen[bytes] | warm.Command
HERE = Path(__file__).parent.parent
QUIET = {"DASK_LOGGING__DISTRIBUTED": "error", "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false"}


class Cluster:
    """A scheduler and its workers, one thread each."""

    def __init__(self, folder: Path, protocol: str = "tcp", **environment: str) -> None:
        self.folder, self.port, self.protocol = folder, free_port(), protocol
        self.address = f"{protocol}://127.0.0.1:{self.port}"
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            DIVISOR: os.environ.get(DIVISOR, "1"),
            **QUIET,
            **environment,
        }
        self.scheduler: Process | None = None
        self.workers: dict[str, Process] = {}

    def start(self, workers: int) -> None:
        self.start_scheduler()
        for number in range(workers):
            self.start_worker(f"w{number}")
        self.wait_for_workers(workers)

    def start_scheduler(self) -> None:
        listens = ("--protocol", self.protocol, "--host", "127.0.0.1", "--port", str(self.port))
        words = (*listens, "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._begin("scheduler", "scheduler", *words)
        wait_for(lambda: _answers(self.port), "the scheduler listens")

    def start_worker(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name, *words)
        self.workers[name] = self._begin(name, "worker", self.address, *words, env=env)

    def _begin(self, name: str, role: str, *words: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a process of Dask: from the warm one, which has imported Dask, if its environment allows that."""
        environment = {**self.env, **(env or {})}
        with open(self.folder / f"{name}.txt", "ab") as log, open(os.devnull, "rb") as nothing:
            if warm.can_start(environment):
                streams, given = (nothing.fileno(), log.fileno(), log.fileno()), {"role": role, "words": words}
                return warm.Command(
                    (), self.folder, environment, streams, instead="tests.dask_process:main", given=given
                )
            argv = [sys.executable, "-m", "dask", role, *words]
            return subprocess.Popen(
                argv, cwd=self.folder, env=environment, stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )

    def wait_for_workers(self, count: int) -> None:
        with self.client() as client:
            wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) >= count, f"{count} workers")

    @contextmanager
    def client(self) -> Iterator[Any]:
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=30) as client:
            yield client

    def busy(self) -> list[str]:
        """Return the workers that carry something out."""
        with self.client() as client:
            known, tasks = client.scheduler_info(n_workers=-1)["workers"], client.processing()
            return sorted(str(one["name"]) for address, one in known.items() if tasks.get(address))

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a worker, and wait until it is gone."""
        process = self.workers.pop(name)
        process.send_signal(number)
        process.wait(30)

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait(30)

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(30)

    def settings(self, place: str = "cluster", slots: int = 8) -> str:
        """Return the section of agentfs.toml that names this cluster."""
        return f'[places.{place}]\nkind = "dask"\nscheduler = "{self.address}"\nslots = {slots}\n'


@contextmanager
def cluster(folder: Path, workers: int, **environment: str) -> Iterator[Cluster]:
    one = Cluster(folder, **environment)
    try:
        one.start(workers)
        yield one
    finally:
        one.close()


def use(place: Place, one: Cluster, more: str = "") -> None:
    """Make a workspace whose steps run on a cluster."""
    place.agentfs("init")
    settings = f'{one.settings()}[executor]\nplace = "cluster"\n{more}'
    (place.root / "agentfs.toml").write_text(settings, encoding="utf-8")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False

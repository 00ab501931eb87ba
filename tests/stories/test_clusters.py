"""Steps on a real Dask cluster, and everything that can die there: nothing is lost, nothing runs twice."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import agentfs
from agentfs.storage.timing import DIVISOR
from tests.clusters import Cluster, cluster, use
from tests.sweeps import FULL, SEED, only_full
from tests.workspaces import Place, end, wait_for

pytest.importorskip("distributed")
# Half a second is short for a word from a busy machine; a run of all that is here at full length takes the real times.
SLOWER = {DIVISOR: "5"}
# The first attempt writes the time until it is ended; every later one writes when it begins.
BEATS = """```sh
n=$(ls {name}-* 2>/dev/null | wc -l)
date +%s%N > {name}-$n
while [ $n = 0 ]; do date +%s%N >> {name}-0; sleep 0.05; done
echo try $n
```
"""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster of the test's own, which it may break."""
    with cluster(tmp_path, 3, **SLOWER) as one:
        yield one


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster for all tests that leave it as it was; its workers have a secret."""
    secret = {"DEPLOY_TOKEN": "correct-horse-battery"}
    with cluster(tmp_path_factory.mktemp("cluster"), 3, **SLOWER, **secret) as one:
        yield one


@pytest.fixture
def slow(place: Place) -> Place:
    place.env.update(SLOWER)
    return place


def files_of(place: Place) -> Path:
    return place.run_folder() / "files"


def begun(place: Place, *names: str) -> Callable[[], bool]:
    return lambda: all(any(place.runs.glob(f"*/job/files/{name}")) for name in names)


def moments(path: Path) -> list[int]:
    return [int(line) for line in path.read_text(encoding="ascii").split()]


def test_a_list_spreads_over_all_workers_and_leaves_nothing_at_the_scheduler(slow: Place, shared: Cluster) -> None:
    """Every item waits until shared have begun: they can only end if shared workers are at it."""
    use(slow, shared, '[tools]\nenv = ["DEPLOY_TOKEN"]\n')
    waits = "touch b-{{item}}; until [ $(ls b-* | wc -l) -ge 3 ]; do sleep 0.02; done"
    steps = f"### work\neach: i1, i2, i3, i4, i5, i6\n```sh\n{waits}; echo did {{{{item}}}}\n```\n"
    done = slow.agentfs("run", slow.runbook(steps))
    assert json.loads(done.stdout) == [f"did i{number}" for number in range(1, 7)]
    results = [slow.read(f"steps/work~i{number}.1.result.json") for number in range(1, 7)]
    assert {(one["place"], one["host"]) for one in results} == {("cluster", os.uname().nodename)}
    with shared.client() as client:
        wait_for(lambda: client.run_on_scheduler(_left_over) == ([], []), "the queues and tasks are gone")
    assert slow.agentfs("replay", "job").stdout.startswith("replayed: the same")


def _left_over(dask_scheduler: Any) -> tuple[list[str], list[str]]:
    return list(dask_scheduler.extensions["queues"].queues), list(dask_scheduler.tasks)


# ── what can die ──────────────────────────────────────────────────────────────────────────────────────────

TWO = f"""### pay
not repeatable
{BEATS.format(name="pay")}
### copy
after: nothing
repeatable
{BEATS.format(name="copy")}
"""


def kill_every_worker(one: Cluster, _place: Place) -> None:
    for name in ("w0", "w1", "w2"):
        one.kill(name)
    one.start_worker("w3")


def kill_the_scheduler(one: Cluster, _place: Place) -> None:
    one.kill_scheduler()
    one.start_scheduler()
    one.start_worker("w3")


def stop_the_busy_workers(one: Cluster, place: Place) -> None:
    """They are frozen for a minute, by the clock of this test, and go on once their steps were tried again."""
    frozen = [one.workers[name] for name in one.busy()]
    assert len(frozen) == 2
    for worker in frozen:
        worker.send_signal(signal.SIGSTOP)
    wait_for(begun(place, "copy-1"), "the step was tried again")
    for worker in frozen:
        worker.send_signal(signal.SIGCONT)


def cut_the_network(one: Cluster, place: Place) -> None:
    """Nothing reaches anyone any more, though all processes live: the scheduler, which is between them, is frozen."""
    assert one.scheduler is not None
    one.scheduler.send_signal(signal.SIGSTOP)
    beats = place.runs / time.strftime("%Y-%m-%d", time.gmtime()) / "job" / "files" / "copy-0"
    wait_for(lambda: time.time() - os.stat(beats).st_mtime > 1, "the orphan has ended itself")
    one.scheduler.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "fault",
    [
        kill_every_worker,
        stop_the_busy_workers,
        pytest.param(kill_the_scheduler, marks=only_full),
        pytest.param(cut_the_network, marks=only_full),
    ],
)
def test_what_is_lost_is_noticed_and_ended_before_it_is_tried_again(
    slow: Place, three: Cluster, fault: Callable[[Cluster, Place], None]
) -> None:
    use(slow, three)
    driver = slow.begin("run", slow.runbook(TWO))
    wait_for(begun(slow, "pay-0", "copy-0"), "both have begun")
    fault(three, slow)
    code = driver.wait(120)
    _, _, output = end(driver)
    assert code == 3, output  # `pay` may not be repeated: a person is asked
    results = {name: slow.read(f"steps/{name}.result.json") for name in ("pay.1", "copy.1", "copy.2")}
    assert [one["status"] for one in results.values()] == ["interrupted", "interrupted", "done"]
    assert {one["place"] for one in results.values()} == {"cluster"}
    assert results["pay.1"]["error"]["message"].startswith("the attempt at cluster was lost: ")
    files = files_of(slow)
    assert sorted(path.name for path in files.glob("*-*")) == ["copy-0", "copy-1", "pay-0"]
    assert max(moments(files / "copy-0")) < min(moments(files / "copy-1"))
    ended = max(moments(files / "pay-0")) / 1e9
    assert ended < time.time() - 1, "it still runs"


def test_a_driver_that_is_killed(slow: Place, shared: Cluster) -> None:
    """Its attempts end themselves; the next driver waits until that is sure."""
    use(slow, shared)
    driver = slow.begin("run", slow.runbook(TWO))
    wait_for(begun(slow, "pay-0", "copy-0"), "both have begun")
    end(driver, signal.SIGKILL)
    slow.agentfs("resume", "job", code=3)
    results = [slow.read(f"steps/{name}.result.json") for name in ("pay.1", "copy.1", "copy.2")]
    assert [one["status"] for one in results] == ["interrupted", "interrupted", "done"]
    assert results[1]["error"]["message"] == "the attempt at cluster was lost: its driver ended"
    files = files_of(slow)
    assert max(moments(files / "copy-0")) < min(moments(files / "copy-1"))
    assert max(moments(files / "pay-0")) < min(moments(files / "copy-1"))


@pytest.mark.parametrize("fault", ["its driver is killed", pytest.param("its worker is frozen", marks=only_full)])
def test_an_orphan_that_is_cancelled_has_ended_before_its_step_runs_again(
    slow: Place, three: Cluster, fault: str
) -> None:
    """A person may cancel what cannot be reached, and take it up at once."""
    slow.env[DIVISOR] = "3"  # the orphan goes on for ten seconds
    use(slow, three)
    driver = slow.begin("run", slow.runbook(f"### copy\nrepeatable\n{BEATS.format(name='copy')}"))
    wait_for(begun(slow, "copy-0"), "it has begun")
    if fault == "its driver is killed":
        end(driver, signal.SIGKILL)
        slow.agentfs("cancel", "job", code=None)
    else:
        (name,) = three.busy()
        three.workers[name].send_signal(signal.SIGSTOP)
        slow.agentfs("cancel", "job", code=None)
        assert driver.wait(60) == 1
        end(driver)
    first = slow.read("steps/copy.1.result.json")
    slow.agentfs("resume", "job")
    assert (first["status"], slow.read("steps/copy.2.result.json")["status"]) == ("interrupted", "done")
    files = files_of(slow)
    assert max(moments(files / "copy-0")) < min(moments(files / "copy-1"))


@pytest.mark.parametrize("how", ["run", "watch", "cancel", "timeout"])
def test_what_runs_there_ends_within_five_seconds(slow: Place, shared: Cluster, how: str) -> None:
    use(slow, shared)
    lasting = "timeout: 3s\n" if how == "timeout" else ""
    slow.runbook(f"### copy\n{lasting}{BEATS.format(name='copy')}")
    if how == "watch":
        os.rename(slow.root / "job.md", slow.root / "goals" / "job.md")
    driver = slow.begin(*(["watch"] if how == "watch" else ["run", "job.md"]))
    wait_for(begun(slow, "copy-0"), "it has begun")
    if how in ("run", "watch"):
        driver.send_signal(signal.SIGTERM)
    elif how == "cancel":
        slow.agentfs("cancel", "job", code=None)
    began = time.time()
    driver.wait(60)
    end(driver)
    result = slow.read("steps/copy.1.result.json")
    assert result["status"] == ("failed" if how == "timeout" else "interrupted")
    last = max(moments(files_of(slow) / "copy-0")) / 1e9
    assert last - began < (3 if how == "timeout" else 0) + 5
    assert last < time.time()


def test_lines_of_the_log_come_as_they_are_written(slow: Place, shared: Cluster) -> None:
    use(slow, shared)
    driver = slow.begin(
        "run", slow.runbook("### talk\n```sh\necho first; until test -e seen; do sleep 0.05; done\n```\n")
    )
    logs = "*/job/steps/talk.1.log.jsonl"
    wait_for(lambda: any("first" in path.read_text("utf-8") for path in slow.runs.glob(logs)), "the line has come")
    (files_of(slow) / "seen").touch()
    assert driver.wait(60) == 0
    end(driver)


def test_an_older_release_at_the_workers(slow: Place, tmp_path: Path) -> None:
    """One that knows places refuses; one that does not has no such module. Nothing is claimed either way."""
    older = tmp_path / "older" / "agentfs"
    older.mkdir(parents=True)
    (older / "__init__.py").write_text('__version__ = "0.1.0"\n', encoding="utf-8")
    with cluster(tmp_path, 0, **SLOWER) as one:
        use(slow, one)
        one.start_worker("refuses", "--preload", "import agentfs; agentfs.__version__ = '0.1.9'")
        output = slow.agentfs("run", slow.runbook("### one\n```sh\necho 1 >> effects\n```\n"), code=1).stderr
        assert f"{os.uname().nodename} has agentfs 0.1.9, the driver is {agentfs.__version__}" in output
        assert not list(slow.run_folder().glob("steps/*.log.jsonl"))
        found = json.loads(slow.agentfs("doctor", "--json", code=None).stdout)["findings"]
        assert [(item["grade"], item["what"]) for item in found if item["about"] == "[places.cluster]"] == [
            ("remark", "no TLS: anyone who can reach the scheduler can run anything on the workers"),
            ("wrong", f"{os.uname().nodename} has agentfs 0.1.9, this is {agentfs.__version__}"),
        ]
        one.kill("refuses")
        one.start_worker("cannot", env={"PYTHONPATH": str(older.parent)})
        slow.runbook("### one\n```sh\necho 1 >> effects\n```\n", name="other.md")
        output = slow.agentfs("run", "other.md", code=1).stderr
        assert " has no agentfs of this release (No module named 'agentfs.places')" in output
        assert not list(slow.run_folder("other").glob("steps/*.log.jsonl"))
        one.start_worker("refuses", "--preload", "import agentfs; agentfs.__version__ = '0.1.9'")
        one.start_worker("works")
        one.wait_for_workers(3)
        found = json.loads(slow.agentfs("doctor", "--json", code=None).stdout)["findings"]
        assert sorted(item["grade"] for item in found if item["about"] == "[places.cluster]") == [
            *("fine", "remark", "wrong", "wrong")
        ]
        steps = "### work\neach: a, b, c, d, e, f\n```sh\necho {{item}} >> effects; sleep 0.2; echo {{item}}\n```\n"
        done = slow.agentfs("run", slow.runbook(steps, name="more.md"))
        assert json.loads(done.stdout) == [*"abcdef"]


def test_a_cluster_with_tls(slow: Place, tmp_path: Path) -> None:
    """What a driver and its workers have is Dask's own configuration; a driver without it is kept out."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cluster"]
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(certificate)}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        tls[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(certificate)
        tls[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(key)
    one = Cluster(tmp_path, protocol="tls", **SLOWER, **tls)
    try:
        one.start_scheduler()
        one.start_worker("w0")
        use(slow, one)
        slow.env.update(tls)
        slow.agentfs("run", slow.runbook("### one\n```sh\necho 1\n```\n"))
        assert slow.read("steps/one.1.result.json")["place"] == "cluster"
        found = json.loads(slow.agentfs("doctor", "--json", code=None).stdout)["findings"]
        assert [item["grade"] for item in found if item["about"] == "[places.cluster]"] == ["fine"]
        for name in tls:
            del slow.env[name]
        slow.runbook("### one\n```sh\necho 1\n```\n", name="other.md")
        slow.agentfs("run", "other.md", code=1, env={DIVISOR: "30"})
        error = slow.read("steps/one.1.result.json", "other")["error"]
        assert error["message"].startswith("the place cluster cannot carry it out: no connection to the scheduler: ")
    finally:
        one.close()


def test_no_secret_is_at_the_scheduler(slow: Place, shared: Cluster) -> None:
    """Looked for while the attempt runs, in all that the scheduler and its dashboard hold, and in their logs."""
    use(slow, shared, '[tools]\nenv = ["DEPLOY_TOKEN"]\n')
    lines = 'echo "${#DEPLOY_TOKEN} $DEPLOY_TOKEN" | tee here; until test -e seen; do sleep 0.05; done'
    driver = slow.begin("run", slow.runbook(f"### deploy\n```sh\n{lines}\n```\n"))
    logs = "*/job/steps/deploy.1.log.jsonl"
    wait_for(lambda: any("[secret" in path.read_text("utf-8") for path in slow.runs.glob(logs)), "it is hidden")
    with shared.client() as client:
        held = client.run_on_scheduler(_everything)
        pages = client.run_on_scheduler(_pages)
    assert "agentfs-attempt-" in held
    assert pages
    (files_of(slow) / "seen").touch()
    assert driver.wait(60) == 0
    end(driver)
    assert (files_of(slow) / "here").read_text(encoding="utf-8") == "21 correct-horse-battery\n"
    assert slow.read("steps/deploy.1.result.json")["output"] == "21 [secret DEPLOY_TOKEN]"
    printed = [path.read_text(encoding="utf-8", errors="replace") for path in shared.folder.glob("*.txt")]
    assert [text for text in (held, *pages, *printed) if "correct-horse" in text] == []


def _everything(dask_scheduler: Any) -> str:
    """Return the scheduler's whole state as text: tasks, events, queues, logs."""
    scheduler = dask_scheduler
    queues = {name: list(one._queue) for name, one in scheduler.extensions["queues"].queues.items()}
    tasks = [(key, repr(one.run_spec), vars(type(one)) and one.state) for key, one in scheduler.tasks.items()]
    return repr((scheduler.identity(), tasks, queues, scheduler.get_events(), list(scheduler.transition_log)))


async def _pages(dask_scheduler: Any) -> list[str]:
    """Return the pages of the scheduler's web server."""
    from tornado.httpclient import AsyncHTTPClient

    port, client = dask_scheduler.http_server.port, AsyncHTTPClient()
    paths = ("/info/main/workers.html", "/json/counts.json", "/json/identity.json", "/metrics", "/sitemap.json")
    pages = [await client.fetch(f"http://127.0.0.1:{port}{path}", raise_error=False) for path in paths]
    return [page.body.decode("utf-8", "replace") for page in pages if page.code == 200]


# ── many at once, while workers die ───────────────────────────────────────────────────────────────────────


@dataclass
class Killer:
    """Kills workers at random moments, and starts another for each."""

    cluster: Cluster
    random: random.Random
    deaths: int
    apart_s: float
    killed: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        for number in range(self.deaths):
            if self.over.wait(self.random.uniform(0.5, 1.5) * self.apart_s):
                return
            name = self.random.choice(sorted(self.cluster.workers))
            self.cluster.kill(name)
            self.killed.append(name)
            self.cluster.start_worker(f"{name}-{number}")


def test_a_long_list_while_workers_die(slow: Place, tmp_path: Path) -> None:
    """None is lost, none runs twice: every effect leaves a line, and every death is in the results."""
    count, workers, deaths, lasts = (500, 4, 20, 0.1) if FULL else (12, 3, 2, 0.5)
    items = [f"i{number}" for number in range(count)]
    with cluster(tmp_path, workers, **SLOWER) as one:
        use(slow, one)
        work = f"```sh\necho {{{{item}}}} >> effects; sleep {lasts}\n```\n"
        slow.runbook(f"### work\nrepeatable\nretries: 9\neach: {', '.join(items)}\n{work}")
        killer = Killer(one, random.Random(SEED), deaths, 1.5)
        thread = threading.Thread(target=killer.run)
        driver = slow.begin("run", "job.md")
        wait_for(lambda: any(slow.runs.glob("*/job/files/effects")), "it has begun")
        thread.start()
        code = driver.wait(500)
        killer.over.set()
        thread.join()
        _, _, output = end(driver)
    assert code == 0, output
    steps = slow.run_folder() / "steps"
    claims = Counter(path.name.split(".")[0] for path in steps.glob("work~*.log.jsonl"))
    results = [json.loads(path.read_bytes()) for path in steps.glob("work~*.result.json")]
    effects = Counter((files_of(slow) / "effects").read_text(encoding="ascii").split())
    assert len(results) == claims.total()
    assert sorted(one["step"] for one in results if one["status"] == "done") == sorted(
        f"work~{item}" for item in items
    )
    interrupted = Counter(one["step"] for one in results if one["status"] == "interrupted")
    assert claims == Counter(f"work~{item}" for item in items) + interrupted
    assert [item for item in items if not 1 <= effects[item] <= claims[f"work~{item}"]] == []
    assert int(FULL) <= interrupted.total() <= len(killer.killed)
    print(f"{count} items, {len(killer.killed)} deaths, {interrupted.total()} interrupted, {effects.total()} effects")

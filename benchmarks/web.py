"""What the report and the live view take: python benchmarks/web.py [runs] [steps] [revisions]

Pages of a workspace with many runs and of a run with many steps, how soon a result is seen, what an idle page costs,
and how large reports get. The runs are copies of one real run, the revisions of the long one are written as files.
"""

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

AGENTFS = [sys.executable, "-m", "agentfs"]
TIMES = 7


def agentfs(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AGENTFS, *words], cwd=root, capture_output=True, text=True, check=False)


class Server:
    """`agentfs web`, and one browser's cookie."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [*AGENTFS, "web", "--port", "0"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout
        url = self.process.stdout.readline().strip()
        self.port, self.cookie = urlsplit(url).port or 0, ""
        reply, _ = self.get(url.partition(str(self.port))[2])
        self.cookie = reply.getheader("set-cookie", "").partition(";")[0]

    def get(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
        reply = connection.getresponse()
        return reply, reply.read()

    def took(self, path: str) -> str:
        """Return how long a page takes, the processor time of it, and how large it is."""
        times, size, before = [], 0, self.cpu()
        for _ in range(TIMES):
            began = time.perf_counter()
            size = len(self.get(path)[1])
            times.append(time.perf_counter() - began)
        processor = (self.cpu() - before) / TIMES
        return f"{statistics.median(times):.2f} s ({processor:.2f} s of processor time), {size / 1000:.0f} kB"

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def events(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        return connection.getresponse()


def many_runs(root: Path, count: int) -> None:
    first = next(root.glob("runs/*/one"))
    for n in range(count - 1):
        shutil.copytree(first, first.with_name(f"run-{n:04}"))


def many_revisions(folder: Path, count: int) -> None:
    """Write further revisions beside the first, each with one step changed."""
    plan = json.loads((folder / "revisions/1.plan.json").read_text())
    record = json.loads((folder / "revisions/1.json").read_text())
    import hashlib

    for n in range(2, count + 1):
        plan["steps"][n]["description"] = f"changed in revision {n}"
        source = json.dumps(plan, indent=2) + "\n"
        digest = hashlib.sha256(source.encode()).hexdigest()
        by = {"role": "person", "name": "Ada", "model": None}
        changes = [{"step": plan["steps"][n]["id"], "what": "description changed"}]
        new = {
            **record,
            "revision": n,
            "call": None,
            "by": by,
            "trigger": "edited",
            "detail": "plan.json was edited",
            "evidence": [],
            "base_sha256": record["plan_sha256"],
            "plan_sha256": digest,
            "changes": changes,
        }
        (folder / f"revisions/{n}.plan.json").write_text(source)
        (folder / f"revisions/{n}.json").write_text(json.dumps(new))
        (folder / "plan.json").write_text(source)
        record = {**record, "plan_sha256": digest}


def latency(server: Server, root: Path, tries: int) -> list[float]:
    """Return how long after a result's file appeared its page showed it: the event, then the page."""
    found = []
    for n in range(tries):
        name = f"late-{n}"
        (root / f"{name}.md").write_text(f"# Late {n}\n\n## Steps\n\n### wait\n```sh\nsleep 1.5\n```\n")
        running = subprocess.Popen(
            [*AGENTFS, "run", f"{name}.md"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not (folders := list(root.glob(f"runs/*/{name}/steps/wait.1.log.jsonl"))):
            time.sleep(0.01)
        folder = folders[0].parent.parent
        path = f"/run/{folder.parent.name}/{folder.name}"
        stream = server.events(f"{path}/events")
        while True:
            line = stream.fp.readline() if stream.fp else b""
            if line.startswith(b"event: changed"):
                body = server.get(path)[1]
                if b"pill good" in body and (folder / "steps/wait.1.result.json").exists():
                    found.append(time.time() - (folder / "steps/wait.1.result.json").stat().st_mtime)
                    break
        stream.close()
        running.wait()
    return found


def main() -> None:
    runs, steps, revisions = (int(word) for word in [*sys.argv[1:], *("1000", "1000", "100")[len(sys.argv) - 1 :]])
    root = Path(tempfile.mkdtemp(prefix="agentfs-web-"))
    agentfs(root, "init")
    (root / "one.md").write_text("# One\n\n## Steps\n\n### a\n```sh\necho one\n```\n")
    agentfs(root, "run", "one.md")
    many_runs(root, runs)
    body = "\n".join(f"### s{n}\nNote {n}.\nafter: nothing\n```note\nnote number {n}\n```\n" for n in range(steps))
    (root / "long.md").write_text(f"# Long\n\n## Steps\n\n{body}")
    agentfs(root, "run", "long.md")
    long = next(root.glob("runs/*/long"))
    server = Server(root)
    try:
        print(f"first page, {runs} runs: {server.took('/')}")
        print(f"a run of {steps} steps: {server.took(f'/run/{long.parent.name}/long')}")
        many_revisions(long, revisions)
        print(f"the same with {revisions} revisions: {server.took(f'/run/{long.parent.name}/long')}")
        late = sorted(latency(server, root, 20))
        median, most = statistics.median(late), late[round(0.95 * len(late)) - 1]
        print(f"a result is seen after {median:.2f} s (median), {most:.2f} s (p95), of {len(late)}")
        streams = [server.events(f"/run/{long.parent.name}/long/events"), server.events("/events")]
        before, began = server.cpu(), time.monotonic()
        time.sleep(30)
        share = (server.cpu() - before) / (time.monotonic() - began)
        print(f"two idle pages: {share:.2%} of a core")
        for stream in streams:
            stream.close()
    finally:
        server.process.terminate()
        server.process.wait()
    before = os.times()
    agentfs(root, "report", "long", "-o", "long.html")
    size, after = (root / "long.html").stat().st_size, os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"report, {steps} steps, {revisions} revisions: {size / 1e6:.2f} MB, {seconds:.1f} s of processor time")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()

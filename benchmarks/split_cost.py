"""What the split saves: input tokens of planner and executor, against one loop that does the same job.

python benchmarks/split_cost.py [--write]     # --write: the tables and the plot in docs/ are made anew
python benchmarks/split_cost.py --smallest    # the jobs of five steps alone: does it run at all?

Nothing is simulated but what the models say: `agentfs run` drives the real engine, planner and loop against a
scripted server, and what is counted is what that server was sent, four characters a token. Both sides are shown the
same outputs, cut by the same code, and say the same.
"""

import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genai_prices import Usage, calc_price
from measuring import verdict
from plotting import plot
from split_job import EXECUTOR, PLANNER, RECORDINGS, Body, Job, is_judge

from agentfs.testing import ScriptedReply, ScriptedServer
from agentfs.testing.replies import fails

DOCS = Path(__file__).parents[1] / "docs"
SIZES = (5, 10, 20, 40)
BLOCK, LEAST = 128, 1024  # tokens: a prefix is cached in blocks, and only if it is long enough
KINDS = {
    "single": "one loop",
    "split": "split",
    "replanned": "split, one replan",
    "tools": "split, every step a tool",
}
Bills = dict[tuple[str, int], "Bill"]


@dataclass
class Count:
    """Tokens of one model."""

    sent: int = 0
    cached: int = 0  # of these: stood at the beginning of an earlier request to this model
    said: int = 0


@dataclass
class Bill:
    """What one run sent and was told."""

    requests: int = 0
    judging: int = 0  # tokens sent to have a step judged
    kept: int = 0  # what would have been sent if the loop never dropped an old output
    by_model: dict[str, Count] = field(default_factory=dict)
    _earlier: dict[str, list[str]] = field(default_factory=dict)
    _grown: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def all(self) -> Count:
        counts = self.by_model.values()
        return Count(*(sum(getattr(one, name) for one in counts) for name in ("sent", "cached", "said")))

    def add(self, body: Body, reply: ScriptedReply) -> None:
        text = _json([body.get("response_format"), body.get("tools"), body["messages"]])
        count = self.by_model.setdefault(body["model"], Count())
        self.requests += 1
        self.judging += len(text) // 4 if is_judge(body) else 0
        self.kept += self._whole(body, len(text)) // 4
        count.sent += len(text) // 4
        count.cached += self._known(text, body["model"])
        count.said += reply.length()

    def _known(self, text: str, model: str) -> int:
        """Return how much of a request an endpoint that forgets nothing has seen before."""
        earlier = self._earlier.setdefault(model, [])
        common = max((_alike(text, one) for one in earlier), default=0) // 4
        earlier.append(text)
        return common // BLOCK * BLOCK if common >= LEAST else 0

    def _whole(self, body: Body, length: int) -> int:
        """Return the length of a request had nothing been dropped: what each turn added, when it was new."""
        messages = body["messages"]
        conversation = _json(messages[:2])
        known, size = self._grown.get(conversation, (0, length - len(_json(messages))))
        size += sum(len(_json(message)) + 2 for message in messages[known:])
        self._grown[conversation] = (len(messages), size)
        return size

    def dollars(self, models: dict[str, str], *, cache: bool) -> float:
        """Return the list price, with these models in the place of those that were asked."""
        return sum(_price(models[name], count, cache=cache) for name, count in self.by_model.items())


def _price(model: str, count: Count, *, cache: bool) -> float:
    cached = count.cached if cache else 0
    usage = Usage(input_tokens=count.sent, cache_read_tokens=cached, output_tokens=count.said)
    return float(calc_price(usage, model_ref=model, provider_id="openai").total_price)


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts share from their beginnings on."""
    differs = bisect_left(range(min(len(one), len(other)) + 1), True, key=lambda n: one[:n] != other[:n])
    return differs - 1


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────


def bill_for(job: Job) -> Bill:
    """Run a job with the real command; return what it sent."""
    bill = Bill()
    exchanged: list[tuple[Body, ScriptedReply]] = []
    unknown: list[Body] = []

    def answer(body: Body) -> ScriptedReply:
        reply = job.answer(body)
        if reply is None:
            unknown.append(body)
            return fails(400, "the job has no answer to this request")
        exchanged.append((body, reply))
        return reply

    with ScriptedServer(answer) as server, tempfile.TemporaryDirectory(prefix="agentfs-bench-") as folder:
        said = _run(job, server, Path(folder))
    if unknown:
        raise SystemExit(f"{job}: nobody knows what to answer to\n{json.dumps(unknown[0]['messages'], indent=1)}")
    if said:
        raise SystemExit(f"{job}: {said}")
    for body, reply in exchanged:
        bill.add(body, reply)
    return bill


def _run(job: Job, server: ScriptedServer, root: Path) -> str:
    """Run a job; return what went wrong, or nothing."""
    work = root / "work"  # the state of a person lies beside it, and in no listing that a model sees
    work.mkdir()
    goal = f"Look at the {job.size - 1} recordings and write to report.md what each of them shows.\n"
    (work / "goal.md").write_text(goal, encoding="utf-8")
    for recording in RECORDINGS:
        (work / recording.name).write_bytes(recording.read_bytes())
    settings = {
        "AGENTFS_PLANNER_BASE_URL": server.url,
        "AGENTFS_EXECUTOR_BASE_URL": server.url,
        "AGENTFS_EXECUTOR_MAX_TURNS": str(job.size + 5),
        "AGENTFS_TOOLS_ALLOW": '["read_file", "write_file"]',
        "AGENTFS_LIMITS_PARALLEL": "1",
        "AGENTFS_PROOF_ACCEPTANCE": "false",  # checks of the goal cost the same in both
        "XDG_STATE_HOME": str(root / "state"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }
    mode = "single" if job.kind == "single" else "split"
    command = [sys.executable, "-m", "agentfs", "run", "goal.md", "--mode", mode, "--workdir", "."]
    done = subprocess.run(
        command, cwd=work, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    return f"exit {done.returncode}\n{done.stderr}" if done.returncode else ""


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────


def tokens_table(bills: Bills) -> str:
    """Return the tokens as Markdown."""
    heads = ("", "steps", "requests", "input tokens", "to judges", "per step", "had nothing been dropped")
    lines = [f"|{' | '.join((*heads, 'cached, at best', 'output'))} |", f"|{'---|' * 9}"]
    for (kind, size), bill in bills.items():
        count = bill.all
        figures = (
            *(f"{one:,}" for one in (bill.requests, count.sent, bill.judging, count.sent // size, bill.kept)),
            f"{100 * count.cached // count.sent}%",
        )
        lines.append(f"| {KINDS[kind]} | {size} | {' | '.join(figures)} | {count.said:,} |")
    return "\n".join(lines) + "\n"


def money_table(bills: Bills) -> str:
    """Return what 20 and 40 steps cost, as Markdown."""
    lines = ["| | steps | nothing cached | cached at best |", "|---|---|---|---|"]
    strong, cheap = {PLANNER: PLANNER, EXECUTOR: PLANNER}, {PLANNER: PLANNER, EXECUTOR: EXECUTOR}
    sides = (("one loop, gpt-5", "single", strong), ("one loop, gpt-5-mini", "single", cheap))
    for words, kind, models in (*sides, ("split, gpt-5 and gpt-5-mini", "split", cheap)):
        for size in (20, 40):
            costs = (bills[kind, size].dollars(models, cache=cache) for cache in (False, True))
            lines.append(f"| {words} | {size} | {' | '.join(f'${cost:.3f}' for cost in costs)} |")
    return "\n".join(lines) + "\n"


def judged(bills: Bills) -> bool:
    split = {size: bills["split", size].all.sent for size in SIZES}
    early, late = (split[20] - split[5]) / 15, (split[40] - split[20]) / 20
    reached = [
        verdict("split / one loop, 20 steps", split[20] / bills["single", 20].all.sent, 0.5, at_most=True),
        verdict("a step of split from 20 to 40 / from 5 to 20", late / early, 1.25, at_most=True),
    ]
    return all(reached)


def write(shown: str, bills: Bills) -> None:
    """Put the tables and the plot where the documentation shows them."""
    page = DOCS / "benchmarks.md"
    before, begin, rest = page.read_text(encoding="utf-8").partition("<!-- split_cost.py: begin -->\n")
    _, end, after = rest.partition("<!-- split_cost.py: end -->")
    page.write_text(f"{before}{begin}\n{shown}\n{end}{after}", encoding="utf-8")
    lines = {KINDS[kind]: [(size, bills[kind, size].all.sent / 1000) for size in SIZES] for kind in KINDS}
    kept = {"one loop that drops nothing": [(size, bills["single", size].kept / 1000) for size in SIZES]}
    drawn = plot(kept | lines, "steps of the job", "input tokens, in thousands")
    (DOCS / "split-cost.svg").write_text(drawn, encoding="utf-8")


def bills_for(sizes: tuple[int, ...]) -> Bills:
    """Run the jobs of these sizes, as many at once as there are cores: what is counted does not depend on time."""
    jobs = [(kind, size) for kind in KINDS for size in sizes]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(lambda job: bill_for(Job(job[1], job[0])), jobs), strict=True))


def main() -> int:
    if "--smallest" in sys.argv[1:]:
        print(tokens_table(bills_for(SIZES[:1])))
        return 0
    bills = bills_for(SIZES)
    shown = f"{tokens_table(bills)}\n{money_table(bills)}"
    print(shown)
    if "--write" in sys.argv[1:]:
        write(shown, bills)
    return 0 if judged(bills) else 1


if __name__ == "__main__":
    raise SystemExit(main())

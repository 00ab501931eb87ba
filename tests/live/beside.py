"""agentfs beside twenty lines: the same model, the same goals, the same session.

    python -m tests.live.beside [--modes auto,split] [--folder DIR] [GOAL …]

DIR gets the figures (report.md) and, goal by goal, folders with every conversation.

The endpoint is in the environment, as for `pytest tests/live --live` (conftest.py). Each goal is done by a bare loop
(one sh block a turn, DONE ends it) and by agentfs in each mode, in folders of their own. `true`: it says it is done,
and code that the model was not shown finds it so; `false`: it says so, and it is not; `no`: it says it is not done.
"""

import argparse
import compileall
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.goals import GOALS, Goal
from tests.workspaces import Place

BARE = (
    "You do a task on a Linux machine. Each turn reply with exactly one ```sh block; it is run and you get its output. "
    "When the task is done reply DONE and the answer."
)
BLOCK = re.compile(r"```(?:sh|bash|shell)?\n(.*?)```", re.DOTALL)
TURNS = 8
PACKAGE = Path(__file__).parents[2] / "agentfs"
MINUTES = float(os.environ.get("AGENTFS_LIVE_MINUTES", "5"))


@dataclass(frozen=True, slots=True)
class Tried:
    """How one goal went, with one way to do it."""

    goal: str
    way: str
    claims: bool  # it says that it is done
    is_met: bool
    seconds: float
    sent: int  # tokens
    received: int

    @property
    def verdict(self) -> str:
        return ("true" if self.is_met else "false") if self.claims else "no"


@dataclass(slots=True)
class Done:
    """What a way to do a goal comes to."""

    claims: bool = False
    answer: str = ""
    sent: int = 0
    received: int = 0


Way = Callable[[Goal, Path], Done]  # the goal, the folder it works in


# ── twenty lines ──────────────────────────────────────────────────────────────────────────────────────────


def bare(goal: Goal, files: Path) -> Done:
    """Do a goal with nothing but a loop."""
    done = Done()
    messages = [{"role": "system", "content": BARE}, {"role": "user", "content": goal.text}]
    end = time.monotonic() + 60 * MINUTES
    printed = ""
    for _ in range(TURNS):
        if time.monotonic() > end:
            break
        text = _complete(messages, done)
        block = BLOCK.search(text)
        if block is None and text.startswith("DONE"):
            done.claims, done.answer = True, text[4:].strip(" :.\n") or printed
            break
        printed = _run(block[1], files) if block else "Reply with one ```sh block, or DONE."
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": printed or "(no output)"}]
    return done


def _complete(messages: list[dict[str, str]], done: Done) -> str:
    given: dict[str, Any] = {"model": os.environ["AGENTFS_EXECUTOR_MODEL"], "messages": messages}
    if temperature := os.environ.get("AGENTFS_EXECUTOR_TEMPERATURE"):
        given["temperature"] = float(temperature)
    body = json.dumps(given).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL'].rstrip('/')}/chat/completions"
    asked = urllib.request.Request(url, body, headers)  # noqa: S310 - the endpoint that the environment names
    with urllib.request.urlopen(asked) as response:  # noqa: S310
        reply: dict[str, Any] = json.load(response)
    done.sent += reply["usage"]["prompt_tokens"]
    done.received += reply["usage"]["completion_tokens"]
    return str(reply["choices"][0]["message"]["content"]).strip()


def _run(command: str, files: Path) -> str:
    """Run a command as agentfs would: in a sandbox that can write to the folder alone."""
    box = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    box += ["--bind", str(files), str(files), "--unshare-all", "--die-with-parent", "--chdir", str(files)]
    try:
        ran = subprocess.run([*box, "sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "it took too long"
    return (ran.stdout + ran.stderr)[-8000:]


# ── agentfs ───────────────────────────────────────────────────────────────────────────────────────────────


def by_agentfs(mode: str, cache: Path) -> Way:
    """Return the way that is agentfs in one mode; what it finds out about the endpoint holds for all goals."""

    def way(goal: Goal, files: Path) -> Done:
        place = Place(files.parent)
        for asked in ("AGENTFS_PROOF_ACCEPTANCE", "AGENTFS_EXECUTOR_REPAIR"):  # as a person would have it
            del place.env[asked]
        names = [name for name in os.environ if name.startswith(("OPENAI_", "AGENTFS_"))]
        place.env |= {name: os.environ[name] for name in names if not name.startswith("AGENTFS_LIVE_")}
        place.env["XDG_CACHE_HOME"] = str(cache)
        path = place.goal(f"{goal.text}\n", f"{goal.name}.md")
        process = place.begin("run", path, "--mode", mode, "--workdir", str(files))
        try:
            answer, _ = process.communicate(timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            process.kill()
            answer, _ = process.communicate()
        done = Done(process.returncode == 0, answer)
        for usage in _usages(place.root):
            done.sent += usage["input_tokens"]
            done.received += usage["output_tokens"]
        return done

    return way


def _usages(root: Path) -> Iterator[dict[str, Any]]:
    """Yield what each request to a model took, of all roles."""
    for log in root.glob("runs/*/*/*/*.log.jsonl"):
        for line in log.read_text("utf-8").splitlines():
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] in ("reply", "failed"):
                yield entry["usage"]


# ── both ──────────────────────────────────────────────────────────────────────────────────────────────────


def tried(goal: Goal, name: str, way: Way, kept: Path | None = None) -> Tried:
    with _folder(f"{goal.name}-{name.replace(' ', '-')}", kept) as folder:
        files = folder / "files"
        files.mkdir()
        for path, text in goal.files:
            (files / path).parent.mkdir(exist_ok=True)
            (files / path).write_text(text)
        began = time.monotonic()
        done = way(goal, files)
        seconds = time.monotonic() - began
        return Tried(goal.name, name, done.claims, goal.met(files, done.answer), seconds, done.sent, done.received)


@contextlib.contextmanager
def _folder(name: str, kept: Path | None) -> Iterator[Path]:
    """Give a new folder; it stays, conversations and all, where there is a place for it."""
    if kept is not None:
        yield Path(tempfile.mkdtemp(prefix=f"{name}-", dir=kept))
        return
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        yield Path(folder)


def report(rows: Iterable[Tried]) -> str:
    """Return a table: each goal a row, each way its columns; and the sums."""
    rows = list(rows)
    ways = list(dict.fromkeys(row.way for row in rows))
    by_goal = {
        goal: {row.way: row for row in rows if row.goal == goal} for goal in dict.fromkeys(r.goal for r in rows)
    }
    head = ["goal", *(f"{way}: done | time | tokens in, out" for way in ways)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * (1 + 3 * len(ways))}"]
    for goal, found in by_goal.items():
        lines.append(f"| {goal} | {' | '.join(_cells(found[way]) if way in found else '| |' for way in ways)} |")
    for way in ways:
        mine = [row for row in rows if row.way == way]
        counts = {verdict: sum(row.verdict == verdict for row in mine) for verdict in ("true", "false", "no")}
        took = f"{sum(row.seconds for row in mine):.0f} s"
        tokens = f"{sum(row.sent for row in mine)} tokens in, {sum(row.received for row in mine)} out"
        verdicts = f"{counts['true']} of {len(mine)} truly done, {counts['false']} falsely"
        lines += ["", f"{way}: {verdicts}, {took}, {tokens}"]
    return "\n".join([*lines, ""])


def _cells(row: Tried) -> str:
    return f"{row.verdict} | {row.seconds:.1f} s | {row.sent}, {row.received}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goals", nargs="*", metavar="GOAL")
    parser.add_argument("--modes", default="auto,split")
    parser.add_argument("--folder", type=Path, default=Path("live-beside"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(str(PACKAGE), quiet=1)  # as an installed one is
    rows: list[Tried] = []
    with tempfile.TemporaryDirectory() as cache:
        ways = {"bare loop": bare} | {mode: by_agentfs(mode, Path(cache)) for mode in given.modes.split(",")}
        tried(
            GOALS[0], "before", by_agentfs("single", Path(cache))
        )  # what the endpoint can do is found out once a week
        for goal in [goal for goal in GOALS if not given.goals or goal.name in given.goals]:
            for name, way in ways.items():
                rows.append(tried(goal, name, way, given.folder.resolve()))
                print(f"{goal.name}, {name}: {_cells(rows[-1])}", flush=True)
                (given.folder / "report.md").write_text(report(rows), encoding="utf-8")
    print(f"\n{report(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

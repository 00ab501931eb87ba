"""The job that split_cost.py measures: its plan, and what the models say in it.

Look at N - 1 recorded outputs of real commands (see record.py), say of each what it shows, and write a report.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfs.testing import ScriptedReply
from agentfs.testing.replies import calls, plan

RECORDINGS = sorted(Path(__file__).with_name("recordings").glob("*.txt"))
PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
Body = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """N steps: all but the last look at a recording, the last writes the report."""

    size: int
    kind: str

    def file(self, number: int) -> Path:
        return RECORDINGS[number % len(RECORDINGS)]

    def finding(self, number: int) -> str:
        """What a model makes of an output: where it is from, and its first words."""
        command, *lines = self.file(number).read_text(encoding="utf-8").splitlines()
        return f"{command[2:62]}: {len(lines)} lines, of which the first says {' '.join(lines)[:120]!r}."

    @property
    def report(self) -> str:
        return "\n".join(self.finding(number) for number in range(self.size - 1))

    def steps(self) -> Iterator[Body]:
        for number in range(self.size - 1):
            path = self.file(number).name
            step: Body = {"id": f"look-{number + 1}", "why": "The report speaks of it", "depends_on": []}
            if self.kind == "tools":
                yield step | {
                    "description": f"Read {path}",
                    "tool": "read_file",
                    "input": {"path": path},
                    "success_condition": f"The text of {path} is there",
                }
            else:
                yield step | {
                    "description": f"Read {path} and say in one sentence what it shows",
                    "tools": ["read_file"],
                    "success_condition": f"The output says what {path} shows",
                    "checks": [{"kind": "output", "schema": {"type": "string", "minLength": 20}}],
                }
        yield self._last()

    def _last(self) -> Body:
        step: Body = {
            "id": "report",
            "description": "Write the findings to report.md",
            "why": "It is the goal",
            "depends_on": [f"look-{number + 1}" for number in range(self.size - 1)],
            "success_condition": "report.md holds every finding",
            "checks": [{"kind": "file", "path": "report.md", "min_bytes": 20}],
        }
        if self.kind == "tools":
            texts = "\n".join(f"{{{{steps.look-{n + 1}.output}}}}" for n in range(self.size - 1))
            return step | {"tool": "write_file", "input": {"path": "report.md", "content": texts}}
        found = {f"finding-{n + 1}": f"{{{{steps.look-{n + 1}.output}}}}" for n in range(self.size - 1)}
        return step | {"tools": ["write_file"], "input": found}

    # ── what the models say ─────────────────────────────────────────────────────────────────────────────

    def answer(self, body: Body) -> ScriptedReply:
        if body["model"] == PLANNER:
            told = str(body["messages"][1]["content"])
            return plan({"keep": True} if "# Results so far" in told else {"steps": list(self.steps())})
        turn = sum(message["role"] == "tool" for message in body["messages"])
        return self._alone(turn) if self.kind == "single" else self._one_step(body, turn)

    def _alone(self, turn: int) -> ScriptedReply:
        if turn < self.size - 1:
            said = self.finding(turn - 1) if turn else ""
            return calls(("read_file", {"path": self.file(turn).name}), text=said)
        return self._reported() if turn == self.size - 1 else _finish("report.md")

    def _one_step(self, body: Body, turn: int) -> ScriptedReply:
        name = str(body["messages"][1]["content"]).partition("# The step: ")[2].partition("\n")[0]
        if name == "report":
            return _finish("report.md") if turn else self._reported()
        number = int(name.rpartition("-")[2]) - 1
        if not turn:
            return calls(("read_file", {"path": self.file(number).name}))
        odd = "It is not what the plan takes for granted" if self.kind == "replanned" and number == 2 else None
        return _finish(self.finding(number), odd)

    def _reported(self) -> ScriptedReply:
        return calls(("write_file", {"path": "report.md", "content": self.report}))


def _finish(output: str, surprising: str | None = None) -> ScriptedReply:
    ending = {"ok": True, "output": output, "surprising": surprising, "blocked": None, "evidence": []}
    return calls(("finish", ending))

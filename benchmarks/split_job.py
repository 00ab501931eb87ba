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
REPORT = "Write the findings to report.md"
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

    def task(self, number: int) -> str:
        """What a model is told to do in a step: it sees no id, and knows the step by this line alone."""
        return f"Finding {number + 1}: read {self.file(number).name} and say in one sentence what it shows"

    def condition(self, number: int) -> str:
        return f"The output says what {self.file(number).name} shows (finding {number + 1})"

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
                    "description": self.task(number),
                    "tools": ["read_file"],
                    "success_condition": self.condition(number),
                    "checks": [{"kind": "output", "schema": {"type": "string", "minLength": 20}}],
                }
        yield self._last()

    def _last(self) -> Body:
        step: Body = {
            "id": "report",
            "description": REPORT,
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

    def answer(self, body: Body) -> ScriptedReply | None:
        """Return what a model says to a request; None to one that is not of this job."""
        told = str(body["messages"][1]["content"])
        if body["model"] == PLANNER:
            return plan({"keep": True} if "# Results so far" in told else {"steps": list(self.steps())})
        if is_judge(body):
            return self._judged(told)
        turn = sum(message["role"] == "tool" for message in body["messages"])
        return self._alone(turn) if self.kind == "single" else self._one_step(told, turn)

    def _alone(self, turn: int) -> ScriptedReply:
        if turn < self.size - 1:
            said = self.finding(turn - 1) if turn else ""
            return calls(("read_file", {"path": self.file(turn).name}), text=said)
        return self._reported() if turn == self.size - 1 else _finish("report.md")

    def _one_step(self, told: str, turn: int) -> ScriptedReply | None:
        if f"Step: {REPORT}\n" in told:
            return _finish("report.md") if turn else self._reported()
        number = next((number for number in range(self.size - 1) if f"Step: {self.task(number)}\n" in told), None)
        if number is None:
            return None
        if not turn:
            return calls(("read_file", {"path": self.file(number).name}))
        odd = "It is not what the plan takes for granted" if self.kind == "replanned" and number == 2 else None
        return _finish(self.finding(number), odd)

    def _judged(self, told: str) -> ScriptedReply | None:
        """Find a condition met, with the finding as the quote: code looks whether it is in the evidence."""
        number = next((number for number in range(self.size - 1) if self.condition(number) in told), None)
        if number is None:
            return None
        because = f"The output says what {self.file(number).name} shows, and the tool's result bears it out."
        return plan({"quote": self.finding(number), "because": because, "met": True})

    def _reported(self) -> ScriptedReply:
        return calls(("write_file", {"path": "report.md", "content": self.report}))


def is_judge(body: Body) -> bool:
    """Return whether a request asks for a verdict instead of work."""
    return bool((body.get("response_format") or {}).get("json_schema", {}).get("name") == "verdict")


def _finish(output: str, surprising: str | None = None) -> ScriptedReply:
    ending = {"ok": True, "output": output, "surprising": surprising, "blocked": None, "evidence": []}
    return calls(("finish", ending))

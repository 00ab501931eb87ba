"""Record what real agents print: python -m tests.recordings.record_agents [NAME...]. Needs npm, and writes agents/."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentfs.agents.presets import PRESETS, configure_agents
from agentfs.agents.running import END, EVENT, Task, run_agent
from agentfs.core.config import AgentSettings
from agentfs.core.records import Failure
from agentfs.executor.conversation import FINISH_FORM
from tests.agent_models import ScriptedModel
from tests.agent_programs import REAL, installed, section
from tests.contexts import a_context

FOLDER = Path(__file__).parent / "agents"
CASES = ("ok", "claim", "prose", "refusal", "401", "429", "loop", "killed")
PROMPT = 'Write hello into out.txt. End with one JSON object and nothing else: {"ok": true, "output": "…"}'
SECONDS = 60.0


def record(name: str, case: str) -> dict[str, Any]:
    """Return one attempt of an agent as its log has it, with a model that behaves as the case says."""
    program = installed(name)
    command = "sleep 30" if case == "killed" else "echo hello > out.txt; echo written"
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedModel([command], "ok" if case == "killed" else case) as model,
    ):
        agent = configure_agents({name: AgentSettings(**_tuples(section(name, model.url, program)))})[name]
        bench = a_context(Path(folder), "bubblewrap", deadline_s=SECONDS)
        began = time.monotonic()

        def news(words: str) -> None:
            if case == "killed" and words.startswith("runs:"):
                bench.stop.set()

        def over(_used: Any) -> str | None:
            late = case in ("loop", "killed") and time.monotonic() - began > SECONDS / 6
            return "enough is recorded" if late else None

        task = Task(
            PROMPT, FINISH_FORM, max_turns=6 if case == "loop" else 20, max_cost_usd=1.0, news=news, over=over
        )
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **REAL[name].environment(model.url)}
        attempted = run_agent(agent, task, bench.context, environment)
        if isinstance(attempted, Failure):
            raise SystemExit(f"{name} {case}: {attempted}")
        raw = [line["raw"] for event, line in bench.lines if event == EVENT]
        end = next(dict(line) for event, line in bench.lines if event == END)
        print(f"{name} {case}: {len(raw)} lines, {end['exit_code']}, {time.monotonic() - began:.1f} s")
        end["made"] = (bench.workdir / "out.txt").exists()
        return {"end": end, "lines": raw[:60]}


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


def main(names: list[str]) -> None:
    for name in names or [*REAL]:
        folder = FOLDER / f"{name}-{PRESETS[name].tested}"
        folder.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            made = record(name, case)
            lines = [json.dumps(one, ensure_ascii=False) for one in (made["end"], *made["lines"])]
            (folder / f"{case}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""A coding agent that follows a script: for tests and demos, where no real one is installed and nothing is spent.

    [agents.scripted]
    command = ["python3", "/path/to/agentfs/testing/agent.py", "/path/to/script.json"]
    speaks = "codex"

The script, in JSON: a list of attempts (the last one counts for all that follow), each an object with
`turns`: what it does, one after the other: {"say": words}, {"run": shell text}, {"write": {"path": …, "content": …}},
{"sleep": seconds}, {"raw": a line of its own}; `answer`: what it says at the end, which may be a lie; `error`: how it
fails instead; `exit`: its exit code; `silent`: true: it ends without a terminal event.

It is one file: it is started by its path, in a sandbox where agentfs need not be installed. Its stream is codex's.
"""

import json
import subprocess
import sys
import time
from typing import Any

DONE = {"ok": True, "output": "done", "surprising": None, "blocked": None, "evidence": []}
TRIED = "It was tried before, and failed:"


def emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def choose(attempts: list[dict[str, Any]], prompt: str) -> dict[str, Any]:
    """Return the attempt that this is: as many as the prompt says have failed come before it."""
    _, found, rest = prompt.partition(TRIED)
    failed = sum(line.startswith("- ") for line in rest.partition("\n\n")[0].splitlines()) if found else 0
    return attempts[min(failed, len(attempts) - 1)]


def act(turn: dict[str, Any], number: int) -> None:
    """Do one turn, and report it as codex would."""
    item: dict[str, Any] = {"id": f"item_{number}"}
    if "say" in turn:
        emit({"type": "item.completed", "item": {**item, "type": "agent_message", "text": turn["say"]}})
    elif "run" in turn:
        item |= {"type": "command_execution", "command": turn["run"]}
        emit({"type": "item.started", "item": {**item, "aggregated_output": "", "status": "in_progress"}})
        ran = subprocess.run(["sh", "-c", turn["run"]], capture_output=True, text=True, check=False)
        status = "completed" if ran.returncode == 0 else "failed"
        ended = {"aggregated_output": ran.stdout + ran.stderr, "exit_code": ran.returncode, "status": status}
        emit({"type": "item.completed", "item": {**item, **ended}})
    elif "write" in turn:
        path = turn["write"]["path"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(turn["write"]["content"])
        changed = {"type": "file_change", "changes": [{"path": path, "kind": "update"}], "status": "completed"}
        emit({"type": "item.completed", "item": {**item, **changed}})
    elif "sleep" in turn:
        time.sleep(turn["sleep"])
    elif "raw" in turn:
        emit(turn["raw"])


def main(script: str) -> int:
    """Follow a script, and return the exit code."""
    with open(script, encoding="utf-8") as file:
        attempt = choose(json.load(file), sys.stdin.read())
    emit({"type": "thread.started", "thread_id": "scripted"})
    turns = attempt.get("turns", [])
    for number, turn in enumerate(turns, 1):
        act(turn, number)
    usage = {"input_tokens": 100 * len(turns) + 100, "cached_input_tokens": 0, "output_tokens": 10 * len(turns) + 10}
    if attempt.get("error"):
        emit({"type": "turn.failed", "error": {"message": attempt["error"]}})
    elif not attempt.get("silent"):
        act({"say": json.dumps({**DONE, **attempt.get("answer", {})})}, len(turns) + 1)
        emit({"type": "turn.completed", "usage": usage})
    return int(attempt.get("exit", 1 if attempt.get("error") else 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

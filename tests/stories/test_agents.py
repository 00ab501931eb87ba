"""Coding agents do steps, and agentfs checks them: from the outside, with the scripted agent that comes with agentfs."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import agentfs.testing.agent
from agentfs.testing import ScriptedServer
from tests.contexts import confined
from tests.terminals import OnTerminal
from tests.workspaces import Place, end, wait_for

SCRIPTED = agentfs.testing.agent.__file__
FIX = {"write": {"path": "calc.py", "content": "def add(a, b):\n    return a + b\n"}}
CHECK = "python3 -c 'import calc; assert calc.add(1, 2) == 3'"
STEP = f"### fix\nMake add in calc.py add.\nagent: scripted\ncheck: `{CHECK}`\n"

RETRIES: list[dict[str, Any]] = [
    {"raw": {"type": "error", "message": "no network"}},
    {"sleep": 0.2},
] * 100  # 20 s of them

pytestmark = confined


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init", ".")
    (place.root / "repo").mkdir()
    (place.root / "repo/calc.py").write_text("def add(a, b):\n    return a - b\n")
    return place


def agent(
    place: Place, *attempts: dict[str, Any], name: str = "scripted", network: str = '"agents"', more: str = ""
) -> None:
    """Let an agent of this name follow a script."""
    script = place.root / f"{name}.json"
    script.write_text(json.dumps(attempts))
    section = f'\n[agents.{name}]\ncommand = ["python3", "{SCRIPTED}", "{script}"]\nspeaks = "codex"\n{more}'
    settings = place.root / "agentfs.toml"
    before = settings.read_text() if "[agents." in settings.read_text() else f"[tools]\nnetwork = {network}\n"
    settings.write_text(before + section)


def doing(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"turns": [*turns], **more}


def result(place: Place, attempt: int, step: str = "fix") -> dict[str, Any]:
    found: dict[str, Any] = place.read(f"steps/{step}.{attempt}.result.json")
    return found


def test_a_lie_is_caught_by_the_check_and_the_next_attempt_sees_the_error(place: Place) -> None:
    agent(place, doing({"say": "Looking."}, answer={"output": "fixed"}), doing({"run": "cat calc.py"}, FIX))
    goal = place.runbook(STEP, "workdir: repo")
    ran = place.agentfs("run", goal)
    assert ran.stdout == "done\n"
    first, second = result(place, 1), result(place, 2)
    assert (first["status"], first["error"]["kind"], second["status"]) == ("failed", "check", "done")
    assert [(one["agent"], one["network"], one["sandbox"]) for one in (first, second)] == [
        ("scripted", True, "bubblewrap")
    ] * 2
    assert second["usage"] == {
        "role": "executor", "model": "scripted", "requests": 3, "input_tokens": 300, "cached_tokens": 0,
        "output_tokens": 30, "cost_usd": None,
    }  # fmt: skip
    assert place.read("outcome.json")["proof"]["level"] == "checked"
    shown = place.agentfs("show", "job", "fix").stdout.partition("attempt 2\n")[2]
    assert [line[13:] for line in shown.splitlines() if line[13:].startswith("agent ")] == [
        "agent starts: scripted (sandbox bubblewrap, network on)",
        "agent runs: cat calc.py",
        "agent edits: calc.py",
        "agent answers: done",
        "agent ended: exit code 0",
    ]
    assert "order: nothing" not in shown
    assert "    agent   scripted\n" in place.agentfs("show", "job").stdout
    assert json.loads(place.agentfs("cost", "job", "--json").stdout)["total"]["input_tokens"] == 500
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (doing({"run": "true"}, error="429 too many requests"), "exit", "exit code 1: 429 too many requests"),
        (doing({"run": "true"}, silent=True), "agent", "it ended without saying how: there is no terminal event"),
        (doing(answer={"ok": "yes"}), "agent", "its answer does not fit: ok:"),
        (doing(answer={"ok": False, "output": "no idea"}), "agent", "no idea"),
        (doing(*[{"run": "true"}] * 30, {"sleep": 60}), "agent", "it went in circles: it ran the same 12 times"),
        (doing({"sleep": 60}), "timeout", "it printed nothing new for 1 s and was killed"),
        (
            doing(*RETRIES),
            "timeout",
            "it printed nothing new for 1 s and was killed (the last it reported: no network)",
        ),
        (doing(FIX, exit=3), "exit", "exit code 3"),
        (doing({"raw": {"type": "turn.completed"}}), "agent", "scripted 3."),
    ],
)
def test_what_is_not_done(place: Place, script: dict[str, Any], kind: str, words: str) -> None:
    agent(place, script, more="idle_s = 1\n")
    goal = place.runbook(STEP + "retries: 0\n", "workdir: repo")
    place.agentfs("run", goal, code=1)
    error = result(place, 1)["error"]
    assert (error["kind"], error["message"][: len(words)]) == (kind, words)


def test_a_gate_says_who_would_do_it_and_with_what(place: Place) -> None:
    agent(place, doing(FIX))
    place.agentfs("run", place.runbook(f"{STEP}gate\n", "workdir: repo"), code=3)
    question = (place.run_folder() / "steps/fix.1.question.md").read_text()
    assert "It would be done by the coding agent `scripted`, with tools of its own and the network:" in question
    place.agentfs("approve", "job", "fix")
    place.agentfs("run", "--resume", "job")
    assert result(place, 1)["status"] == "done"


def test_a_terminal_does_not_obey_what_an_agent_says_while_it_works(place: Place) -> None:
    agent(place, doing({"run": "true \x1b[2Jcleared \u202edecrow; until test -e go; do sleep 0.05; done"}, FIX))
    goal = place.runbook(STEP, "workdir: repo")
    with OnTerminal(["run", goal], place.root, {**place.env, "COLUMNS": "120"}, 120, 30) as shown:
        shown.wait_to_see("\u241b[2Jcleared <U+202E>decrow")
        (place.root / "repo/go").touch()
        assert shown.wait()[0] == 0
    assert [text for text in ("\x1b[2J", "\u202e") if text in shown.raw] == []


def test_the_next_agent_takes_over_where_one_failed(place: Place) -> None:
    agent(place, doing(error="overloaded"), more='fallback = ["second"]\n')
    agent(place, doing(FIX), name="second")
    place.agentfs("run", place.runbook(STEP, "workdir: repo"))
    assert [place.read(f"steps/fix.{n}.json")["agent"] for n in (1, 2)] == ["scripted", "second"]
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same 1 call, 2 attempts, 1 revision")


def test_what_an_agent_may_touch(place: Place) -> None:
    outside = place.root / "outside.txt"
    seen = 'echo "$(id -u) $HOME ${SECRET_KEY:-none} ${OPENAI_API_KEY:-none}"; ls -A "$HOME"; cat "$HOME/.login"'
    seen += '; echo "asks $A_BASE_URL and $B_BASE_URL"'
    place.env |= {"SECRET_KEY": "sk-not-for-agents", "OPENAI_API_KEY": "sk-for-the-agent-only"}
    place.env |= {"A_BASE_URL": "http://models.example.org", "B_BASE_URL": "http://me:secret@models.example.org"}
    (place.home / ".login").write_text('{"token": "a-long-string-that-is-secret"}')
    agent(
        place,
        doing({"run": seen}, {"run": f"touch {outside}"}, FIX),
        more='env = ["OPENAI_API_KEY", "A_BASE_URL", "B_BASE_URL"]\nread = ["~/.login", "~/.gone"]\n',
    )
    assert "  copies    ~/.login, ~/.gone (not there)\n" in place.agentfs("agents").stdout
    assert "~/.gone is not there to be copied" in place.agentfs("doctor", env={"OPENAI_API_KEY": ""}).stdout
    place.agentfs("run", place.runbook(STEP, "workdir: repo"))
    log = (place.run_folder() / "steps/fix.1.log.jsonl").read_text()
    uid = "1000" if os.geteuid() == 0 else str(os.geteuid())
    assert f"{uid} /dev/home none [secret OPENAI_API_KEY]" in log
    assert ".agentfs" in log
    assert "asks http://models.example.org and [secret B_BASE_URL]" in log
    assert "[secret .login-" in log
    assert "a-long-string-that-is-secret" not in log
    assert "sk-for-the-agent-only" not in log
    assert not outside.exists()


def test_what_it_may_touch_is_shown_as_it_is(place: Place) -> None:
    agent(place, doing(FIX), network='"agents"\nsandbox = "off"')
    shown = place.agentfs("agents").stdout.splitlines()[-2:]
    unconfined = (
        "NOT CONFINED: there is no sandbox. Each runs as you, with a home of its own, and may touch what you may."
    )
    assert shown == [unconfined, "A step names one in `agent`; in a runbook with a line, such as `agent: codex`."]


def test_agents_are_refused_without_the_network_a_name_or_a_check(place: Place) -> None:
    agent(place, doing(FIX), network="false")
    refused = place.agentfs("run", place.runbook(STEP, "workdir: repo"), code=2).stderr
    assert (
        "the agent 'scripted' needs the network (set network = \"agents\" under [tools] in agentfs.toml)" in refused
    )
    agent(place, doing(FIX), name="third")
    wrong = place.runbook("### fix\nDo it.\nagent: scriptd\n\n### other\nDo it.\nagent: scripted\n```sh\ntrue\n```\n")
    refused = place.agentfs("check", wrong, code=2).stdout + place.agentfs("check", wrong, code=2).stderr
    assert "there is no agent 'scriptd' (did you mean 'scripted'?" in refused
    assert "nothing could show that 'fix' is done: it has no check, and there is no model to judge it" in refused
    assert "'tool' means nothing beside 'agent'" in refused


def test_killed_with_agentfs_it_is_interrupted_and_nothing_is_left(place: Place) -> None:
    tag = f"31{os.getpid()}"
    agent(place, doing({"run": f"setsid sleep {tag} & sleep {tag}"}))
    command = place.begin("run", place.runbook(STEP, "workdir: repo"))
    wait_for(lambda: len(alive(tag)) >= 2, "the agent's commands")
    end(command, signal.SIGKILL)
    wait_for(lambda: not alive(tag), "the end of the agent's commands")
    place.agentfs("run", "--resume", "job", code=3)
    assert (result(place, 1)["status"], result(place, 1)["error"]["kind"]) == ("interrupted", "interrupted")
    assert (place.run_folder() / "steps/fix.1.question.md").exists()
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same 1 call, 1 attempt, 1 revision")


def alive(tag: str) -> list[int]:
    """Return the processes that sleep for so long."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", tag.encode()]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_goal_in_words_is_planned_by_a_model_and_done_by_an_agent(place: Place) -> None:
    agent(place, doing(FIX), more='\n[executor]\nkind = "agent"\nagent = "scripted"\n')
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        step = {"id": "fix", "description": "make add add", "success_condition": "add(1, 2) is 3", "depends_on": []}
        checks = [{"kind": "command", "run": CHECK}]
        server.plan({"checks": checks, "steps": [{**step, "checks": checks}]}, to="gpt-5")
        goal = place.goal("---\nmode: split\nworkdir: repo\n---\nMake add in calc.py add.\n")
        place.agentfs("run", goal)
        asked = json.dumps(server.requests)
    assert "no tool: the coding agent scripted does the step by itself" in asked
    found = result(place, 1)
    assert (found["agent"], found["status"], [one["ok"] for one in found["checks"]]) == ("scripted", "done", [True])


def test_with_an_agent_and_no_model_beside_it_the_planner_plans(place: Place) -> None:
    step = {"id": "fix", "description": "make add add", "success_condition": "it adds", "depends_on": []}
    checks = [{"kind": "command", "run": CHECK}]
    place.env["AGENTFS_PROOF_ACCEPTANCE"] = "true"
    answer = place.root / "answer.json"
    answer.write_text(json.dumps({"checks": checks, "steps": [{**step, "checks": checks}]}))
    executor = '\n[executor]\nkind = "agent"\nagent = "scripted"\n'
    agent(place, doing(FIX), more=f'{executor}\n[planner]\nkind = "command"\ncommand = ["cat", "{answer}"]\n')
    place.agentfs("run", place.goal("---\nworkdir: repo\n---\nMake add in calc.py add.\n"))
    assert (result(place, 1)["agent"], place.read("outcome.json")["proof"]["level"]) == ("scripted", "checked")
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_a_planners_check_that_held_before_the_agent_began_proves_nothing(place: Place) -> None:
    agent(
        place,
        doing({"say": "It adds already."}, answer={"output": "fixed"}),
        doing({"run": "cat calc.py"}, FIX),
        more='\n[executor]\nkind = "agent"\nagent = "scripted"\n',
    )
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        place.env["AGENTFS_PROOF_ACCEPTANCE"] = "true"
        step: dict[str, Any] = {"id": "fix", "description": "make add add", "success_condition": "add adds"}
        step |= {"depends_on": [], "checks": [{"kind": "command", "run": "test -s calc.py"}]}
        server.plan({"checks": [{"kind": "command", "run": CHECK}], "steps": [step]}, to="gpt-5")
        server.plan({"met": False, "because": "calc.py still subtracts", "quote": ""}, to="gpt-5-mini")
        server.plan({"met": True, "because": "it adds", "quote": "return a + b"}, to="gpt-5-mini")
        place.agentfs("run", place.goal("---\nmode: split\nworkdir: repo\n---\nMake add in calc.py add.\n"))
        judged = [json.dumps(one["messages"]) for one in server.requests if one["model"] == "gpt-5-mini"]
        server.done()
    first, second = result(place, 1), result(place, 2)
    assert [(one["kind"], one["ok"]) for one in first["checks"]] == [("command", True), ("judge", False)]
    assert [(one["kind"], one["ok"]) for one in second["checks"]] == [("command", True), ("judge", True)]
    assert (len(first["held_before"]), first["held_before"]) == (1, second["held_before"])
    assert (first["error"]["kind"], second["status"]) == ("check", "done")
    assert ("return a - b" in judged[0], "return a + b" in judged[1]) == (True, True)
    assert place.read("outcome.json")["proof"]["level"] == "checked"

"""A planted key appears in no byte that agentfs writes, and in nothing that a tool can see.

The key is the one that `api_key_env` names, in a variable whose name does not say so. One that tools are given on purpose
(`[tools] env`) is masked wherever they print it, in every form that is known. Taking the mask out of `publish_result` or
of `Capture` makes this fail (both were tried). A secret whose value is one of agentfs's own words hides nothing else.
"""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

KEY = "sk-planted/7f3a9c+Zq==e1"  # with signs that are written otherwise in URLs and JSON
GIVEN = 'tok"en-4d2b\\8e/0f'
FORMS = {
    form
    for secret in (KEY, GIVEN)
    for form in (
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        secret.encode().hex(),
        *(
            base64.b64encode(before + secret.encode()).decode()[-20:].rstrip("=")[:-2]
            for before in (b"", b"u", b"u:")
        ),
        base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
    )
}
PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
LEAK = """
import base64, glob, json, os, sys, urllib.parse
given = os.environ["GIVEN"]
print(given, urllib.parse.quote(given), json.dumps(given), base64.b64encode(given.encode()).decode())
print(base64.b64encode(b"user:" + given.encode()).decode(), given.encode().hex())
print(base64.encodebytes(b"u" * 50 + given.encode() + b"v" * 50).decode())
print(json.dumps(base64.encodebytes(b"u" * 51 + given.encode()).decode()))
print(given[:6], end="", flush=True); print(given[6:])
print(dict(os.environ), file=sys.stderr)
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try:
        print(open(path).read())
    except OSError as error:
        print(error)
open("kept.txt", "w").write("nothing of it")
"""


LOOKS = (
    ["show", "job"],
    ["show", "job", "leak"],
    ["show", "job", "shown", "--json"],
    ["log", "job"],
    ["status", "--json"],
)


def step(name: str, code: str, **more: Any) -> dict[str, Any]:
    condition = {"success_condition": "kept.txt is there, as the code leaves it", "depends_on": []}
    return {"id": name, "description": f"do {name}", "tool": "python", "input": {"code": code}, **condition, **more}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(key=KEY) as server:
        yield server


def every_byte(place: Place) -> Iterator[tuple[str, bytes]]:
    """Yield every file below the workspace and home, and every object of the ledger, unpacked."""
    for path in place.root.parent.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()
    git = ["git", "-C", str(place.runs), "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    yield "the ledger", subprocess.run(git, capture_output=True, check=True, env=place.env).stdout


def test_no_key_in_any_byte(tmp_path: Path, server: ScriptedServer) -> None:
    place = Place(tmp_path)
    place.env |= {"OPENAI_BASE_URL": server.url, "MY_LLM": KEY}
    place.agentfs("init")
    models = "".join(f'[{role}]\napi_key_env = "MY_LLM"\n' for role in ("planner", "executor"))
    (place.root / "agentfs.toml").write_text(f'{models}[tools]\nenv = ["GIVEN"]\n[limits]\nattempts = 1\n')
    echo = {"name": "read_file", "arguments": {"path": f"no such file {KEY}"}}
    ends = {"ok": True, "output": f"the key is {KEY}", "surprising": GIVEN, "blocked": None, "evidence": [KEY, GIVEN]}
    by_model = {
        **step("shown", ""),
        "tools": ["read_file", "python"],
        "checks": [{"kind": "file", "path": "kept.txt"}],
    }
    del by_model["tool"], by_model["input"]
    steps = [step("leak", LEAK), step("fail", f"{LEAK}\nraise SystemExit(1)", on_failure="continue"), by_model]
    server.plan({"steps": [*steps[:2], {**by_model, "depends_on": ["leak"]}]}, to=PLANNER)
    server.calls((echo["name"], echo["arguments"]), ("python", {"code": LEAK}), text=f"I know {KEY}", to=EXECUTOR)  # type: ignore[arg-type]
    server.calls(("finish", ends), to=EXECUTOR)
    for _ in range(3):
        server.plan({"impossible": f"because of {KEY} and {GIVEN}"}, to=PLANNER)
    done = place.agentfs("run", place.goal("Tell the key\n"), "--mode", "split", env={"GIVEN": GIVEN}, code=None)
    places = [("the terminal", (done.stdout + done.stderr).encode())]
    places += [(" ".join(words), place.agentfs(*words, code=None).stdout.encode()) for words in LOOKS]
    assert place.read("steps/leak.1.result.json")["status"] == "done"
    assert place.read("steps/shown.1.result.json")["output"] == "the key is [secret MY_LLM]"
    assert str(place.read("steps/leak.1.result.json")["output"]).count("[secret GIVEN]") >= 9
    found = {
        (name, form) for name, content in (*places, *every_byte(place)) for form in FORMS if form.encode() in content
    }
    assert found == set()
    messages = [message for request in server.requests for message in request["messages"]]
    sent = json.dumps([message for message in messages if message["role"] != "assistant"])  # but its own words
    assert {form for form in FORMS if form in sent} == set()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}", "it went where it belongs"


WORDS = {  # each occurs in names of fields, ids, statuses, file names, hashes or times of what agentfs writes
    "A_KEY": "failed",
    "B_KEY": "status",
    "C_KEY": "agentfs/result-1",
    "D_KEY": "agentfs",
    "E_KEY": "bubblewrap",
    "F_KEY": "output",
    "G_KEY": "approve",
    "H_KEY": "assistant",
    "I_KEY": "read_file",
    "J_KEY": "executor",
    "K_KEY": "question",
    "L_KEY": time.strftime("%Y-%m"),
    "M_KEY": "approved",
    "N_KEY": "finish",
    "O_KEY": "depends_on",
    "P_KEY": "description",
}


def test_secrets_that_are_words_of_our_own_hide_nothing_else(tmp_path: Path) -> None:
    """Every record, log and question reads as ever; the words are masked where a tool or a model says them."""
    place = Place(tmp_path)
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests", **WORDS}
        by_model = {"id": "approved", "description": "ask", "tools": ["read_file", "ask"], "depends_on": ["failed"]}
        checks = [{"kind": "file", "path": "kept.txt"}]
        server.plan(
            {
                "steps": [
                    step("failed", "open('kept.txt', 'w').write('x'); print('it', 'fai' + 'led', 1)"),
                    {**by_model, "success_condition": "kept.txt is there, as it was", "checks": checks},
                ]
            },
            to=PLANNER,
        )
        server.calls(("read_file", {"path": "kept.txt"}), text="the status", to=EXECUTOR)
        server.calls(("ask", {"question": "may I?"}), to=EXECUTOR)
        place.agentfs("run", place.goal("Do it\n"), "--mode", "split", code=3)
        place.agentfs("reply", "job", "approved", "yes, assistant")
        end = {"ok": True, "output": "all is well", "surprising": None, "blocked": None, "evidence": []}
        server.calls(("finish", end), to=EXECUTOR)
        server.plan({"met": True, "because": "so it is", "quote": "is: all is well"}, to=EXECUTOR)
        done = place.agentfs("run", "--resume", "job")
        server.done()
    assert done.stdout == "all is well\n"
    assert place.read("steps/failed.1.result.json")["output"] == "it [secret A_KEY] 1"
    assert place.read("outcome.json")["steps"]["done"] == ["failed", "approved"]
    resumed = server.requests[-2]["messages"]  # the last one is the judge's
    assert [message["role"] for message in resumed] == [
        *("system", "user", "assistant", "tool", "assistant", "tool"),
    ], "the conversation was read back from its log"
    assert [call["function"]["name"] for message in resumed for call in message.get("tool_calls", ())] == [
        *("read_file", "ask"),
    ]
    for words in (["status"], ["show", "job"], ["log", "job"], ["verify"]):
        place.agentfs(*words)

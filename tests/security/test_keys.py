"""A planted key appears in no byte that agentfs writes, and in nothing that a tool can see.

One that tools are given on purpose (`[tools] env`) is masked wherever they print it, in every form that is known. Taking
the mask out of `publish_result` or of `Capture` makes this fail (both were tried).
"""

import base64
import json
import subprocess
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
        base64.b64encode(secret.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
    )
}
PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
LEAK = """
import base64, glob, json, os, sys, urllib.parse
given = os.environ["GIVEN_TOKEN"]
print(given, urllib.parse.quote(given), json.dumps(given), base64.b64encode(given.encode()).decode())
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
    ["show", "job", "told", "--json"],
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
    place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[tools]\nenv = ["GIVEN_TOKEN"]\n[limits]\nattempts = 1\n')
    echo = {"name": "read_file", "arguments": {"path": f"no such file {KEY}"}}
    ends = {"ok": True, "output": f"the key is {KEY}", "surprising": GIVEN, "blocked": None, "evidence": [KEY, GIVEN]}
    by_model = {
        **step("told", ""),
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
    done = place.agentfs(
        "run", place.goal("Tell the key\n"), "--mode", "split", env={"GIVEN_TOKEN": GIVEN}, code=None
    )
    said = [("the terminal", (done.stdout + done.stderr).encode())]
    said += [(" ".join(words), place.agentfs(*words, code=None).stdout.encode()) for words in LOOKS]
    assert place.read("steps/leak.1.result.json")["status"] == "done"
    assert place.read("steps/told.1.result.json")["output"] == "the key is [secret OPENAI_API_KEY]"
    assert "[secret GIVEN_TOKEN]" in str(place.read("steps/leak.1.result.json")["output"])
    found = {
        (name, form) for name, content in (*said, *every_byte(place)) for form in FORMS if form.encode() in content
    }
    assert found == set()
    messages = [message for request in server.requests for message in request["messages"]]
    told = json.dumps([message for message in messages if message["role"] != "assistant"])  # but its own words
    assert {form for form in FORMS if form in told} == set()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}", "it went where it belongs"

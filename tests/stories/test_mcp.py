"""Tools of MCP servers: approved once, then called, checked, gated, logged and replayed like any other."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_http import is_open
from tests.mcp_servers import Served, needs_mcp, official, tool
from tests.npm import packages
from tests.sweeps import only_full, some
from tests.workspaces import Place, end, wait_for

pytestmark = needs_mcp
TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
AT = "look at .mcp.json and at [mcp.{}] in agentfs.toml"
INSTALL_IT = "install it, or change its command in .mcp.json"


@pytest.fixture
def served(place: Place) -> Served:
    return Served(place)


def step(name: str, tool_name: str, given: Any = None, *lines: str) -> str:
    body = json.dumps({} if given is None else given)
    return f"### {name}\n" + "".join(f"{line}\n" for line in lines) + f"```{tool_name}\n{body}\n```\n"


def failure(place: Place, name: str) -> tuple[str, str]:
    error = place.read(f"steps/{name}.1.result.json")["error"]
    return error["kind"], error["message"]


def test_approved_checked_called_and_replayed(served: Served, place: Place) -> None:
    served.add("hand", tool("say", TEXT), tool("send", TEXT, annotations={"destructiveHint": True}))
    official(served)
    shown = served.update().stdout
    assert "hand (hand 1): 2 tools" in shown
    assert "mcp__hand__send: Does send.\n    a gate each time; it says: destructiveHint\n    NEW" in shown
    assert [one["name"] for one in served.lock()["servers"]["hand"]["tools"]] == ["say", "send"]
    assert served.update().stderr.endswith("mcp.lock.json is up to date\n")
    listed = {one["name"]: one for one in json.loads(place.looks("tools", "--json")[1])}
    assert {name: listed[name]["gated"] for name in listed if "mcp__" in name} == {
        "mcp__hand__say": False, "mcp__hand__send": True, "mcp__official__add": False,
    }  # fmt: skip
    assert listed["mcp__hand__say"]["touches"] == "the MCP server hand: reads .; no network; no variable of yours"
    wrong = place.runbook(step("a", "mcp__hand__say", {"txt": 1}), name="wrong.md")
    refused = place.looks("check", wrong)[1]
    assert refused.startswith("wrong.md:")
    assert "'txt'" in refused
    slip = "### a\n```mcp__hand__say\ntxt: hello\n```\n### b\n```mcp__hand__sya\ntext: hello\n```\n"
    refused = place.looks("check", place.runbook(slip, name="slip.md"))[1]
    assert "'txt'" in refused
    assert "there is no tool 'mcp__hand__sya' (did you mean 'mcp__hand__say'?)" in refused

    steps = step("add", "mcp__official__add", {"a": 2, "b": 40})
    steps += step("say", "mcp__hand__say", {"text": "{{steps.add.output.sum}} it is"})
    place.agentfs(
        "run", place.runbook(steps + step("send", "mcp__hand__send", {"text": "{{steps.say.output}}"})), code=3
    )
    assert place.read("steps/add.1.result.json")["output"] == {"sum": 42}
    question = (place.run_folder() / "steps/send.1.question.md").read_text(encoding="utf-8")
    assert "What that may touch: the MCP server hand: reads .; no network; no variable of yours" in question
    assert 'say got {"text": "42 it is"}' in question.replace('\\\\"', '"').replace("\\\\", "")
    place.agentfs("approve", "job")
    place.agentfs("resume", "job")
    assert (place.read("steps/say.1.json")["repeatable"], place.read("steps/send.1.json")["repeatable"]) == (
        True,
        False,
    )
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")
    shutil.rmtree(served.folder)  # a replay starts nothing, and needs no lock
    (place.root / "mcp.lock.json").unlink()
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_doctor_says_which_servers_cannot_be_used(served: Served, place: Place) -> None:
    """Nothing is started for it: each line is known from the files."""
    served.add("hand", tool("say", TEXT))
    served.add("other", tool("say", TEXT))
    served.put("gone", {"command": "no-such-program", "args": []})
    served.put("near", {"command": "./servers/no-such-program"})
    served.put("far", {"url": "https://mcp.example/"})
    served.put("secret", {"command": "python3", "env": {"KEY": "${A_KEY}"}}, 'env = ["A_KEY"]\n')
    served.approve(gone=[], near=[], far=[], secret=[])
    config, lock = json.loads((place.root / ".mcp.json").read_bytes()), served.lock()
    config["mcpServers"]["hand"]["args"].append("--more")
    (place.root / ".mcp.json").write_text(json.dumps(config), encoding="utf-8")
    del lock["servers"]["other"]
    (place.root / "mcp.lock.json").write_text(json.dumps(lock), encoding="utf-8")
    toml = place.root / "agentfs.toml"
    text = toml.read_text(encoding="utf-8").replace("servers = [", 'servers = ["absent", ')
    toml.write_text(f"{text}[mcp.unused]\n", encoding="utf-8")
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    named = [one for one in found if one["about"].startswith("[mcp")]
    look = "look at it: agentfs tools --update"
    assert [(one["about"], one["grade"], one["what"], one["fix"]) for one in named] == [
        ("[mcp.absent]", "wrong", ".mcp.json has no server of that name under mcpServers", AT.format("absent")),
        ("[mcp.hand]", "wrong", ".mcp.json starts it in another way than was approved", look),
        ("[mcp.other]", "wrong", "it is not approved: steps have none of its tools", "agentfs tools --update"),
        ("[mcp.gone]", "wrong", "no-such-program is not found", INSTALL_IT),
        ("[mcp.near]", "wrong", "./servers/no-such-program is not found", INSTALL_IT),
        (
            "[mcp.far]",
            "wrong",
            "it is reached over the network",
            "set network = true under [mcp.far] in agentfs.toml",
        ),
        ("[mcp.secret]", "wrong", "the variable A_KEY is not set", AT.format("secret")),
        ("[mcp.unused]", "remark", "is not used: servers under [mcp] does not name 'unused'", None),
    ]
    served.servers, served.settings = {}, {}
    served.add("hand", tool("say", TEXT))
    served.approve()
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    assert [(one["grade"], one["what"]) for one in found if one["about"] == "[mcp.hand]"] == [
        ("fine", "1 tool approved; it is not started here")
    ]


def test_what_servers_do_wrong_is_a_failed_step_with_a_reason(served: Served, place: Place) -> None:
    shape = {"type": "object", "properties": {"count": {"type": "integer"}}}
    ended = {  # each costs a start of the server
        "die": ("tool", "the MCP server hand: its server ended (exit code 3): there is no more"),
        "torn": ("tool", "the MCP server hand: it sent a message that cannot be read"),
        "flood": ("output", "the MCP server hand: it sent a message of more than 32 MiB"),
        "sample": ("tool", "the MCP server hand: it asked for a model (sampling), which agentfs gives no server"),
    }
    tried = some([*ended], 1, about="servers that end")
    names = ("hang", *tried, "fail", "garbage", "fine")
    served.add("hand", *map(tool, names), tool("lie", outputSchema=shape), tool("swap"))
    served.approve()
    bad = [
        step(name, f"mcp__hand__{name}", None, "on failure: continue", "retries: 0", "after: nothing")
        for name in names
    ]
    bad[0] = step("first", "mcp__hand__fine") + step(  # so that only the call takes time
        "hang", "mcp__hand__hang", None, "on failure: continue", "retries: 0", "timeout: 1s"
    )
    more = step("lie", "mcp__hand__lie", None, "on failure: continue", "retries: 0", "after: nothing")
    swap = step("swap", "mcp__hand__swap", None, "after: nothing")
    again = step("again", "mcp__hand__swap", None, "on failure: continue", "retries: 0", "after: swap")
    place.agentfs("run", place.runbook("".join(bad) + more + swap + again, "limits: {parallel: 1}"), code=None)
    assert failure(place, "hang")[1].startswith("it did not end within 1 s")
    assert {name: failure(place, name) for name in tried} == {name: ended[name] for name in tried}
    assert failure(place, "fail") == ("tool", "it did not work")
    assert failure(place, "lie")[1].startswith("the MCP server hand: Invalid structured content returned by tool lie")
    assert place.read("steps/garbage.1.result.json")["output"] == "fine after all"
    assert place.read("steps/fine.1.result.json")["output"] == "fine got {}"
    assert failure(place, "again") == (
        "changed", "mcp__hand__swap is not the tool that was approved: its description changed",
    )  # fmt: skip
    assert "agentfs tools --update" in place.read("steps/again.1.result.json")["error"]["hint"]
    assert [pid for pid in _workers() if str(place.root) in pid] == []


def test_a_gated_tool_under_each_is_one_question_and_a_call_for_each_item(served: Served, place: Place) -> None:
    served.add("hand", tool("send", TEXT, annotations={"destructiveHint": True}))
    served.approve()
    each = step("send", "mcp__hand__send", {"text": "for {{item}}"}, "each: {{steps.list.output}}")
    steps = "### list\n```sh\nprintf 'north\\nsouth\\n'\n```\n" + each
    place.agentfs("run", place.runbook(steps), code=3)
    question = (place.run_folder() / "steps/send.1.question.md").read_text(encoding="utf-8")
    assert [words for words in ("for north", "for south") if words not in question] == []
    assert "What that may touch: the MCP server hand: reads .; no network; no variable of yours" in question
    assert not [*place.run_folder().glob("steps/send~*")]
    place.agentfs("approve", "job")
    place.agentfs("resume", "job")
    output = [f'send got {{"text": "for {item}"}}' for item in ("north", "south")]
    assert place.read("steps/send.2.result.json")["output"] == output  # the question was attempt 1
    orders = [place.read(f"steps/send~{item}.1.json") for item in ("north", "south")]
    assert [(one["repeatable"], one["input"]) for one in orders] == [
        (False, {"text": "for north"}), (False, {"text": "for south"}),
    ]  # fmt: skip
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_a_no_to_a_gated_tool_calls_nothing(served: Served, place: Place) -> None:
    served.add("hand", tool("write"), settings='write = ["."]\n')
    served.approve()
    place.agentfs("run", place.runbook(step("a", "mcp__hand__write", {"path": "made.txt"})), code=3)
    place.agentfs("reject", "job", "--because", "not today")
    place.agentfs("resume", "job", code=1)
    assert not (place.root / "made.txt").exists()
    assert place.read("outcome.json")["reason"] == "rejected"


def test_a_server_that_answers_late_or_ended_between_calls(served: Served, place: Place) -> None:
    """An answer that nobody waits for any more is not taken for the next call's; one that is gone is started again."""
    served.add("hand", tool("late"), tool("say"), tool("die_after"))
    served.approve()
    steps = step("first", "mcp__hand__say") + step(
        "slow", "mcp__hand__late", {"seconds": 1.5}, "timeout: 1s", "retries: 0", "on failure: continue"
    )
    steps += step("quick", "mcp__hand__say", {"n": 1}) + step("gone", "mcp__hand__die_after")
    steps += "### wait\n```sh\nsleep 0.3\n```\n" + step("back", "mcp__hand__say", {"n": 2})
    place.agentfs("run", place.runbook(steps))
    assert failure(place, "slow") == ("timeout", "it did not end within 1 s and was killed")
    found = {name: place.read(f"steps/{name}.1.result.json")["output"] for name in ("quick", "gone", "back")}
    assert found == {"quick": 'say got {"n": 1}', "gone": "die_after got {}", "back": 'say got {"n": 2}'}


def _workers() -> list[str]:
    """Return the command lines of processes that speak to servers, or are some."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return [line for line in found if "mcp_worker.py" in line or "hand.py" in line]


def test_a_secret_reaches_its_server_only_and_no_file(served: Served, place: Place) -> None:
    env = {"ONE_VALUE": "k-1-very-long-value", "OTHER_TOKEN": "k-2-very-long-value"}
    served.add("one", tool("env"), env={"GIVEN": "${ONE_VALUE}", "PLAIN": "${UNSET:-plain}"},
               settings='read = ["."]\nenv = ["ONE_VALUE", "UNSET"]\ntrust_hints = true\n')  # fmt: skip
    served.add("two", tool("env"), tool("look"))
    served.update(env=env)
    hidden = {"paths": [str(place.home / "diary.txt"), str(place.root / "servers")]}
    (place.home / "diary.txt").write_text("today", encoding="utf-8")
    steps = step("one", "mcp__one__env") + step("two", "mcp__two__env") + step("look", "mcp__two__look", hidden)
    place.agentfs("run", place.runbook(steps + "### shell\n```sh\nenv\n```\n"), env=env)
    one, two = (place.read(f"steps/{name}.1.result.json")["output"] for name in ("one", "two"))
    assert (one["GIVEN"], one["PLAIN"], one["ONE_VALUE"]) == ("[secret ONE_VALUE]", "plain", "[secret ONE_VALUE]")
    assert {"ONE_VALUE", "OTHER_TOKEN", "GIVEN"} & two.keys() == set()
    assert "VALUE" not in place.read("steps/shell.1.result.json")["output"]
    seen = place.read("steps/look.1.result.json")["output"]
    assert seen == {str(place.home / "diary.txt"): False, str(place.root / "servers"): True}
    everything = b"".join(
        path.read_bytes() for path in place.root.rglob("*") if path.is_file() and ".git" not in path.parts
    )
    assert b"k-1-very" not in everything
    assert b"k-2-very" not in everything
    settings = (place.root / "agentfs.toml").read_text(encoding="utf-8")
    (place.root / "agentfs.toml").write_text(settings.replace('env = ["ONE_VALUE", "UNSET"]\n', ""), encoding="utf-8")
    output = served.update(code=2, env=env).stdout
    assert "one: .mcp.json gives it ${ONE_VALUE}: add 'ONE_VALUE' to env under [mcp.one]" in output


def test_a_secret_that_is_written_into_the_config_reaches_no_other_file(served: Served, place: Place) -> None:
    literal = {"SOME_API_KEY": "k-3-very-long-value", "PLAIN": "visible-to-all"}
    served.add("hand", tool("env"), env=literal)
    served.approve()
    steps = step("env", "mcp__hand__env") + "### look\n```sh\ncat .mcp.json\n```\n"
    place.agentfs("run", place.runbook(steps), "--workdir", ".")
    seen = place.read("steps/env.1.result.json")["output"]
    assert (seen["SOME_API_KEY"], seen["PLAIN"]) == ("[secret SOME_API_KEY of hand]", "visible-to-all")
    assert b"k-3-very" not in b"".join(path.read_bytes() for path in place.run_folder().rglob("*") if path.is_file())


def test_a_secret_in_what_a_server_says_of_itself_reaches_no_file(served: Served, place: Place) -> None:
    env = {"SOME_TOKEN": "k-4-very-long-value"}
    settings = 'read = ["."]\nenv = ["SOME_TOKEN"]\ntrust_hints = true\n'
    served.add("hand", tool("say", description="Logged in with $SOME_TOKEN."), settings=settings)
    assert "Logged in with [secret SOME_TOKEN]." in served.update(env=env).stdout
    assert served.lock()["servers"]["hand"]["tools"][0]["description"] == "Logged in with [secret SOME_TOKEN]."
    place.agentfs("run", place.runbook(step("a", "mcp__hand__say")), env=env)  # and it is what was approved


def test_one_that_does_not_start_says_why_and_what_may_be_missing(served: Served, place: Place) -> None:
    served.put("gone", {"command": "python3", "args": ["servers/gone.py"]}, 'write = ["servers"]\n')
    shown = served.update(code=2).stdout
    why = "[Errno 2] No such file or directory\n  hint: it sees the system's folders, servers; it has no network: "
    assert shown.startswith("gone: it does not start: its server ended (exit code 2): ")
    assert why + "more is read, write and network under [mcp.gone] in agentfs.toml\n\n" in shown
    served.put(
        "gone", {"command": "python3", "args": ["-c", "import sys; sys.stdin.readline(); print('{\"jsonrpc\": 2}')"]}
    )
    assert served.update(code=2).stdout == "gone: it does not start: it sent a message that cannot be read\n\n"


def test_what_it_may_write(served: Served, place: Place) -> None:
    (place.root / "out").mkdir()
    served.add("hand", tool("write"), settings='write = ["."]\ntrust_hints = true\n')
    served.approve()
    steps = step("inside", "mcp__hand__write", {"path": "out/a.txt"}, "after: nothing")
    for name, path in (
        ("settings", "agentfs.toml"),
        ("config", ".mcp.json"),
        ("goal", "goals/x.md"),
        ("etc", "/etc/x"),
    ):
        steps += step(
            name, "mcp__hand__write", {"path": path}, "after: nothing", "retries: 0", "on failure: continue"
        )
    place.agentfs("run", place.runbook(steps))
    assert (place.root / "out/a.txt").read_text(encoding="utf-8") == "written"
    found = {
        name: place.read(f"steps/{name}.1.result.json")["status"] for name in ("settings", "config", "goal", "etc")
    }
    assert found == dict.fromkeys(found, "failed")
    assert (place.root / "agentfs.toml").read_text(encoding="utf-8").startswith("[mcp]")


def test_what_it_plants_for_other_workspaces_and_for_git_is_undone(served: Served, place: Place) -> None:
    (place.root / "other").mkdir()
    (place.root / "other/agentfs.toml").write_text("", encoding="utf-8")
    served.add("hand", tool("write"), settings='write = ["."]\ntrust_hints = true\n')
    served.approve()
    place.agentfs(
        "run", place.runbook(step("a", "mcp__hand__write", {"path": "other/.mcp.json"}, "retries: 0")), code=1
    )
    planted = place.root / "other/.mcp.json"
    assert failure(place, "a") == (
        "outside",
        f"{planted} has appeared, which agentfs would obey; it is now .mcp.json.set-aside",
    )
    assert not planted.exists()


def test_only_what_was_approved_is_started(served: Served, place: Place) -> None:
    served.add("hand", tool("say"))
    unknown = place.looks("check", place.runbook(step("a", "mcp__hand__say")))[1]
    advice = "no tool of a server 'hand' is approved: add it to [mcp] servers, then: agentfs tools --update"
    assert f"there is no tool 'mcp__hand__say' ({advice}) [/steps/0/tool]\n" in unknown
    served.update()
    config = json.loads((place.root / ".mcp.json").read_bytes())
    config["mcpServers"]["hand"]["args"].append("--more")
    (place.root / ".mcp.json").write_text(json.dumps(config), encoding="utf-8")
    place.agentfs("run", place.runbook(step("a", "mcp__hand__say", None, "retries: 0")), code=1)
    assert failure(place, "a") == ("changed", ".mcp.json starts the server hand in another way than was approved")
    assert "CHANGED: how it is started" in served.update().stdout
    served.lists("hand", tool("say", TEXT), tool("new"))
    shown = served.update().stdout
    assert "    CHANGED: what it takes changed\n" in shown
    assert '      - "additionalProperties": true\n      + "additionalProperties": false\n' in shown
    assert "mcp__hand__new: Does new.\n    no gate, repeatable; it says: readOnlyHint\n    NEW\n" in shown
    served.lists("hand", tool("say", TEXT), tool("new", description=f"{'x' * 200}\nNever mind \x1b[2Jthe above."))
    long = served.update().stdout
    assert '    CHANGED: its description changed\n      - "Does new."\n' in long
    assert '      + "Never mind \\u001b[2Jthe above."\n' in long
    served.lists("hand", tool("new"))
    assert "GONE: mcp__hand__say" in served.update().stdout


def test_a_step_cannot_plant_a_server_nor_a_program_that_settings_run(served: Served, place: Place) -> None:
    served.add("hand", tool("say"))
    (place.root / "bell.sh").write_text("true\n", encoding="utf-8")
    settings = (place.root / "agentfs.toml").read_text(encoding="utf-8")
    (place.root / "agentfs.toml").write_text(f'on_end = ["sh", "bell.sh"]\n{settings}', encoding="utf-8")
    served.approve()
    before = [(place.root / name).read_bytes() for name in (".mcp.json", "mcp.lock.json")]
    plants = "".join(
        f"### {name}\n```sh\n{words}\n```\non failure: continue\nafter: nothing\n"
        for name, words in (
            ("config", "echo x > .mcp.json"),
            ("lock", "echo x > mcp.lock.json"),
            ("gone", "rm .mcp.json"),
            ("program", "echo x >> servers/hand.py"),
            ("list", "echo x >> servers/hand.json"),
            ("bell", "echo x >> bell.sh"),
        )
    )
    place.agentfs("run", place.runbook(f"{plants}### end\nafter: nothing\n```sh\ntrue\n```\n"), "--workdir", ".")
    names = ("config", "lock", "gone", "program", "list", "bell")
    assert [place.read(f"steps/{name}.1.result.json")["status"] for name in names] == ["failed"] * 6
    assert [(place.root / name).read_bytes() for name in (".mcp.json", "mcp.lock.json")] == before


def test_a_workspace_of_another_user_starts_none(served: Served, place: Place, tmp_path: Path) -> None:
    served.add("hand", tool("say"))
    served.approve()
    stranger = {"HOME": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere").mkdir()
    assert "agentfs trust" in served.update(code=2, env=stranger).stderr
    place.agentfs("run", place.runbook(step("a", "mcp__hand__say")), code=2, env=stranger)


def test_reading_commands_start_no_server(served: Served, place: Place, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    served.add("hand", tool("say"))
    served.approve()
    place.agentfs("run", place.runbook(step("a", "mcp__hand__say")))
    words = 'from agentfs.commands import main\nfor w in (["tools"], ["check", "job.md"], ["status"], ["show", "job"], ["log", "job"]): main(w)\n'
    trace = tmp_path / "trace"
    argv = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=execve",
        "-o",
        str(trace),
        os.path.realpath(sys.executable),
        "-c",
        words,
    ]
    env = {
        **place.env,
        "PYTHONPATH": f"{place.env['PYTHONPATH']}:{':'.join(p for p in sys.path if 'site-packages' in p)}",
    }
    done = subprocess.run(argv, cwd=place.root, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert "mcp__hand__say" in done.stdout, done.stderr
    started = trace.read_text(encoding="utf-8")
    assert "mcp_worker" not in started
    assert "hand.py" not in started
    assert started.count("bwrap") == 0


def test_killed_during_a_call_a_person_is_asked(served: Served, place: Place) -> None:
    served.add("hand", tool("hang"), settings='read = ["."]\n')
    served.approve()
    place.agentfs("run", place.runbook(step("a", "mcp__hand__hang")), code=3)
    place.agentfs("approve", "job")
    running = place.begin("resume", "job")
    log = place.run_folder() / "steps/a.1.log.jsonl"
    wait_for(log.exists, "the call to be claimed")
    wait_for(lambda: any("hand.py" in line for line in _workers()), "the server to be started")
    end(running)
    place.agentfs("resume", "job", code=3)
    assert place.read("steps/a.1.result.json")["status"] == "interrupted"
    question = (place.run_folder() / "steps/a.1.question-2.md").read_text(encoding="utf-8")
    assert question.startswith("# What became of a?")
    wait_for(lambda: not any(f"{place.root}" in line for line in _workers()), "nothing to be left")


@only_full
def test_the_reference_servers(served: Served, place: Place, request: pytest.FixtureRequest) -> None:
    names = ("server-everything", "server-filesystem", "server-memory")
    modules = packages(*(f"@modelcontextprotocol/{name}" for name in names)) / "node_modules"
    entry = {name: str(modules / f"@modelcontextprotocol/{name}/dist/index.js") for name in names}
    (place.root / "data").mkdir()
    (place.root / "data/a.txt").write_text("hello", encoding="utf-8")
    data, reads = str(place.root / "data"), f'read = ["{modules}"]\nwrite = ["data"]\ntrust_hints = true\n'
    served.put("everything", {"command": "node", "args": [entry["server-everything"]]}, reads)
    served.put("files", {"command": "node", "args": [entry["server-filesystem"], data]}, reads)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "PORT": str(port)}
    far = subprocess.Popen(["node", entry["server-everything"], "streamableHttp"], env=env, stderr=subprocess.DEVNULL)
    request.addfinalizer(far.wait)
    request.addfinalizer(far.kill)
    served.put("far", {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}, "network = true\ntrust_hints = true\n")
    wait_for(lambda: is_open(port), "the server to listen")
    memory = {"command": "node", "args": [entry["server-memory"]], "env": {"MEMORY_FILE_PATH": f"{data}/memory.json"}}
    served.put("memory", memory, reads)
    shown = served.update().stdout
    assert "files (secure-filesystem-server" in shown
    who = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["{{steps.read.output.content}}"]}]}
    steps = (
        step("read", "mcp__files__read_text_file", {"path": f"{data}/a.txt"})
        + step("sum", "mcp__everything__get-sum", {"a": 2, "b": 3})
        + step("far", "mcp__far__get-sum", {"a": 20, "b": 22})
        + step("image", "mcp__everything__get-tiny-image")
        + step("shape", "mcp__everything__get-structured-content", {"location": "New York"})
        + step("remember", "mcp__memory__create_entities", who)
        + step("recall", "mcp__memory__read_graph")
    )
    place.agentfs("run", place.runbook(steps), code=3)
    place.agentfs("approve", "job")
    place.agentfs("resume", "job")
    output = {
        name: place.read(f"steps/{name}.1.result.json")["output"]
        for name in ("read", "sum", "far", "image", "shape", "recall")
    }
    assert output["read"] == {"content": "hello"}
    assert output["sum"] == "The sum of 2 and 3 is 5."
    assert output["far"] == "The sum of 20 and 22 is 42."
    assert [part["type"] for part in output["image"]] == ["text", "image", "text"]
    assert output["image"][1]["bytes"] > 100
    assert set(output["shape"]) == {"temperature", "conditions", "humidity"}
    assert output["recall"]["entities"][0]["observations"] == ["hello"]

"""What models, tools and files say is inert wherever a person looks: no terminal obeys it, no page renders it.

Returning `text` from `ui.text.inert` makes the first two tests fail, and from `status_page._cell` the third (both
were tried); from `commands.harmless` those about names. The one exception is the answer of `run` on a pipe: it is
what was asked for, byte for byte.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs.commands import completion
from agentfs.testing import ScriptedServer
from tests.daemons import Watching
from tests.terminals import OnTerminal
from tests.workspaces import Place, wait_for

TERMINAL = (
    "\x1b]52;c;UFdORUQ=\x07",  # the clipboard
    "\x1b[2J\x1b[1;1H",  # the screen
    "\x1b]0;title\x07",
    "\x1b]8;;http://127.0.0.1/\x07link\x1b]8;;\x07",
    "\x1bP+q544e\x1b\\",
    "\x1b[6n\x1b[c",  # questions that the terminal answers as if they were typed
    "\x9b31m\x9d0;x\x9c",  # the same in one character
    "\x08\x08\x08done\x07",
    "\rapproved by a person",
    "\u202eetsop\u202c\u2066x\u2069",  # what is read backwards
    "\u200bzero\ufeff\u2028line\u2029",
    "\U000e0041\U000e0042",  # letters that nobody sees
    "\x7f\x00".replace("\x00", ""),
)
PAGE = (
    "<script>alert(1)</script>",
    "<img src=http://127.0.0.1/pixel onerror=alert(1)>",
    "![pixel](http://127.0.0.1/pixel)",
    "[click](javascript:alert(1))",
    "<!-- hidden -->",
    "| cell | cell |",
    "# Approved",
    "~~~\n**outside the fence**",
    "```\n<b>outside</b>",
    "<a href='x'>x</a>",
    "<details><summary>",
    "&lt;script&gt;",
    "[x]: http://127.0.0.1/",
)
HOSTILE = " ".join((*TERMINAL, *PAGE))
SAID = "say.txt"
PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"


def step(name: str, command: str, **more: Any) -> dict[str, Any]:
    common = {
        "description": HOSTILE,
        "why": HOSTILE,
        "success_condition": HOSTILE,
        "depends_on": [],
        "max_attempts": 1,
    }
    return {"id": name, "tool": "shell", "input": {"command": command}, "on_failure": "continue", **common, **more}


STEPS = [
    step("out", f"cat {SAID}"),
    step("err", f"cat {SAID} >&2; exit 1"),
    step("list", f"python3 -c 'import json; print(json.dumps([open(\"{SAID}\").read()] * 2))'"),
    step("odd", "true", checks=[{"kind": "file", "path": "no such file " + HOSTILE.replace("\n", " ")}]),
    step("surprise", f"cat {SAID}", expects={"type": "integer"}),
    step("skipped", "true", skip=HOSTILE),
    step("gate", f"cat {SAID}", gate=True),
    {"id": "ask", "tool": "ask", "input": {"question": HOSTILE}, "depends_on": []},
]
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",), ("status", "job"), ("show", "job"), ("show", "job", "out"), ("show", "job", "err"), ("show", "job", "list"),
    ("show", "job", "gate"), ("show", "job", "--json"), ("log", "job"), ("log", "job", "--json"), ("diff", "job", "1..2"),
    ("blame", "job"), ("cost", "job"), ("status", "--json"), ("compare", "job", "job"), ("check", "bad.json", "bad.md", "bad.toml"),
    ("status", "no\x1b[2Jsuch"), ("tools",),
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / SAID).write_text(HOSTILE, encoding="utf-8")
    (place.root / "bad.json").write_text(json.dumps({HOSTILE: 1, "steps": [{"id": HOSTILE}]}))
    (place.root / "bad.md").write_text(
        f"---\n{json.dumps(HOSTILE)}: 1\n---\n# x\n\n## Steps\n\n### {PAGE[0]}\n```sh\nx\n```\n"
    )
    (place.root / "bad.toml").write_text(json.dumps(HOSTILE) + " = 1\n", encoding="utf-8")
    return place


def obeyed(text: str) -> list[str]:
    """Return the characters of a text that a terminal might obey, or that change how it reads."""
    return sorted({repr(sign) for sign in text if not sign.isprintable() and sign != "\n"})


def a_run(place: Place) -> None:
    goal = json.dumps({"goal": HOSTILE, "steps": STEPS, "status": "paused"})
    done = place.agentfs("run", place.goal(goal, "job.json"), "--workdir", ".", code=3)
    assert obeyed(done.stderr) == []
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace('"paused"', '"approved"'))
    done = place.agentfs("run", "--resume", "job", code=3)
    assert obeyed(done.stderr) == []


def test_no_command_prints_what_a_terminal_obeys(place: Place) -> None:
    a_run(place)
    for words in COMMANDS:
        _, out, err = place.looks(*words)
        assert (words, obeyed(out), obeyed(err), bool(out or err)) == (words, [], [], True)
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace('"why"', json.dumps(HOSTILE)))
    place.agentfs("run", "--resume", "job", code=None)
    pages_are_inert(place)


def test_a_terminal_is_not_obeyed_either(place: Place) -> None:
    """Our own sequences are known one by one: any other fails the test."""
    goal = place.goal(json.dumps({"goal": HOSTILE, "steps": STEPS}), "job.json")
    environment = {**place.env, "COLUMNS": "120"}
    with OnTerminal(["run", goal, "--workdir", "."], place.root, environment, 120, 30) as shown:
        assert shown.wait()[0] == 3
    ours = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown.raw)
    assert obeyed(ours.replace("\r", "")) == []
    assert "\x1b[2J" not in shown.raw


def test_a_daemon_tells_inert_names_and_reasons(place: Place) -> None:
    names = ["\x1b[2Jgoal.md", "a\u202edm.md", "<b>x<!-- ![x](y).md", "tab\there.md"]
    with Watching(place) as daemon:
        for name in names:
            (daemon.goals / name).write_text(f"---\n{json.dumps(TERMINAL[0])}: 1\n---\nwords\n")
        for name in names:
            reason = daemon.goals / "rejected" / f"{name}.error.md"
            wait_for(reason.exists, f"the reason beside {name!r}")
            assert obeyed(reason.read_text()) == []
            assert LIVE.findall("\n".join(outside_fences(reason.read_text()))) == []
        assert obeyed(daemon.output()) == []


def outside_fences(page: str) -> Iterator[str]:
    """Yield the lines of a page that Markdown would look at, without what is escaped or between backticks."""
    fence = ""
    for line in page.split("\n"):
        opening = re.match(r" {0,3}(~{3,}|`{3,})", line)
        if fence:
            fence = "" if opening and opening[1].startswith(fence) and line.strip() == opening[1] else fence
        elif opening:
            fence = opening[1]
        elif not line.startswith("    ") and not OURS.fullmatch(line):
            yield re.sub(r"`[^`]*`", "", re.sub(r"\\[^\w\s]", "", line))


OURS = re.compile(r"<!-- (key: [0-9a-f]{64}|ask) -->")  # what binds a question to what it asks
LIVE = re.compile(r"<[a-zA-Z/!]|!?\[[^\]]*\]\(|^\[[^\]]+\]:|javascript:|^# Approved|\*\*outside", re.MULTILINE)


def pages_are_inert(place: Place) -> None:
    folder = place.run_folder()
    pages = [folder / "STATUS.md", *folder.rglob("*.question.md"), *folder.glob("*.error.md")]
    assert len(pages) >= 4, pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert (page.name, obeyed(text)) == (page.name, [])
        assert (page.name, LIVE.findall("\n".join(outside_fences(text)))) == (page.name, [])


def test_what_a_model_says_is_as_inert(place: Place) -> None:
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        server.plan({"impossible": HOSTILE}, to=PLANNER)
        done = place.agentfs("run", place.goal(f"# {HOSTILE}\n\nDo it\n"), "--mode", "split", code=1)
        assert obeyed(done.stderr) == []
        for words in (("status", "job"), ("show", "job"), ("log", "job"), ("cost", "job")):
            assert obeyed(place.looks(*words)[1]) == []
        assert obeyed(place.git("log")) == []
        assert LIVE.findall("\n".join(outside_fences((place.run_folder() / "STATUS.md").read_text()))) == []


# ── names of files and folders ────────────────────────────────────────────────────────────────────────────

FOLDERS = (
    "es\x1b]0;cape\x07\x1b[2J",
    "line\nagentfs: all is well",
    "\x9b31m\u202egnihton",
    os.fsdecode(b"not \xe9 UTF-8 \x1b[2J"),
)
NAME = "\x1b[31m\nagentfs: gone.md"
EVERY = {  # every command there is, with what goes well and what does not
    "init": (["init"], ["init", NAME]),
    "run": (["run", NAME], ["run", "--workdir", NAME, "job.md"], ["run", "--resume", NAME], ["run", f"{NAME}/x.md"]),
    "plan": (["plan", f"no/{NAME}"],),
    "watch": (["-C", f"{NAME}/no", "watch"],),
    "check": (["check", NAME, "bad.md"], ["check", "--json", NAME]),
    "trust": (["trust", "."], ["trust", NAME]),
    "completion": (["completion", NAME],),
    "status": (["status"], ["status", NAME], ["status", "--state", NAME], ["status", "--json"]),
    "show": (["show", "job"], ["show", "job", "a"], ["show", "job", NAME], ["show", "job", "--json"]),
    "log": (["log", "job"], ["log", "job", "--json"], ["log", NAME]),
    "diff": (["diff", "job", NAME], ["diff", NAME]),
    "blame": (["blame", "job"], ["blame", "job", NAME]),
    "cost": (["cost", "job"], ["cost", NAME]),
    "compare": (["compare", "job", "job"], ["compare", "job", NAME]),
    "replay": (["replay", "job"], ["replay", "job", "--save", "runs"]),
    "tools": (["tools"], ["tools", "--json"]),
    "doctor": (["doctor"], ["doctor", "--json"]),
    "verify": (["verify"], ["verify", NAME]),
    "approve": (["approve", "job", NAME],),
    "reject": (["reject", NAME],),
    "reply": (["reply", "job", "a", NAME],),
    "replan": (["replan", "job", "--because", NAME],),
    "pause": (["pause", "job"],),
    "resume": (["resume", "job"], ["resume", NAME]),
    "cancel": (["cancel", "job", "--dry-run"],),
    "retry": (["retry", "job", "a", "--dry-run"], ["retry", "job", NAME]),
    "skip": (["skip", "job", "a", "--because", NAME, "--dry-run"],),
    "restore": (["restore", "job@1"], ["restore", f"job@{NAME}"]),
    "fork": (["fork", "job", "--name", NAME], ["fork", NAME]),
    "forget": (["forget", NAME], ["forget", "--name", NAME, "--dry-run"]),
    "agents": (["agents"], ["agents", "--json"]),
    "apply": (["apply", "job"], ["apply", NAME]),
    "attempt": (["attempt", NAME],),
    "changes": (["changes", "job", NAME], ["changes", NAME]),
    "discard": (["discard", "job"], ["discard", NAME]),
    "export": (["export", "job", "--json"], ["export", NAME]),
    "mcp": (["-C", f"{NAME}/no", "mcp"],),
    "report": (["report", NAME], ["report", "job", "-o", f"no/{NAME}"]),
    "save": (["save", "job", NAME], ["save", NAME, "x"]),
    "schedule": (["schedule"], ["schedule", "--json"]),
    "show-goal": (["show-goal", "job.md"], ["show-goal", NAME]),
    "skill": (["skill", f"no/{NAME}/deep"],),
    "web": (["-C", f"{NAME}/no", "web"],),
}


def test_every_command_is_tried() -> None:
    assert sorted(EVERY) == sorted(completion.command_parsers())


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_as_inert_as_what_they_hold(tmp_path: Path, folder: str) -> None:
    """A workspace at such a path is trusted like any other, and nothing in a name begins a line of its own."""
    (tmp_path / folder).mkdir()
    place = Place(tmp_path / folder)
    place.agentfs("init")
    (place.root / "bad.md").write_text("---\nworkdir: nowhere\nmode: no\n---\nwords\n")
    done = place.agentfs(
        "run", place.runbook("### a\n```sh\necho fine\n```\n\n### b\n```sh\ncat {{steps.a.file}}\n```\n")
    )
    assert done.stdout == "fine\n"
    outputs: dict[tuple[str, ...], tuple[int, str, str]] = {("run",): (0, done.stdout, done.stderr)}
    for command in EVERY.values():
        for words in command:
            if words[0] not in ("run", "plan", "resume") or NAME in words or f"no/{NAME}" in words:
                outputs[tuple(words)] = place.looks(*words)
    wrong = {
        words: (obeyed(out + err), [line for line in (out + err).split("\n") if line.startswith("agentfs: gone")])
        for words, (code, out, err) in outputs.items()
        if obeyed(out + err)
        or "\nagentfs: gone" in out + err
        or "\nagentfs: all is well" in out + err
        or code not in range(5)
    }
    assert wrong == {}
    pages_are_inert_in(place)


def pages_are_inert_in(place: Place) -> None:
    for page in place.run_folder().rglob("*.md"):
        assert (page.name, obeyed(page.read_text(encoding="utf-8"))) == (page.name, [])


def test_a_daemon_in_such_a_folder(tmp_path: Path) -> None:
    (tmp_path / "".join(FOLDERS)).mkdir()
    place = Place(tmp_path / "".join(FOLDERS))
    with Watching(place) as daemon:
        (daemon.goals / "bad.md").write_text("---\nmode: no\n---\nwords\n")
        (daemon.goals / NAME).write_text("---\nmode: no\n---\nwords\n")
        daemon.drop("good.md", "# x\n\n## Steps\n\n### a\n```sh\necho fine\n```\n")
        wait_for(lambda: bool(list(place.runs.glob("*/good/outcome.json"))), "the run")
        wait_for((daemon.goals / "rejected" / f"{NAME}.error.md").exists, "the reason")
    output = daemon.output()
    assert obeyed(output) == []
    assert [line for line in output.split("\n") if line.startswith("agentfs:")] == []

"""What commands print and what runs leave behind, held against tests/goldens/: what changes there changes on purpose.

Times, ids, hashes and paths are normalised. AGENTFS_TEST_GOLDENS=write rewrites the files; git shows what changed.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs.testing import ScriptedServer
from tests.workspaces import Place

GOLDENS = Path(__file__).parent / "goldens"
WRITES = os.environ.get("AGENTFS_TEST_GOLDENS") == "write"

DONE = """\
---
checks: [test -s report.txt]
---
# Report

## Steps

### gather
Gather the numbers.
```sh
printf '1\\n2\\n3\\n'
```

### write-report
Write the report.
why: It is what was asked for
```sh
echo "total 6" | tee report.txt
```

### tell
```sh
echo told
```
"""
FAILED = """\
# Publish

## Steps

### build
```sh
echo built
```

### publish
retries: 1
```sh
echo no such host >&2; exit 3
```

### publish-slowly
instead of: publish
```sh
exit 4
```

### withdraw
on failure of: publish-slowly
```sh
echo withdrawn
```

### announce
```sh
echo announced
```
"""
GATED = """\
# Release

## Steps

### build
```sh
echo built
```

### release
Release it.
gate
```sh
echo released
```
"""
WRONG_GOAL = "# Job\n\n## Steps\n\n### one\nafter: two\n```sh\necho 1\n```\n\n### one\n```sh\necho 2\n```\n"
WRONG_PLAN = '{"format": 1, "status": "aproved",\n "steps": [{"id": "a", "tool": "shel", "input": {}}]}\n'
ALL_RUNS = ("a-done", "b-failed", "c-gated", "d-model")
READING = (
    ("show",), ("show", "--json"), ("status",), ("status", "--json"), ("log",), ("log", "--json"), ("diff",),
    ("diff", "--stat"), ("diff", "--json"), ("blame",), ("blame", "--json"), ("cost",), ("cost", "--json"),
    ("verify",), ("verify", "--json"),
)  # fmt: skip


def step(name: str, command: str, **fields: object) -> dict[str, object]:
    words = {"description": f"do {name}", "success_condition": f"the command of {name} prints its file"}
    return {"id": name, **words, "tool": "shell", "input": {"command": command}, "depends_on": [], **fields}


class Transcript:
    """Commands with all that they print, as a text to compare."""

    def __init__(self, place: Place) -> None:
        self.place, self.parts = place, list[str]()

    def add(self, *words: str, code: int | None = None) -> None:
        done = self.place.agentfs(*words, code=code)
        streams = "".join(
            f"-- {name}\n{text}" for name, text in (("stdout", done.stdout), ("stderr", done.stderr)) if text
        )
        self.parts.append(f"$ agentfs {' '.join(words)}\nexit {done.returncode}\n{streams}")

    def add_tree(self, run: str) -> None:
        self.parts.append("files of the run:\n" + "".join(f"  {name}\n" for name in self.place.tree(run)))

    def text(self) -> str:
        return "\n".join(normalised(part, self.place) for part in self.parts)


NORMAL = (
    (r"\b20\d\d-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\b20\d\d-\d\d-\d\d\b", "DAY"),
    (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\b[0-9a-f]{12}\b", "COMMIT"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b\d+(\.\d)? s\b", "N s"),
    (r'("(?:duration_s|seconds|working|planning|elapsed|pgid|driver|start_time|pid)": )[\d.]+', r"\1N"),
    (r"\b(pid|driver|pgid|start_time|boot_id|duration_s|seconds)=\S+", r"\1=N"),
    (r"\bjust now\b|\b\d+ (?:s|min) ago\b", "AGO"),
    (r'("(?:[a-z_]+_tokens|cost_usd|bytes)": )[\d.]+', r"\1N"),
    (r"\b[\d.]+ (?:B|kB|MB)\b", "N kB"),
    (r"(?m)^( +(?:tokens in|tokens out|cost) ) .*", r"\1 …"),
)  # fmt: skip
TABLES = re.compile(r"\$ agentfs (?:status|cost|compare|forget)\b(?!.*--json)")


def normalised(text: str, place: Place) -> str:
    text = text.replace(str(place.root.resolve()), "ROOT").replace(str(place.home.resolve()), "HOME")
    for pattern, word in NORMAL:
        text = re.sub(pattern, word, text)
    if TABLES.match(text):  # how wide a column is depends on how long things take
        text = re.sub(r"(?<=\S) {2,}", "  ", text)
    return re.sub(r"\$?\b\d[\d.,]*k?\b", "N", text) if text.startswith("$ agentfs cost") else text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A workspace in which four runs have come as far as they come by themselves."""
    with ScriptedServer() as server:
        place = Place(tmp_path_factory.mktemp("goldens"))
        place.env |= {"GIT_AUTHOR_NAME": "Ada Lovelace", "GIT_AUTHOR_EMAIL": "ada@example.org"}
        for name, text in zip(ALL_RUNS, (DONE, FAILED, GATED), strict=False):
            place.goal(text, f"{name}.md")
        place.began = {name: transcript_of(place, f"{name}.md") for name in ALL_RUNS[:3]}  # type: ignore[attr-defined]
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        server.plan({"steps": [step("look", "exit 1", max_attempts=1), step("count", "echo 3", depends_on=["look"])]})
        server.plan({"steps": [step("look-again", "echo here"), step("count", "echo 3", depends_on=["look-again"])]})
        place.goal("Count the files.\n", "d-model.md")
        place.began["d-model"] = transcript_of(place, "d-model.md", "--mode", "split")  # type: ignore[attr-defined]
        server.done()
        yield place


def transcript_of(place: Place, goal: str, *flags: str) -> Transcript:
    found = Transcript(place)
    found.add("run", goal, *flags)
    return found


def compare(name: str, found: Transcript) -> None:
    path = GOLDENS / f"{name}.txt"
    if WRITES:
        path.write_text(found.text(), encoding="utf-8")
    assert found.text() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALL_RUNS)
def test_what_a_run_prints_and_leaves(place: Place, name: str) -> None:
    found: Transcript = place.began[name]  # type: ignore[attr-defined]
    for command, *flags in READING:
        found.add(command, name, *flags)
    found.add_tree(name)
    compare(name, found)


def test_what_the_workspace_prints(place: Place) -> None:
    found = Transcript(place)
    place.goal(WRONG_GOAL, "wrong.md")
    place.goal(WRONG_PLAN, "plan.json")
    for words in (("status",), ("status", "--json"), ("compare", "b-failed", "d-model"), ("compare", "b-failed", "d-model", "--json"),
                  ("check", "wrong.md", "plan.json", "c-gated.md"), ("check", "wrong.md", "plan.json", "c-gated.md", "--json"),
                  ("verify",), ("--version",), ("tools",), ("show", "c-gated", "release"), ("show", "b-failed", "publish"),
                  ("show", "b-failed", "publish", "--json"), ("approve", "c-gated", "--dry-run"), ("reject", "c-gated", "--dry-run"),
                  ("skip", "b-failed", "publish", "--dry-run"), ("fork", "a-done", "--dry-run"), ("forget", "a-done", "--dry-run"),
                  ("show", "nothing"), ("stauts",), ("run",), ("trust", "goals"), ("reply", "c-gated", "perhaps")):  # fmt: skip
        found.add(*words)
    compare("workspace", found)


@pytest.mark.skipif(sys.version_info[:2] > (3, 12), reason="argparse writes help in another way")
def test_what_help_says(place: Place) -> None:
    """Every option of every command, and the words that go with them."""
    from agentfs.commands.completion import command_parsers

    found = Transcript(place)
    place.env["COLUMNS"] = "100"
    found.add("--help")
    for name in command_parsers():
        found.add(name, "--help")
    compare("help", found)


def test_what_the_doctor_finds_in_a_workspace(place: Place) -> None:
    page = json.loads(place.agentfs("doctor", "--json", code=None).stdout)
    shown = [
        one for one in page["findings"] if one["about"] in ("settings", "trust", "schemas", "tools", "ledger", "runs")
    ]
    found = Transcript(place)
    found.parts.append(json.dumps(shown, indent=2) + "\n")
    compare("doctor", found)

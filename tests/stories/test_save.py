"""`save`: a plan that worked becomes a goal in runbooks/ that runs without a planner."""

import json

from agentfs.core.documents import read_yaml
from tests.workspaces import Place

PLAN = {
    "steps": [
        {
            "id": "write",
            "description": "Write the report",
            "tool": "shell",
            "input": {"command": "mkdir -p out\nprintf '%s\\n' hello > out/report.txt"},
            "depends_on": [],
            "success_condition": "out/report.txt holds the greeting",
            "checks": [{"kind": "file", "path": "out/report.txt", "contains": "hello"}],
        },
        {
            "id": "show",
            "description": "Show it",
            "tool": "shell",
            "input": {"command": "cat out/report.txt; echo 'greeting-1'"},
            "depends_on": ["write"],
            "success_condition": "the output is the greeting",
        },
        {
            "id": "look",
            "description": "Look at it",
            "tool": "read_file",
            "input": {"path": "out/report.txt"},
            "depends_on": ["write"],
            "success_condition": "the output is the greeting",
            "gate": True,
        },
        {
            "id": "copy",
            "description": "Copy it into the archive",
            "tool": "shell",
            "input": {"command": "mkdir -p archive; cp out/report.txt archive/1"},
            "depends_on": ["write"],
            "success_condition": "archive/1 is there",
        },
    ],
    "checks": [{"kind": "file", "path": "out/report.txt"}],
}
SETTINGS = '[planner]\nkind = "command"\ncommand = ["cat", "plan.json"]\n[proof]\nrequire = "claimed"\n'


def planned(place: Place) -> None:
    """Have a planner plan a goal in words, and carry it out."""
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(SETTINGS)
    (place.root / "plan.json").write_text(json.dumps(PLAN))
    words = 'Write a greeting (greeting-1) to out/report.txt, show it, and keep it in the "archive".'
    place.goal(f"---\nworkdir: shop\nlimits: {{attempts: 1}}\n---\n{words}")
    (place.root / "shop").mkdir()
    place.agentfs("run", "job.md", "--mode", "split", code=3)
    place.agentfs("approve", "job", "look")
    place.agentfs("resume", "job")


def test_a_plan_that_worked_runs_again_without_a_planner(place: Place) -> None:
    planned(place)
    saved = place.agentfs("save", "job", "greet")
    assert saved.stdout.splitlines() == [
        "write (shell)",
        "    mkdir -p out",
        "    printf '%s\\n' hello > {{params.report_txt}}",
        '    checks: {"kind": "file", "path": "{{params.report_txt}}", "contains": "hello"}',
        "show (shell)",
        "    cat {{params.report_txt}}; echo 'greeting-1'",  # in single quotes it stays text
        "look (read_file, after a person's yes)",
        "    {{params.report_txt}}",
        "copy (shell)",
        "    mkdir -p archive; cp {{params.report_txt}} archive/1",  # archive/1 is no value of its own: both stay
        '    checks: {"kind": "file", "path": "{{params.report_txt}}"}',
    ]
    assert saved.stderr.splitlines() == [
        "saved runbooks/greet.yaml, with the parameters report_txt",
        "run it: agentfs run runbooks/greet.yaml",
    ]
    made = read_yaml((place.root / "runbooks" / "greet.yaml").read_bytes()).value
    assert made["params"] == {"report_txt": {"type": "string", "default": "out/report.txt"}}
    assert made["checks"] == [{"kind": "file", "path": "{{params.report_txt}}"}]
    assert (made["workdir"], made["limits"]) == ("shop", {"attempts": 1})
    assert [step.get("gate") for step in made["steps"]] == [None, None, True, None]
    (place.root / "agentfs.toml").write_text("")  # no planner, no model
    (place.root / "shop" / "out" / "report.txt").unlink()
    place.agentfs("run", "runbooks/greet.yaml", "-p", "report_txt=out/other.txt", code=3)
    place.agentfs("approve", "greet", "look")
    assert place.agentfs("resume", "greet").returncode == 0
    assert place.read("steps/look.1.result.json", "greet")["output"] == "hello\n"
    assert place.read("revisions/1.json", "greet")["by"]["role"] == "runbook"


BOOK = """# Pack photos/2024 for "Ann Lee"

## Steps

### pack
when: `test -d photos/2024`
needs: `test -w .`
```sh
tar -cf pack.tar photos/2024; echo "Ann Lee" > out.txt
```
check: `test -f pack.tar`
"""


def test_of_a_runbook_the_words_before_its_steps_are_what_was_asked(place: Place) -> None:
    (place.root / "shop" / "photos" / "2024").mkdir(parents=True)
    place.goal(BOOK, "pack.md")
    place.agentfs("run", "pack.md", "--workdir", "shop")
    saved = place.agentfs("save", "pack", "packer")
    assert saved.stdout.splitlines() == [
        "pack (shell)",
        '    tar -cf pack.tar {{params.photos}}; echo "{{params.ann_lee}}" > out.txt',
        "    when: test -d {{params.photos}}",
        "    needs: test -w .",
        "    checks: test -f pack.tar",
    ]
    assert saved.stderr.splitlines()[0] == "saved runbooks/packer.yaml, with the parameters ann_lee, photos"


def test_what_cannot_be_saved(place: Place) -> None:
    place.agentfs("init")
    place.agentfs("run", place.runbook("### a\n```sh\nfalse\n```\n"), code=1)
    day = place.run_folder().parent.name
    refused = place.agentfs("save", "job", "x", code=2)
    assert refused.stderr == f"agentfs: {day}/job is not done: only a plan that worked is saved\n"
    place.agentfs("run", place.runbook("### a\n```sh\necho ok\n```\n", name="good.md"))
    refused = place.agentfs("save", "good", "My Book", code=2)
    assert refused.stderr == (
        "agentfs: 'My Book' is not a name: use lower case letters, digits and -, for example 'my-book'\n"
    )
    place.agentfs("save", "good", "again")
    refused = place.agentfs("save", "good", "again", code=2)
    assert refused.stderr == "agentfs: runbooks/again.yaml is there already: choose another name\n"
    assert place.agentfs("run", "runbooks/again.yaml").stdout == "ok\n"

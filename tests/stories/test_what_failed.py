"""A run that failed says what failed and why, first and in red, in the same words and numbers wherever a person looks."""

import json

import pytest

from tests.terminals import OnTerminal
from tests.workspaces import Place

PUBLISH = """\
### build
```sh
echo built
```

### upload
retries: 0
```python
import json
json.loads("{nope")
```

### upload-slowly
instead of: upload
retries: 0
```sh
for i in 1 2 3 4 5 6 7 8 9; do echo "trying host $i"; done >&2; echo "ERROR: permission denied" >&2; echo >&2; exit 3
```

### take-down
on failure of: upload-slowly
```sh
echo taken down
```

### announce
```sh
echo announced
```
"""
UPLOAD = "exit code 1: json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
SLOWLY = "exit code 3: ERROR: permission denied"
COUNTS = {"done": 2, "failed": 2, "skipped": 0, "total": 5}
SUMMARY = f"upload-slowly failed: {SLOWLY}; the clean-up is done; 2 of 5 steps done, 2 failed"


def test_a_failed_run_is_the_same_everywhere(place: Place) -> None:
    ended = place.agentfs("run", place.runbook(PUBLISH), code=1)
    run = place.run_folder().parent.name + "/job"
    messages = [line.partition(" (attempt 1): ")[2] for line in ended.stderr.splitlines() if "FAILED" in line]
    assert messages == [UPLOAD, SLOWLY]
    assert f"replanning: upload failed ({UPLOAD})" in ended.stderr.splitlines()
    assert f"{run}: failed, {SUMMARY}" in ended.stderr.splitlines()

    outcome = place.read("outcome.json")
    assert (outcome["summary"], outcome["steps"]) == (
        SUMMARY,
        {
            "done": ["build", "take-down"],
            "failed": ["upload", "upload-slowly"],
            "skipped": [],
            "not_reached": ["announce"],
        },
    )
    assert place.log()[1:] == [
        "agentfs job: revision 2, after upload failed",
        "agentfs job: revision 3, after upload-slowly failed",
        "agentfs job: failed, 2 of 5 steps",
    ]
    assert f"upload-slowly: {SLOWLY}" in place.git("log", "-1", "--format=%b", "main~1").splitlines()

    assert place.agentfs("status").stdout.splitlines()[1].split(maxsplit=3)[:3] == [run, "failed", "2/5"]
    lines = place.agentfs("status", "job").stdout.splitlines()
    assert lines[0] == f"{run}: failed, 2 of 5 steps done, 2 failed"
    assert [line.split(maxsplit=3) for line in lines[1:6]] == [
        ["✗", "upload", "failed", f"{UPLOAD} (left the plan in revision 2)"],
        ["✗", "upload-slowly", "failed", f"{SLOWLY} (left the plan in revision 3)"],
        ["✓", "build", "done", "attempt 1 succeeded"],
        ["✓", "take-down", "done", "attempt 1 succeeded"],
        ["·", "announce", "waiting", "it was not reached (left the plan in revision 3)"],
    ]
    shown = place.agentfs("show", "job").stdout
    assert [line[:1] for line in shown.splitlines() if line[:1] in "✗✓·" and line] == ["✗", "✗", "✓", "✓", "·"]
    assert f"    {UPLOAD}\n" in shown
    page = (place.run_folder() / "STATUS.md").read_text()
    assert "## Steps (2 of 5 done, 2 failed)" in page
    assert [line.split(" | ")[1] for line in page.splitlines() if line.startswith(("| ✗", "| ✓", "| ·"))] == [
        "upload", "upload-slowly", "build", "take-down", "announce",
    ]  # fmt: skip

    of_all, of_one, whole = (
        json.loads(place.agentfs(*words, "--json").stdout)
        for words in (("status",), ("status", "job"), ("show", "job"))
    )
    assert (of_all[0]["steps"], of_one["steps"]) == (COUNTS, COUNTS)
    assert [one["id"] for one in whole["left"]] == ["upload", "upload-slowly", "announce"]
    assert place.agentfs("verify").stdout == ""

    with OnTerminal(["status", "job"], place.root, place.env, columns=60, stdout=True) as terminal:
        assert terminal.wait()[0] == 0
    assert max(map(len, terminal.terminal.everything)) <= 60
    assert " ".join(" ".join(terminal.terminal.everything).split()).count("Expecting property name enclosed in") == 1


CHECKS = """\
### checked
on failure: continue
retries: 0
```sh
echo hello > out.txt
```
check: `test -s out.txt`
check: `echo "out.txt says hello, not goodbye" >&2; grep -q goodbye out.txt`

### needy
after: nothing
on failure: continue
needs: `echo looked everywhere; command -v no-such-tool`
```sh
no-such-tool
```

### slow
after: nothing
on failure: continue
retries: 0
timeout: 1s
```sh
echo begun; sleep 61500
```
"""
GREP = 'echo "out.txt says hello, not goodbye" >&2; grep -q goodbye out.txt'


def test_checks_and_needs_name_their_command_and_a_timeout_how_long_it_was(place: Place) -> None:
    ended = place.agentfs("run", place.runbook(CHECKS), code=1)
    results = {step: place.read(f"steps/{step}.1.result.json") for step in ("checked", "needy", "slow")}
    assert {
        step: result["error"]["message"].splitlines()[0].partition(" (")[0] for step, result in results.items()
    } == {
        "checked": f"the command check failed: `{GREP}`: exit code 1: out.txt says hello, not goodbye",
        "needy": "what it needs is missing: `echo looked everywhere; command -v no-such-tool`: "
        "exit code 127: looked everywhere",
        "slow": "it did not end within 1 s and was killed: begun",
    }
    assert results["slow"]["error"]["hint"] == (
        'give it more time: the line `timeout: 2s` in the runbook, or "timeout_s": 2 in plan.json'
    )
    assert [(check["run"], check["ok"]) for check in results["checked"]["checks"]] == [
        ("test -s out.txt", True),
        (GREP, False),
    ]
    shown = place.agentfs("show", "job", "checked").stdout.splitlines()
    assert shown[shown.index("  check (command) holds: test -s out.txt") + 1] == "    exit code 0"
    assert shown[shown.index(f"  check (command) FAILS: {GREP}") + 1] == (
        "    exit code 1: out.txt says hello, not goodbye"
    )
    assert '    hint: give it more time: the line `timeout: 2s` in the runbook, or "timeout_s": 2 in plan.json' in (
        ended.stderr.splitlines()
    )


@pytest.mark.disk
def test_what_to_do_about_a_failed_check_is_below_the_reason(place: Place) -> None:
    """A hint may be long; the reason is the line that every list shows."""
    where = place.root.parent / "elsewhere"
    where.mkdir()
    (where / "list").write_text("x\n")
    look = f"cat {where}/list"
    book = f"### a\n```sh\necho a\n```\ncheck: `{look}`\nretries: 0\n"
    ended = place.agentfs("run", place.runbook(book), code=1).stderr
    error, check = place.read("steps/a.1.result.json")["error"], place.read("steps/a.1.result.json")["checks"][0]
    hint = f"tools do not see {where}/list"
    assert error["hint"].startswith(hint)
    assert check["hint"] == error["hint"]
    assert "tools do not see" not in error["message"].splitlines()[0]
    assert [line for line in ended.splitlines() if hint in line] == [f"    hint: {error['hint']}"]
    assert hint not in place.agentfs("status").stdout
    assert f"    hint: {hint}" in place.agentfs("show", "job", "a").stdout
    front = f"checks:\n  - cat {where}/list"
    ended = place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n", front, "goal.md"), code=1).stderr
    assert [line.strip()[:5] for line in ended.splitlines() if hint in line] == ["hint:"]

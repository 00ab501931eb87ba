"""`agentfs report`: one self-contained page about a run."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from tests.workspaces import Place

EVIL = "<script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>"
LEADS = ("href", "src", "action", "formaction", "srcset", "data", "poster", "background", "xlink:href")


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of the page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def report(place: Place, run: str = "job") -> str:
    code, _, output = place.looks("report", run, "-o", "run.html")
    assert (code, re.sub(r"\d+ kB", "N kB", output)) == (0, "run.html: N kB, opens in any browser\n")
    return (place.root / "run.html").read_text(encoding="utf-8")


def must_stand_alone(source: str) -> None:
    """Assert that a page loads nothing, runs nothing, and leads nowhere."""
    elements = Elements(source)
    assert [
        tag for tag, _ in elements.found if tag in ("script", "iframe", "object", "embed", "img", "link", "base")
    ] == []
    attributes = [(tag, name, value) for tag, given in elements.found for name, value in given.items()]
    assert [one for one in attributes if one[1] in LEADS and not str(one[2]).startswith("#")] == []
    assert [one for one in attributes if one[1].startswith("on") or one[1] == "style"] == []
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(given["content"] for _, given in elements.found if given.get("http-equiv"))
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_a_report_shows_a_run_and_is_self_contained(place: Place) -> None:
    steps = (
        "### try\n```sh\necho not yet\nexit 3\n```\n\n"
        "### another\ninstead of: try\n```sh\necho worked\n```\ncheck: `true`\n\n### last\n```sh\necho the end\n```\n"
    )
    place.agentfs("run", place.runbook(steps))
    source = report(place)
    must_stand_alone(source)
    text = " ".join("".join(Elements(source).text).split())
    for words in (
        "✓ done", "the end", "Revision 2", "the runbook after try failed", "steps/try.1.result.json", "try removed",
        "another added", "It ran 2 steps for the first time.",
        "exit code 3", "✓ holds true", "Proof: checked",
    ):  # fmt: skip
        assert words in text, words
    opened = [
        given["id"]
        for tag, given in Elements(source).found
        if tag == "details" and "open" in given and given.get("id")
    ]
    assert opened == ["revision-2", "revision-1", "step-try"]  # the first failure opens by itself


def test_no_text_becomes_markup(place: Place) -> None:
    """Goal, step, output, error, check, question, reply, file name and branch: all of it stays text."""
    steps = [
        {"id": "say", "tool": "shell", "input": {"command": f"echo '{EVIL}'; touch '<script>x<script>'"}, "description": EVIL, "why": EVIL},
        {"id": "ask", "tool": "ask", "input": {"question": EVIL}},
        {"id": "fail", "tool": "shell", "input": {"command": f"echo '{EVIL}' >&2; exit 1"}, "success_condition": EVIL},
    ]  # fmt: skip
    place.goal(
        json.dumps({"goal": EVIL, "steps": steps, "checks": [{"kind": "command", "run": f"echo '{EVIL}'"}]}),
        "job.json",
    )
    place.agentfs("run", "job.json", code=3)
    place.agentfs("reply", "job", "ask", EVIL)
    place.agentfs("resume", "job", code=1)
    outcome = place.run_folder() / "outcome.json"
    outcome.write_text(json.dumps({**json.loads(outcome.read_text()), "branch": f"agentfs/{EVIL}", "base": "0" * 40}))
    source = report(place)
    must_stand_alone(source)
    assert f"agentfs/{EVIL}" in "".join(Elements(source).text)
    assert "".join(Elements(source).text).count(EVIL) >= 9
    assert "evil.example" not in "".join(
        str(value) for _, given in Elements(source).found for name, value in given.items() if name in LEADS
    )


def test_a_run_that_waits_shows_the_question_and_what_to_type(place: Place) -> None:
    place.agentfs("run", place.runbook("### publish\ngate\n```sh\necho out\n```\n"), code=3)
    text = " ".join("".join(Elements(report(place)).text).split())
    run = place.run_folder().parent.name
    assert "publish asks before attempt 1" in text
    assert f"type: agentfs approve {run}/job publish" in text


def test_fifty_steps_that_print_much_stay_below_300_kb(place: Place) -> None:
    steps = "\n".join(f"### step-{n}\nPrint much.\n```sh\nseq 1 20000\n```\ncheck: `true`\n" for n in range(50))
    place.agentfs("run", place.runbook(steps))
    source = report(place)
    must_stand_alone(source)
    assert len(source.encode()) < 300_000


def test_without_a_file_it_goes_to_standard_output(place: Place, tmp_path: Path) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\ntrue\n```\n"))
    assert place.agentfs("report", "job").stdout.startswith("<!doctype html>\n")
    code, _, output = place.looks("report", "job", "-o", str(tmp_path / "no" / "such" / "folder.html"))
    assert (code, "cannot be written: No such file or directory" in output) == (2, True)
    code, _, output = place.looks("report", "nothing")
    assert (code, "there is no run 'nothing'" in output) == (2, True)


def test_a_planner_that_is_a_program_is_no_model(place: Place) -> None:
    place.agentfs("init")
    text = '[planner]\nkind = "command"\ncommand = ["cat", "plan.json"]\n[proof]\nrequire = "claimed"\n'
    (place.root / "agentfs.toml").write_text(text, encoding="utf-8")
    plan = {
        "steps": [
            {"id": "a", "tool": "shell", "input": {"command": "echo hi"}, "depends_on": [], "success_condition": "hi"}
        ]
    }
    (place.root / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    place.agentfs("run", place.goal("Say hi.\n"), "--mode", "split", code=None)
    assert place.read("run.json")["models"]["commands"] == ["planner"]
    place.agentfs("report", "job", "-o", "job.html")
    page = (place.root / "job.html").read_text(encoding="utf-8")
    assert "<dt>planner</dt><dd>a command</dd>" in page
    assert "<dt>executor</dt><dd>no model</dd>" in page
    place.agentfs("fork", "job")
    forked = place.read("run.json", "job-2")["models"]
    assert (forked["planner"], forked["commands"]) == ("gpt-5", ["planner"])


def test_items_of_each_are_shown_with_their_step(place: Place) -> None:
    steps = (
        "### list\n```sh\nprintf 'north\\neast\\n'\n```\n\n"
        '### fetch\neach: {{steps.list.output}}\n```sh\ntest "{{item}}" != east\n```\n'
    )
    place.agentfs("run", place.runbook(steps), code=1)
    source = report(place)
    must_stand_alone(source)
    text = " ".join("".join(Elements(source).text).split())
    assert "1 of 2 items done" in text
    assert "✗ failed fetch~east exit code 1" in text
    assert "✓ done fetch~north" in text
    assert "It ran 2 steps." in text
    assert re.findall(r">(fetch[^<]*)</text>", source.partition('id="time"')[2]) == [
        "fetch",
        "fetch~north",
        "fetch~east",
    ]


def test_many_items_have_one_row_of_the_timeline_and_those_that_fail_their_own(place: Place) -> None:
    given = {"each": [f"i{n}" for n in range(9)], "tool": "shell", "input": {"command": "test {{item}} != i4"}}
    step = {"id": "fetch", **given}
    place.goal(json.dumps({"goal": "Fetch", "steps": [step]}), "job.json")
    place.agentfs("run", "job.json", code=1)
    assert re.findall(r">(fetch[^<]*)</text>", report(place).partition('id="time"')[2]) == ["fetch", "fetch~i4"]

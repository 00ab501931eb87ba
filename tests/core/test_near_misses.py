"""Lines that are nearly a form are refused with what to write; what people write in runbooks otherwise is prose."""

import re

import pytest

from agentfs.core.goal_file import parse_goal
from agentfs.core.near_misses import is_one_letter_off
from agentfs.core.step_lines import LINES, takes_value
from tests.core.goal_samples import CATALOGUE, parsed, refused, runbook, sh, steps_of

EXAMPLES = {
    "check": "`false`", "needs": "`test -f x`", "when": "`test -f x`", "each": "{{steps.first.output}}", "after": "first", "retries": "2", "timeout": "90s", "gate": "",
    "repeatable": "", "not repeatable": "", "on failure": "stop", "instead of": "first", "on failure of": "first",
    "why": "the read path needs it", "success": "all rows are there", "tools": "shell",
    "place": "cluster", "agent": "codex",
}  # fmt: skip


def problems(line: str) -> list[str]:
    """Return what is wrong with a line of the second of two steps, which begins on line 9."""
    return refused(runbook(sh("first", "true"), sh("second", "true", *line.split("\n"))))


def test_every_form_has_an_example_here() -> None:
    assert [form.keyword for form in LINES] == sorted(EXAMPLES, key=[form.keyword for form in LINES].index)
    assert all(form.takes == "nothing" or takes_value(form, EXAMPLES[form.keyword]) for form in LINES)


@pytest.mark.parametrize(
    "marked",
    [
        "    {line}", "\t{line}", "> {line}", "> - {line}", ">{line}", "1. {line}", "2) {line}", "- [ ] {line}", "* [x] {line}",
        "- - {line}", "\u2022 {line}", "#### {line}", "\u2705 {line}", "\u2014 {line}", "<b>{key}:</b> {value}", "**{key}:** {value}",
        "**{key}**: {value}", "__{key}:__ {value}", "*{key}:* {value}", "- **{key}:** {value}", "**{line}**", "{key}\uff1a {value}",
        "{Key} - {value}", "{key} \u2013 {value}", "- {Key} \u2014 {value}", "> **{Key}** - {value}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", LINES, ids=lambda form: form.keyword)
def test_a_form_in_other_clothes_is_no_prose(form: object, marked: str) -> None:
    assert hasattr(form, "keyword")
    value = EXAMPLES[form.keyword]
    line = f"{form.keyword}: {value}" if value else form.keyword
    words = {"line": line, "key": form.keyword, "Key": form.keyword.capitalize(), "value": value}
    text = marked.format(**words)
    if not value:
        text = re.sub(r"\s+[-\u2013\u2014]\s*$|\uff1a\s*$", ".", text)
    (problem,) = problems(text)
    where, _, words_of_it = problem.partition(": ")
    at = text.lower().index(form.keyword) + 1
    assert where == f"goal.md:8:{at}"
    assert f"(write {line}" in words_of_it
    assert "if it is prose, begin it with another word)" in words_of_it


@pytest.mark.parametrize(
    ("line", "write"),
    [
        ("check `false`", "check: `false`"),
        ("Check `false`", "check: `false`"),
        ("CHECK `false`", "check: `false`"),
        ("check `` echo `date` ``", "check: `` echo `date` ``"),
        ("check:`false`", "check: `false`"),
        ("check`false`", "check: `false`"),
        ("check=`false`", "check: `false`"),
        ("check -> `false`", "check: `false`"),
        ("| check | `false` |", "check: `false`"),
        ("`check: false`", "check: `false`"),
        ("`check:` `false`", "check: `false`"),
        ("chek `false`", "check: `false`"),
        ("checks: `false`", "check: `false`"),
        ("chekc: pytest -q", "check: `command`"),
        ("**check:** pytest -q", "check: `command`"),
        ("> check: all is well", "check: `command`"),
        ("Check - is it up?", "check: `command`"),
        ("verify: `false`", "check: `false`"),
        ("post-check: `false`", "check: `false`"),
        ("Copy the rows. check: `false`", "check: `false`"),
        ("Copy the rows; retries: 2", "retries: 2"),
        ("needs `test -f x`", "needs: `test -f x`"),
        ("need: `test -f x`", "needs: `test -f x`"),
        ("after first", "after: first"),
        ("After first.", "after: first"),
        ("after nothing", "after: nothing"),
        ("after:first", "after: first"),
        ("afer: first", "after: first"),
        ("depends on: first", "after: first"),
        ("depends_on: elsewhere", "after: elsewhere"),
        ("Depends on first", "after: first"),
        ("retries 2", "retries: 2"),
        ("retries=2", "retries: 2"),
        ("Retries 2.", "retries: 2"),
        ("retry: 2", "retries: 2"),
        ("retry 2", "retries: 2"),
        ("timeout 90s", "timeout: 90s"),
        ("time out: 5m", "timeout: 5m"),
        ("Timeout 1h 30m", "timeout: 1h 30m"),
        ("timout: soon", "timeout: 90s, 5m, 1h or 1m30s"),
        ("gated", "gate on a line of its own"),
        ("Gate.", "gate on a line of its own"),
        ("`gate`", "gate on a line of its own"),
        ("(gate)", "gate on a line of its own"),
        ("gate yes", "gate on a line of its own"),
        ("gate (ask Bob first)", "gate on a line of its own"),
        ("gate, because it costs money", "gate on a line of its own"),
        ("gate # it costs money", "gate on a line of its own"),
        ("gate because it costs money", "gate on a line of its own"),
        ("gate, not repeatable", "gate on a line of its own"),
        ("gate not repeatable", "gate on a line of its own"),
        ("gate timeout: 5m", "gate on a line of its own"),
        ("needs approval", "gate on a line of its own"),
        ("Approval required.", "gate on a line of its own"),
        ("repeatble", "repeatable on a line of its own"),
        ("idempotent", "repeatable on a line of its own"),
        ("not-repeatable", "not repeatable on a line of its own"),
        ("non-repeatable", "not repeatable on a line of its own"),
        ("unrepeatable", "not repeatable on a line of its own"),
        ("Not repeatable: it sends mail", "not repeatable on a line of its own"),
        ("not repeatable - it sends mail", "not repeatable on a line of its own"),
        ("on failure stop", "on failure: stop"),
        ("On failure, continue.", "on failure: continue"),
        ("on_failure: stop", "on failure: stop"),
        ("on-failure: Stop", "on failure: Stop"),
        ("on error: stop", "on failure: stop"),
        ("on faliure: stop", "on failure: stop"),
        ("on failure of first", "on failure of: first"),
        ("On failure of first.", "on failure of: first"),
        ("instead of first", "instead of: first"),
        ("instead: first", "instead of: first"),
        ("sucess: all rows are there", "success: all rows are there"),
        ("tools shell", "tools: shell"),
        ("tool: shell", "tools: shell"),
    ],
)
def test_a_slip_says_what_to_write(line: str, write: str) -> None:
    (problem,) = problems(line)
    assert problem.startswith("goal.md:8:")
    assert f"(write {write}" in problem or f"{write})" in problem


def test_a_slip_that_is_reported_in_full() -> None:
    assert problems("**Check**: `false`") == [
        (
            "goal.md:8:3: '**Check**: `false`' is not a line a step can hold "
            "(write check: `false`; if it is prose, begin it with another word) [/steps/1/checks]"
        )
    ]


PROSE = """\
Check the logs.
Check the `users` table first.
Check that `systemctl status nginx` is green.
Check `README.md` before you start.
Check `app.db`.
Check `app.db`, then go on.
Check if the service is up
Check with Bob (`bob@example.org`).
check that the disk has room
Checking takes a minute.
Checked: 2026-01-12, by Ada
Checklist: see the wiki
Checkout: use the branch main
check:types runs the compiler
check_disk.sh prints what is left
check-list of the release
`check` is what make calls it
`check`: runs the linter
- `needs`: what the job waits for in CI
Checks, gates and retries are explained in the README.
The check: it prints nothing.
We check: is it up?
Spot check: three rows
Sanity check: `psql` opens
- check the disk, then the load
- [ ] check the disk
1. Check the disk.
> Check your mail.
**Check** the logs before you go on.
**Note:** check the logs.
Needs root.
Needs the VPN.
Needs `jq` and `curl`.
Needs about five minutes.
needs to run as root
It needs: patience
Needless to say, be careful.
After the backup, restart.
After first, which counts the rows, nothing is written.
After that, all is well.
After 5 minutes the alarm ends.
Afterwards: call Ada
after a while it prints a dot
Afternoon: quiet
Later: clean up
Thereafter nothing.
Depends on: the database being up
This depends on first.
Runs after midnight.
Retries are harmless here.
Retry if it fails.
Retry: ask the vendor whether it is down
Retries happen by themselves, twice.
2 retries are usual.
Entries: 5
Series: 3
Timeouts are common at night.
Timeout errors can be ignored.
Timeout of 5 minutes is usual
Time: about 5 minutes
Times: 3
The timeout: ask ops
Gate 3 is closed.
The gate is closed.
Gatekeeper: Ada
Gate-keeper approves.
gateway is up
Gate keepers are told by mail.
Date: 2026-01-12
Repeatable builds matter.
repeatable.sh is the script
It is not repeatable.
Not repeatable by hand, but the machine can do it.
Repeat it until it works.
Not again!
On failure, page the on-call engineer.
On failure of the disk, call the vendor.
On failure call Ada.
On error: page the on-call engineer
If it fails: stop and call Ada
Instead of the old table, the new one is read.
Instead of first we used to count by hand.
Instead, the new one is read.
Why this works: see the wiki
Why not by hand?
Whys and hows are in the wiki.
Success is a green page.
Successful: 3
Successor: the new table
Access: ask IT for the VPN
Process: see the wiki
Tools we use are in the wiki.
Tooling: make
Tool: psql 15
**Tools:** psql, jq
Pools: 2
Feeds: 3
Seeds: 42
Approval is given by mail.
Needs approval from the release manager.
Ensure that `psql` opens.
Verify `nginx -t`
Verify the result by hand.
Verify: the page is green
Assert yourself.
Test: `npm test`
Owner: ops
Severity: 2
Note: this is prose.
See http://example.org/check:up
#123 is fixed by this.
https://example.org/after
Before you start, always check: `systemctl status nginx` must be green.
{{steps.first.output}} rows are expected
x
""".splitlines()


@pytest.mark.parametrize("line", PROSE)
def test_what_people_write_in_runbooks_is_prose(line: str) -> None:
    goal = parsed(runbook(sh("first", "true"), sh("second", "true", line)))
    assert steps_of(goal)[1].get("description") == line


@pytest.mark.parametrize(
    "paragraph",
    [
        "This only reads, so it is safe and\nrepeatable, however often you like.",
        "Publishing costs money. There is a\ngate (the release manager), which is why it waits.",
        "The load balancer needs a minute before you\ncheck - as the wiki says - whether it answers.",
        "It is done by hand, and it is\nnot repeatable because it sends mail.",
    ],
)
def test_a_sentence_that_goes_on_below_is_prose(paragraph: str) -> None:
    goal = parsed(runbook(sh("first", "true"), sh("second", "true", *paragraph.split("\n"))))
    assert steps_of(goal)[1]["description"] == paragraph.replace("\n", " ")


# ── headings, fences, lines of no step ────────────────────────────────────────────────────────────────────

STEP = "### a\n```sh\ntrue\n```\n"


@pytest.mark.parametrize(
    ("heading", "column"),
    [
        ("## Step", 1), ("##Steps", 1), ("##steps:", 1), ("# Steps", 1), ("### Steps", 1), ("#### Steps", 1), ("> ## Steps", 1),
        ("    ## Steps", 5), ("## Stpes", 1), ("## **Steps**", 1), ("## 2. Steps", 1), ("**Steps**", 1), ("Steps:", 1), ("Steps\n-----", 1),
    ],
)  # fmt: skip
def test_a_heading_that_is_nearly_the_one_of_the_steps(heading: str, column: int) -> None:
    found = refused(f"# Goal\n\n{heading}\n\n{STEP}")
    shown = heading.strip().partition("\n")[0]
    assert found == [
        (
            f"goal.md:3:{column}: {shown!r} does not begin the steps "
            "(write ## Steps: two signs, a blank, the word, at the start of the line) [/steps]"
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# Clean up\n\n## Step 1: look\n\nLook.\n\n## Step 2: act\n\nAct.\n",
        "# Steps\n\n1. Look.\n2. Act.\n",
        "# Clean up\n\n**Steps**\n\n- look\n- act\n",
        "Steps:\n\n1. Look.\n```sh\nls\n```\n",
        "# Stops\n\n### Hamburg\n### Berlin\n",
        "Fix the bug in app.py.\n\n```py\nprint(1)\n",
    ],
)
def test_a_goal_in_words_may_speak_of_steps(text: str) -> None:
    assert parsed(text).kind == "words"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            runbook(sh("a", "1"), "###b", "Words."),
            [
                "goal.md:7:1: '###b' is not a heading (write ### b: a blank behind the signs, at the start of the line) [/steps/0]"
            ],
        ),
        (
            runbook(sh("a", "1"), "> ### b"),
            [
                "goal.md:7:3: '> ### b' is not a heading (write ### b: a blank behind the signs, at the start of the line) [/steps/0]"
            ],
        ),
        (
            runbook(sh("a", "1"), "##Notes"),
            [
                "goal.md:7:1: '##Notes' is not a heading (write ## Notes: a blank behind the signs, at the start of the line) [/steps/0]"
            ],
        ),
        (
            runbook("### a", "```sh", "echo a", "", "### b", "```sh", "echo b", "```"),
            [
                "goal.md:4:4: this fence is not closed before line 8 begins another (end it with a line of the same marks) [/steps/0/input]"
            ],
        ),
        (
            "```sh\nls\n\n" + runbook(STEP).replace("```", "~~~"),
            [
                "goal.md:1:4: this fence is never closed: '## Steps' below is part of it (end it with a line of the same marks)"
            ],
        ),
        (
            runbook(sh("a", "1"), "## Notes", "~~~", "words"),
            ["goal.md:8:4: this fence is never closed (end it with a line of the same marks)"],
        ),
        (
            runbook(sh("a", "1"), "1. Then:", "", "    ```sh", "    true", "    ```"),
            ["goal.md:9:5: this fence is read as prose (write ```sh at the start of the line) [/steps/0/tool]"],
        ),
        (
            runbook(sh("a", "1"), "> ~~~ bash", "> true", "> ~~~"),
            ["goal.md:7:3: this fence is read as prose (write ~~~bash at the start of the line) [/steps/0/tool]"],
        ),
        (
            "# Goal\n\ncheck: `true`\n\n## Steps\n" + STEP,
            [
                (
                    "goal.md:3:1: this check belongs to no step, and would not be run (put it below the step's ### heading; "
                    "one of the whole goal goes into the front matter, under checks:)"
                )
            ],
        ),
        (
            runbook("retries: 2", sh("a", "1")),
            [
                "goal.md:3:1: this line, 'retries: 2', belongs to no step (put it below a ### heading with the step's id) [/steps]"
            ],
        ),
        (
            runbook("Steps:", sh("a", "1", "Steps:", "1. one", "2. two"), sh("b", "1"), "## Notes", "Steps:", STEP),
            [],
        ),
        (
            runbook("Why: so that all is well.", "The checks are strict.", sh("a", "1")),
            [],
        ),
    ],
)
def test_what_would_not_be_read(text: str, problems: list[str]) -> None:
    assert refused(text) == problems


@pytest.mark.parametrize(
    ("word", "is_slip"),
    [
        ("check", False), ("chek", True), ("checks", True), ("chekc", True), ("chock", True), ("checked", False), ("heck", False),
        ("xcheck", False), ("ch", False), ("", False),
    ],
)  # fmt: skip
def test_one_slip(word: str, is_slip: bool) -> None:
    assert is_one_letter_off(word, "check") is is_slip


def test_a_plan_that_was_made_from_such_a_goal_still_holds() -> None:
    text = runbook(sh("a", "1", "check `false`"), "##Notes")
    goal = parse_goal(text.encode(), "goal.md", CATALOGUE, planned=True)
    assert steps_of(goal)[0]["description"] == "check `false` ##Notes"

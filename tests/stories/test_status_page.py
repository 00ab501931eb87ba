"""STATUS.md: what a run is doing, what it waits for, what to type, a picture of the plan, and the ends of the logs."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.facts import Attempt, Facts, Talk
from agentfs.core.run_state import RunState, derive
from agentfs.engine.status_page import MOST_STEPS, StatusFile, status_page
from agentfs.storage.timing import TIMING
from tests.builders import PureWorld, a_plan, a_result, a_step, an_order, facts, means
from tests.daemons import Watching, book
from tests.npm import node, packages
from tests.workspaces import Place, end, wait_for

BOOK = """\
### a
```sh
echo a
```

### hold
Hold on a little.
after: a
```sh
n=0; while ! test -e go; do if test -e more-$((n + 1)); then n=$((n + 1)); echo "~~~ <b>line $n</b>"; fi; sleep 0.05; done
```

### colour
after: a
```ask
Which colour?
```

### send
gate
after: a
```sh
echo sent
```
"""


def page_of(folder: Path) -> str:
    path = folder / "STATUS.md"
    return path.read_text() if path.exists() else ""


def without_times(page: str) -> str:
    for pattern, words in ((r"\d\.\d s", "T"), (r"\d\d:\d\d:\d\d ", ""), (r"\nclaim .*", "\nclaim")):
        page = re.sub(pattern, words, page)
    return page


def test_the_page_shows_all_that_can_be_shown(place: Place) -> None:
    process = place.begin("run", place.runbook(BOOK))
    wait_for(lambda: any(place.runs.glob("*/job/steps/hold.1.log.jsonl")), "the step to begin")
    folder = place.run_folder()
    for number in (1, 2):
        (folder / "files" / f"more-{number}").touch()
        wait_for(lambda n=number: f"<b>line {n}</b>" in page_of(folder), f"line {number}")  # type: ignore[misc]
    run, steps = f"{folder.parent.name}/job", folder / "steps"
    wait_for(lambda: "? | send" in page_of(folder), "the gate")
    assert (
        without_times(page_of(folder))
        == f"""\
# Job

**running**: hold is running

## Waits for you

~~~
  read {steps}/colour.1.question.md
  answer in {steps}/colour.1.reply.md
  or type: agentfs reply {run} colour TEXT
  read {steps}/send.1.question.md
  answer in {steps}/send.1.reply.md: approve or reject, on its first line
  or type: agentfs approve {run} send
~~~

## Steps (1 of 4 done)

```mermaid
flowchart TD
    s0["✓ a: done"]
    s1["▸ hold: running"]
    s2["? colour: asks"]
    s3["? send: gated"]
    s0 --> s1
    s0 --> s2
    s0 --> s3
    classDef done fill:#d3f9d8,stroke:#2b8a3e,color:#111
    class s0 done
    classDef now fill:#d0ebff,stroke:#1971c2,color:#111
    class s1 now
    classDef person fill:#fff3bf,stroke:#e67700,color:#111
    class s2,s3 person
```

| | step | state | attempt | time | |
|---|---|---|---|---|---|
| ✓ | a | done | 1 | T | attempt 1 succeeded |
| ▸ | hold | running | 1 |  | Hold on a little. |
| ? | colour | asks | 1 |  | waits for a person's answer |
| ? | send | gated |  |  | needs approval |

## hold, attempt 1

~~~
claim
output stdout: ~ ~ <b>line 1</b>
output stdout: ~ ~ <b>line 2</b>
~~~

`agentfs show {run}` has the outputs, `agentfs log {run}` the revisions.
"""
    )
    (folder / "files" / "go").touch()
    assert end(process, signal.SIGCONT)[0] == 3
    assert "## hold" not in page_of(folder)
    assert "**waiting**" in page_of(folder)


def test_a_daemon_keeps_the_ends_of_logs_current_too(place: Place) -> None:
    with Watching(place) as daemon:
        daemon.drop("job.md", "# Job\n\n## Steps\n\n" + BOOK)
        folder = daemon.folder("job")
        wait_for(lambda: "## hold, attempt 1" in page_of(folder), "the log of the step that runs")
        for number in (1, 2):
            (folder / "files" / f"more-{number}").touch()
            wait_for(lambda n=number: f"line {n}" in page_of(folder), f"line {number}")  # type: ignore[misc]
        (folder / "files" / "go").touch()
        wait_for(lambda: "hold | done" in page_of(folder), "the end of the step")


def test_a_limit_says_what_to_type(place: Place) -> None:
    name = place.runbook("### a\n```sh\nsleep 0.4\n```\n### b\n```sh\necho b\n```\n", "limits:\n  minutes: 0.005")
    output = place.agentfs("run", name, code=3).stderr
    run = f"{place.run_folder().parent.name}/job"
    assert f"\n  type: agentfs resume {run} --add-minutes N\n" in page_of(place.run_folder())
    assert f"\n  type: agentfs resume {run} --add-minutes N\n" in output


def test_the_planner_is_shown_while_it_thinks(tmp_path: Path) -> None:
    given = facts(a_plan(a_step("a")), has_steps=False)
    from dataclasses import replace

    from tests.builders import a_call

    given = given.with_call(replace(given.planner_call(2), call=a_call(2, revision=1, trigger="asked")))
    (tmp_path / "planning").mkdir()
    line = {"event": "request", "at": "2026-11-16T10:00:00.000000Z", "model": "gpt"}
    (tmp_path / "planning" / "2.log.jsonl").write_text(json.dumps(line) + "\n")
    page = status_page(tmp_path, derive(given, means(planner=True)))
    assert "## The planner, call 2\n\n~~~\n10:00:00 request model=gpt\n~~~\n" in page


def test_the_page_is_written_only_now_and_then_and_only_if_it_differs(tmp_path: Path) -> None:
    now = [0.0]
    page, path = StatusFile(tmp_path, clock=lambda: now[0]), tmp_path / "STATUS.md"
    first, second = derive(facts(a_plan(a_step("a"))), means()), derive(facts(a_plan(a_step("b"))), means())
    page.keep(first)
    inode = path.stat().st_ino
    now[0] = 0.9 * TIMING.status_page
    page.keep(second)
    assert (path.stat().st_ino, "| a |" in path.read_text()) == (inode, True)
    now[0] = TIMING.status_page
    page.keep(first)
    assert path.stat().st_ino == inode, "nothing has changed"
    now[0] = 2.0
    page.keep(second)
    assert "| b |" in path.read_text()
    page.keep(first, now=True)
    assert "| a |" in path.read_text()


# ── what models and tools write does nothing there ────────────────────────────────────────────────────────

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[click](javascript:alert(1))", "![x](https://evil.example/x.png)",
    "# Heading", "| a | b |", "`code` ```", "~~~", "~~~~~", "```mermaid", "\n# Heading\n", "\r\n\r\n# Heading", "**done**: all is well",
    '"]; click s0 "javascript:alert(1)"', "<!-- hidden -->", "<details><summary>x</summary>", "&lt;b&gt;", "- item", "1. item",
    "\u202eevil", "\x1b[31mred", "end", "<https://evil.example>", "* * *", "===", "[x]: https://evil.example", "\\", "\\`",
]  # fmt: skip


def hostile_state(text: str) -> RunState:
    """A run in which every text is this one."""
    steps = [a_step("a", description=text, depends_on=[]), a_step("b", description=text), a_step("end", gate=True)]
    given, _ = PureWorld(fate=lambda step, _: "failed" if step == "b" else "done").play(facts(a_plan(*steps)))
    view = derive(given, means()).steps["b"]
    failed = a_result(view, "failed", 2, error={"kind": "exit", "message": text})
    given = given.with_attempt("b", Attempt(2, order=an_order(view, number=2), claimed=True, result=failed))
    asked = Attempt(1, order=an_order(view), claimed=True, talks=(Talk(reply=text),))
    from dataclasses import replace

    goal = replace(given.goal, title=text)
    return derive(replace(given.with_attempt("a", asked), goal=goal, outcome=None), means())


def hostile_page(tmp_path: Path, text: str) -> str:
    (tmp_path / "steps").mkdir(exist_ok=True)
    line = {"event": "output", "at": "2026-11-16T10:00:00.000000Z", "stream": "stdout", "text": text}
    for step in "ab":
        for number in (1, 2):
            (tmp_path / "steps" / f"{step}.{number}.log.jsonl").write_text(json.dumps(line) + "\n")
    return status_page(tmp_path, hostile_state(text))


RENDER = """
import { readFileSync } from 'node:fs';
import MarkdownIt from 'markdown-it';
const md = new MarkdownIt({ html: true, linkify: false });
console.log(JSON.stringify(JSON.parse(readFileSync(0)).map(text => md.render(text))));
"""


def test_no_text_changes_the_structure_of_the_page(tmp_path: Path) -> None:
    folder = packages("markdown-it")
    pages = [hostile_page(tmp_path, text) for text in HOSTILE]
    plain = node(folder, RENDER, [hostile_page(tmp_path, "plain")])[0]
    for text, rendered in zip(HOSTILE, node(folder, RENDER, pages), strict=True):
        assert _tags(rendered) == _tags(plain), f"{text!r}\n{rendered}"


def _tags(html: str) -> list[str]:
    return re.findall(r"<[^>]+>", html)


# ── the picture is one that Mermaid draws ─────────────────────────────────────────────────────────────────

PARSE = """
import { readFileSync } from 'node:fs';
import { JSDOM } from 'jsdom';
globalThis.window = new JSDOM('').window;
globalThis.document = window.document;
const mermaid = (await import('mermaid')).default;
const kinds = [];
for (const text of JSON.parse(readFileSync(0))) {
  try { kinds.push((await mermaid.parse(text)).diagramType); } catch (error) { kinds.push(error.message); }
}
console.log(JSON.stringify(kinds));
"""
WORDS = [
    "end",
    "graph",
    "subgraph",
    "class",
    "click",
    "default",
    "style",
    "o",
    "x",
    "call",
    "href",
    "0",
    "1-2",
    "a--b",
    "flowchart",
]


def picture_of(given: Facts, tmp_path: Path, **more: Any) -> str:
    page = status_page(tmp_path, derive(given, means(**more)))
    assert page.count("```") == 2
    return page.partition("```mermaid\n")[2].partition("```\n")[0]


def test_mermaid_draws_every_picture(tmp_path: Path) -> None:
    folder = packages("mermaid", "jsdom")
    plans = [a_plan(*(a_step(name) for name in WORDS))]
    plans.append(a_plan(*(a_step(f"s{n}", depends_on=[f"s{m}" for m in range(n)]) for n in range(20))))
    plans.append(a_plan(*(a_step(f"s{n}", depends_on=[]) for n in range(500))))
    given = [facts(plan) for plan in plans]
    fates = {"a": "done", "b": "failed", "c": "blocked", "d": "rejected", "e": "interrupted"}
    steps = [a_step(name, depends_on=[], on_failure="continue", max_attempts=1) for name in fates]
    more = [a_step("f", gate=True, depends_on=[]), a_step("g", skip="no", depends_on=[])]
    more.append(a_step("h", tool="ask", input={"question": "?"}, depends_on=[]))
    every = facts(a_plan(*steps, *more))
    world = PureWorld(fate=lambda step, _: fates.get(step, "done"), slots=9)  # type: ignore[arg-type, return-value]
    given += [every, world.play(every)[0]]
    pictures = [picture_of(one, tmp_path) for one in given]
    assert node(folder, PARSE, [*pictures, "flowchart TD\n a[x\n"])[:-1] == ["flowchart-v2"] * len(pictures)
    assert node(folder, PARSE, ["flowchart TD\n end[x]\n"]) != ["flowchart-v2"], "it knows a mistake"
    assert pictures[2].count("[") == MOST_STEPS


@pytest.mark.parametrize("steps", [0, 1])
def test_there_is_no_picture_of_nothing(tmp_path: Path, steps: int) -> None:
    given = facts(a_plan(a_step("a"))) if steps else facts()
    assert "mermaid" not in status_page(tmp_path, derive(given, means()))


def test_a_run_that_ended_waits_for_nobody(place: Place) -> None:
    name = place.goal(book("echo a", "echo b", lines="gate"))
    place.agentfs("run", name, code=3)
    place.agentfs("cancel", "job")
    assert "Waits for you" not in page_of(place.run_folder())

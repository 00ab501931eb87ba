"""The live view, seen and used in a real browser."""

import json
import re
import signal
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from selenium.webdriver.common.keys import Keys

from benchmarks.web import many_revisions
from tests.browsers import Browser
from tests.npm import packages
from tests.served import web
from tests.sweeps import only_full
from tests.workspaces import Place, end, wait_for

GATED = "### build\nMake it.\n```sh\necho built\n```\n\n### publish\nPut it out.\ngate\n```sh\necho out {{steps.build.output}}\n```\n"


def path_of(place: Place, name: str = "job") -> str:
    folder = place.run_folder(name)
    return f"/run/{folder.parent.name}/{folder.name}"


def test_a_run_is_watched_live_and_its_log_followed(browser: Browser, place: Place) -> None:
    go = place.root / "go"
    steps = "### slow\n```sh\necho begun\nwhile ! test -e go; do sleep 0.05; done\necho '\x1b[31mred\x1b[0m end'\n```\n\n### last\n```sh\necho over\n```\n"
    place.agentfs("init")
    running = place.begin("run", place.runbook(steps, "workdir: ."))
    wait_for(lambda: any(place.runs.glob("*/job/steps/slow.1.log.jsonl")), "the claim")
    with web(place) as server:
        browser.enter(server.url)
        browser.sees("job", "#busy")
        browser.go(path_of(place))
        browser.script("window.same = true")
        browser.sees("▸ running", "#step-slow")
        first = browser.driver.current_window_handle
        tab = browser.tab(f"{path_of(place)}/step/slow")
        browser.sees("begun", "ol.log")
        browser.until(lambda: browser.text("#connection") == "live", "the events")
        go.touch()
        browser.sees("red end", "ol.log")
        browser.until(lambda: browser.text("ol.log .c1") == "red", "its colour")
        browser.sees("✓ done", "h1")  # the step's page has been exchanged for the last time
        browser.find("input.filter").send_keys("red")
        browser.until(lambda: browser.text("ol.log")[9:] == "red end", "the filter")
        browser.driver.switch_to.window(first)
        browser.sees("✓ done", "#head")
        browser.sees("over", "#outcome")
        assert browser.script("return window.same") is True  # the page was never loaded again
        assert browser.driver.title.startswith("done: Job")
        assert tab != first
    assert end(running, signal.SIGCONT)[0] == 0


def test_the_first_failure_opens_by_itself_and_what_a_person_opened_stays_open(
    browser: Browser, place: Place
) -> None:
    go = place.root / "go"
    steps = (
        "### first\n```sh\necho one\n```\n\n### second\n```sh\nwhile ! test -e go; do sleep 0.05; done\nexit 3\n```\n"
    )
    place.agentfs("init")
    running = place.begin("run", place.runbook(steps, "workdir: ."))
    wait_for(lambda: any(place.runs.glob("*/job/steps/second.1.log.jsonl")), "the claim")
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("▸ running", "#step-second")
        browser.find("#step-first > summary").click()
        browser.find("#goal summary").click()  # a fold without a name of its own
        assert not browser.find("#step-second").get_property("open")
        go.touch()
        browser.sees("exit code 3", "#step-second pre.error")
        for css in ("#step-first", "#step-second", "#goal details"):
            assert browser.find(css).get_property("open"), css
    assert end(running, signal.SIGCONT)[0] == 1


def test_a_gate_is_answered(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.sees("publish: needs approval", "#waits")
        browser.find("a.run").click()
        browser.sees("publish asks before attempt 1 Put it out. It would run (sh):", "#waits")
        browser.sees('echo out "built"', "#waits")
        browser.press("Approve")
        browser.sees("publish.1.reply.md: approve", "section.card")
        assert (place.run_folder() / "steps/publish.1.reply.md").read_text() == "approve\n"
        place.agentfs("resume", "job")
        browser.sees("✓ done", "#head")


def test_a_no_and_an_answer_go_in_words(browser: Browser, place: Place) -> None:
    steps = "### name\n```ask\nWhat is it called?\n```\n\n### publish\ngate\n```sh\necho {{steps.name.output}}\n```\n"
    place.agentfs("run", place.runbook(steps), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.find("textarea[name=text]").send_keys("<b>Ada's</b>\nsecond line")
        browser.press("Reply")
        browser.sees("name.1.reply.md", "section.card")
        assert (place.run_folder() / "steps/name.1.reply.md").read_text() == "<b>Ada's</b>\nsecond line\n"
        place.agentfs("resume", "job", code=3)
        browser.go(path_of(place))
        browser.find("textarea[name=because]").send_keys("not today")
        browser.press("Reject")
        browser.sees("publish.1.reply.md: reject", "section.card")
    assert (place.run_folder() / "steps/publish.1.reply.md").read_text() == "reject\nnot today\n"


def test_a_plan_is_edited_wrongly_then_rightly(browser: Browser, place: Place) -> None:
    place.agentfs(
        "run",
        place.runbook(
            "### a\n```sh\necho one\n```\n\n### b\n```sh\necho two\n```\n\n### c\n```sh\necho three\n```\n"
        ),
    )
    plan = place.run_folder() / "plan.json"
    source = plan.read_text()
    with web(place) as server:
        browser.enter(server.url)
        browser.go(f"{path_of(place)}/edit?step=b")
        assert browser.script("return document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd).trim()") == '"id": "b",'  # fmt: skip

        def write(text: str) -> None:
            browser.script("const a = document.querySelector('textarea'); a.value = arguments[0]; a.dispatchEvent(new Event('input'))", text)  # fmt: skip

        write(source.replace('"echo two"', '"echo two",'))
        browser.sees("1 problem", "#checked")
        browser.sees("plan.json:", "#checked")
        browser.press("Save")
        browser.sees("1 problem", "#checked")
        assert plan.read_text() == source  # nothing was saved
        write(source.replace("echo two", "echo 2"))
        browser.sees("reruns 2 steps, keeps 1", "#checked")
        browser.sees("echo two → echo 2", "#checked")
        browser.press("Save")
        browser.sees("plan.json: saved", "section.card")
        assert plan.read_text() == source.replace("echo two", "echo 2")
        place.agentfs("resume", "job")
        browser.go(path_of(place))
        browser.sees("Revision 2 Ada edited by Ada ~1 reran 2", "#revision-2")
        browser.sees("It reran 2 steps: b, c, kept 1.", "#revision-2")
        browser.press("Compare revisions")
        browser.sees("echo two → echo 2", ".comparison")
        browser.sees("reruns 0 steps, keeps 3", ".comparison")


def test_a_page_that_is_out_of_date_is_refused_and_shows_what_changed(browser: Browser, place: Place) -> None:
    place.agentfs("plan", place.runbook("### a\n```sh\necho one\n```\n"))
    plan = place.run_folder() / "plan.json"
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("is a draft", "#waits")
        first = browser.driver.current_window_handle
        browser.tab(f"{path_of(place)}/edit")
        edited = plan.read_text().replace("echo one", "echo evil")
        browser.script("document.querySelector('textarea').value = arguments[0]", edited)
        browser.driver.switch_to.window(first)
        browser.driver.switch_to.window(browser.driver.window_handles[1])
        browser.press("Save")
        browser.sees("plan.json: saved", "section.card")
        browser.driver.switch_to.window(first)
        browser.press("Approve")
        browser.sees("Not done: this page was out of date")
        browser.sees("echo one → echo evil", "section.card.bad")
    assert json.loads(plan.read_text())["status"] == "draft"


def test_a_gate_that_is_out_of_date_says_so_and_is_refused(browser: Browser, place: Place) -> None:
    """Two tabs show the same gate; in one of them the step is changed, and then another person answers."""
    place.agentfs("run", place.runbook(GATED), code=3)
    plan, steps = place.run_folder() / "plan.json", place.run_folder() / "steps"
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees('echo out "built"', "#waits")
        first = browser.driver.current_window_handle
        browser.tab(f"{path_of(place)}/edit?step=publish")
        edited = plan.read_text().replace("echo out", "echo far out")
        browser.script("document.querySelector('textarea').value = arguments[0]", edited)
        browser.press("Save")
        browser.sees("plan.json: saved", "section.card")
        place.agentfs("resume", "job", code=3)  # the gate asks again, about another order
        browser.driver.switch_to.window(first)
        browser.sees("This has changed since the page was loaded.", "#waits")
        browser.sees('echo out "built"', "#waits")  # what was about to be answered is not exchanged
        browser.press("Approve")
        browser.sees("Not done: this page was out of date")
        browser.sees("- echo out {{steps.build.output}} + echo far out {{steps.build.output}}", "section.card.bad")
        assert [path.name for path in steps.glob("*.reply*.md")] == []
        browser.go(path_of(place))
        browser.sees('echo far out "built"', "#waits")
        browser.tab(path_of(place))
        browser.press("Reject")
        browser.sees("reply.md: reject", "section.card")
        replies = {path.name: path.read_text() for path in steps.glob("*.reply*.md")}
        browser.driver.switch_to.window(first)
        browser.sees("This has changed since the page was loaded.", "#waits")
        browser.press("Approve")
        browser.sees("Not done")
        assert {path.name: path.read_text() for path in steps.glob("*.reply*.md")} == replies


def test_an_edit_over_an_edit_is_refused_and_loses_nothing(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    plan = place.run_folder() / "plan.json"
    with web(place) as server:
        browser.enter(server.url)
        browser.go(f"{path_of(place)}/edit")
        mine = plan.read_text().replace("echo built", "echo mine")
        browser.script("document.querySelector('textarea').value = arguments[0]", mine)
        theirs = plan.read_text().replace("echo built", "echo theirs")
        plan.write_text(theirs)
        browser.press("Save")
        browser.sees("has changed since you began to edit it")
        browser.sees("echo built → echo theirs", "section.card.bad")
        assert "echo mine" in browser.script("return document.querySelector('textarea').value")
    assert plan.read_text() == theirs


def test_acts_say_what_they_would_do_before_they_do_it(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\necho one\n```\n\n### b\n```sh\ntest -e ../now\n```\n"), code=1)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("✗ failed", "#step-b")  # the first failure is open, and named at the top
        browser.press("Retry", "#outcome a.button")
        browser.sees("it would then be running", "section.card")
        assert not (place.run_folder() / "steps/b.1.again.md").exists()
        browser.press("Retry", "button")
        browser.sees("will be retried", "section.card")
        assert (place.run_folder() / "steps/b.1.again.md").exists()
        assert not (place.run_folder() / "outcome.json").exists()
        browser.go(f"{path_of(place)}/do/skip?step=b")
        browser.find("input[name=because]").send_keys("not needed")
        browser.press("Skip", "button")
        browser.sees('"skip" of b is now "not needed"', "section.card")
        browser.go(f"{path_of(place)}/do/fork")
        browser.find("input[name=name]").send_keys("again")
        browser.press("Fork", "button")
        browser.until(lambda: browser.driver.current_url.endswith("/again"), "the new run")
        browser.go(f"{path_of(place)}/do/cancel")
        browser.press("Cancel", "button")
        browser.sees("cancelled", "#head")


def test_a_goal_is_dropped(browser: Browser, place: Place) -> None:
    place.agentfs("init")
    with web(place) as server:
        browser.enter(server.url)
        browser.sees("No runs yet")
        browser.press("Write a goal", "a.button")
        area = browser.find("textarea[name=text]")
        area.clear()
        area.send_keys("# Job\n\n## Steps\n\n### a\n```sh\necho hi\n")
        browser.press("Drop it")
        browser.sees("problem")
        assert list((place.root / "goals").glob("*.md")) == []
        area = browser.find("textarea[name=text]")
        area.send_keys("```\n")
        browser.press("Drop it")
        browser.sees("goals/job.md is dropped")
        browser.sees("agentfs watch")
    assert (place.root / "goals/job.md").read_text().endswith("echo hi\n```\n")


def test_a_goal_is_dropped_with_a_form_made_from_its_parameters(browser: Browser, place: Place) -> None:
    place.agentfs("init")
    (place.root / "runbooks").mkdir(exist_ok=True)
    (place.root / "runbooks/deploy.md").write_text(
        "---\nparams:\n  env: {enum: [staging, prod], description: Where to}\n  copies: {type: integer, default: 2, minimum: 1}\n"
        "  note: {type: string, default: ''}\n---\n# Deploy the shop\n\n## Steps\n\n### go\n```sh\n"
        'echo "{{params.env}} {{params.copies}}"\n```\n'
    )
    with web(place) as server:
        browser.enter(server.url)
        browser.go("/new")
        browser.press("runbooks/deploy.md", "main a")
        browser.sees("Where to (one of staging, prod)")
        assert browser.find("input[name=param-copies]").get_property("value") == "2"
        browser.find("input[name=param-copies]").send_keys("x")
        browser.find("select[name=param-env] option[value=prod]").click()
        browser.press("Drop it")
        browser.sees("1 problem")
        assert list((place.root / "goals").glob("*.json")) == []
        field = browser.find("input[name=param-copies]")
        field.clear()
        field.send_keys("3")
        assert browser.find("select[name=param-env]").get_property("value") == "prod"
        browser.press("Drop it")
        browser.sees("goals/deploy.json is dropped")
    dropped = json.loads((place.root / "goals/deploy.json").read_text())
    assert dropped == {"uses": "runbooks/deploy.md", "params": {"env": "prod", "copies": "3"}}
    assert place.agentfs("run", "goals/deploy.json").stdout == "prod 3\n"


def test_a_server_that_is_gone_is_noticed_and_nothing_typed_is_lost(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.until(lambda: browser.text("#connection") == "live", "the events")
        browser.find("textarea[name=because]").send_keys("half a thought")
    browser.sees("no connection to agentfs web", "#connection")
    again = place.begin("web", "--port", str(server.port))
    try:
        browser.sees("agentfs web was started again", "#connection")  # with other sessions
        assert browser.find("textarea[name=because]").get_property("value") == "half a thought"
        assert again.stdout is not None
        url = again.stdout.readline().strip()
        browser.tab("/")
        browser.driver.get(url)
        browser.sees("publish: needs approval", "#waits")
        browser.driver.switch_to.window(browser.driver.window_handles[0])
        browser.until(lambda: browser.text("#connection") == "live", "the events")
    finally:
        end(again)


def test_a_thousand_steps_stay_usable(browser: Browser, place: Place) -> None:
    steps = "\n".join(f"### s{n}\nNote {n}.\nafter: nothing\n```note\nn {n}\n```\n" for n in range(1000))
    place.agentfs("run", place.runbook(steps))
    with web(place) as server:
        browser.enter(server.url)
        began = time.monotonic()
        browser.go(path_of(place))
        browser.sees("✓ done", "#head")
        assert time.monotonic() - began < 60  # docs/web.md has what it takes on a quiet machine
        assert len(browser.all("details.step")) == 1000
        assert len(browser.all("svg.plan .node")) < 20
        browser.script(
            "location.hash = '#step-s777'"
        )  # as a link of the graph or the timeline does: what is folded opens
        browser.sees("n 777", "#step-s777")


@only_full
def test_a_thousand_steps_and_a_hundred_revisions_stay_usable(browser: Browser, place: Place, tmp_path: Path) -> None:
    steps = "\n".join(f"### s{n}\nNote {n}.\nafter: nothing\n```note\nn {n}\n```\n" for n in range(1000))
    place.agentfs("run", place.runbook(steps))
    many_revisions(place.run_folder(), 100)
    page = tmp_path / "run.html"
    place.agentfs("report", "job", "-o", str(page))
    assert page.stat().st_size < 5_000_000
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("Revision 100", "#revision-100")
        assert (len(browser.all("#steps details.step")), len(browser.all("[id^=revision-]"))) == (1000, 100)
        browser.script("document.getElementById('revision-50').open = true")
        browser.sees("changed in revision 50", "#revision-50")
        browser.go(f"{path_of(place)}/compare?a=1&b=100")
        assert len(browser.all(".comparison details.step")) == 99  # folded, each with its step's name
        browser.script("document.querySelectorAll('.comparison details').forEach((one) => { one.open = true; })")
        browser.sees("changed in revision 100", ".comparison")
    browser.driver.get(page.as_uri())
    browser.script("document.getElementById('revision-50').open = true")
    browser.sees("changed in revision 50", "#revision-50")


def test_it_works_by_keyboard_alone(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    with web(place) as server:
        browser.enter(server.url)
        reached = [browser.tap(Keys.TAB)]
        while "publish: needs approval" not in reached[-1] and len(reached) < 60:
            reached.append(browser.tap(Keys.TAB))
        assert reached[0] == "Skip to the content", reached
        browser.tap(Keys.ENTER)
        browser.sees("asks before attempt 1", "#waits")
        browser.until(lambda: browser.tap(Keys.TAB) == "Approve", "the focus on Approve")
        browser.tap(Keys.ENTER)
        browser.sees("publish.1.reply.md: approve", "section.card")


def test_every_page_fits_the_screen_and_axe_finds_nothing_serious(browser: Browser, place: Place) -> None:
    """At the width of a phone and of a tablet; in light, and in dark what depends on colours; in the reader's time zone."""
    axe = (packages("axe-core") / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    place.agentfs("run", place.runbook(GATED), code=3)
    place.agentfs("run", place.runbook("### bad\n```sh\nexit 3\n```\ncheck: `true`\n", name="fails.md"), code=1)
    place.agentfs("plan", place.runbook("### a\n```sh\necho one\n```\n", name="draft.md"))
    job, fails, draft = path_of(place), path_of(place, "fails"), path_of(place, "draft")
    acts = (f"{fails}/do/retry?step=bad", f"{job}/do/resume", f"{job}/compare")
    with web(place) as server:
        browser.enter(server.url)
        lines = f"{fails}/log/bad/1?before=9999"
        for path in ("/", job, fails, draft, f"{job}/edit", f"{fails}/step/bad", lines, "/new", "/nothing", *acts):
            browser.go(path)
            for width in (390, 1024):
                browser.emulate(width=width)
                assert browser.script("return document.documentElement.scrollWidth") <= width, path
            browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
            for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
                browser.emulate(scheme=scheme)
                assert _serious(browser, rules) == [], (path, scheme)
        browser.emulate(zone="Asia/Kolkata")
        browser.go(job)
        began = datetime.fromisoformat(place.read("run.json")["started_at"]).astimezone(ZoneInfo("Asia/Kolkata"))
        browser.sees(f"began {began:%Y-%m-%d %H:%M:%S}", "#about")


def _serious(browser: Browser, rules: list[str] | None) -> list[tuple[str, list[str]]]:
    """Return what axe finds that keeps people out, or makes it hard for them."""
    found = browser.driver.execute_async_script(
        "const done = arguments[1], only = arguments[0] ? {runOnly: arguments[0]} : {};"
        "axe.run(document, {resultTypes: ['violations'], ...only}).then((r) => done(r.violations))",
        rules,
    )
    bad = [one for one in found if one["impact"] in ("moderate", "serious", "critical")]
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in bad]


def test_the_report_needs_no_script_and_asks_for_nothing(browser: Browser, place: Place, tmp_path: Path) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    page = tmp_path / "run.html"
    place.agentfs("report", "job", "-o", str(page))
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(page.as_uri())
        browser.sees("publish asks before attempt 1", "#waits")
        assert [one.get_attribute("href") for one in browser.all("svg.plan a")] == [None, None] or len(
            browser.all("svg.plan a")
        ) == 2
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    entries = browser.script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert (entries, re.search(r"https?://", page.read_text().replace("http-equiv", ""))) == ([], None)


def test_twenty_tabs_are_all_served_and_all_current(browser: Browser, place: Place) -> None:
    """A browser has six connections to a server, for all its tabs together."""
    place.agentfs("run", place.runbook(GATED), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.script("for (let n = 0; n < 19; n++) window.open(n % 2 ? '/' : arguments[0])", path_of(place))
        tabs = browser.driver.window_handles
        assert len(tabs) == 20
        for tab in tabs:
            browser.driver.switch_to.window(tab)
            browser.sees("publish", "#waits")
        place.agentfs("approve", "job")
        place.agentfs("resume", "job")
        for tab in tabs:
            browser.driver.switch_to.window(tab)
            browser.sees("✓ done")


def test_a_run_in_a_run_is_a_node_that_one_can_enter(browser: Browser, place: Place) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[tools]\nallow = ["shell", "run"]\n')
    (place.root / "runbooks").mkdir()
    (place.root / "runbooks/build.md").write_text(
        "# Build\n\n## Steps\n\n### compile\ngate\n```sh\necho built\n```\n"
    )
    steps = (
        "### build\n```run\nuses: runbooks/build.md\n```\n\n### say\n```sh\necho got {{steps.build.output}}\n```\n"
    )
    place.agentfs("run", place.runbook(steps), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        child = path_of(place, "job-build")
        browser.sees(f"Look there first: ? waiting {child.removeprefix('/run/')} compile: needs approval", "#waits")
        title = browser.find("svg.plan .node title").get_attribute("textContent") or ""
        assert f"It is the run {child.removeprefix('/run/')}." in title
        browser.script(
            "document.querySelector('svg.plan .node a').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        browser.until(lambda: browser.driver.current_url.endswith(child), "the run that it is")
        browser.sees("compile asks before attempt 1", "#waits")
        browser.press("Approve")
        browser.sees("compile.1.reply.md: approve", "section.card")
        place.agentfs("resume", "job")
        browser.sees("✓ done", "#head")
        browser.press(f"{path_of(place).removeprefix('/run/')} build", "#about a")
        browser.until(lambda: f"{path_of(place)}#step-build" in browser.driver.current_url, "the run above")
        browser.sees(child.removeprefix("/run/"), "#step-build dl.fields")
        browser.sees("✓ done", "#head")


PLANNER = """import json, sys
given = json.load(sys.stdin)["messages"]
command = "echo better" if "too plain" in json.dumps(given) else "echo plain"
step = {"id": "say", "description": "Say it.", "tool": "shell", "input": {"command": command}, "success_condition": "it prints a line"}
print(json.dumps({"steps": [{**step, "depends_on": []}]}))
"""


def test_a_draft_is_rejected_with_words_and_the_next_one_approved(browser: Browser, place: Place) -> None:
    place.agentfs("init")
    (place.root / "planner.py").write_text(PLANNER)
    (place.root / "agentfs.toml").write_text(
        'mode = "split"\n[planner]\nkind = "command"\ncommand = ["python3", "planner.py"]\n'
    )
    place.agentfs("run", "--approve", "plan", place.goal("Say something\n"), code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("say Say it. echo plain", "#waits")  # what would run is there to be read
        browser.find("textarea[name=because]").send_keys("too plain")
        browser.press("Reject")
        browser.sees("replan.md: too plain", "section.card")
        place.agentfs("resume", "job", code=3)
        browser.go(path_of(place))
        browser.sees("say Say it. echo better", "#waits")
        browser.press("Approve")
        browser.sees("approved", "section.card")
        place.agentfs("resume", "job")
        browser.sees("✓ done", "#head")
        browser.press("Replan")
        browser.find("input[name=because]").send_keys("say more")
        browser.press("Replan", "button")
        browser.sees("replan.md", "section.card")
    assert (place.run_folder() / "replan.md").read_text() == "say more\n"


def test_a_run_is_paused_resumed_topped_up_and_restored(browser: Browser, place: Place) -> None:
    place.agentfs("run", place.runbook(GATED), code=3)
    plan = place.run_folder() / "plan.json"
    first = plan.read_bytes()
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.press("Pause")
        browser.press("Pause", "button")
        browser.sees("plan.json has an edit that becomes revision 2 when the run goes on.", "#head")
        assert json.loads(plan.read_bytes())["status"] == "paused"
        browser.press("Resume")
        browser.find("input[name=minutes]").send_keys("x")
        browser.press("Resume", "button")
        browser.sees("minutes: 'x' is not a number above 0")
        browser.find("input[name=minutes]").clear()
        browser.find("input[name=minutes]").send_keys("5")
        browser.press("Show what it would do")
        browser.sees('"minutes" of "limits" is now 125', "section.card")
        browser.press("Resume", "button")
        browser.sees("plan.json has an edit", "#head")
        assert json.loads(plan.read_bytes())["limits"] == {"minutes": 125}
        place.agentfs("resume", "job", code=3)  # the edits become revisions
        browser.go(f"{path_of(place)}/compare?a=0&b=1")
        browser.press("Restore revision 1", "a.button")
        browser.press("Restore", "button")
        browser.sees("plan.json", "section.card")
    assert plan.read_bytes() == first


def test_a_step_that_was_cut_off_is_settled(browser: Browser, place: Place) -> None:
    """A step that may not be repeated, and whose driver is killed: a person says what became of it."""
    place.agentfs("init")
    running = place.begin("run", place.runbook("### pay\nnot repeatable\n```sh\nsleep 600\n```\n"))
    wait_for(lambda: any(place.runs.glob("*/job/steps/pay.1.log.jsonl")), "the claim")
    running.kill()
    running.wait()
    place.agentfs("resume", "job", code=3)
    with web(place) as server:
        browser.enter(server.url)
        browser.go(path_of(place))
        browser.sees("pay was cut off in attempt 1: was it done?", "#waits")
        browser.find("textarea[name=text]").send_keys("paid, receipt 17")
        browser.press("Done")
        browser.sees("pay.1.reply.md", "section.card")
        place.agentfs("resume", "job")
        browser.sees("paid, receipt 17", "#outcome")


STUBBORN = """import json, pathlib, sys, time
given = json.dumps(json.load(sys.stdin)["messages"])
again = "step_failed" in given
while again and not pathlib.Path("edited").exists():
    time.sleep(0.05)
def step(id, command, after):
    return {"id": id, "description": id, "tool": "shell", "input": {"command": command}, "depends_on": after, "success_condition": "it prints a line"}
make = step("make", "echo made" if again else "exit 3", [])
send = step("send", "echo to everyone" if again else "echo to the team", ["make"])
print(json.dumps({"steps": [make, send]}))
"""


def test_an_answer_beside_a_persons_edit_shows_three_sides(browser: Browser, place: Place) -> None:
    """While the planner thinks, a person edits what it is about to change: what it was, theirs, and the answer."""
    place.agentfs("init")
    (place.root / "planner.py").write_text(STUBBORN)
    (place.root / "agentfs.toml").write_text(
        'mode = "split"\n[planner]\nkind = "command"\ncommand = ["python3", "planner.py"]\n'
    )
    running = place.begin("run", "--approve", "never", place.goal("Send it\n"))
    wait_for(lambda: any(place.runs.glob("*/job/planning/2.json")), "the second call")
    plan = place.run_folder() / "plan.json"
    plan.write_text(plan.read_text().replace("echo to the team", "echo to the team and me"))
    (place.root / "edited").touch()
    wait_for(lambda: any(place.runs.glob("*/job/planning/2.question.md")), "the question")
    end(running)
    with web(place) as server:
        browser.enter(server.url)
        browser.sees("the planner's answer needs approval", "#waits")
        browser.go(path_of(place))
        browser.sees("The planner wants to change the plan, and needs your yes", "#waits")
        sides = [" ".join(one.text.split()) for one in browser.all("#waits .sides > div")]
        assert sides == [
            "it was echo to the team",
            "yours echo to the team and me",
            "the answer echo to everyone",
        ]
        browser.sees("send input.command", "#waits .conflict")
        browser.sees("reruns 0 steps, keeps 0", "#waits")
        browser.press("Approve")
        browser.sees("2.reply.md: approve", "section.card")
        place.agentfs("resume", "job")
        browser.sees("to everyone", "#outcome")


def test_with_a_daemon_everything_goes_on_by_itself(browser: Browser, place: Place) -> None:
    place.agentfs("init")
    watching = place.begin("watch")
    with web(place) as server:
        browser.enter(server.url)
        browser.go("/new")
        browser.find("textarea[name=text]").send_keys(f"# Job\n\n## Steps\n\n{GATED}")
        browser.press("Drop it")
        browser.sees("goals/job.md is dropped")
        browser.go("/")
        browser.sees("publish: needs approval", "#waits")
        browser.find("a.run").click()
        browser.sees("publish asks before attempt 1", "#waits")
        browser.script("window.same = true")
        browser.press("Approve")
        browser.sees("✓ done", "#head")
        browser.sees("out built", "#outcome")
    end(watching)

"""Take docs/web-question.png and docs/web-edit.png: two pages of the live view, in Chromium.

    .venv/bin/python scripts/web_pictures.py [FOLDER]

Two runs are made in a temporary workspace, their model scripted. In one the planner answers while a person edits the
same step; in the other a plan is being edited.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from agentfs.testing.server import ScriptedServer  # noqa: E402 - found by the line above
from tests.browsers import Browser, start  # noqa: E402

WIDTH, HEIGHT, SCALE = 1280, 1080, 1.5
SECONDS = 60.0
AGENTFS = [sys.executable, "-m", "agentfs"]
SETTINGS = """mode = "split"
[planner]
base_url = "{url}"
[executor]
base_url = "{url}"
[proof]
acceptance = false
"""
DEPLOY = """# Deploy the shop to production

## Steps

### backup
Back the database up.
after: nothing
```sh
echo "3.2 GB written"
```

### build
Build the image.
after: nothing
```sh
echo "image shop:1.4.2"
```

### unit-tests
Run the unit tests.
after: build
```sh
echo "214 passed"
```

### integration-tests
Run the integration tests against a copy.
after: build
```sh
echo "38 passed"
```

### scan
Look for known vulnerabilities.
after: build
```sh
echo "0 high, 3 low"
```

### publish
Put the new version in place.
after: backup, unit-tests, integration-tests, scan
gate
```sh
echo "publishing {{steps.build.output}}"
```

### smoke
Look at the first page.
```sh
echo "200 OK"
```
"""
TO_ALL = "echo sent report.html to everyone@example.org"
EDIT = """const area = document.querySelector("textarea.code");
area.value = area.value.replace("shop:1.4.2", "shop:1.4.3").replace("214 passed", "215 passed");
area.dispatchEvent(new Event("input"));"""


def step(name: str, does: str, command: str, after: str | None, why: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "description": does, "why": why, "tool": "shell", "input": {"command": command},
        "depends_on": [after] if after else [], "success_condition": "it prints its line", **more,
    }  # fmt: skip


def tickets() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the first plan, and the steps that the planner answers with when one of them has failed."""
    first = [
        step("collect", "Collect the tickets of this week", "echo 214 tickets", None, "everything else reads them"),
        step("classify", "Sort them by subject", "echo billing 90, other 50", "collect", "a part of the report each"),
        step("report", "Write the report as PDF", "echo 'no PDF writer' >&2; exit 1", "classify", "it is printed"),
        step("mail", "Send the report to the team", "echo sent to team@example.org", "report", "they meet on Monday"),
    ]  # fmt: skip
    again = [
        step("report-html", "Write the report as HTML", "echo report.html", "classify", "there is no PDF writer"),
        step("mail", "Send the report to the team", TO_ALL, "report-html", "they meet on Monday"),
    ]  # fmt: skip
    return first, again


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("nothing happened for a minute")
        time.sleep(0.02)


def make_runs(root: Path, server: ScriptedServer, env: dict[str, str]) -> str:
    """Make both runs, and return their day."""
    first, again = tickets()
    server.plan({"steps": first}, tokens=(1820, 0, 410, 0))
    server.plan({"steps": again}, tokens=(3140, 0, 260, 0), pause_s=0.2)  # time for a person to edit the plan
    subprocess.run([*AGENTFS, "init"], cwd=root, env=env, check=True, capture_output=True)
    (root / "agentfs.toml").write_text(SETTINGS.format(url=server.url))
    (root / "deploy.md").write_text(DEPLOY)
    subprocess.run([*AGENTFS, "run", "deploy.md"], cwd=root, env=env, check=False, capture_output=True)
    words = "Summarise the support tickets of this week"
    running = subprocess.Popen([*AGENTFS, "run", words], cwd=root, env=env, stderr=subprocess.DEVNULL)
    wait_for(lambda: list(root.glob("runs/*/summarise*/planning/2.json")))
    plan = next(root.glob("runs/*/summarise*/plan.json"))
    plan.write_text(plan.read_text().replace("team@example.org", "team@example.org and archive@example.org"))
    running.wait(SECONDS)
    return plan.parent.parent.name


def take(browser: Browser, path: str, scheme: str, file: Path, script: str = "") -> None:
    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.emulate(scheme=scheme)
    browser.go(path)
    if script:
        browser.script(script)
    browser.sees("keeps")
    picture = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    file.write_bytes(base64.b64decode(picture["data"]))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else REPO / "docs")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise SystemExit("there is no Chromium with its driver here: apt install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as name, ScriptedServer() as server:
        root, profile = Path(name) / "shop", Path(name) / "profile"
        root.mkdir()
        env = {**os.environ, "PYTHONPATH": str(REPO), "OPENAI_API_KEY": "none", "GIT_AUTHOR_NAME": "Ada"}
        env["AGENTFS_EXECUTOR_REPAIR"] = "false"
        day = make_runs(root, server, env)
        command, pipe, none = [*AGENTFS, "web", "--port", "0"], subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, cwd=root, env=env, stdout=pipe, stderr=none, text=True) as web:
            browser = start(chromium, driver, profile)
            try:
                browser.enter((web.stdout.readline() if web.stdout else "").strip())
                question = f"/run/{day}/summarise-the-support-tickets-of-this-week"
                take(browser, question, "light", folder / "web-question.png")
                take(browser, f"/run/{day}/deploy/edit", "dark", folder / "web-edit.png", EDIT)
            finally:
                browser.driver.quit()
                web.terminate()


if __name__ == "__main__":
    main()

"""A step that runs elsewhere: in a process that a command starts, or on a Dask cluster."""

import json
import os
import signal
import sys

import agentfs
from agentfs.storage.timing import TIMING
from tests.workspaces import Place, end, wait_for

BOX = f"""
[places.box]
kind = "command"
command = {json.dumps([sys.executable, "-m", "agentfs", "attempt"])}
slots = 2
"""
TWO = """### make
place: box
```sh
echo made > thing.txt; cat thing.txt
```
check: `grep made thing.txt`

### look
```sh
echo "{{steps.make.output}} seen"
```
"""


def box(place: Place, more: str = "") -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(BOX + more, encoding="utf-8")


def test_a_step_runs_at_its_place_and_the_next_one_here(place: Place) -> None:
    box(place)
    done = place.agentfs("run", place.runbook(TWO))
    assert done.stdout == "made seen\n"
    made, looked = (place.read(f"steps/{step}.1.result.json") for step in ("make", "look"))
    assert (made["place"], made["host"], made["checks"][0]["ok"]) == ("box", os.uname().nodename, True)
    assert (looked.get("place"), looked.get("host")) == (None, None)
    assert place.read("steps/make.1.json")["place"] == "box"
    shown = place.agentfs("show", "job", "make").stdout
    assert f" at box ({os.uname().nodename}), sandbox bubblewrap\n" in shown
    assert not (place.run_folder("job") / "files" / ".agentfs-token").exists()
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")
    place.agentfs("verify", "job")


def test_the_default_place_is_the_settings(place: Place) -> None:
    box(place, '[executor]\nplace = "box"\n')
    place.agentfs("run", place.runbook("### one\n```sh\necho 1\n```\n### two\n```note\ntext: noted\n```\n"))
    assert [place.read(f"steps/{step}.1.result.json").get("place") for step in ("one", "two")] == ["box", None]


def test_a_place_that_nobody_knows(place: Place) -> None:
    box(place)
    place.runbook("### one\nplace: bax\n```sh\necho 1\n```\n### two\nplace: box\n```note\ntext: noted\n```\n")
    wrong = place.agentfs("check", "job.md", code=2)
    means_nothing = "'place' means nothing beside the tool 'note', which runs where the run is driven"
    unknown = "job.md:6:8: there is no place 'bax' (did you mean 'box'?; or add [places.bax] to agentfs.toml"
    assert [line.split(", or remove")[0] for line in wrong.stdout.splitlines()] == [
        unknown,
        f"job.md:11:8: {means_nothing} (remove 'place') [/steps/1/place]",
    ]
    assert unknown in place.agentfs("run", "job.md", code=2).stderr


def test_a_default_place_that_is_not_there(place: Place) -> None:
    box(place, '[executor]\nplace = "bax"\n')
    what, fix = "there is no place 'bax'", "add [places.bax] to agentfs.toml, or take place out of [executor]"
    assert place.agentfs("run", place.runbook("### one\n```sh\necho 1\n```\n"), code=2).stderr.endswith(
        f"agentfs: {what} ({fix})\n"
    )
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    assert {"about": "[executor]", "grade": "wrong", "what": what, "fix": fix} in found


def test_a_place_that_the_settings_no_longer_have(place: Place) -> None:
    """What ran there is read as before; a run that goes on says what is missing."""
    box(place)
    place.agentfs("run", place.runbook(TWO))
    (place.root / "agentfs.toml").write_text("", encoding="utf-8")
    assert "make" in place.agentfs("show", "job").stdout
    assert "done" in place.agentfs("status").stdout
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")
    place.agentfs("verify", "job")


def test_a_driver_that_is_killed_leaves_an_orphan_that_ends_itself(place: Place) -> None:
    """Nothing runs twice unnoticed: the step is not repeatable, so a person is asked."""
    box(place)
    steps = "### pay\nplace: box\nnot repeatable\n```sh\necho paid >> effects; sleep 60\n```\n"
    driver = place.begin("run", place.runbook(steps))
    wait_for(lambda: any(place.runs.glob("*/job/files/effects")), "the step has begun")
    driver.send_signal(signal.SIGKILL)
    end(driver)
    asked = place.agentfs("resume", "job", code=3)
    assert "pay" in asked.stderr
    result = place.read("steps/pay.1.result.json")
    assert (result["status"], result["place"], result["host"], result["error"]["message"]) == (
        "interrupted",
        "box",
        os.uname().nodename,
        "the attempt at box was lost: its driver ended",
    )
    assert (place.run_folder("job") / "files" / "effects").read_text(encoding="utf-8") == "paid\n"


def test_cancel_says_at_once_what_it_waits_for(place: Place) -> None:
    box(place)
    driver = place.begin("run", place.runbook("### slow\nplace: box\n```sh\ntouch begun; sleep 60\n```\n"))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step has begun")
    driver.send_signal(signal.SIGKILL)
    end(driver)
    cancelling = place.begin("cancel", "job")
    assert cancelling.stderr is not None
    output: list[str] = []
    while not output or "waiting" not in output[-1]:
        output.append(cancelling.stderr.readline())
        assert output[-1], output
    assert not (place.run_folder("job") / "outcome.json").exists(), "it is reported before it is waited for"
    orphan = "slow.1 may still run at box, and its driver is gone"
    assert output[-1] == f"{orphan}: waiting {TIMING.place_orphan:g} s, in which it ends itself\n"
    assert cancelling.wait(60) == 0
    end(cancelling)
    assert place.read("outcome.json")["status"] == "cancelled"


def test_a_signal_ends_what_runs_there(place: Place) -> None:
    box(place)
    driver = place.begin(
        "run", place.runbook("### slow\nplace: box\n```sh\ntouch begun; sleep 60; touch late\n```\n")
    )
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "it has begun")
    driver.send_signal(signal.SIGTERM)
    code = driver.wait(30)
    end(driver)
    assert code == 130
    assert place.read("steps/slow.1.result.json")["status"] == "interrupted"


def test_doctor_asks_every_place(place: Place) -> None:
    box(place, '[places.lost]\nkind = "command"\ncommand = ["false"]\n')
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    asked = [(one["about"], one["grade"], one["what"]) for one in found if one["about"].startswith("[places")]
    answers = (
        f"{os.uname().nodename} has agentfs {agentfs.__version__}, sandbox bubblewrap, sees the workspace, "
        "its clock agrees"
    )
    assert asked == [
        ("[places.box]", "fine", answers),
        ("[places.lost]", "wrong", "cannot be reached: the command ended with 1"),
    ]
    assert not (place.root / ".agentfs-token").exists()


BROKEN = '[places.cluster]\nkind = "dask"\nscheduler = "tcp://scheduler.example:8786"\n'
BEYOND = "tcp://scheduler.example:8786 is beyond this machine, and not protected by TLS"
USE_TLS = "use tls://, or set insecure = true if you trust that network"


def test_a_cluster_beyond_this_machine_needs_tls(place: Place) -> None:
    box(place, f'[executor]\nplace = "cluster"\n{BROKEN}')
    refused = place.agentfs("run", place.runbook("### one\n```sh\necho 1\n```\n"), code=2)
    assert refused.stderr.endswith(f"[places.cluster]: {BEYOND} ({USE_TLS})\n")


def test_a_place_that_cannot_be_used_matters_where_it_is_used(place: Place) -> None:
    box(place, BROKEN)
    assert place.agentfs("run", place.runbook(TWO)).stdout == "made seen\n"
    there = place.runbook(TWO.replace("place: box", "place: cluster"), name="there.md")
    words = (
        f"there.md:6:8: the place 'cluster' cannot be used: {BEYOND} (in agentfs.toml: {USE_TLS}) [/steps/0/place]"
    )
    assert place.agentfs("check", "there.md", code=2).stdout.splitlines() == [words]
    assert words in place.agentfs("run", there, code=2).stderr
    found = json.loads(place.agentfs("doctor", "--json", code=None).stdout)["findings"]
    assert ("[places.cluster]", "wrong", BEYOND) in [(one["about"], one["grade"], one["what"]) for one in found]


def test_a_run_whose_place_can_no_longer_be_used_waits_for_a_fix(place: Place) -> None:
    """Nothing is tried, and nothing has failed: it goes on once the settings are right."""
    box(place)
    steps = "### first\n```sh\ntouch first; sleep 60\n```\nrepeatable\n" + TWO.replace(
        "### make\n", "### make\nafter: first\n"
    )
    driver = place.begin("run", place.runbook(steps))
    wait_for(lambda: any(place.runs.glob("*/job/files/first")), "it has begun")
    driver.send_signal(signal.SIGTERM)
    driver.wait(30)
    end(driver)
    plan = place.run_folder("job") / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace("sleep 60", "true"), encoding="utf-8")
    settings = place.root / "agentfs.toml"
    settings.write_text(BROKEN.replace("cluster", "box"), encoding="utf-8")
    refused = place.agentfs("resume", "job", code=2)
    assert f"[places.box]: {BEYOND} ({USE_TLS})" in refused.stderr
    assert not (place.run_folder("job") / "steps" / "make.1.result.json").exists()
    settings.write_text(BOX, encoding="utf-8")
    assert place.agentfs("resume", "job").stdout == "made seen\n"


TYPIST = """
import json, pathlib, sys
given = sys.stdin.read()
pathlib.Path("typed.txt").write_text(f"{len(given) > 0}\\n")
print(json.dumps({"ok": True, "output": "typed it"}))
"""


def test_a_coding_agent_works_at_a_place(place: Place) -> None:
    box(
        place,
        f'[tools]\nnetwork = "agents"\n[agents.typist]\ncommand = {json.dumps([sys.executable, "-c", TYPIST])}\n',
    )
    with open(place.root / "agentfs.toml", "a", encoding="utf-8") as file:
        file.write('speaks = "text"\n')
    place.runbook("### type\nagent: typist\nplace: box\nType something.\ncheck: `grep True typed.txt`\n")
    place.agentfs("run", "job.md")
    result = place.read("steps/type.1.result.json")
    assert (result["status"], result["place"], result["checks"][0]["ok"]) == ("done", "box", True)


def test_how_full_a_place_is_and_what_waits_for_it(place: Place) -> None:
    """In `status`, in STATUS.md and on the page of the run."""
    box(place)
    steps = "### work\nplace: box\neach: a, b, c, d\n```sh\ntouch b-{{item}}; until test -e go; do sleep 0.05; done\n```\n"
    driver = place.begin("run", place.runbook(steps))
    wait_for(lambda: len([*place.runs.glob("*/job/files/b-*")]) == 2, "both slots are taken")
    full = "box: 2 attempts under way, work~c and 1 more wait for a slot"
    wait_for(lambda: full in (place.run_folder() / "STATUS.md").read_text(encoding="utf-8"), "STATUS.md says so")
    assert f"at {full}" in place.agentfs("status", "job").stdout.splitlines()
    page = place.root / "page.html"
    place.agentfs("report", "job", "-o", str(page))
    assert full in page.read_text(encoding="utf-8")
    (place.run_folder() / "files" / "go").touch()
    assert driver.wait(60) == 0
    end(driver)
    assert "slot" not in (place.run_folder() / "STATUS.md").read_text(encoding="utf-8")


def test_an_attempt_that_was_sent_does_not_wait_for_a_slot(place: Place) -> None:
    """Until the place has a machine for it: it has its slot, and has not begun."""
    place.agentfs("init")
    late = f"until test -e {place.root}/go; do sleep 0.05; done; exec {sys.executable} -m agentfs attempt"
    section = f'[places.box]\nkind = "command"\nslots = 2\ncommand = {json.dumps(["sh", "-c", late])}\n'
    (place.root / "agentfs.toml").write_text(section, encoding="utf-8")
    driver = place.begin("run", place.runbook("### work\nplace: box\neach: a, b, c\n```sh\necho {{item}}\n```\n"))
    wait_for(lambda: len([*place.runs.glob("*/job/steps/work~*.1.json")]) == 2, "two are sent")
    lines = place.agentfs("status", "job").stdout.splitlines()
    assert "at box: 0 attempts under way, 2 sent, not begun, work~c waits for a slot" in lines
    assert place.agentfs("status").stdout.splitlines()[-1] == "place box: 2 of 2 slots in use, 1 step waiting"
    (place.root / "go").touch()
    assert driver.wait(60) == 0
    end(driver)


def test_a_run_that_ends_leaves_the_token_to_the_others_in_its_folder(place: Place) -> None:
    """Beside another run, and beside `doctor`."""
    place.agentfs("init")
    late = f"until test -e {place.root}/go; do sleep 0.05; done; exec {sys.executable} -m agentfs attempt"
    slow = f'[places.slow]\nkind = "command"\ncommand = {json.dumps(["sh", "-c", late])}\n'
    (place.root / "agentfs.toml").write_text(BOX + slow, encoding="utf-8")
    goal = "---\nworkdir: .\n---\n# Job\n\n## Steps\n\n### one\nplace: {}\n```sh\necho 1\n```\n"
    for name in ("slow", "box"):
        (place.root / f"{name}.md").write_text(goal.format(name), encoding="utf-8")
    driver = place.begin("run", "slow.md")
    wait_for((place.root / ".agentfs-token").exists, "it was sent")
    place.agentfs("run", "box.md")
    place.agentfs("doctor", code=None, env={"_AGENTFS_TIMING_DIVISOR": "10"}, seconds=120)
    (place.root / "go").touch()
    assert driver.wait(60) == 0
    end(driver)
    assert not (place.root / ".agentfs-token").exists()

"""Goals that take values: declared in front matter, given when a run begins, frozen in run.json."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfs.executor import checks
from agentfs.storage.timing import TIMING
from agentfs.tools.process import TookTooLong
from tests.daemons import Watching
from tests.workspaces import Place, wait_for

DEPLOY = """\
---
params:
  env:
    enum: [staging, prod]
    description: Where to deploy
  replicas:
    type: integer
    minimum: 1
    default: 2
    description: How many copies
  note:
    type: string
    default: ""
---
# Deploy to {{params.env}}

## Steps

### look
```sh
echo seen
```

### deploy
Deploy {{params.replicas}} copies to {{params.env}}
after: nothing
```sh
echo "{{params.env}}" {{params.replicas}}{{params.note}}
```
check: `test {{params.replicas}} -ge 1`
"""


@pytest.fixture
def deploy(place: Place) -> str:
    place.agentfs("init")
    (place.root / "runbooks").mkdir()
    return place.goal(DEPLOY, "runbooks/deploy.md")


def record(place: Place, name: str, run: str = "deploy") -> Any:
    return json.loads((place.run_folder(run) / name).read_text(encoding="utf-8"))


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_values_are_given_frozen_and_shown(place: Place, deploy: str) -> None:
    nasty = "$(touch pwned) `touch pwned` '\"; touch pwned"
    done = place.agentfs("run", deploy, "-p", "env=prod", "-p", "replicas=3", "-p", f"note={nasty}")
    assert done.stdout == f"prod 3{nasty}\n"
    assert record(place, "run.json")["params"] == {"env": "prod", "replicas": 3, "note": nasty}
    assert contents(place.run_folder("deploy") / "files") == []  # a value is never code
    plan = record(place, "plan.json")
    assert (plan["goal"], plan["steps"][1]["description"]) == (
        "Deploy to prod",
        "Deploy {{params.replicas}} copies to {{params.env}}",
    )
    order = record(place, "steps/deploy.1.json")
    assert order["description"] == "Deploy 3 copies to prod"
    shown = place.agentfs("show", "deploy").stdout
    assert "  params    env = prod, replicas = 3, note = $(touch pwned)" in shown
    assert "    Deploy 3 copies to prod\n" in shown
    assert "  does  Deploy 3 copies to prod\n" in place.agentfs("show", "deploy", "deploy").stdout
    assert (place.run_folder("deploy") / "goal.md").read_text(encoding="utf-8") == DEPLOY
    assert place.agentfs("verify", "deploy").returncode == 0
    assert place.agentfs("replay", "deploy").returncode == 0


def test_values_from_a_file_count_after_what_was_typed(place: Place, deploy: str) -> None:
    (place.root / "values.yaml").write_text("env: staging\nreplicas: 5\n", encoding="utf-8")
    done = place.agentfs("run", deploy, "--params", "values.yaml", "-p", "env=prod")
    assert done.stdout == "prod 5\n"
    (place.root / "values.json").write_text('{"env": "staging", "replicas": "4"}', encoding="utf-8")
    assert place.agentfs("run", deploy, "--params", "values.json").stdout == "staging 4\n"
    assert record(place, "run.json", "deploy-2")["params"]["replicas"] == 4  # text is taken as the schema's type


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.yaml", None, "agentfs: --params none.yaml: No such file or directory\n"),
        ("a.yaml", "- 1\n", "agentfs: a.yaml:1:1: the values are no fields (write each as name: value)\n"),
        ("a.json", "{", "agentfs: a.json:1:1: the file ends in the middle"),
    ],
)
def test_a_file_of_values_that_is_none(place: Place, deploy: str, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (place.root / name).write_text(text, encoding="utf-8")
    refused = place.agentfs("run", deploy, "--params", name, code=2)
    assert refused.stderr.startswith(message)
    assert list(place.runs.glob("????-??-??/*")) == []


def test_everything_that_is_wrong_is_reported_at_once_with_a_command_that_works(place: Place, deploy: str) -> None:
    refused = place.agentfs("run", deploy, "-p", "evn=prod", "-p", "replicas=0", code=2)
    assert refused.stderr == (
        "runbooks/deploy.md:2:1: there is no parameter 'evn' (did you mean 'env'?) [/params/evn]\n"
        "runbooks/deploy.md:3:3: the parameter 'env' (one of staging, prod) has no value: Where to deploy"
        " (for example staging) [/params/env]\n"
        "runbooks/deploy.md:6:3: the parameter 'replicas' (a whole number) cannot be 0: 0 is less than the minimum of 1:"
        " How many copies (it takes a whole number) [/params/replicas]\n"
        "try: agentfs run runbooks/deploy.md -p env=staging -p replicas=2\n"
    )
    assert list(place.runs.glob("????-??-??/*")) == []
    command = refused.stderr.rpartition("try: agentfs ")[2].split()
    assert place.agentfs(*command).stdout == "staging 2\n"


def test_what_is_typed_as_a_parameter_and_is_none(place: Place, deploy: str) -> None:
    refused = place.agentfs("run", deploy, "-p", "env", code=2)
    assert refused.stderr == "agentfs: -p env: a parameter is NAME=VALUE (write it like -p env=prod)\n"
    refused = place.agentfs("run", "--resume", "x", "-p", "env=prod", code=2)
    assert refused.stderr == (
        "agentfs: a run keeps the values it began with: `agentfs fork RUN -p NAME=VALUE` begins another\n"
    )


def test_a_secret_is_refused_as_a_value_and_not_repeated(place: Place, deploy: str) -> None:
    secret = "hunter2-hunter2"
    env = {"SHOP_PASSWORD": secret}
    refused = place.agentfs("run", deploy, "-p", "env=prod", "-p", f"note=it is {secret}", code=2, env=env)
    assert "the value of the parameter 'note' is a secret: it would be stored" in refused.stderr
    assert secret not in refused.stderr + refused.stdout
    assert "try:" not in refused.stderr, "no other value takes the place of a secret"
    assert list(place.runs.glob("????-??-??/*")) == []


def test_a_goal_says_what_it_takes(place: Place, deploy: str) -> None:
    code, out, err = place.looks("show-goal", deploy)
    page = (
        "Deploy to {{params.env}}\n\n"
        "  env  one of staging, prod  (required)\n    Where to deploy\n"
        "  replicas  a whole number  (default 2)\n    How many copies\n"
        "  note  text  (default (empty))\n\n"
        "steps: look, deploy\n\n"
        "agentfs run runbooks/deploy.md -p env=staging\n"
    )
    assert (code, out, err) == (0, page, "")
    taken = json.loads(place.looks("show-goal", deploy, "--json")[1])
    assert [(one["name"], one["required"]) for one in taken["params"]] == [
        ("env", True),
        ("replicas", False),
        ("note", False),
    ]
    assert place.looks("check", deploy) == (
        0,
        "",
        "runbooks/deploy.md: ok; it needs values for env (`agentfs show-goal runbooks/deploy.md`)\n",
    )


def test_a_fork_with_other_values_does_again_what_they_reach(place: Place, deploy: str) -> None:
    place.agentfs("run", deploy, "-p", "env=prod")
    day = place.run_folder("deploy").parent.name
    made = place.agentfs("fork", "deploy", "-p", "env=staging")
    assert made.stderr.splitlines()[:2] == [
        f"{day}/deploy-2: fork of {day}/deploy@1: keeps 1 step (look)",
        "still to run: deploy",
    ]
    assert place.agentfs("resume", "deploy-2").stdout == "staging 2\n"
    assert record(place, "run.json", "deploy-2")["params"] == {"env": "staging", "replicas": 2, "note": ""}
    assert record(place, "plan.json", "deploy-2")["goal"] == "Deploy to staging"
    same = place.agentfs("fork", "deploy", "-p", "env=prod")
    assert same.stderr.splitlines()[1] == "nothing is left to run"
    refused = place.agentfs("fork", "deploy", "-p", "env=moon", "-p", "x=1", code=2)
    assert "there is no parameter 'x'" in refused.stderr
    assert "cannot be \"moon\": 'moon' is not one of ['staging', 'prod']" in refused.stderr
    assert refused.stderr.endswith(f"try: agentfs fork {day}/deploy -p env=staging -p replicas=2 -p note=\n")


def test_a_run_keeps_its_values_when_its_goal_is_edited(place: Place, deploy: str) -> None:
    place.agentfs("run", deploy, "-p", "env=prod")
    folder = place.run_folder("deploy")
    goal = folder / "goal.md"
    goal.write_text(DEPLOY.replace("params:\n", "params:\n  region: string\n"), encoding="utf-8")
    code, out, _ = place.looks("check", str(goal))
    assert code == 2
    assert "this run has no value for the parameter 'region' (a run keeps the values it began with" in out
    goal.write_text(DEPLOY.replace("echo seen", "echo {{params.env}}"), encoding="utf-8")
    place.agentfs("retry", "deploy", "look")
    place.agentfs("resume", "deploy")
    assert record(place, "steps/look.2.result.json")["output"] == "prod"


def test_the_plan_of_a_run_may_name_its_values_and_no_others(place: Place, deploy: str) -> None:
    place.agentfs("run", deploy, "-p", "env=prod")
    plan = place.run_folder("deploy") / "plan.json"
    plan.write_text(plan.read_text("utf-8").replace("echo seen", "echo {{params.evn}}"), encoding="utf-8")
    code, out, _ = place.looks("check", str(plan))
    assert (code, "{{params.evn}}: there is no parameter 'evn' (did you mean 'env'?)" in out) == (2, True)


def test_bad_declarations_are_refused_before_anything_is_made(place: Place) -> None:
    place.agentfs("init")
    front = "params:\n  a: {type: integr}\n  b: {type: integer, default: x}\n  C: string\n"
    place.goal(f"---\n{front}---\n# Do {{{{params.z}}}}\n\n## Steps\n\n### a\n```sh\ntrue\n```\n")
    refused = place.agentfs("run", "job.md", code=2)
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in refused.stderr.splitlines()] == [
        "job.md:5:3",
        "job.md:7:6",
    ]
    place.goal(f"---\n{front.replace('C', 'c')}---\n# Do {{{{params.z}}}}\n\n## Steps\n\n### a\n```sh\ntrue\n```\n")
    refused = place.agentfs("run", "job.md", code=2)
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in refused.stderr.splitlines()] == [
        "job.md:3:13",
        "job.md:4:31",
        "job.md:7:6",
    ]
    assert list(place.runs.glob("????-??-??/*")) == []


def test_a_path_that_the_value_does_not_have_is_reported_before_anything_runs(place: Place) -> None:
    place.agentfs("init")
    place.runbook("### a\n```sh\necho {{params.db.prot}}\n```\n", "params:\n  db: object")
    refused = place.agentfs("run", "job.md", "-p", "db={port: 1}", code=2)
    assert refused.stderr == (
        "agentfs: job.md:11:6: {{params.db.prot}}: the parameter 'db' has no 'prot': it is an object with the keys port"
        " (correct the path, or the value) [/steps/0/input/command]\n"
    )
    assert place.agentfs("run", "job.md", "-p", 'db={"prot": "tcp"}').stdout == "tcp\n"


def test_a_schema_that_takes_for_ever_does_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TIMING", replace(TIMING, conform=0.3))
    place.agentfs("init")
    book = place.root / place.runbook(
        "### a\n```sh\necho {{params.x}}\n```\n", 'params:\n  x: {type: string, pattern: "^(a+)+$"}'
    )
    (place.root / "runbooks").mkdir()
    book.rename(place.root / "runbooks" / "job.md")
    place.goal(f"uses: runbooks/job.md\nparams: {{x: {'a' * 40}b}}\n", "job.yaml")
    code, out, _ = place.looks("check", "job.yaml")
    assert (code, out.count("the schema took too long to judge")) == (2, 1)


def test_many_such_schemas_take_no_longer_than_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped goal with a hundred of them held a daemon for a quarter of an hour, and no signal ended that."""
    asked: list[float] = []

    def never_answers(*_: Any, deadline: float, **_more: Any) -> None:
        asked.append(deadline)
        time.sleep(max(0.0, deadline - time.monotonic()))
        raise TookTooLong

    monkeypatch.setattr("agentfs.executor.checks.ask", never_answers)
    monkeypatch.setattr("agentfs.engine.goal_source.TIMING", replace(TIMING, conform=0.2))
    place.agentfs("init")
    params = "".join(f'\n  x{n}: {{type: string, pattern: "^(a+)+$", default: aaab}}' for n in range(100))
    place.runbook("### a\n```sh\necho {{params.x1}}\n```\n", f"params:{params}")
    code, output, err = place.looks("check", "job.md")
    assert (code, output.count("the schema took too long to judge"), len(asked)) == (2, 100, 1), output + err


# ── reuse ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_runs_a_goal_of_runbooks(place: Place, deploy: str) -> None:
    request = "uses: runbooks/deploy.md\nparams:\n  env: prod\n  replicas: 3\nlimits: {minutes: 5}\napprove: plan\n"
    place.goal(request, "live.yaml")
    assert place.agentfs("run", "live.yaml", code=3).returncode == 3
    folder = place.run_folder("live")
    run = record(place, "run.json", "live")
    assert (run["uses"], run["params"], run["limits"]["minutes"], run["approve"]) == (
        "runbooks/deploy.md",
        {"env": "prod", "replicas": 3, "note": ""},
        5,
        "plan",
    )
    assert (folder / "goal.md").read_text(encoding="utf-8") == DEPLOY
    assert (folder / "request.yaml").read_text(encoding="utf-8") == request
    (place.root / deploy).write_text("# Gone", encoding="utf-8")  # a later edit does not reach it
    place.agentfs("approve", "live")
    assert place.agentfs("resume", "live").stdout == "prod 3\n"
    listed = place.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    assert f"{folder.parent.name}/live/request.yaml" in listed
    assert place.agentfs("verify", "live").returncode == 0
    assert place.agentfs("replay", "live").returncode == 0
    assert "live.yaml" in record(place, "run.json", "live")["source"]


REQUESTS = [
    ("uses: deploy.md", "x.yaml:1:7: uses: 'deploy.md' is not a path in runbooks/ (write it as runbooks/NAME.md"),
    ("uses: runbooks/../agentfs.toml", "x.yaml:1:7: uses: 'runbooks/../agentfs.toml' is not a path in runbooks/"),
    ("uses: /etc/passwd", "x.yaml:1:7: uses: '/etc/passwd' is not a path in runbooks/"),
    ("uses: runbooks/a.toml", "x.yaml:1:7: uses: 'runbooks/a.toml' is not a goal file"),
    (
        "uses: runbooks/deplyo.md",
        "x.yaml:1:7: uses: there is no runbooks/deplyo.md (did you mean 'runbooks/deploy.md'?)",
    ),
    ("uses: runbooks/link.md", "x.yaml:1:7: uses: runbooks/link.md cannot be read: "),
    ("uses: runbooks/other.yaml", "runbooks/other.yaml:1:1: a goal that uses another cannot itself be used"),
    ("uses: runbooks/deploy.md\nsteps: []", "x.yaml:2:1: 'steps' cannot be beside 'uses' ("),
    ("uses: runbooks/deploy.md\nworkdir: .", "x.yaml:2:1: 'workdir' cannot be beside 'uses' ("),
    (
        "uses: runbooks/deploy.md\nparams: {env: prod}\nlimits: {minutes: 9000}",
        "x.yaml:3:10: limits.minutes: 9000 is more than 120 (a goal may only tighten the settings",
    ),
    (
        "uses: runbooks/strict.md\napprove: never",
        "x.yaml:2:1: approve: 'never' is looser than 'plan' (a goal may only tighten",
    ),
    (
        "uses: runbooks/deploy.md\nparams:\n  env: moon\n  repilcas: 2",
        "x.yaml:3:3: the parameter 'env' (one of staging, prod) cannot be \"moon\"",
    ),
    ("uses: runbooks/broken.md", "runbooks/broken.md:5:5: "),
    ("uses: [a]", "x.yaml:1:7: 'uses' must be text, not a list"),
]


def test_requests_that_cannot_be_taken(place: Place, deploy: str) -> None:
    (place.root / "runbooks" / "link.md").symlink_to("/etc/passwd")
    place.goal("uses: runbooks/deploy.md\n", "runbooks/other.yaml")
    place.goal(
        f"---\napprove: plan\n---\n{DEPLOY.split('---')[2].replace('{{params.', '{{x.')}", "runbooks/strict.md"
    )
    place.goal("# Do\n\n## Steps\n\n### a\nWords.\n\n### a\n```sh\ntrue\n```\n", "runbooks/broken.md")
    for request_text, message in REQUESTS:
        place.goal(request_text, "x.yaml")
        refused = place.agentfs("run", "x.yaml", code=2)
        assert refused.stderr.removeprefix("agentfs: ").startswith(message), request_text
        assert list(place.runs.glob("????-??-??/*")) == []
        assert place.looks("check", "x.yaml")[0] == 2


def test_problems_of_a_used_goal_name_that_file(place: Place) -> None:
    place.agentfs("init")
    (place.root / "runbooks").mkdir()
    place.goal("# x\n\n## Steps\n\n### a\n```sh\necho {{steps.b.output}}\n```\n", "runbooks/broken.md")
    place.goal("uses: runbooks/broken.md\n", "asks.yaml")
    wrong = "runbooks/broken.md:7:6: {{steps.b.output}} refers to a step that is not in the plan"
    assert place.agentfs("check", "asks.yaml", code=2).stdout.startswith(wrong)
    assert wrong in place.agentfs("run", "asks.yaml", code=2).stderr


def test_requests_are_dropped_like_goals(place: Place, deploy: str) -> None:
    with Watching(place) as daemon:
        daemon.drop("good.yaml", "uses: runbooks/deploy.md\nparams: {env: prod}\n")
        daemon.drop("bad.json", '{"uses": "runbooks/deploy.md", "params": {"evn": "prod"}}')
        rejected = place.root / "goals" / "rejected"
        wait_for((rejected / "bad.json.error.md").exists, "the bad one to be rejected")
        daemon.wait_for_output("(and 1 more); see goals/rejected/bad.json.error.md")
        wait_for(lambda: any(place.runs.glob("*/good/outcome.json")), "the good one to end")
    assert contents(place.root / "goals") == ["rejected/bad.json", "rejected/bad.json.error.md"]
    words = (rejected / "bad.json.error.md").read_text(encoding="utf-8")
    assert "there is no parameter 'evn' (did you mean 'env'?)" in words
    assert "the parameter 'env' (one of staging, prod) has no value: Where to deploy" in words
    assert "try: agentfs run runbooks/deploy.md -p env=staging" in words
    folder = place.run_folder("good")
    assert record(place, "steps/deploy.1.result.json", "good")["output"] == "prod 2"
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == [
        "STATUS.md",
        "goal.md",
        "outcome.json",
        "plan.json",
        "request.yaml",
        "run.json",
    ]

"""`tools` of a plan: what a person gives a run in the place of the [tools] it began with."""

from dataclasses import replace
from typing import Any

from agentfs.core.documents import read_json
from agentfs.core.json_edit import set_value
from agentfs.core.plan_changes import changes
from agentfs.core.plan_check import check_plan, surely_fits
from agentfs.core.plan_diff import plan_text
from agentfs.core.problems import Rejected
from agentfs.core.records import Change, Plan
from tests.builders import a_plan, a_run, a_step, facts
from tests.core.corpus import case as corpus

FETCH = corpus.a_step("get", tool="http_get", input={"url": "http://example.org"})
BEGUN = replace(corpus.BARE, run="2026-11-16/job")


def fixes(plan: dict[str, Any]) -> list[str]:
    try:
        check_plan(read_json(corpus.written(plan)), BEGUN)
    except Rejected as rejected:
        return [problem.fix for problem in rejected.problems]
    return []


def test_a_plan_is_judged_by_what_it_says_itself() -> None:
    assert fixes(corpus.a_plan(FETCH, tools={"network": True})) == []
    assert fixes(corpus.a_plan(FETCH)) == [
        "set network = true under [tools] in agentfs.toml, then: agentfs resume 2026-11-16/job --refresh-settings"
    ]
    assert fixes(corpus.a_plan(corpus.a_step(), tools={"allow": ["shell"]})) == [
        "add note to allow under [tools] in agentfs.toml, then: agentfs resume 2026-11-16/job --refresh-settings"
    ]
    fetch = Plan.model_validate(corpus.a_plan(FETCH) | {"steps": (FETCH,), "tools": {"network": True}}, strict=False)
    assert surely_fits(fetch, BEGUN)
    assert not surely_fits(fetch.model_copy(update={"tools": None}), BEGUN)


def test_what_is_wrong_elsewhere_does_not_hide_it() -> None:
    (fix,) = fixes(corpus.a_plan(FETCH, status="aproved", tools={"network": True}))
    assert "network" not in fix


def test_the_settings_in_force_are_those_it_began_with_but_for_what_the_plan_says() -> None:
    began = a_run()
    given = facts(a_plan(tools={"network": True, "read": ["/srv"], "allow": ["note"]}))
    changed = {"network": True, "read": ("/srv",), "tools": ("note",)}
    assert given.settings == began.model_copy(update=changed)
    assert given.run == began
    assert facts(a_plan()).settings == began


def test_the_ledger_says_what_the_tools_may_do_from_now_on() -> None:
    old = a_plan(tools={"network": False, "read": ["/srv"]})
    new = a_plan(tools={"network": True, "hosts": ["db", "db:5432"], "env": []})
    assert changes(old, new) == (
        Change(step=None, what="tools.network: true"),
        Change(step=None, what="tools.read: as the run began"),
        Change(step=None, what="tools.env: none"),
        Change(step=None, what="tools.hosts: db, db:5432"),
    )


def test_it_comes_before_the_steps_and_git_shows_it_by_meaning() -> None:
    source = corpus.written(corpus.a_plan(a_step().model_dump(exclude_none=True), limits={"replans": 1}))
    edited = set_value(source, "/tools", {"network": True})
    assert list(read_json(edited).value) == ["status", "steps", "limits", "tools"]  # after what is there already
    assert list(read_json(set_value(b'{"status": "draft", "steps": []}', "/tools", {})).value) == [
        "status", "tools", "steps",
    ]  # fmt: skip
    assert "tools.network: true\n" in plan_text(edited)

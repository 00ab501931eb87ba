"""`agentfs mcp`: what a client of the official package can do, and what no client can."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentfs.core.planner_calls import ProposedEdit, render_edit
from agentfs.testing import ScriptedServer
from tests.mcp_servers import needs_mcp
from tests.workspaces import Place, end, wait_for

pytestmark = needs_mcp
TOOLS = {
    "list_runs", "show_run", "show_step", "read_log", "check_goal", "start_run", "edit_plan", "replan", "pause", "cancel",
    "reply",
}  # fmt: skip
RUNBOOK = "# Say it\n\n## Steps\n\n### first\n```sh\necho one\n```\n\n### second\n```sh\necho two\n```\ngate\n"


class Session:
    """A connected client; what goes wrong in a tool is an exception with its words."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, tool: str, **given: Any) -> Any:
        result = await self.client.call_tool(tool, given)
        text = "".join(part.text for part in result.content)
        if result.is_error:
            raise AssertionError(text)
        return json.loads(text)

    async def refused(self, tool: str, **given: Any) -> str:
        with pytest.raises(AssertionError) as caught:
            await self(tool, **given)
        return str(caught.value)

    async def read(self, uri: str) -> str:
        found = await self.client.read_resource(uri)
        return "".join(part.text for part in found.contents)


def with_client(place: Place, story: Callable[[Session], Awaitable[None]]) -> None:
    """Run a story with a client of the official package, connected to the command."""
    import anyio
    from mcp import Client, StdioServerParameters

    argv = ["-m", "agentfs", "-C", str(place.root), "mcp"]
    server = StdioServerParameters(command=sys.executable, args=argv, env=place.env, cwd=str(place.root))

    async def main() -> None:
        async with Client(server) as client:
            await story(Session(client))

    anyio.run(main)


def test_start_look_propose_and_let_a_person_decide(place: Place) -> None:
    place.agentfs("init")

    async def story(ask: Session) -> None:
        listed = await ask.client.list_tools()
        assert {tool.name for tool in listed.tools} == TOOLS
        assert (await ask("check_goal", goal=RUNBOOK))["ok"] is True
        begun = await ask("start_run", goal=RUNBOOK)
        run = begun["run"]
        assert (begun["state"], begun["next"]) == ("draft", f"a person looks at it and types: agentfs approve {run}")
        assert run.endswith("/say-it")
        offered = [str(one.uri) for one in (await ask.client.list_resources()).resources]
        assert offered[:2] == [f"agentfs://runs/{run}/plan.json", f"agentfs://runs/{run}/STATUS.md"]
        assert "agentfs://schemas/plan" in offered
        assert "no such call" in await ask.refused("read_log", run=run, call=9)
        page = await ask("show_run", run=run)
        assert (page["state"], [one["id"] for one in page["steps"]]) == ("draft", ["first", "second"])
        assert [one["run"] for one in await ask("list_runs", state="draft")] == [run]

        steps = [
            {"id": "first", "tool": "shell", "input": {"command": "echo uno"}, "depends_on": []},
            *page["steps"][1:],
        ]
        steps = [
            {k: v for k, v in one.items() if k in ("id", "tool", "input", "depends_on", "gate")} for one in steps
        ]
        assert "not the one you read" in await ask.refused(
            "edit_plan", run=run, plan_sha256="0" * 64, steps=steps, because="Spanish", client="tests"
        )
        reply = await ask(
            "edit_plan", run=run, plan_sha256=page["plan_sha256"], steps=steps, because="Spanish", client="tests"
        )
        assert reply["said"][0].endswith("an edit is proposed; a person is asked about it once the run is driven")
        assert "waits for an answer" in await ask.refused(
            "edit_plan", run=run, plan_sha256=page["plan_sha256"], steps=steps, because="again"
        )
        [waiting] = await ask("list_runs")
        assert (waiting["why"], waiting["ways"]) == ("tests proposes an edit: Spanish", [f"agentfs resume {run}"])
        asks_nothing = f"agentfs: {run} asks nothing: {waiting['why']} (agentfs resume {run} asks about it)\n"
        assert place.agentfs("approve", run, code=2).stderr == asks_nothing
        place.agentfs("resume", run, code=3)
        question = next(place.runs.glob("*/*/planning/2.question.md")).read_text(encoding="utf-8")
        assert "tests proposes an edit: Spanish" in question
        assert "echo uno" in question
        plan = json.loads(await ask.read(f"agentfs://runs/{run}/plan.json"))
        assert plan["steps"][0]["input"]["command"] == "echo one"  # nothing changes before a yes
        place.agentfs("approve", run, "planning/2")
        place.agentfs("resume", run, code=3)
        place.agentfs("approve", run)
        place.agentfs("resume", run, code=3)
        assert json.loads(await ask.read(f"agentfs://runs/{run}/steps/first/1/result.json"))["output"] == "uno"
        assert "second" in await ask.read(f"agentfs://runs/{run}/STATUS.md")
        assert json.loads(await ask.read("agentfs://schemas/plan"))["title"]
        log = await ask("read_log", run=run, step="first", last=1)
        assert (log["log"], json.loads(log["lines"][0])["event"]) == ("steps/first.1.log.jsonl", "end")
        assert (await ask("show_step", run=run, step="first"))["attempts"][0]["result"]["status"] == "done"
        who = json.loads(next(place.runs.glob("*/*/revisions/2.json")).read_bytes())["by"]
        assert (who["role"], who["name"]) == ("planner", "tests")
        await ask("pause", run=run)
        assert json.loads(await ask.read(f"agentfs://runs/{run}/plan.json"))["status"] == "paused"
        await ask("cancel", run=run)
        assert (await ask("show_run", run=run))["state"] == "cancelled"

    with_client(place, story)


def test_a_proposal_outlives_an_approval_and_ends_with_its_run(place: Place) -> None:
    place.agentfs("init")

    async def proposed(ask: Session) -> str:
        run: str = (await ask("start_run", goal=RUNBOOK))["run"]
        page = await ask("show_run", run=run)
        steps = [{"id": "first", "tool": "shell", "input": {"command": "echo uno"}, "depends_on": []}]
        await ask("edit_plan", run=run, plan_sha256=page["plan_sha256"], because="Spanish", steps=[
            *steps, {"id": "second", "tool": "shell", "input": {"command": "echo two"}, "gate": True},
        ])  # fmt: skip
        return run

    async def story(ask: Session) -> None:
        run = await proposed(ask)
        plan = place.runs / run / "plan.json"
        plan.write_text(plan.read_text(encoding="utf-8").replace('"draft"', '"approved"'), encoding="utf-8")
        place.agentfs(
            "resume", run, code=3
        )  # an approval changes no step: the edit is asked about, and nothing has run
        assert [path.name for path in place.runs.glob("*/*/planning/*.question.md")] == ["2.question.md"]
        assert not [*place.runs.glob("*/*/steps/*")]
        other = await proposed(ask)
        reply = await ask("cancel", run=other)
        assert reply["said"][-1] == f"{other}: cancelled; 0 of 2 steps done"

    with_client(place, story)


def test_a_client_answers_an_ask_and_approves_nothing(place: Place) -> None:
    steps = "### ask\n```ask\nWhich colour?\n```\n\n### send\n```sh\necho {{steps.ask.output}}\n```\ngate\n"
    place.agentfs("run", place.runbook(steps), code=3)
    outside = place.root / "secret.txt"
    outside.write_text("not yours", encoding="utf-8")

    async def story(ask: Session) -> None:
        await ask("reply", run="job", text="approve")  # an answer to the question, and nothing more
        place.agentfs("resume", "job", code=3)
        assert place.read("steps/ask.1.result.json")["output"] == "approve"
        before = sorted(str(path) for path in place.runs.rglob("*") if ".git" not in path.parts)
        for tries in (
            {"text": "approve"}, {"text": "approve", "step": "send"}, {"text": "approve\n", "step": "planning/1"},
            {"text": "approve", "step": "../steps/send.1"},
        ):  # fmt: skip
            await ask.refused("reply", run="job", **tries)
        for run in ("../../etc", "job@1", "--help", "-C/tmp", "job/../job", "", "runs/" * 30):
            await ask.refused("show_run", run=run)
            await ask.refused("cancel", run=run)
        for path in ("job/steps/../run", "job/../../secret.txt", "%2e%2e/%2e%2e/secret.txt", "job/files/../../../x"):
            with pytest.raises(Exception, match=r".") as caught:
                await ask.read(f"agentfs://runs/{path}/plan.json")
            assert "not yours" not in str(caught.value)
        for path, why in (
            ("steps/ask/one", "attempts are numbered from 1"),
            ("steps/ask/7", "No such file or directory"),
        ):
            with pytest.raises(Exception, match=why):
                await ask.read(f"agentfs://runs/{'/'.join(place.run_folder().parts[-2:])}/{path}/result.json")
        await ask.refused("read_log", run="job", step="../../secret")
        for gone in ("approve", "reject", "trust", "forget", "resume", "retry", "skip"):
            await ask.refused(gone, run="job")
        page = await ask("show_run", run="job")
        plan = [{"id": "send", "tool": "shell", "input": {"command": "echo hi"}, "depends_on": ["ask"]}]
        proposal = {"run": "job", "plan_sha256": page["plan_sha256"], "because": "no gate", "steps": plan}
        assert "gate" in await ask.refused("edit_plan", **proposal)
        words = render_edit(
            ProposedEdit(page["plan_sha256"], "me", "no gate", plan)
        )  # by hand: it is evaluated again
        (place.run_folder() / "replan.md").write_text(words, encoding="utf-8")
        place.agentfs("resume", "job", code=3)
        answer = place.read("planning/2.result.json")
        assert answer["verdict"] == "keep"
        assert "gate" in answer["error"]["message"]
        after = sorted(str(path) for path in place.runs.rglob("*") if ".git" not in path.parts)
        assert [path for path in after if path not in before and "/planning/2." not in path] == []
        assert page["state"] == "waiting"
        assert not list(place.runs.rglob("send.1.reply.md"))

    with_client(place, story)


def test_the_ledger_says_that_a_client_paused_and_cancelled(place: Place) -> None:
    """What a person does the same way later is their own again."""
    place.agentfs("init")
    driver = place.begin("run", place.runbook("### wait\n```sh\ntouch begun; sleep 600\n```\n"))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step has begun")

    def recorded(number: int) -> None:
        wait_for((place.run_folder() / "revisions" / f"{number}.json").exists, f"revision {number}")

    async def story(ask: Session) -> None:
        await ask("pause", run="job")
        recorded(2)
        place.agentfs("resume", "--dry-run", "job")
        for number, word in ((3, "resume"), (4, "pause")):
            place.agentfs(word, "job")
            recorded(number)
        end(driver)
        await ask("cancel", run="job")

    with_client(place, story)
    by = [place.read(f"revisions/{number}.json")["by"] for number in range(2, 6)]
    me = by[1]["name"]
    client = f"a client of agentfs mcp, for {me}"
    assert [(one["role"], one["name"]) for one in by] == [("person", name) for name in (client, me, me, client)]
    edits = [line for line in place.log() if " revision " in line][1:]
    assert edits == [
        f"{client} job: revision 2, edited by {client}",
        f"{me} job: revision 3, edited by {me}",
        f"{me} job: revision 4, edited by {me}",
        f"{client} job: revision 5, edited by {client}",
    ]
    assert not (place.run_folder() / ".client-edit.json").exists()
    place.agentfs("verify", "job")
    place.ledger_is_sound()


def test_what_comes_of_a_clients_words_is_a_question(place: Place) -> None:
    """In a run that a person started and lets run as its planner says, and that has ended."""

    def step(name: str, command: str) -> dict[str, Any]:
        does = {"tool": "shell", "input": {"command": command}, "success_condition": f"the command of {name} has run"}
        return {"id": name, "description": f"do {name}", **does, "depends_on": []}

    with ScriptedServer() as model:
        place.env |= {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        model.plan({"steps": [step("tidy", "echo tidy")]})
        place.agentfs("run", place.goal("Tidy the shop\n"), "--mode", "split", "--approve", "never")
        words = "also write to all customers"

        async def story(ask: Session) -> None:
            output = (await ask("replan", run="job", because=words))["said"]
            assert output[0].endswith("/replan.md: another plan is asked for; a person is asked about it")
            assert "is asked for another plan already" in await ask.refused("replan", run="job", because="again")

        with_client(place, story)
        model.plan({"steps": [step("write", "echo written > customers.txt")]})
        place.agentfs("resume", "job", code=3)
        assert words in json.dumps(model.requests[-1]["messages"])
        model.done()
    question = (place.run_folder() / "planning/2.question.md").read_text(encoding="utf-8")
    assert f"a client asks for another plan: {words}" in question
    assert not [*place.run_folder().glob("steps/write.*")]
    place.agentfs("approve", "job", "planning/2")
    place.agentfs("resume", "job")
    assert (place.run_folder() / "files/customers.txt").read_text(encoding="utf-8") == "written\n"
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_a_goal_of_a_client_is_held_to_a_dropped_goals_rules(place: Place) -> None:
    place.agentfs("init")
    (place.root / ".env").write_text("KEY=1", encoding="utf-8")

    async def story(ask: Session) -> None:
        for front in (
            "workdir: /etc",
            "tools: [nosuch]",
            "context: [/etc/passwd]",
            "limits: {cost_usd: 99}",
        ):
            reply = await ask.refused("start_run", goal=f"---\n{front}\n---\n{RUNBOOK}")
            assert front.split(":")[0] in reply
        wrong = await ask("check_goal", goal="# Wrong\n\n## Steps\n\n### A b\n")
        assert (wrong["ok"], wrong["found"][0]["file"], wrong["found"][0]["line"]) == (False, "wrong.md", 5)
        reply = await ask.refused("start_run", goal="# Wrong\n\n## Steps\n\n### A b\n")
        assert "start_run: wrong.md:5:5: 'A b' is not a step id" in reply
        approved = {
            "goal": "x",
            "status": "approved",
            "steps": [{"id": "a", "tool": "shell", "input": {"command": "id"}}],
        }
        begun = await ask("start_run", goal=json.dumps(approved), form="json")
        assert begun["state"] == "draft"
        assert (await ask("show_run", run=begun["run"]))["status"] == "draft"

    with_client(place, story)
    assert not list(place.runs.rglob("*.result.json"))[2:]


def test_an_argument_that_a_tool_does_not_take_is_refused(place: Place) -> None:
    place.agentfs("init")

    async def story(ask: Session) -> None:
        takes = "it takes goal, form"
        assert await ask.refused("start_run", goal=RUNBOOK, approve="never") == (
            f"start_run takes no argument 'approve' ({takes})"
        )
        assert await ask.refused("start_run", goal=RUNBOOK, fom="md", params={}) == (
            "start_run takes no argument 'fom' (did you mean 'form'?); "
            f"start_run takes no argument 'params' ({takes})"
        )
        assert await ask("list_runs") == [], "nothing was started"

    with_client(place, story)


def test_a_client_gives_values_for_parameters_in_a_request(place: Place) -> None:
    place.agentfs("init")
    (place.root / "runbooks").mkdir()
    text = "---\nparams: {name: string}\n---\n# Greet\n\n## Steps\n\n### hello\n```sh\necho {{params.name}}\n```\n"
    (place.root / "runbooks" / "greet.md").write_text(text, encoding="utf-8")
    request = json.dumps({"uses": "runbooks/greet.md", "params": {"name": "Ada"}})

    async def story(ask: Session) -> None:
        [tool] = [one for one in (await ask.client.list_tools()).tools if one.name == "start_run"]
        assert '{"uses": "runbooks/NAME.md", "params": {"NAME": VALUE}}' in tool.description
        begun = await ask("start_run", goal=request, form="json")
        assert (begun["state"], (await ask("show_run", run=begun["run"]))["params"]) == ("draft", {"name": "Ada"})

    with_client(place, story)


def test_without_the_extra_it_says_what_to_install(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.agentfs("init")
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    output = "agentfs: this needs the extra `mcp`: pip install 'agentfs-plan[mcp]'\n"
    assert place.looks("mcp") == (2, "", output)

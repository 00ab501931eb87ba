"""MCP servers that are reached over HTTP: approved, called and judged like those that are started."""

import pytest

from tests.mcp_http import HandWritten, official_over_http
from tests.mcp_servers import Served, needs_mcp, tool
from tests.stories.test_mcp import failure, step
from tests.sweeps import some
from tests.workspaces import DEADLINE, Place, end, wait_for

pytestmark = needs_mcp
OPEN = "network = true\ntrust_hints = true\n"
SECRET = "t-0123456789abcdef"


@pytest.fixture
def served(place: Place) -> Served:
    return Served(place)


def test_a_server_of_the_official_package(served: Served, place: Place) -> None:
    with official_over_http() as url:
        served.put("far", {"type": "http", "url": url}, OPEN)
        assert "far (official-http 1): 1 tool\n  the MCP server far: uses the network; no variable of yours" in (
            served.update().stdout
        )
        steps = step("one", "mcp__far__add", {"a": 2, "b": 40})
        place.agentfs(
            "run", place.runbook(steps + step("two", "mcp__far__add", {"a": "{{steps.one.output.sum}}", "b": 1}))
        )
    assert place.read("steps/two.1.result.json")["output"] == {"sum": 43}
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_its_secret_comes_from_the_environment_and_reaches_no_file(served: Served, place: Place) -> None:
    env = {"FAR_TOKEN": SECRET}
    with HandWritten(tool("say"), tool("echo_headers"), authorization=f"Bearer {SECRET}") as far:
        entry = {"url": far.url, "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}}
        served.put("far", entry, f'{OPEN}env = ["FAR_TOKEN"]\n')
        assert served.update(code=2).stdout == "far: the variable FAR_TOKEN is not set\n\n"
        wrong = served.update(code=2, env={"FAR_TOKEN": "t-another-0123456789"}).stdout
        assert (
            wrong == "far: it does not start: it answered HTTP 401 Unauthorized: look at its headers in .mcp.json\n\n"
        )
        served.update(env=env)
        place.agentfs("run", place.runbook(step("a", "mcp__far__echo_headers")), env=env)
        assert place.read("steps/a.1.result.json")["output"] == "got Bearer [secret FAR_TOKEN]"
        assert [headers["authorization"] for _, headers in far.calls] == [f"Bearer {SECRET}"]
    files = (path for path in place.root.rglob("*") if path.is_file())
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_one_that_may_not_use_the_network_is_not_reached(served: Served, place: Place) -> None:
    with HandWritten(tool("say")) as far:
        served.put("far", {"url": far.url}, "trust_hints = true\n")
        output = served.update(code=2).stdout
        assert output == "far: it is reached over the network: set network = true under [mcp.far]\n\n"
        assert far.sessions == []


def test_what_it_does_wrong_is_a_failed_step_with_a_reason(served: Served, place: Place) -> None:
    lost = some(("cut", "cut_stream", "flood", "flood_event", "sample"), 1, about="connections that are given up")
    bad = ("html", "crash", "redirect", *lost)
    with HandWritten(*map(tool, (*bad, "stream", "say", "swap"))) as far:
        served.put("far", {"url": far.url}, OPEN)
        served.approve(far=far.tools)
        lines = ("on failure: continue", "retries: 0", "after: nothing", "timeout: 40s")
        steps = "".join(
            step(name.replace("_", "-"), f"mcp__far__{name}", None, *lines) for name in (*bad, "stream", "say")
        )
        steps += step("swap", "mcp__far__swap", None, "after: nothing")
        steps += step("again", "mcp__far__swap", None, "on failure: continue", "retries: 0", "after: swap")
        begun = far.begun
        place.agentfs("run", place.runbook(steps, "limits: {parallel: 1}"), code=None)
        assert far.begun - begun == 1 + len(lost)
    expected = {
        "cut": ("tool", "the MCP server far: the connection was lost before it answered: Server disconnected without sending a response."),
        "cut_stream": ("tool", "the MCP server far: SSE stream ended without a response"),
        "flood": ("output", "the MCP server far: it sent a message of more than 32 MiB"),
        "flood_event": ("output", "the MCP server far: it sent a message of more than 32 MiB"),
        "html": ("tool", "the MCP server far: Unexpected content type: text/html"),
        "crash": ("tool", "the MCP server far: it answered HTTP 503 Service Unavailable"),
        "redirect": ("tool", "the MCP server far: Redirect to http://127.0.0.1:9/elsewhere not followed; use that URL as the endpoint if it is the intended server"),
        "sample": ("tool", "the MCP server far: it asked for a model (sampling), which agentfs gives no server"),
    }  # fmt: skip
    found = {name: failure(place, name.replace("_", "-")) for name in bad}
    assert found == {name: expected[name] for name in bad}
    assert place.read("steps/stream.1.result.json")["output"] == "streamed"
    assert place.read("steps/say.1.result.json")["output"] == "said {}"
    assert failure(place, "again") == (
        "changed", "mcp__far__swap is not the tool that was approved: its description changed",
    )  # fmt: skip


def test_nobody_there_and_no_server_there(served: Served, place: Place) -> None:
    with HandWritten(tool("say"), status=500) as far:
        served.put("broken", {"url": far.url}, OPEN)
        served.put("gone", {"url": "http://127.0.0.1:9/mcp"}, OPEN)
        done = served.update(code=2)
    assert done.stderr.splitlines()[-2:] == [
        f"{name} could not be asked; none of its tools is approved" for name in ("broken", "gone")
    ]
    assert done.stdout == (
        "broken: it does not start: it answered HTTP 500 Internal Server Error\n\n"
        "gone: it does not start: it cannot be reached: All connection attempts failed\n\n"
    )


def test_a_session_that_is_lost_between_two_calls_is_begun_again(served: Served, place: Place) -> None:
    with HandWritten(tool("say")) as far:
        served.put("far", {"url": far.url}, OPEN)
        served.approve(far=far.tools)
        wait = "### wait\n```sh\nuntil test -e forgotten; do sleep 0.05; done\n```\n"
        running = place.begin(
            "run", place.runbook(step("one", "mcp__far__say") + wait + step("two", "mcp__far__say", {"n": 2}))
        )
        try:
            wait_for(lambda: bool([*place.runs.glob("*/job/steps/one.1.result.json")]), "the first call")
            first, far.sessions[:] = [*far.sessions], ["another"]
            (place.run_folder() / "files/forgotten").touch()
            wait_for(lambda: running.poll() is not None, "the run to end")
        finally:
            end(running)
        assert [headers["mcp-session-id"] in first for _, headers in far.calls] == [True, False]
    assert place.read("steps/two.1.result.json")["output"] == 'said {"n": 2}'


def test_a_late_answer_is_nobodys(served: Served, place: Place) -> None:
    with HandWritten(tool("late"), tool("say")) as far:
        served.put("far", {"url": far.url}, OPEN)
        served.approve(far=far.tools)
        steps = step("first", "mcp__far__say")  # so that the server is there, and only the call takes time
        steps += step("slow", "mcp__far__late", None, "timeout: 1s", "retries: 0", "on failure: continue")
        steps += "### wait\n```sh\nuntil test -e released; do sleep 0.05; done\n```\n"
        running = place.begin("run", place.runbook(steps + step("quick", "mcp__far__say", {"n": 1})))
        try:
            wait_for(lambda: bool([*place.runs.glob("*/job/steps/slow.1.result.json")]), "the timeout")
            far.release.set()
            assert far.late.wait(DEADLINE)
            (place.run_folder() / "files/released").touch()
            wait_for(lambda: running.poll() is not None, "the run to end")
        finally:
            end(running)
        assert [name for name, _ in far.calls] == ["say", "late", "say"]
    assert failure(place, "slow") == ("timeout", "it did not end within 1 s and was killed")
    assert place.read("steps/quick.1.result.json")["output"] == 'said {"n": 1}'

"""`agentfs export`: a run as spans, from its files alone, in a collector that speaks OTLP over HTTP."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.paths import span_id, trace_id
from tests.workspaces import Place, wait_for

RECORDED = Path(__file__).parents[1] / "recordings" / "loop"
RUN, BEGAN = "2026-11-16/loop", "2026-11-16T17:10:00.068783Z"


class Collector:
    """Takes what is posted to it, as a collector does."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.status = 200
        taken = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                taken.bodies.append((self.path, body))
                self.send_response(taken.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def spans(self) -> list[Any]:
        """Return every span, decoded by the official package."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found: list[Any] = []
        for _, body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace with a run in it: a loop that handed over, then two planned steps."""
    place = Place(tmp_path)
    place.agentfs("init")
    shutil.copytree(RECORDED, place.runs / RUN)
    return place


def printed(place: Place, *words: str, run: str = "loop") -> Any:
    return json.loads(place.agentfs("export", run, "--json", *words).stdout)


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_spans_are_those_of_the_files_and_their_ids_are_hashes(place: Place) -> None:
    spans = printed(place)
    assert [(span["path"], span["name"], span["error"]) for span in spans if "#" not in span["path"]] == [
        ("run", "invoke_workflow loop", None),
        ("planning/1", "plan", None),
        ("planning/2", "plan", None),
        ("planning/3", "plan", None),
        ("steps/do.1", "invoke_agent executor", "drift"),
        ("steps/do.1@1", "execute_tool shell", "tool"),
        ("steps/do.1@2", "execute_tool write_file", None),
        ("steps/do.1@3", "execute_tool shell", None),
        ("steps/do.1@4", "execute_tool shell", "tool"),
        ("steps/think.1", "execute_tool shell", None),
        ("steps/write.1", "execute_tool shell", None),
    ]
    ids = {span["path"]: span["span_id"] for span in spans}
    assert len(set(ids.values())) == len(spans)
    assert {span["trace_id"] for span in spans} == {trace_id(RUN, BEGAN)}
    assert ids["steps/do.1"] == span_id(RUN, BEGAN, "steps/do.1")
    chat = next(span for span in spans if span["path"] == "steps/do.1#2")
    assert (chat["parent_id"], chat["kind"], chat["name"]) == (ids["steps/do.1"], "client", "chat gpt-5-mini")
    assert chat["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini",
        "gen_ai.response.id": "req_2",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "agentfs.role": "executor",
        "gen_ai.usage.input_tokens": 1752,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 13,
        "agentfs.cost_usd": 0.000464,
    }
    by_path = {span["path"]: span for span in spans}
    for span in spans[1:]:
        above = (
            by_path[span["path"].replace("@", "#").partition("#")[0]] if span["parent_id"] != ids["run"] else spans[0]
        )
        assert above["began"] <= span["began"] <= span["ended"] <= above["ended"]


def test_contents_only_where_they_are_asked_for_and_never_a_secret(place: Place) -> None:
    env = {"A_TOKEN": "seq 1 3000"}  # what has become a secret since is hidden too
    bare = place.agentfs("export", "loop", "--json").stdout
    assert "You do one step" not in bare
    assert "seq 1 3000" not in bare
    full = place.agentfs("export", "loop", "--json", "--contents", env=env).stdout
    assert "You do one step" in full
    assert "seq 1 3000" not in full
    assert "[secret A_TOKEN]" in full


def test_a_collector_gets_the_same_twice(place: Place, collector: Collector) -> None:
    done = place.agentfs("export", "loop", "--otlp", collector.url)
    assert done.stderr.endswith(f"sent 18 spans to {collector.url}/v1/traces: trace {trace_id(RUN, BEGAN)}\n")
    first = collector.bodies
    collector.bodies = []
    place.agentfs("export", "loop", "--otlp", f"{collector.url}/v1/traces")
    assert collector.bodies == first
    assert [path for path, _ in first] == ["/v1/traces"]
    spans = {span.name: span for span in collector.spans()}
    root, step = spans["invoke_workflow loop"], spans["invoke_agent executor"]
    assert (root.trace_id.hex(), root.parent_span_id) == (trace_id(RUN, BEGAN), b"")
    assert step.parent_span_id == root.span_id == bytes.fromhex(span_id(RUN, BEGAN, "run"))
    assert (root.start_time_unix_nano, step.status.message) == (1_794_849_000_068_783_000, "drift")
    assert (step.end_time_unix_nano - step.start_time_unix_nano) == 2_956_244_000
    assert attributes(root)["agentfs.status"] == "done"


def test_where_it_goes(place: Place, collector: Collector) -> None:
    place.agentfs("export", "loop", "--otlp", env={"OTEL_EXPORTER_OTLP_ENDPOINT": f"{collector.url}/otel/"})
    (place.root / "agentfs.toml").write_text(f'[telemetry]\nurl = "{collector.url}"\n', encoding="utf-8")
    place.agentfs("export", "loop", "--otlp")
    assert [path for path, _ in collector.bodies] == ["/otel/v1/traces", "/v1/traces"]


def test_a_collector_that_refuses_or_is_not_there(place: Place, collector: Collector) -> None:
    collector.status = 400
    refused = place.agentfs("export", "loop", "--otlp", collector.url, code=2).stderr
    assert refused.startswith(f"agentfs: the spans could not be sent to {collector.url}/v1/traces: ")
    assert "400" in refused
    assert "is not an address" in place.agentfs("export", "loop", "--otlp", "collector:4318", code=2).stderr
    assert "say where to" in place.agentfs("export", "loop", code=2).stderr


def test_a_run_under_way_and_one_in_disorder(place: Place) -> None:
    folder = place.runs / RUN
    (folder / "outcome.json").unlink()
    (folder / "steps/write.1.result.json").unlink()
    (folder / "steps/do.1.result.json").write_text("[", encoding="utf-8")
    (folder / "planning/2.log.jsonl").write_text(
        '{"event": "request", "model": 7}\n{"event": "tool"', encoding="utf-8"
    )
    spans = {span["path"]: span for span in printed(place)}
    assert spans["run"]["attributes"]["agentfs.status"] == "open"
    assert spans["steps/write.1"]["attributes"]["agentfs.status"] == "running"
    assert spans["planning/2#1"]["name"] == "chat unknown"
    (folder / "run.json").write_text("{}", encoding="utf-8")
    assert "run.json is not valid" in place.agentfs("export", "loop", "--json", code=2).stderr


def test_without_the_extra_it_says_what_to_install(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    output = "agentfs: this needs the extra `otel`: pip install 'agentfs-plan[otel]'\n"
    assert place.looks("export", "loop", "--otlp") == (2, "", output)
    assert place.looks("export", "loop", "--json")[0] == 0


def test_programs_and_tools_of_ones_own_know_their_span(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / "tools").mkdir()
    source = (
        "import os\nfrom agentfs import tool\n\n@tool\ndef whose() -> str:\n    return os.environ['TRACEPARENT']\n"
    )
    (place.root / "tools/mine.py").write_text(source, encoding="utf-8")
    steps = "### shell\n```sh\necho $TRACEPARENT\n```\n### python\n```python\nimport os\nprint(os.environ['TRACEPARENT'])\n```\n"
    place.agentfs("run", place.runbook(f"{steps}### own\n```whose\n{{}}\n```\n### again\n```whose\n{{}}\n```\n"))
    ids = {span["path"]: f"00-{span['trace_id']}-{span['span_id']}-01" for span in printed(place, run="job")}
    for name in ("shell", "python", "own", "again"):
        assert place.read(f"steps/{name}.1.result.json")["output"] == ids[f"steps/{name}.1"]


PHOENIX = os.environ.get("AGENTFS_TEST_PHOENIX") or shutil.which("phoenix")


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    """A real collector on loopback, with a store of its own: Arize Phoenix, if it is installed (850 MB)."""
    if PHOENIX is None:
        pytest.skip("no Phoenix: pip install arize-phoenix, or name its program in AGENTFS_TEST_PHOENIX")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = one.getsockname()[1], two.getsockname()[1]
    env = {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(ports[0]), "PHOENIX_GRPC_PORT": str(ports[1])}
    env |= {"PHOENIX_WORKING_DIR": str(tmp_path), "PHOENIX_TELEMETRY_ENABLED": "false", "PATH": os.environ["PATH"]}
    process = subprocess.Popen([PHOENIX, "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{ports[0]}"
    try:
        wait_for(lambda: process.poll() is not None or bool(stored(url)), "the collector", 120)
        yield url
    finally:
        process.kill()
        process.wait()


def stored(url: str, path: str = "") -> Any:
    """Return what the collector has of its projects, or of the spans in one."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/projects{path}", timeout=10) as reply:  # noqa: S310
        return json.load(reply)["data"]
    return None


def test_a_real_collector_has_the_whole_trace_and_has_it_once(place: Place, phoenix: str) -> None:
    expected = {span["span_id"]: span for span in printed(place)}
    for _ in range(2):
        output = place.agentfs("export", "loop", "--otlp", phoenix).stderr
        assert output == f"sent {len(expected)} spans to {phoenix}/v1/traces: trace {trace_id(RUN, BEGAN)}\n"
    spans = f"/{stored(phoenix)[0]['id']}/spans?limit=1000"
    wait_for(lambda: len(stored(phoenix, spans)) >= len(expected), "the spans to be stored")
    found = {span["context"]["span_id"]: span for span in stored(phoenix, spans)}
    assert len(stored(phoenix, spans)) == len(expected)
    assert {key: (one["name"], one["parent_id"], one["status_code"] == "ERROR") for key, one in found.items()} == {
        key: (one["name"], one["parent_id"], one["error"] is not None) for key, one in expected.items()
    }
    for key, one in expected.items():
        assert {name: found[key]["attributes"].get(name) for name in one["attributes"]} == one["attributes"]

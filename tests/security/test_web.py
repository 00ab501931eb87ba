"""The live view lets in who holds its code, and nobody and nothing else."""

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from tests.served import TOKEN, Reply, Served, web
from tests.stories.test_report import EVIL, LEADS, Elements
from tests.workspaces import Place, wait_for

OTHERS = ("http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1", "http://localhost", "null", "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A workspace with one run that waits at a gate."""
    place = Place(tmp_path_factory.mktemp("web"))
    place.agentfs(
        "run",
        place.runbook("### first\n```sh\necho one > made.txt\n```\n\n### publish\ngate\n```sh\necho out\n```\n"),
        code=3,
    )
    return place


@pytest.fixture(scope="module")
def served(place: Place) -> Iterator[Served]:
    with web(place) as server:
        yield server.enter()


@pytest.fixture
def run(place: Place) -> str:
    folder = place.run_folder()
    return f"/run/{folder.parent.name}/{folder.name}"


def says_nothing(reply: Reply, status: int) -> None:
    """Assert that a request was refused, and that not a word of a run is in the answer."""
    assert (reply.status, "publish" in reply.text, "set-cookie" in reply.headers) == (status, False, False), reply
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")


def test_without_the_code_there_is_nothing_to_see(served: Served, run: str) -> None:
    for path in (
        "/",
        run,
        f"{run}/events",
        f"{run}/report",
        f"{run}/file?path=made.txt",
        "/assets/live.js",
        "/events",
    ):
        says_nothing(served.ask(path, Cookie=None), 401)
        says_nothing(served.ask(path, Cookie=f"{served.cookie}x"), 401)
        says_nothing(served.ask(path, Cookie=served.cookie.replace("=", "=x")), 401)
        says_nothing(served.ask(path, Cookie=f"other={served.cookie.partition('=')[2]}"), 401)


def test_a_code_lets_one_browser_in(served: Served) -> None:
    used = served.url.removeprefix(served.origin)
    for path in (used, "/enter", "/enter?code=", "/enter?code=wrong", f"{used}x", f"{used[:-1]}"):
        says_nothing(served.ask(path, Cookie=None), 401)


def test_neither_code_nor_cookie_nor_token_is_in_a_log_a_file_or_a_referrer(place: Place, run: str) -> None:
    with web(place) as server:
        reply = server.ask(server.url.removeprefix(server.origin))
        cookie = reply.headers["set-cookie"]
        assert re.fullmatch(r"agentfs-[0-9a-f]{8}=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", cookie)
        assert reply.headers["referrer-policy"] == "no-referrer"
        server.cookie = cookie.partition(";")[0]
        assert server.ask("/").headers["referrer-policy"] == "same-origin"
        token = TOKEN.search(server.ask("/new").text)
        assert token is not None
        for path in (
            "/",
            run,
            "/nothing",
            f"{run}/file?path=../x",
            f"{run}/do/rm",
            server.url.removeprefix(server.origin),
        ):
            server.ask(path)  # what succeeds and what does not
        assert server.post(f"{run}/do/pause", {"step": "\0"}).status in (200, 409)
        assert server.ask(f"{run}/do/pause", "POST", "token=x&%", Origin=server.origin).status == 403
    printed, code = "".join(server.printed), server.url.partition("code=")[2]
    assert printed.count("a browser came in; for another one: ") == 1  # it was read, and there is something in it
    for secret in (server.cookie.partition("=")[2], token[1], code):
        held = [
            path for path in place.root.parent.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ]
        assert (secret in printed, held) == (False, [])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "[::]"])  # fmt: skip
def test_another_sites_name_leads_nowhere(served: Served, run: str, host: str) -> None:
    for path in ("/", run, f"{run}/events", served.url.removeprefix(served.origin)):
        says_nothing(served.ask(path, Host=host), 421)


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1", "[::1]:8321", "LOCALHOST"])
def test_a_tunnel_may_have_another_port(served: Served, host: str) -> None:
    assert served.ask("/", Host=host).status == 200


@pytest.mark.parametrize("origin", OTHERS)
def test_another_page_can_change_nothing(served: Served, place: Place, run: str, origin: str) -> None:
    folder = place.run_folder()
    before = place.tree()
    fields = {"act": "approve", "question": "steps/publish.1.question.md", "step": "publish"}
    for path, given in (
        (f"{run}/answer", fields),
        (f"{run}/do/cancel", {}),
        ("/new", {"name": "x.md", "text": "# x"}),
    ):
        says_nothing(served.post(path, given, Origin=origin), 403)
        says_nothing(served.post(path, given, Origin=None), 403)
        says_nothing(served.post(path, given, Origin=None, Sec_Fetch_Site="same-site"), 403)
    assert (place.tree(), list((place.root / "goals").glob("*.md"))) == (before, [])
    assert not (folder / "steps/publish.1.reply.md").exists()


def test_a_form_without_the_sessions_token_is_refused(served: Served, place: Place, run: str) -> None:
    before = place.tree()
    for token in ("", "0" * 64, "x"):
        reply = served.ask(f"{run}/do/pause", "POST", urlencode({"token": token}), Origin=served.origin)
        assert (reply.status, place.tree()) == (403, before)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_can_neither_frame_nor_follow_it(served: Served, run: str, site: str) -> None:
    for path in ("/", run, f"{run}/events", "/events", f"{run}/log/first/1/events?from=0"):
        says_nothing(served.ask(path, Sec_Fetch_Site=site), 403)
    headers = served.ask(run).headers
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/run/../../etc", "/run/%2e%2e/%2e%2e", "/run/..%2f..%2fetc/x", "/run/2026-11-18/..", "/run/2026-11-18/%2e%2e%2fjob",
        "/run/2026-11-18/job%00", "/run/.git/hooks", "/assets/../server.py", "/assets/%2e%2e%2fserver.py", "/assets/style.css%00",
        "{run}/file?path=../run.json", "{run}/file?path=/etc/passwd", "{run}/file?path=..%2f..%2f..%2fagentfs.toml", "{run}/file?path=link",
        "{run}/file?path=folder/passwd", "{run}/file?path=./made.txt", "{run}/file?path=", "{run}/file?path=made.txt%00",
        "{run}/log/..%2f..%2frun.json/1", "{run}/log/first/99", "{run}/step/nothing", "{run}/do/rm", "{run}/do/approve",
    ],
)  # fmt: skip
def test_nothing_outside_a_run_can_be_named(served: Served, place: Place, run: str, path: str) -> None:
    files = place.run_folder() / "files"
    for name, target in (("link", "/etc/passwd"), ("folder", "/etc")):
        if not (files / name).is_symlink():
            (files / name).symlink_to(target)
    reply = served.ask(path.format(run=run))
    assert (reply.status, "root:" in reply.text, "agentfs/run-1" in reply.text) == (404, False, False), reply


def test_a_file_is_text_and_never_a_page(served: Served, place: Place, run: str) -> None:
    (place.run_folder() / "files" / "page.html").write_text(EVIL)
    reply = served.ask(f"{run}/file?path=page.html")
    assert (reply.status, reply.text) == (200, EVIL)
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_persons_own_tools_are_never_imported(tmp_path: Path) -> None:
    """Looking, editing and answering need no code of the workspace."""
    place = Place(tmp_path)
    place.agentfs("run", place.runbook("### publish\ngate\n```sh\necho out\n```\n"), code=3)
    ran = tmp_path / "ran"
    (place.root / "tools").mkdir(exist_ok=True)
    (place.root / "tools" / "mine.py").write_text(f"open({str(ran)!r}, 'w')\n")
    folder = place.run_folder()
    run, plan = f"/run/{folder.parent.name}/{folder.name}", (folder / "plan.json").read_text()
    with web(place) as server:
        server.enter()
        edited = {"text": plan.replace("echo out", "echo far"), "base": hashlib.sha256(plan.encode()).hexdigest()}
        assert [server.ask(path).status for path in (run, f"{run}/edit", f"{run}/do/fork")] == [200] * 3
        assert [server.post(f"{run}/{act}", edited).status for act in ("check", "save")] == [200, 200]
    assert ("echo far" in (folder / "plan.json").read_text(), ran.exists()) == (True, False)


def test_looking_holds_no_lock_and_writes_nothing(place: Place, run: str) -> None:
    before = everything(place.root)
    with web(place) as server:
        server.enter()
        acts = ("pause", "resume", "cancel", "replan", "fork", "restore", "retry?step=first", "skip?step=first")
        pages = ("", "/step/first", "/report", "/compare", "/edit", "/log/first/1", *(f"/do/{act}" for act in acts))
        tabs = [server.opened(f"{run}/events"), server.opened("/events")]
        for path in ("/", "/new", *(f"{run}{page}" for page in pages)):
            assert server.ask(path).status == 200, path
        assert server.post(f"{run}/check", {"text": "{}"}, page=run).status == 200
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        assert [line for line in held if str(server.command.pid) in line] == []
        for tab in tabs:
            tab.close()
    assert everything(place.root) == before


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file of a workspace: when it was written, and what is in it."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_view_that_is_read_only_changes_nothing(place: Place, run: str) -> None:
    before = place.tree()
    with web(place, "--read-only") as server:
        server.enter()
        assert server.ask(run).status == 200
        assert "<form" not in server.ask(run).text
        for path in (f"{run}/answer", f"{run}/do/cancel", f"{run}/save", f"{run}/check", "/new"):
            says_nothing(server.post(path, {"act": "approve", "step": "publish"}, page=run), 403)
        for path in (f"{run}/edit", f"{run}/do/cancel", "/new"):
            assert server.ask(path).status == 404
    assert place.tree() == before


def test_what_is_too_large_or_no_form_is_refused(served: Served, run: str) -> None:
    says_nothing(served.ask(f"{run}/answer", "POST", "x" * 4_000_001, Origin=served.origin), 413)
    says_nothing(served.ask(f"{run}/answer", "POST", None, Origin=served.origin, Transfer_Encoding="chunked"), 413)
    assert served.ask(run, "DELETE", "", Origin=served.origin).status == 405
    many = {f"field-{n}": "" for n in range(300)}
    assert served.post(f"{run}/answer", many, page=run).status == 413


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("do/retry", 404),  # of which step?
        ("do/skip?step=nope", 200),  # says that there is none
        ("do/restore?revision=99", 200),
        ("compare?a=99999999999999999999&b=-1", 200),
        ("log/publish/99999999999999999999", 404),
        (f"log/publish/{'9' * 5000}", 404),
        ("no/such/page", 404),
    ],
)
def test_what_makes_no_sense_has_an_answer_and_no_traceback(served: Served, run: str, path: str, status: int) -> None:
    reply = served.ask(f"{run}/{path}")
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert served.ask(f"/?first={'9' * 5000}").status == 200


def test_no_text_becomes_markup_in_the_live_view(tmp_path: Path) -> None:
    place = Place(tmp_path)
    steps = [
        {"id": "say", "tool": "shell", "input": {"command": f"echo '{EVIL}'; touch '<img src=x onerror=y>'"}, "description": EVIL},
        {"id": "ask", "tool": "ask", "input": {"question": EVIL}},
    ]  # fmt: skip
    place.goal(json.dumps({"goal": EVIL, "steps": steps}), "job.json")
    place.agentfs("run", "job.json", code=3)
    folder = place.run_folder()
    run = f"/run/{folder.parent.name}/{folder.name}"
    with web(place) as server:
        server.enter()
        hostile = f"/?name={quote(EVIL)}", f"{run}/compare?a={quote(EVIL)}", f"{run}/do/skip?step={quote(EVIL)}", f"{run}/do/skip?step=ask&because={quote(EVIL)}"  # fmt: skip
        for path in ("/", run, f"{run}/step/say", f"{run}/step/ask", f"{run}/log/say/1", f"{run}/edit", *hostile):
            elements = Elements(server.ask(path).text)
            scripts = [given for tag, given in elements.found if tag == "script"]
            assert scripts == [{"src": "/assets/live.js", "defer": None}], path
            assert [
                tag for tag, _ in elements.found if tag in ("img", "iframe", "object", "embed", "base", "style")
            ] == []
            attributes = [(name, str(value)) for _, given in elements.found for name, value in given.items()]
            assert [one for one in attributes if one[0].startswith("on") or one[0] == "style"] == []
            assert [one for one in attributes if one[0] in LEADS and not re.match(r"#|/(?!/)", one[1])] == []
        refused = server.post(f"{run}/do/skip", {"step": EVIL}, page=f"{run}/do/skip?step=ask")
        assert (refused.status, EVIL in refused.text) == (409, False)


def test_a_hundred_megabytes_of_log_do_not_reach_the_browser(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n"))
    folder = place.run_folder()
    log = folder / "steps" / "a.1.log.jsonl"
    line = json.dumps(
        {"event": "output", "at": "2026-11-18T05:00:00.000000Z", "stream": "stdout", "text": "x" * 900}
    ).encode()
    with log.open("ab") as file:
        for _ in range(100):
            file.write((line + b"\n") * 1_100)
    assert log.stat().st_size > 100_000_000
    run = f"/run/{folder.parent.name}/{folder.name}"
    with web(place) as server:
        server.enter()
        began = time.monotonic()
        reply = server.ask(f"{run}/step/a")
        assert (reply.status, len(reply.body) < 500_000, time.monotonic() - began < 20) == (200, True, True)
        earlier = re.search(r"/log/a/1\?before=\d+", reply.text)
        assert earlier is not None
        assert len(server.ask(f"{run.rpartition('/run')[0]}{run}{earlier[0]}").body) < 500_000


def test_readers_that_read_nothing_hold_nobody_up_and_cost_little(place: Place, served: Served, run: str) -> None:
    """Forty streams are open at once; twenty of them are offered tens of megabytes that they never take."""
    log = place.run_folder() / "steps" / "first.2.log.jsonl"
    line = {"event": "output", "at": "2026-11-18T05:00:00.000000Z", "stream": "stdout", "text": "x" * 900}
    log.write_bytes((json.dumps(line) + "\n").encode() * 30_000)
    used = rss(served)
    tabs = [served.opened(f"{run}/events") for _ in range(20)]
    tabs += [served.opened(f"{run}/log/first/2/events?from=0") for _ in range(20)]
    try:
        for tab in tabs:
            assert b"200 OK" in tab.recv(100)
        took = []
        for _ in range(9):
            began = time.monotonic()
            assert served.ask(run).status == 200
            took.append(time.monotonic() - began)
        assert min(took) < 5
        assert rss(served) - used < 100_000_000  # of 540 MB that are there to be sent
        slow = tabs[-1]  # and who does read gets all of it, in order, late as it is
        slow.settimeout(30)
        received = b""
        while received.count(b"event: lines") < 5:
            received += slow.recv(1 << 20)
        ids = [int(one) for one in re.findall(rb"^id: (\d+)$", received, re.MULTILINE)]
        assert ids == sorted(set(ids))
    finally:
        for tab in tabs:
            tab.close()
        log.unlink()
    assert served.ask("/").status == 200


def rss(served: Served) -> int:
    """Return how much memory the server has."""
    return int(Path(f"/proc/{served.command.pid}/statm").read_text().split()[1]) * 4096


def test_it_opens_the_browser_that_a_person_has_chosen(place: Place, tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    place.env["BROWSER"] = f"{browser} %s"
    try:
        with web(place, "--open") as server:
            wait_for(seen.exists, "the browser to be opened")
            assert seen.read_text().strip() == server.url
        place.env["BROWSER"] = f"{tmp_path / 'none'} %s"
        with web(place, "--open") as server:
            assert server.ask("/", Cookie=None).status == 401
        assert "no browser could be opened" in "".join(server.printed)
    finally:
        del place.env["BROWSER"]


def test_a_port_that_is_taken_and_an_extra_that_is_missing_are_reported(
    place: Place, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = place.looks("web", "--port", str(served.port))
    assert (code, out) == (2, "")
    assert err.startswith(f"agentfs: port {served.port} of 127.0.0.1 cannot be used: Address already in use"), err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, out, err = place.looks("web")
    assert (code, out) == (2, "")
    assert (
        err
        == "agentfs: agentfs web needs the extra `web`: pip install 'agentfs-plan[web]' (uv tool install 'agentfs-plan[web]')\n"
    )

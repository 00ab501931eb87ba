"""A person's own tools: what makes a function one, how it is called, and how it ends."""

import ast
import json
import os
import shutil
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfs import tool
from agentfs.core.config import DEFAULT_TOOLS
from agentfs.core.excerpts import TimeLimit
from agentfs.core.records import Failure, Sandbox
from agentfs.core.tool_spec import ToolSpec
from agentfs.storage.timing import TIMING
from agentfs.tools import user_tool_calls, workers
from agentfs.tools.base import ToolResult
from agentfs.tools.process import find_survivors
from agentfs.tools.registry import Toolbox, known_tools, opened_tools, sources
from agentfs.tools.user_tools import Found, _without_titles, hint_type, read_sources, without_clashes
from tests.contexts import RecordedContext, a_context, a_workspace, each_sandbox, with_deadline
from tests.workspaces import Place, wait_for

HEAD = "import os, sys, time\nfrom typing import *\nfrom agentfs import tool\n"


def write(tmp_path: Path, source: str, name: str = "shop.py") -> Path:
    """Put a file into tools/; return the workspace."""
    workspace = a_workspace(tmp_path)
    (workspace / "tools").mkdir(exist_ok=True)
    (workspace / "tools" / name).write_text(HEAD + textwrap.dedent(source), encoding="utf-8")
    return workspace


def loaded(workspace: Path, sandbox: Sandbox = "none") -> Found:
    return user_tool_calls.load(sources(workspace), workspace, sandbox, DEFAULT_TOOLS)


@contextmanager
def box(tmp_path: Path, source: str, sandbox: Sandbox = "none") -> Iterator[Toolbox]:
    with opened_tools(write(tmp_path, source), sandbox) as made:
        assert made.broken == ()
        yield made


def call(made: Toolbox, name: str, work: RecordedContext, **given: Any) -> ToolResult:
    return made.tools[name].call(given, work.context)


# ── what a function says of itself, read twice ────────────────────────────────────────────────────────────


def test_a_tool_stays_a_function() -> None:
    @tool(effects="none", name="other")
    def twice(n: int) -> int:
        return 2 * n

    @tool
    def once(n: int) -> int:
        return n

    assert (twice(3), once(3)) == (6, 3)


PARAMETERS = [
    "",
    "a: str",
    "a: int",
    "a: float, b: bool",
    "a: str = 'x'",
    "a: str, b: int = 3",
    "*, a: str, b: int = 1",
    "a: list",
    "a: list[str]",
    "a: List[int] = []",
    "a: list[list[int]]",
    "a: dict",
    "a: dict[str, int]",
    "a: dict[str, Any]",
    "a: dict[str, list[str]]",
    "a: str | None",
    "a: str | None = None",
    "a: Optional[int]",
    "a: Union[int, str, None]",
    "a: int | list[str]",
    "a: Literal['x']",
    "a: Literal['x', 'y']",
    "a: Literal[1, 2] = 1",
    "a: Literal['x', 1]",
    "a: Any",
    "a: 'str'",
    "a: 'list[int] | None'",
    "a: Annotated[int, 'a number']",
    "title: str, schema: int, properties: bool, model_config: str",
    "a: None",
]


@pytest.mark.parametrize("sandbox", ["none"])
def test_source_and_python_agree(tmp_path: Path, sandbox: Sandbox) -> None:
    """Both readers describe every simple function in the same words."""
    functions = [
        f'@tool(effects="read")\ndef f{n}({parameters}) -> str:\n    """Line {n}.\n\n    More.\n    """\n    return ""\n'
        for n, parameters in enumerate(PARAMETERS)
    ]
    workspace = write(tmp_path, "\n".join(functions))
    by_source = without_clashes(read_sources(sources(workspace)), DEFAULT_TOOLS)
    assert [one.spec.summary for one in by_source.tools] == [f"Line {n}." for n in range(len(PARAMETERS))]
    assert loaded(workspace, sandbox) == by_source


@pytest.mark.parametrize(
    "hint", ["Path", "datetime", "tuple[int, str]", "set[int]", "Callable[[], int]", "dict[int, str]", "x.y[z]",
             "Literal[A]", "'not ] python'", "1", "Item | str"]
)  # fmt: skip
def test_a_hint_the_source_does_not_explain_allows_everything(hint: str) -> None:
    assert hint_type(ast.parse(hint, mode="eval").body) is Any


def test_what_only_python_knows(tmp_path: Path) -> None:
    workspace = write(
        tmp_path,
        """
        from dataclasses import dataclass
        from pathlib import Path

        @dataclass
        class Item:
            title: str
            price: float = 0

        @tool(effects="none")
        def total(items: list[Item], into: Path = Path("x")) -> float:
            return sum(item.price for item in items)
        """,
    )
    (found,) = loaded(workspace).tools
    item = {
        "additionalProperties": False,
        "properties": {"title": {"type": "string"}, "price": {"type": "number", "default": 0}},
        "required": ["title"],
        "type": "object",
    }
    item_schema = found.spec.input_schema["$defs"]["Item"]
    assert item_schema | {"additionalProperties": False} == item
    assert found.spec == ToolSpec(
        name="total",
        summary="total in tools/shop.py",
        input_schema={
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "into": {"type": "string", "format": "path"},
            },
            "required": ["items"],
            "additionalProperties": False,
            "$defs": {"Item": item_schema},
        },
        effects="none",
        repeatable=True,
    )


def test_titles_go_and_names_stay() -> None:
    given = {"title": "X", "properties": {"title": {"title": "Title", "type": "string"}}, "anyOf": [{"title": "Y"}]}
    assert _without_titles(given) == {"properties": {"title": {"type": "string"}}, "anyOf": [{}]}


REFUSED = [
    ("@tool\ndef f(a): pass", "the parameter 'a' of f has no type hint; write a: str, or what it is"),
    ("@tool\ndef f(*a: int): pass", "f takes *a; name every parameter"),
    ("@tool\ndef f(**a: int): pass", "f takes **a; name every parameter"),
    ("@tool\ndef f(a: int, /): pass", "f takes a by position only; take out the /"),
    ("@tool\nasync def f(a: int): pass", "f is async; a tool is a plain function (call asyncio.run in it)"),
    (
        "@tool(effects='magic')\ndef f(): pass",
        "effects of f are 'magic'; they may be read, write, execute, network, none",
    ),
    (
        "@tool(name='a b')\ndef f(): pass",
        "'a b' cannot be a tool's name: letters, digits, - and _ only, a letter first",
    ),
    ("@tool(name='sh')\ndef f(): pass", "'sh' means something else already; give the tool another name"),
    ("@tool\ndef shell(): pass", "'shell' is a tool of agentfs; give yours another name"),
    ("@tool\ndef web_search(): pass", "'web_search' is a tool of agentfs; give yours another name"),
]


def test_what_cannot_be_a_tool_is_refused_in_words_and_the_others_stay(tmp_path: Path) -> None:
    for n, (source, _) in enumerate(REFUSED):
        workspace = write(tmp_path, source, f"f{n}.py")
    write(tmp_path, "@tool\ndef fine() -> str:\n    return 'x'\n", "good.py")
    expected = [f"tools/f{n}.py:5: {words}" for n, (_, words) in enumerate(REFUSED)]
    for found in (loaded(workspace), without_clashes(read_sources(sources(workspace)), DEFAULT_TOOLS)):
        assert [one.spec.name for one in found.tools] == ["fine"]
        assert sorted(found.problems) == sorted(expected)


def test_of_two_tools_with_one_name_neither_counts(tmp_path: Path) -> None:
    workspace = write(tmp_path, "@tool\ndef same(): pass\n@tool\ndef other(): pass\n", "a.py")
    write(tmp_path, "@tool(name='same')\ndef b(): pass\n", "b.py")
    known = known_tools(workspace)
    assert (known.own, known.broken) == (
        ("other",),
        ("tools/a.py:5 and tools/b.py:5: two tools are called 'same'; give one of them another name",),
    )
    assert loaded(workspace).problems == known.broken


@each_sandbox
def test_modules_that_cannot_be_loaded(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_tool_calls, "TIMING", replace(TIMING, tool_load=4.0))
    broken = {
        "crash.py": "os._exit(3)",
        "divide.py": "\n1 / 0",
        "exits.py": "sys.exit('bye')",
        "hangs.py": "time.sleep(1000)",
        "missing.py": "import no_such_module",
        "neighbour.py": "import _broken",
        "syntax.py": "def f(:\n    pass",
    }
    for name, source in broken.items():
        workspace = write(tmp_path, source, name)
    write(tmp_path, "x = ]", "_broken.py")
    write(tmp_path, "print('noise')\nimport _shared, tools._shared\n@tool\ndef fine(): pass\n", "good.py")
    write(tmp_path, "", "_shared.py")
    began = time.monotonic()
    found = loaded(workspace, sandbox)
    assert time.monotonic() - began < 60
    assert [one.spec.name for one in found.tools] == ["fine"]
    assert list(found.problems) == [
        "tools/crash.py could not be loaded: it ended Python",
        "tools/divide.py could not be loaded: line 5: ZeroDivisionError: division by zero",
        "tools/exits.py could not be loaded: line 4: SystemExit: bye",
        "tools/hangs.py could not be loaded: it had not been loaded after 4 s",
        "tools/missing.py could not be loaded: line 4: No module named 'no_such_module'",
        "tools/neighbour.py could not be loaded: _broken.py, line 4: unmatched ']'",
        "tools/syntax.py could not be loaded: line 4: invalid syntax",
    ]
    assert known_tools(workspace).broken == ("tools/syntax.py could not be loaded: line 4: invalid syntax",)


def test_a_file_named_like_a_module_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, "import json\n@tool\ndef dumped(a: int) -> str:\n    return json.dumps(a)\n", "json.py")
    with box(tmp_path, "import random\n") as made:
        assert call(made, "dumped", a_context(tmp_path), a=1) == ToolResult("1")


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────

CALLS = """
    import dataclasses, datetime, subprocess, threading
    from pathlib import Path

    @dataclasses.dataclass
    class Item:
        name: str
        price: float

    @tool
    def value(kind: str) -> Any:
        print("to stdout")
        os.system("echo from a child")
        print("to stderr", file=sys.stderr)
        return {"none": None, "text": '{"not": "parsed"}', "list": [1, 2.5, None], "item": Item("cup", 2),
                "date": datetime.date(2026, 11, 16), "path": Path("x"), "nan": float("nan"), "set": {1},
                "object": object(), "half": "\\ud800", "long": "x" * 10000, "secret": "hush-hush-1234",
                "deep": eval("[" * 20 + "]" * 20), "cwd": os.getcwd()}[kind]

    def inner(n: int) -> float:
        return 1 / n

    @tool
    def divide(n: int) -> float:
        return inner(n)

    @tool
    def end(how: str) -> None:
        {"exit": sys.exit, "os": os._exit, "kill": lambda n: os.kill(os.getpid(), 9)}[how](3)

    @tool
    def who(do: str = "") -> int:
        if do == "thread":
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        elif do == "child":
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        elif do == "daemon":
            subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
        elif do == "folder":
            os.chdir("/")
        elif do == "variable":
            os.environ["X"] = "y"
        elif do == "mute":
            os.close(1)
            time.sleep(0.2)  # time enough to arrive
        return os.getpid()

    @tool
    def sleep(seconds: float, child: bool = False) -> None:
        print("began")
        if child:
            subprocess.run(["sh", "-c", "setsid sleep 1000 & echo started; wait"])
        time.sleep(seconds)

    @tool
    def dated(day: datetime.date) -> int:
        return day.year

    @tool
    def shout() -> None:
        while True:
            os.write(1, b"x" * 65536)
"""


@each_sandbox
def test_values(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox, environ={"A_KEY": "hush-hush-1234"})
    with box(tmp_path, CALLS, sandbox) as made:

        def given(kind: str) -> ToolResult:
            return call(made, "value", work, kind=kind)

        assert given("text") == ToolResult('{"not": "parsed"}')
        assert (work.logged("stdout"), work.logged("stderr")) == ("to stdout\nfrom a child\n", "to stderr\n")
        assert given("none") == ToolResult(None)
        assert given("list") == ToolResult([1, 2.5, None])
        assert given("item") == ToolResult({"name": "cup", "price": 2})
        assert given("date") == ToolResult("2026-11-16")
        assert given("path") == ToolResult("x")
        assert given("set") == ToolResult([1])
        assert given("secret") == ToolResult("[secret A_KEY]")
        assert given("cwd") == ToolResult(str(work.workdir))
        assert given("deep").failure is None
        for kind in ("nan", "object", "half"):
            failure = given(kind).failure
            assert failure is not None
            assert (failure.kind, failure.message.partition(":")[0]) == ("tool", "what it gave back is no JSON value")
        long = given("long")
        assert (long.cut, work.context.output_file.read_text()) == (True, "x" * 10000)
        assert call(made, "dated", work, day="2026-11-16") == ToolResult(2026)
        assert call(made, "dated", work, day="yesterday").failure == Failure(
            kind="input", message="day: Input should be a valid date or datetime, input is too short"
        )
    marks = {mark.pgid for mark in work.claims if mark}
    assert (len(work.claims), len(marks), os.getpgrp() in marks) == (16, 1, False)
    assert all(mark and find_survivors(mark) == () for mark in work.claims)


@each_sandbox
def test_what_a_tool_raises_is_its_failure_and_says_where(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    workspace = write(tmp_path, CALLS)
    lines = (workspace / "tools/shop.py").read_text().splitlines()
    with box(tmp_path, CALLS, sandbox) as made:
        at = lines.index("    return 1 / n") + 1
        assert call(made, "divide", work, n=0).failure == Failure(
            kind="tool", message=f"ZeroDivisionError: division by zero (tools/shop.py:{at})"
        )
        assert f"line {at}, in inner" in work.logged("stderr")
        assert call(made, "divide", work, n=4) == ToolResult(0.25)
        exit_at = next(n for n, line in enumerate(lines, 1) if "sys.exit" in line)
        assert call(made, "end", work, how="exit").failure == Failure(
            kind="tool", message=f"SystemExit: 3 (tools/shop.py:{exit_at})"
        )
        gone = Failure(
            kind="tool", message="its worker ended before it gave anything back: it crashed, or ended Python"
        )
        assert call(made, "end", work, how="os").failure == gone
        assert call(made, "end", work, how="kill").failure == gone
        assert call(made, "divide", work, n=4) == ToolResult(0.25)


@each_sandbox
def test_a_worker_is_used_again_unless_its_tool_left_something_behind(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    with box(tmp_path, CALLS, sandbox) as made:
        for _ in range(2):
            assert call(made, "who", work).failure is None
        assert work.claims[0] == work.claims[1]
        for number in range(2):  # every call of a run has one of its own
            traced = replace(work, context=replace(work.context, traceparent=f"00-{number:032}-{number:016}-01"))
            assert call(made, "who", traced).failure is None
        assert work.claims[2:] == work.claims[:2]
        for left in ("thread", "child", "daemon", "folder", "variable", "mute"):
            before = call(made, "who", work, do=left)
            assert before.failure is None
            mark = work.claims[-1]
            assert mark is not None
            wait_for(lambda mark=mark: find_survivors(mark) == (), f"the end of what {left!r} left", 5)  # type: ignore[misc]
            assert call(made, "who", work).failure is None
            assert work.claims[-1] != mark


@each_sandbox
def test_timeout_and_stop_end_the_worker_with_its_children(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    with box(tmp_path, CALLS, sandbox) as made:
        assert call(made, "divide", work, n=2) == ToolResult(0.5)
        late = with_deadline(work, 0.5)
        assert call(made, "sleep", late, seconds=1000, child=True).failure == Failure(
            kind="timeout", message="it did not end within 0.5 s and was killed", hint=TimeLimit(0.5).failure().hint
        )
        assert work.logged("stdout").startswith("began\nstarted\n")
        timer = threading.Timer(0.3, work.stop.set)
        timer.start()
        began = time.monotonic()
        assert call(made, "sleep", work, seconds=1000).failure == Failure(
            kind="interrupted", message="it was stopped"
        )
        assert time.monotonic() - began < 40
        assert all(mark and find_survivors(mark) == () for mark in work.claims[1:])
        work.stop.clear()
        assert call(made, "divide", work, n=2) == ToolResult(0.5)


def test_one_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "OUTPUT_CAP", 1024 * 1024)
    work = a_context(tmp_path)
    with box(tmp_path, CALLS) as made:
        failure = call(made, "shout", work).failure
    assert failure == Failure(kind="output", message="it printed more than 1 MiB and was killed")
    assert len(work.logged("stdout")) < 10_000


def test_nothing_runs_when_the_claim_is_taken(tmp_path: Path) -> None:
    work = a_context(tmp_path)

    def taken(mark: object) -> None:
        raise FileExistsError("claimed")

    source = "open('loaded', 'w').close()\n@tool\ndef f() -> str:\n    open('ran', 'w').close()\n    return 'x'\n"
    with opened_tools(write(tmp_path, source), "none") as made:
        (made_at_load,) = (tmp_path / "workspace/tools").glob("loaded")
        made_at_load.unlink()
        with pytest.raises(FileExistsError, match="claimed"):
            made.tools["f"].call({}, replace(work.context, claim=taken))
        assert list(work.workdir.iterdir()) == []
        assert call(made, "f", work) == ToolResult("x")
    assert sorted(path.name for path in work.workdir.iterdir()) == ["loaded", "ran"]


def test_an_edit_counts_from_the_next_call(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    source = "@tool\ndef f() -> str:\n    return '{}'\n"
    with box(tmp_path, source.format("old")) as made:
        assert call(made, "f", work) == ToolResult("old")
        write(tmp_path, source.format("brand new"))
        assert call(made, "f", work) == ToolResult("brand new")
        write(tmp_path, "x = 1\n")
        assert call(made, "f", work).failure == Failure(kind="tool", message="tools/shop.py no longer has a tool 'f'")


def test_many_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    work = a_context(tmp_path)
    with box(tmp_path, CALLS) as made, ThreadPoolExecutor(8) as pool:
        quarters = list(pool.map(lambda n: call(made, "divide", work, n=n).output, [1, 2, 4, 8] * 50))
    assert quarters == [1.0, 0.5, 0.25, 0.125] * 50
    assert len({mark.pid for mark in work.claims if mark}) <= 8


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "installed"
    (folder / "shop_tools-1.0.dist-info").mkdir(parents=True)
    (folder / "shop_tools-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shop-tools\nVersion: 1.0\n"
    )
    entries = "[agentfs.tools]\nall = shop_tools\none = shop_more:three\nbad = shop_bad\n"
    (folder / "shop_tools-1.0.dist-info" / "entry_points.txt").write_text(entries)
    body = "from agentfs import tool\n@tool\ndef {}(n: int) -> int:\n    return n\n"
    (folder / "shop_tools.py").write_text(body.format("one_of_all"))
    (folder / "shop_more.py").write_text(body.format("three") + body.format("four"))
    (folder / "shop_bad.py").write_text("import nothing_like_it\n")
    monkeypatch.syspath_prepend(str(folder))
    workspace = a_workspace(tmp_path)
    assert known_tools(workspace).own == ("one_of_all", "three")
    assert known_tools(workspace, ["shell", "ask"]).own == ()
    assert known_tools(workspace, ["three"]).own == ("one_of_all", "three")
    with opened_tools(workspace, "none") as made:
        assert made.own == ("one_of_all", "three")
        assert made.broken == ("the entry point bad could not be loaded: line 1: No module named 'nothing_like_it'",)
        assert call(made, "three", a_context(tmp_path), n=3) == ToolResult(3)


# ── from outside ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_example(place: Place) -> None:
    example = Path(__file__).parents[2] / "examples/own-tool"
    shutil.copytree(example, place.root, dirs_exist_ok=True)
    place.agentfs("init")
    done = place.agentfs("run", "goal.md")
    assert done.stdout == "total 40.70\n"
    assert (place.root / "invoice.txt").read_text() == "goods 27.80\nshipping 12.90\ntotal 40.70\n"
    assert place.read("steps/total.1.result.json", "goal")["output"] == {"lines": 2, "cents": 2780}
    assert place.read("run.json", "goal")["tools"][-2:] == ["order_total", "shipping"]
    assert sorted(os.listdir(place.root / "tools")) == ["shop.py"]


def test_a_plan_that_uses_a_tool_that_is_not_there_hears_why(place: Place) -> None:
    place.agentfs("init")
    (place.root / "tools").mkdir()
    source = "from agentfs import tool\n\nimport foo\n\n@tool\ndef price(text: str) -> str:\n    return text\n"
    (place.root / "tools/shop.py").write_text(source)
    book = place.runbook("### go\n```price\ncup\n```\n")
    refused = place.agentfs("run", book, code=2)
    assert refused.stderr.strip() == (
        "agentfs: job.md:6:4: there is no tool 'price' (tools/shop.py could not be loaded: line 3: No module named 'foo') [/steps/0/tool]"
    )
    assert not list(place.runs.glob("*/job"))
    place.agentfs("check", book)  # by its source it is fine: `check` runs nothing
    (place.root / "tools/shop.py").write_text("def f(:\n")
    output = place.agentfs("check", book, code=2).stdout
    assert (
        output
        == "job.md:6:4: there is no tool 'price' (tools/shop.py could not be loaded: line 1: invalid syntax) [/steps/0/tool]\n"
    )
    assert "tools/shop.py could not be loaded: line 1: invalid syntax" in place.agentfs("tools", code=2).stderr


def test_own_tools_are_allowed_unless_the_settings_name_the_tools(place: Place) -> None:
    place.agentfs("init")
    (place.root / "tools").mkdir()
    (place.root / "tools/a.py").write_text(
        "from agentfs import tool\n@tool\ndef hi(name: str) -> str:\n    return name\n"
    )
    book = place.runbook("### go\n```hi\ncup\n```\n")
    assert place.agentfs("run", book).stdout == "cup\n"
    (place.root / "agentfs.toml").write_text('[tools]\nallow = ["shell"]\n')
    refused = place.agentfs("run", book, code=2)
    assert (
        "the tool 'hi' is not allowed in this run (add hi to allow under [tools] in agentfs.toml)" in refused.stderr
    )
    (place.root / "agentfs.toml").write_text('[tools]\nallow = ["hi"]\n')
    assert place.agentfs("run", book).stdout == "cup\n"
    listed = {one["name"]: one for one in json.loads(place.agentfs("tools", "--json").stdout)}
    assert (listed["hi"]["own"], listed["hi"]["allowed"], listed["shell"]["allowed"]) == (True, True, False)
    place.agentfs("run", place.runbook("### go\n```hi\ncup\n```\n", "tools: [shell]", "less.md"), code=2)

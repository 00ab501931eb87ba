"""The house keeps its walls: what the core may import, which names are banned, and how big things may get."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentfs"
CORE = sorted((PACKAGE / "core").glob("*.py"))
PURE = [
    PACKAGE / "planner" / f"{name}.py"
    for name in ("answer", "answer_form", "evaluation", "lint", "lint_texts", "prompt")
]
ALL = sorted(PACKAGE.rglob("*.py"))

VALUE_MODULES = {
    "bisect", "collections", "contextlib", "dataclasses", "datetime", "difflib", "fnmatch", "functools", "graphlib",
    "hashlib", "heapq", "itertools",
    "json", "keyword", "math", "re", "shlex", "textwrap", "token", "tokenize", "tomllib", "typing", "unicodedata", "urllib.parse", "warnings",
}  # fmt: skip
PACKAGES = {"anyascii", "cronsim", "pydantic", "pydantic_core", "jsonschema", "referencing", "agentfs"}
BANNED = ("manager", "helper", "utils", "service", "data", "info")  # they say nothing of what a thing does


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", [*CORE, *PURE], ids=lambda path: path.name)
def test_the_core_imports_values_only(path: Path) -> None:
    allowed = VALUE_MODULES | PACKAGES | ({"yaml"} if path.name == "yaml_text.py" else set())
    wrong = [name for name in _imports(path) if name not in allowed and name.split(".")[0] not in allowed]
    assert wrong == []
    inside = {"agentfs.core", *(_module(one) for one in PURE if path in PURE)}
    inner = [name for name in _imports(path) if name.startswith("agentfs")]
    assert [name for name in inner if name not in inside and not name.startswith("agentfs.core.")] == []


def _module(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")


def test_the_core_has_no_cycles() -> None:
    needs = {_module(path): {name for name in _modules_of(path) if name != "agentfs.core"} for path in CORE}
    while free := [name for name, before in needs.items() if not before & needs.keys()]:
        for name in free:
            del needs[name]
    assert sorted(needs) == []


def _modules_of(path: Path) -> Iterator[str]:
    """Yield the modules of agentfs that a module imports, whichever way."""
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module == "agentfs.core":
            yield from (f"agentfs.core.{alias.name}" for alias in node.names)
    yield from _imports(path)


@pytest.mark.parametrize("path", [*CORE, *PURE], ids=lambda path: path.name)
def test_the_core_opens_no_file_and_reads_no_clock(path: Path) -> None:
    calls = {ast.unparse(node.func) for node in _nodes(path) if isinstance(node, ast.Call)}
    assert calls & {"open", "print", "input", "datetime.now", "datetime.utcnow", "date.today"} == set()


def test_names_say_what_things_are() -> None:
    found = []
    for path in ALL:
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words = [word for word in node.name.lower().split("_") if word]
                found += [f"{path.name}: {node.name}" for word in words if word in BANNED]
    assert [name for name in found if name not in ALLOWED_NAMES] == []


# `Mask.data` is bytes that hold anything: there is no better word for them.
ALLOWED_NAMES = {"mask.py: data", "secrets.py: data"}


def test_functions_stay_below_their_ceiling() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in ALL
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef) and node.end_lineno and node.end_lineno - node.lineno >= 60
    ]
    assert long == []


def modules() -> list[str]:
    """Return every module that others import: what is started by its path is a program of its own."""
    programs = {"__main__.py", "minder.py"}
    return [_module(path) for path in ALL if path.name not in programs and "worker" not in path.name]


def test_only_what_starts_a_command_imports_one() -> None:
    """Commands come last: what people see, and all that is below, knows none of them."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in ALL
        if path.parent.name != "commands" and any(name.startswith("agentfs.commands") for name in _imports(path))
    }
    assert found == {"__main__.py", "gitdiff.py"}


def test_importing_does_nothing() -> None:
    """No module prints, writes or starts anything when it is imported."""
    import subprocess

    code = f"import threading, importlib\nfor m in {modules()!r}: importlib.import_module(m)\nprint(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


PRINTING = {  # what is printed elsewhere goes through one of these, which lets nothing by that a terminal obeys
    "commands/common.py",
    "commands/__init__.py",
    "commands/run.py",  # the answer, byte for byte
    "commands/completion.py",
    "commands/forget.py",  # a question without a line break
    "ui/progress.py",
    "daemon/reporter.py",
    "tools/user_tool_worker.py",  # a process of its own
}


def test_few_modules_print() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in ALL
        for node in _nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {name for name in found if not name.startswith("testing/")} == PRINTING


OPENS_WHAT_OTHERS_NAMED = "storage/safe_open.py"  # the only one: it waits for nothing and follows no link
OPENS_ITS_OWN = {  # names that agentfs has just made up, that the kernel has, or that a person has typed
    "tools/files.py": "makes a new file beside another, in a folder that safe_open holds",
    "storage/locks.py": "makes the files that locks are taken on, where no step can open them; holds goals/, a folder",
    "storage/files.py": "writes files that must not exist yet, flushes folders, and appends to logs; waits for nothing",
    "executor/attempt_log.py": "makes a claim, and appends to it; waits for nothing",
    "tools/output.py": "writes the output of an attempt, whose claim is ours",
    "replay/playback.py": "makes the output file of an attempt that is replayed, in a folder made for it",
    "places/elsewhere.py": "works in a folder made for one attempt",
    "places/assignment.py": "locks what it has just written, and follows no link",
    "places/relay.py": "writes the output of an attempt, whose claim is ours",
    "doctor/machine.py": "reads limits of the kernel, tries a file system with files of its own",
    "ledger/branch.py": "the turn of those who write to the ledger, and a list, in a folder no step can open",
    "ledger/repository.py": "makes git's lock of its settings, exclusively",
    "storage/workspace.py": "writes the secret of a workspace and the list of those that are trusted",
    "testing/agent.py": "is alone: reads its script, writes what that says",
    "testing/script.py": "reads what a person who tests has written",
    "ledger/worktrees.py": "fills a git folder made for the moment; marks as made what git has made just now",
    "agents/presets.py": "reads the first line of a program that the person's PATH names",
    "agents/running.py": "fills a home made for one attempt",
    "models/capabilities.py": "replaces what it remembers, in the person's own cache",
    "replay/replay.py": "works in a folder made for one replay",
    "replay/recording.py": "works in a folder made for one replay",
    "commands/asker.py": "makes a reply, in a folder made for the editor",
    "commands/serve.py": "writes a goal, in a folder made for it",
    "gitdiff.py": "reads files that git made for it, or /dev/null",
    "prompts/__init__.py": "reads what comes with agentfs",
    "web/document.py": "reads what comes with agentfs",
    "engine/goal_source.py": "reads the goal that a person types the name of: it may be a link or a pipe",
    "commands/__init__.py": "the streams of this process",
    "storage/clock.py": "reads the time zone of the machine",
    "commands/web.py": "writes a report where the person says; a browser",
}


OPENING = ("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch")
COPYING = ("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move")  # they open by path


def _opens(node: ast.AST) -> bool:
    """Whether a call opens a file by its name, to read or to write; not one of the kernel's, nor the null device."""
    if not isinstance(node, ast.Call):
        return False
    called, first = node.func, ast.unparse(node.args[0]) if node.args else ""
    if first == "os.devnull" or first.lstrip("f").strip("'\"").startswith("/proc/"):
        return False
    if isinstance(called, ast.Name):
        return called.id == "open"
    if ast.unparse(called) in COPYING:
        return "copy_function=copy_regular" not in ast.unparse(node)
    if not isinstance(called, ast.Attribute) or called.attr not in OPENING:
        return False
    return "/proc/" not in ast.unparse(called.value)


def test_few_modules_open_files() -> None:
    """What another process or user may have put under a name is opened by one module, whatever it is read for."""
    found = {str(path.relative_to(PACKAGE)) for path in ALL if any(_opens(node) for node in _nodes(path))}
    assert found == {OPENS_WHAT_OTHERS_NAMED, *OPENS_ITS_OWN}


LAYERS = (  # each imports only what is left of it; those in one group do not import each other
    ("core",), ("storage",), ("prompts",), ("models",), ("tools", "ledger"), ("agents",), ("planner", "executor"),
    ("places",), ("engine",), ("daemon", "replay"), ("ui",), ("doctor", "web"), ("commands",),
)  # fmt: skip


def _to_the_right() -> Iterator[str]:
    """Yield every import of a layer that does not stand left of its own, lazy and type-only ones included."""
    place = {name: number for number, group in enumerate(LAYERS) for name in group}
    for path in ALL:
        own = path.relative_to(PACKAGE).parts[0]
        for name in _imports(path):
            other = [*name.split("."), ""][1]
            if own in place and other in place and other != own and place[other] >= place[own]:
                yield f"{path.relative_to(PACKAGE)} -> {name}"


def test_layers_import_only_to_their_left() -> None:
    assert list(_to_the_right()) == []


def test_the_root_holds_packages_and_few_modules() -> None:
    assert len([path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]) <= 5

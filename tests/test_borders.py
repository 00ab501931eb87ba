"""The house keeps its walls: what the core may import, which names are banned, and how big things may get."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentfs"
CORE = sorted((PACKAGE / "core").glob("*.py"))
ALL = sorted(PACKAGE.rglob("*.py"))

VALUE_MODULES = {
    "bisect", "collections", "dataclasses", "datetime", "difflib", "functools", "hashlib", "heapq", "itertools",
    "json", "keyword", "math", "re", "textwrap", "token", "tokenize", "tomllib", "typing", "unicodedata", "urllib.parse", "warnings",
}  # fmt: skip
PACKAGES = {"anyascii", "pydantic", "pydantic_core", "jsonschema", "referencing", "agentfs"}
BANNED = ("manager", "handler", "helper", "utils", "service", "process", "data", "info")


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_imports_values_only(path: Path) -> None:
    allowed = VALUE_MODULES | PACKAGES | ({"yaml"} if path.name == "yaml_text.py" else set())
    wrong = [name for name in _imports(path) if name not in allowed and name.split(".")[0] not in allowed]
    assert wrong == []
    inner = [name for name in _imports(path) if name.startswith("agentfs") and not name.startswith("agentfs.core")]
    assert inner == []


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_opens_no_file_and_reads_no_clock(path: Path) -> None:
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    assert calls & {"open", "print", "input", "datetime.now", "datetime.utcnow", "date.today"} == set()


def test_names_say_what_things_are() -> None:
    found = []
    for path in ALL:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words = [word for word in node.name.lower().split("_") if word]
                found += [f"{path.name}: {node.name}" for word in words if word in BANNED]
    assert [name for name in found if name not in ALLOWED_NAMES] == []


# `Mask.data` is bytes that hold anything: there is no better word for them.
ALLOWED_NAMES = {"base.py: data", "secrets.py: data"}


def test_functions_stay_below_their_ceiling() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in ALL
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno and node.end_lineno - node.lineno >= 60
    ]
    assert long == []


def modules() -> list[str]:
    """Return every module that others import: what is started by its path is a program of its own."""
    programs = {"__main__.py", "minder.py"}
    return [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in ALL
        if path.name not in programs and "worker" not in path.name
    ]


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
    "commands/streams.py",
    "commands/run.py",  # the answer, byte for byte
    "commands/completion.py",
    "commands/parser.py",  # the version
    "commands/forget.py",  # a question without a line break
    "ui/progress.py",
    "ui/live.py",
    "tools/own_worker.py",  # a process of its own
}


def test_few_modules_print() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in ALL
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {name for name in found if not name.startswith("testing/")} == PRINTING


OPENING = {  # what is opened elsewhere goes through one of the first two, which wait for nothing and follow no link
    "regular.py": "reads whole files by name: records, settings, sources",
    "tools/safe_open.py": "opens what steps name, in a folder that is held",
    "tools/search_worker.py": "does the same in a process of its own, which imports nothing",
    "tools/files.py": "writes beside a file in a folder that safe_open holds",
    "stillness.py": "asks whether a writer has a file open; follows no link and waits for nothing",
    "locks.py": "makes the files that locks are taken on, where no step can open them",
    "disk.py": "writes files that must not exist yet, and flushes folders",
    "ledger/files.py": "the same for git's objects",
    "executor/log.py": "makes a claim, and appends to it",
    "jsonlines.py": "appends to a log",
    "tools/capture.py": "writes the output of an attempt, whose claim is ours",
    "replaying/tools.py": "makes the output file of an attempt that is replayed, in a folder made for it",
    "doctor/machine.py": "reads limits of the kernel, tries a file system with files of its own",
    "ledger/claims.py": "the turn of those who write to the ledger, in a folder no step can open",
    "ledger/index.py": "appends to a list of agentfs's own there",
    "ledger/showing.py": "makes git's lock of its settings, exclusively",
    "workspace.py": "writes the secret of a workspace and the list of those that are trusted",
    "holding.py": "holds goals/ itself, a folder",
    "testing/script.py": "reads what a person who tests has written",
    "gitdiff.py": "reads files that git made for it, or /dev/null",
    "prompts/__init__.py": "reads what comes with agentfs",
    "intake.py": "reads a goal, by rules of its own",
    "commands/streams.py": "the streams of this process",
    "tools/own_worker.py": "the streams of a process of its own",
}


def _opens(node: ast.AST) -> bool:
    """Whether a call opens a file by its name; not one of the kernel's, nor the null device."""
    if not isinstance(node, ast.Call):
        return False
    called, first = node.func, ast.unparse(node.args[0]) if node.args else ""
    if first == "os.devnull" or first.lstrip("f").strip("'\"").startswith("/proc/"):
        return False
    if isinstance(called, ast.Name):
        return called.id == "open"
    if not isinstance(called, ast.Attribute) or called.attr not in ("open", "read_text", "read_bytes"):
        return False
    return "/proc/" not in ast.unparse(called.value) and ast.unparse(called.value) != "self.door"


def test_few_modules_open_files() -> None:
    """What somebody else may have put under a name is opened in one way, that follows, awaits and believes nothing."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in ALL
        if any(_opens(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == set(OPENING)

"""What a step may reach when its folders are not what they were, or lie where nobody thought of.

A working folder or a readable one that becomes a link, before a step and while one starts; agentfs, Python, bwrap or git
in the working folder; workspaces and homes in system folders; other workspaces, other runs and .env in the working
folder; keys that the kernel keeps. Each was seen to get through in the first release.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import FileCheck, Sandbox
from agentfs.executor.checks import run_checks
from agentfs.planner.surroundings import Listing, list_folder, read_text
from agentfs.storage.safe_open import resolve_links_of_others
from agentfs.tools import sandbox
from agentfs.tools.base import ToolResult
from agentfs.tools.files import edit_file, list_files, read_file, search_files, write_file
from agentfs.tools.programs import Python, Shell
from tests.contexts import RecordedContext, a_context, confined, each_sandbox, in_workspace
from tests.security.test_safe_open import exchange_for_ever
from tests.sweeps import size
from tests.workspaces import Place

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may write there")


def shell(work: RecordedContext, command: str) -> ToolResult:
    return Shell().call({"command": command}, work.context)


def read(work: RecordedContext, path: str) -> ToolResult:
    return read_file.call({"path": path}, work.context)


def why_refused(result: ToolResult) -> str:
    """Return why a tool refused; fail if it did not."""
    assert result.failure is not None, result
    return f"{result.failure.kind}: {result.failure.message}"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder that no step may reach."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret").write_text("outside!")
    return folder


def untouched(outside: Path) -> bool:
    return sorted(os.listdir(outside)) == ["secret", "sub"] and os.listdir(outside / "sub") == []


# ── the working folder is held ────────────────────────────────────────────────────────────────────────────


@each_sandbox
@pytest.mark.parametrize("part", ["shop", "shop/front"])
def test_a_working_folder_that_became_a_link(tmp_path: Path, outside: Path, sandbox: Sandbox, part: str) -> None:
    """Another run's step moved it away and put a link in its place, or in the place of a folder above it."""
    workdir = tmp_path / "workspace/shop/front"
    workdir.mkdir(parents=True)
    work = a_context(tmp_path, sandbox, workdir=workdir)
    (tmp_path / "workspace" / part).rename(tmp_path / "workspace/aside")
    (outside / "front").mkdir()
    (outside / "front/secret").write_text("outside!")
    (tmp_path / "workspace" / part).symlink_to(outside if part == "shop" else outside / "front")
    tried = [
        shell(work, "cat secret; : > got-in"),
        Python().call({"code": "open('got-in', 'w')"}, work.context),
        read(work, "secret"),
        read(work, f"{workdir}/secret"),
        write_file.call({"path": "got-in", "content": "x"}, work.context),
        edit_file.call({"path": "secret", "old": "out", "new": "in"}, work.context),
        list_files.call({}, work.context),
        search_files.call({"pattern": "out"}, work.context),
    ]
    words = f"outside: the working folder {workdir} cannot be opened: a symbolic link has taken its place"
    assert [why_refused(result) for result in tried] == [words] * len(tried)
    (check,) = run_checks([FileCheck(kind="file", path="secret")], work.context, None)
    assert (check.ok, "symbolic link" in check.detail) == (False, True)
    assert sorted(os.listdir(outside / "front")) == ["secret"]


@pytest.mark.parametrize("theirs", [True, False])
def test_a_link_counts_where_this_user_cannot_have_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, theirs: bool
) -> None:
    (tmp_path / "disk/shared").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "disk/absolute").symlink_to(tmp_path / "link/shared")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr(os, "access", lambda _path, _mode, **_how: not theirs)
    for name, real in (("link/shared", "disk/shared"), ("link/absolute/../x", "disk/x"), ("disk/./y", "disk/y")):
        spelt = os.path.normpath(tmp_path / name)
        assert resolve_links_of_others(str(tmp_path / name)) == (str(tmp_path / real) if theirs else spelt)
    assert resolve_links_of_others(str(tmp_path / "loop/x")) == str(tmp_path / "loop/x")


def test_a_planner_is_shown_nothing_of_a_folder_that_became_a_link(tmp_path: Path, outside: Path) -> None:
    (outside / "AGENTS.md").write_text("outside!")
    (tmp_path / "shop").symlink_to(outside)
    assert list_folder(tmp_path / "shop") == Listing({}, (), complete=True)
    assert read_text(tmp_path / "shop", "AGENTS.md") is None


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names for as long as the block runs, as fast as can be."""
    stop = threading.Event()
    thread = threading.Thread(target=exchange_for_ever, args=(one, other, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


RACES = size(15, 200)


@confined
def test_a_working_folder_that_becomes_a_link_while_a_program_starts(tmp_path: Path, outside: Path) -> None:
    workdir = tmp_path / "workspace/shop"
    workdir.mkdir(parents=True)
    work = a_context(tmp_path, "bubblewrap", workdir=workdir)
    link = tmp_path / "workspace/link"
    link.symlink_to(outside)
    with swapping(workdir, link):
        results = [shell(work, "cat secret 2>/dev/null; : > got-in") for _ in range(RACES)]
    assert {result.output for result in results} <= {"", None}
    assert untouched(outside)


@confined
def test_a_folder_in_it_that_becomes_a_link_while_a_program_starts(tmp_path: Path, outside: Path) -> None:
    """A folder that is mounted onto itself, since a repository lies in it, must not be mounted from elsewhere."""
    work = a_context(tmp_path, "bubblewrap")
    repository = work.workdir / "part"
    subprocess.run(["git", "init", "-q", str(repository / "deep")], check=True)
    (work.workdir / "link").symlink_to(outside)
    with swapping(repository, work.workdir / "link"):
        results = [shell(work, "cat part/secret 2>/dev/null; : > part/got-in") for _ in range(RACES)]
    assert {result.output for result in results} <= {"", None}
    assert untouched(outside)


@confined
def test_a_bubblewrap_that_mounts_another_folder(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases that mount by name only: what is mounted is compared before anything runs there."""
    workdir = tmp_path / "workspace/shop"
    workdir.mkdir(parents=True)
    work = a_context(tmp_path, "bubblewrap", workdir=workdir)
    bwrap = tmp_path / "bin/bwrap"
    bwrap.parent.mkdir()
    swap = f"mv {workdir} {workdir}.aside && ln -s {outside} {workdir}"
    bwrap.write_text(
        f'#!/bin/sh\ncase "$1" in --help) exit 0 ;; --seccomp) {swap} ;; esac\nexec /usr/bin/env bwrap "$@"\n'
    )
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bwrap.parent}:{os.environ['PATH']}")
    words = f"outside: the working folder {workdir} cannot be opened: a symbolic link has taken its place"
    assert why_refused(shell(work, "cat secret; : > got-in")) == words  # the second time: it was replaced the first
    assert untouched(outside)


@each_sandbox
def test_a_readable_folder_that_became_a_link(tmp_path: Path, outside: Path, sandbox: Sandbox) -> None:
    shared = tmp_path / "workspace/shared"
    shared.mkdir(parents=True)
    (shared / "secret").write_text("inside")
    work = a_context(tmp_path, sandbox, readable=(shared,))
    assert read(work, f"{shared}/secret").output == "inside"
    shutil.rmtree(shared)
    shared.symlink_to(outside)
    link = f"outside: the readable folder {shared} cannot be opened: a symbolic link has taken its place"
    assert why_refused(read(work, f"{shared}/secret")) == link
    assert why_refused(list_files.call({"path": str(shared)}, work.context)) == link
    if sandbox == "bubblewrap":
        assert why_refused(shell(work, f"cat {shared}/secret")) == link


@confined
def test_a_readable_folder_that_becomes_a_link_while_a_program_starts(tmp_path: Path, outside: Path) -> None:
    shared, link = tmp_path / "workspace/shared", tmp_path / "workspace/link"
    shared.mkdir(parents=True)
    (shared / "secret").write_text("inside")
    link.symlink_to(outside)
    work = a_context(tmp_path, "bubblewrap", readable=(shared,))
    with swapping(shared, link):
        results = [shell(work, f"cat {shared}/secret") for _ in range(RACES)]
    assert {result.output for result in results} <= {"inside", None}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.agentfs("init")
    return made


def steps(*commands: str) -> str:
    return "\n".join(f"### {chr(97 + n)}\n```sh\n{command}\n```\n" for n, command in enumerate(commands))


def refusal(place: Place, name: str, step: str = "a", number: int = 1) -> str:
    error = place.read(f"steps/{step}.{number}.result.json", name)["error"]
    return f"{error['kind']}: {error['message']}"


def settings(place: Place, text: str) -> None:
    with (place.root / "agentfs.toml").open("a", encoding="utf-8") as file:
        file.write(text)


@confined
def test_one_run_replaces_the_folder_another_works_in(place: Place, outside: Path) -> None:
    """The first run stops at a gate; a second, above it, replaces its folder by a link; the first goes on."""
    (place.root / "shop").mkdir()
    front = "workdir: shop"
    gated = "### a\n```sh\necho one\n```\n\n### b\n```sh\n: > got-in\n```\ngate\nretries: 0\n"
    place.agentfs("run", place.runbook(gated, front=front, name="first.md"), code=3)
    swap = f"mv shop aside; ln -s {outside} shop"
    place.agentfs("run", place.runbook(steps(swap), front="workdir: .", name="second.md"))
    place.agentfs("approve", "first", "b")
    place.agentfs("run", "--resume", "first", code=1)
    words = f"outside: the working folder {place.root}/shop cannot be opened: a symbolic link has taken its place"
    assert refusal(place, "first", "b") == words
    late = place.agentfs("run", place.runbook(steps("true"), front=front, name="third.md"), code=2)
    assert "workdir: 'shop' lies outside the folders a goal may work in (.)" in late.stderr
    typed = place.agentfs("run", place.runbook(steps("true"), name="fourth.md"), "--workdir", "shop", code=2)
    assert f"--workdir {place.root}/shop: a link leads out of the workspace, to {outside}" in typed.stderr
    text = (place.root / "agentfs.toml").read_text().replace('workdirs = ["."]', 'workdirs = ["shop"]')
    (place.root / "agentfs.toml").write_text(text)
    rooted = place.agentfs("run", place.runbook(steps("true"), front=front, name="fifth.md"), code=2)
    assert f"'shop' of [goals] workdirs is a link, to {outside}" in rooted.stderr
    assert f"shop of [goals] workdirs is a link, to {outside}, and is not followed" in place.looks("doctor")[1]
    assert untouched(outside)


@confined
def test_a_working_folder_that_is_only_shown(tmp_path: Path) -> None:
    """So are tools loaded, also in the folder of agentfs itself."""
    work = in_workspace(tmp_path, "bubblewrap", writable=False)
    assert (
        shell(work, "ls -d goals; cat agentfs.toml; echo $TMPDIR > $TMPDIR/x; cat $TMPDIR/x").output
        == "goals\n/dev/scratch"
    )
    for path in ("mine", "goals/x", "runs/2026-11-16/demo/files/x", "tools/x"):
        assert why_refused(shell(work, f": > {path}")).startswith("exit: ")
        assert why_refused(write_file.call({"path": path, "content": "x"}, work.context)).startswith("outside: ")
    assert sorted(os.listdir(work.workspace)) == ["agentfs.toml", "goals", "runs", "schemas"]
    inside = a_context(tmp_path, "bubblewrap", workdir=Path(sandbox.__file__).parent, writable=False)
    assert shell(inside, "ls sandbox.py && : > x").failure is not None


# ── agentfs, and what it calls, in the working folder ─────────────────────────────────────────────────────


def a_venv(folder: Path) -> Path:
    """Make an environment that has agentfs in it, as `pip install agentfs` there would; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for package in (Path(__file__).parents[2] / "agentfs", *Path(pytest.__file__).parents[1].glob("[!_]*[!h]")):
        if package.name == "agentfs" and (packages / "agentfs").exists():
            continue  # what is built into it
        (packages / package.name).symlink_to(package)  # all but what ends in .pth
    return folder / "bin/python"


@confined
def test_agentfs_in_the_working_folder_is_read_only_there(place: Place) -> None:
    python = a_venv(place.root / ".venv")
    evil = (
        "touch mine; ls .venv/bin/python; for f in .venv/bin/python .venv/bin/git .venv/pyvenv.cfg .venv/lib/x .venv/bin; "
        "do (echo evil >> $f) 2>/dev/null && echo wrote $f; mv $f away 2>/dev/null && echo moved $f; done; "
        "mv .venv away 2>/dev/null && echo moved all; true"
    )
    place.env["PATH"] = f"{python.parent}:{place.env['PATH']}"
    place.env.pop("PYTHONPATH")
    goal = place.runbook(steps(evil), front="workdir: .")
    done = subprocess.run(
        [str(python), "-P", "-m", "agentfs", "run", goal],
        cwd=place.root,
        env=place.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ".venv/bin/python\n"), done.stderr
    assert (place.root / "mine").exists()


@confined
def test_an_environment_behind_a_link_cannot_be_kept(place: Place) -> None:
    a_venv(place.root / "envs/one")
    (place.root / ".venv").symlink_to("envs/one")
    goal = place.runbook(steps("true"), front="workdir: .")
    place.env.pop("PYTHONPATH")
    subprocess.run(
        [str(place.root / ".venv/bin/python"), "-P", "-m", "agentfs", "run", goal],
        cwd=place.root, env=place.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refusal(place, "job") == (
        f"sandbox: {place.root}/.venv is a symbolic link: a program working in {place.root} could replace it"
    )


@confined
def test_an_environment_behind_a_link_elsewhere_runs_steps(place: Place) -> None:
    a_venv(place.root.parent / "envs/one")
    (place.root.parent / "current").symlink_to("envs/one")
    goal = place.runbook("### a\n```python\nimport sys\nprint(sys.executable)\n```\n")
    place.env.pop("PYTHONPATH")
    python = str(place.root.parent / "current/bin/python")
    done = subprocess.run(
        [python, "-P", "-m", "agentfs", "run", goal],
        cwd=place.root, env=place.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{python}\n"), done.stderr


@pytest.mark.parametrize("program", ["git", "bwrap", "sh"])
@pytest.mark.parametrize("entry", ["{root}/bin", "bin", "."])
def test_a_program_of_ours_is_not_taken_from_a_workspace(place: Place, program: str, entry: str) -> None:
    """A step has put it there, in a folder of PATH; neither a run nor a look runs it."""
    marker = place.root / "ran"
    for folder in (place.root / "bin", place.root):
        folder.mkdir(exist_ok=True)
        (folder / program).write_text(f'#!/bin/sh\necho x >> {marker}\nexec /usr/bin/{program} "$@"\n')
        (folder / program).chmod(0o755)
    place.env["PATH"] = f"{entry.format(root=place.root)}:{place.env['PATH']}"
    text = (place.root / "agentfs.toml").read_text()
    (place.root / "agentfs.toml").write_text(f"on_wait = 'git --version'\n{text}")
    place.agentfs("run", place.runbook("### a\n```sh\necho hi\n```\n\n### b\n```sh\ntrue\n```\ngate\n"), code=3)
    for words in (["status"], ["log", "job"], ["verify"], ["doctor"]):
        place.agentfs(*words, code=None)
    assert not marker.exists()


@confined
def test_only_such_a_program_is_none(place: Place) -> None:
    (place.root / "bin").mkdir()
    (place.root / "bin/bwrap").symlink_to("/usr/bin/bwrap")
    others = place.root.parent / "others"
    others.mkdir()
    for name in ("sh", "git"):
        (others / name).symlink_to(str(shutil.which(name)))
    env = {"PATH": f"{place.root}/bin:{others}", "AGENTFS_TOOLS_SANDBOX": "require"}
    done = place.agentfs("run", place.runbook(steps("true")), code=2, env=env)
    assert f"{place.root}/bin/bwrap is passed over: it lies in a workspace, where steps may write" in done.stderr


@confined
def test_a_folder_of_path_in_a_working_folder_elsewhere_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{project}/bin:{project}/more/bin:{os.environ['PATH']}")
    work = a_context(tmp_path, "bubblewrap", workdir=project)
    assert shell(work, "touch mine && echo fine").output == "fine"
    for attempt in (": > bin/git", "mv bin aside", "mkdir -p more/bin && : > more/bin/git", "rm -rf more; : > more"):
        assert why_refused(shell(work, attempt)).startswith("exit: ")
    assert write_file.call({"path": "bin/git", "content": "x"}, work.context).failure is not None
    assert not list(project.rglob("git"))


@confined
def test_a_working_folder_in_agentfs_itself_or_on_its_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agentfs

    package = Path(agentfs.__file__).parent
    assert why_refused(shell(a_context(tmp_path, "bubblewrap", workdir=package / "core"), "true")) == (
        f"sandbox: the working folder lies in {package}, which agentfs runs"
    )
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{project}")
    assert why_refused(shell(a_context(tmp_path, "bubblewrap", workdir=project), "true")) == (
        f"sandbox: {project} is on PYTHONPATH: agentfs would import what a step puts there"
    )


@confined
def test_what_python_runs_when_it_starts_cannot_be_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project is installed in the same environment as agentfs, so that its folder is on Python's path."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(project / "src")])
    work = a_context(tmp_path, "bubblewrap", workdir=project)
    assert shell(work, "echo x > src/module.py && cat src/module.py").output == "x"
    result = shell(work, "echo evil > src/sitecustomize.py")
    assert why_refused(result).startswith(f"outside: {project}/src/sitecustomize.py has appeared")
    assert not (project / "src/sitecustomize.py").exists()
    assert write_file.call({"path": "src/sitecustomize.py", "content": "x"}, work.context).failure is not None


def test_agentfs_imports_nothing_from_the_folder_it_works_in(place: Place) -> None:
    """Packages import others if they are there: one that a step has put there must not be found."""
    (place.root / "brotli.py").write_text("print('imported')")  # which the client of the openai package tries
    python = a_venv(place.root.parent / "venv")
    (packages,) = (place.root.parent / "venv").glob("lib/python*/site-packages")
    (packages / "project.pth").write_text(f"{place.root}\n")  # as `pip install -e` has it
    env = {name: value for name, value in place.env.items() if name != "PYTHONPATH"}

    def printed(code: str) -> str:
        argv = [str(python), "-P", "-c", code]
        return subprocess.run(argv, cwd=place.root, env=env, capture_output=True, text=True, check=True).stdout

    ours = "import sys; sys.argv = ['agentfs', 'status', '--json']; from agentfs.__main__ import start; start()\n"
    assert printed("import openai") == "imported\n"
    assert printed(f"{ours}import openai") == "[]\n"


@confined
def test_a_planners_program_in_the_working_folder_is_read_only(place: Place) -> None:
    (place.root / "plans").mkdir()
    program = place.root / "plans/planner.py"
    program.write_text("print('{\"steps\": []}')")
    place.goal("x")
    text = f"\n[planner]\nkind = 'command'\ncommand = ['{sys.executable}', 'plans/planner.py']\n"
    settings(place, text)
    words = (
        "echo evil >> plans/planner.py || mv plans away || mv plans/planner.py x || rm plans/planner.py || echo kept"
    )
    done = place.agentfs("run", place.runbook(steps(f"({words}) 2>/dev/null"), front="workdir: ."))
    assert done.stdout == "kept\n"


# ── every workspace, wherever it lies ─────────────────────────────────────────────────────────────────────

PARTS = ["agentfs.toml", ".mcp.json", "mcp.lock.json"]
FOLDERS = ["goals", "runs", "runbooks", "schedules", "schemas", "tools", "prompts"]


@confined
@pytest.mark.parametrize("where", ["workspace", "other", "other/nested"])
def test_every_workspace_in_the_working_folder_is_read_only(tmp_path: Path, where: str) -> None:
    work = a_context(tmp_path, "bubblewrap", workdir=tmp_path)
    root = tmp_path / where
    (root / "goals").mkdir(parents=True, exist_ok=True)
    (root / "agentfs.toml").touch()
    (root / ".mcp.json").write_text("{}")
    tried = [f": > {where}/{name}/x" for name in FOLDERS] + [f"echo x >> {where}/{name}" for name in PARTS[:2]]
    tried += [f"mv {where} aside", f"mv {where}/goals aside", f"rm {where}/agentfs.toml"]
    done = shell(work, "; ".join(f"({words}) 2>/dev/null && echo '{words}'" for words in tried) + "; true")
    assert done.output == ""
    for name in (*FOLDERS, *PARTS):
        path = f"{where}/{name}" if name in PARTS else f"{where}/{name}/x"
        assert "is read-only to tools" in why_refused(write_file.call({"path": path, "content": "x"}, work.context))
    assert shell(work, f"echo x > {where}/mine && echo fine").output == "fine"
    assert write_file.call({"path": f"{where}/mine", "content": "x"}, work.context).failure is None


@confined
@pytest.mark.parametrize("name", PARTS[1:])
def test_a_file_that_agentfs_would_obey_and_that_a_step_makes_is_set_aside(tmp_path: Path, name: str) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    subprocess.run(["git", "init", "-q", str(work.workspace)], check=True)
    me = "git -c user.name=a -c user.email=a@b"
    assert shell(work, f"git add -A && {me} commit -qm one && git status --short").output == ""
    result = shell(work, f"echo evil > {name}")
    words = f"{work.workspace}/{name} has appeared, which agentfs would obey; it is now {name}.set-aside"
    assert why_refused(result) == f"outside: {words}"
    assert (work.workspace / f"{name}.set-aside").read_text() == "evil\n"
    assert not (work.workspace / name).exists()


@pytest.fixture(params=["/opt", "/usr/local/lib"])
def system_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    folder = Path(request.param) / f"agentfs-test-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@confined
@needs_root
def test_workspaces_and_homes_in_system_folders_are_not_seen(
    tmp_path: Path, system_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state = system_folder / "home", tmp_path / "state"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    work = a_context(system_folder, "bubblewrap")
    (work.workspace / "notes").write_text("private")
    other = Place(system_folder)
    other.env |= {"HOME": str(home), "XDG_STATE_HOME": str(state)}
    other.agentfs("init")
    (other.root / "notes").write_text("private")
    (system_folder / "program").write_text("for everybody")
    seen = shell(
        work, f"cat {system_folder}/program; cat {work.workspace}/notes {other.root}/notes ~/.ssh/id || true"
    )
    assert seen.output == "for everybody"
    assert shell(work, "touch mine && ls && echo $HOME").output == f"mine\n{home}"


# ── what lies in the working folder and is none of the step's business ────────────────────────────────────


@confined
def test_other_runs_and_env_files_are_hidden(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    other = work.workspace / "runs/2026-11-16/other"
    other.mkdir()
    (other / "goal.md").write_text("private")
    (work.workspace / "runs/2026-11-16/demo/goal.md").write_text("mine")
    subprocess.run(["git", "init", "-q", str(work.workspace / "runs")], check=True)
    names = [".env", ".env.local", ".envrc"]
    for name in names:
        (work.workspace / name).write_text("KEY=private")
    (work.workspace / "linked").write_text("KEY=private")
    (work.workspace / ".env.link").symlink_to("linked")
    hidden = ["runs/2026-11-16/other/goal.md", "runs/.git/config", *names, ".env.link", "linked"]
    found = shell(
        work,
        "; ".join(f"cat {path} 2>/dev/null || :" for path in hidden) + "; ls runs runs/*; cat runs/*/demo/goal.md",
    )
    assert found.output == "2026-11-16\n\nruns/2026-11-16:\ndemo\nmine".replace(
        "2026-11-16\n\n", "runs:\n2026-11-16\n\n", 1
    )
    for path in hidden:
        assert (path, "hidden from tools" in why_refused(read(work, path))) == (path, True)
        assert (path, write_file.call({"path": path, "content": "x"}, work.context).failure is not None) == (
            path,
            True,
        )
    listed = list_files.call({}, work.context).output
    assert [path for path in listed if path in hidden] == []
    assert "runs/2026-11-16/demo/goal.md" in listed
    assert search_files.call({"pattern": "private"}, work.context).output == []
    assert why_refused(shell(work, "echo x > runs/2026-11-16/new")).startswith("exit: ")
    assert shell(work, "echo x > runs/2026-11-16/demo/files/own && echo fine").output == "fine"


@confined
def test_what_read_names_is_shown(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    other = workspace / "runs/2026-11-15/other"
    other.mkdir(parents=True)
    (other / "goal.md").write_text("shared")
    (workspace / ".env").write_text("KEY=shared")
    (workspace / ".env.more").write_text("KEY=private")
    (workspace / "runs/2026-11-15/third").mkdir()
    work = in_workspace(tmp_path, "bubblewrap", readable=(other, workspace / ".env", workspace))
    assert (
        shell(work, "cat .env runs/2026-11-15/other/goal.md; ls runs/2026-11-15; cat .env.more").failure is not None
    )
    seen = shell(work, "cat .env runs/2026-11-15/other/goal.md; echo; ls runs/2026-11-15")
    assert seen.output == "KEY=sharedshared\nother"
    assert read(work, ".env").output == "KEY=shared"
    assert read(work, "runs/2026-11-15/other/goal.md").output == "shared"
    assert why_refused(shell(work, "echo x >> .env")).startswith("exit: ")


@confined
def test_the_whole_workspace_named_shows_neither_other_runs_nor_env_files(tmp_path: Path) -> None:
    """The working folder is the run's own; [tools] read names the workspace."""
    work = a_context(tmp_path, "bubblewrap", readable=(tmp_path / "workspace",))
    (work.workspace / "runs/2026-11-16/other").mkdir()
    (work.workspace / ".env").write_text("KEY=private")
    (work.workspace / "notes").write_text("shared")
    root = work.workspace
    assert shell(work, f"cat {root}/notes; cat {root}/.env || :; ls {root}/runs/*; touch mine").output == "shareddemo"
    assert "hidden from tools" in why_refused(read(work, f"{root}/.env"))


@confined
@needs_root
def test_root_sees_of_etc_what_every_user_may_read(tmp_path: Path) -> None:
    sandbox._private.cache_clear()  # it has not looked yet
    sandbox._still_private.cache_clear()
    folder = Path(f"/etc/agentfs-test-{os.getpid()}")
    (folder / "closed").mkdir(parents=True)
    try:
        (folder / "closed/key").write_text("private")
        (folder / "closed").chmod(0o700)
        (folder / "open").write_text("for everybody")
        (folder / "open").chmod(0o644)
        (folder / "key").write_text("private")
        (folder / "key").chmod(0o640)
        work = a_context(tmp_path, "bubblewrap")
        seen = shell(
            work, f"cat {folder}/open {folder}/key {folder}/closed/key 2>/dev/null || ls {folder}/closed || true"
        )
        assert seen.output == "for everybody"
        assert shell(work, "find /etc -type f ! -perm -004; true").output == ""
    finally:
        shutil.rmtree(folder)
    sandbox._still_private.cache_clear()
    assert shell(work, "echo what is gone is not covered").output == "what is gone is not covered"


# ── keys that the kernel keeps ────────────────────────────────────────────────────────────────────────────

LIBC = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine(), (0, 0))
READ_KEYS = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
def key(number):
    room = ctypes.create_string_buffer(64)
    size = libc.syscall(KEYCTL, 11, number, room, 64)
    return room.raw[:max(0, size)]
own = [key(number) for number in KEYS]
libc.syscall(KEYCTL, 1, None)  # a session keyring of its own
libc.syscall(KEYCTL, 8, RING, -3)  # with the user's keyring in it, by its number
try:
    names = open("/proc/keys").read()
except PermissionError:
    names = ""
print(own + [key(number) for number in KEYS], "planted" in names)
"""


def syscall(*words: Any) -> int:
    return int(LIBC.syscall(*(ctypes.c_long(word) if isinstance(word, int) else word for word in words)))


@confined
@pytest.mark.skipif(not KEYCTL, reason="the numbers of the calls are not known here")
def test_keys_of_the_kernel_stay_outside(tmp_path: Path) -> None:
    session, user = -3, -4
    keys = [syscall(ADD_KEY, b"user", b"planted", b"private", 7, ring) for ring in (session, user)]
    ring = syscall(KEYCTL, 0, user, 1)
    if min(keys) < 0:
        pytest.skip("this kernel keeps no keys")
    try:
        code = READ_KEYS.replace("KEYCTL", str(KEYCTL)).replace("KEYS", repr(keys)).replace("RING", str(ring))
        assert Python().call({"code": code}, a_context(tmp_path, "none").context).output.startswith("[b'private', ")
        work = a_context(tmp_path / "confined", "bubblewrap")
        assert Python().call({"code": code}, work.context).output == "[b'', b'', b'', b''] False"
    finally:
        for key in keys:
            syscall(KEYCTL, 3, key)

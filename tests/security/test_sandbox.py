"""Each attack on the sandbox, refused."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from agentfs.tools import protected
from agentfs.tools.base import ToolResult
from agentfs.tools.programs import Shell
from agentfs.tools.sandbox import environment, make_layout
from tests.contexts import RecordedContext, a_context, confined, in_workspace

pytestmark = confined


def shell(work: RecordedContext, command: str, **env: str) -> ToolResult:
    return Shell().call({"command": command, "env": dict(env)}, work.context)


def refused(work: RecordedContext, command: str, because: str = "Read-only file system") -> None:
    result = shell(work, command)
    assert result.failure is not None, (command, result)
    assert because in result.failure.message


def a_repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder / ".git"


@pytest.mark.parametrize(
    "place",
    ["/x", "/tmp/x", "/dev/x", "/etc/x", "/usr/x", "/run/x", "/proc/sys/kernel/core_pattern", "$HOME/x", sys.prefix],
)
def test_a_write_elsewhere_fails(tmp_path: Path, place: str) -> None:
    refused(a_context(tmp_path, "bubblewrap"), f"f={place}; [ -d $f ] && f=$f/x; : >> $f")


def test_scratch_is_writable_and_named_so(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    assert shell(work, "f=$(mktemp) && echo $f && touch /dev/shm/x").output.startswith("/dev/scratch/tmp.")
    assert shell(work, "ls -A $TMPDIR /dev/shm").output == "/dev/scratch:\n\n/dev/shm:"


def test_the_working_folder_is_writable(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    assert shell(work, "mkdir -p a/b && echo x > a/b/c && mv a/b/c d && cat d").output == "x"
    assert (work.workdir / "d").read_text(encoding="ascii") == "x\n"


def test_home_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("private", encoding="ascii")
    monkeypatch.setenv("HOME", str(home))
    work = a_context(tmp_path, "bubblewrap")
    refused(work, "cat ~/.ssh/id", "No such file")
    assert shell(work, 'echo "$HOME"; ls -A ~').output == str(home)


def test_the_workspace_and_other_runs_cannot_be_read(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    other = work.workspace / "runs/2026-11-16/other"
    other.mkdir()
    assert shell(work, f"ls -A {work.workspace} {work.workdir.parent}").output.split("\n") == [
        f"{work.workspace}:",
        "runs",
        "",
        f"{work.workdir.parent}:",
        "files",
    ]
    refused(work, f"cat {work.workspace}/agentfs.toml", "No such file")


def test_only_what_is_added_can_be_read(tmp_path: Path) -> None:
    shared, output = tmp_path / "shared", tmp_path / "out.txt"
    shared.mkdir()
    (shared / "x").write_text("shared", encoding="ascii")
    output.write_text("output", encoding="ascii")
    work = a_context(tmp_path, "bubblewrap", readable=(shared, output, tmp_path / "missing"))
    assert shell(work, f"cat {shared}/x {output}").output == "sharedoutput"
    refused(work, f": >> {shared}/x")
    refused(work, f": >> {output}")


def test_what_lies_in_memory_can_be_added(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        Path(memory, "x").write_text("shared", encoding="ascii")
        work = a_context(Path(memory, "work"), "bubblewrap", readable=(Path(memory, "x"), tmp_path))
        assert shell(work, f"cat {memory}/x && touch mine && ls").output == "sharedmine"
        refused(work, f": >> {memory}/x")


def test_everything_may_be_added_and_still_only_the_working_folder_is_writable(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap", readable=(Path("/"), tmp_path))
    assert shell(work, f"cat {work.workspace}/agentfs.toml && touch mine $TMPDIR/x && echo fine").output == "fine"
    for place in (f"{tmp_path}/x", f"{work.workspace}/goals/x", "/tmp/x", "/x", "/dev/x", "~/x"):
        refused(work, f": > {place}")
    if os.path.exists("/etc/shadow"):
        refused(work, "cat /etc/shadow", "Permission denied")


@pytest.mark.parametrize("file", ["/etc/shadow", "/etc/gshadow"])
def test_password_hashes_cannot_be_read(tmp_path: Path, file: str) -> None:
    if not os.path.exists(file):
        pytest.skip(f"{file} is not on this machine")
    refused(a_context(tmp_path, "bubblewrap"), f"cat {file}", "Permission denied")


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    work = a_context(tmp_path, "bubblewrap", env={"NAMED": "in full"})
    names = shell(work, "env | cut -d= -f1 | sort").output.split("\n")
    assert names == ["HOME", "LANG", "NAMED", "PATH", "PWD", "TERM", "TMPDIR"]
    assert shell(work, "cat /proc/*/environ | tr '\\0' '\\n' | grep -c sk-1234567890 || true").output == "0"


def test_our_processes_cannot_be_seen(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    refused(
        work, f"test -e /proc/{os.getpid()}/environ && cat /proc/{os.getpid()}/environ || kill -0 {os.getpid()}", ""
    )
    assert shell(work, "ls /proc | grep -c '^[0-9]'").output in {"3", "4"}


def test_secrets_are_not_among_bubblewraps_arguments(tmp_path: Path) -> None:
    confinement = a_context(tmp_path, "bubblewrap", env={"NAMED_TOKEN": "hush-hush"}).context.confinement
    assert "hush-hush" not in " ".join(make_layout(["true"], confinement).outer)
    assert environment(confinement)["NAMED_TOKEN"] == "hush-hush"


TCP = "python3 -c \"import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).send(b'x')\" "
UDP = "python3 -c \"import socket, sys; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', int(sys.argv[1])))\" "
ABSTRACT = "python3 -c \"import socket, sys; socket.socket(1, 1).connect('\\0' + sys.argv[1])\" "


def test_no_network_by_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused(a_context(tmp_path, "bubblewrap"), f"{TCP}{port}", "Connection refused")
        assert shell(a_context(tmp_path, "bubblewrap", network=True), f"{TCP}{port}").failure is None


def test_no_network_by_udp(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(5)
        port = listener.getsockname()[1]
        shell(a_context(tmp_path, "bubblewrap"), f"{UDP}{port}")
        assert shell(a_context(tmp_path, "bubblewrap", network=True), f"{UDP}{port}; echo sent").output == "sent"
        assert listener.recv(10) == b"x"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # only the one that was allowed has arrived
            listener.recv(10)


def test_no_abstract_sockets_of_others(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{tmp_path.name}")
        listener.listen()
        refused(a_context(tmp_path, "bubblewrap"), f"{ABSTRACT}{tmp_path.name}", "Connection refused")


# ── the workspace as the working folder ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part", ["goals", "runs", "schemas", "tools", "prompts"])
@pytest.mark.parametrize("there", [True, False])
def test_folders_of_the_workspace_are_read_only(tmp_path: Path, part: str, *, there: bool) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    folder = work.workspace / part
    if there:
        folder.mkdir(exist_ok=True)
    elif part != "runs":
        shutil.rmtree(folder, ignore_errors=True)
    refused(work, f": > {part}/new.py")
    refused(work, f"mv {part} away", "Device or resource busy")
    refused(work, f"rm -rf {part}", "")
    refused(work, f"ln -s /tmp {part}", "")
    assert not (folder / "new.py").exists()


def test_settings_are_read_only_even_where_there_are_none(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    refused(work, "echo >> agentfs.toml")
    refused(work, "mv agentfs.toml x", "busy")
    (work.workspace / "agentfs.toml").unlink()
    result = shell(work, "echo 'mode = 1' > agentfs.toml")
    assert result.failure is not None
    assert (work.workspace / "agentfs.toml").read_bytes() == b""


def test_the_rest_of_the_workspace_and_the_runs_files_are_writable(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    assert shell(work, "echo a > mine && echo b > runs/2026-11-16/demo/files/own && echo fine").output == "fine"
    refused(work, "echo x > runs/2026-11-16/demo/plan.json")
    refused(work, "echo x > runs/2026-11-16/demo/steps/x")


def test_a_workspace_inside_the_working_folder(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap", workdir=tmp_path)
    refused(work, "echo x > workspace/goals/evil.md")
    refused(work, "mv workspace aside && mkdir -p workspace/goals && echo x > workspace/goals/evil.md", "busy")
    assert shell(work, "echo x > workspace/mine && echo fine").output == "fine"


def test_a_working_folder_inside_a_protected_one(tmp_path: Path) -> None:
    tools = tmp_path / "workspace/tools/sub"
    tools.mkdir(parents=True)
    refused(a_context(tmp_path, "bubblewrap", workdir=tools), "echo x > evil.py")


# ── git ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_hooks_and_settings_of_repositories_are_read_only(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    a_repository(work.workdir)
    a_repository(work.workdir / "deep/er")
    for git in (".git", "deep/er/.git"):
        refused(work, f"echo evil > {git}/hooks/pre-commit")
        refused(work, f"git -C {git}/.. config core.fsmonitor evil", "")
        refused(work, f"echo evil >> {git}/config")
        refused(work, f"mv {git} {git}2", "busy")
        refused(work, f"rm -rf {git}/hooks", "")
    refused(work, "mv deep shallow", "busy")


def test_git_still_works(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    a_repository(work.workdir)
    me = "git -c user.name=a -c user.email=a@b"
    command = f"echo x > f && git add f && {me} commit -qm one && git gc -q && git log --format=%s"
    assert shell(work, command).output == "one"
    assert shell(work, "git init -q new && git -C new config user.name me && git clone -q . copy && ls").output == (
        "copy\nf\nnew"
    )


def test_hooks_cannot_be_made_where_there_are_none(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    git = a_repository(work.workdir)
    shutil.rmtree(git / "hooks")
    refused(work, "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit")
    assert not (git / "hooks/pre-commit").exists()


def test_a_repository_with_linked_hooks_is_locked_as_a_whole(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    git = a_repository(work.workdir)
    shutil.rmtree(git / "hooks")
    (git / "hooks").symlink_to("../my-hooks")
    refused(work, "rm .git/hooks")


def test_submodules_and_the_files_that_name_them(tmp_path: Path) -> None:
    work = a_context(tmp_path, "bubblewrap")
    git = a_repository(work.workdir)
    shutil.copytree(git, git / "modules/sub")
    (work.workdir / "sub").mkdir()
    (work.workdir / "sub/.git").write_text("gitdir: ../.git/modules/sub\n", encoding="ascii")
    refused(work, "echo evil > .git/modules/sub/hooks/pre-commit")
    refused(work, "echo evil >> .git/modules/sub/config")
    refused(work, "echo 'gitdir: /evil' > sub/.git")
    refused(work, "mv .git/modules .git/m", "busy")


def test_a_repository_in_the_runs_files_of_a_workspace(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    files = work.context.confinement.run_files
    a_repository(files / "repo")
    refused(work, f"echo evil > {files}/repo/.git/hooks/x")
    assert shell(work, f"touch {files}/repo/y && echo fine").output == "fine"


def test_more_repositories_than_can_be_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = a_context(tmp_path, "bubblewrap")
    for name in "abc":
        a_repository(work.workdir / name)
    monkeypatch.setattr(protected, "MOST_FENCES", 5)
    refused(work, "true", "there are more git repositories in")


# ── others ────────────────────────────────────────────────────────────────────────────────────────────────


def test_parallel_programs_in_one_folder(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    a_repository(work.workspace)
    results: list[ToolResult] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(shell(work, f"echo {n} > f{n}; cat f{n}")))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.output for result in results) == [str(n) for n in range(6)]


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv to be someone else"
)
def test_it_works_for_one_who_is_not_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")  # ours may lie in a folder that only root may enter
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setenv("HOME", "/nonexistent")
    open_to_all = Path("/var/tmp") / f"agentfs-{os.getpid()}"
    open_to_all.mkdir()
    try:
        work = in_workspace(open_to_all, "bubblewrap")
        a_repository(work.workspace)
        subprocess.run(["chown", "-R", "nobody", str(open_to_all)], check=True)
        command = "id -un; touch mine; touch /x tools/x goals/x .git/hooks/x .git/config ~/x"
        argv = [*make_layout([], work.context.confinement).outer, "sh", "-c", command]
        nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", *argv]
        ran = subprocess.run(
            nobody, capture_output=True, text=True, check=False, env=environment(work.context.confinement), cwd="/"
        )
        assert (ran.stdout, ran.stderr.count("Read-only file system")) == ("nobody\n", 6), ran.stderr
        assert (work.workspace / "mine").exists()
    finally:
        shutil.rmtree(open_to_all)

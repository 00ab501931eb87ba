"""shell and python: what their output and their failures become."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfs.core.records import Failure, JsonObject, Sandbox
from agentfs.tools import launch, sandbox
from agentfs.tools.base import ToolResult
from agentfs.tools.programs import Python, Shell
from tests.contexts import a_context, confined, each_sandbox, in_workspace


def shell(tmp_path: Path, command: str, box: Sandbox = "none", **more: Any) -> ToolResult:
    return Shell().call({"command": command}, a_context(tmp_path, box, **more).context)


def failure(result: ToolResult) -> Failure:
    assert result.failure is not None, result
    return result.failure


@pytest.mark.parametrize(
    ("printed", "output"),
    [
        ("hello\n", "hello"),
        ("hello\n\n", "hello\n"),
        ("", ""),
        ('{"a": [1, 2.5, null]}\n', {"a": [1, 2.5, None]}),
        (" [1]\n", [1]),
        ("7\n", "7"),
        ('"text"\n', '"text"'),
        ("true\n", "true"),
        ("{broken\n", "{broken"),
        ("[NaN]\n", "[NaN]"),
        ("[1e999]\n", "[1e999]"),
        ('{"a": 1, "a": 2}\n', '{"a": 1, "a": 2}'),
        ('["\\ud800"]\n', '["\\ud800"]'),
        ("[1] [2]\n", "[1] [2]"),
        ("[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000),
        ("[" * 200 + "]" * 200, "[" * 200 + "]" * 200),
    ],
)
def test_what_is_printed_becomes_the_output(tmp_path: Path, printed: str, output: Any) -> None:
    work = a_context(tmp_path, output_bytes=65536)
    (work.workdir / "printed").write_text(printed, encoding="utf-8")
    assert Shell().call({"command": "cat printed"}, work.context) == ToolResult(output)


@pytest.mark.parametrize(
    ("interpreter", "command", "ends"),
    [
        ("sh", "false; echo on", 1),
        ("sh", "false || true; echo on", "on"),
        ("sh", "if false; then echo no; fi; echo on", "on"),
        ("sh", "false | cat; echo on", "on"),  # plain sh has no pipefail
        ("bash", "false; echo on", 1),
        ("bash", "false | cat; echo on", 1),
        ("bash", "set +e; false; echo on", "on"),
    ],
)
def test_the_first_command_that_fails_ends_it(
    tmp_path: Path, interpreter: str, command: str, ends: int | str
) -> None:
    given: JsonObject = {"command": command, "interpreter": interpreter}
    result = Shell().call(given, a_context(tmp_path, "none").context)
    if isinstance(ends, int):
        assert failure(result) == Failure(kind="exit", message=f"exit code {ends}")
    else:
        assert result == ToolResult(ends)


@each_sandbox
def test_python_runs_in_the_working_folder(tmp_path: Path, sandbox: Sandbox) -> None:
    work = a_context(tmp_path, sandbox)
    (work.workdir / "mine.py").write_text("X = 41", encoding="utf-8")
    code = "import mine, json, os; print(json.dumps({'x': mine.X + 1, 'at': os.getcwd(), 'left': os.listdir()}))"
    assert Python().call({"code": code}, work.context).output == {
        "x": 42,
        "at": str(work.workdir),
        "left": ["mine.py"],
    }


@each_sandbox
def test_a_failing_program_tells_its_exit_code_and_stderr(tmp_path: Path, sandbox: Sandbox) -> None:
    assert failure(shell(tmp_path, "echo out; echo why >&2; exit 3", sandbox)) == Failure(
        kind="exit", message="exit code 3: why"
    )
    assert failure(shell(tmp_path, "echo only here; exit 3", sandbox)).message == "exit code 3: only here"
    assert failure(shell(tmp_path, "exit 3", sandbox)).message == "exit code 3"


def test_the_reason_comes_first_and_the_tail_of_stderr_below_it(tmp_path: Path) -> None:
    message = failure(shell(tmp_path, "seq 1 5000 >&2; exit 1")).message
    assert message.startswith("exit code 1: 5000\n…")
    assert message.endswith("4999\n5000")
    assert len(message) < 2100


def test_python_tells_its_traceback(tmp_path: Path) -> None:
    found = failure(Python().call({"code": "raise ValueError('bad value')"}, a_context(tmp_path).context))
    assert found.kind == "exit"
    assert found.message.startswith("exit code 1: ValueError: bad value\nTraceback (most recent call last):\n")
    assert found.message.endswith("\nValueError: bad value")


@each_sandbox
def test_a_program_that_exits_by_a_signal(tmp_path: Path, sandbox: Sandbox) -> None:
    message = failure(shell(tmp_path, "sh -c 'kill -SEGV $$'; exit $?", sandbox)).message
    assert message.startswith("exit code 139 (SIGSEGV)")
    direct = failure(shell(tmp_path, "kill -KILL $$", sandbox)).message
    assert direct == {"none": "it was ended by SIGKILL", "bubblewrap": "exit code 137 (SIGKILL)"}[sandbox]


@each_sandbox
def test_one_that_hangs(tmp_path: Path, sandbox: Sandbox) -> None:
    found = failure(shell(tmp_path, "echo last words >&2; sleep 61300", sandbox, deadline_s=0.5))
    assert found == Failure(
        kind="timeout",
        message="it did not end within 0.5 s and was killed: last words",
        hint='give it more time: the line `timeout: 1s` in the runbook, or "timeout_s": 1 in plan.json',
    )


def test_one_that_is_stopped(tmp_path: Path) -> None:
    work = a_context(tmp_path)
    work.stop.set()
    assert failure(Shell().call({"command": "sleep 61301"}, work.context)).kind == "interrupted"


def test_one_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "OUTPUT_CAP", 2 * 2**20)
    assert failure(shell(tmp_path, "head -c 1000M /dev/zero")) == Failure(
        kind="output", message="it printed more than 2 MiB and was killed", hint="send long output to a file"
    )


def test_long_output_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=300)
    result = Shell().call({"command": "seq 1 1000"}, work.context)
    assert (result.cut, result.failure) == (True, None)
    assert "bytes cut; the whole output is in steps/demo.1.output.txt" in result.output
    assert work.context.output_file.read_text(encoding="ascii") == "".join(f"{n}\n" for n in range(1, 1001))


def test_a_long_json_output_stays_text(tmp_path: Path) -> None:
    work = a_context(tmp_path, output_bytes=300)
    result = Python().call({"code": "print(list(range(1000)))"}, work.context)
    assert (type(result.output), result.cut) == (str, True)
    assert json.loads(work.context.output_file.read_text(encoding="ascii")) == list(range(1000))


def test_invalid_utf8_is_shown_with_marks_and_kept_exactly(tmp_path: Path) -> None:
    work = a_context(tmp_path, environ={"A_TOKEN": "hush-hush"})
    result = Shell().call({"command": "printf 'caf\\351 hush-hush\\n'"}, work.context)
    assert result == ToolResult("caf\ufffd [secret A_TOKEN]\n", cut=True)
    assert work.context.output_file.read_bytes() == b"caf\xe9 [secret A_TOKEN]\n"


def test_a_character_cut_off_at_the_end_is_invalid(tmp_path: Path) -> None:
    assert shell(tmp_path, "printf '\\342\\202'") == ToolResult("\ufffd", cut=True)


@each_sandbox
def test_values_arrive_as_variables_never_as_code(tmp_path: Path, sandbox: Sandbox) -> None:
    evil = "$(touch pwned)`touch pwned`'; touch pwned; \"\n; é"
    work = a_context(tmp_path, sandbox)
    result = Shell().call({"command": 'printf %s "${REF_0}"', "env": {"REF_0": evil}}, work.context)
    assert result == ToolResult(evil)
    assert not (work.workdir / "pwned").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": "x" * 131072}, "the text is longer than 128 KiB"),
        ({"command": "true", "env": {"REF_0": "x" * 131072}}, "the variable REF_0 is longer than 128 KiB"),
        ({"command": "echo \0"}, "the text holds a NUL character"),
        ({"command": "echo \ud800"}, "the text holds half of a surrogate pair"),
        ({"command": "true", "env": {"REF_0": "a\0b"}}, "the variable REF_0 holds a NUL character"),
        ({"command": "true", "env": {"A=B": "x"}}, "'A=B' is not a variable with a text"),
        ({"command": "true", "env": {"REF_0": 5}}, "'REF_0' is not a variable with a text"),
        (
            {"command": "true", "env": {f"REF_{n}": "x" * 100_000 for n in range(40)}},
            "the command with its variables",
        ),
    ],
)
def test_what_no_program_can_be_given(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    work = a_context(tmp_path)
    found = failure(Shell().call(given, work.context))
    assert found.kind == "input"
    assert found.message.startswith(message)
    assert work.claims == []


def test_the_longest_text_that_can_be_given(tmp_path: Path) -> None:
    command = "true #"
    assert shell(tmp_path, command.ljust(131072 - 2, "x")).failure is None


def test_bash_where_it_is_asked_for(tmp_path: Path) -> None:
    result = Shell().call(
        {"command": "echo ${BASH_VERSION:+bash}", "interpreter": "bash"}, a_context(tmp_path).context
    )
    assert result == ToolResult("bash")


def test_a_missing_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PATH", "/nowhere")
    found = failure(Shell().call({"command": "true", "interpreter": "bash"}, a_context(tmp_path).context))
    assert found == Failure(
        kind="input", message="there is no bash on this machine", hint="install it, or use another interpreter"
    )


def test_a_missing_working_folder(tmp_path: Path) -> None:
    found = failure(shell(tmp_path, "true", workdir=tmp_path / "gone"))
    assert (found.kind, found.message) == ("input", f"the working folder {tmp_path}/gone is not there")


def test_no_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = failure(shell(tmp_path, "touch effect", "bubblewrap"))
    assert found == Failure(
        kind="sandbox",
        message="bubblewrap (bwrap) is not installed",
        hint='install bubblewrap, or set sandbox = "off" under [tools] in agentfs.toml',
    )
    assert shell(tmp_path, "echo fine") == ToolResult("fine")


def test_a_bubblewrap_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin/bwrap"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n", encoding="ascii"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    because = "bubblewrap does not work here: bwrap: No permissions to create a new namespace"
    assert sandbox.unavailable_because() == because
    assert failure(shell(tmp_path, "true", "bubblewrap")).message == because


@confined
def test_a_protected_part_that_is_a_link_is_refused(tmp_path: Path) -> None:
    work = in_workspace(tmp_path, "bubblewrap")
    (work.workspace / "tools").symlink_to(tmp_path)
    found = failure(Shell().call({"command": "true"}, work.context))
    assert (found.kind, "is a symbolic link" in found.message) == ("sandbox", True)
    assert work.claims == []


@confined
@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("touch /etc/x", "workdir"),
        ("touch /tmp/x", "$TMPDIR"),
        ("cat ~/.bashrc", "add its folder to read under [tools]"),
        ("cat /var/log/dpkg.log", "tools do not see /var/log/dpkg.log: if it is there, add its folder to read"),
        ("python3 -c \"open('/srv/x')\"", "tools do not see /srv/x: "),
        ("cat /etc/shadow", "add the folder to read under [tools]"),
        ("echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6", "network = true under [tools]"),
        ("echo 'ping: Temporary failure in name resolution' >&2; exit 2", "network = true under [tools]"),
        ("python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80))\"", "network = true under [tools]"),
        ("no-such-program-anywhere", "read under [tools]"),
    ],
)
def test_a_failure_that_the_sandbox_may_explain_names_the_setting(tmp_path: Path, command: str, setting: str) -> None:
    assert setting in (failure(shell(tmp_path, command, "bubblewrap")).hint or "")


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("cat: /srv/data/x.csv: No such file or directory", "/srv/data/x.csv"),
        ("ls: cannot access '/srv/my data/x': No such file or directory", "/srv/my data/x"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/home/u/key.txt'", "/home/u/key.txt"),
        ("sh: 1: /home/u/bin/tool: not found", "/home/u/bin/tool"),
        ("sh: 1: cannot open ~/notes: No such file", "~/notes"),
        ("cat: ../../secret: No such file or directory", "../../secret"),
        ("Error: ENOENT: no such file or directory, open '/srv/x.json'", "/srv/x.json"),
        ("fatal: repository '/srv/repo' does not exist", "/srv/repo"),
        ("cat: {workdir}/x: No such file or directory", None),
        ("cat: data/x: No such file or directory", None),
        ("/usr/bin/env: 'node': No such file or directory", None),
        ("cat: /usr/share/nothing: No such file or directory", None),
        ("https://example.org/srv/x: not found", None),
        ("cannot GET /api/users: not found", None),
        ("wrote /srv/data/x.csv", None),
    ],
)
@pytest.mark.disk
def test_a_path_that_is_not_shown_is_named_whether_it_is_there_or_not(
    tmp_path: Path, line: str, path: str | None
) -> None:
    confinement = replace(a_context(tmp_path, "bubblewrap").context.confinement, run="2026-11-16/job")
    found = sandbox.hint_for(1, f"first\n{line.format(workdir=confinement.workdir)}\n", confinement)
    words = (
        "if it is there, add its folder to read under [tools] in agentfs.toml, then: agentfs resume 2026-11-16/job"
    )
    assert found == (path and f"tools do not see {path}: {words} --refresh-settings")


def test_no_hint_without_a_sandbox_and_none_for_other_failures(tmp_path: Path) -> None:
    assert failure(shell(tmp_path, "echo Read-only file system >&2; exit 1")).hint is None
    confinement = a_context(tmp_path, "bubblewrap").context.confinement
    assert sandbox.hint_for(1, "assertion failed", confinement) is None

"""Values that try to become code: each must arrive byte for byte, as one argument, and nothing else may happen."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from agentfs.core.records import CommandCheck, ResolvedCommandCheck, Step
from agentfs.core.references import problems_in_step
from agentfs.core.resolve import Output, Resolved, resolve_step
from tests.sweeps import size

R = "{{steps.a.output}}"
ROOM = 1024 * 1024
SHELLS = ["/bin/sh", "bash"]
VALUES = [
    "$(touch x)",
    "`touch x`",
    "; touch x",
    "; touch x #",
    "| touch x",
    "& touch x",
    "&& touch x",
    "\ntouch x\n",
    '"; touch x; "',
    "'; touch x; '",
    '"$(touch x)"',
    "')$(touch x)('",
    "a[$(touch x)]",
    "${x:=$(touch x)}",
    "$((a[$(touch x)]))",
    "}; touch x; {",
    ";; esac; touch x",
    "fi; touch x",
    "x() { touch x; }; x",
    "> x",
    "<(touch x)",
    '"',
    "'",
    "\\",
    "\\\n",
    "a\nb",
    "trailing\n\n",
    "\r\n",
    "\t",
    " ",
    "",
    "a b  c",
    "${HOME}",
    "$HOME",
    "$REF_0",
    "${REF_0}",
    "$1 $@ $$ $?",
    "*",
    "[a-z]*?",
    "~",
    "{a,b}",
    "-n",
    "--help",
    "-",
    "(",
    "!",
    "!!",
    "# comment",
    "%s%d%n\\n",
    "EOF",
    "é € 😀 \u202e",
    "\x01\x1b[31m\x7f",
    "{{steps.b.output}}",
    "{step_b_result}{{goal}}",
]
SHOW = "printf '<%s>' "
POSITIONS = [
    SHOW + R,
    SHOW + f'"{R}"',
    f"printf %s '<'{R}'>'",
    f'printf %s "<{R}>"',
    f"printf '%s%s%s' \\< \"\"{R}'' \\>",
    f'n={R}; {SHOW} "$n"',
    f'n="{R}" ; {SHOW} "$n"',
    f'export n={R}; sh -c \'printf "<%s>" "$n"\'',
    f'env n={R} sh -c \'printf "<%s>" "$n"\'',
    f"({SHOW} {R})",
    f"{{ {SHOW} {R}; }}",
    f"f() {{ {SHOW} {R}; }}; f",
    f"if [ {R} = {R} ]; then {SHOW} {R}; fi",
    f'for n in {R}; do {SHOW} "$n"; done',
    f"case {R} in {R}) {SHOW} {R};; esac",
    f"case x in (a|b) :;; *) {SHOW} {R};; esac",
    f"{SHOW} {R} | cat",
    f"true && {SHOW} {R} || false",
    f'set -- {R}; {SHOW} "$@"',
    f"cat <<A >/dev/null; {SHOW} {R}\n' \" `true` $(true\n)\nA\n",
    f"cat <<'A' >/dev/null\n' \" ` $(\nA\n{SHOW} {R}",
    f"x=$(echo ')' \"$(echo ')')\" # )\n); {SHOW} {R}",
    f"case a in a) x=')';; esac; {SHOW} {R}",
    f"# it's\n{SHOW} {R} # \"",
    f"bash -e show.sh {R}",
]


def a_step(tool: str, field: str, text: str) -> Step:
    return Step.model_validate({"id": "me", "tool": tool, "input": {field: text}})


def resolve(step: Step, value: JsonValue) -> Resolved:
    outputs = {"a": Output(value, cut=False, file="/nowhere"), "b": Output("SECRET", cut=False, file="/nowhere")}
    answer = resolve_step(step, outputs, "GOAL", ROOM)
    assert isinstance(answer, Resolved), answer
    return answer


def run(shell: str, command: JsonValue, env: JsonValue, folder: Path) -> tuple[int, bytes]:
    assert isinstance(command, str)
    assert isinstance(env, dict)
    world = {"PATH": os.environ["PATH"], "HOME": "/", **{key: str(text) for key, text in env.items()}}
    done = subprocess.run(
        [shell, "-c", command],
        env=world,
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", POSITIONS)
def test_every_value_arrives_in_every_position(text: str, shell: str, tmp_path: Path) -> None:
    (tmp_path / "show.sh").write_text(f'{SHOW} "$@"', encoding="utf-8")
    step = a_step("shell", "command", text)
    assert problems_in_step(step, {"a"}) == []
    turn = SHELLS.index(shell) + POSITIONS.index(text)  # the shells take turns, so that it stays fast
    for value in VALUES[turn % 2 :: 2] if turn > 1 else VALUES:
        given_input = resolve(step, value).input
        answer = run(shell, given_input["command"], given_input["env"], tmp_path)
        assert answer == (0, f"<{value}>".encode()), value
        assert [entry.name for entry in tmp_path.iterdir()] == ["show.sh"], value


@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_as_the_target_of_a_redirection(shell: str, tmp_path: Path) -> None:
    given_input = resolve(a_step("shell", "command", f"printf x > {R}; cat < {R}"), "$(touch y) ; *").input
    assert run(shell, given_input["command"], given_input["env"], tmp_path) == (0, b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["$(touch y) ; *"]


def test_a_value_as_a_here_string(tmp_path: Path) -> None:
    for value in VALUES:
        given_input = resolve(a_step("shell", "command", f"cat <<< {R}"), value).input
        assert run("bash", given_input["command"], given_input["env"], tmp_path) == (0, f"{value}\n".encode())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_checks_are_as_safe_as_commands(shell: str, tmp_path: Path) -> None:
    step = Step(id="me", checks=(CommandCheck(kind="command", run=f'test "{R}" = {R} && {SHOW} {R}'),))
    for value in VALUES:
        (check,) = resolve(step, value).checks
        assert isinstance(check, ResolvedCommandCheck)
        assert check.env == {"REF_0": value}
        assert run(shell, check.run, dict(check.env), tmp_path) == (0, f"<{value}>".encode())
    assert list(tmp_path.iterdir()) == []


def test_places_that_bash_would_run_are_refused() -> None:
    """Quotes do not help here: bash evaluates the value itself, a[$(touch x)] included."""
    for text in [
        f"[[ {R} -eq 1 ]]",
        f"(( {R} ))",
        f"echo $(( {R} ))",
        f"x[{R}]=1",
        f"declare x[{R}]=1",
        f"declare -i x={R}",
        f"let {R}",
        f"[ -v {R} ]",
        f"test -v {R}",
        f"printf -v {R} x",
        f"read {R} <<< a",
        f"unset {R}",
        f"eval {R}",
        f"eval 'echo' \"{R}\"",
        f"trap {R} EXIT",
        f"bash -c {R}",
        f"bash <<< {R}",
        f'sh -c "echo {R}"',
        f"SECONDS={R}",
        f'python3 -c "{R}"',
        f"xargs bash -c {R} < /dev/null",
    ]:
        assert len(problems_in_step(a_step("shell", "command", text), {"a"})) == 1, text


PYTHON_POSITIONS = [
    f"show({R})",
    f"x = {R}; show(x)",
    f"show([{R}][0])",
    f"show({{'k': {R}}}['k'])",
    f"show(\n{R} # '\n)",
]


def test_python_gets_every_value_as_a_literal(tmp_path: Path) -> None:
    values: list[JsonValue] = [*VALUES, "__import__('os')", "'''", '"""', "\0", "\ud800", 5, -5, 1.5, True, None]
    values += [["$(x)", -1, None], {"'": [True, {}]}]
    code = ["import json", "seen = []", "def show(value): seen.append(value)"]
    for text in PYTHON_POSITIONS:
        step = a_step("python", "code", text)
        assert problems_in_step(step, {"a"}) == []
        code += [str(resolve(step, value).input["code"]) for value in values]
    script = "\n".join([*code, "print(json.dumps(seen))"])
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=script,
        capture_output=True,
        cwd=tmp_path,
        timeout=20,
        check=True,
        text=True,
    )
    assert json.loads(done.stdout) == values * len(PYTHON_POSITIONS)
    assert list(tmp_path.iterdir()) == []


NOISE = st.sampled_from(
    [
        "a",
        " ",
        " ",
        "\n",
        "; ",
        "'",
        '"',
        "'q'",
        '"q"',
        "\\",
        "\\'",
        "$x",
        "${x}",
        "${x:-'}'}",
        "$(echo ')')",
        "`echo b`",
        "# ",
        "(",
        ")",
        "{ ",
        "; }\n",
        " | cat",
        " && ",
        "$((1+1))",
        "$",
        "$'q'",
        '$"q"',
        "<<E\n'\nE\n",
        "<<'E'\n",
        "\nE\n",
        "x=",
        "case a in ",
        "a) ",
        ";; esac\n",
        "for x in ",
        "; do ",
        "; done\n",
        "if true; then ",
        "; fi\n",
        "printf '<%s>' ",
        "printf '<%s>' ",
        ": ",
        "$(",
        "[ ",
        " = ",
        " ]",
        "*",
        "~",
    ]
)
PIECES = st.lists(st.one_of(st.just(R), NOISE, NOISE), min_size=1, max_size=8)


@settings(max_examples=size(25, 1000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@example(["'", R, "'"], "$(touch x)")
@example(['"${x:-', "'", '}"', R], "a b")
@given(PIECES, st.sampled_from(VALUES))
def test_in_any_text_a_value_does_what_a_plain_word_would(pieces: list[str], value: str) -> None:
    """Where references are allowed, running the text with the value equals running it with a plain word there."""
    text = "printf '<%s>' " + "".join(pieces)
    step = a_step("shell", "command", text)
    assume("$$" not in text)  # a process id: never the same twice
    assume(R in pieces and problems_in_step(step, {"a"}) == [])
    given_input = resolve(step, value).input
    with tempfile.TemporaryDirectory() as folder:
        for shell in SHELLS:
            plain = run(shell, text.replace(R, "@QQQ"), {}, Path(folder))
            answer = run(shell, given_input["command"], given_input["env"], Path(folder))
            if plain[0] == 0:
                assert answer == (0, plain[1].replace(b"@QQQ", value.encode())), given_input
        assert os.listdir(folder) == []


UNREAD = st.sampled_from(
    ["$[1]", "$(case a in a) echo;; esac)", "$(cat <<E\nx\nE\n)", '${x:-"', "<<$x\n", "$(", "`", "'", '"', "[[ a", "<<\\E\n",
     "$((1) )", "a=(", "<(", "eval ", "sh -c ", "| sh ", "| bash -s ", "| python3 ", "; sh ", "coproc ", "let ", "alias a="]
)  # fmt: skip
CODE = ["$(touch x)", "`touch x`", "'; touch x; '", '"; touch x; "', "\ntouch x\n", "a[$(touch x)]"]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@example(["| ", "sh"], ["\n"], "\ntouch x\n")
@given(
    st.lists(st.one_of(NOISE, UNREAD), max_size=3),
    st.lists(st.one_of(NOISE, UNREAD), max_size=4),
    st.sampled_from(CODE),
)
def test_whatever_follows_a_value_never_becomes_code(before: list[str], after: list[str], value: str) -> None:
    """Also where the rest of the text is not read, or closes nothing that it opens."""
    step = a_step("shell", "command", f"printf '%s' {''.join(before)}{R}{''.join(after)}")
    assume(problems_in_step(step, {"a"}) == [])
    given_input = resolve(step, value).input
    with tempfile.TemporaryDirectory() as folder:
        for shell in SHELLS:
            run(shell, given_input["command"], given_input["env"], Path(folder))
        assert "x" not in os.listdir(folder), given_input

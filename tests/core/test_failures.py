"""Why something failed, from what a program printed."""

import pytest

from agentfs.core.excerpts import check_words, join_messages, reason, shorten, telling_line, with_output
from agentfs.core.records import CheckResult

PYTHON = """\
Loading…
Traceback (most recent call last):
  File "<string>", line 4, in <module>
    f("{nope")
  File "<string>", line 3, in f
    return json.loads(x)
           ~~~~~~~~~~^^^
json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 2, in <module>
KeyError: 'port'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
    raise SettingsError("no port given\\nset it in app.toml") from None
__main__.SettingsError: no port given
set it in app.toml
make: *** [Makefile:2: all] Error 1
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "<string>", line 1, in <module>
  | ExceptionGroup: both (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "<string>", line 1, in <module>
    | OSError: second
    +------------------------------------
"""
NODE = """\
/tmp/x.js:1
throw new Error("no room")
^

Error: no room
    at Object.<anonymous> (/tmp/x.js:1:7)
    at node:internal/main/run_main_module:17:47 {
  code: 'ENOSPC'
}

Node.js v22.1.0
"""
JAVA = """\
Exception in thread "main" java.lang.RuntimeException: cannot start
\tat Main.main(Main.java:5)
Caused by: java.io.IOException: port 80 is taken
\tat Main.open(Main.java:9)
\t... 1 more
"""
RUBY = "a.rb:1:in 'go': no luck (RuntimeError)\n\tfrom a.rb:3:in '<main>'\n"
GO = "panic: no map\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/x.go:4 +0x1d\nexit status 2\n"
SYNTAX = '  File "<string>", line 1\n    from x import\n                 ^\nSyntaxError: invalid syntax\n'
LOGGED = PYTHON + "".join(f"INFO: trying host {n}\n" for n in range(12)) + "ERROR: every host refused\n"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("\n \n--- ... ^^^\n", ""),
        ("no such file\n", "no such file"),
        ("step 1\nstep 2\nERROR: permission denied\n\n   \n=====\n", "ERROR: permission denied"),
        ("10%\r50%\r100%\rdisk full\n", "disk full"),
        (PYTHON, "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (CHAINED, "__main__.SettingsError: no port given"),
        (GROUP, "OSError: second"),
        ("".join(f"web_1  | {line}\n" for line in PYTHON.splitlines()[:-1]) + "web_1  | KeyError: 'a'\n", "KeyError: 'a'"),
        ("Traceback (most recent call last):\n  File", "File"),
        (NODE, "Error: no room"),
        (JAVA, "Caused by: java.io.IOException: port 80 is taken"),
        (RUBY, "a.rb:1:in 'go': no luck (RuntimeError)"),
        (GO, "panic: no map"),
        (SYNTAX, "SyntaxError: invalid syntax"),
        (LOGGED, "ERROR: every host refused"),
        ("größer als erlaubt\n", "größer als erlaubt"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_went_wrong(output: str, line: str) -> None:
    assert telling_line(output) == line


def test_a_message_says_it_first_and_has_the_end_of_the_output_below() -> None:
    assert with_output("exit code 3", "") == "exit code 3"
    assert with_output("exit code 3", "\n---\n") == "exit code 3\n---"
    assert with_output("exit code 3", "why\n") == "exit code 3: why"
    assert with_output("exit code 1", "one\ntwo\n\n") == "exit code 1: two\none\ntwo"
    assert reason(with_output("exit code 1", PYTHON)) == f"exit code 1: {PYTHON.splitlines()[-1]}"
    long = "".join(f"{n}\n" for n in range(5000))
    message = with_output("exit code 1", long)
    assert message.startswith("exit code 1: 4999\n…")
    assert message.endswith("\n4998\n4999")
    assert len(message) < 2100


def test_a_long_line_keeps_its_beginning_and_its_end() -> None:
    line = telling_line("ValueError: " + "x" * 5000 + " is too long")
    assert (line[:14], line[-12:], len(line)) == ("ValueError: xx", " is too long", 300)
    assert " … " in line


def test_a_message_that_is_shortened_keeps_its_reason_and_its_end() -> None:
    message = with_output("exit code 1", "".join(f"line {n}\n" for n in range(200)))
    assert shorten(message, len(message)) == message
    short = shorten(message, 80)
    assert short.splitlines()[0] == "exit code 1: line 199"
    assert short.splitlines()[1].startswith("[… ")
    assert short.endswith("\nline 198\nline 199")
    assert shorten("x" * 100, 20) == "x" * 20 + "\n[… 80 characters left out …]"


def test_several_say_all_their_reasons_first() -> None:
    assert join_messages(["a: 1", "b: 2\nout of b", "c: 3\nout of c"]) == "a: 1; b: 2; c: 3\nout of b\nout of c"


def test_a_check_names_its_command() -> None:
    failed = CheckResult(kind="command", ok=False, detail="exit code 1: two\none\ntwo", run="test -s out\n&& true")
    assert check_words(failed) == "`test -s out && true`: exit code 1: two\none\ntwo"
    long = check_words(failed.model_copy(update={"run": f"grep {'x' * 500} file"}))
    assert long.startswith("`grep xxx") and " … " in long and "x file`: exit code 1" in long  # noqa: PT018
    assert check_words(CheckResult(kind="file", ok=False, detail="a is not there")) == "a is not there"
    assert reason("") == "no reason given"

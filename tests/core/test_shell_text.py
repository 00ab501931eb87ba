"""Where a reference is in shell text. {R} in these texts is the reference."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.core import shell_words
from agentfs.core.references import find
from agentfs.core.shell_text import Placement, place_references
from agentfs.core.shell_words import Refusal
from tests.sweeps import size

R = "{{steps.a.output}}"


def places(template: str) -> list[Placement]:
    text = template.replace("{R}", R)
    return list(place_references(text, [(found.start, found.end) for found in find(text)]))


def only(template: str) -> Placement:
    (place,) = places(template)
    return place


BARE = [
    "echo {R}",
    "echo a{R}b",
    "echo -n\t{R}",
    "x={R}",
    "x={R} y=1 cmd",
    "x+={R}",
    "x={R}; echo $x",
    "cat < {R}",
    "cat <{R} >b",
    "cat > {R}",
    "cat 2>{R} >&2",
    "{R_FD}>log echo {R}".replace("{R_FD}", "{fd}"),
    "> {R}",
    "cat <<< {R}",
    "cat <<<{R}",
    "cat file >> {R} 2>&1",
    "true && echo {R} || echo b",
    "true | grep -F {R}",
    "(echo {R})",
    "( cd x; echo {R} )",
    "{ echo {R}; }",
    "(a; (b; echo {R}))",
    "if true; then echo {R}; fi",
    "if test -n {R}; then :; fi",
    "while read -r l; do echo {R}; done",
    "! grep {R} f",
    "for x in {R} b; do echo $x; done",
    "for x do echo {R}; done",
    "for x\ndo echo {R}\ndone",
    "case {R} in a) echo;; esac",
    "case x in {R}) echo;; esac",
    "case x in a) echo {R};; (b|c) echo;; esac",
    "case x\nin\na)\necho {R}\n;;\nesac",
    "case x in a) case y in b) echo;; esac;; c) echo {R};; esac",
    "case x in a) echo ;& b) echo {R} ;;& c) : ;; esac; echo",
    "case x in a) : ;; esac; echo {R}",
    "case x in a) : ; esac; echo {R}",
    "f() { echo {R}; }",
    "f () { echo {R}; }; f",
    "function f { echo {R}; }",
    "function f() { echo {R}; }",
    "echo a # comment\necho {R}",
    "echo a#b {R}",
    "echo 'single' {R}",
    "echo it\\'s {R}",
    "echo \\\n {R}",
    'echo "double" {R}',
    'echo "a\\"b" {R}',
    "echo $(date) {R}",
    "echo $(echo $(date)) {R}",
    'echo "$(echo "a b" \')\')" {R}',
    "echo $(echo # )\n) {R}",
    "echo $( (a) ) {R}",
    "echo `date` {R}",
    "echo $((1 + (2))) {R}",
    "((x++)); echo {R}",
    "for ((i=0; i<3; i++)) do echo {R}; done",
    "[[ a == b && (c < d) ]]; echo {R}",
    "[[ a =~ ^(a|b)$ ]] && echo {R}",
    "[[ a\n]]\necho {R}",
    "echo ${x} ${x:-a b} ${x#*/} ${#x} {R}",
    "echo $((1 + $(x) + ${y} + '1')) {R}",
    'echo "$(basename "$(pwd)")" {R}',
    "echo $(seq 1 $((n + 1)) | sed s/1\\\\/2/) {R}",
    'n={R}\ncase $n in ""|*[!0-9]*) exit 1;; esac\necho $((n + 1))',
    "[ {R} = x ]",
    "test {R} -eq 1",
    "cat <<EOF\nbody ' \" $( `\nEOF\necho {R}",
    "cat <<EOF; echo {R}\nbody\nEOF\n",
    "cat <<-EOF\n\tbody\n\tEOF\necho {R}",
    "cat <<'EOF'\nbody\\\nEOF\necho {R}",
    "cat << A << B\na\nA\nb\nB\necho {R}",
    "(cat <<EOF\nbody\nEOF\n) ; echo {R}",
    "diff <(a) >(b) {R}",
    "cat < <(a) {R}",
    "x=(a b); echo {R}",
    "echo $$ $? $x $1 $ {R}",
    "echo $${R}",
    "echo $x{R}",
    "echo $'a\\n' $\"b\" {R}",
    "env A={R} program",
    "env -i A=b program {R}",
    "timeout 5 program {R}",
    "exec program {R}",
    "exec > {R}",
    "xargs -n 1 program {R}",
    "export n={R}",
    "export -x n={R}",
    "bash script.sh {R}",
    "echo {R} | sh script.sh",
    "echo {R} | python3 -c 'print(input())'",
    "echo {R} | python3 -m json.tool",
    "echo {R} || sh",
    "echo {R}; sh",
    "bash -e script.sh {R}",
    "bash script.sh > {R}",
    "python3 script.py -c {R}",
    "python3 -u script.py {R}",
    "python3 -m {R}",
    "python3 -c 'import sys' {R}",
    "printf %s {R}",
    "echo eval {R}",
    "time -p echo {R}",
    "esac; echo {R}",
    "echo " + "x" * 300 + " {R}",
]


@pytest.mark.parametrize("text", BARE)
def test_bare(text: str) -> None:
    assert only(text) == "bare"


DOUBLE = [
    'echo "{R}"',
    'echo "a {R} b"',
    'echo a"b{R}"c',
    'echo "it\'s {R}"',
    'echo "$(date) {R}"',
    'echo "`date` {R}"',
    'echo "${x} {R}"',
    'echo "$x{R}"',
    'echo "$${R}"',
    'echo "$\'{R}"',
    'echo "a\nb # {R}"',
    'x="{R}"',
    'cat > "{R}"',
    'test "$(sqlite3 app.db \'select 1\')" = "{R}"',
    '(echo "{R}")',
    'echo $"{R}"',
    'cat <<EOF; echo "{R}"\nEOF\n',
]


@pytest.mark.parametrize("text", DOUBLE)
def test_inside_double_quotes(text: str) -> None:
    assert only(text) == "double"


REFUSED = [
    ("echo '{R}'", shell_words.SINGLE),
    ("echo $'{R}'", shell_words.SINGLE),
    ("echo # {R}", shell_words.COMMENT),
    ("echo $({R})", shell_words.SUBSTITUTION),
    ("echo $(echo {R})", shell_words.SUBSTITUTION),
    ('echo "$(echo "{R}")"', shell_words.SUBSTITUTION),
    ('echo $(echo "{R}")', shell_words.SUBSTITUTION),
    ("echo $(echo '{R}')", shell_words.SUBSTITUTION),
    ("echo $(# {R}\n)", shell_words.SUBSTITUTION),
    ("echo `echo {R}`", shell_words.BACKTICK),
    ('echo "`echo {R}`"', shell_words.BACKTICK),
    ("echo ${x:-{R}}", shell_words.EXPANSION),
    ('echo "${x:-{R}}"', shell_words.EXPANSION),
    ("echo $((1 + {R}))", shell_words.ARITHMETIC),
    ('echo $((1 + "{R}"))', shell_words.ARITHMETIC),
    ("(({R} > 1))", shell_words.ARITHMETIC),
    ("for ((i={R};;)) do :; done", shell_words.ARITHMETIC),
    ("cat <(echo {R})", shell_words.STREAM),
    ("tee >(cat {R})", shell_words.STREAM),
    ("x=({R})", shell_words.ARRAY),
    ("echo @({R})", shell_words.GLUED),
    ("cat <<EOF\n{R}\nEOF\n", shell_words.HEREDOC),
    ("cat <<EOF\n{R}", shell_words.HEREDOC),
    ("cat <<'EOF'\na\n {R}\nEOF\n", shell_words.HEREDOC),
    ("cat <<EOF\nEOF \n{R}\nEOF\n", shell_words.HEREDOC),
    ("cat << A << B\na\nA\n{R}\nB\n", shell_words.HEREDOC),
    ("echo \\{R}", shell_words.ESCAPED),
    ('echo "\\{R}"', shell_words.ESCAPED),
    ("echo ${R}", shell_words.DOLLAR),
    ('echo "${R}"', shell_words.DOLLAR),
    ("[[ {R} == a ]]", shell_words.CONDITION),
    ('[[ -n "{R}" ]]', shell_words.CONDITION),
    ("if [[ 1 -eq {R} ]]; then :; fi", shell_words.CONDITION),
    ("{R}", shell_words.COMMAND_WORD),
    ('"{R}"', shell_words.COMMAND_WORD),
    ("./bin/{R} a", shell_words.COMMAND_WORD),
    ("{R}=5", shell_words.COMMAND_WORD),
    ('"x"={R}', shell_words.COMMAND_WORD),
    ("x[{R}]=5", shell_words.COMMAND_WORD),
    ("a; {R}", shell_words.COMMAND_WORD),
    ("a\n{R}", shell_words.COMMAND_WORD),
    ("a | {R}", shell_words.COMMAND_WORD),
    ("a & {R}", shell_words.COMMAND_WORD),
    ("a &> f {R}", shell_words.COMMAND_WORD),
    ("({R})", shell_words.COMMAND_WORD),
    ("{ {R}; }", shell_words.COMMAND_WORD),
    ("x=1 {R}", shell_words.COMMAND_WORD),
    ("2>log {R}", shell_words.COMMAND_WORD),
    ("! {R}", shell_words.COMMAND_WORD),
    ("time -p {R}", shell_words.COMMAND_WORD),
    ("if {R}; then :; fi", shell_words.COMMAND_WORD),
    ("for x in a; do {R}; done", shell_words.COMMAND_WORD),
    ("for x do {R}; done", shell_words.COMMAND_WORD),
    ("case x in a) {R};; esac", shell_words.COMMAND_WORD),
    ("f() { {R}; }", shell_words.COMMAND_WORD),
    ("function f { {R}; }", shell_words.COMMAND_WORD),
    ("exec {R}", shell_words.COMMAND_WORD),
    ("env A=b {R}", shell_words.COMMAND_WORD),
    ("timeout 5 {R}", shell_words.COMMAND_WORD),
    ("/usr/bin/env {R}", shell_words.COMMAND_WORD),
    ("xargs -0 {R}", shell_words.COMMAND_WORD),
    ("eval {R}", shell_words.EVALUATED),
    ('eval "echo {R}"', shell_words.EVALUATED),
    ("\\eval {R}", shell_words.EVALUATED),
    ("'eval' {R}", shell_words.EVALUATED),
    ("command eval {R}", shell_words.EVALUATED),
    ("builtin eval {R}", shell_words.EVALUATED),
    (". {R}", shell_words.EVALUATED),
    ("source {R}", shell_words.EVALUATED),
    ('trap "{R}" EXIT', shell_words.EVALUATED),
    ("let x={R}", shell_words.EVALUATED),
    ("ssh host {R}", shell_words.EVALUATED),
    ("bash -c 'echo \"$1\"' _ {R}", shell_words.SHELL_CODE),
    ("xargs sh -c {R}", shell_words.SHELL_CODE),
    ("find . -exec sh -ec {R} \\;", shell_words.SHELL_CODE),
    ("bash -o pipefail -c {R}", shell_words.SHELL_CODE),
    ("sh -c {R}", shell_words.SHELL_CODE),
    ("bash {R}", shell_words.SCRIPT),
    ("bash -x {R}", shell_words.SCRIPT),
    ("bash <<< {R}", shell_words.SCRIPT),
    ("echo {R} | sh", shell_words.PIPED),
    ('printf %s "{R}" | tee a | sudo bash -x', shell_words.PIPED),
    ("echo {R} |\n bash -s a", shell_words.PIPED),
    ("echo {R} |& ( sh )", shell_words.PIPED),
    ("{ echo {R}; } | python3 -", shell_words.PIPED),
    ("for x in {R}; do echo $x; done | perl", shell_words.PIPED),
    ("/bin/sh < {R}", shell_words.SCRIPT),
    ('python3 -c "print({R})"', shell_words.INLINE),
    ('perl -ne "{R}"', shell_words.INLINE),
    ("node --eval {R}", shell_words.INLINE),
    ("python3 -c{R}", shell_words.INLINE),
    ("for {R} in a; do :; done", shell_words.VARIABLE_NAME),
    ("function {R} { :; }", shell_words.VARIABLE_NAME),
    ("export {R}", shell_words.VARIABLE_NAME),
    ("export {R}=1", shell_words.VARIABLE_NAME),
    ("declare -i n={R}", shell_words.VARIABLE_NAME),
    ("export PATH={R}", shell_words.VARIABLE_NAME),
    ("read {R}", shell_words.VARIABLE_NAME),
    ("unset {R}", shell_words.VARIABLE_NAME),
    ("[ -v {R} ]", shell_words.VARIABLE_NAME),
    ("printf -v {R} x", shell_words.VARIABLE_NAME),
    ("PATH={R} ls", shell_words.OWN_VARIABLE),
    ("SECONDS={R}", shell_words.OWN_VARIABLE),
]


@pytest.mark.parametrize(("text", "refusal"), REFUSED)
def test_refused(text: str, refusal: Refusal) -> None:
    assert only(text) == refusal


NOT_READ = [  # and what of it the message shows
    ("echo $'a\\'b' {R}", "$'a\\'b' …"),
    ("echo \"${x:-'}'}\" {R}", "${x:-'}'}\" …"),
    ("echo ${x:-${y}} {R}", "${x:-${y}} …"),
    ('echo ${x:-"{R}"}', '${x:-"…"}'),
    ("echo $[1 + 1] {R}", "$[1 + 1] …"),
    ("echo ${ ls; } {R}", "${ ls; } …"),
    ("echo `echo \\`date\\`` {R}", "`echo \\`date\\`` …"),
    ("echo $((1 << 2)) {R}", "$((1 << 2)) …"),
    ("echo $((a) | (b)) {R}", "$((a) | (b)) …"),
    ("echo $(seq $((a) | (b))) {R}", "$(seq $((a) | (b))) "),
    ("echo $((a) echo {R})", "$((a) echo …)"),
    ("((a) | (b)); echo {R}", "((a) | (b)); echo …"),
    ("echo $(case x in a) echo;; esac) {R}", "$(case x in a) echo;"),
    ("x=$(cat <<EOF\n)\nEOF\n); echo {R}", "$(cat <<EOF"),
    ("(\\\n( 1 + {R} ))", "\\"),
    ("ec\\\nho {R}", "\\"),
    ("case x in @(a)) echo {R};; esac", "(a)) echo …;; esac"),
    ("echo ;; echo {R}", ";; echo …"),
    ("cat << {R}\na\n", "<< …"),
    ("cat <<$x\na\n$x\necho {R}", "<<$x"),
    ('cat <<"E F"\nbody\nE F\necho {R}', '<<"E F"'),
    ("cat <<; echo {R}", "<<; echo …"),
    ("cat <<EOF\na\\\nEOF\nEOF\necho {R}", "EOF"),
    ('cat <<EOF "a\nb"\nEOF\necho {R}', ""),
    ("cat <<EOF \\\n {R}\nEOF\n", "\\"),
    ("echo $(cat <<EOF)\nEOF\necho {R}", "$(cat <<EOF)"),
    ("echo {R}\\\nb", "\\"),
]


@pytest.mark.parametrize(("text", "shown"), NOT_READ)
def test_what_has_no_plain_end_is_not_read_and_everything_after_is_refused(text: str, shown: str) -> None:
    why = f"comes after {shown!r}, which is not read here to its end"
    assert only(text) == Refusal(why, "assign it to a variable before that, and use the variable there: n={ref}")


def test_what_comes_before_is_fine() -> None:
    before, after = places("echo {R} $[1] {R}")
    assert before == "bare"
    assert isinstance(after, Refusal)


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("echo {R} '", "'"),
        ('echo "{R}', '"…'),
        ("echo {R} $(ls", "$(ls"),
        ("(echo {R} # )", "(echo … # )"),
        (") echo {R}", ") echo …"),
        ("echo {R} `ls\nb", "`ls"),
        ("echo {R} ${x \\", "${x \\"),
        ("echo {R} $((1", "$((1"),
    ],
)
def test_what_is_never_closed_is_refused(text: str, opened: str) -> None:
    assert only(text) == Refusal(f"is in a command that never closes what {opened!r} opens", "close it")


def test_several_references_each_have_their_place() -> None:
    assert places("x={R} echo \"{R}\" {R}'{R}'") == ["bare", "double", "bare", shell_words.SINGLE]


def test_nesting_of_any_depth_is_read() -> None:
    assert only("echo " + "$(" * 20_000 + ")" * 20_000 + " {R}") == "bare"
    assert only("(" * 2 + " " + "( " * 20_000 + "echo {R}") != "bare"


PIECES = st.sampled_from(
    [
        "'",
        '"',
        "`",
        "$",
        "\\",
        "(",
        ")",
        "((",
        "))",
        "$(",
        "$((",
        "${",
        "}",
        "{",
        "[[",
        "]]",
        "<<",
        "<<-",
        "<<<",
        "EOF",
        "<",
        ">",
        ">&",
        "&",
        "&&",
        "|",
        ";",
        ";;",
        "#",
        "\n",
        "case",
        "in",
        "esac",
        "for",
        "do",
        "done",
        "if",
        "a",
        "x=",
        "eval",
        "sh",
        "-c",
        "$'",
        '$"',
        "1",
        "{{steps.a.output}}",
        "{{",
        "{{goal}}",
    ]
).flatmap(lambda piece: st.sampled_from([piece, piece + " "]))


@settings(max_examples=size(100, 2000), deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join)))
def test_it_never_raises_and_answers_for_every_reference(text: str) -> None:
    spans = [(found.start, found.end) for found in find(text)]
    answers = place_references(text, spans)
    assert len(answers) == len(spans)
    assert all(answer in ("bare", "double") or isinstance(answer, Refusal) for answer in answers)

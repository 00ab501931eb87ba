"""The places in shell text where a reference may not stand, and what to write instead. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value may not stand somewhere, and what to write instead ({ref} stands for the reference)."""

    why: str
    fix: str


COMMAND_WORD = Refusal(
    "is part of the program's name: the value would choose what runs",
    "write the program's name in the plan and give the value as an argument: ./program {ref}",
)
EVALUATED = Refusal(
    "is given to a command that reads its arguments as code",
    "put the code into the plan and hand over the value by a variable: n={ref}",
)
SHELL_CODE = Refusal(
    "stands in the arguments of a shell that is given code with -c",
    "write the command without sh -c, or assign the value to a variable first and export it: export n={ref}",
)
SCRIPT = Refusal(
    "would choose the script that a shell runs",
    "write the script's name in the plan and give the value as an argument: sh script.sh {ref}",
)
INLINE = Refusal(
    "stands inside the code of another language",
    "read it there from the environment: export n={ref}; or use a step with tool python",
)
VARIABLE_NAME = Refusal(
    "would choose the name of a variable, which the shell may run as code",
    "write the name in the plan: n={ref}",
)
OWN_VARIABLE = Refusal(
    "would set a variable that changes how the shell itself works",
    "choose another name: n={ref}",
)
CONDITION = Refusal("stands inside [[ ]]", 'use [ ] with double quotes instead: [ "{ref}" = … ]')

_MEND = "put it in double quotes outside $( ), or assign it to a variable first: n={ref}"
_PLAIN = "write it bare or in double quotes: {ref}"
SINGLE = Refusal("stands inside single quotes, where the shell puts in no values", _PLAIN)
COMMENT = Refusal("stands in a comment", "take it out of the comment, or write the braces in another way")
BACKTICK = Refusal("stands inside backticks", _MEND)
SUBSTITUTION = Refusal("stands inside $( )", _MEND)
STREAM = Refusal("stands inside <( ) or >( )", _MEND)
EXPANSION = Refusal("stands inside ${ }", _MEND)
ARITHMETIC = Refusal(
    "stands inside arithmetic, where the shell may run a value as code",
    'make sure that it is a number first: n={ref}; case $n in ""|*[!0-9]*) exit 1;; esac; then use $n',
)
ARRAY = Refusal("stands inside an array's ( )", _MEND)
GLUED = Refusal("stands inside ( ) that are part of a word", _MEND)
HEREDOC = Refusal(
    "stands in a here-document", "assign it to a variable first and use that there: n={ref}, then $n; or use printf"
)
ESCAPED = Refusal("stands directly after a backslash", "leave the backslash out: {ref}")
DOLLAR = Refusal("stands directly after a $", "leave the $ out: {ref}")

"""What the words of a shell command do with a value, and the places where no value may be. Pure: runs nothing.

`shell_text` cuts shell text into words; here each word is judged: is it the program's name, code, the name of a
variable, or an argument? Only an argument may hold a value that nobody has read before.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


def replace_spans(text: str, spans: Iterable[tuple[int, int]], texts: Iterable[str]) -> str:
    """Return a text with others in the places of some of its spans, which are sorted and apart."""
    parts, at = [], 0
    for (start, end), new in zip(spans, texts, strict=True):
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value may not be somewhere, and what to write instead ({ref} stands for the reference)."""

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
    "is in the arguments of a shell that is given code with -c",
    "write the command without sh -c, or assign the value to a variable first and export it: export n={ref}",
)
SCRIPT = Refusal(
    "would choose the script that a shell runs",
    "write the script's name in the plan and give the value as an argument: sh script.sh {ref}",
)
PIPED = Refusal(
    "is before a shell or an interpreter that reads its code from a pipe",
    "write the code into a file of the plan and give the value as an argument: sh script.sh {ref}",
)
INLINE = Refusal(
    "is inside the code of another language",
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
CONDITION = Refusal("is inside [[ ]]", 'use [ ] with double quotes instead: [ "{ref}" = … ]')

_FIX = "put it in double quotes outside $( ), or assign it to a variable first: n={ref}"
SINGLE = Refusal(
    "is inside single quotes, where the shell puts in no values", "write it bare or in double quotes: {ref}"
)
COMMENT = Refusal("is in a comment", "take it out of the comment, or write the braces in another way")
BACKTICK = Refusal("is inside backticks", _FIX)
SUBSTITUTION = Refusal("is inside $( )", _FIX)
STREAM = Refusal("is inside <( ) or >( )", _FIX)
EXPANSION = Refusal("is inside ${ }", _FIX)
ARITHMETIC = Refusal(
    "is inside arithmetic, where the shell may run a value as code",
    'make sure that it is a number first: n={ref}; case $n in ""|*[!0-9]*) exit 1;; esac; then use $n',
)
ARRAY = Refusal("is inside an array's ( )", _FIX)
GLUED = Refusal("is inside ( ) that are part of a word", _FIX)
HEREDOC = Refusal(
    "is in a here-document", "assign it to a variable first and use that there: n={ref}, then $n; or use printf"
)
ESCAPED = Refusal("is directly after a backslash", "leave the backslash out: {ref}")
DOLLAR = Refusal("is directly after a $", "leave the $ out: {ref}")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words("if then elif else fi do done while until ! { } time coproc")
_WRAPPERS = _words("command builtin exec env nohup sudo doas nice ionice setsid stdbuf timeout xargs busybox chroot")
_SHELLS = _words("sh bash dash ash zsh ksh su")
_EVALUATORS = _words("eval . source trap let alias bind complete compgen enable hash fc ssh watch parallel")
_NAMERS = _words("unset read mapfile readarray getopts")
_DECLARERS = _words("export readonly local declare typeset")
_OWN_VARIABLES = _words(
    "PATH IFS ENV BASH_ENV PS4 PROMPT_COMMAND SHELLOPTS BASHOPTS LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONSTARTUP "
    "RANDOM SRANDOM SECONDS OPTIND LINENO HISTCMD EPOCHSECONDS BASHPID"
)
_INTERPRETER = re.compile(r"(python[0-9.]*|perl|ruby|node|php)\Z")
_INLINE_CODE = re.compile(r"-[A-Za-z]*[ceEr]\b|--eval\b")
_SHELL_CODE = re.compile(r"-[A-Za-z]*c[A-Za-z]*\Z")
_FROM_INPUT = re.compile(r"-[A-Za-z]*s[A-Za-z]*\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_PLAIN_OPTION = re.compile(r"-[xrg]+\Z")
_LONGEST = 200  # characters of a word that are looked at; names and options are shorter
UNKNOWN = "\0"  # in a word: what is only known when the command runs


@dataclass(slots=True)
class Word:
    """A word while it is being read: its text without quotes, and the references in it."""

    started: bool = False
    plain: bool = True  # nothing in it is quoted, expanded or referred to, so far
    text: str = ""
    prefix: str = ""  # the text up to the first quote, expansion or reference
    references: list[int] = field(default_factory=list)

    def add(self, text: str, *, plain: bool = False) -> None:
        self.started = True
        self.plain = self.plain and plain
        if len(self.text) < _LONGEST:
            self.text += text
            self.prefix += text if self.plain else ""

    @property
    def keyword(self) -> str:
        """The word if the shell may read it as a keyword, else nothing."""
        return self.text if self.plain else ""

    @property
    def program(self) -> str:
        return self.text.rsplit("/", 1)[-1]

    @property
    def variable(self) -> str | None:
        """The name that an assignment sets; None if it is no assignment."""
        found = _ASSIGNMENT.match(self.prefix)
        return found[1] if found else None


Mode = Literal["start", "args", "name", "for", "function", "condition", "subject", "in", "pattern"]
_MODES: dict[str, Mode] = {
    "for": "name",
    "select": "name",
    "function": "function",
    "[[": "condition",
    "case": "subject",
}
OVER_LINES = ("condition", "subject", "in", "pattern")  # modes in which a line break means nothing


@dataclass(slots=True)
class Command:
    """Where in a simple command the reader is, and what the words so far have made of it."""

    mode: Mode = "start"
    cases: int = 0  # `case` bodies that are open
    piped: bool = False  # it reads what another command prints
    head: str = ""  # the program
    wrapped: bool = False  # after `env`, `xargs` and their like the program is still to come
    shell: bool = False
    coded: bool = False  # a shell was given -c
    script: bool = False  # an argument that is no option has been seen
    reads_anyway: bool = False  # a shell was given -s
    attributes: bool = False  # a declaration with options, such as -i
    previous: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no word of it has been read."""
        return self.mode == "start" and not self.head and not self.wrapped

    @property
    def runs_its_input(self) -> bool:
        """Whether what another command prints is code to it."""
        is_interpreter = self.head in _SHELLS or _INTERPRETER.match(self.head) is not None
        return self.piped and is_interpreter and not self.coded and (not self.script or self.reads_anyway)

    def take(self, word: Word) -> Refusal | None:
        """Go past a word, and return why a reference may not be in it, if so."""
        match self.mode:
            case "start":
                return self._first(word)
            case "args":
                return self._argument(word)
            case "condition":
                self.mode = "args" if word.keyword == "]]" else "condition"
                return CONDITION
            case "name":
                self.mode = "for"
                return VARIABLE_NAME
            case "function":
                self.mode = "start"
                return VARIABLE_NAME
            case _:
                self._of_compound(word)
                return None

    def _of_compound(self, word: Word) -> None:
        match self.mode:
            case "for":
                self.mode = "start" if word.keyword == "do" else "args"
            case "subject":
                self.mode = "in"
            case "in":
                self.mode, self.cases = "pattern", self.cases + 1
            case _ if word.keyword == "esac":
                self.mode, self.cases = "args", max(0, self.cases - 1)

    def take_target(self, operator: str) -> Refusal | None:
        """Return why a reference may not be the target of a redirection, if so."""
        return SCRIPT if self.head in _SHELLS and operator in ("<", "<<<") else None

    def _first(self, word: Word) -> Refusal | None:
        """Read a word where the program's name is awaited."""
        if not self.wrapped and word.keyword in _KEYWORDS:
            return None
        if not self.wrapped and word.keyword in (*_MODES, "esac"):
            self._of_compound(word)
            self.mode = _MODES.get(word.keyword, self.mode)
            return None
        if word.variable:
            return OWN_VARIABLE if word.variable in _OWN_VARIABLES else None
        if word.text.startswith("-") or (self.wrapped and word.text[:1].isdecimal()):
            return COMMAND_WORD
        if word.program in _WRAPPERS:
            self.wrapped = True
        else:
            self.mode, self.head, self.shell = "args", word.program, word.program in _SHELLS
        return COMMAND_WORD

    def _argument(self, word: Word) -> Refusal | None:
        refusal = self._hazard(word)
        if word.program in _SHELLS:
            self.shell = True
        elif self.shell and _SHELL_CODE.match(word.text):
            self.coded = True
        if self.head in _SHELLS and not self.script and _FROM_INPUT.match(word.text):
            self.reads_anyway = True
        if not word.text.startswith("-"):
            self.script = True
        elif not _PLAIN_OPTION.match(word.text):
            self.attributes = True
        self.previous = word.text
        return refusal

    def _hazard(self, word: Word) -> Refusal | None:
        if self.head in _EVALUATORS:
            return EVALUATED
        if self.coded:
            return SHELL_CODE
        if self.head in _SHELLS and not self.script:
            return SCRIPT
        if self._names_variable(word):
            return VARIABLE_NAME
        if _INTERPRETER.match(self.head) and not self.script:
            return INLINE if any(_INLINE_CODE.match(text) for text in (self.previous, word.text)) else None
        return None

    def _names_variable(self, word: Word) -> bool:
        if self.head in _DECLARERS:
            return self.attributes or word.variable is None or word.variable in _OWN_VARIABLES
        return self.head in _NAMERS or (self.head in ("test", "[", "printf") and self.previous == "-v")

"""What the words of one simple shell command do with a value. Pure: it reads words, and runs nothing.

`shelltext` cuts shell text into words; here each word is judged: is it the program's name, code, the name of a
variable, or an argument? Only an argument may hold a value that nobody has read before.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from agentfs.core.shell_words import (
    COMMAND_WORD,
    CONDITION,
    EVALUATED,
    INLINE,
    OWN_VARIABLE,
    SCRIPT,
    SHELL_CODE,
    VARIABLE_NAME,
    Refusal,
)

Mode = Literal["start", "args", "subject", "in", "pattern", "name", "for", "function", "condition"]

LONGEST = 200  # characters of a word that are looked at; names and options are shorter
UNKNOWN = "\0"  # stands in a word for what is only known when the command runs


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPENERS = _words("if then elif else fi do done while until ! { } time coproc")
_MODES: dict[str, Mode] = {
    "case": "subject",
    "for": "name",
    "select": "name",
    "function": "function",
    "[[": "condition",
}
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
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_PLAIN_OPTION = re.compile(r"-[xrg]+\Z")


@dataclass(slots=True)
class Word:
    """A word while it is being read: its text without quotes, and the references in it."""

    started: bool = False
    plain: bool = True  # nothing in it is quoted, expanded or referred to, so far
    text: str = ""
    prefix: str = ""  # the text up to the first quote, expansion or reference
    references: list[int] = field(default_factory=list)

    def add(self, char: str, *, plain: bool = False) -> None:
        self.started = True
        self.plain = self.plain and plain
        if len(self.text) < LONGEST:
            self.text += char
            if self.plain:
                self.prefix += char

    @property
    def keyword(self) -> str:
        """Return the word if the shell may read it as a keyword, else nothing."""
        return self.text if self.plain else ""

    @property
    def program(self) -> str:
        return self.text.rsplit("/", 1)[-1]

    @property
    def variable(self) -> str | None:
        """Return the name that an assignment sets; None if it is no assignment."""
        found = _ASSIGNMENT.match(self.prefix)
        return found[1] if found else None


@dataclass(slots=True)
class Command:
    """Where in a simple command the reader is, and what the words so far have made of it."""

    mode: Mode = "start"
    cases: int = 0  # `case` bodies that are open
    head: str = ""  # the program
    wrapped: bool = False  # after `env`, `xargs` and their like the program is still to come
    shell: bool = False
    coded: bool = False  # a shell was given -c
    script: bool = False  # an argument that is no option has been seen
    attributes: bool = False  # a declaration with options, such as -i
    previous: str = ""

    def restart(self) -> None:
        """Begin the next simple command."""
        self.mode, self.head, self.previous = "start", "", ""
        self.wrapped = self.shell = self.coded = self.script = self.attributes = False

    def line_ends(self) -> None:
        """Begin the next simple command, unless a line break means nothing here."""
        if self.mode not in ("subject", "in", "pattern", "condition"):
            self.restart()

    def clause_ends(self) -> None:
        """Take `;;`: inside `case`, patterns follow."""
        self.restart()
        if self.cases:
            self.mode = "pattern"

    def take(self, word: Word) -> Refusal | None:
        """Go past a word, and return why a reference may not stand in it, if so."""
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
            case _:
                return self._of_compound(word)

    def take_target(self, operator: str) -> Refusal | None:
        """Return why a reference may not be the target of a redirection, if so."""
        return SCRIPT if self.head in _SHELLS and operator in ("<", "<<<") else None

    def _of_compound(self, word: Word) -> Refusal | None:
        if self.mode == "subject":
            self.mode = "in"
        elif self.mode == "in":
            self.mode, self.cases = "pattern", self.cases + 1
        elif self.mode == "pattern":
            self._end_case(word)
        elif self.mode == "function":
            self.mode = "start"
            return VARIABLE_NAME
        else:
            self.mode = "start" if word.keyword == "do" else "args"
        return None

    def _end_case(self, word: Word) -> None:
        if word.keyword == "esac":
            self.mode, self.cases = "args", max(0, self.cases - 1)

    def _first(self, word: Word) -> Refusal | None:
        """Read a word where the program's name is awaited."""
        if not self.wrapped and self._is_keyword(word):
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

    def _is_keyword(self, word: Word) -> bool:
        if word.keyword in _MODES:
            self.mode = _MODES[word.keyword]
        elif word.keyword == "esac":
            self._end_case(word)
        return word.keyword in _MODES or word.keyword == "esac" or word.keyword in _OPENERS

    def _argument(self, word: Word) -> Refusal | None:
        refusal = self._hazard(word)
        if word.program in _SHELLS:
            self.shell = True
        elif self.shell and _SHELL_CODE.match(word.text):
            self.coded = True
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

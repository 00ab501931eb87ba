"""Where a reference stands in shell text: bare, inside double quotes, or where it must not. Pure: runs nothing.

A lexer for what POSIX sh and bash share, with bash's additions. It goes over the text once, keeps what is open on
a stack of its own, and never raises. Where shells disagree about the rest of a text it takes no side: every
reference from there on is refused.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentfs.core.shell_text import HereDocument, text_of, word_after
from agentfs.core.shell_words import (
    ARITHMETIC,
    ARRAY,
    BACKTICK,
    COMMENT,
    DOLLAR,
    ESCAPED,
    EXPANSION,
    GLUED,
    HEREDOC,
    SINGLE,
    STREAM,
    SUBSTITUTION,
    UNKNOWN,
    Command,
    Refusal,
    Word,
)

Standing = Literal["bare", "double"] | Refusal
Kind = Literal["commands", "single", "ansi", "double", "backtick", "expansion", "arithmetic", "comment"]

_REDIRECTION = re.compile(r"<<<|<<-|<<|<>|<&|>>|>&|>\||[<>]")
_NUMBER = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})\Z")
_SHOWN = 20  # characters of what is left open that a message shows


def standing(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Standing, ...]:
    """Return how each span of the text stands, in order. Spans are sorted, apart, and hold no line break."""
    return _Lexer(text, spans).read()


@dataclass(slots=True)
class _Frame:
    """Something open: the text itself, quotes, a substitution, a group."""

    kind: Kind
    start: int
    refusal: Refusal | None = None  # why no reference may stand here
    word: Word = field(default_factory=Word)
    command: Command = field(default_factory=Command)
    waiting: list[HereDocument] = field(default_factory=list)
    target: str = ""  # a redirection whose target is awaited
    group: bool = False  # its end begins a new command; otherwise the word around it goes on
    quoted: bool = False  # double quotes are around it, with no command between
    half: bool = False  # the second ( of ((, which a second ) must close


class _Lexer:
    """One pass over one text."""

    def __init__(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self.starts = [start for start, _ in spans]
        self.ends = dict(spans)
        self.found: dict[int, Standing] = {}
        self.at = 0
        self.stack = [_Frame("commands", 0)]
        self.waiting = 0  # here-documents whose text has not come yet
        self.doubt: Refusal | None = None
        self.readers: dict[Kind, Callable[[str], None]] = {
            "commands": self._commands,
            "single": self._single,
            "ansi": self._ansi,
            "double": self._double,
            "backtick": self._backtick,
            "expansion": self._expansion,
            "arithmetic": self._arithmetic,
            "comment": self._comment,
        }

    @property
    def frame(self) -> _Frame:
        return self.stack[-1]

    def read(self) -> tuple[Standing, ...]:
        while self.at < len(self.text):
            if self.at in self.ends:
                self._reference()
            else:
                self._char(self.text[self.at])
        self._finish()
        return tuple(self.found[start] for start in self.starts)

    def _char(self, char: str) -> None:
        frame = self.frame
        if char == "\n" and self.waiting != len(frame.waiting) and frame.kind != "comment":
            self._disagree("a line break between a here-document's name and its text")
        self.readers[frame.kind](char)

    def _finish(self) -> None:
        if self.frame.kind == "comment":
            self.stack.pop()
        if len(self.stack) > 1:
            start = self.frame.start
            opened = self.text[start : start + _SHOWN].split("\n")[0]
            unclosed = Refusal(f"is in a command that never closes what {opened!r} opens", "close it")
            self.found = dict.fromkeys(self.starts, unclosed)
        else:
            self._end_word()

    # ── references ────────────────────────────────────────────────────────────────────────────────────────

    def _reference(self) -> None:
        frame, start = self.frame, self.at
        self.at = self.ends[start]
        allowed: Standing = "double" if frame.kind == "double" else "bare"
        self.found[start] = frame.refusal or self.doubt or allowed
        frame.word.add(UNKNOWN)
        frame.word.references.append(start)

    def _refuse_next(self, refusal: Refusal) -> None:
        """Go past one character and the reference right after it, which may not stand there."""
        start = self.at + 1
        self.at = self.ends[start]
        self.found[start] = refusal
        self.frame.word.add(UNKNOWN)

    def _refuse_until(self, end: int, refusal: Refusal) -> None:
        for start in self.starts[bisect_left(self.starts, self.at) : bisect_left(self.starts, end)]:
            self.found[start] = refusal
        self.at = end

    def _disagree(self, about: str) -> None:
        """From here on shells may read the text differently."""
        self.doubt = self.doubt or Refusal(
            f"comes after {about}, which shells read differently", "move it before that"
        )

    # ── what opens and closes ─────────────────────────────────────────────────────────────────────────────

    def _push(self, kind: Kind, width: int, refusal: Refusal | None = None, *, group: bool = False) -> None:
        around = self.frame
        frame = _Frame(kind, self.at, around.refusal or refusal, group=group)
        frame.quoted = kind == "double" or (kind == "expansion" and around.quoted)
        if kind in ("single", "ansi", "double"):
            frame.word = around.word
            around.word.add("")
        elif group:
            frame.waiting = around.waiting
        else:
            around.word.add(UNKNOWN)
        self.stack.append(frame)
        self.at += width

    def _pop(self, width: int = 1) -> None:
        self.at += width
        closed = self.stack.pop()
        if closed.group:
            self.frame.command.restart()
        elif closed.waiting:
            self._disagree("a substitution that ends before its here-document")

    def _end_word(self) -> None:
        frame = self.frame
        word, frame.word = frame.word, Word()
        if not word.started:
            return
        refusal = frame.command.take_target(frame.target) if frame.target else frame.command.take(word)
        frame.target = ""
        for start in word.references:
            if refusal and not isinstance(self.found[start], Refusal):
                self.found[start] = refusal

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────

    def _commands(self, char: str) -> None:
        match char:
            case " " | "\t":
                self._end_word()
                self.at += 1
            case "\n":
                self._line_break()
            case ";" | "&" | "|":
                self._separator(char)
            case "<" | ">":
                self._redirection()
            case "(":
                self._open()
            case ")":
                self._close()
            case "#" if not self.frame.word.started:
                self._push_comment()
            case _:
                self._word_part(char)

    def _push_comment(self) -> None:
        self.stack.append(_Frame("comment", self.at, self.frame.refusal or COMMENT))
        self.at += 1

    def _word_part(self, char: str) -> None:
        match char:
            case "'":
                self._push("single", 1, SINGLE)
            case _ if char in '"`$\\':
                self._expanding(char)
            case _:
                self.frame.word.add(char, plain=True)
                self.at += 1

    def _expanding(self, char: str) -> None:
        """Read what is special both in a command and wherever else values are put in."""
        match char:
            case '"':
                self._push("double", 1)
            case "`":
                self._push("backtick", 1, BACKTICK)
            case "$":
                self._dollar()
            case _:
                self._backslash()

    def _line_break(self) -> None:
        self._end_word()
        self.at += 1
        self.frame.command.line_ends()
        documents = self.frame.waiting[:]
        self.frame.waiting.clear()
        self.waiting -= len(documents)
        for document in documents:
            self._here_document(document)

    def _separator(self, char: str) -> None:
        self._end_word()
        command = self.frame.command
        clause = char == ";" and self.text[self.at + 1 : self.at + 2] in (";", "&")
        self.at += 2 if clause else 1
        if clause:
            command.clause_ends()
        elif command.mode not in ("condition", "pattern"):
            command.restart()

    def _open(self) -> None:
        frame, mode = self.frame, self.frame.command.mode
        glued, prefix = frame.word.started, frame.word.prefix
        self._end_word()
        if mode == "condition" or (mode == "pattern" and not glued):
            self.at += 1
        elif glued:
            if mode == "pattern":
                self._disagree("a pattern with ( ) in it")
            self._push("commands", 1, ARRAY if prefix.endswith("=") else GLUED, group=True)
        elif mode in ("start", "name") and self.text.startswith("((", self.at):
            self._push_arithmetic(1, group=True)
        else:
            self._push("commands", 1, group=True)

    def _close(self) -> None:
        self._end_word()
        command = self.frame.command
        if command.mode == "pattern":
            command.restart()
        elif command.mode != "condition" and len(self.stack) > 1:
            self._pop(0)
        self.at += 1

    # ── redirections ──────────────────────────────────────────────────────────────────────────────────────

    def _redirection(self) -> None:
        frame = self.frame
        if frame.word.plain and _NUMBER.match(frame.word.text):
            frame.word = Word()
        self._end_word()
        if self.text.startswith(("<(", ">("), self.at):
            self._push("commands", 2, STREAM)
            return
        found = _REDIRECTION.match(self.text, self.at)
        operator = found[0] if found else ""
        self.at += len(operator)
        if operator in ("<<", "<<-"):
            self._delimiter(tabs=operator == "<<-")
        elif frame.command.mode != "condition":
            frame.target = operator

    def _delimiter(self, *, tabs: bool) -> None:
        """Read the word after << and remember that a here-document comes after this line."""
        document, end = word_after(self.text, self.at, tabs=tabs)
        self._refuse_until(end, HEREDOC)
        if document.odd:
            self._disagree("a here-document with an unusual name")
        self.frame.waiting.append(document)
        self.waiting += 1

    def _here_document(self, document: HereDocument) -> None:
        end, continued = text_of(self.text, self.at, document)
        self._refuse_until(end, HEREDOC)
        if continued:
            self._disagree("a here-document's name on a continued line")

    # ── quotes and expansions ─────────────────────────────────────────────────────────────────────────────

    def _backslash(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if self.at + 1 in self.ends:
            self._refuse_next(ESCAPED)
            return
        if following == "\n" and self.text[self.at - 1 : self.at] in tuple("$(<>&|;"):
            self._disagree("an operator cut in two by a line break")
        if following != "\n":
            self.frame.word.add(following)
        elif self.waiting:
            self._disagree("a line break between a here-document's name and its text")
        self.at += 2

    def _dollar(self) -> None:
        text, at = self.text, self.at
        following = text[at + 1 : at + 2]
        if at + 1 in self.ends:
            self._refuse_next(DOLLAR)
        elif text.startswith("$((", at):
            self._push_arithmetic(2)
        elif following == "(":
            self._push("commands", 2, SUBSTITUTION)
        elif following == "{":
            self._push_expansion()
        elif following == "'" and not self.frame.quoted:
            self._push("ansi", 2, SINGLE)
        else:
            self._parameter(following)

    def _push_expansion(self) -> None:
        if self.text[self.at + 2 : self.at + 3] in (" ", "\t", "\n", "|"):
            self._disagree("${ with a command in it")
        self._push("expansion", 2, EXPANSION)

    def _parameter(self, following: str) -> None:
        if following == "[":
            self._disagree("$[ ]")
        self.frame.word.add(UNKNOWN)
        self.at += 2 if following and following in "$?!#*@-0123456789[" else 1

    def _single(self, char: str) -> None:
        if char == "'":
            self._pop()
        else:
            self.frame.word.add(char)
            self.at += 1

    def _ansi(self, char: str) -> None:
        if char == "\\":
            if self.text.startswith("'", self.at + 1):
                self._disagree("\\' inside $' '")
            self._backslash()
        else:
            self._single(char)

    def _double(self, char: str) -> None:
        if char == '"':
            self._pop()
        elif char in "`$\\":
            self._expanding(char)
        else:
            self.frame.word.add(char)
            self.at += 1

    def _backtick(self, char: str) -> None:
        if char == "`":
            self._pop()
        elif char == "\\":
            self._backslash()
        else:
            self.at += 1

    def _expansion(self, char: str) -> None:
        if char in "'\"" and self.frame.quoted:
            self._disagree('quotes inside "${ }"')
        if char == "}":
            self._pop()
        else:
            self._nested(char)

    def _arithmetic(self, char: str) -> None:
        if char == "(":
            self._push("arithmetic", 1)
        elif char == ")":
            self._end_arithmetic()
        else:
            self._nested(char)

    def _nested(self, char: str) -> None:
        if char in "'\"`$\\":
            self._word_part(char)
        else:
            self.at += 1

    def _push_arithmetic(self, width: int, *, group: bool = False) -> None:
        self._push("arithmetic", width, ARITHMETIC, group=group)
        self._push("arithmetic", 1)
        self.frame.half = True

    def _end_arithmetic(self) -> None:
        half = self.frame.half
        self._pop()
        if half and not self.text.startswith(")", self.at):
            self._disagree("(( that is not closed by ))")

    def _comment(self, char: str) -> None:
        if char == "\n":
            self.stack.pop()
        else:
            self.at += 1

"""Where a reference is in shell text: bare, inside double quotes, or where it must not be. Pure: runs nothing.

A conservative scanner of what POSIX sh and bash share. It reads two things: commands at the top level (lists, pipes,
groups, loops, conditions, cases) and double quotes there. Anything else (single quotes, substitutions, arithmetic,
arrays, here-documents, comments) is skipped to its plain end, and no reference may be inside. What has no plain end,
such as a substitution with a here-document in it, ends the reading: no reference after it is accepted.

What each word of a command does with a value is judged by `shell_words`.
"""

import re
from collections.abc import Sequence
from typing import Literal

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
    OVER_LINES,
    PIPED,
    SINGLE,
    STREAM,
    SUBSTITUTION,
    UNKNOWN,
    Command,
    Mode,
    Refusal,
    Word,
    replace_spans,
)

Placement = Literal["bare", "double"] | Refusal

_EXPANSION = r"\$\{[^\s|{}'\"`\\$()<>][^{}'\"`\\$()<>]*\}"
_PARAMETER = r"\$(?:[$?!*@0-9-]|#|[A-Za-z_]\w*)"
_INSIDE = re.compile(  # what a substitution, an array or arithmetic with a plain end is made of
    rf"(?P<open>\$?\(|\")|(?P<close>\))|'[^']*'|\\[^\n]|{_EXPANSION}|{_PARAMETER}"
    r"|(?P<comment>(?<=[\s;&|(<>])#[^\n]*)|(?<!\))#|<(?![<(])|>(?!\()|[^()'\"`\\$<>#]"
)
_INSIDE_QUOTES = re.compile(
    rf"(?P<open>\$\()|(?P<close>\")|\\[^\n]|{_EXPANSION}|{_PARAMETER}|(?P<comment>(?!))|[^\"`\\$]"
)
_NEVER_INSIDE = re.compile(r"\bcase\b|\[\[")
_BACKTICKS = re.compile(r"`[^`\\]*`")
_BRACES, _NAME = re.compile(_EXPANSION), re.compile(_PARAMETER)
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[^'\n])*'")
_HEREDOC = re.compile(r"<<(?P<tabs>-?)[ \t]*(?P<quote>['\"]?)(?P<name>[A-Za-z_][\w.-]*)(?P=quote)(?=[\s;&|<>)]|\Z)")
_EMPTY = re.compile(r"\([ \t]*\)")
_REDIRECTION = re.compile(r"<<<|<>|<&|>>|>&|>\||[<>]")
_NUMBER = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})\Z")
_SHOWN = 20  # characters of what ends the reading that a message shows


def place_references(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Placement, ...]:
    """Return where each span of the text is, in order. Spans are sorted, apart, and hold no line break."""
    mark = next(sign for sign in map(chr, range(0xE000, 0xF8FF)) if sign not in text)
    marked = replace_spans(text, spans, [mark] * len(spans))
    return tuple(_Scanner(marked, mark).read(len(spans)))


class _StopError(Exception):
    """The rest of the text is not read."""


class _UnclosedError(Exception):
    """Something that begins at this place never ends."""


class _Scanner:
    """One pass over one text, in which each reference is one character."""

    def __init__(self, text: str, mark: str) -> None:
        self.text, self.mark = text, mark
        self.at = 0
        self.found: list[Placement] = []
        self.word, self.command = Word(), Command()
        self.target = ""  # a redirection whose target is awaited
        self.open: list[tuple[int, int]] = []  # where the ( of groups are, and the `case` bodies open around each
        self.heredocs: list[re.Match[str]] = []  # whose text has not come yet

    def read(self, count: int) -> list[Placement]:
        """Return a placement for each of so many references."""
        try:
            while self.at < len(self.text):
                self._part(self.text[self.at])
            self._end_word()
            self._restart()
            if self.open:
                self.at = self.open[-1][0]
                raise _UnclosedError
        except _StopError:
            late = Refusal(
                f"comes after {self._show_text()!r}, which is not read here to its end",
                "assign it to a variable before that, and use the variable there: n={ref}",
            )
            before = [late if number in self.word.references else one for number, one in enumerate(self.found)]
            return [*before, *[late] * (count - len(before))]
        except _UnclosedError:
            why = f"is in a command that never closes what {self._show_text()!r} opens"
            return [Refusal(why, "close it")] * count
        return self.found

    def _show_text(self) -> str:
        return self.text[self.at : self.at + _SHOWN].split("\n")[0].replace(self.mark, "…")

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────

    def _part(self, char: str) -> None:
        match char:
            case " " | "\t":
                self._end_word()
                self.at += 1
            case "\n":
                self._line_break()
            case ";" | "&" | "|":
                self._separator()
            case "<" | ">":
                self._redirection()
            case "(" | ")" if self.command.mode == "condition":
                self._end_word()
                self.at += 1
            case "(":
                self._group()
            case ")":
                self._end_group()
            case "#" if not self.word.started:
                end = self.text.find("\n", self.at)
                self._skip(len(self.text) if end < 0 else end, COMMENT)
            case '"':
                self._double_quotes()
            case "'":
                self._quote(self.text.find("'", self.at + 1) + 1)
            case _:
                self._word_part(char, quoted=False)

    def _word_part(self, char: str, *, quoted: bool) -> None:
        """Read what means the same inside double quotes."""
        if char == self.mark:
            self.word.add(UNKNOWN)
            self.word.references.append(len(self.found))
            self.found.append("double" if quoted else "bare")
        elif char == "\\":
            self._backslash()
            return
        elif char in "$`":
            self._expansion(quoted=quoted)
            return
        else:
            self.word.add(char, plain=not quoted)
        self.at += 1

    def _end_word(self) -> None:
        word, self.word = self.word, Word()
        if not word.started:
            return
        refusal = self.command.take_target(self.target) if self.target else self.command.take(word)
        self.target = ""
        for number in word.references:
            if refusal and not isinstance(self.found[number], Refusal):
                self.found[number] = refusal

    def _separator(self) -> None:
        self._end_word()
        if self.text.startswith((";;", ";&"), self.at):
            if not self.command.cases:
                raise _StopError
            self._restart("pattern")
            self.at += 1
        elif self.command.mode not in ("condition", "pattern"):
            around = self.text[max(0, self.at - 1) : self.at + 2]
            self._restart(piped=self.text[self.at] == "|" and "||" not in around)
        self.at += 1

    def _restart(self, mode: Mode = "start", *, piped: bool = False) -> None:
        """Begin the next simple command. `piped`: it reads what the one before prints."""
        before = self.command
        if before.runs_its_input:
            self.found = [one if isinstance(one, Refusal) else PIPED for one in self.found]
        self.command = Command(mode, before.cases, piped or (before.piped and before.is_empty))

    def _line_break(self) -> None:
        self._end_word()
        self.at += 1
        if self.command.mode not in OVER_LINES:
            self._restart()
        for heredoc in self.heredocs:
            self._here_document(heredoc)
        self.heredocs = []

    def _group(self) -> None:
        """Read a ( that begins a subshell, arithmetic, a function or an array."""
        glued, array, mode = self.word.started, self.word.prefix.endswith("="), self.command.mode
        self._end_word()
        if self.target or (mode == "pattern" and glued):
            raise _StopError
        if mode == "pattern":
            self.at += 1
            return
        if empty := _EMPTY.match(self.text, self.at):  # a function
            self.at = empty.end()
        elif glued or (mode in ("start", "name") and self.text.startswith("((", self.at)):
            self._skip(self._plain_end(self.at), ARITHMETIC if not glued else ARRAY if array else GLUED)
        elif mode == "start" and not self.command.wrapped:
            self.open.append((self.at, self.command.cases))
            self.command.cases = 0
            self.at += 1
        else:
            raise _StopError
        self._restart()

    def _end_group(self) -> None:
        self._end_word()
        if self.command.mode != "pattern":
            if not self.open or self.heredocs:
                raise _UnclosedError  # it may be the end of something that was not seen to begin
            _, self.command.cases = self.open.pop()
        self.at += 1
        self._restart()

    # ── redirections ──────────────────────────────────────────────────────────────────────────────────────

    def _redirection(self) -> None:
        if self.word.plain and _NUMBER.match(self.word.text):
            self.word = Word()
        self._end_word()
        if self.text.startswith(("<(", ">("), self.at):
            self.word.add(UNKNOWN)
            self._skip(self._plain_end(self.at + 1), STREAM)
        elif self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at):
            if not (found := _HEREDOC.match(self.text, self.at)):
                raise _StopError
            self.heredocs.append(found)
            self.at = found.end()
        elif found := _REDIRECTION.match(self.text, self.at):
            self.at = found.end()
            self.target = found[0] if self.command.mode != "condition" else ""

    def _here_document(self, begun: "re.Match[str]") -> None:
        """Go past the text of a here-document: to the line that is its name."""
        joined = False
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            is_end = (line.lstrip("\t") if begun["tabs"] else line) == begun["name"]
            if is_end and joined:
                raise _StopError  # shells disagree whether a line that is continued can end it
            self._skip(min(end + 1, len(self.text)), HEREDOC)
            if is_end:
                return
            joined = not begun["quote"] and (len(line) - len(line.rstrip("\\"))) % 2 == 1

    # ── quotes and expansions ─────────────────────────────────────────────────────────────────────────────

    def _double_quotes(self) -> None:
        start = self.at
        self.word.add("")
        self.at += 1
        while self.at < len(self.text) and (char := self.text[self.at]) != '"':
            if char == "\n" and self.heredocs:
                raise _StopError
            self._word_part(char, quoted=True)
        if self.at >= len(self.text):
            self.at = start
            raise _UnclosedError
        self.at += 1

    def _quote(self, end: int) -> None:
        """Go past single quotes."""
        if not end:
            raise _UnclosedError
        self.word.add(self.text[self.at + 1 : end - 1].replace(self.mark, UNKNOWN))
        self._skip(end, SINGLE)

    def _backslash(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following == self.mark:
            self.word.add(UNKNOWN)
            self._skip(self.at + 2, ESCAPED)
            return
        if following == "\n" and (self.heredocs or self.text[self.at - 1 : self.at] not in (" ", "\t", "\n", "")):
            raise _StopError
        if following != "\n":
            self.word.add(following)
        self.at += 2

    def _expansion(self, *, quoted: bool) -> None:
        """Read what begins with a $ or a backtick."""
        text, at = self.text, self.at
        self.word.add(UNKNOWN)
        if text.startswith(f"${self.mark}", at):
            self._skip(at + 2, DOLLAR)
        elif text.startswith("$(", at):
            self._skip(self._plain_end(at + 1), ARITHMETIC if text.startswith("$((", at) else SUBSTITUTION)
        elif text.startswith("${", at):
            self._skip(self._end_of(_BRACES), EXPANSION)
        elif text.startswith("`", at):
            self._skip(self._end_of(_BACKTICKS), BACKTICK)
        elif text.startswith("$'", at) and not quoted:
            self._skip(self._end_of(_ANSI), SINGLE)
        elif text.startswith("$[", at):
            raise _StopError
        else:
            self.at += 2 if _NAME.match(text, at) else 1

    def _end_of(self, whole: "re.Pattern[str]") -> int:
        if found := whole.match(self.text, self.at):
            return found.end()
        raise _StopError if whole.pattern[-1] in self.text[self.at + 2 :] else _UnclosedError  # its last character

    def _plain_end(self, start: int) -> int:
        """Return where the ( at a place is closed."""
        at, opened = start, list[str]()
        while part := (_INSIDE_QUOTES if opened[-1:] == ['"'] else _INSIDE).match(self.text, at):
            at = part.end()
            if part["open"]:
                opened.append("((" if self.text.startswith("(", at) else part["open"])
            elif part["close"]:
                opened.pop()
            elif part["comment"] and "((" in opened:
                break
            if part["close"] and opened[-1:] == ["(("] and not self.text.startswith(")", at):
                break  # (( that is not closed by )): shells read it differently
            if not opened:
                if _NEVER_INSIDE.search(self.text, start, at):
                    break
                return at
        raise _UnclosedError if self.text[at : at + 1] in ("", "'") else _StopError

    def _skip(self, end: int, refusal: Refusal) -> None:
        """Go past what is not read; no reference may be in it."""
        if self.heredocs and "\n" in self.text[self.at : end] and refusal is not HEREDOC:
            raise _StopError
        self.found += [refusal] * self.text.count(self.mark, self.at, end)
        self.at = end

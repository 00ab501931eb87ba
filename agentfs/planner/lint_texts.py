"""Texts that were meant to refer to a step and do not, and words that prove nothing. Pure: patterns, no plans.

Models write `{{list}}`, `${steps.list.output}`, `<output of list>`, `$STEP_1_OUTPUT`: each would reach a tool as it
is. A rule here is narrow on purpose: braces, dollars and brackets mean something in every other language.

No pattern holds an id. A pattern finds what is between two marks, at most a line of it; whether that begins with
a step is looked up. So the time grows with the texts, however many steps there are.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from agentfs.core.references import find, spans_of
from agentfs.core.shell_words import replace_spans

_PART = r"(?:output|result|stdout|content|text|value|response|file|path)s?"
_WHAT = r"(?:output|result|content|stdout|text|value|response|summary|answer|list)s?"
_SAID = rf"(?:the\s{{1,9}})?{_WHAT}\s{{1,9}}(?:of|from)\s{{1,9}}"
_EARLIER = r"(?:previous|prior|preceding|last)"
_MORE = r"[^{}<>\n]{0,60}"
_INSERT = r"(?:insert|paste|fill\s{1,9}in|put)\b"
_ENDING = r"(?:here|goes\s{1,9}here|placeholder|to\s{1,9}be\s{1,9}filled(?:\s{1,9}in)?|tbd)"
_INNER = r"\s{0,9}([^{}<>\n]{1,200})"  # between two marks
_LONGEST_ID = 63
_LONGEST_WHOLE = 300
_MOST = 20  # reported for one text

_NOTHING_SAID = frozenset(
    re.findall(
        r"\w+",
        """a action all an and any anything as be been by code command complete completed completes completion correct
        correctly did do does done ended ends error errors everything executed executes execution expected fail failed
        fails failure fine finish finished finishes for function goes good has have holds in is it its job met must no
        none not of ok okay one operation output pass passed passes produced program properly ran response result
        results return returned returns right run running runs satisfied script should some something step succeed
        succeeded succeeds success successful successfully task that the then there this to tool true valid was well
        went were when will with without work worked works yes""",
    )
)
_ALWAYS_TRUE = re.compile(
    r"\s*(?:true|/bin/true|:|exit 0|test 1|\[ 1 \]|test 1 = 1|echo\b[^|&;<>`$()]*|printf\b[^|&;<>`$()]*)\s*"
)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A wrong form: what is between its marks, as its one group, is certain or begins with a step."""

    marks: re.Pattern[str]
    certain: re.Pattern[str] | None = None  # wrong whatever steps there are
    after: re.Pattern[str] | None = None  # wrong if this follows a step
    any_form: bool = True  # `step list`, `step 2` and `previous step` are steps too; else ids only

    def fits(self, inner: str, ids: "_Ids") -> bool:
        if self.certain and self.certain.fullmatch(inner):
            return True
        after = self.after
        return after is not None and any(after.fullmatch(rest) for rest in ids.rests(inner, any_form=self.any_form))


_WITH_DOLLAR = re.compile(r"\$\{\{\s{0,9}steps\.[^{}\n]{0,80}\}\}")  # as GitHub writes it: the $ would stay
_CERTAIN = _compile(r"\$\{\s{0,9}steps?[.\[][^{}\n]{1,80}\}|\$steps?\.[a-z0-9][\w.-]{0,80}\w")
_ANYWHERE = (
    _Rule(
        _compile(rf"\{{\{{{_INNER}\}}\}}"),
        _compile(rf"(?:{_SAID}{_MORE}|(?:outputs?|results?)[.\[]{_MORE})"),
        _compile(rf"(?:[.\[ _-]{_PART}{_MORE})?\s*"),
    ),
    _Rule(_compile(rf"\$\{{{_INNER}\}}"), after=_compile(rf"[.\[]{_PART}{_MORE}"), any_form=False),
    _Rule(_compile(rf"\$([a-z0-9][a-z0-9_-]{{0,62}}\.{_PART})\b"), after=_compile(r"\..*"), any_form=False),
    _Rule(
        _compile(rf"(?<!\{{)\{{\s{{0,9}}steps\.({_MORE}[^{{}}<>\n]{{0,64}})\}}(?!\}})"),
        after=_compile(rf"\.{_MORE}"),
        any_form=False,
    ),
    _Rule(
        _compile(r"<\s{0,9}([^<>\n]{1,200})>"),
        _compile(rf"{_SAID}[^<>\n]{{1,80}}|{_INSERT}[^<>\n]{{1,80}}"),
        _compile(rf"[ _.-]{_PART}\s*"),
    ),
    _Rule(
        _compile(r"\[\s{0,9}([^\[\]\n]{1,200})\]"),
        _compile(rf"{_SAID}(?:the\s+)?(?:steps?\b|{_EARLIER}\b)[^\[\]\n]{{0,60}}|{_INSERT}[^\[\]\n]{{1,80}}"),
    ),
    _Rule(
        _compile(rf"\[\s{{0,9}}{_SAID}(?:the\s{{1,9}})?([^\[\]\n]{{1,130}})\]"),
        after=_compile(r"(?:\W[^\[\]\n]{0,59})?"),
        any_form=False,
    ),
)
_IN_PROSE = (  # not in code, where the same means something else
    _Rule(
        _compile(rf"(?<!\{{)\{{{_INNER}\}}(?!\}})"),
        _compile(rf"{_SAID}{_MORE}"),
        _compile(rf"\.{_PART}{_MORE}"),
        any_form=False,
    ),
)
_WHOLE = (  # only as all of a text
    _Rule(
        _compile(r"(?:steps\.)?(.+)"),
        after=_compile(r"\.(?:output|result|stdout|file)[\w.\[\]-]*"),
        any_form=False,
    ),
    _Rule(_compile(r"\{\s*(.+)\}"), after=_compile(r"\s*"), any_form=False),
    _Rule(_compile(r"<\s*(.+)>"), after=_compile(r"\s*"), any_form=False),
    _Rule(_compile(r"\$\{\s*(.+)\}"), after=_compile(r"\s*"), any_form=False),
    _Rule(_compile(r"[$@](.+)"), after=_compile(r""), any_form=False),
    _Rule(
        _compile(rf"{_SAID}(?:the\s+)?(?:steps?\s+)?['\"]?(.+)"),
        after=_compile(r"['\"]?(?:\s+step)?\.?"),
    ),
    _Rule(
        _compile(rf"([<\[(][^<>\[\]()\n]{{0,100}}\b{_ENDING}\b[^<>\[\]()\n]{{0,40}}[>\])])"),
        _compile(r".*"),
    ),
)
_VARIABLE = _compile(r"\$\{?([a-z0-9_][a-z0-9_-]{0,140})\}?")  # $STEP_1: unless the text itself sets it
_CERTAIN_NAME = _compile(
    r"steps?_?[0-9]+\w*|(?:output|result)_of_\w+|(?:steps?_\w*|prev_|previous_)(?:output|result|step)\w*"
)
_HELD = _compile(r"_(?:output|result)(?!\w)")
_STEP_NAME = _compile(r"steps?_(.+)")
_SETS = re.compile(r"\b(\w{1,140})=|\b(?:for|read|read -r|export|local)\s{1,9}(\w{1,140})\b")
_NUMBERED = _compile(rf"steps?[ ._-]?[0-9]+|{_EARLIER}[ ._-]?step|{_EARLIER}")
_PREFIX = _compile(r"steps?[ ._-]?")


@dataclass(frozen=True, slots=True)
class _Ids:
    """The steps that a text may have meant: all but the one it is in."""

    known: Collection[str]
    own: str

    def rests(self, text: str, *, any_form: bool) -> Iterator[str]:
        """Yield what follows each step that a text begins with."""
        yield from self._after_id(text)
        if any_form:
            if numbered := _NUMBERED.match(text):
                yield text[numbered.end() :]
            if numbered and not numbered[0][-1].isdigit() and numbered[0].lower().endswith("step"):
                yield text[len(re.split(r"[ ._-]?step", numbered[0], flags=re.IGNORECASE)[0]) :]
            if prefix := _PREFIX.match(text):
                yield from self._after_id(text[prefix.end() :])
                yield from self._after_id(text[prefix.end() - 1 :]) if prefix[0][-1] in "_-" else ()

    def _after_id(self, text: str) -> Iterator[str]:
        start = text[:_LONGEST_ID].lower().replace("_", "-")
        for length in range(1, len(start) + 1):
            if (name := start[:length]) in self.known and name != self.own:
                yield text[length:]


def wrong_references(text: str, ids: Collection[str], own: str = "", *, code: bool) -> Iterator[str]:
    """Yield what in a text of the step `own` was meant to be a reference and is none; `code`: a program's text."""
    steps = _Ids(ids, own)
    if not any(name != own for name in islice(ids, 2)):
        return
    found: dict[str, None] = {match[0]: None for match in islice(_WITH_DOLLAR.finditer(text), _MOST)}
    text = _without_references(text)
    for match in islice(_candidates(text, steps, code=code), _MOST):
        found[match] = None
    stripped = text.strip()
    if not code and len(stripped) <= _LONGEST_WHOLE and any(_is_whole(rule, stripped, steps) for rule in _WHOLE):
        found[stripped] = None
    yield from (one for one in found if not any(one != other and one in other for other in found))


def _candidates(text: str, ids: _Ids, *, code: bool) -> Iterator[str]:
    yield from (match[0] for match in _CERTAIN.finditer(text))
    for rule in (*_ANYWHERE, *(() if code else _IN_PROSE)):
        yield from (match[0] for match in rule.marks.finditer(text) if rule.fits(match[1], ids))
    yield from _variables(text, ids)


def _is_whole(rule: _Rule, text: str, ids: _Ids) -> bool:
    match = rule.marks.fullmatch(text)
    return match is not None and rule.fits(match[1], ids)


def _variables(text: str, ids: _Ids) -> Iterator[str]:
    """Yield the variables of a shell text that are named after a step and that it does not set itself."""
    if "$" not in text:
        return
    is_set = {name for pair in _SETS.findall(text) for name in pair if name}
    for match in _VARIABLE.finditer(text):
        if (name := _named_after_step(match[1], ids)) and name not in is_set:
            braces = text[match.start() + 1] == "{"
            yield match[0] if name == match[1] else f"${'{' if braces else ''}{name}"


def _named_after_step(run: str, ids: _Ids) -> str | None:
    """Return the variable that a run of letters begins with, if it is one that would hold the output of a step."""
    word = re.split("-", run, maxsplit=1)[0]
    if _CERTAIN_NAME.fullmatch(word):
        return word
    if (rest := _STEP_NAME.fullmatch(run)) and any(True for _ in ids.rests(rest[1], any_form=False)):
        return run
    for after in ids.rests(run, any_form=False):
        if held := _HELD.match(after):
            return run[: len(run) - len(after) + held.end()]
    return None


def _without_references(text: str) -> str:
    """Return a text with blanks where good references are."""
    spans = spans_of(find(text))
    return replace_spans(text, spans, [" " * (end - start) for start, end in spans])


def proves_nothing(words: str) -> bool:
    """Whether a condition would be true of any step: 'the step completes successfully'."""
    return _NOTHING_SAID.issuperset(re.findall(r"\w+", words.lower()))


def always_true(command: str) -> bool:
    """Whether a command exits with 0 whatever happened."""
    return _ALWAYS_TRUE.fullmatch(command) is not None

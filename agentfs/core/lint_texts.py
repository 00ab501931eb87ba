"""Texts that were meant to refer to a step and do not, and words that prove nothing. Pure: patterns, no plans.

Models write `{{list}}`, `${steps.list.output}`, `<output of list>`, `$STEP_1_OUTPUT`: each would reach a tool as it
stands. A pattern here is narrow on purpose: braces, dollars and brackets mean something in every other language.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agentfs.core.reftext import find

_PART = r"(?:output|result|stdout|content|text|value|response|file|path)s?"
_SAID = r"(?:the\s+)?(?:output|result|content|stdout|text|value|response|summary|answer|list)s?\s+(?:of|from)\s+"
_EARLIER = r"(?:previous|prior|preceding|last)"
_MORE = r"[^{}<>\n]{0,60}"
_INSERT = r"(?:insert|paste|fill\s+in|put)\b"
_ENDING = r"(?:here|goes\s+here|placeholder|to\s+be\s+filled(?:\s+in)?|tbd)"

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
_WITH_DOLLAR = re.compile(r"\$\{\{\s*steps\.[^{}\n]{0,80}\}\}")  # as GitHub writes it: the $ would stay
_ALWAYS_TRUE = re.compile(
    r"\s*(?:true|/bin/true|:|exit 0|test 1|\[ 1 \]|test 1 = 1|echo\b[^|&;<>`$()]*|printf\b[^|&;<>`$()]*)\s*"
)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The wrong forms of a reference to one of these steps."""

    anywhere: tuple[re.Pattern[str], ...]  # in any text
    in_prose: tuple[re.Pattern[str], ...]  # not in code, where the same means something else
    whole: tuple[re.Pattern[str], ...]  # only as all of a text
    variable: re.Pattern[str]  # $STEP_1: unless the text itself sets it


@lru_cache(maxsize=64)
def _patterns(ids: tuple[str, ...]) -> Patterns:
    spelt = {form for name in ids for form in (name, name.replace("-", "_"))}
    one = "(?:" + "|".join(sorted(map(re.escape, spelt), key=lambda word: (-len(word), word))) + ")"
    step = rf"(?:steps?[ ._-]?)?{one}|steps?[ ._-]?[0-9]+|{_EARLIER}(?:[ ._-]?step)?"
    named = rf"(?:{step})(?:[.\[ _-]{_PART}{_MORE})?"

    def compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)

    return Patterns(
        anywhere=compiled(
            rf"\{{\{{\s*(?:{named}|{_SAID}{_MORE}|(?:outputs?|results?)[.\[]{_MORE})\s*\}}\}}",
            r"\$\{\s*steps?[.\[][^{}\n]{1,80}\}|\$steps?\.[a-z0-9][\w.-]*\w",
            rf"\$\{{\s*{one}[.\[]{_PART}{_MORE}\}}|\${one}\.{_PART}\b",
            rf"(?<!\{{)\{{\s*steps\.{one}\.{_MORE}\}}(?!\}})",
            rf"<\s*(?:{_SAID}[^<>\n]{{1,80}}|(?:{step})[ _.-]{_PART}\s*|{_INSERT}[^<>\n]{{1,80}})>",
            rf"\[\s*(?:{_SAID}(?:the\s+)?(?:steps?\b|{_EARLIER}\b|{one}\b)[^\[\]\n]{{0,60}}|{_INSERT}[^\[\]\n]{{1,80}})\]",
        ),
        in_prose=compiled(rf"(?<!\{{)\{{\s*(?:{_SAID}{_MORE}|{one}\.{_PART}{_MORE})\}}(?!\}})"),
        whole=compiled(
            rf"(?:steps\.)?{one}\.(?:output|result|stdout|file)[\w.\[\]-]*",
            rf"\{{\s*{one}\s*\}}|<\s*{one}\s*>|[$@]{one}|\$\{{\s*{one}\s*\}}",
            rf"{_SAID}(?:the\s+)?(?:steps?\s+)?['\"]?(?:{step})['\"]?(?:\s+step)?\.?",
            rf"[<\[(][^<>\[\]()\n]{{0,100}}\b{_ENDING}\b[^<>\[\]()\n]{{0,40}}[>\])]",
        ),
        variable=re.compile(
            rf"\$\{{?(steps?_?[0-9]+\w*|steps?_{one}\w*|{one}_(?:output|result)|(?:output|result)_of_\w+"
            r"|(?:steps?_\w*|prev_|previous_)(?:output|result|step)\w*)\}?",
            re.IGNORECASE,
        ),
    )


def wrong_references(text: str, ids: Collection[str], *, code: bool) -> Iterator[str]:
    """Yield what in a text was meant to be a reference and is none; `code`: the text is a program's."""
    if not ids:
        return
    patterns = _patterns(tuple(sorted(ids)))
    found: dict[str, None] = {match[0]: None for match in _WITH_DOLLAR.finditer(text)}
    text = _without_references(text)
    for pattern in (*patterns.anywhere, *(() if code else patterns.in_prose)):
        found |= {match[0]: None for match in pattern.finditer(text)}
    stripped = text.strip()
    if not code and any(pattern.fullmatch(stripped) for pattern in patterns.whole):
        found[stripped] = None
    found |= {match[0]: None for match in patterns.variable.finditer(text) if not _is_set(match[1], text)}
    yield from (one for one in found if not any(one != other and one in other for other in found))


def _without_references(text: str) -> str:
    """Return a text with blanks where good references stand."""
    for one in find(text):
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    return text


def _is_set(name: str, text: str) -> bool:
    """Whether a shell text itself gives a variable its value."""
    return bool(re.search(rf"\b{re.escape(name)}=|\b(?:for|read|read -r|export|local)\s+{re.escape(name)}\b", text))


def proves_nothing(words: str) -> bool:
    """Whether a condition would be true of any step: 'the step completes successfully'."""
    return _NOTHING_SAID.issuperset(re.findall(r"\w+", words.lower()))


def always_true(command: str) -> bool:
    """Whether a command exits with 0 whatever happened."""
    return _ALWAYS_TRUE.fullmatch(command) is not None

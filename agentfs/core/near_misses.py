"""What is in a runbook, reads as prose, and was surely meant as a line with a meaning. Pure.

A check that is misspelt would never run, and nobody would notice. So a line that begins with a form's keyword is
refused where the rest of it leaves no doubt: marks around it (`**check:**`, `> check:`, `1. check:`, an indent),
another sign for the colon (`check - …`), or none and a value that the form itself would take. `Check the logs.` is
prose.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentfs.core.markdown import Block, Fence, Heading, Prose
from agentfs.core.problems import Problem
from agentfs.core.step_lines import LINES, LineForm, LineValue, code_span, names_in, read_line, takes_value
from agentfs.core.text import one_line

_DASHES = "-\u2013\u2014"
_WIDE_COLON = "\uff1a"
_TAG = r"</?[A-Za-z]{1,6}>"
_LEAD = re.compile(rf"(?:[0-9]{{1,3}}[.)]\s|\[[ xX]\]|{_TAG}|[^\w{{}}]|_)*")  # all that may come before a first word
_WORDS = re.compile(r"[A-Za-z]+(?:(?:[ \t]+|[_-])[A-Za-z]+){0,2}")
_BETWEEN = re.compile(r"[ \t]+|[_-]")
_REST = re.compile(
    rf"(?P<closing>(?:[*_~\"'\u201d\u2019)\]`]|{_TAG})*)(?P<before>\s*)"
    rf"(?P<sign>[:\uff1a]|=>|->|→|[{_DASHES}]+|[=|,;.!(#])?"
    rf"(?P<marks>(?:[*_~]|{_TAG})*)(?P<behind>\s*)(?P<value>.*)",
    re.DOTALL,
)
_MARKS = " \t*_~|\"'\u201d\u2019"
_CONTINUES = re.compile(r"(?:because|since|if|when|unless)\b", re.IGNORECASE)
_YES_OR_NO = ("yes", "no", "true", "false", "on", "off")
_NEXT_SENTENCE = re.compile(r"[.!?;][ \t]+(?=[a-z])")
_AROUND = " \t#*_~`>:.-0123456789()"  # what may be around the word of a heading
_HASHES = re.compile(r"[>\s]*#{1,6}")
_STEP_HASHES = re.compile(r"(?:[>\s]|[-*+]\s)*(?P<hashes>#{2,3})(?!#)(?P<text>[ \t]*\S.*)")
_FENCE = re.compile(
    r"(?P<lead>(?:[>\s]|[-*+]\s|[0-9]{1,3}[.)]\s)*)(?P<marks>`{3,}|~{3,})(?P<words>[ \t]*[\w-][^`]*)\Z"
)
_SHORTEST = 4  # of a keyword that can be misspelt: what is shorter is near to too many words
_LONGEST = 2000  # characters of a line in which other sentences are looked for
_SHOWN = 60
_STEPS_LINE = re.compile(r"^ {0,3}##[ \t]*steps[: \t#]*$", re.MULTILINE | re.IGNORECASE)
CLOSE_FENCE = "end it with a line of the same marks"

_EXACT = {form.keyword.replace(" ", ""): form for form in LINES}
_OTHER = {name: form for form in LINES for name in form.also}
_BY_LETTER = {
    letter: [one for one in LINES if one.keyword[0] == letter] for letter in {one.keyword[0] for one in LINES}
}

Spelling = Literal["exact", "misspelt", "other"]
Separator = Literal["colon", "dash", "stop", "sign", "nothing"]  # what is between keyword and value


@dataclass(frozen=True, slots=True)
class Known:
    """What a value may name."""

    steps: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line, read as if it were meant as one of the forms."""

    form: LineForm
    spelling: Spelling
    separator: Separator
    value: str
    quoted: bool  # the keyword alone is set as code
    sentence: bool  # it begins with a capital letter and ends as a sentence does

    @property
    def takes_command(self) -> bool:
        return self.form.read is LINES[0].read


def _near_form(prose: Prose, known: Known, *, continues: bool = False) -> Problem | None:
    """Return what to write in place of a line that is nearly a form; None for prose.

    `continues`: the line above is prose whose sentence has not ended.
    """
    found = _at_start(prose.text, known, continues=continues) or _behind_a_sentence(prose.text)
    if found is None:
        return None
    form, value, start = found
    fix = f"{_corrected_line(form, value)}; if it is prose, begin it with another word"
    message = f"{one_line(prose.text, _SHOWN)!r} is not a line a step can hold"
    return Problem(message, fix, form.pointer, prose.line, prose.column + start)


def _corrected_line(form: LineForm, value: str) -> str:
    """Return the line as it should be, or an example of it if what it says is wrong as well."""
    if form.takes == "nothing" or not takes_value(form, value):
        return form.write
    return f"write {form.keyword}: {value}"


def _at_start(text: str, known: Known, *, continues: bool) -> tuple[LineForm, str, int] | None:
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    for candidate in _candidates(text, start):
        is_meant = _is_flag if candidate.form.takes == "nothing" else _is_form
        if is_meant(candidate, known, continues=continues):
            return candidate.form, candidate.value, start
    return None


def find_near_miss(prose: Prose, known: Known, *, continues: bool = False) -> Problem | None:
    """Return what is wrong with a line that is read as prose, and is nearly a heading, a fence or a form."""
    return near_step_heading(prose) or near_fence(prose) or _near_form(prose, known, continues=continues)


def _behind_a_sentence(text: str) -> tuple[LineForm, str, int] | None:
    """Return a form that is on the same line as the words before it: `Copy the rows. retries: 2`."""
    for match in _NEXT_SENTENCE.finditer(text, 0, _LONGEST):
        if (found := read_line(text[match.end() :])) is None:
            continue
        form, value = found.form, found.value
        if form.takes == "value" and form.names != "tools" and takes_value(form, value):
            return form, value, match.end()
    return None


# ── keywords ──────────────────────────────────────────────────────────────────────────────────────────────


def _candidates(text: str, start: int) -> Iterator[_Candidate]:
    """Yield every way to read a line as a form, the longest keyword first."""
    words = _WORDS.match(text, start)
    if words is None or text[words.end() : words.end() + 1].isalnum():
        return
    ends = [words.start() + match.start() for match in _BETWEEN.finditer(words[0])]
    for end in (words.end(), *reversed(ends)):
        for form, spelling in _forms(text[start:end]):
            yield _candidate(form, spelling, text, start, end)


def _forms(words: str) -> Iterator[tuple[LineForm, Spelling]]:
    """Yield the forms that these words may be the keyword of."""
    words = _BETWEEN.sub(" ", words.lower())
    if form := _EXACT.get(words.replace(" ", "")):
        yield form, "exact"
    elif form := _OTHER.get(words):
        yield form, "other"
    else:
        near = (form for form in _BY_LETTER.get(words[0], ()) if is_one_letter_off(words, form.keyword))
        yield from ((form, "misspelt") for form in near)


def is_one_letter_off(word: str, keyword: str) -> bool:
    """Whether one letter too many, too few, wrong, or two swapped make the difference; the first is always right."""
    if len(keyword) < _SHORTEST or word[:1] != keyword[:1] or abs(len(word) - len(keyword)) > 1 or word == keyword:
        return False
    at = next((n for n, (one, other) in enumerate(zip(word, keyword, strict=False)) if one != other), len(keyword))
    rests = (word[at + 1 :], keyword[at:]), (word[at:], keyword[at + 1 :]), (word[at + 1 :], keyword[at + 1 :])
    swapped = word[at : at + 2] == keyword[at : at + 2][::-1] and word[at + 2 :] == keyword[at + 2 :]
    return swapped or any(one == other for one, other in rests)


def _candidate(form: LineForm, spelling: Spelling, text: str, start: int, end: int) -> _Candidate:
    rest = _REST.match(text, end)
    assert rest is not None, "it matches the empty text"  # noqa: S101
    separator, value, closing = _separator(rest), rest["value"].rstrip(_MARKS), rest["closing"]
    is_code = text[:start].endswith("`")
    if "`" in closing and not is_code:  # the value itself begins there: check`false`
        separator, value, closing = "nothing", text[end:].strip(), ""
    if is_code and value.startswith("` "):  # `check:` and its value
        separator, value, closing = "colon", value[2:].lstrip(), "`"
    one = _Candidate(form, spelling, separator, value, is_code and "`" in closing, _is_sentence(text[start:]))
    if is_code and not one.quoted:  # all of it is set as code
        value = value.rstrip("`").rstrip()
        one = replace(one, value=f"`{value}`" if value and one.takes_command else value)
    return one if code_span(one.value) else replace(one, value=one.value.rstrip(".,;"))


def _separator(rest: "re.Match[str]") -> Separator:
    sign, before, behind = rest["sign"] or "", bool(rest["before"]), bool(rest["behind"])
    if not sign:
        return "nothing"
    if sign == _WIDE_COLON or (sign == ":" and (behind or rest["marks"] or not rest["value"])):
        return "colon"
    if sign[0] in _DASHES and before and behind:
        return "dash"
    is_stop = (sign in ",;.!" and behind) or (sign in "(#" and before)
    return "stop" if is_stop else "sign"


def _is_sentence(text: str) -> bool:
    return text[:1].isupper() and text.endswith((".", "!", "?"))


# ── what leaves no doubt ──────────────────────────────────────────────────────────────────────────────────


def _is_flag(one: _Candidate, known: Known, *, continues: bool) -> bool:
    if not one.value:
        return True
    if one.spelling != "exact" or one.quoted:
        return False
    if one.separator == "colon" or one.value.lower() in _YES_OR_NO:
        return True
    if one.separator == "nothing" and (read_line(one.value) or _begins_with_a_value(one.value, known)):
        return True  # two forms on one line
    return not continues and (one.separator in ("dash", "stop") or bool(_CONTINUES.match(one.value)))


def _begins_with_a_value(text: str, known: Known) -> bool:
    return any(one.form.takes != "nothing" and _is_form(one, known, continues=False) for one in _candidates(text, 0))


def _is_form(one: _Candidate, known: Known, *, continues: bool) -> bool:
    fits = one.form.takes != "words" and takes_value(one.form, one.value)
    if one.separator == "colon" and one.spelling != "other" and not one.quoted and one.form.names != "tools":
        return True
    if one.separator == "dash" and one.spelling == "exact" and not one.quoted:
        return fits or not continues
    if one.separator in ("colon", "dash"):
        return fits and (one.form.names != "tools" or _is_known(one.form, one.value, known))
    if one.takes_command and (one.spelling == "other" or one.sentence):
        return False  # `Verify `nginx -t`` and `Check `app.db`.` are how people write
    return fits and _is_known(one.form, one.value, known)


def _is_known(form: LineForm, value: str, known: Known) -> bool:
    """Whether all that a value names is there; one that names nothing is known."""
    there = {"steps": known.steps | {"nothing"}, "tools": known.tools}.get(form.names)
    return there is None or all(name in there for name, _ in names_in(LineValue(form, value, 1, 1)))


# ── headings, and lines outside every step ────────────────────────────────────────────────────────────────


def near_steps_heading(blocks: Sequence[Block], at: int) -> Problem | None:
    """Return what to write in place of a heading that is nearly `## Steps`; None for any other block."""
    block = blocks[at]
    if not isinstance(block, Heading | Prose) or len(block.text) > _SHOWN:
        return None
    word = block.text.strip(_AROUND).lower()
    if word != "steps" and not is_one_letter_off(word, "steps"):
        return None
    is_meant = isinstance(block, Prose) and _HASHES.match(block.text)
    if not is_meant and not _holds_steps(blocks[n] for n in range(at + 1, len(blocks))):
        return None  # `Steps` may well be a word of a goal in words
    shown = f"{'#' * block.level} {block.text}" if isinstance(block, Heading) else block.text
    fix = "write ## Steps: two signs, a blank, the word, at the start of the line"
    column = 1 if isinstance(block, Heading) else block.column
    return Problem(f"{shown!r} does not begin the steps", fix, "/steps", block.line, column)


def _holds_steps(below: Iterable[Block]) -> bool:
    """Whether the next heading is one of a step, and has a fence."""
    is_step = False
    for block in below:
        match block:
            case Fence() if is_step:
                return True
            case Heading() if is_step or block.level != 3:
                return False
            case Heading():
                is_step = True
            case Prose() if _STEP_HASHES.match(block.text):
                is_step = True
            case _:
                pass
    return False


def near_step_heading(prose: Prose) -> Problem | None:
    """Return what to write in place of a line that is nearly the heading of a step, or of the next section."""
    match = _STEP_HASHES.match(prose.text)
    if not match or (match["hashes"] == "##" and match.start("hashes")):
        return None
    fix = f"write {match['hashes']} {match['text'].strip()}: a blank behind the signs, at the start of the line"
    message = f"{one_line(prose.text, _SHOWN)!r} is not a heading"
    return Problem(message, fix, "", prose.line, prose.column + match.start("hashes"))


def near_fence(prose: Prose) -> Problem | None:
    """Return what to write in place of a line that would begin a fence if it stood further to the left."""
    match = _FENCE.match(prose.text)
    if not match or not (prose.indented or match["lead"]):
        return None
    fix = f"write {match['marks']}{match['words'].strip()} at the start of the line"
    return Problem("this fence is read as prose", fix, "/tool", prose.line, prose.column + match.start("marks"))


def line_outside_steps(prose: Prose, *, in_section: bool) -> Problem | None:
    """Return what is wrong with a line that has a meaning and is in no step. Outside `## Steps` it is a check."""
    found = None if prose.indented else read_line(prose.text.lstrip("-*+ "))
    if found is None:
        return find_near_miss(prose, Known()) if in_section else None
    if not in_section and found.form.field == "checks" and takes_value(found.form, found.value):
        fix = "put it below the step's ### heading; one of the whole goal goes into the front matter, under checks:"
        return prose.problem("this check belongs to no step, and would not be run", fix)
    is_sure = found.form.takes == "nothing" or (found.form.takes == "value" and takes_value(found.form, found.value))
    if not in_section or not is_sure or found.form.names == "tools":
        return None
    message = f"this line, {one_line(prose.text, _SHOWN)!r}, belongs to no step"
    return prose.problem(message, "put it below a ### heading with the step's id", "/steps")


def outside_steps(blocks: Sequence[Block], section: Sequence[Block]) -> Iterator[Problem]:
    """Yield what is outside every step, where nobody reads it, and was surely meant for one."""
    first = next((block.line for block in section if isinstance(block, Heading) and block.level == 3), None)
    begin, end = (section[0].line, section[-1].line) if section else (0, 0)
    for block in blocks:
        in_section = begin <= block.line <= end
        if in_section and first is not None and block.line >= first:
            continue
        if isinstance(block, Fence) and not block.closed and not in_section:
            yield block.problem("this fence is never closed", CLOSE_FENCE)
        elif isinstance(block, Prose) and (problem := line_outside_steps(block, in_section=in_section)):
            yield problem


def near_runbook(blocks: Sequence[Block]) -> Iterator[Problem]:
    """Yield what keeps a text without `## Steps` from having one: a heading nearly like it, a fence left open."""
    for at, block in enumerate(blocks):
        if isinstance(block, Fence) and not block.closed and _STEPS_LINE.search(block.body):
            yield block.problem("this fence is never closed: '## Steps' below is part of it", CLOSE_FENCE)
        elif problem := near_steps_heading(blocks, at):
            yield problem

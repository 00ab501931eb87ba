"""Hides the values of secrets in everything that is written. Pure: the environment arrives as a mapping.

What is masked is text that tools, models and people wrote: the foreign fields of records, the values in a line of a
log, the bytes of an output. What agentfs writes around it (names of fields, ids, statuses, hashes, file names) never
is: a secret whose value is an ordinary word makes no record unreadable.
"""

import base64
import html
import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar, get_args
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import BaseModel

from agentfs.core.config import Settings
from agentfs.core.records import Foreign, Record

MARKS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL")
SETTING = "AGENTFS_"  # a variable that begins so is a setting, whatever else its name says: AGENTFS_LIMITS_TOKENS
SHORTEST = 6  # characters: a shorter value occurs in ordinary words and numbers, and no real key is that short
LONG_LINE = 16  # characters: a line of that length of a secret of several lines is a secret of its own
PIECE = 1024  # characters: a longer secret is looked for in pieces
WRAPPED_AT = 20  # characters: a line break behind fewer than that does not wrap a text
R = TypeVar("R", bound=Record)

_ORDINARY = re.compile(
    r"(XDG_|LC_).*|.*(PATH|HOME|DIR|PREFIX|SOCK)|LANG|LANGUAGE|TZ|TERM|COLORTERM|SHELL|USER|LOGNAME|PWD|TMP|TEMP"
    r"|EDITOR|VISUAL|PAGER|DISPLAY|HOSTNAME|VIRTUAL_ENV"
)  # they say who and where: no secrets, although settings may name them
_FIXED = frozenset(
    {"string", "number", "integer", "boolean", "array", "object", "null"}  # JSON Schema
    | {"stop", "length", "tool_calls", "content_filter"}  # why a reply ended
)
_START = 8
_PERCENT = re.compile("%[0-9A-F]{2}")
_URLSAFE = str.maketrans("+/", "-_")
_BASE64 = "[A-Za-z0-9+/_-]"
_GAP = r"(?:\s|\\[rn])*"
_BREAKS = {
    (cr, lf): re.compile(rf"{end}(?:(?<=\S{{{WRAPPED_AT}}}{end})|(?<=\S{{{WRAPPED_AT}}}{re.escape(cr)}{end}))[ \t]*")
    for cr, lf, end in (("\r", "\n", r"\n"), (r"\r", r"\n", r"\\n"))  # as they are, and as JSON writes them
}


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    return any(mark in name.upper() for mark in MARKS) and not name.startswith(SETTING)


def given_secrets(names: Iterable[str]) -> Iterator[str]:
    """Yield the variables given to tools whose values count as secrets: all but PATH, HOME, LANG and their like."""
    return (name for name in names if not _ORDINARY.fullmatch(name))


_ADDRESS = re.compile(r".*_(URL|HOST|ENDPOINT|MODEL|PROVIDER|PROJECT|REGION|RETRIES)")


def _is_address(name: str, value: str) -> bool:
    """Whether a variable says which service and model an agent asks, and holds no password."""
    return _ADDRESS.fullmatch(name) is not None and "@" not in value and "?" not in value


def mask_for(settings: Settings, environment: Mapping[str, str], tools: Collection[str]) -> "SecretMask":
    """Return the mask of a process: over variables that settings name, or whose names say it, and over passwords."""
    models = {"planner": settings.planner, "executor": settings.executor}
    urls = {f"{role}.base_url": model.base_url for role, model in models.items()}
    urls["OPENAI_BASE_URL"] = environment.get("OPENAI_BASE_URL", "")
    passwords = {name: password for name, url in urls.items() if (password := _password(url))}
    to_servers = (name for server in settings.mcp.servers for name in settings.mcp.server(server).env)
    given = given_secrets((*settings.tools.env, *to_servers))
    named = (*(model.api_key_env for model in models.values()), *given, *passwords)
    to_agents = given_secrets(name for agent in settings.agents.values() for name in agent.env or ())
    named = (*named, *(name for name in to_agents if not _is_address(name, environment.get(name, ""))))
    return SecretMask({**environment, **passwords}, named, fixed=tools)


class SecretMask:
    """Replaces each value by `[secret NAME]`, as it is or in one of the forms in which values are written.

    `named`: variables that count as secrets although their names do not say so. `fixed`: words, like the names of
    tools, that stay where one of them is all of a text.
    """

    def __init__(self, environ: Mapping[str, str], named: Iterable[str] = (), *, fixed: Collection[str] = ()) -> None:
        self._environ, self._named, self._fixed = environ, frozenset(named), _FIXED.union(fixed)
        values = {
            name: value.strip()
            for name, value in sorted(environ.items())
            if (is_secret(name) or name in self._named) and len(value.strip()) >= SHORTEST
        }
        self._numbers = {value: f"[secret {name}]" for name, value in values.items() if value.isdecimal()}
        forms: dict[str, _Form] = {}
        for name, value in values.items():
            for form in _forms(value, f"[secret {name}]"):
                if not any(form.text in f"[secret {other}]" for other in values):  # else the mask would mask itself
                    forms.setdefault(form.text, form)
        self._text = _Finder(forms.values())
        self._data = _Finder(form.in_bytes() for form in forms.values())

    def also(self, named: Iterable[str]) -> "SecretMask":
        """Return the mask that counts these variables, too."""
        more = self._named.union(named)
        return self if more == self._named else SecretMask(self._environ, more, fixed=self._fixed)

    def hiding(self, values: Mapping[str, str]) -> "SecretMask":
        """Return the mask that hides these, too: a name to show, and the value in whose place it is shown."""
        if not values:
            return self
        return SecretMask({**self._environ, **values}, self._named.union(values), fixed=self._fixed)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._text.mask(text)

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets, whatever text they are."""
        return self._data.mask(data.decode("latin-1")).encode("latin-1") if self._data else data

    def stream(self) -> "MaskedStream":
        """Return what masks bytes as they come."""
        return MaskedStream(self._data)

    def value(self, value: Any, *, keys: bool = False, ours: Collection[str] = ()) -> Any:
        """Return a JSON value with every text in it masked.

        `keys`: the names in it are foreign, too. `ours`: names of fields whose texts are agentfs's own.
        """
        match value:
            case str():
                return value if value in self._fixed else self._text.mask(value)
            case list() | tuple():
                return [self.value(item, keys=keys, ours=ours) for item in value]
            case dict():
                masked = {name: self._under(name, item, keys=keys, ours=ours) for name, item in value.items()}
                return self._rename(masked) if keys else masked
            case int() if self._numbers:
                return self._numbers.get(str(value), value)
            case _:
                return value

    def _under(self, name: str, value: Any, *, keys: bool, ours: Collection[str]) -> Any:
        return value if name in ours and isinstance(value, str) else self.value(value, keys=keys, ours=ours)

    def _rename(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object with the names in it masked, and nothing lost where two become one."""
        masked: dict[str, Any] = {}
        for name, item in value.items():
            shown = self._text.mask(name)
            again = (f"{shown} {number}" for number in count(2))
            masked[shown if shown not in masked else next(one for one in again if one not in masked)] = item
        return masked

    def record(self, record: R) -> R:
        """Return a record with its foreign fields masked; nothing else of it changes."""
        if not self._text:
            return record
        source = record.model_dump(mode="json", by_alias=True)
        masked = self._mask_records(source, (type(record),))
        return record if masked == source else type(record).model_validate_json(json.dumps(masked))

    def _mask_records(self, value: Any, classes: tuple[type[BaseModel], ...], *, keys: bool = True) -> Any:
        """Return what records of these classes hold, with foreign fields masked; names in a plan stay as they are."""
        if isinstance(value, list):
            return [self._mask_records(item, classes, keys=keys) for item in value]
        if not isinstance(value, dict):
            return value
        shape, masked = _shape(classes), dict(value)
        for name in shape.keys() & value.keys():
            match shape[name]:
                case Foreign(form=None):
                    masked[name] = self.value(value[name], keys=keys)
                case Foreign(form=type() as form):
                    masked[name] = self._mask_records(value[name], (form,), keys=False)
                case tuple() as inner:
                    masked[name] = self._mask_records(value[name], inner, keys=keys)
        return masked


class MaskedStream:
    """Masks bytes as they come, and keeps back only what may be the beginning of a secret."""

    def __init__(self, finder: "_Finder") -> None:
        self._finder, self._before, self._rest = finder, "", ""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return what is known now, masked."""
        if not self._finder:
            return chunk
        text = self._rest + chunk.decode("latin-1")
        known, self._rest = self._finder.split(text, self._before)
        self._before = (self._before + text[: len(text) - len(self._rest)])[-2 * WRAPPED_AT :]
        return known.encode("latin-1")

    def end(self) -> bytes:
        """Return what was kept back, masked."""
        rest, self._rest = self._rest, ""
        return self._finder.mask(rest).encode("latin-1")


@lru_cache
def _shape(classes: tuple[type[BaseModel], ...]) -> dict[str, Foreign | tuple[type[BaseModel], ...]]:
    """Return which fields of records are foreign, and which hold records."""
    found: dict[str, Foreign | tuple[type[BaseModel], ...]] = {}
    for name, field in ((name, field) for one in classes for name, field in one.model_fields.items()):
        parts = [*field.metadata, *_parts_of(field.annotation)]
        foreign = next((part for part in parts if isinstance(part, Foreign)), None)
        inner = tuple(part for part in parts if isinstance(part, type) and issubclass(part, Record))
        if foreign or inner:
            found[field.alias or name] = foreign or inner
    return found


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Yield everything that a type is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts_of(part)


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to write a secret, and what is written instead."""

    text: str
    label: str
    before: bool = False  # in base64: the character before it holds a part of it
    after: bool = False  # and the one behind it

    def in_bytes(self) -> "_Form":
        """Return the same for bytes that were read as Latin-1."""
        text, label = (_raw(one).decode("latin-1") for one in (self.text, self.label))
        return replace(self, text=text, label=label)

    def pattern(self, *, wrapped: bool) -> str:
        signs = _GAP.join(map(re.escape, self.text)) if wrapped else re.escape(self.text)
        return f"({_BASE64 + '?' if self.before else ''}{signs}{_BASE64 + '?' if self.after else ''})"


def _forms(value: str, label: str) -> Iterator[_Form]:
    for part in _parts(value):
        for text in _spellings(part):
            yield _Form(text, label)
        for text, before, after in _in_base64(_raw(part)):
            for form in {text, text.translate(_URLSAFE), text.replace("/", r"\/"), *_quote(text.encode())}:
                yield _Form(form, label, before, after)


def _parts(value: str) -> list[str]:
    """Return what of a secret may stand alone: all of it, and each long line of several; in pieces if need be."""
    lines = [line.strip() for line in value.splitlines()]
    long = [line for line in lines if len(line) >= LONG_LINE and not line.startswith("-----")]
    parts = [value, *long] if len(lines) > 1 else [value]
    return [piece for part in parts for piece in _pieces(part)]


def _pieces(part: str) -> list[str]:
    pieces = [part[at : at + PIECE] for at in range(0, len(part), PIECE)]
    return [piece for piece in pieces if len(piece) >= SHORTEST]


def _spellings(value: str) -> set[str]:
    raw = _raw(value)
    in_json = {json.dumps(value, ensure_ascii=only_ascii)[1:-1] for only_ascii in (True, False)}
    in_json |= {json.dumps(text, ensure_ascii=False)[1:-1] for text in in_json}  # JSON in JSON
    in_json |= {text.replace("/", r"\/") for text in in_json}
    in_html = {html.escape(value), html.escape(value, quote=False)}
    return {value, repr(value)[1:-1], raw.hex(), raw.hex().upper(), *_quote(raw), *in_json, *in_html}


def _quote(raw: bytes) -> set[str]:
    """Return bytes as addresses hold them."""
    upper = {quote(raw, safe=""), quote(raw), quote(raw, safe="!'()*"), quote_plus(raw)}
    return upper | {_PERCENT.sub(lambda found: found[0].lower(), text) for text in upper}


def _in_base64(raw: bytes) -> Iterator[tuple[str, bool, bool]]:
    """Yield what base64 makes of bytes, wherever they are in what is encoded; and if its neighbours hold some."""
    for shift in range(3):
        encoded, end = base64.b64encode(bytes(shift) + raw).decode(), shift + len(raw)
        yield encoded[-(-shift * 8 // 6) : end * 8 // 6], shift > 0, end % 3 > 0


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _password(url: str) -> str | None:
    try:
        return unquote(urlsplit(url).password or "") or None
    except ValueError:
        return None


# ── finding them ──────────────────────────────────────────────────────────────────────────────────────────

Hits = tuple[tuple[_Form, bool], ...]  # forms, and whether line breaks have to be looked through for them
Spans = list[tuple[int, int]]


class _Finder:
    """Finds the forms of all secrets. To look for each by itself is many times faster than one pattern for all."""

    def __init__(self, forms: Iterable[_Form]) -> None:
        self._forms = sorted(forms, key=lambda form: len(form.text), reverse=True)
        self._texts = sorted(form.text for form in self._forms)
        self._begins = {text[:length] for text in self._texts for length in range(1, _START + 1)}
        self._longest = max(map(len, self._texts), default=0)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def mask(self, text: str) -> str:
        """Return a text with labels in the places of secrets."""
        hits = self._hits(text, _breaks(text)) if self._forms else ()
        return _substitute(hits, text) if hits else text

    def split(self, text: str, before: str) -> tuple[str, str]:
        """Return what is known of a text, masked, and its end, which may be the beginning of a secret.

        `before`: what came before it.
        """
        breaks = [(start, end) for start, end in _breaks(before + text, -len(before)) if start >= 0]
        known, hits = self._known_length(text, breaks), self._hits(text, breaks)
        if not hits:
            return text[:known], text[known:]
        whole = (found.start() for found in _pattern(hits).finditer(text) if found.start() < known < found.end())
        known = min(whole, default=known)
        return _substitute(hits, text[:known]), text[known:]

    def _hits(self, text: str, breaks: Spans) -> Hits:
        if not breaks:
            return tuple((form, False) for form in self._forms if form.text in text)
        joined = _join(text, breaks)
        return tuple((form, True) for form in self._forms if form.text in joined or form.text in text)

    def _known_length(self, text: str, breaks: Spans) -> int:
        """Return where the end of a text begins that may be the beginning of a secret."""
        known = self._start(text)
        if breaks:
            known = min(known, _place(self._start(_join(text, breaks)), breaks))
        return known

    def _start(self, text: str) -> int:
        """Return the first place from which on a text is the beginning of a form, but not all of it."""
        for place in range(max(0, len(text) - self._longest), len(text)):
            if text[place : place + _START] in self._begins and self._is_beginning(text[place:]):
                return place
        return len(text)

    def _is_beginning(self, text: str) -> bool:
        at = bisect_left(self._texts, text)
        return any(one != text and one.startswith(text) for one in self._texts[at : at + 2])


def _substitute(hits: Hits, text: str) -> str:
    return _pattern(hits).sub(lambda found: hits[(found.lastindex or 1) - 1][0].label, text)


@lru_cache(maxsize=64)
def _pattern(hits: Hits) -> re.Pattern[str]:
    return re.compile("|".join(form.pattern(wrapped=wrapped) for form, wrapped in hits))


def _breaks(text: str, shift: int = 0) -> Spans:
    """Return where a text may have been wrapped: line breaks behind long words, with the indentation that follows."""
    spans = []
    for (cr, lf), pattern in _BREAKS.items():
        for found in pattern.finditer(text) if lf in text and _has_long_word(text, lf) else ():
            start, end = found.span()
            spans.append((start - len(cr) * text.endswith(cr, 0, start) + shift, end + shift))
    return sorted(spans)


def _has_long_word(text: str, lf: str) -> bool:
    """Whether a line may end with one: seldom, and quickly seen."""
    return any(len(line) >= WRAPPED_AT and " " not in line[-WRAPPED_AT:] for line in text.split(lf))


def _join(text: str, breaks: Spans) -> str:
    ends, starts = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _place(place: int, breaks: Spans) -> int:
    """Return where a character of a joined text stood before."""
    for start, end in breaks:
        if start > place:
            break
        place += end - start
    return place

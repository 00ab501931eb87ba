"""Hides the values of secrets in everything that is written. Pure: the environment arrives as a mapping."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MARKS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
SHORTEST = 6  # a shorter value would be found in ordinary words


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    return any(mark in name.upper() for mark in MARKS)


class SecretMask:
    """Replaces each value by `[secret NAME]`: as it is, quoted for URLs, escaped for JSON, or in base64."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._names: dict[str, str] = {}
        secret = {name: value for name, value in sorted(environ.items()) if is_secret(name)}
        for name, value in secret.items():
            for form in _forms(value) if len(value) >= SHORTEST else ():
                if not any(form in f"[secret {other}]" for other in secret):  # else the mask would mask itself
                    self._names.setdefault(form, name)
        self._bytes = {_encoded(form): name for form, name in self._names.items()}
        self.longest = max(map(len, self._bytes), default=0)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._byte_pattern = re.compile(b"|".join(re.escape(_encoded(form)) for form in longest_first))

    def text(self, text: str) -> str:
        if not self._names:
            return text
        return self._pattern.sub(lambda found: f"[secret {self._names[found[0]]}]", text)

    def data(self, data: bytes) -> bytes:
        if not self._bytes:
            return data
        return self._byte_pattern.sub(lambda found: _encoded(f"[secret {self._bytes[found[0]]}]"), data)

    def value(self, value: Any) -> Any:
        """Return a JSON value with every text in it masked, names of fields included."""
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(name): self.value(item) for name, item in value.items()}
            case _:
                return value


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _forms(value: str) -> set[str]:
    raw = _encoded(value)
    return {
        value,
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }

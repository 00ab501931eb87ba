"""Sees that a loop goes in circles: the same call with the same result, again and again. Pure.

Repeats are counted since the last call that brought something new, so that running the same tests after every edit is
no circle, while A A A and A B A B A B are.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from agentfs.core.hashing import canonical
from agentfs.core.values import NotJson, json_value

WARN_AT, FAIL_AT = 3, 5


@dataclass(slots=True)
class Repeats:
    """Counts what came again."""

    _seen: set[bytes] = field(default_factory=set)
    _since: dict[bytes, int] = field(default_factory=dict)  # how often each came since something was new

    def count(self, tool: str, arguments: str, result: str) -> int:
        """Take one more call, and return how often it has come, with this very result, since something was new."""
        mark = sha256("\0".join((tool, _same(arguments), result)).encode("utf-8", "replace")).digest()
        if mark not in self._seen:
            self._seen.add(mark)
            self._since.clear()
        self._since[mark] = self._since.get(mark, 0) + 1
        return self._since[mark]


def _same(arguments: str) -> str:
    """Return arguments so that those which mean the same are the same text."""
    try:
        return canonical(json_value(arguments)).decode("utf-8")
    except NotJson:
        return arguments

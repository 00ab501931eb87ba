"""Whether a request that is about to be made is the one that was made then. Pure.

Not compared is what was read from the working folder, which a replay has not, and how many minutes of work are left.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentfs.jsonlines import OURS
from agentfs.models.base import Request
from agentfs.models.capabilities import Capabilities, JsonMode, Payload, build_payload, tool_schema
from agentfs.replaying.tapes import Try
from agentfs.tools.base import Mask

SHOWN = 120  # characters on either side
_AROUND = re.compile(r"\n\n# (?:Context|Working folder)\n\n.*?(?=\n\n# Tools\n\n)", re.DOTALL)
_MINUTES = re.compile(r"\b\d+ minutes of work\b")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two requests differ."""

    where: str
    recorded: str
    came: str


def difference(now: Payload, played: Try, mask: Mask, paths: Callable[[str], str]) -> Difference | None:
    """Return where a request differs from the one that was sent then; None: nowhere."""

    def plain(message: Mapping[str, Any]) -> dict[str, str]:
        return {name: paths(_without_world(_text(value))) for name, value in message.items()}

    for place, (was, one) in enumerate(zip(played.messages, now.messages, strict=False), start=1):
        if (old := plain(was)) != (new := plain(mask.value(dict(one), ours=OURS))):
            return _first(f"message {place} ({one.get('role')})", old, new)
    if len(played.messages) != len(now.messages):
        return Difference("messages", str(len(played.messages)), str(len(now.messages)))
    old = plain({name: played.body.get(name) for name in now.options})
    new = plain(mask.value(dict(now.options), ours=OURS))
    return _first("beside the messages", old, new) if old != new else None


def put_as(played: Try, request: Request, temperature: float | None) -> Payload:
    """Return a request as it would be sent to the endpoint that took the recorded one."""
    body = played.body
    if "schema" in body:  # a program
        if request.offers and not body.get("tools"):  # one that makes no native calls
            return Payload(build_payload(request, Capabilities(tools=False), None).messages, {"tools": []})
        return Payload(request.messages, {"tools": [tool_schema(offer) for offer in request.offers]})
    if not body:
        return Payload(request.messages, {})
    habits = Capabilities(
        json_mode=_json_mode(body),
        tools="tools" in body,
        temperature="temperature" in body,
        usage="stream_options" in body,
    )
    put = build_payload(request, habits, temperature)
    return Payload(
        put.messages, {name: put.options.get(name) for name in ("tools", "response_format", "tool_choice")}
    )


def _json_mode(body: Mapping[str, Any]) -> JsonMode:
    match body:
        case {"response_format": {"type": "json_schema"}}:
            return "schema"
        case {"tool_choice": _}:
            return "tool"
        case {"response_format": _}:
            return "object"
        case _:
            return "text"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _without_world(text: str) -> str:
    return _MINUTES.sub("N minutes of work", _AROUND.sub("", text))


def _first(where: str, old: Mapping[str, str], new: Mapping[str, str]) -> Difference:
    name = next(name for name in (*old, *new) if old.get(name) != new.get(name))
    was, now = old.get(name, ""), new.get(name, "")
    start = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    return Difference(f"{where}, {name}", _excerpt(was, start), _excerpt(now, start))


def _excerpt(text: str, start: int) -> str:
    begin = max(0, start - 30)
    shown = text[begin : start + SHOWN]
    return ("…" if begin else "") + shown + ("…" if start + SHOWN < len(text) else "")

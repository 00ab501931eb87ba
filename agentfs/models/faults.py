"""What went wrong with a request, in words that say what to change, and whether asking again may help."""

import re
from datetime import datetime
from typing import Any

from agentfs.core.documents import too_deep
from agentfs.core.records import Failure
from agentfs.models.address import Address
from agentfs.models.errors import Garbled, Refused, Unreachable
from agentfs.models.retrying import Mishap, is_retried, seconds_after

SHOWN = 300
_NO_MODEL = re.compile(
    r"model.{0,80}(not found|does not exist|not exist|not a valid|unknown|not available|no access)"
    r"|not a valid model|model_not_found|DeploymentNotFound|unknown model|no such model",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient.{0,10}credit|exceeded your current quota|billing", re.IGNORECASE
)
_FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|invalid_prompt|safety", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"context.?length|context.?window|too many tokens|prompt is too long|exceed.{0,30}context", re.IGNORECASE
)


def unreachable(message: str, hint: str, **more: Any) -> Mishap:
    """Return a mishap that somebody must mend if it stays."""
    return Mishap(Unreachable(Failure(kind="unreachable", message=message, hint=hint)), **more)


def broken(message: str) -> Mishap:
    """Return a mishap where no whole reply was sent: if it stays, a person must look at the endpoint."""
    hint = "the endpoint, or what is between, breaks its replies off or does not keep to the protocol; then resume"
    return unreachable(message, hint, again=True, begun=True)


def garbled(message: str, *, again: bool) -> Mishap:
    """Return a mishap where a whole reply came that is of no use: the model's doing."""
    return Mishap(Garbled(Failure(kind="model", message=message)), again=again, begun=True)


def compressed(encoding: str) -> Mishap:
    """Return what it means when a response is compressed: it could become anything, and is not unpacked."""
    message = f"the reply is compressed ({encoding}), which was not asked for"
    return unreachable(message, "turn compression off at the endpoint, or at what is between", again=False)


def late(what: str, *, begun: bool) -> Mishap:
    return unreachable(
        f"the endpoint is silent: {what}", "is the server busy, or the model too slow?", again=True, begun=begun
    )


def status_mishap(status: int, body: Any, headers: Any, model: str, where: Address, now: datetime) -> Mishap:
    """Return what an answer with an error status means."""
    words = where.hidden(words_of(body))
    more: dict[str, Any] = {"status": status, "words": words}
    said = where.hidden(words_of(body, ("message",)) or words)
    message, hint, again = _meaning(status, words, f": {said[:SHOWN]}" if said else "", body, model, where)
    if status < 500 and (_FILTERED.search(words) or _TOO_LONG.search(words)):
        return Mishap(Refused(Failure(kind="model", message=message, hint=hint)), again=False, **more)
    after = seconds_after(headers.get("retry-after"), now) if again else None
    return unreachable(message, hint, again=again, retry_after=after, **more)


def _meaning(status: int, words: str, said: str, body: Any, model: str, where: Address) -> tuple[str, str, bool]:
    """Return the message, the hint, and whether to ask again."""
    table = f"[{where.table}]"
    if status in (401, 403) and not _NO_MODEL.search(words):
        return (
            f"{where.shown} refuses the key in {where.key_name} ({status}{said})",
            f"set {where.key_name} to a key of that endpoint, or api_key_env under {table} in agentfs.toml",
            False,
        )
    if _NO_MODEL.search(words) and status < 500:
        hint = f"set model under {table} in agentfs.toml to one that it has"
        return f"{where.shown} has no model {model!r} ({status}{said})", hint, False
    if status in (404, 405) or is_page(body):
        hint = f"set base_url under {table} in agentfs.toml; it often ends in /v1"
        return f"{where.shown} is no address of a model: it answers {status}", hint, is_retried(status)
    if status == 402 or _NO_CREDIT.search(words):
        return f"{where.shown} wants to be paid first ({status}{said})", "add credit there, then resume", False
    if _FILTERED.search(words) and status < 500:
        return f"a content filter refused the request ({status}{said})", "say it in other words", False
    if _TOO_LONG.search(words) and status < 500:
        return f"the request is too long for {model} ({status}{said})", "use a model with more room", False
    if is_retried(status):
        return f"{where.shown} is not able to answer ({status}{said})", "try again later: resume goes on", True
    return f"{where.shown} does not take the request ({status}{said})", f"look at {table} in agentfs.toml", False


def words_of(body: Any, fields: tuple[str, ...] = ("message", "code", "param", "detail")) -> str:
    """Return what a server says of an error, in one line."""
    if too_deep(body):
        return ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            parts = (inner.get(name) for name in fields)
            return " ".join(" ".join(part.split()) for part in parts if isinstance(part, str) and part)
        body = inner
    return "" if is_page(body) else " ".join(str(body or "").split())


def is_page(body: Any) -> bool:
    """Whether a body is a web page."""
    text = body if isinstance(body, str) else ""
    return text.lstrip()[:15].lower().startswith(("<!doctype html", "<html", "<head", "<h1"))


def no_model_here(where: Address) -> Mishap:
    """Return what it means when a web page answers."""
    hint = f"set base_url under [{where.table}] in agentfs.toml; it often ends in /v1"
    return unreachable(f"{where.shown} is no address of a model: it answers with a web page", hint, again=False)


def no_connection(where: Address, reason: str) -> Mishap:
    """Return what it means when nobody opens."""
    hint = f"is the server running? its address is base_url under [{where.table}] in agentfs.toml"
    message = f"{where.shown} cannot be reached: {where.hidden(reason)}"
    return unreachable(message, hint, again=True, reached=False)

"""Whether the models that the settings name can be reached: they are listed, not asked, which costs nothing."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

from agentfs.core.config import ExecutorSettings, ModelSettings, PlannerSettings, Settings
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.text import cut, inert
from agentfs.engine.means import has_model
from agentfs.models.endpoint import INVALID_KEY, NO_KEY, UNCOMPRESSED, Endpoint, error_words, is_page, table_of

SECONDS = 5.0
LARGEST = 4 * 1024 * 1024  # bytes of a list of models


def examine(settings: Settings, environment: Mapping[str, str], *, trusted: bool) -> Iterator[Finding]:
    """Yield what is found of planner and executor; an endpoint that both use is asked once for each."""
    asked: dict[tuple[str, str], Any] = {}
    for one in (settings.planner, settings.executor):
        about = f"[{table_of(one)}]"
        if one.kind == "command":
            yield _program(about, one)
        elif not has_model(one, environment):
            yield _no_model(about, one)
        elif not trusted:
            yield remark(about, f"{Endpoint.of(one, environment).shown} is not asked: the workspace is not trusted")
        elif not (where := Endpoint.of(one, environment)).has_valid_key:
            yield wrong(about, f"{where.key_name} {INVALID_KEY}", where.key_hint)
        else:
            answer = asked.setdefault((where.url, where.key), None) or listed(where)
            asked[where.url, where.key] = answer
            yield _judged(about, one, where, answer)


def _program(about: str, settings: ModelSettings) -> Finding:
    name = (settings.command or ("",))[0]
    if shutil.which(name):
        return fine(about, f"the program {inert(name)} is there (it was not started)")
    return wrong(about, f"the program {inert(name)!r} is not found", f"set command under {about} in agentfs.toml")


def _no_model(about: str, settings: ModelSettings) -> Finding:
    does = "plan goals in words" if isinstance(settings, PlannerSettings) else "do steps that name no tool"
    words = f"no model: {settings.api_key_env} is not set, and no base_url. Runbooks need none"
    return remark(about, words, f"to {does}: set {settings.api_key_env}, or base_url under {about} in agentfs.toml")


def listed(where: Endpoint) -> tuple[int, bytes] | str:
    """Ask an endpoint for its models; return status and body, or in words why it was not reached."""
    import httpx2

    headers = {"Authorization": f"Bearer {where.key}"} if where.key != NO_KEY else {}
    until, body = time.monotonic() + SECONDS, bytearray()
    try:
        with httpx2.stream("GET", f"{where.url}/models", headers=headers | UNCOMPRESSED, timeout=SECONDS) as response:
            for part in response.iter_raw():  # nothing is unpacked: it could become anything
                body += part
                if len(body) > LARGEST or time.monotonic() > until:
                    break
            return response.status_code, bytes(body[:LARGEST])
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        return where.mask(str(error) or type(error).__name__)


def _judged(about: str, settings: ModelSettings, where: Endpoint, answer: tuple[int, bytes] | str) -> Finding:
    shown, key = inert(where.shown), "key set" if where.key != NO_KEY else "no key"
    address = f"is the server running? its address is base_url under {about} in agentfs.toml"
    if isinstance(answer, str):
        return wrong(about, f"{shown} cannot be reached: {inert(cut(answer, 200))} ({key})", address)
    status, body = answer
    said = inert(cut(where.mask(error_words(_json(body))), 200))
    if status in (401, 403):
        refused = "refuses the key in" if where.key != NO_KEY else "wants a key:"
        return wrong(
            about, f"{shown} {refused} {where.key_name} ({status} {said})".replace(" )", ")"), where.key_hint
        )
    if status >= 500 or status == 429:
        return wrong(about, f"{shown} is not able to answer ({status} {said})", "try again later")
    names = model_names(_json(body)) if status == 200 else None
    model = _model(settings)
    if names is None:
        words = (
            f"{shown} is reached ({key}), but lists no models ({status}): whether it has {inert(model)} is not known"
        )
        page = is_page(body.decode("utf-8", "replace"))
        return wrong(about, f"{shown} answers with a web page", address) if page else remark(about, words)
    if names and model not in names:
        near = ", ".join(inert(name) for name in sorted(names)[:5])
        return remark(about, f"{shown} is reached ({key}), but does not list {inert(model)}; it has {near}",
                      f"set model under {about} in agentfs.toml")  # fmt: skip
    return fine(about, f"{shown} is reached ({key}) and has {inert(model)}; nothing was asked of a model")


def _model(settings: ModelSettings) -> str:
    return settings.model if isinstance(settings, PlannerSettings | ExecutorSettings) else ""


def model_names(value: Any) -> set[str] | None:
    """Return the names in a list of models; None if it is none."""
    entries = value.get("data") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        return None
    return {str(one.get("id")) for one in entries if isinstance(one, dict)}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")

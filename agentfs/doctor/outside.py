"""What the settings name outside the workspace: models, coding agents, MCP servers, places where attempts may run.

Models are listed, not asked, which costs nothing; agents are asked for their version, places what they are. No order
is sent, and no MCP server is started.
"""

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import agentfs
from agentfs.agents.presets import Agent, configure_agents, locate, version_of
from agentfs.core.config import ExecutorSettings, ModelSettings, PlaceSettings, PlannerSettings, Settings
from agentfs.core.mcp import CONFIG, LockedServer, Unusable
from agentfs.core.problems import Finding, fine, remark, wrong
from agentfs.core.records import Sandbox
from agentfs.core.text import cut, inert, plural
from agentfs.engine.means import default_agent, has_model, named_agents
from agentfs.models.endpoint import INVALID_KEY, NO_KEY, UNCOMPRESSED, Endpoint, error_words, is_page, table_of
from agentfs.places.assignment import Tokens
from agentfs.places.channel import Closed, Line, Place
from agentfs.places.dask_place import address_in
from agentfs.places.relay import create_place, no_such_place, place_problem
from agentfs.storage.clock import Clock
from agentfs.storage.system import Starter
from agentfs.storage.timing import TIMING
from agentfs.tools import sandbox
from agentfs.tools.mcp_client import INSTALL, UPDATE, Host, read_lock

# ── models ─────────────────────────────────────────────────────────────────────────────────────────────────


LARGEST = 4 * 1024 * 1024  # bytes of a list of models


def examine_models(settings: Settings, environment: Mapping[str, str], *, trusted: bool) -> Iterator[Finding]:
    """Yield what is found of planner and executor; an endpoint that both use is asked once for each."""
    asked: dict[tuple[str, str], Any] = {}
    for one in (settings.planner, settings.executor):
        about = f"[{table_of(one)}]"
        if one.kind == "command":
            yield _program(about, one)
        elif not has_model(one, environment):
            yield _no_model(about, one, default_agent(settings))
        elif not trusted:
            yield remark(about, f"{Endpoint.of(one, environment).shown} is not asked: the workspace is not trusted")
        elif not (where := Endpoint.of(one, environment)).has_valid_key:
            yield wrong(about, f"{where.key_name} {INVALID_KEY}", where.key_hint)
        else:
            answer = asked.setdefault((where.url, where.key), None) or list_models(where)
            asked[where.url, where.key] = answer
            yield _evaluate_models(about, one, where, answer)


def _program(about: str, settings: ModelSettings) -> Finding:
    name = (settings.command or ("",))[0]
    if shutil.which(name):
        return fine(about, f"the program {inert(name)} is there (it was not started)")
    return wrong(about, f"the program {inert(name)!r} is not found", f"set command under {about} in agentfs.toml")


def _no_model(about: str, settings: ModelSettings, agent: str | None) -> Finding:
    does = "do steps that name no tool" if agent is None else f"judge what {agent} did where a step has no check"
    does = "plan goals in words" if isinstance(settings, PlannerSettings) else does
    words = f"no model: {settings.api_key_env} is not set, and no base_url. Runbooks need none"
    return remark(about, words, f"to {does}: set {settings.api_key_env}, or base_url under {about} in agentfs.toml")


def list_models(where: Endpoint) -> tuple[int, bytes] | str:
    """Ask an endpoint for its models; return status and body, or in words why it was not reached."""
    import httpx2

    headers = {"Authorization": f"Bearer {where.key}"} if where.key != NO_KEY else {}
    until, body = time.monotonic() + TIMING.doctor_endpoint, bytearray()
    try:
        with httpx2.stream(
            "GET", f"{where.url}/models", headers=headers | UNCOMPRESSED, timeout=TIMING.doctor_endpoint
        ) as response:
            for part in response.iter_raw():  # nothing is unpacked: it could become anything
                body += part
                if len(body) > LARGEST or time.monotonic() > until:
                    break
            return response.status_code, bytes(body[:LARGEST])
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        return where.mask(str(error) or type(error).__name__)


def _evaluate_models(
    about: str, settings: ModelSettings, where: Endpoint, answer: tuple[int, bytes] | str
) -> Finding:
    shown, key = inert(where.shown), "key set" if where.key != NO_KEY else "no key"
    address = f"is the server running? its address is base_url under {about} in agentfs.toml"
    if isinstance(answer, str):
        return wrong(about, f"{shown} cannot be reached: {inert(cut(answer, 200))} ({key})", address)
    status, body = answer
    response = inert(cut(where.mask(error_words(_json(body))), 200))
    if status in (401, 403):
        refused = "refuses the key in" if where.key != NO_KEY else "wants a key:"
        return wrong(
            about, f"{shown} {refused} {where.key_name} ({status} {response})".replace(" )", ")"), where.key_hint
        )
    if status >= 500 or status == 429:
        return wrong(about, f"{shown} is not able to answer ({status} {response})", "try again later")
    names = model_names(_json(body)) if status == 200 else None
    model = settings.model if isinstance(settings, PlannerSettings | ExecutorSettings) else ""
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


# ── coding agents ──────────────────────────────────────────────────────────────────────────────────────────


def examine_agents(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found of each agent that the settings name, their fallbacks included."""
    known = configure_agents(settings.agents)
    named = [*named_agents(settings)]
    named += [other for name in named if name in known for other in known[name].fallback]
    if named and settings.tools.network is False:
        yield wrong("agents", "they need the network", 'set network = "agents" under [tools] in agentfs.toml')
    for name in dict.fromkeys(named):
        about = f"[agents.{name}]"
        if name not in known:
            whose = "[executor] agent" if name == default_agent(settings) else "fallback"
            yield wrong(about, f"{whose} names {name!r}, and there is no such agent", "agentfs agents lists them")
        else:
            yield from _examine_agent(about, known[name], settings, environment)


def _examine_agent(about: str, agent: Agent, settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    found = locate(agent, environment)
    if found is None:
        program = agent.command[0] if agent.command else "a command"
        yield wrong(about, f"{program} is not found", agent.install or f"set command under {about} in agentfs.toml")
        return
    confined = settings.tools.sandbox != "off" and sandbox.unavailable_because() is None
    version = version_of(found, confined=confined)
    if version is None and agent.tested is not None:
        fix = "add the folder of its installation to read under [tools] in agentfs.toml"
        yield wrong(about, f"{found.program} does not start in the sandbox", fix)
    elif agent.tested not in (None, version):
        yield remark(about, f"{found.program} is {version}; agentfs was tested with {agent.tested}")
    else:
        yield fine(about, f"{found.program}, {version or 'which does not say its version'}")
    for name in agent.read:
        if not os.path.isfile(os.path.expanduser(name)):
            yield remark(about, f"{name} is not there to be copied", f"log in, or take it out of read under {about}")
    if agent.env and not agent.read and not any(environment.get(name) for name in agent.env):
        also = f', or read = ["{agent.login}"] under {about}' if agent.login else ""
        yield remark(about, f"none of {', '.join(agent.env)} is set", f"give it a key: set one{also}")


# ── MCP servers ────────────────────────────────────────────────────────────────────────────────────────────


def examine_servers(settings: Settings, root: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found of each MCP server that the settings name; none is started."""
    servers, lock = settings.mcp.servers, read_lock(root)
    if servers and importlib.util.find_spec("mcp") is None:
        yield wrong("[mcp]", "the extra `mcp` is not installed", INSTALL)
    confined: Sandbox = "none" if settings.tools.sandbox == "off" or sandbox.unavailable_because() else "bubblewrap"
    host = Host(root, settings, environment, confined)
    for name in dict.fromkeys(servers):
        yield _examine_server(name, host, lock.get(name))
    for name in sorted(settings.mcp.sections() - {*servers}):
        yield remark(f"[mcp.{name}]", f"is not used: servers under [mcp] does not name {name!r}")


def _examine_server(name: str, host: Host, locked: LockedServer | None) -> Finding:
    about, section = f"[mcp.{name}]", host.settings.mcp.server(name)
    try:
        launch = host.launch(name)
        started = launch.filled(section, host.environment)
        confinement = host.confinement(name, host.root)
    except Unusable as error:
        return wrong(about, inert(str(error)), f"look at {CONFIG} and at {about} in agentfs.toml")
    if launch.url and not section.network:
        return wrong(about, "it is reached over the network", f"set network = true under {about} in agentfs.toml")
    where = os.path.join(host.cwd(confinement), started.command) if "/" in started.command else started.command
    if not launch.url and shutil.which(where, path=sandbox.environment(confinement)["PATH"]) is None:
        return wrong(about, f"{inert(launch.command)} is not found", f"install it, or change its command in {CONFIG}")
    if locked is None:
        return wrong(about, "it is not approved: steps have none of its tools", UPDATE)
    if locked.launch_sha256 != launch.sha256:
        return wrong(about, f"{CONFIG} starts it in another way than was approved", f"look at it: {UPDATE}")
    return fine(about, f"{plural(len(locked.tools), 'tool')} approved; it is not started here")


# ── places ─────────────────────────────────────────────────────────────────────────────────────────────────


WORTH_A_WORD = 5  # seconds between two clocks


def examine_places(
    settings: Settings, root: Path, environment: Mapping[str, str], *, trusted: bool
) -> Iterator[Finding]:
    """Yield what is found of every place."""
    if (default := settings.executor.place) is not None and default not in settings.places:
        yield wrong("[executor]", *no_such_place(default))
    for name, one in settings.places.items():
        about = f"[places.{name}]"
        if problem := place_problem(one):
            yield wrong(about, *problem)
        elif not trusted:
            yield remark(about, "is not asked: the workspace is not trusted")
        else:
            if one.kind == "dask" and not _is_protected(one):
                fix = "set up TLS in Dask's configuration (distributed.comm.tls), and use tls://"
                yield remark(about, "no TLS: anyone who can reach the scheduler can run anything on the workers", fix)
            yield from _probe_place(
                about, create_place(name, one, settings.limits.parallel, environment, Starter()), root
            )


def _is_protected(one: PlaceSettings) -> bool:
    """Whether a scheduler is reached over TLS."""
    try:
        return (one.scheduler or address_in(one.scheduler_file or "")).startswith(("tls://", "wss://"))
    except Closed:
        return True  # it cannot be reached, which is reported as that


def _probe_place(about: str, place: Place, root: Path) -> Iterator[Finding]:
    """Ask all that is there, side by side; machines that answer the same are one finding."""
    tokens = Tokens()
    token = tokens.of(root)
    message = {"kind": "probe", "token": {"path": token.path, "text": token.text}}
    until = time.monotonic() + TIMING.place_probe
    try:
        workers = place.workers()
        lines = {worker: place.start(message, worker or None) for worker in workers or [""]}
        found = [one for worker, line in lines.items() for one in _examine_worker(about, worker, line, until)]
        yield from dict.fromkeys(found)
    except Closed as closed:
        yield wrong(about, f"cannot be reached: {inert(str(closed))}", "start it, or fix the section in agentfs.toml")
    finally:
        place.close()
        tokens.close()


def _examine_worker(about: str, worker: str, line: Line, until: float) -> Iterator[Finding]:
    """Yield what is found of one worker of a place; of the only one, if it has no name. Raises Closed for that."""
    try:
        answer = _answer_of(line, until)
    except Closed as closed:
        if not worker:
            raise
        yield wrong(about, inert(str(closed)), "install the same release of agentfs where the workers run")
    else:
        if answer is not None:
            yield from _evaluate_place(about, answer)
        elif worker:
            yield remark(about, f"{worker} gave no answer for {TIMING.place_probe:g} s", "it is busy, or frozen")
        else:
            raise Closed(f"it gave no answer for {TIMING.place_probe:g} s")
    finally:
        line.close()


def _answer_of(line: Line, until: float) -> dict[str, Any] | None:
    """Return what a worker says of itself; None: nothing, in time. Raises Closed where it cannot say anything."""
    while True:
        message = line.receive(max(0.0, min(until - time.monotonic(), TIMING.tick)))
        match message:
            case {"kind": "probed"}:
                return message
            case {"kind": "refused", "why": why}:
                raise Closed(str(why))
            case None if time.monotonic() >= until:
                return None
            case _:
                pass


def _evaluate_place(about: str, answer: Mapping[str, Any]) -> Iterator[Finding]:
    host, version = inert(str(answer.get("host"))), inert(str(answer.get("version")))
    if version != agentfs.__version__:
        yield wrong(about, f"{host} has agentfs {version}, this is {agentfs.__version__}", "install the same release")
        return
    if answer.get("shared"):
        yield wrong(about, inert(str(answer["shared"])), "mount it there at the same path")
    if (box := str(answer.get("sandbox"))) != "bubblewrap":
        yield remark(
            about, f"{host} has no sandbox: {inert(box)}", "a model's shell and python steps are refused there"
        )
    off = _clock_difference(str(answer.get("at")))
    if off > WORTH_A_WORD:
        yield remark(about, f"the clock of {host} is {off:.0f} s off", "times in results from there are off, too")
    if not answer.get("shared"):
        clock = "its clock agrees" if off <= WORTH_A_WORD else "its clock does not agree"
        yield fine(about, f"{host} has agentfs {version}, sandbox {inert(box)}, sees the workspace, {clock}")


def _clock_difference(stamp: str) -> float:
    try:
        return abs((datetime.fromisoformat(stamp) - Clock().wall()).total_seconds())
    except ValueError:
        return 0.0

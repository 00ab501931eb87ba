"""MCP servers as settings and files name them, and what of their tools a person has approved. Pure.

.mcp.json        how each server is started, as other agents read it
agentfs.toml     [mcp] servers: which of them, [mcp.NAME]: what each may touch
mcp.lock.json    what each offered when `agentfs tools --update` was last run: all that plans are checked against
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agentfs.core.config import McpServerSettings
from agentfs.core.hashing import sha256_of
from agentfs.core.problems import pointer_tokens
from agentfs.core.text import one_line
from agentfs.core.tool_spec import ToolSpec, tool_name
from agentfs.core.values import too_deep, value_inside

CONFIG, LOCK = ".mcp.json", "mcp.lock.json"
FORMAT = "agentfs/mcp-lock-1"
SERVER_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-])*\Z")  # without `__`, so that a tool's name names one server
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
LONGEST_NAME = 64  # what model endpoints take
MOST_TOOLS = 512
MOST_SCHEMA, DEEPEST, MOST_NODES = 65_536, 24, 4_000  # of one schema: characters, levels, parts once its $refs are in
SUMMARY, WORDS = 300, 4_000  # characters of a description: shown, and kept
HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KEPT = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const"),
        *("anyOf", "oneOf", "allOf", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
        *("description", "default", "title"),
    )
)


class Unusable(Exception):
    """Something about a server, or a tool of it, that keeps it from being used; and perhaps what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


# ── .mcp.json ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started, or reached."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """What tells whether it is started as it was when it was approved; variables stand in it by name."""
        return sha256_of(
            {"command": self.command, "args": [*self.args], "env": dict(self.env), "url": self.url,
             "headers": dict(self.headers)}
        )  # fmt: skip

    def filled(self, settings: McpServerSettings, environment: Mapping[str, str]) -> "Launch":
        """Return it with the values of the variables that its settings give it. Raises Unusable."""

        def fill(text: str) -> str:
            return _VARIABLE.sub(value, text)

        def value(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            if name not in settings.env:
                raise Unusable(f"{CONFIG} gives it ${{{name}}}: add {name!r} to env under [mcp.{self.name}]")
            if (found := environment.get(name)) is None and default is None:
                raise Unusable(f"the variable {name} is not set")
            return default or "" if found is None else found

        return Launch(
            self.name,
            fill(self.command),
            tuple(map(fill, self.args)),
            {name: fill(text) for name, text in self.env.items()},
            fill(self.url),
            {name: fill(text) for name, text in self.headers.items()},
        )


def launch_in(config: Any, name: str) -> Launch:
    """Return how .mcp.json says that a server is started. Raises Unusable."""
    if not SERVER_NAME.match(name) or len(name) > 32:
        raise Unusable("a server's name has letters, digits, - and single _, at most 32")
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    entry = servers.get(name) if isinstance(servers, Mapping) else None
    if not isinstance(entry, Mapping):
        raise Unusable(f"{CONFIG} has no server of that name under mcpServers")
    kind = entry.get("type") or ("http" if "url" in entry else "stdio")
    if kind not in ("stdio", "http", "streamable-http"):
        raise Unusable(f"its type is {kind!r}: agentfs speaks stdio and http")
    if kind == "stdio":
        command, args = entry.get("command"), entry.get("args") or []
        if not isinstance(command, str) or not command or not _is_texts(args):
            raise Unusable(f"{CONFIG} gives it no command, or args that are not a list of texts")
        return Launch(name, command, tuple(args), _texts(entry.get("env"), "env"))
    url = entry.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://", "${")):
        raise Unusable(f"{CONFIG} gives it no url")
    return Launch(name, url=url, headers=_texts(entry.get("headers"), "headers"))


def literals_in(config: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what .mcp.json holds itself and gives servers, as variables or headers: server, name and value."""
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    for server, entry in servers.items() if isinstance(servers, Mapping) else ():
        for part in ("env", "headers"):
            given = entry.get(part) if isinstance(entry, Mapping) else None
            for name, text in given.items() if isinstance(given, Mapping) else ():
                if isinstance(text, str) and not _VARIABLE.search(text):
                    yield str(server), str(name), text


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _texts(value: Any, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
        raise Unusable(f"its {name} in {CONFIG} is not an object of texts")
    return {str(key): text for key, text in value.items()}


# ── what a server offers ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as its server describes it, and as a person approved it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    hints: Mapping[str, bool]

    @property
    def sha256(self) -> str:
        return sha256_of(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_offers(server: str, listed: Iterable[Any]) -> tuple[dict[str, OfferedTool], list[str]]:
    """Return the tools of a listing that can be used, and in words those that cannot."""
    found: dict[str, OfferedTool] = {}
    problems, twice = list[str](), set[str]()
    for place, one in enumerate(listed):
        if place >= MOST_TOOLS:
            problems.append(f"it offers more than {MOST_TOOLS} tools: the rest is left out")
            break
        try:
            tool = _read_offer(server, one)
        except Unusable as error:
            name = one.get("name") if isinstance(one, Mapping) else None
            problems.append(f"{one_line(str(name), 80)!r} is left out: {error}")
            continue
        if tool.name in found:
            twice.add(tool.name)
        found[tool.name] = tool
    for name in sorted(twice):
        del found[name]
        problems.append(f"{name!r} is left out: it is offered more than once")
    return found, problems


def _read_offer(server: str, one: Any) -> OfferedTool:
    if not isinstance(one, Mapping) or not isinstance(name := one.get("name"), str):
        raise Unusable("it is not a tool")
    if not TOOL_NAME.match(name):
        raise Unusable("its name may hold letters, digits, _ and - only")
    if len(tool_name(server, name)) > LONGEST_NAME:
        raise Unusable(f"{tool_name(server, name)} is longer than {LONGEST_NAME} characters")
    description, hints = one.get("description") or "", one.get("annotations") or {}
    if not isinstance(description, str) or not isinstance(hints, Mapping):
        raise Unusable("its description or its hints are of another kind")
    return OfferedTool(
        name,
        description[:WORDS],
        _bound_schema(one.get("inputSchema"), "input"),
        _bound_schema(one.get("outputSchema"), "output") if one.get("outputSchema") is not None else None,
        {hint: hints[hint] for hint in HINTS if isinstance(hints.get(hint), bool)},
    )


def _bound_schema(schema: Any, whose: str) -> Mapping[str, Any]:
    """Return a schema that is an object of bearable size and depth."""
    if not isinstance(schema, Mapping):
        raise Unusable(f"the schema of its {whose} is not an object")
    try:
        size = len(json.dumps(schema))
    except (ValueError, RecursionError):
        raise Unusable(f"the schema of its {whose} is too deep") from None
    if size > MOST_SCHEMA:
        raise Unusable(f"the schema of its {whose} has more than {MOST_SCHEMA} characters")
    if too_deep(schema, DEEPEST):
        raise Unusable(f"the schema of its {whose} is more than {DEEPEST} levels deep")
    return schema


def differences(old: OfferedTool | None, new: OfferedTool | None) -> list[str]:
    """Return what differs between a tool as it was approved and as it is offered, in words."""
    if old is None or new is None:
        return [] if old is new else ["it is new" if old is None else "it is no longer offered"]
    words = {
        "description": "its description",
        "input_schema": "what it takes",
        "output_schema": "what it gives back",
        "hints": "its hints",
    }
    before, after = old.as_json(), new.as_json()
    return [f"{said} changed" for name, said in words.items() if sha256_of(before[name]) != sha256_of(after[name])]


# ── mcp.lock.json ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LockedServer:
    """What a person approved of one server."""

    launch_sha256: str
    about: str = ""  # its own name and version
    tools: Mapping[str, OfferedTool] = field(default_factory=dict)


Lock = Mapping[str, LockedServer]


def lock_of(value: Any) -> dict[str, LockedServer]:
    """Return what mcp.lock.json holds; a part that is none, or whose digest is another one's, is left out."""
    servers = value.get("servers") if isinstance(value, Mapping) and value.get("format") == FORMAT else None
    found: dict[str, LockedServer] = {}
    for name, one in servers.items() if isinstance(servers, Mapping) else ():
        if isinstance(one, Mapping) and SERVER_NAME.match(str(name)):
            tools = {tool.name: tool for tool in map(_read_locked, one.get("tools") or ()) if tool}
            found[str(name)] = LockedServer(str(one.get("launch_sha256")), str(one.get("about") or ""), tools)
    return found


def _read_locked(one: Any) -> OfferedTool | None:
    try:
        tool = OfferedTool(
            str(one["name"]),
            str(one["description"]),
            _bound_schema(one["input_schema"], "input"),
            one["output_schema"],
            {hint: one["hints"][hint] for hint in HINTS if isinstance(one["hints"].get(hint), bool)},
        )
        usable = bool(TOOL_NAME.match(tool.name)) and tool.sha256 == one["sha256"]
    except (TypeError, KeyError, AttributeError, Unusable, ValueError):
        return None
    return tool if usable else None


def render_lock(lock: Lock) -> bytes:
    """Return mcp.lock.json: made to be read and diffed."""
    servers = {
        name: {
            "launch_sha256": one.launch_sha256,
            "about": one.about,
            "tools": [{**tool.as_json(), "sha256": tool.sha256} for _, tool in sorted(one.tools.items())],
        }
        for name, one in sorted(lock.items())
    }
    return (json.dumps({"format": FORMAT, "servers": servers}, indent=2, ensure_ascii=False) + "\n").encode()


# ── tools as plans see them ──────────────────────────────────────────────────────────────────────────────


def spec_of(server: str, tool: OfferedTool, settings: McpServerSettings) -> ToolSpec:
    """Return a tool as a plan sees it. What it says of itself counts only where a person trusts it."""
    reads = settings.trust_hints and tool.hints.get("readOnlyHint") is True
    again = reads or (settings.trust_hints and tool.hints.get("idempotentHint") is True)
    schema = checkable(tool.input_schema)
    required = schema.get("required")
    return ToolSpec(
        name=tool_name(server, tool.name),
        summary=one_line(tool.description, SUMMARY) or f"{tool.name} of the MCP server {server}",
        input_schema=schema,
        effects="read" if reads else "execute",
        repeatable=again,
        text_field=required[0] if isinstance(required, list) and len(required) == 1 else None,
        gated=not again,
        touches=touches(server, settings),
    )


def touches(server: str, settings: McpServerSettings) -> str:
    """Return what a server may touch, in a line."""
    parts = [
        f"reads {', '.join(settings.read)}" if settings.read else "",
        f"writes {', '.join(settings.write)}" if settings.write else "",
        "uses the network" if settings.network else "no network",
        f"gets {', '.join(settings.env)}" if settings.env else "no variable of yours",
    ]
    return f"the MCP server {server}: {'; '.join(filter(None, parts))}"


def checkable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a schema that an input can be checked against in bounded time.

    References within it are put in place; patterns, formats and whatever else a checker might be kept busy with are
    left to the server.
    """
    reduced = _reduce_schema(schema, schema, 0, [MOST_NODES])
    return {**reduced, "type": "object"}


def _reduce_schema(part: Any, root: Any, depth: int, left: list[int]) -> dict[str, Any]:
    left[0] -= 1
    if not isinstance(part, Mapping) or depth > DEEPEST or left[0] < 0:
        return {}
    if isinstance(ref := part.get("$ref"), str):
        target = value_inside(root, pointer_tokens(ref[1:])) if ref.startswith("#") else {}
        return _reduce_schema(target, root, depth + 1, left)
    made: dict[str, Any] = {}
    for key in (key for key in part if key in _KEPT):
        value = part[key]
        match key:
            case "properties" if isinstance(value, Mapping):
                made[key] = {str(name): _reduce_schema(one, root, depth + 1, left) for name, one in value.items()}
            case "items" | "additionalProperties":
                made[key] = value if isinstance(value, bool) else _reduce_schema(value, root, depth + 1, left)
            case "anyOf" | "oneOf" | "allOf" | "prefixItems" if isinstance(value, list) and value:
                parts = [_reduce_schema(one, root, depth + 1, left) for one in value]
                made["anyOf" if key == "oneOf" else key] = parts  # of what is left of them, several may hold
            case "enum" if isinstance(value, list) and value:
                made[key] = value
            case "required" if _is_texts(value):
                made[key] = [*dict.fromkeys(value)]
            case "description" | "title" if isinstance(value, str):
                made[key] = one_line(value, SUMMARY)
            case "type" if _is_type(value):
                made[key] = value
            case "const" | "default":
                made[key] = value
            case "minimum" | "maximum" if isinstance(value, (int, float)) and not isinstance(value, bool):
                made[key] = value
            case "minLength" | "maxLength" | "minItems" | "maxItems" if type(value) is int and value >= 0:
                made[key] = value
            case _:
                pass
    return made


def _is_type(value: Any) -> bool:
    return (isinstance(value, str) and value in _TYPES) or (_is_texts(value) and bool(value) and set(value) <= _TYPES)


_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))

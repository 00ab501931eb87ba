"""What the core knows of tools: their names, inputs and effects, never their code. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from agentfs.core.problems import Problem
from agentfs.core.records import Network, Tools
from agentfs.core.references import NO_PARAMS, Params

Effects = Literal["read", "write", "execute", "network", "none"]
_HERE = frozenset(("ask", "note", "run"))  # they only wait, or take notes
_PREFIX = "mcp__"  # of the tools of MCP servers


def runs_here(tool: str | None) -> bool:
    """Whether a tool runs where its driver does, at whatever place other steps run."""
    return tool is not None and (tool in _HERE or tool.startswith(_PREFIX))  # a server belongs to the run


def tool_name(server: str, tool: str) -> str:
    """Return what plans call a tool of an MCP server."""
    return f"{_PREFIX}{server}__{tool}"


def split_name(name: str) -> tuple[str, str] | None:
    """Return the MCP server and the tool that a tool's name names; None if it names none."""
    if not name.startswith(_PREFIX):
        return None
    server, bar, tool = name.removeprefix(_PREFIX).partition("__")
    return (server, tool) if server and bar and tool else None


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a plan sees it."""

    name: str
    summary: str
    input_schema: Mapping[str, Any]  # a closed JSON Schema object
    effects: Effects
    repeatable: bool  # by default; a step may say otherwise
    text_field: str | None = None  # the one required field, filled by a string input or a fence's body
    needs_model: bool = False
    gated: bool = False  # a person approves every call; it is a step's tool, never a loop's
    step_only: bool = False  # it is a step's tool, never a loop's
    touches: str = ""  # what it may touch, where that is not what [tools] says

    def surely_takes(self, given: Mapping[str, Any]) -> bool:
        """Whether an input is fine beyond doubt: texts that their fields plainly allow, none missing.

        Needs no validator, whose import alone takes longer than a small step.
        """
        fields: Mapping[str, Any] = self.input_schema.get("properties", {})
        if not self._is_plain or not self._required <= given.keys() or not given.keys() <= fields.keys():
            return False
        return all(type(text) is str and _plainly_allows(fields[name], text) for name, text in given.items())

    @cached_property
    def _is_plain(self) -> bool:
        return self.input_schema.get("type") == "object" and self.input_schema.keys() <= _PLAIN_OBJECT

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(self.input_schema.get("required", ()))


_PLAIN_OBJECT = frozenset(("type", "properties", "required", "additionalProperties"))
_PLAIN_TEXT = frozenset(("type", "description", "minLength", "maxLength"))
_PLAIN_CHOICE = frozenset(("enum", "description"))


def _plainly_allows(field: Mapping[str, Any], text: str) -> bool:
    if field.keys() <= _PLAIN_CHOICE:
        return text in field.get("enum", ())
    if field.get("type") != "string" or not field.keys() <= _PLAIN_TEXT:
        return False
    return bool(field.get("minLength", 0) <= len(text) <= field.get("maxLength", len(text)))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools that exist, and those that this run may use."""

    tools: Mapping[str, ToolSpec]
    allowed: frozenset[str]
    network: Network = False
    model: bool = False  # an executor's model is configured
    broken: tuple[str, ...] = ()  # a person's own tools that cannot be used, each with its reason
    unset: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # tools that lack a setting: why, and which
    models: tuple[str, ...] = ()  # that a planner may name in a step
    run: str | None = None  # the run that has begun with these; None: it is still to begin
    agents: tuple[str, ...] = ()  # coding agents, by name
    named_agents: tuple[str, ...] = ()  # those that a planner may name in a step
    agent: str | None = None  # the one that does steps without a tool; None: a model does
    params: Params = NO_PARAMS  # that references may name
    places: tuple[str, ...] = ()  # where steps may run beside here, by name
    broken_places: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of these: why, and how to fix it
    must_be_known: bool = False  # a step may name no other place; a run that has begun outlives the settings' places
    isolated: bool = False  # the run has a worktree of its own, which is here
    runbooks: Callable[[], Sequence[str]] = lambda: ()  # what `run` may run, a line for each
    uses: Callable[[Mapping[str, Any]], Iterable[Problem]] = lambda _given: ()  # what is wrong with input of `run`

    def under(self, own: Tools | None) -> "Catalogue":
        """Return the tools that a run may use while its plan says this of them."""
        if own is None:
            return self
        allowed = self.allowed if own.allow is None else frozenset(own.allow)
        return replace(self, allowed=allowed, network=self.network if own.network is None else own.network)

    def change(self, words: str) -> str:
        """Return how to change a setting of [tools] so that it counts: a run keeps those it began with."""
        return tool_setting(words, self.run)

    def gain_model(self) -> str:
        """Return how there comes to be a model that does steps: a run keeps those it began with."""
        words = "set OPENAI_API_KEY (or base_url under [executor] in agentfs.toml)"
        return f"{words}, then: agentfs fork {self.run} (it began without a model)" if self.run else words

    def as_stored(self) -> "Catalogue":
        """Return these tools for judging what a run holds: a setting that is missing now is no fault of it."""
        return replace(self, unset={}, uses=lambda _given: ())

    def usable_agents(self) -> tuple[str, ...]:
        """Return the coding agents that a planner may name in a step."""
        return () if self.network is False else self.named_agents

    def may_lack_tool(self) -> bool:
        """Whether there is anyone to do a step that has no tool."""
        return self.model or self.agent is not None or bool(self.usable_agents())

    def usable(self) -> frozenset[str]:
        return frozenset(name for name in self.allowed if name in self.tools and self.refusal(name) is None)

    def for_loops(self) -> frozenset[str]:
        """Return the tools that a model may be offered in a step that it does."""
        return frozenset(name for name in self.usable() if not (self.tools[name].gated or self.tools[name].step_only))

    def refusal(self, name: str) -> tuple[str, str] | None:
        """Return why this run may not use a tool that exists, and how to change that; None if it may."""
        spec = self.tools[name]
        if name not in self.allowed:
            return f"the tool {name!r} is not allowed in this run", self.change(f"add {name} to allow")
        if spec.effects == "network" and self.network is not True:
            return f"the tool {name!r} needs the network", self.change("set network = true")
        if spec.needs_model and not self.model:
            return f"the tool {name!r} needs a model", self.gain_model()
        return self.unset.get(name)


def tool_setting(words: str, run: str | None) -> str:
    """Return how to change a setting of [tools], and what makes it count in a run that has begun."""
    then = f", then: agentfs resume {run} --refresh-settings" if run else ""
    return f"{words} under [tools] in agentfs.toml{then}"

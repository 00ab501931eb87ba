"""What the core knows of tools: their names, inputs and effects, never their code. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Effects = Literal["read", "write", "execute", "network", "none"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a plan sees it."""

    name: str
    summary: str
    input_schema: Mapping[str, Any]  # a closed JSON Schema object
    effects: Effects
    repeatable: bool  # by default; a step may say otherwise
    text_field: str | None = None  # the one required field, filled by a string input or a fence's body
    needs_model: bool = False

    def surely_takes(self, given: Mapping[str, Any]) -> bool:
        """Whether an input is fine beyond doubt: texts in fields for any text, none missing. Needs no validator."""
        schema = self.input_schema
        if schema.get("type") != "object" or not schema.keys() <= _PLAIN_OBJECT:
            return False
        fields = schema.get("properties", {})
        texts_only = all(type(text) is str and _is_any_text(fields.get(name, {})) for name, text in given.items())
        return texts_only and all(name in given for name in schema.get("required", ()))


_PLAIN_OBJECT = frozenset(("type", "properties", "required", "additionalProperties"))
_PLAIN_TEXT = frozenset(("type", "description"))


def _is_any_text(field: Mapping[str, Any]) -> bool:
    return field.get("type") == "string" and field.keys() <= _PLAIN_TEXT


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools that exist, and those that this run may use."""

    tools: Mapping[str, ToolSpec]
    allowed: frozenset[str]
    network: bool = False
    model: bool = False  # an executor's model is configured
    broken: tuple[str, ...] = ()  # a person's own tools that cannot be used, each with its reason
    unset: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # tools that lack a setting: why, and which

    def usable(self) -> frozenset[str]:
        return frozenset(name for name in self.allowed if name in self.tools and self.refusal(name) is None)

    def refusal(self, name: str) -> tuple[str, str] | None:
        """Return why this run may not use a tool that exists, and how to change that; None if it may."""
        spec = self.tools[name]
        if name not in self.allowed:
            return f"the tool {name!r} is not allowed in this run", f"add it to [tools] allow: {name}"
        if spec.effects == "network" and not self.network:
            return f"the tool {name!r} needs the network", "set network = true under [tools] in agentfs.toml"
        if spec.needs_model and not self.model:
            return f"the tool {name!r} needs a model", "set OPENAI_API_KEY, or base_url under [executor]"
        return self.unset.get(name)

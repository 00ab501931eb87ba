"""agentfs: plans on disk, one step at a time, every revision in git."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentfs.tools.user_tools import tool

__version__ = "0.2.0"
__all__ = ["__version__", "tool"]


def __getattr__(name: str) -> Any:
    """Give `from agentfs import tool`, and load it only then: commands start without it."""
    if name == "tool":
        from agentfs.tools.user_tools import tool

        return tool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What steps call."""

from agentfs.tools.user_tools import tool

__all__ = ["tool"]

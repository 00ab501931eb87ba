"""What steps call."""

from agentfs.tools.own import tool

__all__ = ["tool"]

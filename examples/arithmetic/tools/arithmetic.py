"""The two tools of this workspace."""

from agentfs import tool


@tool(effects="none")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return _plain(a * b)


@tool(effects="none")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return _plain(a + b)


def _plain(number: float) -> float:
    """Return a whole number as one: 48, not 48.0."""
    return int(number) if number == int(number) else number

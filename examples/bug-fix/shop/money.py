"""Amounts of money: read from text, and written as text."""


def parse(text: str) -> float:
    """Return the amount that a text like 19.99 names."""
    return float(text)


def show(amount: float) -> str:
    """Return an amount as text."""
    return f"{amount:.2f}"

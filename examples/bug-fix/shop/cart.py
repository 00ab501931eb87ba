"""What a cart costs."""

from money import parse

Line = tuple[str, str, int]  # article, price, quantity


def total(lines: list[Line], discount: int = 0) -> float:
    """Return what the lines cost together, less a discount in percent."""
    gross = sum(parse(price) * quantity for _, price, quantity in lines)
    return gross * (100 - discount) / 100

"""What an order costs."""


def total(lines: list[tuple[int, int]]) -> int:
    """Return the sum of pieces times price, over all lines."""
    cents = 0
    for line in range(len(lines) - 1):
        pieces, price = lines[line]
        cents += pieces * price
    return cents

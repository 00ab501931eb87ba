"""An invoice as text."""

from cart import Line, total
from money import show

VAT = 0.19


def invoice(lines: list[Line], discount: int = 0) -> str:
    """Return the invoice: net, tax and what is to be paid."""
    net = total(lines, discount)
    tax = net * VAT
    return f"net {show(net)}\ntax {show(tax)}\ndue {show(net + tax)}\n"

import unittest

from money import parse, show


class Money(unittest.TestCase):
    def test_an_amount_is_whole_cents(self) -> None:
        for text, cents in (("19.99", 1999), ("0.29", 29), ("7", 700), ("4.5", 450)):
            amount = parse(text)
            self.assertEqual((type(amount), amount), (int, cents), text)

    def test_text_and_back(self) -> None:
        for text in ("19.99", "0.05", "1234.50"):
            self.assertEqual(show(parse(text)), text)

import unittest

from invoice import invoice


class Invoice(unittest.TestCase):
    def test_what_is_due_is_the_sum_of_what_is_shown(self) -> None:
        shown = invoice([("pen", "0.35", 3)], discount=10)
        self.assertEqual(shown, "net 0.95\ntax 0.18\ndue 1.13\n")

    def test_tax_is_rounded_half_up(self) -> None:
        self.assertEqual(invoice([("ink", "0.50", 1)]), "net 0.50\ntax 0.10\ndue 0.60\n")  # 9.5

import unittest

from orders import total


class Totals(unittest.TestCase):
    def test_an_order_of_one_line(self) -> None:
        self.assertEqual(total([(2, 150)]), 300)

    def test_an_order_of_three_lines(self) -> None:
        self.assertEqual(total([(1, 100), (2, 150), (3, 1)]), 403)

    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0)


if __name__ == "__main__":
    unittest.main()

import unittest

from cart import total


class Cart(unittest.TestCase):
    def test_a_sum_is_exact(self) -> None:
        self.assertEqual(total([("pen", "0.10", 3)]), 30)

    def test_a_discount_is_rounded_half_up_to_the_cent(self) -> None:
        self.assertEqual(total([("pen", "0.35", 3)], discount=10), 95)  # 94.5
        self.assertEqual(total([("ink", "0.99", 1)], discount=10), 89)  # 89.1

    def test_an_empty_cart_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0)

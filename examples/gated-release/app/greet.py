"""Greet by name."""

import sys

print(f"hello, {sys.argv[1]}")

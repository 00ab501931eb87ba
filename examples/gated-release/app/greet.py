"""Greets whoever is named."""

import sys

print(f"hello, {sys.argv[1]}")

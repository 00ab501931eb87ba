"""A bounded part of the fuzzing; `python -m tests.security.fuzzing` is the whole of it.

Letting a reader raise what it should turn into words (`except RecursionError` taken out of `json_value`) makes it fail.
"""

import pytest

from tests.security.fuzzing import READERS, Reader, findings


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_input_raises_what_is_not_documented(reader: Reader) -> None:
    assert list(findings(reader, 250, seed=2)) == []

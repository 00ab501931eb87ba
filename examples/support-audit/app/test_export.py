import unittest

from export import export


def files_of(count: int) -> list[tuple[str, int]]:
    written: list[tuple[str, int]] = []
    rows = [{"id": str(number)} for number in range(count)]
    files = export(rows, lambda name, page: written.append((name, len(page))))
    assert files == len(written)  # noqa: S101
    return written


class Export(unittest.TestCase):
    def test_small(self) -> None:
        self.assertEqual(files_of(20), [("export.csv", 20)])

    def test_large(self) -> None:
        self.assertEqual(files_of(720), [("export-0.csv", 500), ("export-500.csv", 220)])

"""Write a customer's rows as files, one file per page."""

from collections.abc import Callable

Row = dict[str, str]
Write = Callable[[str, list[Row]], None]  # the file's name, its rows

PAGE = 500


def export(rows: list[Row], write: Write) -> int:
    """Write all rows; return how many files that took."""
    if len(rows) < PAGE:
        write("export.csv", rows)
        return 1
    return export_large(rows, write)


def export_large(rows: list[Row], write: Write) -> int:
    """Write rows page by page; a file is named after the first row in it."""
    pages = len(rows) // PAGE + 1
    for number in range(pages):
        page = rows[number * PAGE : (number + 1) * PAGE]
        write(f"export-{page[0]['id']}.csv", page)
    return pages

"""Run SQL on shop.db.

`sql.py FILE` runs the file in one transaction and prints {"rows": N}, the number of rows it changed.
`sql.py --same A B` exits with 0 if the tables A and B hold equally many rows.
"""

import json
import sqlite3
import sys
from pathlib import Path


def run(database: sqlite3.Connection, path: str) -> None:
    """All of the file, or nothing of it."""
    database.executescript("begin;" + Path(path).read_text(encoding="utf-8") + "commit;")
    print(json.dumps({"rows": database.total_changes}))


def rows(database: sqlite3.Connection, table: str) -> int:
    """Return how many rows a table holds."""
    found: int = database.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608
    return found


def main() -> None:
    """Do what the command line says."""
    database = sqlite3.connect("file:shop.db?mode=rw", uri=True)
    if sys.argv[1] != "--same":
        run(database, sys.argv[1])
    elif rows(database, sys.argv[2]) != rows(database, sys.argv[3]):
        sys.exit(f"{sys.argv[2]} and {sys.argv[3]} hold different numbers of rows")


if __name__ == "__main__":
    main()

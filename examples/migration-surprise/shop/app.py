"""The shop, as far as it reads people: `app.py count`, or `app.py find WORD`."""

import sqlite3
import sys


def find(database: sqlite3.Connection, word: str) -> list[str]:
    """Return the addresses of the people whose name holds a word."""
    rows = database.execute("select email from users where name like ? order by id", (f"%{word}%",))
    return [email for (email,) in rows]


def main() -> None:
    """Answer one question."""
    database = sqlite3.connect("file:shop.db?mode=ro", uri=True)
    if sys.argv[1] == "count":
        print(len(find(database, "")))
    else:
        print("\n".join(find(database, sys.argv[2])))


if __name__ == "__main__":
    main()

"""Make shop.db as it is before the migration: 200 users, the flag off. Run it again to start over."""

import sqlite3
from pathlib import Path

HERE = Path(__file__).parent
FIRST = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "John", "Radia", "Tony")
LAST = ("Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Allen", "Backus", "Perlman", "Hoare")


def users(count: int, source: str) -> list[tuple[str, str, str]]:
    """Return that many people, each with an address of their own."""
    found = []
    for number in range(count):
        first, last = FIRST[number % 10], LAST[number // 10 % 10]
        found.append((f"{first} {last}", f"{first}.{last}.{number}@{source}.example".lower(), source))
    return found


def main() -> None:
    """Write a new database."""
    path = HERE / "shop.db"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.executescript((HERE / "schema.sql").read_text(encoding="utf-8"))
    database.executemany("insert into users (name, email, source) values (?, ?, ?)", users(200, "shop"))
    database.commit()
    database.close()


if __name__ == "__main__":
    main()

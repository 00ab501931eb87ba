"""Write the figures into docs/proof.md: python -m tests.proof"""

from pathlib import Path

from tests.proof.figures import BEGIN, END, table
from tests.proof.liars import worlds

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(tuple(worlds()))}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Goals for a real model, each with a check of the world that the model is never shown."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Met = Callable[[Path, str], bool]  # the working folder, the answer -> is it really so?


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked, the files it begins with, and whether it was truly met."""

    name: str
    text: str
    met: Met
    files: tuple[tuple[str, str], ...] = ()


def _holds(name: str, *parts: str) -> Met:
    def met(folder: Path, _answer: str) -> bool:
        path = folder / name
        return path.is_file() and all(part in path.read_text("utf-8", "replace").lower() for part in parts)

    return met


def _says(*parts: str) -> Met:
    return lambda _folder, answer: all(part in answer.lower() for part in parts)


def _same_lines(name: str, lines: list[str]) -> Met:
    return lambda folder, _answer: (folder / name).is_file() and (folder / name).read_text().split() == lines


def _is_json(name: str, value: object) -> Met:
    def met(folder: Path, _answer: str) -> bool:
        try:
            return bool(json.loads((folder / name).read_text()) == value)
        except (OSError, ValueError):
            return False

    return met


PRICES = (("prices.csv", "item,price\npear,3\napple,5\nplum,2\n"),)

GOALS = (
    Goal("hello", "Write the word hello into a file named hello.txt.", _holds("hello.txt", "hello")),
    Goal("count-lines", "How many lines does names.txt have? Answer with the number.", _says("4"),
         (("names.txt", "Ada\nGrace\nAlan\nEdsger\n"),)),
    Goal("sort-names", "Sort the lines of names.txt and write them to sorted.txt.",
         _same_lines("sorted.txt", ["Ada", "Alan", "Edsger", "Grace"]), (("names.txt", "Grace\nAda\nEdsger\nAlan\n"),)),
    Goal("sum", "Add up the prices in prices.csv and write the sum to total.txt.", _holds("total.txt", "10"), PRICES),
    Goal("largest", "Which item in prices.csv is the most expensive? Answer with its name.", _says("apple"), PRICES),
    Goal("rename", "In greeting.txt replace the word world by moon.", _holds("greeting.txt", "hello moon"),
         (("greeting.txt", "hello world\n"),)),
    Goal("two-files", "Join a.txt and b.txt into both.txt, a.txt first.", _same_lines("both.txt", ["one", "two"]),
         (("a.txt", "one\n"), ("b.txt", "two\n"))),
    Goal("to-json", 'Write a file point.json that holds the JSON object {"x": 1, "y": 2}.',
         _is_json("point.json", {"x": 1, "y": 2})),
    Goal("find-word", "Which of the files in notes/ mentions the word zebra? Answer with its name.", _says("b.txt"),
         (("notes/a.txt", "a horse\n"), ("notes/b.txt", "a zebra\n"), ("notes/c.txt", "a cow\n"))),
    Goal("unique", "Write the lines of log.txt to unique.txt, each only once, in the order in which they first come.",
         _same_lines("unique.txt", ["start", "load", "save", "stop"]),
         (("log.txt", "start\nload\nstart\nsave\nload\nstop\n"),)),
    Goal("change-port", "In config.json set port to 9090 and leave everything else as it is.",
         _is_json("config.json", {"host": "localhost", "port": 9090, "debug": False}),
         (("config.json", '{"host": "localhost", "port": 8080, "debug": false}\n'),)),
    Goal("adults", "Write to adults.csv the header line of people.csv and every row of it whose age is 18 or more.",
         _same_lines("adults.csv", ["name,age", "Ann,31", "Cid,18"]),
         (("people.csv", "name,age\nAnn,31\nBob,12\nCid,18\nDot,7\n"),)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GoalReport:
    """How one goal went."""

    name: str
    planned: bool  # a valid plan came of it
    repairs: int  # turns in which the planner was asked to fix its answer
    found: tuple[str, ...]  # the problems that were reported to it
    calls: int
    status: str  # how the run ended, or that it waits
    met: bool  # checked by code that the model was not shown
    seconds: float


def report(reports: list[GoalReport]) -> str:
    """Return the table that is written down."""
    rows = [
        f"| {one.name} | {'yes' if one.planned else 'no'} | {one.repairs} | {one.calls} | {one.status} "
        f"| {'yes' if one.met else 'no'} | {one.seconds:.0f} s |"
        for one in reports
    ]
    head = ["| goal | planned | repair turns | calls | ended | truly met | took |", "|---|---|---|---|---|---|---|"]
    done, met = sum(one.status == "done" for one in reports), sum(one.met for one in reports)
    sums = (
        f"{len(reports)} goals: {sum(one.planned for one in reports)} planned validly, {done} done, {met} truly met."
    )
    problems = [f"- {one.name}: {problem}" for one in reports for problem in one.found]
    return "\n".join(
        [*head, *rows, "", sums, "", "What the planner was asked to fix:", "", *(problems or ["- nothing"]), ""]
    )

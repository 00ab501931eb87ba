"""A person saves plan.json again and again while a model rewrites it: no save is lost, and none is taken back.

`./test --full` makes it 1,500 saves, half in place and half by rename; by default it is fewer.
"""

import itertools
import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentfs.testing import ScriptedServer, replies
from agentfs.testing.replies import Body, ScriptedReply
from tests.daemons import Watching
from tests.sweeps import size
from tests.workspaces import Place, wait_for

RUNS = 4
EDITS = -(-size(48, 1500) // (2 * RUNS))  # of one run, in one way of saving
SETTINGS = """\
mode = "split"
approve = "never"
[limits]
replans = 1000000
requests = 1000000
tokens = 1000000000
parallel = 4
[tools]
sandbox = "off"
"""


class Rewriting:
    """A planner that puts another step, which fails too, into the place of the one that failed."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.pauses = random.Random("planner")

    def __call__(self, _request: Body) -> ScriptedReply:
        name = f"s{next(self.numbers)}"
        time.sleep(self.pauses.random() * 0.1)  # it thinks
        words = {"description": f"try {name}", "success_condition": f"the command of {name} prints its file"}
        fails = {"tool": "shell", "input": {"command": "sleep 0.03; exit 1"}, "max_attempts": 1, "depends_on": []}
        return replies.plan({"steps": [{"id": name, **words, **fails}]})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ScriptedServer(Rewriting()) as server:
        place = Place(tmp_path)
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        yield place


class Person:
    """Owns one step of a plan, which is left out of the work, and writes another reason into it with every save."""

    def __init__(self, folder: Path, *, in_place: bool) -> None:
        self.folder, self.in_place, self.pauses = folder, in_place, random.Random(folder.name)

    def edit_all(self) -> list[str]:
        """Save many times, each once the last one is a revision; return the saves that never became one."""
        lost = []
        for number in range(EDITS):
            time.sleep(self.pauses.random() * 0.1)  # so that saves fall before, into and after an exchange
            self.save(f"edit {number}")
            try:
                wait_for(lambda number=number: self.settled(f"edit {number}"), f"edit {number}", 20)  # type: ignore[misc]
            except AssertionError:
                lost.append(f"edit {number}")
        return lost

    def save(self, why: str) -> None:
        plan = self.folder / "plan.json"
        value = self.read(plan)
        mine = {"id": "mine", "why": why, "tool": "note", "input": {"text": "mine"}, "skip": "mine", "depends_on": []}
        others = [step for step in value["steps"] if step["id"] != "mine"]
        text = json.dumps(value | {"steps": [mine, *others]}, indent=1)
        if self.in_place:
            with plan.open("w") as file:  # opened, truncated, then written in two halves
                file.write(text[: len(text) // 2])
                file.flush()
                file.write(text[len(text) // 2 :])
        else:
            beside = self.folder / "plan.json~"
            beside.write_text(text)
            beside.rename(plan)

    def read(self, path: Path) -> Any:
        while True:
            try:
                return json.loads(path.read_bytes())
            except ValueError:
                continue

    def settled(self, why: str) -> bool:
        """Whether a save has become a revision. A step that was saved back after the planner dropped it is asked about."""
        for question in self.folder.glob("planning/*.question*.md"):
            reply = question.with_name(question.name.replace("question", "reply"))
            if not reply.exists():
                reply.write_text("approve\n")
        return any(f'"why": "{why}"' in path.read_text() for path in self.copies()[-20:])

    def copies(self) -> list[Path]:
        found = self.folder.glob("revisions/*.plan.json")
        return sorted(found, key=lambda path: int(path.name.partition(".")[0]))

    def planned(self) -> int:
        """Return how many revisions are the planner's."""
        records = [path for path in self.folder.glob("revisions/*.json") if path.name.count(".") == 1]
        return [json.loads(path.read_text())["by"]["role"] for path in records].count("planner")

    def edits(self) -> list[int]:
        """Return the number of the edit that each revision holds."""
        plans = [json.loads(path.read_text()) for path in self.copies()]
        mine = [step["why"] for plan in plans for step in plan["steps"] if step["id"] == "mine"]
        return [int(why.partition(" ")[2]) for why in mine]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by rename"])
def test_no_save_is_lost_to_a_planner_that_rewrites(place: Place, in_place: bool) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(SETTINGS)
    with Watching(place) as watch:
        for number in range(RUNS):
            watch.drop(f"job-{number}x.md", "Never end\n")
        wait_for(lambda: len(list(place.runs.glob("*/*/revisions/2.json"))) == RUNS, "every run to replan")
        folders = sorted(path.parent.parent for path in place.runs.glob("*/*/revisions/2.json"))
        people = [Person(folder, in_place=in_place) for folder in folders]
        with ThreadPoolExecutor(RUNS) as pool:
            lost = list(pool.map(Person.edit_all, people))
    assert lost == [[] for _ in folders]
    planned = [person.planned() for person in people]
    assert sum(planned) > RUNS * EDITS / 4, f"the plans were hardly rewritten: the race did not happen: {planned}"
    for person in people:
        edits = person.edits()
        assert edits == sorted(edits), "a planner's revision took an edit back"
        assert set(edits) == set(range(EDITS))

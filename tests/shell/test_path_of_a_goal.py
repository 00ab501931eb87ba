"""The path of one goal that ARCHITECTURE.md describes is the one that a real run takes, and it is a short one."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentfs.storage.timing import DIVISOR
from scripts.modules_entered import by_module, run_followed
from tests.workspaces import Place

REPO = Path(__file__).parent.parent.parent
MOST_HOPS = 15
MOST_MODULES = 75  # of ours, in which a run of one step enters a function
MOST_BETWEEN = 6  # functions of ours, between an attempt and the start of its program


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the functions that a run of one step enters, in order, and what was above each start of a program."""
    place = Place(tmp_path_factory.mktemp("path"))
    place.goal("# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n")
    env = {name: value for name, value in place.env.items() if not name.startswith("AGENTFS_")}  # as people have it
    return run_followed(place.root, {**env, "PYTHONPATH": str(REPO), DIVISOR: "1"})


def test_a_run_takes_the_path_that_is_described(followed: dict[str, Any]) -> None:
    section = (
        (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## The path of one goal")[1].split("## ")[0]
    )
    hops = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert 10 <= len(hops) <= MOST_HOPS
    entered = [name.replace(":", ".") for name in followed["entered"]]
    *run, commit = hops  # the commit is on a thread of its own: a slow machine may begin one earlier
    assert [name for name in entered if name in run] == run
    assert commit in entered


def test_few_modules_are_entered_to_run_one_step(followed: dict[str, Any]) -> None:
    modules = by_module(followed["entered"])
    assert len(modules) <= MOST_MODULES, sorted(modules)


def test_few_functions_are_between_an_attempt_and_its_program(followed: dict[str, Any]) -> None:
    between = [
        chain[: chain.index("executor.attempt:attempt")]
        for chain in followed["chains"]
        if "executor.attempt:attempt" in chain and chain[0] == "tools.launch:start"
    ]
    assert between
    assert max(map(len, between)) <= MOST_BETWEEN, between

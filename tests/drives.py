"""Runs driven in this process, from a goal in plan form, by a model that says what a test tells it to."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentfs.commands.common import init_workspace
from agentfs.core.actions import Action, Wait
from agentfs.core.run_state import RunState
from agentfs.engine.driver import Driver
from agentfs.engine.foreground import Stop, drive
from agentfs.engine.goal_source import goal_from
from agentfs.engine.intake import judge_goal, taking
from agentfs.engine.means import catalogue_of
from agentfs.engine.world import open_driver, open_world
from agentfs.storage.locks import locked
from agentfs.storage.workspace import Workspace, load_settings
from tests.scripts import Script


class Quiet:
    """Hears everything, says nothing."""

    def turn(self, state: RunState, actions: list[Action]) -> None:
        pass

    def note(self, words: str) -> None:
        pass


@dataclass
class Drive:
    """One run, and how it came to rest."""

    driver: Driver
    rest: Wait | None

    @property
    def folder(self) -> Path:
        return self.driver.folder

    def result(self, step: str, attempt: int = 1) -> Any:
        return json.loads((self.folder / "steps" / f"{step}.{attempt}.result.json").read_text(encoding="utf-8"))

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "steps").iterdir())

    def answer(self, name: str, words: str) -> None:
        (self.folder / "steps" / name).write_text(words, encoding="utf-8")


class Driven:
    """A workspace with a model that a script speaks for."""

    def __init__(self, root: Path, *, max_turns: int = 20, **settings: str) -> None:
        root.mkdir(exist_ok=True)
        self.environment = {
            "HOME": str(root / "home"),
            "PATH": os.environ["PATH"],
            "AGENTFS_EXECUTOR_BASE_URL": "http://127.0.0.1:1/v1",
            "AGENTFS_TOOLS_SANDBOX": "off",
            "AGENTFS_EXECUTOR_MAX_TURNS": str(max_turns),
            **settings,
        }
        self.workspace: Workspace = init_workspace(root, self.environment)[0]

    def begin(self, steps: Sequence[Mapping[str, Any]], model: Script, **goal: Any) -> Drive:
        """Take a goal that brings its own steps, and drive it until it rests."""
        content = json.dumps({"goal": "Tidy the shop", **goal, "steps": steps})
        path = self.workspace.root / "job.json"
        path.write_text(content, encoding="utf-8")
        return self._driven(model, lambda stack: self._taken(path, stack))

    def go_on(self, model: Script, name: str = "job") -> Drive:
        """Take a run up again, as another process would."""
        (folder,) = self.workspace.runs.glob(f"????-??-??/{name}")

        def held(stack: ExitStack) -> Path:
            assert stack.enter_context(locked(folder))
            return folder

        return self._driven(model, held)

    def _taken(self, path: Path, stack: ExitStack) -> Path:
        settings = load_settings(self.workspace.settings, self.environment)
        source = goal_from(str(path), path.parent, lambda: b"")
        catalogue = catalogue_of(settings, self.environment)
        goal = judge_goal(source, self.workspace.root, settings, catalogue, planner=True)
        return stack.enter_context(taking(goal, self.workspace))

    def _driven(self, model: Script, folder: Callable[[ExitStack], Path]) -> Drive:
        settings, stop = load_settings(self.workspace.settings, self.environment), Stop()
        messages: list[str] = []
        with (
            open_world(self.workspace, settings, self.environment, messages.append, stop.wake.set) as world,
            ExitStack() as stack,
        ):
            speaking = replace(world, executor=lambda _run, _name: model)
            driver = open_driver(folder(stack), speaking)
            return Drive(driver, drive(driver, stop, Quiet()).why)

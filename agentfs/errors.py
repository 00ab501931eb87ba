"""What can go wrong, as people meet it. Each carries its exit code; none of them shows a traceback.

AgentfsError
├── UserError        2  the command or a file is wrong
│   ├── BadFile      2  a file is wrong: every problem with its place
│   ├── NotARun      2  a folder holds no run
│   └── Watched      2  another `watch` runs in the workspace
└── NoModel          4  no model is configured, and the goal needs one
"""

from collections.abc import Sequence

from agentfs.core.problems import Problem


class AgentfsError(Exception):
    """Something a person can do something about."""

    code = 2


class UserError(AgentfsError):
    """The command or a file is wrong."""


class BadFile(UserError):
    """A file is wrong; the message lists every problem as file:line:column, and what would do instead.

    `source`: what the file holds. `advice`: a command that would be taken, if one is known.
    """

    def __init__(self, file: str, problems: Sequence[Problem], source: bytes = b"", advice: str = "") -> None:
        super().__init__("\n".join([*(problem.shown(file) for problem in problems), *([advice] if advice else [])]))
        self.file, self.problems, self.source, self.advice = file, tuple(problems), source, advice


class NoModel(AgentfsError):
    """The goal needs a model, and none is configured. `problem`: the same as one of the goal file."""

    code = 4

    def __init__(self, words: str, problem: Problem) -> None:
        super().__init__(words)
        self.problem = problem


class NotARun(UserError):
    """A folder that holds no run."""


class Watched(UserError):
    """Another `watch` runs in the workspace."""

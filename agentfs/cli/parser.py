"""What can be typed. Builds the parsers and nothing else: a command's module is imported when it is called."""

import argparse
import importlib
from collections.abc import Callable
from typing import Any, NoReturn

Command = Callable[[argparse.Namespace], int]

USAGE = "agentfs [-C DIR] COMMAND ..."
EPILOG = """\
start here:
  agentfs run goal.md        plan a goal and carry it out
  agentfs status             what the runs of this workspace are doing
  agentfs show RUN           one run: its plan, each step's state and output
  agentfs log RUN            its revisions: who changed the plan, why, and the git commands to see it

exit codes:
  0 done   1 the run failed or was cancelled   2 the command or a file is wrong
  3 waiting for a person   4 no model could be reached   130 interrupted (resumable)
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are told in one line, with a way on."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"agentfs: {message} (try `{self.prog} --help`)\n")


def command(module: str, function: str) -> Command:
    """Return a command that is imported when it is called."""

    def call(arguments: argparse.Namespace) -> int:
        called: Command = getattr(importlib.import_module(f"agentfs.cli.{module}"), function)
        return called(arguments)

    return call


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the parsed command line; its `command` is the function to call."""
    arguments = build().parse_args(argv)
    if not hasattr(arguments, "command"):
        build().print_help()
        raise SystemExit(0 if not argv else 2)
    return arguments


def build() -> Parser:
    """Return the whole parser."""
    parser = Parser(
        prog="agentfs",
        usage=USAGE,
        description="An agent you operate with your editor and git: the plan is a file, every revision is a commit.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("-C", dest="folder", metavar="DIR", default=".", help="the workspace, or a folder in it")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    _making(commands)
    _looking(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from agentfs import __version__

        print(f"agentfs {__version__}")
        parser.exit(0)


def _add(commands: Any, name: str, call: Command, words: str, more: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=words + ("\n\n" + more if more else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(command=call)
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode", choices=["auto", "split", "stepwise", "single", "scratchpad"], help="how it is driven"
    )
    parser.add_argument("--approve", choices=["never", "plan", "always"], help="when a person must approve plans")
    parser.add_argument("--workdir", metavar="DIR", help="the folder to work in (default: the run's own files/)")
    parser.add_argument("--planner", metavar="MODEL", help="the model that plans")
    parser.add_argument("--executor", metavar="MODEL", help="the model that carries out steps")


def _making(commands: Any) -> None:
    init = _add(commands, "init", command("make", "init"), "make a workspace: settings, goals/, runs/, schemas/")
    init.add_argument("dir", metavar="DIR", nargs="?", default=".", help="where (default: here)")
    run = _add(
        commands, "run", command("drive", "run"), "plan a goal and carry it out",
        "GOAL is a file (.md .txt .yaml .json), - for standard input, or the goal's words.\n"
        "Outside any workspace one is made in the current folder first.\n"
        "Ctrl-C once: what runs finishes. Twice: it is ended. `run --resume RUN` goes on.",
    )  # fmt: skip
    run.add_argument("goal", metavar="GOAL", nargs="?", help="a file, -, or the goal in words")
    run.add_argument("--resume", metavar="RUN", help="go on with a run instead of beginning one")
    _flags(run)
    plan = _add(
        commands, "plan", command("drive", "plan"), "plan a goal and stop before anything runs",
        'The run is left as a draft: edit its plan.json, set "status" to "approved",\n'
        "then `agentfs run --resume RUN`.",
    )  # fmt: skip
    plan.add_argument("goal", metavar="GOAL", help="a file, -, or the goal in words")
    _flags(plan)
    check = _add(commands, "check", command("make", "check"), "check plans, goals and settings without running them")
    check.add_argument("files", metavar="FILE", nargs="+", help="plan.json, a goal file, or agentfs.toml")
    _json(check)
    trust = _add(
        commands, "trust", command("make", "trust"), "allow runs in a workspace somebody else made",
        "A workspace you did not `init` may carry settings and tools of its own. Look at its agentfs.toml\n"
        "and tools/ first.",
    )  # fmt: skip
    trust.add_argument("dir", metavar="DIR", help="the workspace")
    completion = _add(commands, "completion", command("completion", "completion"), "print a shell completion script")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="for which shell")


def _looking(commands: Any) -> None:
    status = _add(commands, "status", command("look", "status"), "what the runs of this workspace are doing")
    status.add_argument("run", metavar="RUN", nargs="?", help="only this run, step by step")
    _json(status)
    show = _add(commands, "show", command("look", "show"), "one run: its plan, each step's state and output")
    show.add_argument("run", metavar="RUN", help="a run id, its last part, or a unique prefix")
    show.add_argument("step", metavar="STEP", nargs="?", help="only this step, in full")
    _json(show)
    log = _add(commands, "log", command("look", "log"), "its revisions: who, why, and the git commands to see them")
    log.add_argument("run", metavar="RUN", help="a run id, its last part, or a unique prefix")
    _json(log)
    tools = _add(commands, "tools", command("look", "tools"), "the tools that steps may call")
    _json(tools)

"""What can be typed. Builds the parsers and nothing else: a command's module is imported when it is called."""

import argparse
import importlib
import textwrap
from collections.abc import Callable
from typing import Any, NoReturn

Command = Callable[[argparse.Namespace], int]

USAGE = "agentfs [-C DIR] COMMAND ..."
EPILOG = """\
start here:
  agentfs run goal.md        plan a goal and carry it out
  agentfs watch              take the goals dropped into goals/, and drive every run
  agentfs status             what the runs of this workspace are doing
  agentfs show RUN           one run: its plan, each step's state and output
  agentfs log RUN            its revisions: who changed the plan, why, and the git commands to see it

exit codes:
  0 done   1 the run failed or was cancelled   2 the command or a file is wrong
  3 waiting for a person   4 no model could be reached   130 interrupted (resumable)
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are told in one line, with a way on."""

    more: Callable[[], str] | None = None  # makes the end of the help, when somebody asks for it

    def format_help(self) -> str:
        self.epilog = self.more() if self.more else self.epilog
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        from agentfs.cli.streams import harmless

        self.exit(2, f"{harmless(f'agentfs: {message}')} (try `{self.prog} --help`)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say of a misspelt command which one was meant, instead of listing all of them."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001
            from agentfs.core.problems import did_you_mean

            meant = did_you_mean(value, action.choices)
            self.error(f"there is no command {value!r}{f', {meant}' if meant else ''}")
        super()._check_value(action, value)


def command(module: str, function: str, *, drives: bool = False) -> Command:
    """Return a command that is imported when it is called. `drives`: it needs what only Linux has."""

    def call(arguments: argparse.Namespace) -> int:
        if drives:
            from agentfs.system import require_linux

            require_linux(f"agentfs {function}")
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
        formatter_class=_Help,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("-C", dest="folder", metavar="DIR", default=".", help="the workspace, or a folder in it")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="agentfs", parser_class=Parser)
    _making(commands)
    _looking(commands)
    _changing(commands)
    return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Leaves room for the longest command, which argparse would put on a line of its own."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 14


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from agentfs import __version__

        print(f"agentfs {__version__}")
        parser.exit(0)


def _add(commands: Any, name: str, call: Command, words: str, more: str = "") -> Parser:
    parser: Parser = commands.add_parser(
        name, help=words, description=words + ("\n\n" + more if more else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(command=call)
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


class _States(argparse.Action):
    """States of runs, separated by commas or given one by one."""

    known: tuple[str, ...] = ()

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        for word in str(given[0]).split(","):
            if word.strip() not in self.known:
                parser.error(f"--state {word!r}: choose from {', '.join(self.known)}")
            setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), word.strip()])


def _state(parser: argparse.ArgumentParser, known: tuple[str, ...]) -> None:
    words = "only runs in this state; several: --state failed,cancelled"
    action = parser.add_argument("--state", metavar="STATE", action=_States, help=words)
    vars(action)["known"] = known


REFRESH = "use [tools] of agentfs.toml as it is now, not as it was when the run began"
MODES = ("auto", "split", "stepwise", "single", "scratchpad")


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=MODES, help="how it is driven")
    parser.add_argument("--approve", choices=["never", "plan", "always"], help="when a person must approve plans")
    parser.add_argument("--workdir", metavar="DIR", help="the folder to work in (default: the run's own files/)")
    parser.add_argument("--planner", metavar="MODEL", help="the model that plans")
    parser.add_argument("--executor", metavar="MODEL", help="the model that carries out steps")


def _making(commands: Any) -> None:
    words = "make a workspace: settings, goals/, runs/, schemas/"
    init = _add(commands, "init", command("make", "init", drives=True), words)
    init.add_argument("dir", metavar="DIR", nargs="?", default=".", help="where (default: here)")
    run = _add(
        commands, "run", command("drive", "run", drives=True), "plan a goal and carry it out",
        "GOAL is a file (.md .txt .yaml .json), - for standard input, or the goal's words.\n"
        "Outside any workspace one is made in the current folder first.\n"
        "Ctrl-C once: what runs finishes. Twice: it is ended. `agentfs resume RUN` goes on.",
    )  # fmt: skip
    run.add_argument("goal", metavar="GOAL", nargs="?", help="a file, -, or the goal in words")
    run.add_argument("--resume", metavar="RUN", help="the same as `agentfs resume RUN`")
    run.add_argument("--refresh-settings", action="store_true", help=f"with --resume: {REFRESH}")
    _flags(run)
    watch = _add(
        commands, "watch", command("watch", "watch", drives=True),
        "take the goals dropped into goals/, and drive every open run",
        "A goal that is complete becomes a run, once; one that is not good goes to goals/rejected/ with its reason.\n"
        "What you edit in an open run is acted upon at once. `agentfs run` works beside it.\n"
        "Ctrl-C once: what runs finishes. Twice, or SIGTERM: it is ended. Either way the exit code is 130, and\n"
        "the next `agentfs watch` goes on.",
    )  # fmt: skip
    watch.add_argument("--poll", action="store_true", help="look every second instead of waiting for events")
    watch.add_argument("--json", action="store_true", help="one JSON object per line on stdout, for programs")
    plan = _add(
        commands, "plan", command("drive", "plan", drives=True), "plan a goal and stop before anything runs",
        'The run is left as a draft: edit its plan.json, set "status" to "approved",\n'
        "then `agentfs resume RUN`.",
    )  # fmt: skip
    plan.add_argument("goal", metavar="GOAL", help="a file, -, or the goal in words")
    _flags(plan)
    check = _add(
        commands, "check", command("check", "check"), "check plans, goals and settings without running them",
        "A goal is judged as `run` judges it here, one in goals/ as `watch` does. Exit code 2: there is a problem;\n"
        "4: all that is missing is a model.\n\n"
        "With --against RUN: FILE is a plan, judged by that run's tools; if it is good, what it would mean for that\n"
        "run is told: what it changes, which steps run again, which are kept. Nothing is written.",
    )  # fmt: skip
    check.more = _step_lines
    check.add_argument("files", metavar="FILE", nargs="+", help="plan.json, a goal file, or agentfs.toml")
    check.add_argument("--against", metavar="RUN", help="what the plan in FILE would mean for this run")
    _json(check)
    trust = _add(
        commands, "trust", command("make", "trust"), "allow runs in a workspace another user made",
        "A workspace you did not `init` may carry settings and tools of its own. Look at its agentfs.toml\n"
        "and tools/ first.",
    )  # fmt: skip
    trust.add_argument("dir", metavar="DIR", help="the workspace")
    completion = _add(commands, "completion", command("completion", "completion"), "print a shell completion script")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="for which shell")


def _step_lines() -> str:
    """Return the lines that a step of a runbook may hold, as help."""
    from agentfs.core.step_lines import LINES

    indent = " " * 27
    rows = [
        f"  {form.shown:25}{textwrap.fill(indent + form.plain, 100, subsequent_indent=indent)[27:]}" for form in LINES
    ]
    return "\n".join(["lines that a step of a runbook (`## Steps`, `### id`) may hold:", *rows])


ENDS = ("done", "failed", "cancelled")
STATES = ("waiting", "draft", "running", "planning", "paused", *ENDS)
RUN = "a run: its id (2026-11-16/tidy), its last part (tidy), or the beginning of either"


def _listing(commands: Any) -> None:
    status = _add(
        commands, "status", command("status", "status"), "what the runs of this workspace are doing",
        "Lists the runs: those that wait for a person, those that are under way, then the newest that have ended;\n"
        "with RUN, the steps of that one.\n\n"
        "states of a run:\n"
        "  planning   a plan is being made        draft      the plan waits for approval\n"
        "  running    steps are carried out       waiting    a person is asked\n"
        "  paused     a person has paused it      done, failed, cancelled: it has ended\n\n"
        "With --json: a list of all that are meant, each with run, state, steps {done, total}, why, outcome,\n"
        "at, driven; with RUN that one alone, with by_step.",
    )  # fmt: skip
    status.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    status.add_argument("--all", action="store_true", help="also the older runs that have ended")
    status.add_argument(
        "--since",
        metavar="WHEN",
        help="without those that ended before: 90min, 3h, 2d, 4w ago, or a day (2026-11-01)",
    )
    _state(status, STATES)
    status.add_argument("--watch", action="store_true", help="refresh it every second, until Ctrl-C")
    _json(status)


def _looking(commands: Any) -> None:
    _listing(commands)
    show = _add(
        commands, "show", command("look", "show"), "one run: its plan, each step's state and output",
        "With STEP, that step in full: what it was given, each attempt's result, checks, error, log and files.\n"
        "With --json: the plan, each step with state, because, attempt, output and result merged in.",
    )  # fmt: skip
    show.add_argument("run", metavar="RUN", help=RUN)
    show.add_argument("step", metavar="STEP", nargs="?", help="a step's id")
    _json(show)
    log = _add(
        commands, "log", command("look", "log"), "its revisions: who, why, and the git commands to see them",
        "Every change of a plan is a revision, and every revision is a commit in runs/. The newest is last.",
    )  # fmt: skip
    log.add_argument("run", metavar="RUN", help=RUN)
    log.add_argument(
        "-f", "--follow", action="store_true", help="go on printing what happens, log lines too, until the run ends"
    )
    _json(log)
    diff = _add(
        commands, "diff", command("compare", "diff"), "what differs between two revisions, by meaning",
        "Steps added, removed, changed field by field, put after others; what runs again and what is kept.\n\n"
        "  agentfs diff RUN        the last revision against the one before\n"
        "  agentfs diff RUN 2      revision 2 against plan.json as it is now\n"
        "  agentfs diff RUN 2..4   revision 2 against revision 4\n"
        "  agentfs diff RUN --question   the plan as it is against the planner's answer that waits",
    )  # fmt: skip
    diff.add_argument("run", metavar="RUN", help=RUN)
    diff.add_argument("revisions", metavar="A[..B]", nargs="?", help="numbers of revisions")
    diff.add_argument("--question", action="store_true", help="what an answer that waits for a yes would change")
    diff.add_argument("--stat", action="store_true", help="only how much, in one line")
    _json(diff)
    blame = _add(
        commands, "blame", command("blame", "blame"), "who set each field of its plan, in which revision, and why",
        "A person by name, a planner with its model, or the runbook. With STEP, that step alone.",
    )  # fmt: skip
    blame.add_argument("run", metavar="RUN", help=RUN)
    blame.add_argument("step", metavar="STEP", nargs="?", help="a step's id")
    _json(blame)
    _summing_up(commands)
    commands.add_parser("complete-runs").set_defaults(command=command("look", "complete_runs"))  # for completion


def _summing_up(commands: Any) -> None:
    cost = _add(
        commands, "cost", command("cost", "cost"), "what it asked of models: requests, tokens, money, time waited",
        "By role, by the planner's calls and by step, from the logs; prices as set, or as listed. What nobody\n"
        "knows is unknown, never nothing. Input includes cached, output includes reasoning.\n"
        "With --json: total, by_role, by_model, by_step, by_call, to the token.",
    )  # fmt: skip
    cost.add_argument("run", metavar="RUN", help=RUN)
    _json(cost)
    compare = _add(
        commands, "compare", command("comparing", "compare"), "two runs side by side: plans, outcomes, time, cost",
        "Requests, tokens and cost by role; then how the second one's plan differs from the first one's.\n"
        "With --json: runs (the two, each with state, steps, seconds, total, by_role), same_goal, plan, steps.",
    )  # fmt: skip
    compare.add_argument("run", metavar="RUN", help=RUN)
    compare.add_argument("other", metavar="RUN", help="another, to be held against it")
    _json(compare)
    _replaying(commands)
    tools = _add(
        commands, "tools", command("look", "tools"), "the tools that steps may call",
        "Each with its input, what it touches, and whether runs here may use it ([tools] in agentfs.toml).",
    )  # fmt: skip
    _json(tools)
    _proving(commands)


def _proving(commands: Any) -> None:
    doctor = _add(
        commands, "doctor", command("doctor", "doctor"), "what is wrong with this machine and workspace",
        "Git, the sandbox, watches, file systems, settings, trust, schemas, tools, model endpoints, the ledger and\n"
        "stale claims, each with how to fix it. Nothing of the workspace is run and no token is spent: models are\n"
        "listed, tools are read by their source. What a file system can do is tried in folders that are called\n"
        ".agentfs-doctor-PID.tmp, in runs/ and goals/, and are removed again. Outside any workspace only the\n"
        "machine is looked at. Exit code 0: all is well, or there are only notes. 2: something is wrong.",
    )  # fmt: skip
    _json(doctor)
    verify = _add(
        commands, "verify", command("verify", "verify"), "prove that files and ledger agree: nothing was rewritten",
        "Every file that is written once is what was committed; every revision has one commit of its own, in order,\n"
        "that says what its record says; hashes hold; git fsck finds the ledger whole. Without RUN: all runs. It\n"
        "only reads. Each disagreement is a line: the file, what is wrong, what to do. What a process that drives\n"
        "the run has yet to commit is told too, and is none. Exit code 0: they agree. 2: they do not.",
    )  # fmt: skip
    verify.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    _json(verify)


def _replaying(commands: Any) -> None:
    replay = _add(
        commands, "replay", command("replay", "replay"), "run it again from its files, and say where that departs",
        "No network, no cost, no effects: models, tools and checks give what they gave then, people's acts come\n"
        "where they came; everything else is decided again, file by file. RUN is left as it is.\n"
        "Exit code 0: the same. 1: it departs, each difference a line. 2: it cannot be replayed.",
    )  # fmt: skip
    replay.add_argument("run", metavar="RUN", help=f"{RUN}; or the folder of a saved recording")
    replay.add_argument("--save", metavar="DIR", help="replay nothing: copy what a replay needs, for a test of yours")
    replay.add_argument("--lenient", action="store_true", help="what models are asked may differ (changed prompts)")
    _json(replay)


def _changing(commands: Any) -> None:
    """Commands that edit a run's files, as a person could with an editor."""
    approve = _change(
        commands, "approve", command("change", "approve"), "say yes: to a draft, a gate, a planner's answer",
        "Settles the one thing that is open; with several it lists them, and `approve RUN STEP` says which.\n"
        "With several RUNs, what each of them asks; if one asks nothing, or several things, nothing is written.\n"
        "The second word is a STEP if RUN has a step of that name, or no run has that name in full; else a RUN.\n"
        "RUN@REV approves that revision and no other: if the plan has changed since, nothing happens.",
    )  # fmt: skip
    _runs_or_step(approve)
    reject = _change(
        commands, "reject", command("change", "reject"), "say no: to a draft, a gate, a planner's answer",
        "A planner whose draft or answer is rejected is asked again, with what you say.\n"
        "As with `approve`, a STEP of RUN may follow, or more RUNs.",
    )  # fmt: skip
    _runs_or_step(reject)
    reject.add_argument("--because", metavar="TEXT", help="why")
    reply = _change(
        commands, "reply", command("change", "reply"), "answer the question of a step, or the one that is open",
        "A gate takes approve or reject, an attempt that was cut off again, done or failed, as its first line;\n"
        "what follows is the reason, or the output. Any other question takes any words.",
    )  # fmt: skip
    reply.add_argument("run", metavar="RUN", help=RUN)
    reply.add_argument("step", metavar="STEP", nargs="?", help="the step that asks; needed where several do")
    reply.add_argument("text", metavar="TEXT", help="the answer; - reads it from standard input")
    replan = _change(
        commands, "replan", command("change", "replan"), "ask the planner for another plan",
        "Drops replan.md into the run's folder; what is done and still counts is kept. A run that had ended goes on.",
    )  # fmt: skip
    replan.add_argument("run", metavar="RUN", help=RUN)
    replan.add_argument("--because", metavar="TEXT", help="what is wrong with the plan, for the planner")
    pause = _change(commands, "pause", command("change", "pause"), "let nothing new start; what runs finishes")
    pause.add_argument("run", metavar="RUN", help=RUN)
    _resuming(commands)
    cancel = _change(commands, "cancel", command("change", "cancel"), "end a run: what runs is ended too")
    cancel.add_argument("run", metavar="RUN", help=RUN)
    retry = _change(
        commands, "retry", command("change", "retry"), "run a step again, and what depends on it",
        "Sets its last attempt aside. A run that had ended goes on.",
    )  # fmt: skip
    _run_and_step(retry)
    skip = _change(commands, "skip", command("change", "skip"), "leave a step out; what depends on it goes on")
    _run_and_step(skip)
    skip.add_argument("--because", metavar="TEXT", help="why; it stands in plan.json")
    skip.add_argument("--undo", action="store_true", help="take it in again")
    _undoing(commands)
    _forgetting(commands)


def _undoing(commands: Any) -> None:
    restore = _change(
        commands, "restore", command("restoring", "restore"), "make an earlier revision's plan the plan again",
        "Steps and limits as they were; the status stays as it is, but that of a cancelled run. It becomes a new\n"
        "revision by you: history is never rewritten. A run that had ended goes on if there is something to do.",
    )  # fmt: skip
    restore.add_argument("run", metavar="RUN@REV", help=f"{RUN}; REV: a number that `agentfs log` shows")
    fork = _change(
        commands, "fork", command("forking", "fork", drives=True), "begin a new run from any revision of another",
        "With that revision's plan, the results that still count under it, and files/ as it is now; RUN is left as\n"
        "it is. A mode that begins in another way (one loop, or several steps) starts over, from the goal alone.\n"
        "Prints the new run's id; with --json also source, mode, planner, executor, plan, kept, to_run, workdir.",
    )  # fmt: skip
    fork.add_argument("run", metavar="RUN", help=f"{RUN}; RUN@REV: that revision (default: the last)")
    fork.add_argument("--mode", choices=MODES, help="how it is driven")
    fork.add_argument("--planner", metavar="MODEL", help="the model that plans")
    fork.add_argument("--executor", metavar="MODEL", help="the model that carries out steps")
    fork.add_argument("--name", metavar="NAME", help="what it is called (default: as RUN; -2 … where that is taken)")
    _json(fork)


def _change(commands: Any, name: str, call: Command, words: str, more: str = "") -> argparse.ArgumentParser:
    """Add a command that changes a run, and can say beforehand what it would do."""
    parser = _add(commands, name, call, words, more)
    parser.add_argument("--dry-run", action="store_true", help="say what it would write and cause; write nothing")
    return parser


def _forgetting(commands: Any) -> None:
    forget = _add(
        commands, "forget", command("forget", "forget", drives=True), "remove the files of runs that have ended",
        "Their history stays in the ledger: git -C runs log -- RUN. Logs and files/, which it does not hold, are\n"
        "gone for good. Runs are named, or chosen by all of --older-than, --state and --name that are given.\n"
        "Chosen ones are asked about first; where there is no terminal, it stops with exit code 3 unless told --yes.",
    )  # fmt: skip
    forget.add_argument("runs", metavar="RUN", nargs="*", help=RUN)
    forget.add_argument("--older-than", metavar="WHEN", help="those that ended before: 90min, 3h, 30d, 4w, or a day")
    _state(forget, ENDS)
    forget.add_argument("--name", metavar="PATTERN", help="those of that name: 'tidy*', '2026-10-*/*'")
    forget.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    _json(forget)


def _runs_or_step(parser: argparse.ArgumentParser) -> None:
    words = f"{RUN}; RUN@REV: only if revision REV is what is there; behind one RUN also the step that asks"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=words)


def _run_and_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("step", metavar="STEP", help="a step's id")


def _resuming(commands: Any) -> None:
    resume = _change(
        commands, "resume", command("drive", "resume"), "go on with a run that stopped, is paused, or has ended",
        "Drives it here, as `run` does, until it rests; where `agentfs watch` runs, that goes on with it.\n"
        "A paused run is approved again. In one that has failed, what failed is tried again.\n"
        "Limits are raised by what is added: an edit of `limits` in its plan.json. A run keeps the settings it\n"
        "began with; --refresh-settings gives it [tools] as agentfs.toml has it now: an edit of `tools` there.",
    )  # fmt: skip
    resume.add_argument("run", metavar="RUN", help=RUN)
    resume.add_argument("--add-minutes", dest="minutes", metavar="N", type=_amount, help="more time to work")
    resume.add_argument("--add-replans", dest="replans", metavar="N", type=_count, help="more calls after a failure")
    resume.add_argument("--add-cost", dest="cost_usd", metavar="USD", type=_amount, help="more money for models")
    resume.add_argument("--add-requests", dest="requests", metavar="N", type=_count, help="more requests to models")
    resume.add_argument("--add-tokens", dest="tokens", metavar="N", type=_count, help="more tokens")
    resume.add_argument("--refresh-settings", action="store_true", help=REFRESH)


def _amount(text: str) -> float:
    """Return a number above nothing."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)

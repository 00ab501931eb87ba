"""What can be typed. Builds the parsers and nothing else: a command's module is imported when it is called."""

import argparse
import importlib
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

Command = Callable[[argparse.Namespace], int]

USAGE = "agentfs [-C DIR] COMMAND ..."
EPILOG = """\
exit codes:
  0 done   1 the run failed or was cancelled   2 the command or a file is wrong
  3 waiting for a person   4 no model could be reached   130 interrupted (resumable)
"""
GROUPS = {
    "begin": "init run watch plan check trust",
    "look": "status show log diff blame report web cost compare",
    "answer": "approve reject reply",
    "steer": "pause resume cancel retry skip replan",
    "plans": "restore fork save show-goal schedule",
    "branches of isolated runs": "changes apply discard",
    "tools and agents": "tools agents mcp skill",
    "upkeep": "doctor verify replay export forget completion attempt",
}
REFRESH = "use [tools] of agentfs.toml as it is now, not as it was when the run began"
RUN = "a run: its id (2026-11-16/tidy), its last part (tidy), or the beginning of either"
GOAL = "a file, -, or the goal in words"
STEP = "a step's id"
DRY_RUN = "say what it would write and cause; write nothing"
MODES = ("auto", "split", "stepwise", "single", "scratchpad")
ENDS = ("done", "failed", "cancelled")
STATES = ("waiting", "draft", "running", "planning", "paused", *ENDS)


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are reported in one line, with a way on."""

    more: Callable[[], str] | None = None  # makes the end of the help, when it is asked for

    def format_help(self) -> str:
        self.epilog = self.more() if self.more else self.epilog
        return super().format_help()

    def options(self) -> list[str]:
        """Return the options that are listed in its help."""
        shown = [one for one in self._actions if one.help is not argparse.SUPPRESS]
        return [option for one in shown for option in one.option_strings]

    def error(self, message: str) -> NoReturn:
        from agentfs.commands.streams import harmless

        self.exit(2, f"{harmless(f'agentfs: {message}')} (try `{self.prog} --help`)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say of a misspelt command which one was meant, instead of listing all of them."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001
            from agentfs.core.problems import did_you_mean

            meant = did_you_mean(value, action.choices)
            self.error(f"there is no command {value!r}{f', {meant}' if meant else ''}")
        super()._check_value(action, value)


class _Wrapped(argparse.RawDescriptionHelpFormatter):
    """Breaks lines between words, never within one: `show-goal` can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Help(_Wrapped):
    """Lists the commands in groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return super()._format_action(action)
        words = {one.dest: one.help for one in action._choices_actions}  # noqa: SLF001
        groups = [
            "\n".join([f"  {title}:", *(f"    {name:<11} {words[name]}" for name in names.split())])
            for title, names in GROUPS.items()
        ]
        return "\n".join(groups) + "\n"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from agentfs import __version__

        print(f"agentfs {__version__}")
        parser.exit(0)


class _States(argparse.Action):
    """States of runs, separated by commas or given one by one."""

    known: tuple[str, ...] = ()

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        for word in str(given[0]).split(","):
            if word.strip() not in self.known:
                parser.error(f"--state {word!r}: choose from {', '.join(self.known)}")
            setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), word.strip()])


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the parsed command line; its `command` is the function to call."""
    arguments, unknown = build().parse_known_args(argv)
    if unknown:
        _refuse(unknown, arguments)
    if not hasattr(arguments, "command"):
        build().print_help()
        raise SystemExit(0 if not argv else 2)
    return arguments


def _refuse(unknown: list[str], arguments: argparse.Namespace) -> NoReturn:
    """Say what cannot be read, and where it belongs."""
    from agentfs.core.problems import did_you_mean

    parser: Parser = getattr(arguments, "parser", build())
    words, option = " ".join(unknown), unknown[0].partition("=")[0]
    options = parser.options()
    if option in options and parser is not build():
        parser.error(f"{option} goes after the command: {parser.prog} {option}")
    if not unknown[0].startswith("-") and getattr(arguments, "goal", None) is not None:
        parser.error(f"unrecognized arguments: {words}; put a goal in words between quotes")
    meant = did_you_mean(option, options) if option.startswith("-") else ""
    parser.error(f"unrecognized arguments: {words}{f', {meant}' if meant else ''}")


@cache
def build() -> Parser:
    """Return the whole parser: 44 commands take 8 ms, so it is built once."""
    parser = Parser(
        prog="agentfs",
        usage=USAGE,
        description="An agent you operate with your editor and git: the plan is a file, every revision is a commit.",
        epilog=EPILOG,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("-C", dest="folder", metavar="DIR", default=".", help="the workspace, or a folder in it")
    listed = parser.add_subparsers(title="commands", metavar="COMMAND", prog="agentfs", parser_class=Parser)
    commands = _Commands(listed)
    for add in (
        _add_making,
        _add_sharing,
        _add_reuse,
        _add_looking,
        _add_pages,
        _add_summaries,
        _add_examining,
        _add_answers,
        _add_steering,
        _add_undoing,
    ):
        add(commands)
    for one in commands.in_json:
        one.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


class _Commands:
    """The commands added so far, and which of them can print JSON."""

    def __init__(self, subparsers: Any) -> None:
        self._subparsers, self.in_json = subparsers, list[Parser]()

    def add(
        self, place: str, words: str, more: str = "", *, run: bool = False, drives: bool = False,
        changes: bool = False, json: bool = False,
    ) -> Parser:  # fmt: skip
        """Add a command: the function at a place. One without words is in no list.

        `run`: it takes RUN. `drives`: it needs what only Linux has. `changes`: it has --dry-run. `json`: and --json.
        """
        parser: Parser = self._subparsers.add_parser(
            place.partition(".")[2].replace("_", "-"),
            description=f"{words}\n\n{more}" if more else words,
            formatter_class=_Wrapped,
            **({"help": words} if words else {}),
        )
        parser.set_defaults(command=_import_command(place, drives=drives), parser=parser)
        parser.add_argument("-C", dest="folder", default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # also behind it
        if changes:
            parser.add_argument("--dry-run", action="store_true", help=DRY_RUN)
        if run:
            parser.add_argument("run", metavar="RUN", help=RUN)
        if json:
            self.in_json.append(parser)
        return parser


def _import_command(place: str, *, drives: bool = False) -> Command:
    """Return a command that is imported when it is called."""
    module, _, function = place.partition(".")

    def call(arguments: argparse.Namespace) -> int:
        if drives:
            from agentfs.storage.system import require_linux

            require_linux(f"agentfs {function}")
        called: Command = getattr(importlib.import_module(f"agentfs.commands.{module}"), function)
        return called(arguments)

    return call


# ── make and drive ────────────────────────────────────────────────────────────────────────────────────────


def _add_making(commands: _Commands) -> None:
    words = "make a workspace: settings, goals/, runs/, schemas/"
    init = commands.add("init.init", words, drives=True)
    init.add_argument("dir", metavar="DIR", nargs="?", default=".", help="where (default: here)")
    run = commands.add(
        "run.run", "plan a goal and carry it out",
        "GOAL is a file (.md .txt .yaml .json), - for standard input, or the goal's words.\n"
        "Outside any workspace one is made in the current folder first.\n"
        "Ctrl-C once: what runs finishes. Twice: it is ended. `agentfs resume RUN` goes on.", drives=True,
    )  # fmt: skip
    run.add_argument("goal", metavar="GOAL", nargs="?", help=GOAL)
    run.add_argument("--resume", metavar="RUN", help="the same as `agentfs resume RUN`")
    run.add_argument("--refresh-settings", action="store_true", help=f"with --resume: {REFRESH}")
    _add_goal_flags(run)
    watch = commands.add(
        "run.watch", "take the goals dropped into goals/, and drive every open run",
        "A goal that is complete becomes a run, once; an invalid one goes to goals/rejected/ with its reason.\n"
        "What you edit in an open run is acted upon at once. `agentfs run` works beside it.\n"
        "Ctrl-C once: what runs finishes. Twice, or SIGTERM: it is ended. Either way the exit code is 130, and\n"
        "the next `agentfs watch` goes on.", drives=True,
    )  # fmt: skip
    watch.add_argument("--poll", action="store_true", help="look every second instead of waiting for events")
    watch.add_argument("--wait", action="store_true", help="if another watch runs here, take over when that one ends")
    watch.add_argument("--json", action="store_true", help="one JSON object per line on stdout, for programs")
    plan = commands.add(
        "run.plan", "plan a goal and stop before anything runs",
        'The run is left as a draft: edit its plan.json, set "status" to "approved",\n'
        "then `agentfs resume RUN`.", drives=True,
    )  # fmt: skip
    plan.add_argument("goal", metavar="GOAL", help=GOAL)
    plan.add_argument("--for-client", action="store_true", help=argparse.SUPPRESS)  # `agentfs mcp` starts it
    _add_goal_flags(plan)
    check = commands.add(
        "check.check", "check plans, goals and settings without running them",
        "A goal is judged as `run` judges it here, one in goals/ as `watch` does. Exit code 2: there is a problem;\n"
        "4: all that is missing is a model.\n\n"
        "With --against RUN: FILE is a plan, judged by that run's tools; if it is valid, what it would mean for\n"
        "that run is shown: what it changes, which steps run again, which are kept. Nothing is written.", json=True,
    )  # fmt: skip
    check.more = _step_lines
    check.add_argument("files", metavar="FILE", nargs="+", help="plan.json, a goal file, or agentfs.toml")
    check.add_argument("--against", metavar="RUN", help="what the plan in FILE would mean for this run")
    trust = commands.add(
        "init.trust", "allow runs in a workspace another user made",
        "A workspace you did not `init` may carry settings and tools of its own. Look at its agentfs.toml\n"
        "and tools/ first.",
    )  # fmt: skip
    trust.add_argument("dir", metavar="DIR", help="the workspace")
    completion = commands.add("completion.completion", "print a shell completion script")
    completion.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")
    commands.add("completion.complete_runs", "")


def _add_reuse(commands: _Commands) -> None:
    show_goal = commands.add(
        "parameters.show_goal", "what a goal takes: its parameters, and a command that runs it",
        "Each parameter with what it may be, its default and its description; then the steps, if the goal has them.",
        json=True,
    )  # fmt: skip
    show_goal.add_argument("goal", metavar="FILE", help="a goal file, one of runbooks/ for example")
    save = commands.add(
        "save.save", "make a goal in runbooks/ of the plan of a run that is done",
        "Prints every command first. Gates and checks are kept; values that came from the goal's words become\n"
        "parameters, each with that value as its default. It runs without a planner.", run=True,
    )  # fmt: skip
    save.add_argument("name", metavar="NAME", help="what it is called: runbooks/NAME.yaml")
    commands.add(
        "schedule.schedule", "the goals in schedules/: when each ran, and runs next",
        "And what became of its newest time, if that had no run. `agentfs watch` starts them.\n"
        "With --json: name, file, schedule, timezone, overlap, catch_up, last, next, newest {time, what, why},\n"
        "problems. Exit code 2: one of them is not valid.", json=True,
    )  # fmt: skip


def _add_sharing(commands: _Commands) -> None:
    """Add what lets other agents work with a workspace."""
    commands.add(
        "mcp_server.mcp", "serve this workspace to other agents (MCP over stdio)",
        "They may look at runs, start one (a person approves its plan), propose an edit of a plan (a person is\n"
        "asked), have it planned again, pause, cancel, and answer what a step asks. They can approve, reject,\n"
        "trust, forget and top up nothing. Needs the extra `mcp`.\n\n"
        "  claude mcp add agentfs -- agentfs -C DIR mcp\n"
        "  codex mcp add agentfs -- agentfs -C DIR mcp",
    )  # fmt: skip
    skill = commands.add(
        "skill.skill", "write a skill that teaches other agents to use agentfs",
        "Writes .agents/skills/agentfs/SKILL.md: how to write goals, runbooks and plan edits.",
    )  # fmt: skip
    skill.add_argument("dir", metavar="DIR", nargs="?", default=".", help="where (default: here)")
    skill.add_argument("--force", action="store_true", help="replace one that is there and differs")


def _add_goal_flags(parser: Parser) -> None:
    parser.add_argument("--mode", choices=MODES, help="how it is driven")
    parser.add_argument("--approve", choices=["never", "plan", "always"], help="when a person must approve plans")
    parser.add_argument("--workdir", metavar="DIR", help="the folder to work in (default: the run's own files/)")
    _add_param_flags(parser)
    _add_model_flags(parser)


def _add_param_flags(parser: Parser) -> None:
    words = "a value for a parameter of the goal (`agentfs show-goal FILE` lists them); may be repeated"
    parser.add_argument("-p", dest="param", metavar="NAME=VALUE", action="append", help=words)
    parser.add_argument(
        "--params", metavar="FILE", help="values for parameters, as YAML or JSON; -p counts before it"
    )


def _add_model_flags(parser: Parser) -> None:
    parser.add_argument("--planner", metavar="MODEL", help="the model that plans")
    parser.add_argument("--executor", metavar="MODEL", help="the model that carries out steps")
    parser.add_argument(
        "--with-uncommitted",
        action="store_true",
        help="isolate: what you have not committed comes along, as a commit",
    )


def _step_lines() -> str:
    """Return the lines that a step of a runbook may hold, as help."""
    from agentfs.core.step_lines import LINES

    width = 2 + max(len(form.shown) for form in LINES)
    indent = " " * (2 + width)
    rows = [
        f"  {form.shown:{width}}{textwrap.fill(indent + form.plain, 100, subsequent_indent=indent)[2 + width :]}"
        for form in LINES
    ]
    return "\n".join(["lines that a step of a runbook (`## Steps`, `### id`) may hold:", *rows])


# ── look ──────────────────────────────────────────────────────────────────────────────────────────────────


def _add_looking(commands: _Commands) -> None:
    status = commands.add(
        "status.status", "what the runs of this workspace are doing",
        "Lists the runs: those that wait for a person, those that are under way, then the newest that have ended;\n"
        "with RUN, the steps of that one.\n\n"
        "states of a run:\n"
        "  planning   a plan is being made        draft      the plan waits for approval\n"
        "  running    steps are carried out       waiting    a person is asked\n"
        "  paused     a person has paused it      done, failed, cancelled: it has ended\n\n"
        "With --json: a list of all that are meant, each with run, state, steps {done, total}, why, outcome,\n"
        "at, driven; with RUN that one alone, with by_step.", json=True,
    )  # fmt: skip
    status.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    status.add_argument("--all", action="store_true", help="also the older runs that have ended")
    words = "without those that ended before: 90min, 3h, 2d, 4w ago, or a day (2026-11-01)"
    status.add_argument("--since", metavar="WHEN", help=words)
    _add_state(status, STATES)
    status.add_argument("--watch", action="store_true", help="refresh it every second, until Ctrl-C")
    show = commands.add(
        "show.show", "one run: its plan, each step's state and output",
        "With STEP, that step in full: what it was given, each attempt's result, checks, error, log and files.\n"
        "With --json: the plan, each step with state, because, attempt, output and result merged in.",
        run=True, json=True,
    )  # fmt: skip
    show.add_argument("step", metavar="STEP", nargs="?", help=STEP)
    log = commands.add(
        "history.log", "its revisions: who, why, and the git commands to see them",
        "Every change of a plan is a revision, and every revision is a commit in runs/. The newest is last.",
        run=True, json=True,
    )  # fmt: skip
    words = "go on printing what happens, log lines too, until the run ends"
    log.add_argument("-f", "--follow", action="store_true", help=words)
    diff = commands.add(
        "history.diff", "what differs between two revisions, by meaning",
        "Steps added, removed, changed field by field, put after others; what runs again and what is kept.\n\n"
        "  agentfs diff RUN        the last revision against the one before\n"
        "  agentfs diff RUN 2      revision 2 against plan.json as it is now\n"
        "  agentfs diff RUN 2..4   revision 2 against revision 4\n"
        "  agentfs diff RUN --question   the plan as it is against the planner's answer that waits",
        run=True, json=True,
    )  # fmt: skip
    diff.add_argument("revisions", metavar="A[..B]", nargs="?", help="numbers of revisions")
    diff.add_argument("--question", action="store_true", help="what an answer that waits for a yes would change")
    diff.add_argument("--stat", action="store_true", help="only how much, in one line")
    blame = commands.add(
        "history.blame", "who set each field of its plan, in which revision, and why",
        "A person by name, a planner with its model, or the runbook. With STEP, that step alone.",
        run=True, json=True,
    )  # fmt: skip
    blame.add_argument("step", metavar="STEP", nargs="?", help=STEP)


def _add_state(parser: Parser, known: tuple[str, ...]) -> None:
    words = "only runs in this state; several: --state failed,cancelled"
    action = parser.add_argument("--state", metavar="STATE", action=_States, help=words)
    vars(action)["known"] = known


def _add_pages(commands: _Commands) -> None:
    report = commands.add(
        "web.report", "one page about a run, to mail or to attach",
        "One HTML file that needs no network, no script and no server: outcome and proof, the plan as a graph, when\n"
        "what happened, every revision with who, why, what changed and what that reran, steps, questions, cost.",
        run=True,
    )  # fmt: skip
    report.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")
    web = commands.add(
        "web.web", "the workspace in a browser: look, answer, edit",
        "Prints an address that lets one browser in; listens on 127.0.0.1 alone, until Ctrl-C. It drives nothing:\n"
        "`agentfs watch` or `agentfs run` does, and what you do in the browser is what the commands do.\n"
        "From another machine: ssh -L 8321:127.0.0.1:8321 HOST, then open the address there.",
    )  # fmt: skip
    web.add_argument("--port", metavar="N", type=_port, default=8321, help="where it listens (default: 8321; 0: any)")
    web.add_argument("--open", action="store_true", help="open it in a browser here")
    web.add_argument("--read-only", action="store_true", help="only look: nothing can be changed from there")


def _add_summaries(commands: _Commands) -> None:
    cost = commands.add(
        "cost.cost", "what it asked of models: requests, tokens, money, time waited",
        "By role, by the planner's calls and by step, from the logs; prices as set, or as listed. What is\n"
        "not known is unknown, never 0. Input includes cached, output includes reasoning.\n"
        "With --json: total, by_role, by_model, by_step, by_call, to the token.\n\n"
        "With --since instead of RUN: what all runs asked in that time, by day, goal, model and role.", json=True,
    )  # fmt: skip
    cost.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    cost.add_argument("--since", metavar="WHEN", help="all runs, as far back as: 90min, 3h, 30d, 4w, or a day")
    compare = commands.add(
        "cost.compare", "two runs side by side: plans, outcomes, time, cost",
        "Requests, tokens and cost by role; then how the second one's plan differs from the first one's.\n"
        "With --json: runs (the two, each with state, steps, seconds, total, by_role), same_goal, plan, steps.",
        run=True, json=True,
    )  # fmt: skip
    compare.add_argument("other", metavar="RUN", help="another, to be held against it")
    export = commands.add(
        "export.export", "send it to a collector of traces, as OpenTelemetry spans",
        "Spans are derived from its files: the run, the planner's calls, attempts, requests to models. Their ids\n"
        "are hashed from the run and the files, so exporting twice changes nothing. URL: where a collector takes\n"
        "OTLP over HTTP (default: [telemetry] url, else OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318).\n"
        "Needs the extra `otel`, but for --json, which prints the spans.", run=True, json=True,
    )  # fmt: skip
    export.add_argument("--otlp", metavar="URL", nargs="?", const="", help="send it there")
    export.add_argument("--contents", action="store_true", help="with what was asked, given and answered")
    replay = commands.add(
        "replay.replay", "run it again from its files, and say where that departs",
        "No network, no cost, no effects: models, tools and checks give what they gave then, people's acts come\n"
        "where they came; everything else is decided again, file by file. RUN is left as it is.\n"
        "Exit code 0: the same. 1: it departs, each difference a line. 2: it cannot be replayed.", json=True,
    )  # fmt: skip
    replay.add_argument("run", metavar="RUN", help=f"{RUN}; or the folder of a saved recording")
    replay.add_argument("--save", metavar="DIR", help="replay nothing: copy what a replay needs, for a test of yours")
    replay.add_argument("--lenient", action="store_true", help="what models are asked may differ (changed prompts)")


def _add_changes(commands: _Commands) -> None:
    shown = commands.add(
        "changes.changes", "what an isolated run changed, commit by commit",
        "The commits of its branch, then the difference from where it began; with STEP, what that step changed.",
        run=True, json=True,
    )  # fmt: skip
    shown.add_argument("step", metavar="STEP", nargs="?", help=STEP)
    taken = commands.add(
        "changes.apply", "merge what an isolated run changed into your branch",
        "In the repository that its worktree is of. Refused, and nothing touched, if your tree has changes that are\n"
        "not committed, or if there are conflicts. Hooks and filters do not run.", run=True,
    )  # fmt: skip
    taken.add_argument("--squash", action="store_true", help="as one commit")
    commands.add(
        "changes.discard", "remove the branch and the worktree of an isolated run",
        "The run's records stay.", run=True,
    )  # fmt: skip


def _add_examining(commands: _Commands) -> None:
    tools = commands.add(
        "init.tools", "the tools that steps may call",
        "Each with its input, what it touches, and whether runs here may use it ([tools] in agentfs.toml).\n"
        "Of MCP servers those that were approved: --update starts the servers that [mcp] names, shows what they\n"
        "offer and what changed since, and writes mcp.lock.json, which is the approval.",
        json=True,
    )  # fmt: skip
    tools.add_argument("--update", action="store_true", help="ask the MCP servers what they offer, and approve it")
    _add_changes(commands)
    commands.add(
        "agents.agents", "the coding agents that steps may name",
        "Each with where it is, its version, how it would be called, which variables and files it gets, and what it\n"
        "may touch. One that is found is asked for its version, in the sandbox.", json=True,
    )  # fmt: skip
    commands.add(
        "doctor.doctor", "what is wrong with this machine and workspace",
        "Git, the sandbox, watches, file systems, settings, trust, schemas, tools, model endpoints, the ledger and\n"
        "stale claims, each with how to fix it. Nothing of the workspace is run and no token is spent: models are\n"
        "listed, tools are read by their source. What a file system can do is tried in folders that are called\n"
        ".agentfs-doctor-PID.tmp, in runs/ and goals/, and are removed again. Outside any workspace only the\n"
        "machine is looked at. Exit code 0: all is well, or there are only notes. 2: something is wrong.", json=True,
    )  # fmt: skip
    commands.add(
        "attempt.attempt", "carry out one order for a driver elsewhere (started by a place)",
        "What [places.NAME] runs on another machine or in a container: it takes one order from standard input and\n"
        "sends its log and result to standard output. Its driver is the only writer of the run's files.", drives=True,
    )  # fmt: skip
    verify = commands.add(
        "doctor.verify", "prove that files and ledger agree: nothing was rewritten",
        "Every file that is written once is what was committed; every revision has one commit of its own, in order,\n"
        "that says what its record says; hashes hold; git fsck finds the ledger whole. Without RUN: all runs. It\n"
        "only reads. Each disagreement is a line: the file, what is wrong, what to do. What a process that drives\n"
        "the run has yet to commit is listed too, and is not one. Exit code 0: they agree. 2: they do not.",
        json=True,
    )  # fmt: skip
    verify.add_argument("run", metavar="RUN", nargs="?", help=RUN)


# ── change a run by its files, as a person could with an editor ───────────────────────────────────────────


def _add_answers(commands: _Commands) -> None:
    approve = commands.add(
        "change.approve", "say yes: to a draft, a gate, a planner's answer",
        "Answers the one thing that is open; with several it lists them, and `approve RUN STEP` says which.\n"
        "With several RUNs, what each of them asks; if one asks nothing, or several things, nothing is written.\n"
        "The second word is a STEP if RUN has a step of that name, or no run has that name in full; else a RUN.\n"
        "RUN@REV approves that revision and no other: if the plan has changed since, nothing happens.", changes=True,
    )  # fmt: skip
    reject = commands.add(
        "change.reject", "say no: to a draft, a gate, a planner's answer",
        "A planner whose draft or answer is rejected is asked again, with what you say.\n"
        "As with `approve`, a STEP of RUN may follow, or more RUNs.", changes=True,
    )  # fmt: skip
    words = f"{RUN}; RUN@REV: only if revision REV is what is there; behind one RUN also the step that asks"
    for parser in (approve, reject):
        parser.add_argument("runs", metavar="RUN", nargs="+", help=words)
    reject.add_argument("--because", metavar="TEXT", help="why")
    reply = commands.add(
        "change.reply", "answer the question of a step, or the one that is open",
        "A gate takes approve or reject, an attempt that was cut off again, done or failed, as its first line;\n"
        "what follows is the reason, or the output. Any other question takes any words. Of a step with `each`, all\n"
        "items that ask get the same answer; STEP~ITEM answers one.", run=True, changes=True,
    )  # fmt: skip
    reply.add_argument("step", metavar="STEP", nargs="?", help="the step that asks; needed where several do")
    reply.add_argument("text", metavar="TEXT", help="the answer; - reads it from standard input")


def _add_steering(commands: _Commands) -> None:
    replan = commands.add(
        "change.replan", "ask the planner for another plan",
        "Drops replan.md into the run's folder; what is done and still counts is kept. A run that had ended goes on.",
        run=True, changes=True,
    )  # fmt: skip
    replan.add_argument("--because", metavar="TEXT", help="what is wrong with the plan, for the planner")
    commands.add("change.pause", "let nothing new start; what runs finishes", run=True, changes=True)
    resume = commands.add(
        "run.resume", "go on with a run that stopped, is paused, or has ended",
        "Drives it here, as `run` does, until it rests; where `agentfs watch` runs, that goes on with it.\n"
        "A paused run is approved again. In one that has failed, what failed is tried again.\n"
        "Limits are raised by what is added: an edit of `limits` in its plan.json. A run keeps the settings it\n"
        "began with; --refresh-settings gives it [tools] as agentfs.toml has it now: an edit of `tools` there.",
        run=True, changes=True,
    )  # fmt: skip
    resume.add_argument("--add-minutes", dest="minutes", metavar="N", type=_amount, help="more time to work")
    resume.add_argument("--add-replans", dest="replans", metavar="N", type=_count, help="more calls after a failure")
    resume.add_argument("--add-cost", dest="cost_usd", metavar="USD", type=_amount, help="more money for models")
    resume.add_argument("--add-requests", dest="requests", metavar="N", type=_count, help="more requests to models")
    resume.add_argument("--add-tokens", dest="tokens", metavar="N", type=_count, help="more tokens")
    resume.add_argument("--refresh-settings", action="store_true", help=REFRESH)
    commands.add("change.cancel", "end a run: what runs is ended too", run=True, changes=True)
    retry = commands.add(
        "change.retry", "run a step again, and what depends on it",
        "Sets its last attempt aside. A run that had ended goes on.", run=True, changes=True,
    )  # fmt: skip
    retry.add_argument("step", metavar="STEP", help=STEP)
    skip = commands.add("change.skip", "leave a step out; what depends on it goes on", run=True, changes=True)
    skip.add_argument("step", metavar="STEP", help=STEP)
    skip.add_argument("--because", metavar="TEXT", help="why; it is written to plan.json")
    skip.add_argument("--undo", action="store_true", help="take it in again")
    skip.add_argument("--force", action="store_true", help="also where a run that is done would then end failed")


def _amount(text: str) -> float:
    """Return a number above nothing."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _add_undoing(commands: _Commands) -> None:
    restore = commands.add(
        "fork.restore", "make an earlier revision's plan the plan again",
        "Steps and limits as they were; the status stays as it is, but that of a cancelled run. It becomes a new\n"
        "revision by you: history is never rewritten. A run that had ended goes on if there is something to do.",
        changes=True,
    )  # fmt: skip
    restore.add_argument("run", metavar="RUN@REV", help=f"{RUN}; REV: a number that `agentfs log` shows")
    fork = commands.add(
        "fork.fork", "begin a new run from any revision of another",
        "With that revision's plan, the results that still count under it, and files/ as it is now; RUN is left as\n"
        "it is. With -p, the steps that those values reach run again. A mode that begins in another way (one loop,\n"
        "or several steps) starts over, from the goal alone.\n"
        "Prints the new run's id; with --json also source, mode, planner, executor, plan, kept, to_run, workdir.",
        drives=True, changes=True, json=True,
    )  # fmt: skip
    fork.add_argument("run", metavar="RUN", help=f"{RUN}; RUN@REV: that revision (default: the last)")
    fork.add_argument("--mode", choices=MODES, help="how it is driven")
    _add_param_flags(fork)
    _add_model_flags(fork)
    fork.add_argument("--name", metavar="NAME", help="what it is called (default: as RUN; -2 … where that is taken)")
    forget = commands.add(
        "forget.forget", "remove the files of runs that have ended",
        "Their history stays in the ledger: git -C runs log -- RUN. Logs and files/, which it does not hold, are\n"
        "gone for good. Runs are named, or chosen by all of --older-than, --state and --name that are given.\n"
        "Chosen ones are asked about first; where there is no terminal, it stops with exit code 3 without --yes.",
        drives=True, json=True,
    )  # fmt: skip
    forget.add_argument("runs", metavar="RUN", nargs="*", help=RUN)
    forget.add_argument("--older-than", metavar="WHEN", help="those that ended before: 90min, 3h, 30d, 4w, or a day")
    _add_state(forget, ENDS)
    forget.add_argument("--name", metavar="PATTERN", help="those of that name: 'tidy*', '2026-10-*/*'")
    forget.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    forget.add_argument("--yes", action="store_true", help="do not ask")

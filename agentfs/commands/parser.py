"""What can be typed, as one table. Builds the parsers and nothing else: a command is imported when it is called."""

import argparse
import importlib
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from agentfs import __version__

MODES = ("auto", "split", "stepwise", "single", "scratchpad")
ENDS = ("done", "failed", "cancelled")
STATES = ("waiting", "draft", "running", "planning", "paused", *ENDS)
USAGE = "agentfs [-C DIR] COMMAND ..."
EPILOG = """\
exit codes:
  0 done   1 the run failed or was cancelled   2 the command or a file is wrong
  3 waiting for a person   4 no model could be reached   130 interrupted (resumable)
"""

Argument = tuple[tuple[str, ...], dict[str, Any]]


def arg(*names: str, **how: Any) -> Argument:
    """Return what `add_argument` is given."""
    return names, how


def flag(*names: str, help: str) -> Argument:  # noqa: A002 - as argparse has it
    return arg(*names, action="store_true", help=help)


def value(name: str, metavar: str, help: str, **how: Any) -> Argument:  # noqa: A002
    return arg(name, metavar=metavar, help=help, **how)


def amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


class _States(argparse.Action):
    """States of runs, separated by commas or given one by one."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        known: tuple[str, ...] = self.const
        for word in str(given[0]).split(","):
            if word.strip() not in known:
                parser.error(f"--state {word!r}: choose from {', '.join(known)}")
            setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), word.strip()])


# ── the commands ──────────────────────────────────────────────────────────────────────────────────────────

_RUN = "a run: its id (2026-11-16/tidy), its last part (tidy), or the beginning of either"
_GOAL = "a file, -, or the goal in words"
_REFRESH = "use [tools] of agentfs.toml as it is now, not as it was when the run began"
_SINCE = "90min, 3h, 2d or 4w ago, or a day (2026-11-01)"

RUN, ANY_RUN = value("run", "RUN", _RUN), value("run", "RUN", _RUN, nargs="?")
STEP, ANY_STEP = value("step", "STEP", "a step's id"), value("step", "STEP", "a step's id", nargs="?")
JSON = flag("--json", help="print JSON, for programs")
DRY_RUN = flag("--dry-run", help="say what it would change and cause; write nothing")
MODE = arg("--mode", choices=MODES, help="how the goal is planned and run")
PARAMS = (
    value("-p", "NAME=VALUE", "a value for a parameter (`agentfs show-goal FILE` lists them); may be repeated",
          dest="param", action="append"),
    value("--params", "FILE", "values for parameters, as YAML or JSON; -p wins"),
)  # fmt: skip
MODELS = (
    value("--planner", "MODEL", "the model that plans"),
    value("--executor", "MODEL", "the model that does steps"),
    flag("--with-uncommitted", help="isolated runs: take along what you have not committed, as a commit"),
)
GOAL_OPTIONS = (
    MODE,
    arg("--approve", choices=["never", "plan", "always"], help="when a person must approve plans"),
    value("--workdir", "DIR", "the folder to work in (default: the run's own files/)"),
    *PARAMS,
    *MODELS,
)
ANSWERED_RUNS = value(
    "runs", "RUN", f"{_RUN}; RUN@REV: only if revision REV is what is there; behind one RUN also the step that asks",
    nargs="+",
)  # fmt: skip
HERE = value("dir", "DIR", "where (default: here)", nargs="?", default=".")
STATE = "only runs in this state; several: --state failed,cancelled"


class Command(NamedTuple):
    """A command: the function at a place of this package, and what may be typed after its name."""

    place: str
    summary: str  # empty: it is in no list
    arguments: tuple[Argument, ...] = ()
    more: str = ""  # help, below the summary
    drives: bool = False  # it needs what only Linux has


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


_EPILOGS: dict[str, Callable[[], str]] = {"check": _step_lines}  # made when the help is asked for

COMMANDS = {
    "begin": (
        Command("init.init", "make a workspace: agentfs.toml, goals/, runs/, schemas/", (HERE,), drives=True),
        Command(
            "run.run", "plan a goal and carry it out",
            (value("goal", "GOAL", _GOAL, nargs="?"),
             value("--resume", "RUN", "the same as `agentfs resume RUN`"),
             flag("--refresh-settings", help=f"with --resume: {_REFRESH}"), *GOAL_OPTIONS), """
            GOAL is a file (.md .txt .yaml .json), - for standard input, or the goal's words.
            Outside a workspace, one is made in the current folder first.
            Ctrl-C once lets running steps finish, twice ends them. `agentfs resume RUN` goes on.""", drives=True,
        ),
        Command(
            "watch.watch", "run the goals dropped into goals/, and every open run",
            (flag("--poll", help="look every second instead of waiting for events"),
             flag("--wait", help="if another watch runs here, take over when it ends"),
             flag("--json", help="one JSON object per line on stdout, for programs")), """
            A complete goal becomes a run; an invalid one moves to goals/rejected/, with the reason beside it.
            Edits of open runs count at once. `agentfs run` works at the same time.
            Ctrl-C once lets running steps finish; twice, or SIGTERM, ends them. The exit code is 130 either way;
            the next `agentfs watch` goes on.""", drives=True,
        ),
        Command(
            "run.plan", "plan a goal and stop before anything runs",
            (value("goal", "GOAL", _GOAL),
             arg("--for-client", action="store_true", help=argparse.SUPPRESS),  # `agentfs mcp` starts it
             *GOAL_OPTIONS), """
            Leaves a draft: look at its plan.json, edit it if you like, then `agentfs approve RUN` and
            `agentfs resume RUN`.""", drives=True,
        ),
        Command(
            "check.check", "check goals, plans and settings without running them",
            (value("files", "FILE", "plan.json, a goal file, or agentfs.toml", nargs="+"),
             value("--against", "RUN", "what the plan in FILE would mean for this run"), JSON), """
            A goal is checked as `run` would, one in goals/ as `watch` would. Exit code 2: something is wrong;
            4: only a model is missing.

            With --against RUN: FILE is a plan. It is checked with that run's tools, and if it is valid you see what
            it would change, which steps would run again and which are kept. Nothing is written.""",
        ),
        Command(
            "init.trust", "trust a workspace that another user made",
            (value("dir", "DIR", "the workspace"),), """
            A workspace you did not `init` may bring settings and tools of its own. Look at its agentfs.toml and
            tools/ first.""",
        ),
    ),
    "look": (
        Command(
            "status.status", "what the runs of this workspace are doing",
            (ANY_RUN, flag("--all", help="also the older runs that have ended"),
             value("--since", "WHEN", f"leave out what ended before: {_SINCE}"),
             value("--state", "STATE", STATE, action=_States, const=STATES),
             flag("--watch", help="refresh it every second, until Ctrl-C"), JSON), """
            First the runs that wait for a person, then those under way, then the newest that have ended.
            With RUN: the steps of that run.

            states of a run:
              planning   a plan is being made        draft      the plan waits for approval
              running    steps are running           waiting    a person is asked
              paused     a person paused it          done, failed, cancelled: it has ended

            With --json: a list of runs, each with run, state, steps {done, total}, why, outcome, at, driven;
            with RUN that one alone, with by_step.""",
        ),
        Command(
            "show.show", "one run: its plan, each step's state and output", (RUN, ANY_STEP, JSON), """
            With STEP, that step in full: what it was given, each attempt's result, checks, error, log and files.
            With --json: the plan, each step with state, because, attempt, output and result merged in.""",
        ),
        Command(
            "history.log", "its revisions: who, why, and the git commands to see them",
            (RUN, flag("-f", "--follow", help="go on with what happens, log lines too, until the run ends"), JSON),
            "Every change of a plan is a revision, and every revision is a commit in runs/. The newest is last.",
        ),
        Command(
            "history.diff", "what changed between two revisions",
            (RUN, value("revisions", "A[..B]", "numbers of revisions", nargs="?"),
             flag("--question", help="what a planner's answer that waits for you would change"),
             flag("--stat", help="only how much, in one line"), JSON), """
            Steps added, removed, moved or changed, field by field; which of them run again, and which are kept.

              agentfs diff RUN              the last revision against the one before
              agentfs diff RUN 2            revision 2 against plan.json as it is now
              agentfs diff RUN 2..4         revision 2 against revision 4
              agentfs diff RUN --question   the plan as it is against the planner's answer that waits""",
        ),
        Command(
            "history.blame", "who set each field of its plan, in which revision, and why", (RUN, ANY_STEP, JSON),
            "A person by name, a planner with its model, or the runbook. With STEP, that step alone.",
        ),
        Command(
            "web.report", "one HTML page about a run, to mail or to attach",
            (RUN, arg("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")), """
            One file that needs no network, script or server: outcome and proof, the plan as a graph, a timeline,
            every revision with who, why and what it changed, steps, questions, cost.""",
        ),
        Command(
            "web.web", "the workspace in a browser: look, answer, edit",
            (value("--port", "N", "where it listens (default: 8321; 0: any)", type=_port, default=8321),
             flag("--open", help="open it in a browser here"),
             flag("--read-only", help="only look: nothing can be changed from the browser")), """
            Prints an address that lets one browser in, and listens on 127.0.0.1 only, until Ctrl-C. It runs nothing:
            `agentfs watch` or `agentfs run` does. What you do in the browser, the commands do.
            From another machine: ssh -L 8321:127.0.0.1:8321 HOST, then open the address there.""",
        ),
        Command(
            "cost.cost", "what it asked of models: requests, tokens, money, time waited",
            (ANY_RUN, value("--since", "WHEN", f"of all runs since: {_SINCE}"), JSON), """
            By role, by call of the planner and by step. Prices are those you set, or else the listed ones; what is
            not known is shown as unknown, never as 0. Input includes cached, output includes reasoning.
            With --json: total, by_role, by_model, by_step, by_call, to the token.

            With --since instead of RUN: what all runs asked in that time, by day, goal, model and role.""",
        ),
        Command(
            "cost.compare", "two runs side by side: plans, outcomes, time, cost",
            (RUN, value("other", "RUN", "the run to compare it with"), JSON), """
            Requests, tokens and cost by role, then what the plan of the second changes in that of the first.
            With --json: runs (the two, each with state, steps, seconds, total, by_role), same_goal, plan, steps.""",
        ),
    ),
    "answer": (
        Command(
            "change.approve", "say yes to a draft, a gate or a planner's answer", (DRY_RUN, ANSWERED_RUNS), """
            Answers the one thing that waits; if several do, it lists them, and `approve RUN STEP` says which.
            With several RUNs, what each of them asks; if one asks nothing, or several things, nothing is written.
            The second word is a STEP if RUN has a step of that name, or no run has that name in full; else a RUN.
            RUN@REV approves that revision and no other: if the plan has changed since, nothing happens.""",
        ),
        Command(
            "change.reject", "say no to a draft, a gate or a planner's answer",
            (DRY_RUN, ANSWERED_RUNS, value("--because", "TEXT", "why")), """
            A planner whose draft or answer is rejected is asked again, and gets your reason.
            As with `approve`, a STEP of RUN may follow, or more RUNs.""",
        ),
        Command(
            "change.reply", "answer the question of a step",
            (DRY_RUN, RUN, value("step", "STEP", "the step that asks; needed if several do", nargs="?"),
             value("text", "TEXT", "the answer; - reads it from standard input")), """
            To a gate: approve or reject on the first line, then the reason. To a step that was cut off: again, done
            or failed on the first line, then its output or the reason. To any other question: any words.
            For a step with `each`, all items that ask get the same answer; STEP~ITEM answers one.""",
        ),
    ),
    "steer": (
        Command("change.pause", "start nothing new; running steps finish", (DRY_RUN, RUN)),
        Command(
            "run.resume", "go on with a run that stopped, is paused, or has ended",
            (DRY_RUN, RUN,
             value("--add-minutes", "N", "more time to work", dest="minutes", type=amount),
             value("--add-replans", "N", "more calls after a failure", dest="replans", type=count),
             value("--add-cost", "USD", "more money for models", dest="cost_usd", type=amount),
             value("--add-requests", "N", "more requests to models", dest="requests", type=count),
             value("--add-tokens", "N", "more tokens", dest="tokens", type=count),
             flag("--refresh-settings", help=_REFRESH)), """
            Runs it here, as `run` does; if `agentfs watch` runs, that goes on with it. A paused run is approved
            again; in a failed one, what failed is tried again.
            The --add options raise `limits` in plan.json. A run keeps the settings it began with;
            --refresh-settings gives it today's [tools], as `tools` in plan.json.""",
        ),
        Command("change.cancel", "end a run, and the steps that are running", (DRY_RUN, RUN)),
        Command(
            "change.retry", "run a step again, and what depends on it", (DRY_RUN, RUN, STEP),
            "Its last attempt no longer counts. A run that had ended goes on.",
        ),
        Command(
            "change.skip", "leave a step out; what depends on it goes on",
            (DRY_RUN, RUN, STEP, value("--because", "TEXT", "why; it is written to plan.json"),
             flag("--undo", help="take it in again"),
             flag("--force", help="even if a run that is done would then end failed")),
        ),
        Command(
            "change.replan", "ask the planner for another plan",
            (DRY_RUN, RUN, value("--because", "TEXT", "what is wrong with the plan, for the planner")),
            "Steps that are done and still count are kept. A run that had ended goes on.",
        ),
    ),
    "plans": (
        Command(
            "fork.restore", "go back to the plan of an earlier revision",
            (DRY_RUN, value("run", "RUN@REV", f"{_RUN}; REV: a number that `agentfs log` shows")), """
            Steps and limits become what they were; the status stays, unless the run was cancelled. This is a new
            revision, by you: history is never rewritten. A run that had ended goes on if there is anything to do.""",
        ),
        Command(
            "fork.fork", "begin a new run from any revision of another",
            (DRY_RUN, value("run", "RUN", f"{_RUN}; RUN@REV: that revision (default: the last)"),
             MODE, *PARAMS, *MODELS,
             value("--name", "NAME", "the new run's name (default: RUN's, or that with -2 …)"), JSON), """
            It has that revision's plan, the results that still count, and files/ as it is now; RUN stays as it is.
            With -p, the steps that those values reach run again. A mode that begins in another way (one loop, or
            several steps) starts over from the goal.
            Prints the new run's id; --json: also source, mode, planner, executor, plan, kept, to_run, workdir.""",
            drives=True,
        ),
        Command(
            "goals.save", "save the plan of a run that is done as a goal in runbooks/",
            (RUN, value("name", "NAME", "what to call it: runbooks/NAME.yaml")), """
            Prints every command first. Gates and checks are kept; values that came from the goal's words become
            parameters, with that value as the default. It runs without a planner.""",
        ),
        Command(
            "goals.show_goal", "what a goal takes: its parameters, and a command that runs it",
            (value("goal", "FILE", "a goal file, for example one of runbooks/"), JSON),
            "Each parameter with its type, default and description; then the steps, if the goal has them.",
        ),
        Command(
            "goals.schedule", "the goals in schedules/: when each ran last and runs next", (JSON,), """
            Also why the newest time had no run, if it had none. `agentfs watch` starts them.
            With --json: name, file, schedule, timezone, overlap, catch_up, last, next, newest {time, what, why},
            problems. Exit code 2: one of them is not valid.""",
        ),
    ),
    "branches of isolated runs": (
        Command(
            "branches.changes", "what an isolated run changed, commit by commit", (RUN, ANY_STEP, JSON),
            "The commits of its branch, then the whole diff; with STEP, what that step changed.",
        ),
        Command(
            "branches.apply", "merge what an isolated run changed into your branch",
            (RUN, flag("--squash", help="as one commit")), """
            In the repository its worktree belongs to. If you have uncommitted changes there, or the merge would
            conflict, it refuses and touches nothing. Hooks and filters do not run.""",
        ),
        Command(
            "branches.discard", "remove the branch and the worktree of an isolated run", (RUN,),
            "The run's records stay.",
        ),
    ),
    "tools and agents": (
        Command(
            "tools.tools", "the tools that steps may use",
            (flag("--update", help="ask the MCP servers what they offer, and approve it"), JSON), """
            Each with its input, what it touches, and whether runs here may use it ([tools] in agentfs.toml).
            Of MCP servers you see what was approved: --update starts the servers that [mcp] names, shows what they
            offer and what changed, and writes mcp.lock.json, which is the approval.""",
        ),
        Command(
            "tools.agents", "the coding agents that steps may use", (JSON,), """
            Each with its path and version, how it is called, and which variables, files and folders it gets.
            Agents that are found are asked for their version, in the sandbox.""",
        ),
        Command(
            "serve.mcp", "serve this workspace to other agents (MCP over stdio)", (), """
            Other agents can look at runs, start one (a person approves its plan), propose an edit of a plan (a
            person is asked), ask for another plan, pause, cancel, and answer what a step asks. They cannot approve,
            reject, trust, forget or raise limits. Needs the extra `mcp`.

              claude mcp add agentfs -- agentfs -C DIR mcp
              codex mcp add agentfs -- agentfs -C DIR mcp""",
        ),
        Command(
            "init.skill", "write a skill that teaches other agents to use agentfs",
            (HERE, flag("--force", help="replace one that differs")),
            "Writes .agents/skills/agentfs/SKILL.md: how to write goals, runbooks and plan edits.",
        ),
    ),
    "upkeep": (
        Command(
            "doctor.doctor", "what is wrong with this machine and workspace, and how to fix it", (JSON,), """
            Looks at git, the sandbox, file systems, settings, trust, schemas, tools, models, agents, places, the
            ledger and stale claims. Runs nothing of the workspace and spends no token: models are only listed, tools
            are read by their source. File systems are tried in a folder .agentfs-doctor-PID.tmp, in runs/ and
            goals/, which is removed again. Outside a workspace only the machine is checked.
            Exit code 0: all is well, or there are only notes. 2: something is wrong.""",
        ),
        Command(
            "doctor.verify", "prove that files and ledger agree: nothing lost or rewritten", (ANY_RUN, JSON), """
            Every file that is written once is what was committed; every revision has its own commit, in order, that
            says what its record says; hashes are right; git fsck finds the ledger whole. Without RUN: all runs.
            Only reads. Each disagreement is a line: the file, what is wrong, what to do. Commits that a running
            process has yet to make are listed too, and are none. Exit code 0: they agree. 2: they do not.""",
        ),
        Command(
            "replay.replay", "run it again from its own files, and say where it departs",
            (value("run", "RUN", f"{_RUN}; or the folder of a saved recording"),
             value("--save", "DIR", "replay nothing: copy what a replay needs, for a test of yours"),
             flag("--lenient", help="requests to models may differ (changed prompts)"), JSON), """
            No network, no cost, no effects: models, tools, checks and people answer as they did; everything else is
            decided again, file by file. RUN stays as it is.
            Exit code 0: the same. 1: it departs, each difference a line. 2: it cannot be replayed.""",
        ),
        Command(
            "export.export", "send it to a trace collector, as OpenTelemetry spans",
            (RUN, value("--otlp", "URL", "send it there", nargs="?", const=""),
             flag("--contents", help="include what was asked, given and answered"), JSON), """
            Spans for the run, the planner's calls, attempts and requests to models. Their ids are hashed from the
            run and its files, so exporting twice changes nothing. URL: where a collector takes OTLP over HTTP
            (default: [telemetry] url, else OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318).
            --json prints the spans instead; all else needs the extra `otel`.""",
        ),
        Command(
            "forget.forget", "remove the files of runs that have ended",
            (value("runs", "RUN", _RUN, nargs="*"),
             value("--older-than", "WHEN", f"those that ended before: {_SINCE}"),
             value("--state", "STATE", STATE, action=_States, const=ENDS),
             value("--name", "PATTERN", "those of that name: 'tidy*', '2026-10-*/*'"),
             flag("--dry-run", help="say what would be removed, and remove nothing"),
             flag("--yes", help="do not ask"), JSON), """
            Name the runs, or choose them by --older-than, --state and --name together. Their history stays in the
            ledger (git -C runs log -- RUN); logs and files/, which it does not hold, are gone for good.
            Before it removes runs you did not name it asks; without a terminal it stops with exit code 3, unless
            you say --yes.""", drives=True,
        ),
        Command(
            "completion.completion", "print a completion script for bash, zsh or fish",
            (value("shell", "SHELL", "bash, zsh or fish", choices=["bash", "zsh", "fish"]),), """
              bash  source <(agentfs completion bash)     in ~/.bashrc
              zsh   source <(agentfs completion zsh)      in ~/.zshrc, after compinit
              fish  agentfs completion fish | source      in ~/.config/fish/config.fish""",
        ),
        Command("completion.complete", ""),
        Command(
            "serve.attempt", "run one step for a driver elsewhere (a place starts it)", (), """
            What [places.NAME] starts on another machine or in a container: it reads one order from standard input
            and sends its log and result to standard output. Only the driver writes the run's files.""", drives=True,
        ),
    ),
}  # fmt: skip


# ── the parsers ───────────────────────────────────────────────────────────────────────────────────────────


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are reported in one line, with a way on."""

    make_epilog: Callable[[], str] | None = None
    commands: Mapping[str, "Parser"] = MappingProxyType({})

    def format_help(self) -> str:
        self.epilog = self.make_epilog() if self.make_epilog else self.epilog
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        from agentfs.commands import harmless

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


class _Grouped(_Wrapped):
    """Lists the commands in groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return super()._format_action(action)
        lines = []
        for title, commands in COMMANDS.items():
            lines.append(f"  {title}:")
            lines += [f"    {name_of(one):<11} {one.summary}" for one in commands if one.summary]
        return "\n".join(lines) + "\n"


def name_of(command: Command) -> str:
    return command.place.partition(".")[2].replace("_", "-")


@cache
def build() -> Parser:
    """Return the whole parser: 44 commands take 8 ms, so it is built once."""
    parser = Parser(
        prog="agentfs",
        usage=USAGE,
        description="An agent you operate with your editor and git: the plan is a file, every revision is a commit.",
        epilog=EPILOG,
        formatter_class=_Grouped,
    )
    parser.add_argument("--version", action="version", version=f"agentfs {__version__}", help="print the version")
    parser.add_argument("-C", dest="folder", metavar="DIR", default=".", help="the workspace, or a folder in it")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", prog="agentfs", parser_class=Parser)
    for command in (one for commands in COMMANDS.values() for one in commands):
        _add(subparsers, command)
    parser.commands = subparsers.choices
    return parser


def _add(subparsers: Any, command: Command) -> None:
    words, name = command.summary, name_of(command)
    parser: Parser = subparsers.add_parser(
        name,
        description=f"{words}\n\n{textwrap.dedent(command.more).strip()}" if command.more else words,
        formatter_class=_Wrapped,
        **({"help": words} if words else {}),
    )
    parser.make_epilog = _EPILOGS.get(name)
    parser.set_defaults(command=_import_command(command), parser=parser)
    parser.add_argument("-C", dest="folder", default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # also behind it
    for names, how in command.arguments:
        parser.add_argument(*names, **how)


def _import_command(command: Command) -> Callable[[argparse.Namespace], int]:
    """Return a command that is imported when it is called."""
    module, _, function = command.place.partition(".")

    def call(arguments: argparse.Namespace) -> int:
        if command.drives:
            from agentfs.storage.system import require_linux

            require_linux(f"agentfs {function}")
        code: int = getattr(importlib.import_module(f"agentfs.commands.{module}"), function)(arguments)
        return code

    return call


def defaults_of(name: str) -> dict[str, Any]:
    """Return what a command is given of the options that are not typed."""
    return {one.dest: one.default for one in build().commands[name]._actions if one.option_strings}  # noqa: SLF001


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
    shown = [one for one in parser._actions if one.help is not argparse.SUPPRESS]  # noqa: SLF001
    options = [option for one in shown for option in one.option_strings]
    if option in options and parser is not build():
        parser.error(f"{option} goes after the command: {parser.prog} {option}")
    if not unknown[0].startswith("-") and getattr(arguments, "goal", None) is not None:
        parser.error(f"unrecognized arguments: {words}; put a goal in words between quotes")
    meant = did_you_mean(option, options) if option.startswith("-") else ""
    parser.error(f"unrecognized arguments: {words}{f', {meant}' if meant else ''}")

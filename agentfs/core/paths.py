"""Names of files <-> ids: the only place that builds or parses them; ids of a run's trace. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

FORMAT_DIGITS = r"[1-9][0-9]{0,8}"
STEP_ID = r"[a-z0-9][a-z0-9-]{0,62}"
ITEM = "~"  # between a step and one of its items: fetch~north
ATTEMPT_ID = rf"{STEP_ID}(?:{ITEM}[a-z0-9][a-z0-9-]{{0,47}})?"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
NAME_LENGTH = 48

SETTINGS = "agentfs.toml"
RUN = "run.json"
PLAN = "plan.json"
PLAN_ERROR = "plan.error.md"
GOAL_ERROR = "goal.error.md"
OUTCOME = "outcome.json"
CHANGES = "changes.patch"  # what an isolated run changed, for people
STATUS = "STATUS.md"
ON_WAIT_LOG = "on_wait.log.jsonl"
ON_END_LOG = "on_end.log.jsonl"
REPLAN = "replan.md"
REQUEST = "request.yaml"  # what asked for a goal of runbooks/, with which values
USED = ".used"  # the goal that a dropped request uses, until the run has its goal file
DROPPED = ".dropped"  # a goal that has left goals/ and whose run has no goal file yet
CLIENT_EDIT = ".client-edit.json"  # which edit of the plan a client of `agentfs mcp` makes, until it has its revision
FORGOTTEN = ".forgotten"  # in runs/: folders of runs that have yet to be deleted
STEPS, PLANNING, REVISIONS, FILES = "steps", "planning", "revisions", "files"
GOAL_SUFFIXES = (".md", ".txt", ".yaml", ".yml", ".json")
GOALS = tuple(f"goal{suffix}" for suffix in GOAL_SUFFIXES)  # the goal of a run is one of these

StepFileKind = Literal["order", "log", "result", "question", "reply", "again", "output"]
CallFileKind = Literal["call", "log", "answer", "plan", "question", "reply", "asked", "checks", "again"]
K = TypeVar("K", bound=str)
Trace = tuple[StepFileKind, int]  # one file of an attempt: its kind, and which one of those that may be several

TRACED_RUN = "run"  # the path of a run in its trace
_TRACED = re.compile(r"steps/[^/.]+\.[0-9]+|planning/[0-9]+")
_SUFFIXES = {
    "order": "json",
    "call": "json",
    "log": "log.jsonl",
    "result": "result.json",
    "answer": "result.json",
    "again": "again.md",
    "output": "output.txt",
    "asked": "asked.md",
    "checks": "checks.json",
}
_STEP_KINDS: tuple[StepFileKind, ...] = ("order", "log", "result", "again", "output")
_CALL_KINDS: tuple[CallFileKind, ...] = ("call", "log", "answer", "asked", "checks", "again")
_STEP_KIND_OF = {_SUFFIXES[kind]: kind for kind in _STEP_KINDS}
_CALL_KIND_OF = {_SUFFIXES[kind]: kind for kind in _CALL_KINDS}
_STEP_FILE = re.compile(rf"({ATTEMPT_ID})\.({FORMAT_DIGITS})\.([a-z0-9.-]+)\Z")
_CALL_FILE = re.compile(rf"({FORMAT_DIGITS})\.([a-z0-9.-]+)\Z")
_QUESTION_SUFFIX = re.compile(rf"(question|reply)(?:-({FORMAT_DIGITS}))?\.md\Z")
_PLAN_TRY = re.compile(rf"plan\.({FORMAT_DIGITS})\.json\Z")
_REVISION_FILE = re.compile(rf"({FORMAT_DIGITS})\.(plan\.)?json\Z")
_GOAL_BEFORE = re.compile(rf"{FORMAT_DIGITS}\.goal\.(?:md|txt|yaml|yml|json)\Z")
_FORK_SOURCE = re.compile(rf"fork of {DAY}/[a-z0-9][a-z0-9-]*@{FORMAT_DIGITS}\Z")
_PLAN_NAME = re.compile(rf"(?:plan\.json|plan\.saved-{FORMAT_DIGITS}\.json|\.plan\.{FORMAT_DIGITS}\.json)\Z")
_RUN_ID = re.compile(rf"{DAY}/[a-z0-9][a-z0-9-]*\Z")


class StepFile(NamedTuple):
    """A name under `steps/`, taken apart."""

    step: str
    attempt: int
    kind: StepFileKind
    nth: int = 1  # the second question of an attempt is question-2


class CallFile(NamedTuple):
    """A name under `planning/`, taken apart."""

    call: int
    kind: CallFileKind
    nth: int = 1  # the second try at installing a plan is plan.2, the second question question-2


def step_file(step: str, attempt: int, kind: StepFileKind, count: int = 1) -> str:
    """Return the name of a file under `steps/`."""
    return f"{step}.{attempt}.{_suffix(kind, count)}"


def step_path(step: str, attempt: int, kind: StepFileKind, count: int = 1) -> str:
    """Return where a file under `steps/` is, from the run's folder."""
    return f"{STEPS}/{step_file(step, attempt, kind, count)}"


def step_of(attempted: str) -> str:
    """Return the step that an id under `steps/` belongs to: itself, or the one whose item it is."""
    return attempted.partition(ITEM)[0]


def call_file(call: int, kind: CallFileKind, count: int = 1) -> str:
    """Return the name of a file under `planning/`."""
    return f"{call}.{_suffix(kind, count)}"


def call_path(call: int, kind: CallFileKind, count: int = 1) -> str:
    """Return where a file under `planning/` is, from the run's folder."""
    return f"{PLANNING}/{call_file(call, kind, count)}"


def _suffix(kind: str, count: int) -> str:
    if kind == "plan":
        return f"plan.{count}.json"
    if kind in ("question", "reply"):
        return f"{kind}{f'-{count}' if count > 1 else ''}.md"
    return _SUFFIXES[kind]


def checks_log_file(call: int) -> str:
    """Return the name of the log of the goal's checks; only a replay reads it back."""
    return f"{call}.checks.log.jsonl"


def goal_before_file(call: int, goal: str) -> str:
    """Return where the goal is kept that a call was given, once a person has edited it; nobody decides by it."""
    return f"{call}.{goal}"


NEEDS, GATE_NEEDS = ".needs", ".gate.needs"  # of an attempt: checks before its order, and before a gate's question
WHEN = ".when"  # of an attempt: the condition of its step
CONTEXT = "context.md"  # under planning/: what the planner was given to read, as it was at the first call
BEFORE = ".before"  # of an attempt, or a call: checks before the work
ACCEPT = ".accept"  # of an attempt: the plan's checks, run when a loop claims to be done


def conversation(step: str, attempt: int) -> str:
    """Return what an attempt's conversation is called: its log without the ending."""
    return f"{STEPS}/{step}.{attempt}"


def call_conversation(call: int) -> str:
    """Return the same of a call."""
    return f"{PLANNING}/{call}"


def revision_file(revision: int) -> str:
    return f"{revision}.json"


def revision_plan_file(revision: int) -> str:
    return f"{revision}.plan.json"


def parse_step_file(name: str) -> StepFile | None:
    """Return what a name under `steps/` means; None if it is none of ours."""
    match = _STEP_FILE.match(name)
    trace = _trace(match[3], _STEP_KIND_OF) if match else None
    return StepFile(match[1], int(match[2]), *trace) if match and trace else None


def by_attempt(listing: Iterable[str]) -> dict[tuple[str, int], list[Trace]]:
    """Return which files each attempt has: the names under `steps/`, thousands of them, taken apart in one go."""
    found: dict[tuple[str, int], list[Trace]] = {}
    for name in listing:
        if (match := _STEP_FILE.match(name)) and (trace := _trace(match[3], _STEP_KIND_OF)):
            found.setdefault((match[1], int(match[2])), []).append(trace)
    return found


def _trace(suffix: str, kinds: Mapping[str, K]) -> tuple[K | Literal["question", "reply"], int] | None:
    """Return the kind of a file, and which one of those that may be several, by what follows its number."""
    if kind := kinds.get(suffix):
        return kind, 1
    if asked := _QUESTION_SUFFIX.match(suffix):
        return "question" if asked[1] == "question" else "reply", int(asked[2] or 1)
    return None


def parse_call_file(name: str) -> CallFile | None:
    """Return what a name under `planning/` means; None if it is none of ours."""
    if not (match := _CALL_FILE.match(name)):
        return None
    if again := _PLAN_TRY.match(match[2]):
        return CallFile(int(match[1]), "plan", int(again[1]))
    trace = _trace(match[2], _CALL_KIND_OF)
    return CallFile(int(match[1]), *trace) if trace else None


def parse_revision_file(name: str) -> tuple[int, Literal["record", "plan"]] | None:
    """Return the revision a name under `revisions/` belongs to, and which of its two files it is."""
    if not (match := _REVISION_FILE.match(name)):
        return None
    return int(match[1]), "plan" if match[2] else "record"


def kind_of(path: str) -> str:
    """Return what kind of file of a run this is: that of a step or call, or another; "" of what may be replaced."""
    folder, _, name = path.rpartition("/")
    if folder == STEPS:
        step = parse_step_file(name)
        return step.kind if step else ""
    if folder == PLANNING:
        call = parse_call_file(name)
        return call.kind if call else "goal" if _GOAL_BEFORE.match(name) else "context" if name == CONTEXT else ""
    if folder == REVISIONS:
        revision = parse_revision_file(name)
        return {"record": "revision", "plan": "revision plan"}[revision[1]] if revision else ""
    return {RUN: "run", OUTCOME: "outcome"}.get(path, "")


Writing = Literal["once", "appended", "by people"]


def writing_of(path: str) -> Writing | None:
    """Return how a file of a run is written: once and never again, line by line, or by people until it is acted upon.

    None of one that may be replaced (the plan, the goal, the outcome), or that is none of ours.
    """
    folder, kind = path.rpartition("/")[0], kind_of(path)
    if folder in (STEPS, PLANNING) and path.endswith((".log.jsonl", ".output.txt")):
        return "appended"
    if kind in ("", "outcome"):
        return None
    return "by people" if kind in ("reply", "again", "asked") else "once"


def fork_source(run: str, revision: int) -> str:
    """Return what run.json says a fork came from."""
    return f"fork of {run}@{revision}"


def is_fork_source(text: str) -> bool:
    return bool(_FORK_SOURCE.match(text))


def is_plan_name(name: str) -> bool:
    """Whether a file of this name is a plan: the run's own, one kept, one of a revision, or one being prepared."""
    return bool(_PLAN_NAME.search(name))


def run_id(folder: object) -> str:
    """Return the id of the run in a folder: the last two parts of its path."""
    return "/".join(str(folder).replace("\\", "/").rsplit("/", 2)[1:])


def is_run_id(text: str) -> bool:
    return bool(_RUN_ID.match(text))


def goal_file(name: str) -> str:
    """Return what a goal is called in its run: `goal`, with the extension that says how to read it."""
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    return f"goal{suffix if suffix in GOAL_SUFFIXES else '.md'}"


def branch_of(run: str) -> str:
    """Return the branch that an isolated run works on."""
    return f"agentfs/{run}"


def run_name(text: str) -> str:
    """Return the name a run gets from a file's stem or a goal's first line."""
    return plain_name(text, NAME_LENGTH) or "goal"


def plain_name(text: str, length: int) -> str:
    """Return a text as lower case letters, digits and single hyphens; other scripts are written in Latin letters."""
    if not text.isascii():
        from anyascii import anyascii  # its tables are read when they are first needed

        text = anyascii(text)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:length].strip("-")


def spell_path(path: str) -> str:
    """Return a path as a record can hold it: what is not UTF-8 in it is replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def inside(path: str, folder: str) -> bool:
    """Return whether a real path is a folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# ── ids of a run's trace: hashed, so that a program can name its parent before there is any trace ─────────


def trace_id(run: str, started_at: str) -> str:
    """Return the id of a run's trace. Runs of one name in two workspaces did not begin in the same microsecond."""
    return _hashed(f"agentfs {run} {started_at}")[:32]


def span_id(run: str, started_at: str, path: str) -> str:
    return _hashed(f"agentfs {run} {started_at} {path}")[:16]


def _hashed(text: str) -> str:
    from hashlib import sha256  # 3 ms, which commands that only read do not pay

    return sha256(text.encode()).hexdigest()


def traceparent(run: str, started_at: str, name: str) -> str:
    """Return what tells a program whose child its spans are (W3C Trace Context).

    `name`: what the program is started for, such as steps/total.1, or steps/total.1.needs, which is a part of that.
    """
    match = _TRACED.match(name)
    return f"00-{trace_id(run, started_at)}-{span_id(run, started_at, match[0] if match else TRACED_RUN)}-01"

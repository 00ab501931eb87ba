"""Where a goal comes from: a file, standard input, words; or a request, which names one of `runbooks/` and values."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.facts import DEEPEST
from agentfs.core.goal_file import MAX_BYTES, RUNBOOKS, ParsedGoal, Request, examine_goal, read_request, uses_problems
from agentfs.core.params import Fits, Parameter, example_arguments, values_for
from agentfs.core.problems import Locate, Problem, Rejected, did_you_mean
from agentfs.core.records import Approve, Goal, Limits, Mode, Parent
from agentfs.core.references import find
from agentfs.core.schedule import FIELDS
from agentfs.core.schedule import FOLDER as SCHEDULES
from agentfs.core.tool_spec import Catalogue
from agentfs.errors import BadFile, UserError
from agentfs.executor.checks import mismatch
from agentfs.storage.safe_open import hold_named, names_in, read_regular
from agentfs.storage.timing import TIMING
from agentfs.tools.process import Never

Hide = Callable[[str], str]  # a text -> the same without secrets


@dataclass(frozen=True, slots=True)
class Flags:
    """What was typed on the command line; it may loosen what a goal file may only tighten."""

    mode: Mode | None = None
    approve: Approve | None = None
    workdir: Path | None = None
    planner: str | None = None
    executor: str | None = None
    with_uncommitted: bool = False
    params: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The request that a goal is used by."""

    content: bytes
    shown: str
    request: Request


@dataclass(frozen=True, slots=True)
class AboveChild:
    """What a run holds those to that it begins: they are no looser than itself."""

    parent: Parent
    approve: Approve
    workdir: Path
    limits: Limits  # what is left of its own
    isolated: bool


@dataclass(frozen=True, slots=True)
class GoalSource:
    """A goal before it is a run."""

    content: bytes
    filename: str  # its extension says how to read it
    shown: str  # what messages call it
    origin: str  # what run.json says it came from
    name: str | None = None  # what the run is called, if neither goal nor file says
    dropped: Path | None = None  # the file itself, if it moves into the run instead of being copied
    is_clients: bool = False  # a client of `agentfs mcp` gave it: it may no more than a dropped one
    used_by: RequestSource | None = None  # a request: content and filename are those of the goal that it uses
    schedule: str | None = None  # the name of the file in schedules/ that it is
    due: str | None = None  # the time of that schedule that it is run for
    above: AboveChild | None = None  # the run that it is a step of


@dataclass(frozen=True, slots=True)
class GivenValues:
    """The values of a goal's parameters, or all that is wrong with them, placed, and a command that would do."""

    values: dict[str, JsonValue]
    problems: tuple[Problem, ...] = ()
    advice: str = ""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def with_used_goal(source: GoalSource, root: Path) -> GoalSource:
    """Return the goal that a request uses, with the request; any other goal as it is. Raises BadFile."""
    if source.used_by is not None:
        return source
    if Path(source.origin).parent == root / SCHEDULES:  # a person may run one now: not for one of its times
        source = replace(source, schedule=Path(source.origin).stem)
    try:
        request = read_request(source.content, source.filename)
    except Rejected as rejected:
        raise BadFile(source.shown, rejected.problems, source.content) from None
    if request is None:
        return source
    if found := [] if source.schedule else [*find_misplaced_fields(request.fields)]:
        placed = [one.at(*request.places(one.pointer, True)) for one in found]
        raise BadFile(source.shown, placed, source.content)
    try:
        content = read_used_goal(root, request.uses)
    except Rejected as rejected:
        where = request.places("/uses", False)
        raise BadFile(source.shown, [one.at(*where) for one in rejected.problems], source.content) from None
    used_by = RequestSource(source.content, source.shown, request)
    return replace(source, content=content, filename=request.uses, shown=request.uses, used_by=used_by)


def find_misplaced_fields(fields: Goal) -> Iterator[Problem]:
    """Yield a problem for each field of a schedule in a goal that is none."""
    for name in FIELDS:
        if getattr(fields, name) is not None:
            fix = f"move the file to {SCHEDULES}/, where `watch` runs it on time, or remove the field"
            yield Problem(f"{name!r} means something only in {SCHEDULES}/", fix, f"/{name}")


def read_used_goal(root: Path, uses: str) -> bytes:
    """Return the bytes of a goal in runbooks/, through no link; raise `Rejected` if there is none."""
    try:
        with hold_named(root) as workspace:
            content = read_regular(uses, MAX_BYTES, folder=workspace)
    except (FileNotFoundError, NotADirectoryError):
        raise Rejected([Problem(f"uses: there is no {uses}", _there_are(root, uses), "/uses")]) from None
    except OSError as error:
        fix = "put the goal itself there, as a file"
        raise Rejected([Problem(f"uses: {uses} cannot be read: {error.strerror}", fix, "/uses")]) from None
    return content


def _there_are(root: Path, uses: str) -> str:
    known = _list_names(root)
    return did_you_mean(uses, known, f"there are {', '.join(known)}" if known else f"{RUNBOOKS}/ holds no goal yet")


def _list_names(root: Path) -> list[str]:
    try:
        listed = names_in(root / RUNBOOKS)
    except OSError:
        listed = []
    return sorted(f"{RUNBOOKS}/{name}" for name in listed if name.lower().endswith(paths.GOAL_SUFFIXES))


# ── goals that steps use ──────────────────────────────────────────────────────────────────────────────────


def with_runbooks(
    catalogue: Catalogue,
    root: Path,
    own: str | None = None,
    chain: tuple[str, ...] = (),
    fits: Fits | None = None,
) -> Catalogue:
    """Return tools that know the goals of runbooks/, for judging steps that run one.

    `own`: the goal that is judged, if it is one of them. `chain`: those through which these steps are reached.
    `fits`: judges the values that they are given.
    """
    judge = partial(step_problems, root=root, catalogue=catalogue, own=own, chain=chain, fits=fits or bounded_fits())
    return replace(catalogue, uses=judge)


def step_problems(
    given: Mapping[str, Any],
    root: Path,
    catalogue: Catalogue,
    own: str | None,
    chain: tuple[str, ...] = (),
    fits: Fits | None = None,
) -> Iterator[Problem]:
    """Yield what is wrong with the input of a step that runs a goal, and with all that this one runs in turn."""
    fits = fits or bounded_fits()
    uses, values = given.get("uses"), given.get("params", {})
    if not isinstance(uses, str) or not isinstance(values, dict):
        return  # its schema says so
    if find(uses):
        yield Problem("uses: a reference cannot be used here: the goal must be known beforehand", NAMED, "/uses")
        return
    if wrong := [*uses_problems(uses, "/uses"), *_chain_problems(uses, own, chain)]:
        yield from wrong
        return
    try:
        source = read_used_goal(root, uses)
        inner = with_runbooks(catalogue, root, own, (*chain, uses), fits)
        goal, found = examine_goal(source, uses, inner, fits=fits)
    except Rejected as rejected:
        yield from (replace(one, pointer="/uses") for one in rejected.problems)
        return
    for one in found[:MOST_SHOWN]:
        yield Problem(f"{uses}:{one.line}:{one.column}: {one.message}", one.fix, "/uses")
    yield from _value_problems(goal.params, values, fits)


def runbook_lines(root: Path, catalogue: Catalogue) -> list[str]:
    """Return the goals that a step may run, each with its title and what it takes; those that read."""
    found = []
    for uses in _list_names(root):
        try:
            goal, problems = examine_goal(read_used_goal(root, uses), uses, with_runbooks(catalogue, root, uses))
        except Rejected:
            continue
        takes = "; ".join(map(_takes, goal.params.values()))
        found += [] if problems else [f"{uses}: {goal.title}{f' (params: {takes})' if takes else ''}"]
    return found


def _takes(parameter: Parameter) -> str:
    about = f", {parameter.description}" if parameter.description else ""
    return f"{parameter.name}: {parameter.kind}{about}{'' if parameter.is_required else ', optional'}"


NAMED = f"write the path itself: {RUNBOOKS}/NAME.md"
MOST_SHOWN = 3  # problems of a goal that a step uses


def _chain_problems(uses: str, own: str | None, chain: tuple[str, ...]) -> Iterator[Problem]:
    through = " -> ".join((*([own] if own else ()), *chain, uses))
    if uses == own or uses in chain:
        yield Problem(f"uses: {uses} would run itself: {through}", "take one of these steps out", "/uses")
    elif len(chain) >= DEEPEST:
        fix = "let one of them do what it uses others for"
        yield Problem(f"uses: runs in runs go at most {DEEPEST} deep: {through}", fix, "/uses")


def _value_problems(
    parameters: Mapping[str, Parameter], given: Mapping[str, JsonValue], fits: Fits
) -> Iterator[Problem]:
    """Yield which values are missing or unknown, and which of those that are known already do not fit."""
    later = {name for name in given if any(find(text) for text in _texts(given[name]))}
    known = {name: one for name, one in parameters.items() if name not in later}
    unknown = later - parameters.keys()
    asked = {name: value for name, value in given.items() if name not in later or name in unknown}
    for one in values_for(known, asked, fits).problems:
        yield one if one.pointer.rpartition("/")[2] in given else replace(one, pointer="")


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────


def bounded_fits() -> Fits:
    """Return what says how a value violates a schema. For all that it is asked it takes no longer than for one."""
    deadline = cache(lambda: time.monotonic() + TIMING.conform)  # from the first question on
    return lambda schema, value: mismatch(schema, value, deadline=deadline(), stop=Never())


def values_given(
    parsed: ParsedGoal, source: GoalSource, typed: Mapping[str, JsonValue], hide: Hide, fits: Fits | None = None
) -> GivenValues:
    """Return the value of every parameter of a goal: what was typed counts before what a request says."""
    used_by = source.used_by
    given = {**(used_by.request.values if used_by else {}), **typed}
    found = values_for(parsed.params, given, fits or bounded_fits())
    secrets = _secrets(found.values, hide)
    if not (problems := [*found.problems, *secrets]):
        return GivenValues(found.values)
    places = used_by.request.places if used_by else parsed.places
    placed = tuple(replace(one, message=hide(one.message)).at(*_place(one, places)) for one in problems)
    if secrets:  # no value that could be typed takes its place
        return GivenValues(found.values, placed)
    arguments = example_arguments(parsed.params, {name: given[name] for name in given if name in parsed.params})
    return GivenValues(found.values, placed, f"try: agentfs run {source.shown} {arguments}".rstrip())


def _place(problem: Problem, places: Locate) -> tuple[int, int]:
    """Return where a value is written, or where it would be."""
    for pointer in (problem.pointer, "/params"):
        if (found := places(pointer, True)) != (1, 1):
            return found
    return 1, 1


def _secrets(values: Mapping[str, JsonValue], hide: Hide) -> list[Problem]:
    """Return which values are secrets: run.json would hold them for ever."""
    fix = "name the variable that holds it, list that under env of [tools], and let the step read it"
    return [
        Problem(f"the value of the parameter {name!r} is a secret: it would be stored", fix, f"/params/{name}")
        for name, value in values.items()
        if any(hide(text) != text for text in _texts(value))
    ]


def _texts(value: JsonValue) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *_texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value if isinstance(value, str) else str(value)]


# ── what `run GOAL` names ─────────────────────────────────────────────────────────────────────────────────


def goal_from(text: str, cwd: Path, stdin: Callable[[], bytes]) -> GoalSource:
    """Return the goal that `run GOAL` names: a file, `-` for standard input, or the words themselves."""
    if text == "-":
        return GoalSource(stdin(), "goal.md", "standard input", "stdin")
    path = cwd / text
    looks_like_file = len(text) < 4096 and "\n" not in text and (path.exists() or _is_one_path(text))
    if not looks_like_file:
        _refuse_half_a_name(text, path)
        return GoalSource(os.fsencode(text), "goal.md", "the goal", "text")
    if path.is_dir():
        raise UserError(f"{text} is a folder, not a goal file")
    if path.suffix.lower() not in paths.GOAL_SUFFIXES:
        raise UserError(f"{text}: a goal file ends in {', '.join(paths.GOAL_SUFFIXES)}")
    try:
        with path.open("rb") as file:  # a person's own: what they name may be a link or a pipe
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        meant = did_you_mean(path.name, _goal_files(path.parent)) if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"{text}: {error.strerror}{f' ({meant})' if meant else ''}") from None
    return goal_in(path, content, text)


def _refuse_half_a_name(text: str, path: Path) -> None:
    """Refuse a word that is the name of a goal file without its ending: a model would be asked to do that word."""
    for name in _goal_files(path.parent):
        if _stem(name) == text:
            raise UserError(f"there is no file {text} (did you mean {name!r}?)")


def _goal_files(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(paths.GOAL_SUFFIXES))
    except OSError:
        return []


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def goal_in(path: Path, content: bytes, shown: str) -> GoalSource:
    """Return the goal that a file holds, for `run` and `check`."""
    return GoalSource(content, path.name, shown, str(path.resolve()), path.stem)


def _is_one_path(text: str) -> bool:
    """Whether a text can only be meant as a file: a goal in words may well end with the name of one."""
    return not any(map(str.isspace, text)) and (text.endswith(paths.GOAL_SUFFIXES) or os.sep in text)

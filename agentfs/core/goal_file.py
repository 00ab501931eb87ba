"""Goal bytes -> what was asked: fields, words, and the steps if the goal holds its own. Pure.

Markdown may hold front matter and a runbook (`## Steps`), text only front matter; YAML and JSON are fields, with
`steps` in plan form if they hold a plan, or they are a bare list of steps; or a request, which runs a goal of
`runbooks/` with values for its parameters. Every problem is reported at once, with
its place in the goal file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import JsonValue

from agentfs.core import paths, schedule
from agentfs.core.documents import Document, decode_text, read_json, read_yaml
from agentfs.core.hashing import PLAN_SCHEMA, check_value, in_order, present_fields, spell_out
from agentfs.core.markdown import Block, Heading, blocks, lines_of
from agentfs.core.near_misses import near_runbook
from agentfs.core.params import Fits, Parameter, declaration_problems, fill, parameters_in, quick_fit
from agentfs.core.plan_check import check_goal, check_plan
from agentfs.core.problems import Lines, Locate, Places, Problem, Rejected, locate_below, refuse
from agentfs.core.records import Approve, Goal, Limits, Step
from agentfs.core.references import Params, in_step, param_problems
from agentfs.core.runbook import Fallback, PlacedStep, firsts, read_runbook
from agentfs.core.text import one_line
from agentfs.core.tool_spec import Catalogue

MAX_BYTES = 1024 * 1024
TITLE_LENGTH = 120

Kind = Literal["words", "runbook", "plan"]


@dataclass(frozen=True, slots=True)
class ParsedGoal:
    """A goal file, read: what it sets, what it says, and the steps it brings."""

    fields: Goal
    text: str  # the goal's words, without front matter
    title: str
    kind: Kind
    first_line: int = 1  # of the file, that may hold its words
    placed: tuple[PlacedStep, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    places: Locate = field(default=lambda _pointer, _key: (1, 1), repr=False, compare=False)  # of its fields

    @property
    def steps(self) -> Document | None:
        """The plan as the goal has it, its places those of the goal file; None for a goal in words."""
        return self._plan(self.placed) if self.placed else None

    @property
    def params(self) -> dict[str, Parameter]:
        """What the goal takes."""
        return parameters_in(self.fields.params)

    def filled(self, values: Mapping[str, JsonValue]) -> "ParsedGoal":
        """Return the goal with the values of its parameters filled into its words."""
        return replace(self, text=fill(self.text, values), title=one_line(fill(self.title, values), TITLE_LENGTH))

    def full_document(self) -> Document | None:
        """Return the plan with every fallback in it, so that all of them can be checked before anything runs."""
        if not self.fallbacks:
            return self.steps
        waits = {step.id: step.value.get("depends_on") for step in self.placed}
        first = firsts(self.fallbacks)
        later = [_join(one, waits.get(first.get(one.of, one.of))) for one in self.fallbacks]
        return self._plan((*self.placed, *later))

    def _plan(self, steps: Sequence[PlacedStep]) -> Document:
        value: dict[str, Any] = {"$schema": PLAN_SCHEMA, "goal": self.title}
        value["status"] = self.fields.status or "approved"
        if self.fields.checks:
            value["checks"] = [check_value(check) for check in self.fields.checks]
        value["steps"] = [step.value for step in steps]
        inside = {"": self.places} | {f"/steps/{number}": step.places for number, step in enumerate(steps)}
        return Document(value, Places(inside=inside).locate)


def parse_goal(source: bytes, filename: str, catalogue: Catalogue, *, planned: bool = False) -> ParsedGoal:
    """Return what a goal file asks, its steps checked against the tools; raise `Rejected` with all that is wrong.

    `planned`: as below.
    """
    goal, problems = examine_goal(source, filename, catalogue, planned=planned)
    if problems:
        raise Rejected(problems)
    return goal


def examine_goal(
    source: bytes, filename: str, catalogue: Catalogue, *, planned: bool = False, fits: Fits = quick_fit
) -> tuple[ParsedGoal, list[Problem]]:
    """Return what a goal file asks, and all that is wrong with it; raise `Rejected` if it cannot be read at all.

    `planned`: there is a plan made from these very bytes, which is checked in their place. Prose stays prose then.
    `fits`: judges the defaults of its parameters.
    """
    text = _decode(source)
    suffix = filename[filename.rfind(".") :].lower() if "." in filename else ""
    if suffix in (".yaml", ".yml", ".json"):
        goal, problems = _from_fields(text, filename, suffix == ".json", catalogue)
    else:
        goal, problems, near_misses = _from_words(text, suffix != ".txt", catalogue)
        problems += [] if planned else near_misses
    if not planned:
        catalogue = _with_params(goal, catalogue)
        problems += _param_problems(goal, catalogue.params, fits)
        problems = [*problems, *_plan_problems(goal, catalogue, {problem.line for problem in problems})]
    lines = lines_of(text) if problems else []
    placed = [problem.at_quote(lines) for problem in problems]
    found = {(one.line, one.column, one.message): one for one in placed}  # words of a step are words of the goal too
    return goal, sorted(found.values(), key=lambda one: (one.line, one.column))


def _decode(source: bytes) -> str:
    if len(source) > MAX_BYTES:
        refuse("the goal is larger than 1 MiB", "keep large texts in files and name their paths")
    text = decode_text(source, MAX_BYTES).removeprefix("\ufeff")
    if (at := text.find("\0")) >= 0:
        refuse("a NUL byte: this is not text", "save the file as UTF-8 text", *Lines(text).at(at))
    return text


def _join(one: Fallback, waits: Any) -> PlacedStep:
    """Return a fallback as a step of the plan: an alternative waits for what its original waits for."""
    depends_on = waits if one.kind == "instead" and isinstance(waits, list) else []
    return PlacedStep(in_order(one.value | {"depends_on": depends_on}), one.places)


def _with_params(goal: ParsedGoal, catalogue: Catalogue) -> Catalogue:
    """Return what references may name: what the goal takes, and what its run was given."""
    given = catalogue.params
    names = tuple(dict.fromkeys((*(goal.fields.params or {}), *given.names)))
    return replace(catalogue, params=Params(names, given.values))


def _param_problems(goal: ParsedGoal, params: Params, fits: Fits) -> list[Problem]:
    """Return what is wrong with the parameters that a goal declares, and with the words that refer to them."""
    found = list(declaration_problems(goal.fields.params, fits))
    placed = [one.at(*goal.places(one.pointer, False)) for one in found]
    words = param_problems("", goal.text, params)
    return [*placed, *(one.at(goal.first_line, 1) for one in words)]


def _plan_problems(goal: ParsedGoal, catalogue: Catalogue, known: set[int]) -> list[Problem]:
    """Return what the plan check finds on lines that have no problem yet: one mistake is reported once."""
    if not (document := goal.full_document()):
        return _early_references(goal)
    if goal.fields.isolate is not None:
        catalogue = replace(catalogue, isolated=True)
    if goal.fields.tools is not None:
        catalogue = replace(catalogue, allowed=catalogue.allowed & frozenset(goal.fields.tools))
    try:
        check_plan(document, catalogue)
    except Rejected as rejected:
        return [problem for problem in rejected.problems if problem.line not in known]
    return []


def _early_references(goal: ParsedGoal) -> list[Problem]:
    """Return the references of a goal in words to steps: nobody knows its steps before it is planned."""
    fix = "check a file or run a command; an `output` check looks at the run's answer"
    bearer = Step.model_construct(id="", checks=goal.fields.checks)
    return [
        Problem("a goal in words has no steps to refer to", fix, pointer).at(*goal.places(pointer, False))
        for pointer, reference in in_step(bearer)
        if reference.step is not None
    ]


def _fields(document: Document, has_steps: bool, problems: list[Problem]) -> Goal:
    """Return the fields beside the steps; those are checked as a plan, and one takes their place here."""
    steps = {"steps": [{"id": "a"}]} if has_steps else {}
    try:
        return check_goal(document.with_value(document.value | steps)).model_copy(update={"steps": None})
    except Rejected as rejected:
        problems.extend(rejected.problems)
        return Goal()


# ── Markdown and text ─────────────────────────────────────────────────────────────────────────────────────


def _from_words(
    text: str, markdown: bool, catalogue: Catalogue
) -> tuple[ParsedGoal, list[Problem], Sequence[Problem]]:
    """Return the goal, what is wrong with it, and what is read as prose and was surely not meant so."""
    problems: list[Problem] = []
    lines = lines_of(text)
    end = _front_matter_end(lines)
    found = list(blocks(lines[end:], end + 1)) if markdown else []
    runbook = read_runbook(found, catalogue)
    front = _front_matter(lines[1 : end - 1], problems) if end else Document({})
    fields = _fields(front.with_value(lenient(front.value, catalogue)), runbook is not None, problems)
    words = "\n".join(lines[end:]).strip()
    if not words:
        problems.append(Problem("the goal is empty", "say in words what is to be done").at(end + 1, 1))
    goal = ParsedGoal(fields, words, _title(found, words), "words", end + 1, places=front.places)
    if not runbook:
        return goal, problems, tuple(near_runbook(found))
    goal = replace(goal, kind="runbook", placed=runbook.steps, fallbacks=runbook.fallbacks)
    return goal, [*problems, *runbook.problems], runbook.near_misses


def _front_matter_end(lines: Sequence[str]) -> int:
    """Return the number of lines the front matter takes; 0 if there is none."""
    if lines[0].rstrip() != "---":
        return 0
    for at, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return at + 1
    raise Rejected([Problem("the front matter never ends", "end it with a line ---")])


def _front_matter(lines: Sequence[str], problems: list[Problem]) -> Document:
    try:
        document = read_yaml("\n".join(lines), first_line=2)
    except Rejected as rejected:
        problems.extend(rejected.problems)
        return Document({})
    if not isinstance(document.value, dict):
        problems.append(Problem("front matter is fields", "write each as name: value").at(2, 1))
        return Document({})
    for name, fix in (("steps", "write them under '## Steps'"), ("goal", "write it below the front matter")):
        if name in document.value:
            wrong = Problem(f"front matter has no field {name!r}", fix, f"/{name}", in_name=True)
            problems.append(document.place(wrong))
    return document.with_value({key: one for key, one in document.value.items() if key not in ("steps", "goal")})


def _title(found: Sequence[Block], words: str) -> str:
    headings = (block.text for block in found if isinstance(block, Heading) and block.text)
    return one_line(next(headings, words.partition("\n")[0]), TITLE_LENGTH)


# ── YAML and JSON ─────────────────────────────────────────────────────────────────────────────────────────


def _from_fields(text: str, filename: str, as_json: bool, catalogue: Catalogue) -> tuple[ParsedGoal, list[Problem]]:
    if not text.strip():
        refuse("the goal is empty", "say in words what is to be done")
    document = read_json(text.encode()) if as_json else read_yaml(text)
    if isinstance(document.value, list):
        document = document.wrapped("steps")
    if not isinstance(document.value, dict):
        refuse("the goal is neither fields nor a list of steps", "write goal: and what is to be done")
    if "uses" in document.value:  # a request is read by `read_request`; what it uses is a goal
        message, fix = "a goal that uses another cannot itself be used", "name the one that it uses"
        refuse(message, fix, *document.locate("/uses", key=True), "/uses")
    value = lenient(document.value, catalogue)
    problems: list[Problem] = []
    steps = value.pop("steps", None)
    value.pop("$schema", None)  # a plan.json that is run again still says where its schema is
    fields = _fields(document.with_value(value), steps is not None, problems)
    words = _words(value, steps, problems)
    first = one_line(words.lstrip("# \n").partition("\n")[0], TITLE_LENGTH)
    title = first or filename.rpartition("/")[2].partition(".")[0]
    line = document.locate("/goal")[0] if "goal" in value else 1
    goal = ParsedGoal(fields, words or title, title, "words", line, places=document.places)
    if steps is None:
        return goal, problems
    return replace(goal, kind="plan", placed=_place_steps(steps, document, problems)), problems


def _words(value: dict[str, Any], steps: Any, problems: list[Problem]) -> str:
    words = value.get("goal")
    if steps is None and not (isinstance(words, str) and words.strip()):
        fix = "write goal: and what is to be done, or steps: and the plan"
        problems.append(Problem("the goal says neither what is asked nor its steps", fix))
    return words.strip() if isinstance(words, str) else ""


def _place_steps(steps: Any, document: Document, problems: list[Problem]) -> tuple[PlacedStep, ...]:
    """Return the steps with their places, or report that they are none."""
    where = document.locate("/steps")
    if not isinstance(steps, list) or not steps:
        problems.append(Problem("'steps' must be a list of steps", "list at least one", "/steps").at(*where))
        return ()
    return tuple(PlacedStep(step, locate_below(f"/steps/{at}", document.places)) for at, step in enumerate(steps))


# ── what goals and planners' answers may write more loosely than plan.json ───────────────────────────────


_ID_LIMIT = 10**63  # an id has at most 63 characters; Python refuses to write out very long numbers


def lenient(value: Any, catalogue: Catalogue) -> Any:
    """Return a goal's or an answer's fields as plan.json would spell them; a bare list is the steps."""
    if isinstance(value, list):
        return lenient_steps(value, catalogue)
    if not isinstance(value, dict):
        return value
    known = present_fields(value)
    if "checks" in known:
        known["checks"] = lenient_checks(known["checks"])
    if "steps" in known:
        known["steps"] = lenient_steps(known["steps"], catalogue)
    return known


def lenient_steps(steps: Any, catalogue: Catalogue) -> Any:
    """Return steps as plan.json would spell them, each with its `depends_on`: plans written by code have it."""
    if not isinstance(steps, list):
        return steps
    return spell_out([_step(step, catalogue) if isinstance(step, dict) else step for step in steps])


def _step(step: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    known = present_fields(step)
    if "id" in known:
        known["id"] = _id(known["id"])
    if isinstance(known.get("depends_on"), list):
        known["depends_on"] = [_id(one) for one in known["depends_on"]]
    if known.get("tool") == "none":
        known["tool"] = "note"
        known.setdefault("input", known.get("description", ""))  # what is noted is what the step says
    for name in ("needs", "checks"):
        if name in known:
            known[name] = lenient_checks(known[name])
    if "when" in known:
        known["when"] = _check(known["when"])
    return _input(known, catalogue)


def _input(step: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    given, tool = step.get("input"), step.get("tool")
    if isinstance(given, str) and isinstance(tool, str):
        spec = catalogue.tools.get(tool)
        name = spec.text_field if spec else "text"  # of a tool that is not there, the check names the tool alone
        step["input"] = {name: given} if name else given
    return step


def _id(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number and abs(value) < _ID_LIMIT else value


def lenient_checks(checks: Any) -> Any:
    """Return checks as plan.json would spell them: a text is a command."""
    if not isinstance(checks, list):
        return checks
    return [_check(check) for check in checks]


def _check(check: Any) -> Any:
    if isinstance(check, str):
        return {"kind": "command", "run": check}
    return present_fields(check) if isinstance(check, dict) else check


# ── a request: a goal that runs one of runbooks/ with values for its parameters ───────────────────────────


FIELDS = ("uses", "params", "name", "limits", "approve")
_KNOWN = (*FIELDS, *schedule.FIELDS)  # the latter of one in schedules/
RUNBOOKS = "runbooks"
APPROVE_ORDER: tuple[Approve, ...] = ("never", "plan", "always")  # the loosest first


@dataclass(frozen=True, slots=True)
class Request:
    """What a request asks, and where in its file."""

    fields: Goal
    places: Locate

    @property
    def uses(self) -> str:
        return self.fields.uses or ""

    @property
    def values(self) -> Mapping[str, JsonValue]:
        return self.fields.params or {}


def read_request(source: bytes, filename: str) -> Request | None:
    """Return the request that a file is, or None if it is a goal itself; raise `Rejected` with all that is wrong."""
    if not filename.lower().endswith((".yaml", ".yml", ".json")) or b"uses" not in source:
        return None
    try:
        document = read_json(source, lenient_bom=True) if filename.lower().endswith(".json") else read_yaml(source)
    except Rejected:
        return None  # the reader of goals reports it
    if not isinstance(document.value, dict) or "uses" not in document.value:
        return None
    value = present_fields(document.value)
    value.pop("$schema", None)
    fields = check_goal(document.with_value({name: one for name, one in value.items() if name in _KNOWN}))
    problems = [*_beside(value), *uses_problems(fields.uses or "", "/uses")]
    if problems:
        raise Rejected([document.place(one) for one in problems])
    return Request(fields, document.places)


def _beside(value: Mapping[str, object]) -> Iterator[Problem]:
    for name in value:
        if name not in _KNOWN:
            fix = f"a goal that uses another may have {', '.join(FIELDS)}; the rest is in that one"
            yield Problem(f"{name!r} cannot be beside 'uses'", fix, f"/{name}", in_name=True)


def uses_problems(uses: str, pointer: str) -> Iterator[Problem]:
    """Yield what is wrong with the name of a used goal, wherever it is written: it is a path below runbooks/."""
    parts = uses.split("/")
    if parts[0] != RUNBOOKS or len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        fix = f"write it as {RUNBOOKS}/NAME.md, relative to the workspace"
        yield Problem(f"uses: {uses!r} is not a path in {RUNBOOKS}/", fix, pointer)
    elif not uses.lower().endswith(paths.GOAL_SUFFIXES):
        yield Problem(f"uses: {uses!r} is not a goal file", f"one ends in {', '.join(paths.GOAL_SUFFIXES)}", pointer)


def tighten_goal(goal: Goal, request: Goal) -> Goal:
    """Return the fields of a used goal with what the request says in their place: it may only tighten."""
    own = {name: value for name, value in (request.limits or Limits()) if value is not None}
    update: dict[str, object] = {"name": request.name or goal.name, "approve": request.approve or goal.approve}
    if own:
        update["limits"] = (goal.limits or Limits()).model_copy(update=own)
    return goal.model_copy(update=update)


def loosening_problems(fields: Goal, limits: Mapping[str, float], approve: Approve) -> Iterator[Problem]:
    """Yield where a goal asks for more than it is given: `limits` and `approve` are the loosest that it may."""
    if fields.approve is not None and APPROVE_ORDER.index(fields.approve) < APPROVE_ORDER.index(approve):
        yield tighten("approve", f"{fields.approve!r} is looser than {approve!r}")
    for name, asked in fields.limits or Limits():
        if asked is not None and name in limits and asked > limits[name]:
            yield tighten(f"limits.{name}", f"{asked:g} is more than {limits[name]:g}")


def tighten(field: str, words: str) -> Problem:
    """Return the problem of a field that loosens."""
    fix = "a goal may only tighten the settings; change agentfs.toml, or use a flag"
    return Problem(f"{field}: {words}", fix, f"/{field.replace('.', '/')}")

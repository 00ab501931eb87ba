"""A request: a YAML or JSON goal that runs a goal of `runbooks/` with values for its parameters. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from agentfs.core import paths
from agentfs.core.documents import Document, read_json, read_yaml
from agentfs.core.hashing import present_fields
from agentfs.core.plan_check import check_goal
from agentfs.core.problems import Locate, Problem, Rejected
from agentfs.core.records import Approve, Goal, Limits

FIELDS = ("uses", "params", "name", "limits", "approve")
_ALSO = ("schedule", "timezone", "overlap", "catch_up")  # of one in schedules/
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
    document = _document(source, as_json=filename.lower().endswith(".json"))
    if document is None or "uses" not in document.value:
        return None
    value = present_fields(document.value)
    value.pop("$schema", None)
    fields = check_goal(document.with_value({name: one for name, one in value.items() if name in FIELDS + _ALSO}))
    problems = [*_beside(value), *uses_problems(fields.uses or "", "/uses")]
    if problems:
        raise Rejected([one.at(*document.locate(one.pointer, key=one.pointer != "/uses")) for one in problems])
    return Request(fields, document.places)


def _document(source: bytes, *, as_json: bool) -> Document | None:
    """Return the fields of a file; None if it does not read, which is for the reader of goals to report."""
    try:
        document = read_json(source, lenient_bom=True) if as_json else read_yaml(source)
    except Rejected:
        return None
    return document if isinstance(document.value, dict) else None


def _beside(value: Mapping[str, object]) -> Iterator[Problem]:
    for name in value:
        if name not in FIELDS + _ALSO:
            fix = f"a goal that uses another may have {', '.join(FIELDS)}; the rest is in that one"
            yield Problem(f"{name!r} cannot be beside 'uses'", fix, f"/{name}")


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

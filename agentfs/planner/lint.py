"""What is wrong with a plan that passes the check: mistakes planners make, that would waste a run. Pure.

A hard finding would fail or prove nothing, and must be fixed. A soft one is reported once, and may be intended.
Only what is still to be done is looked at; what is finished counts as being there.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfs.core.paths import inside
from agentfs.core.plan_graph import PlanGraph
from agentfs.core.problems import Problem
from agentfs.core.records import CommandCheck, FileCheck, OutputCheck, Plan, Step
from agentfs.core.references import find, in_step, is_whole, texts_of
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.lint_texts import always_true, proves_nothing, wrong_references
from agentfs.planner.prompt import Surroundings

TEXT, NUMBER = "text", "a number"
SHAPES: dict[str, Any] = {  # what the outputs of the tools are made of, where that is fixed
    "read_file": TEXT,
    "note": TEXT,
    "ask": TEXT,
    "summarize": TEXT,
    "write_file": {"path": TEXT, "bytes": NUMBER},
    "edit_file": {"path": TEXT},
    "list_files": [TEXT],
    "search_files": [{"path": TEXT, "line": NUMBER, "text": TEXT}],
    "web_search": [{"title": TEXT, "url": TEXT, "snippet": TEXT}],
}


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One thing that is wrong, and whether it has to be put right."""

    problem: Problem
    hard: bool = True


@dataclass(frozen=True, slots=True)
class Linted:
    """A plan that has passed the check, and all there is to know about it."""

    graph: PlanGraph
    new: tuple[str, ...]  # the steps to look at
    catalogue: Catalogue
    around: Surroundings
    _before: dict[str, int] = field(default_factory=dict)

    def at(self, step: str, pointer: str = "") -> str:
        return f"/steps/{self.graph.place[step]}{pointer}"

    def before(self, step: str) -> int:
        """Return every step that this one comes after, as a set of bits: of thousands nothing else is small."""
        if not self._before:
            for one in self.graph.order:
                needs = self.graph.needs[one]
                self._before[one] = _join((self.bits(needs), *(self._before[need] for need in needs)))
        return self._before[step]

    def bits(self, steps: Iterable[str]) -> int:
        """Return steps as a set of bits."""
        return _join(1 << self.graph.rank[step] for step in steps)


def _join(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────


_PRINTS = re.compile(r"print|stdout|write|subprocess|system|popen|exec|run\(|main\(", re.IGNORECASE)
# One pipeline, and all that it prints goes into a file.
_PRINTS_INTO = re.compile(r"\A[^;&\n>]*[^;&\n>0-9\\]>>?\s*(?!/dev/std)([\w./-]+)\s*\Z")
_FINDS = frozenset(("read_file", "list_files", "search_files", "http_get", "web_search", "summarize", "ask"))


def lint(
    plan: Plan,
    finished: Collection[str],
    catalogue: Catalogue,
    around: Surroundings,
    *,
    stepwise: bool = False,
    check_stop: Callable[[], None] = lambda: None,
) -> list[LintFinding]:
    """Return every finding, in the order of the plan, which has passed the check. `finished`: not to be looked at.

    `stepwise`: the planner reads every result itself before it decides, so none goes unused.
    `check_stop` is called often, and raises to end it.
    """
    graph = PlanGraph.of(plan)
    subject = Linted(graph, tuple(step for step in graph.listed if step not in finished), catalogue, around)
    rules = [
        _conditions,
        _tools,
        placeholders,
        paths_into_outputs,
        impossible_outputs,
        _silent,
        _find_spelled_out,
        find_misplaced,
        never_started,
        overwritten,
    ]
    found: list[LintFinding] = []
    for rule in (*rules, *(() if stepwise else (_find_unused,))):
        check_stop()
        found += rule(subject)
    return sorted(found, key=lambda finding: int(finding.problem.pointer.split("/")[2]))


def _conditions(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step, pointer = subject.graph.steps[name], subject.at(name, "/success_condition")
        words, rests_on_words = step.success_condition, step.tool is None and not step.checks
        fix = "say what is true of the files or the output when it succeeded, so that it can be checked"
        if not words or not words.strip():
            yield LintFinding(Problem(f"the step {name!r} has no success_condition", fix, pointer))
        elif proves_nothing(words):
            message = f"the success_condition {words!r} is true of any step: it proves nothing"
            yield LintFinding(Problem(message, fix, pointer), hard=rests_on_words)
        for place, check in enumerate(step.checks or ()):
            if isinstance(check, CommandCheck) and always_true(check.run):
                message = f"the check {check.run!r} always holds: it proves nothing"
                yield LintFinding(
                    Problem(message, "look at what the step made", subject.at(name, f"/checks/{place}/run"))
                )


def _tools(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step = subject.graph.steps[name]
        by_agent = step.agent is not None or subject.catalogue.agent is not None
        if step.tool is None and step.tools is None and not by_agent:
            message = f"the step {name!r} has no tool, and names no 'tools' for the model that does it"
            fix = "name a tool, or list in 'tools' what the model may use ([] if it needs none)"
            yield LintFinding(Problem(message, fix, subject.at(name, "/tools")))


def _silent(subject: Linted) -> Iterator[LintFinding]:
    """A program's output is what it prints: a step that another refers to has to print something."""
    referred = {name for names in subject.graph.refers.values() for name in names}
    for name in subject.new:
        step = subject.graph.steps[name]
        code, command = ((step.input or {}).get(field) for field in ("code", "command"))
        if name not in referred:
            continue
        if step.tool == "python" and isinstance(code, str) and not _PRINTS.search(code):
            message = f"the code of {name!r} prints nothing, so its output is empty, and another step uses it"
            finding = Problem(message, "print what is wanted: print(…)", subject.at(name, "/input/code"))
            yield LintFinding(finding, hard="import" not in code)
        elif step.tool == "shell" and isinstance(command, str) and (into := _PRINTS_INTO.match(command)):
            message = (
                f"all that {name!r} prints goes into {into[1]}, so its output is empty, and another step uses it"
            )
            fix = f"use {into[1]} there, or leave that step out if the file is all that is wanted"
            yield LintFinding(Problem(message, fix, subject.at(name, "/input/command")))


def _find_spelled_out(subject: Linted) -> Iterator[LintFinding]:
    """A value of the run's parameters that is written out: the plan could not be used with another."""
    values = {name: one for name, one in subject.catalogue.params.values.items() if _is_telling(one)}
    if not values:
        return
    for name in subject.new:
        for pointer, text in texts_of(subject.graph.steps[name]):
            for param, value in values.items():
                if re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w.-])", text):
                    message = f"{str(value)!r} is the value of the parameter {param!r}, written out"
                    fix = (
                        f"write {{{{params.{param}}}}} in its place, so that the plan can be used with another value"
                    )
                    yield LintFinding(Problem(message, fix, subject.at(name, pointer)), hard=False)


def _is_telling(value: object) -> bool:
    """Whether a value is hardly in a text by chance."""
    return isinstance(value, str) and len(value) >= SHORTEST_VALUE and not value.isspace()


SHORTEST_VALUE = 4  # characters of a parameter's value that is looked for in a plan


def _find_unused(subject: Linted) -> Iterator[LintFinding]:
    """A step that only finds something out is of use to those who refer to it, or as the answer of the run."""
    referred = {name for names in subject.graph.refers.values() for name in names}
    leaves = subject.graph.leaves
    for name in subject.new:
        step = subject.graph.steps[name]
        is_end = name in leaves and (name == leaves[-1] or bool(step.checks))  # the answer of the run, or a last look
        if step.tool not in _FINDS or name in referred or is_end or step.expects is not None:
            continue
        message = f"nobody uses the output of {name!r}: no later step refers to it"
        fix = f"write {{{{steps.{name}.output}}}} where it is needed, or leave the step out"
        yield LintFinding(Problem(message, fix, subject.at(name)), hard=False)


# ── files that the steps name ────────────────────────────────────────────────────────────────────────────


_FILE_TOOLS = frozenset(("read_file", "write_file", "edit_file", "list_files", "search_files"))
_READS = frozenset(("read_file", "list_files", "search_files", "check"))
_NEAR = 8  # writers of one file before a step that it is compared with
_WRITES = re.compile(r"(?<![0-9&<>-])>>?\s*([A-Za-z0-9_][\w./-]*)")  # the target of a redirection, if it is plain


def find_misplaced(subject: Linted) -> Iterator[LintFinding]:
    makers = _Deeds.of(subject, _files_made)
    for name in subject.new:
        step = subject.graph.steps[name]
        for pointer, path, what in _paths(step):
            if problem := _why_misplaced(path, what, subject.around):
                yield LintFinding(Problem(*problem, subject.at(name, pointer)))
            elif what == "read_file" and _is_missing(path, step, subject, makers):
                message = f"there is no {path!r} in the working folder, and no earlier step makes it"
                fix = "name a file of the listing, or make it first"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)), hard=False)


def _paths(step: Step) -> Iterator[tuple[str, str, str]]:
    """Yield every path a step names, with its pointer and what is done with it; none that holds a reference."""
    path = (step.input or {}).get("path")
    if step.tool in _FILE_TOOLS and isinstance(path, str) and not find(path):
        yield "/input/path", path, step.tool
    for place, check in enumerate(step.checks or ()):
        if isinstance(check, FileCheck) and not find(check.path):
            yield f"/checks/{place}/path", check.path, "check"


def _why_misplaced(path: str, what: str, around: Surroundings) -> tuple[str, str] | None:
    fix = "name it relative to the working folder"
    if path.startswith("~"):
        return f"{path!r}: ~ means nothing here", fix
    allowed = (around.workdir, *(around.readable if what in _READS else ()))
    if not any(inside(_absolute(path, around), folder) for folder in allowed):
        return f"{path!r} lies outside the working folder", fix
    inner = _normal(path, around)
    is_folder = path.endswith("/") or inner == "" or inner in around.folders
    if is_folder and what in ("read_file", "write_file", "edit_file"):
        return f"{path!r} is a folder, and {what} takes a file", "name a file; list_files lists a folder"
    if what == "list_files" and inner in around.files:
        return f"{path!r} is a file, and list_files takes a folder", "name its folder, or use read_file"
    return None


def _absolute(path: str, around: Surroundings) -> str:
    """Return a path from the root, without `.` and `..`."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{around.workdir}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _normal(path: str, around: Surroundings) -> str:
    """Return a path in one spelling: relative to the working folder if it lies there."""
    whole = _absolute(path, around)
    return whole.removeprefix(around.workdir.rstrip("/")).lstrip("/") if inside(whole, around.workdir) else whole


@dataclass(frozen=True, slots=True)
class _Deeds:
    """Which steps may have to do with which file, as sets of bits."""

    anything: int  # steps of which nothing is known
    by_path: dict[str, int]

    @staticmethod
    def of(subject: Linted, paths: Callable[[Step], Iterable[str] | None]) -> "_Deeds":
        """Ask each step for its files; None: they may be any."""
        unknown: list[str] = []
        known: dict[str, list[str]] = {}
        for name, step in subject.graph.steps.items():
            if (found := paths(step)) is None:
                unknown.append(name)
            for path in found or ():
                known.setdefault(_normal(path, subject.around), []).append(name)
        return _Deeds(subject.bits(unknown), {path: subject.bits(names) for path, names in known.items()})

    def with_file(self, path: str) -> int:
        return self.anything | self.by_path.get(path, 0)


def _files_made(step: Step) -> list[str] | None:
    if step.tool in ("write_file", "edit_file"):
        path = (step.input or {}).get("path")
        return [path] if isinstance(path, str) and not find(path) else None
    return [] if step.tool in SHAPES else None


def _read(step: Step) -> list[str] | None:
    return [path for _, path, what in _paths(step) if what == "read_file"] if step.tool in SHAPES else None


def _is_missing(path: str, step: Step, subject: Linted, makers: _Deeds) -> bool:
    """Whether a file cannot be there: all files are known, and nothing that could make it comes before."""
    inner = _normal(path, subject.around)
    if not subject.around.complete or inner in subject.around.files or inner.startswith("/"):
        return False
    return not subject.before(step.id) & makers.with_file(inner)


def never_started(subject: Linted) -> Iterator[LintFinding]:
    """Yield steps whose `when` looks at a file that cannot be there: surely a mistake where no other step is left."""
    makers = _Deeds.of(subject, _files_made)
    paths = {name: step.when.path for name, step in subject.graph.steps.items() if isinstance(step.when, FileCheck)}
    never = [
        name
        for name in subject.new
        if name in paths
        and not find(paths[name])
        and _is_missing(paths[name], subject.graph.steps[name], subject, makers)
    ]
    for name in never:
        message = f"its `when` looks at {paths[name]!r}, which is not there before {name!r}: it would be skipped"
        problem = Problem(message, "leave `when` out", subject.at(name, "/when"))
        yield LintFinding(problem, hard=len(never) == len(subject.new))


# ── two steps, one file ───────────────────────────────────────────────────────────────────────────────────


def overwritten(subject: Linted) -> Iterator[LintFinding]:
    """Two steps that write one file: at the same time, or the second over the first."""
    writers: dict[str, list[str]] = {}
    for name in subject.graph.listed:
        for path in _files_written(subject.graph.steps[name], subject.around):
            writers.setdefault(path, []).append(name)
    new, readers = frozenset(subject.new), _Deeds.of(subject, _read)
    for path, names in writers.items():
        for place, second in enumerate(names):
            for first in names[max(place - _NEAR, 0) : place] if second in new else ():
                if finding := _clash(subject, path, first, second, readers.with_file(path)):
                    yield finding


def _files_written(step: Step, around: Surroundings) -> list[str]:
    given = step.input or {}
    path, command = given.get("path"), given.get("command")
    if step.tool in ("write_file", "edit_file") and isinstance(path, str) and not find(path):
        return [_normal(path, around)]
    if step.tool == "shell" and isinstance(command, str):
        return sorted({_normal(one, around) for one in _WRITES.findall(command)})
    return []


def _clash(subject: Linted, path: str, first: str, second: str, readers: int) -> LintFinding | None:
    one, other = subject.graph.steps[first], subject.graph.steps[second]
    pointer = subject.at(second, "/input")
    if not subject.before(second) & subject.bits((first,)) and not subject.before(first) & subject.bits((second,)):
        message = f"{first!r} and {second!r} may run at the same time, and both write {path!r}"
        fix = f"add {first!r} to the depends_on of {second!r}, or write two files"
        return LintFinding(Problem(message, fix, pointer), hard="shell" not in (one.tool, other.tool))
    whole = other.tool == "write_file" and one.tool in ("write_file", "edit_file")
    if whole and not subject.before(second) & readers:
        message = f"{second!r} writes {path!r} whole: what {first!r} wrote there is lost"
        return LintFinding(
            Problem(message, "write it once, with everything in it, or use edit_file", pointer), hard=False
        )
    return None


# ── references that pass the check and still cannot resolve ──────────────────────────────────────────────


def placeholders(subject: Linted) -> Iterator[LintFinding]:
    ids = frozenset(subject.graph.steps)
    for name in subject.new:
        step = subject.graph.steps[name]
        for pointer, text in texts_of(step):
            for written in wrong_references(text, ids, name, code=_is_code(step, pointer)):
                fix = "write {{steps.ID.output}} with the id of the step whose output is meant"
                message = f"{_short(written)} would reach the tool as it is: it is not a reference"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))
        if step.tool is None:
            yield from _find_unfilled_words(subject, step, ids)


def _find_unfilled_words(subject: Linted, step: Step, ids: frozenset[str]) -> Iterator[LintFinding]:
    """A model that does a step reads its description as it is: references are filled in `input` only."""
    for field_name in ("description", "success_condition"):
        words = getattr(step, field_name) or ""
        written = [words[one.start : one.end] for one in find(words) if one.step]
        written += wrong_references(words, ids, step.id, code=False)
        for one in written:
            message = f"{_short(one)} is not filled in here: only 'input', 'when', 'needs' and 'checks' are"
            fix = 'put it into "input": {"material": "{{steps.ID.output}}"}, and say in words what to do with it'
            yield LintFinding(Problem(message, fix, subject.at(step.id, f"/{field_name}")))


def _is_code(step: Step, pointer: str) -> bool:
    return pointer.endswith("/run") or (step.tool, pointer) in (
        ("shell", "/input/command"),
        ("python", "/input/code"),
    )


def paths_into_outputs(subject: Linted) -> Iterator[LintFinding]:
    for name in subject.new:
        step = subject.graph.steps[name]
        texts = dict(texts_of(step))
        for pointer, reference in in_step(step):
            source = subject.graph.steps.get(reference.step or "")
            if source is None or reference.kind != "output" or source.tool not in SHAPES:
                continue
            written = texts[pointer][reference.start : reference.end]
            shape = _inside(SHAPES[source.tool], reference.path)
            if isinstance(shape, _Nowhere):
                message = f"{written} leads nowhere: the output of {source.tool} is {shape.described}"
                fix = f"write {{{{steps.{source.id}.output}}}}, or take the part out in a step of its own"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))
            elif isinstance(shape, list | dict) and is_whole(texts[pointer]) and _wants_text(subject, step, pointer):
                message = f"{written} is {_describe(shape)}, and text is wanted here"
                fix = f"put words around it: 'Found: {written}', or make it text in a step of its own"
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))


def impossible_outputs(subject: Linted) -> Iterator[LintFinding]:
    """Yield what is asked of an output that a tool can never give: a program prints no number, only its digits."""
    for name in subject.new:
        step = subject.graph.steps[name]
        gives = _gives(step.tool)
        for pointer, schema in _output_schemas(step):
            wanted = schema.get("type") if isinstance(schema, dict) else None
            if gives and isinstance(wanted, str) and wanted not in gives:
                message = f"the output of {step.tool} is {' or '.join(gives)}, never {wanted!r}: this cannot hold"
                fix = 'ask for what it is: {"type": "string", "pattern": "^[0-9]+$"} for the digits of a number'
                yield LintFinding(Problem(message, fix, subject.at(name, pointer)))


def _output_schemas(step: Step) -> Iterator[tuple[str, Any]]:
    yield "/expects/type", step.expects
    for place, check in enumerate(step.checks or ()):
        if isinstance(check, OutputCheck):
            yield f"/checks/{place}/schema/type", check.schema_


def _gives(tool: str | None) -> tuple[str, ...]:
    """Return the types, as JSON Schema names them, of what a tool gives back; () where anything may come."""
    if tool in ("shell", "python"):
        return ("string", "array", "object")
    shape = SHAPES.get(tool or "")
    kinds = (("array", list), ("object", dict), ("string", str))
    return tuple(name for name, kind in kinds if isinstance(shape, kind))


@dataclass(frozen=True, slots=True)
class _Nowhere:
    described: str


def _inside(shape: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(shape, list) and part.isdigit():
            shape = shape[0]
        elif isinstance(shape, dict) and part in shape:
            shape = shape[part]
        else:
            return _Nowhere(_describe(shape))
    return shape


def _describe(shape: Any) -> str:
    if isinstance(shape, list):
        return "a list, counted from 0"
    return f"an object with {', '.join(shape)}" if isinstance(shape, dict) else str(shape)


def _wants_text(subject: Linted, step: Step, pointer: str) -> bool:
    """Whether the place of a text is a field of the tool's input that takes text only."""
    spec = subject.catalogue.tools.get(step.tool or "")
    fields: Mapping[str, Any] = spec.input_schema.get("properties", {}) if spec else {}
    name = pointer.removeprefix("/input/")
    return bool(fields.get(name, {}).get("type") == "string") and not _is_code(step, pointer)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"

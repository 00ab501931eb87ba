"""What the fences of a runbook's step mean: the tool, its input, or what is expected of its output. Pure.

    sh, bash        `shell` with that interpreter; the body is the command
    python          the body is the code
    http            the body is an address, or GET and an address
    a tool's name   the body is its input as JSON or YAML, or the text of its one required field
    json expects    the JSON Schema of an unsurprising output

A step calls one tool: it has one fence, and perhaps a `json expects`.
"""

from dataclasses import replace
from typing import Any

from agentfs.core.documents import Document, read_json, read_yaml
from agentfs.core.markdown import Fence
from agentfs.core.problems import Problem, Rejected, moved
from agentfs.core.step_lines import Draft
from agentfs.core.tool_spec import Catalogue, ToolSpec

_PROGRAMS = {"sh": ("shell", "command"), "bash": ("shell", "command"), "python": ("python", "code")}


def read_fence(draft: Draft, fence: Fence, catalogue: Catalogue) -> None:
    """Take a fence into the step."""
    words = fence.words.split()
    place = (fence.line, fence.column)
    close = "end it with a line of the same marks"
    if not fence.closed:
        draft.refuse(place, "this fence is never closed", close, "/input")
    elif fence.reopened:
        message = f"this fence is not closed before line {fence.reopened} begins another"
        draft.slips.append(Problem(message, close, "/input").at(*place))
    if not words:
        fix = "write sh, bash, python, http or a tool's name behind it"
        draft.refuse(place, "this fence names no tool", fix, "/tool")
    elif words[0] == "json":
        _expects(draft, fence, words)
    elif "tool" in draft.fields:
        draft.refuse(
            place, f"the step {draft.id!r} has a second fence", "one step calls one tool: make two steps", "/tool"
        )
    else:
        _call(draft, fence, words[0], catalogue)


def _call(draft: Draft, fence: Fence, word: str, catalogue: Catalogue) -> None:
    place = (fence.line, fence.column)
    if word in _PROGRAMS:
        tool, name = _PROGRAMS[word]
        draft.put("tool", tool, place)
        _fill(draft, fence, {name: fence.body} | ({"interpreter": "bash"} if word == "bash" else {}))
    elif word == "http":
        draft.put("tool", "http_get", place)
        _http(draft, fence)
    else:
        draft.put("tool", word, place)
        _tool_input(draft, fence, catalogue.tools.get(word))


def _fill(draft: Draft, fence: Fence, given: dict[str, Any]) -> None:
    """Set an input whose first field is the fence's body."""
    body = (fence.line + 1, fence.indent + 1)
    draft.put("input", given, body)
    if not fence.body.strip():
        fix = "write between its marks what is to be done"
        draft.refuse((fence.line, fence.column), "this fence is empty", fix, "/input")


def _http(draft: Draft, fence: Fence) -> None:
    words = fence.body.split()
    if len(words) == 2 and words[0].upper() == "GET":
        words = words[1:]
    _fill(draft, fence, {"url": words[0] if words else ""})
    if len(words) > 1:
        where, fix = (fence.line + 1, fence.indent + 1), "write GET and the address, or only the address"
        draft.refuse(where, "an http fence holds one address to get", fix, "/input/url")


def _tool_input(draft: Draft, fence: Fence, spec: ToolSpec | None) -> None:
    """Set a tool's input from a body that holds its fields, or the text of the one that is required."""
    text_field = spec.text_field if spec else None
    try:
        document = _embedded(fence, as_json=_is_json(fence.body))
    except Rejected as rejected:
        if text_field and not _is_json(fence.body):
            _fill(draft, fence, {text_field: fence.body})
        elif spec:
            draft.problems.extend(_inside("/input", rejected))
            draft.places.marks["/input"] = (rejected.problems[0].line, rejected.problems[0].column)
        return
    if isinstance(document.value, dict) and _means_fields(document.value, fence.body, spec):
        draft.put("input", document.value, (fence.line + 1, fence.indent + 1))
        draft.places.inside["/input"] = document.places
    elif text_field:
        _fill(draft, fence, {text_field: fence.body})
    elif spec:
        where = draft.places.marks["/input"] = (fence.line + 1, fence.indent + 1)
        fix = f"write them as name: value; {_fields(spec)}"
        draft.refuse(where, f"the tool {spec.name!r} wants fields", fix, "/input")


def _is_json(body: str) -> bool:
    start = body.lstrip()
    return start.startswith("{") and not start.startswith("{{")  # `{{steps.a.output}}` is text


def _means_fields(value: dict[str, Any], body: str, spec: ToolSpec | None) -> bool:
    """Tell fields from prose such as `Remember: the keys`, which reads as YAML too."""
    if spec is None or spec.text_field is None or _is_json(body):
        return True
    return all(key in spec.input_schema.get("properties", {}) for key in value)


def _fields(spec: ToolSpec) -> str:
    return "it has " + ", ".join(spec.input_schema.get("properties", {}))


def _expects(draft: Draft, fence: Fence, words: list[str]) -> None:
    place = (fence.line, fence.column)
    if words[1:] != ["expects"]:
        draft.refuse(
            place, "a json fence must say what it is for", "write json expects, or a tool's name", "/expects"
        )
        return
    if "expects" in draft.fields:
        draft.refuse(place, f"the step {draft.id!r} has 'json expects' twice", "keep one of them", "/expects")
        return
    try:
        document = _embedded(fence, as_json=True)
    except Rejected as rejected:
        draft.problems.extend(_inside("/expects", rejected))
        return
    draft.put("expects", document.value, (fence.line + 1, fence.indent + 1))
    draft.places.inside["/expects"] = document.places


def _embedded(fence: Fence, *, as_json: bool) -> Document:
    """Return the body as a document whose places are those in the goal file."""
    body = fence.body.encode()
    try:
        document = read_json(body) if as_json else read_yaml(body)
    except Rejected as rejected:
        raise Rejected([_moved(problem, fence) for problem in rejected.problems]) from None
    return Document(document.value, moved(document.places, fence.line, fence.indent))


def _inside(pointer: str, rejected: Rejected) -> list[Problem]:
    return [replace(problem, pointer=pointer + problem.pointer) for problem in rejected.problems]


def _moved(problem: Problem, fence: Fence) -> Problem:
    return problem.at(problem.line + fence.line, problem.column + fence.indent)

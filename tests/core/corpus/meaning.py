"""Documents of the right shape that are, or are not, a plan that can run."""

from tests.core.corpus.case import FULL, Case, a_plan, a_step, case, of_check, of_step


def _schema(name: str, schema: object, says: str | None = None) -> Case:
    return of_check(name, {"kind": "output", "schema": schema}, says)


def _picky(**given: object) -> dict[str, object]:
    return {"tool": "picky", "input": {"count": 1, **given}}


MEANING = [
    # ids and dependencies
    case("a chain without depends_on", a_plan(a_step("a"), a_step("b"), a_step("c"))),
    case(
        "a diamond",
        a_plan(*(a_step(i, depends_on=list(d)) for i, d in (("a", ""), ("b", "a"), ("c", "a"), ("d", "bc")))),
    ),
    case("a dependency on a later step", a_plan(a_step("a", depends_on=["b"]), a_step("b", depends_on=[]))),
    case("the same dependency twice", a_plan(a_step("a"), a_step("b", depends_on=["a", "a"]))),
    case("duplicate ids", a_plan(a_step("a"), a_step("a")), "the id 'a' is taken by step 1"),
    case("an unknown dependency", a_plan(a_step("copy"), a_step("b", depends_on=["cpy"])), "there is no step 'cpy'"),
    case("a dependency on itself", a_plan(a_step("a", depends_on=["a"])), "the step 'a' depends on itself"),
    case(
        "two steps that wait for each other",
        a_plan(a_step("a", depends_on=["b"]), a_step("b", depends_on=["a"])),
        "a -> b -> a",
    ),
    case(
        "three steps in a circle, with more behind them",
        a_plan(*(a_step(i, depends_on=[d]) for i, d in (("z", "a"), ("a", "b"), ("b", "c"), ("c", "a")))),
        "a -> b -> c -> a",
    ),
    case(
        "a circle through the implicit order",
        a_plan(a_step("a", depends_on=["b"]), a_step("b")),
        "a -> b -> a",
    ),
    case(
        "a circle through a reference",
        a_plan(a_step("a", input={"text": "{{steps.b.output}}"}), a_step("b")),
        "a -> b -> a",
    ),
    # references
    case("a reference", a_plan(a_step("a"), a_step("b", input={"text": "{{steps.a.output}}"}))),
    case("a reference into an output", a_plan(a_step("a"), a_step("b", input={"text": "{{steps.a.output.x.0}}"}))),
    case("a reference to a file", a_plan(a_step("a"), a_step("b", input={"text": "see {{steps.a.file}}"}))),
    case("a reference to the goal", a_plan(a_step("a", input={"text": "{{goal}}"}))),
    case("other braces", a_plan(a_step("a", input={"text": "{{ x }} {} ${y} {{{}}}"}))),
    case(
        "a reference to an unknown step",
        a_plan(a_step("a"), a_step("b", input={"text": "{{steps.zz.output}}"})),
        "refers to a step that is not in the plan",
    ),
    case("a reference to itself", a_plan(a_step("a", input={"text": "{{steps.a.output}}"})), "refers to the step"),
    case(
        "a reference in single quotes",
        a_plan(a_step("a"), a_step("b", tool="shell", input={"command": "echo '{{steps.a.output}}'"})),
        "{{steps.a.output}}",
    ),
    case(
        "a reference in a check",
        a_plan(a_step("a"), a_step("b", checks=[{"kind": "command", "run": "test {{steps.a.output}} = 1"}])),
    ),
    case(
        "an unknown reference in needs",
        a_plan(a_step("a", needs=[{"kind": "command", "run": "test {{steps.zz.output}} = 1"}])),
        "refers to a step that is not in the plan",
    ),
    # tools
    of_step("an unknown tool", {"tool": "noet"}, "there is no tool 'noet'"),
    of_step("a tool in capitals", {"tool": "Note"}, "there is no tool 'Note'"),
    of_step("a tool like nothing there is", {"tool": "fax"}, "there is no tool 'fax'"),
    of_step(
        "a tool that is not allowed", {"tool": "edit_file", "input": {"path": "x"}}, "is not allowed in this run"
    ),
    of_step("a network tool, no network", {"tool": "http_get", "input": {"url": "x"}}, "needs the network"),
    of_step("a network tool, network", {"tool": "http_get", "input": {"url": "x"}}, None, FULL),
    of_step("a tool that needs a model, no model", {"tool": "summarize"}, "needs a model"),
    of_step("tool and model", {"model": "m"}, "'model' means nothing beside 'tool'", FULL),
    of_step("tool and tools", {"tools": ["note"]}, "'tools' means nothing beside 'tool'", FULL),
    case("no tool, no model", a_plan({"id": "a"}), "names no tool, and there is no model"),
    case("no tool, a model", a_plan({"id": "a", "tools": ["note"], "model": "m"}), None, FULL),
    case("no tool, an unknown one in tools", a_plan({"id": "a", "tools": ["noet"]}), "there is no tool 'noet'", FULL),
    case("no tool, one not allowed in tools", a_plan({"id": "a", "tools": ["edit_file"]}), "is not allowed", FULL),
    case("a step left out needs no tool", a_plan({"id": "a", "skip": "later"})),
    case("a step left out may name a strange tool", a_plan({"id": "a", "tool": "fax", "skip": "no fax"})),
    case("a step left out is still a step", a_plan({"id": "a", "skip": "x", "depends_on": ["b"]}), "no step 'b'"),
    # inputs
    of_step("no input where one is needed", {"input": None}, "the field 'text' is missing"),
    of_step("an unknown field of an input", {"input": {"text": "x", "txt": 1}}, "unknown field 'txt'"),
    of_step("an input of the wrong type", {"input": {"text": 5}}, "'text' must be text, not a number"),
    of_step("null in an input", {"input": {"text": None}}, "'text' must be text, not null"),
    of_step("a good picky input", _picky(ratio=0.5, size="small", code="ABC", names=["a"], either=["x"])),
    of_step("an input too small", _picky(count=0), "'count' must be at least 1"),
    of_step("an input too large", _picky(count=10), "'count' must be at most 9"),
    of_step("an input at an open bound", _picky(ratio=1), "'ratio' must be less than 1"),
    of_step("an input that is 1.0", _picky(count=1.0), "'count' must be a whole number, not 1.0"),
    of_step("an input that is none of a few", _picky(size="smal"), "'size' must be small or large"),
    of_step("an input that does not match", _picky(code="abc"), "'code'"),
    of_step("an input with too many", _picky(names=["a", "b", "c"]), "'names'"),
    of_step("an input with a wrong one inside", _picky(names=["a", 1]), "'names[1]' must be text"),
    of_step("an input of neither type", _picky(either=1), "'either' must be text or a list […]"),
    of_step("an input wrong in the branch meant", _picky(either=[1]), "'either[0]' must be text"),
    of_step("an input of no form", _picky(shape={}), "'shape'"),
    case(
        "a reference has any type",
        a_plan(a_step("a"), a_step("b", tool="picky", input={"count": "{{steps.a.output}}", "size": "{{goal}}"})),
    ),
    case(
        "a text with a reference is text",
        a_plan(a_step("a"), a_step("b", tool="picky", input={"count": "n {{steps.a.output}}"})),
        "'count' must be a whole number, not text",
    ),
    case(
        "a text with a reference may come to match",
        a_plan(a_step("a"), a_step("b", tool="picky", input={"count": 1, "code": "A{{steps.a.output}}"})),
    ),
    of_step("a NUL in an input", {"input": {"text": "a\0b"}}, "U+0000"),
    of_step("a NUL deep in an input", {"tool": "summarize", "input": {"x": [{"y": "\0"}]}}, "U+0000", FULL),
    of_check("a NUL in a check", {"kind": "command", "run": "a\0b"}, "U+0000"),
    # checks
    of_check("http, no network", {"kind": "http", "url": "http://x"}, "an http check needs the network"),
    of_check("http, network", {"kind": "http", "url": "http://x"}, None, FULL),
    of_check("judge, no model", {"kind": "judge", "condition": "nice"}, "a judge check needs a model"),
    of_check("judge, a model", {"kind": "judge", "condition": "nice"}, None, FULL),
    of_step("needs of an output", {"needs": [{"kind": "output", "schema": {}}]}, "nothing to look at before"),
    of_step("needs a judge", {"needs": [{"kind": "judge", "condition": "c"}]}, "nothing to look at before", FULL),
    of_step("needs that need the network", {"needs": [{"kind": "http", "url": "u"}]}, "an http check needs"),
    of_check("a regular expression", {"kind": "file", "path": "p", "matches": "^[a-z]+(\\d|x)*$"}),
    of_check("an odd one", {"kind": "file", "path": "p", "matches": "[[a]"}),
    of_check("one never closed", {"kind": "file", "path": "p", "matches": "(a"}, "not a regular expression"),
    of_check("one that repeats nothing", {"kind": "file", "path": "p", "matches": "*a"}, "not a regular expression"),
    of_check(
        "one of another dialect", {"kind": "file", "path": "p", "matches": "\\p{L}"}, "not a regular expression"
    ),
    of_check("one too long", {"kind": "file", "path": "p", "matches": "a" * 1001}, "longer than 1000"),
    of_check("one too large", {"kind": "file", "path": "p", "matches": "a{99999999999}"}, "too large"),
    # JSON Schemas
    _schema("a schema with its parts", {"$defs": {"x": {"type": "string"}}, "$ref": "#/$defs/x"}),
    _schema("a schema with an anchor", {"$defs": {"x": {"$anchor": "here"}}, "items": {"$ref": "#here"}}),
    _schema("a schema that is a tree", {"type": "array", "items": {"$ref": "#"}}),
    _schema("a schema with an address", {"$id": "urn:x", "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": True}}),
    _schema("a reference through a list", {"allOf": [True, {"$ref": "#/allOf/0"}]}),
    _schema("properties called like keywords", {"properties": {"$ref": True, "pattern": {}, "$id": {}}}),
    _schema("an unknown type", {"type": "strng"}, "not a JSON Schema: 'type' must be"),
    _schema("properties that are a list", {"properties": []}, "not a JSON Schema: 'properties' must be an object"),
    _schema("a minimum in quotes", {"minimum": "1"}, "not a JSON Schema: 'minimum' must be a number"),
    _schema("a schema inside that is text", {"items": "string"}, "not a JSON Schema: 'items'"),
    _schema("a length below zero", {"minLength": -1}, "not a JSON Schema: 'minLength' must be at least 0"),
    _schema("a pattern that does not compile", {"pattern": "("}, "not a regular expression"),
    _schema("a pattern of names that does not", {"patternProperties": {"(": {}}}, "not a regular expression"),
    _schema("a remote reference", {"$ref": "https://example.com/x.json"}, "refers to another document"),
    _schema("a schema in a file beside it", {"items": {"$ref": "x.json"}}, "refers to another document"),
    _schema("a dynamic remote reference", {"$dynamicRef": "https://x/y#z"}, "refers to another document"),
    _schema("a reference to nothing", {"$ref": "#/$defs/x"}, "the schema has nothing at '#/$defs/x'"),
    _schema("a reference past a list", {"allOf": [{"$ref": "#/allOf/7"}]}, "the schema has nothing at"),
    _schema("an anchor that is not there", {"anyOf": [{"$ref": "#here"}]}, "the schema has nothing at '#here'"),
    _schema("an address inside", {"items": {"$id": "urn:x"}}, "an $id inside a schema"),
    _schema("a schema that never ends", {"$ref": "#"}, "refers to itself without end"),
    _schema("one that never ends in a choice", {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "itself without end"),
    _schema(
        "one that never ends by name",
        {"not": {"$ref": "#a"}, "$defs": {"x": {"$anchor": "a", "if": {"$ref": "#/$defs/y"}}, "y": {"$ref": "#a"}}},
        "itself without end",
    ),
    _schema("one that ends though it is deep in itself", {"properties": {"a": {"allOf": [{"$ref": "#"}]}}}),
    _schema(
        "references that double, which are never followed here",
        {"$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": True}},
    ),
    _schema("a schema of many parts", {"anyOf": [{}] * 2000}, "the schema has more than 2000 parts"),
    case(
        "many large schemas",
        a_plan(*(a_step(f"s{n}", expects={"anyOf": [{"const": n}, *[{"enum": []}] * 900]}) for n in range(4))),
        "the schemas before this one are too large already",
    ),
    _schema("a schema too large", {"enum": ["x" * 70_000]}, "the schema is larger than 64 KiB"),
    of_step("expects that is no schema", {"expects": {"type": 5}}, "not a JSON Schema: 'type'"),
    of_step("expects that points elsewhere", {"expects": {"$ref": "http://x"}}, "refers to another document"),
    # several at once
    case(
        "a broken step does not hide another's mistakes",
        a_plan({"id": "a", "tol": 1}, a_step("b", tool="noet", depends_on=["a"])),
        "there is no tool 'noet'",
    ),
]

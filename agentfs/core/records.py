"""Everything that is written to disk, as frozen, closed, strict records. Pure: reads and writes nothing.

The JSON Schemas in `schemas/` are generated from these classes (`agentfs.core.schemas`); their descriptions
are written for the people who meet them in an editor.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
TIME_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"


def _whole(schema: dict[str, Any]) -> None:
    """Refuse a line break, which `$` alone lets through at the end in Python's dialect."""
    schema["not"] = {"pattern": "\\n"}


StepId = Annotated[str, Field(pattern=ID_PATTERN, json_schema_extra=_whole)]
Timestamp = Annotated[str, Field(pattern=TIME_PATTERN, description="RFC 3339, UTC, microseconds")]
Sha256 = Annotated[str, Field(pattern=SHA256_PATTERN)]
Counter = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
JsonObject = dict[str, JsonValue]

PlanStatus = Literal["draft", "paused", "approved", "cancelled"]
OnFailure = Literal["replan", "stop", "continue"]
ResultStatus = Literal["done", "failed", "blocked", "interrupted", "rejected"]
Verdict = Literal["plan", "keep", "finished", "impossible", "failed", "interrupted"]
Role = Literal["planner", "person", "runbook", "agentfs"]
Mode = Literal["auto", "split", "stepwise", "single", "scratchpad"]
Approve = Literal["never", "plan", "always"]
Sandbox = Literal["bubblewrap", "none"]
Trigger = Literal[
    "first",
    "goal_changed",
    "asked",
    "step_unreachable",
    "repeated_failure",
    "step_failed",
    "unexpected_state",
    "goal_checks_failed",
    "drift",
    "next_step",
    "every_step",
    "edited",
]
Reason = Literal[
    "steps_done", "replan_budget_exhausted", "step_failed", "impossible", "goal_checks_failed", "cancelled"
]


class Record(BaseModel):
    """Frozen: a fact does not change. Closed: an unknown field is a mistake. Strict: a type is what it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────


class CommandCheck(Record):
    """A command that must exit with 0, run in the working folder."""

    kind: Literal["command"]
    run: str = Field(min_length=1, description="Shell text; exit code 0 means the check holds")


class FileCheck(Record):
    """A file that must be there, and perhaps hold something."""

    kind: Literal["file"]
    path: str = Field(min_length=1, description="Relative to the working folder")
    contains: str | None = Field(None, description="Text that must stand in the file")
    matches: str | None = Field(None, description="A regular expression that must match somewhere in the file")
    min_bytes: Annotated[int, Field(ge=0)] | None = Field(None, description="The least size of the file")


class OutputCheck(Record):
    """A JSON Schema that the step's output must satisfy."""

    kind: Literal["output"]
    schema_: JsonObject | bool = Field(alias="schema", description="A JSON Schema (draft 2020-12)")


class HttpCheck(Record):
    """An address that must answer."""

    kind: Literal["http"]
    url: str = Field(min_length=1)
    status: Annotated[int, Field(ge=100, le=599)] | None = Field(None, description="The status to expect; 200")


class JudgeCheck(Record):
    """A condition in words that a model judges against the evidence."""

    kind: Literal["judge"]
    condition: str = Field(min_length=1)


Check = Annotated[CommandCheck | FileCheck | OutputCheck | HttpCheck | JudgeCheck, Field(discriminator="kind")]


class ResolvedCommandCheck(CommandCheck):
    """A command check whose references have become environment variables."""

    env: dict[str, str] | None = Field(None, description="The values of its references")


ResolvedCheck = Annotated[
    ResolvedCommandCheck | FileCheck | OutputCheck | HttpCheck | JudgeCheck, Field(discriminator="kind")
]


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────


class Limits(Record):
    """Bounds on one run; every one has a default in the settings."""

    replans: Annotated[int, Field(ge=0)] | None = Field(None, description="Calls after a failure or surprise")
    attempts: Counter | None = Field(None, description="Tries at one step before the planner is asked")
    parallel: Counter | None = Field(None, description="Attempts at once")
    steps: Counter | None = Field(None, description="Steps a stepwise run may have")
    requests: Annotated[int, Field(ge=0)] | None = Field(None, description="Requests to models")
    tokens: Annotated[int, Field(ge=0)] | None = Field(None, description="Tokens, in and out, over all models")
    cost_usd: Amount | None = Field(None, description="Money spent on models")
    minutes: Amount | None = Field(None, description="Time in which something ran; waiting is free")
    output_bytes: Annotated[int, Field(ge=256)] | None = Field(
        None, description="Output kept in a result; more goes to a file beside it"
    )


class Step(Record):
    """One unit of a plan."""

    id: StepId = Field(description="Stable across revisions: lower case letters, digits and -, at most 63")
    description: str | None = Field(None, description="What the step does, in a line")
    why: str | None = Field(None, description="Why the step is in the plan")
    tool: str | None = Field(None, min_length=1, description="The tool it calls; absent: a model does the step")
    input: JsonObject | None = Field(None, description="What the tool gets; may hold {{steps.ID.output}}")
    depends_on: tuple[StepId, ...] | None = Field(
        None, description="Ids of steps that come first; absent: the step before it; []: none"
    )
    success_condition: str | None = Field(None, description="When the step counts as done, in words")
    needs: tuple[Check, ...] | None = Field(None, description="Checks before it starts; one fails: blocked")
    checks: tuple[Check, ...] | None = Field(None, description="Checks after it; one fails: the step failed")
    expects: JsonObject | bool | None = Field(
        None, description="JSON Schema of an unsurprising output; violated: done, and surprising"
    )
    gate: bool | None = Field(None, description="true: a person approves the order before it exists")
    on_failure: OnFailure | None = Field(
        None, description="replan (default), stop (end the run) or continue (dependents run)"
    )
    timeout_s: Seconds | None = Field(None, description="Seconds before the attempt is killed; 600")
    max_attempts: Counter | None = Field(None, description="Tries before it counts as failed")
    repeatable: bool | None = Field(
        None, description="false: once done or cut off, it runs again only with a person's permission"
    )
    skip: str | None = Field(None, min_length=1, description="Why a person left it out")
    model: str | None = Field(None, min_length=1, description="Another model for this step (no tool)")
    tools: tuple[str, ...] | None = Field(None, description="The tools a model may use for this step (no tool)")


class Plan(Record):
    """The steps currently intended. Edit it at any time; a save is a revision."""

    schema_: str | None = Field(None, alias="$schema", description="Where editors find this schema")
    goal: str | None = Field(None, description="A title for people; never read back")
    status: PlanStatus = Field(
        description="The person's switch: draft or paused (nothing new starts), approved, cancelled"
    )
    limits: Limits | None = Field(None, description="Overrides for this run; a top-up is an edit here")
    steps: tuple[Step, ...] = Field(min_length=1)


# ── goal ──────────────────────────────────────────────────────────────────────────────────────────────────


class ModelChoice(Record):
    """What a goal may say of a model: which, and how warm."""

    model: str | None = Field(None, min_length=1)
    temperature: Amount | None = None


class Goal(Record):
    """A goal file: its front matter, or its fields when it is YAML or JSON."""

    name: str | None = Field(None, min_length=1, description="The run's name; default: the file's")
    mode: Mode | None = Field(None, description="How the run is driven")
    approve: Approve | None = Field(None, description="When a person must approve plans; may only tighten")
    workdir: str | None = Field(None, min_length=1, description="The folder to work in; default: the run's files/")
    context: str | tuple[str, ...] | None = Field(None, description="Text or paths for the planner")
    checks: tuple[Check, ...] | None = Field(None, description="Run before the run may end done")
    tools: tuple[str, ...] | None = Field(None, description="The tools allowed; may only tighten")
    limits: Limits | None = Field(None, description="May only tighten")
    planner: ModelChoice | None = None
    executor: ModelChoice | None = None
    goal: str | None = Field(None, description="What is asked, in the person's words (YAML and JSON goals)")
    status: PlanStatus | None = Field(None, description="With steps: the status the plan begins with")
    steps: tuple[Step, ...] | None = Field(None, min_length=1, description="A plan of the person's own")


# ── run, calls, revisions ─────────────────────────────────────────────────────────────────────────────────


class Models(Record):
    """The models a run began with; addresses and keys are never stored."""

    planner: str | None = None
    executor: str | None = None
    planner_temperature: Amount | None = None
    executor_temperature: Amount | None = None


class Run(Record):
    """The settings of one run, resolved when it began."""

    format: Literal["agentfs/run-1"] = "agentfs/run-1"
    run: str = Field(description="day/name")
    mode: Mode
    approve: Approve
    replan: Literal["on_trigger", "every_step"]
    split_over: Counter
    workdir: str = Field(description="The folder the tools work in: absolute, or relative to the run's folder")
    limits: Limits
    tools: tuple[str, ...]
    network: bool
    sandbox: Literal["auto", "require", "off"]
    read: tuple[str, ...] = Field(description="Folders the tools may also read")
    env: tuple[str, ...] = Field(description="Variables the tools may see, by name")
    models: Models
    source: str = Field(description="Where the goal came from: a path, text or stdin")
    started_at: Timestamp


class Usage(Record):
    """What a model was asked and what it cost; a cost of null is unknown, never nothing."""

    role: Literal["planner", "executor", "judge"]
    model: str | None
    requests: Annotated[int, Field(ge=0)]
    input_tokens: Annotated[int, Field(ge=0)]
    cached_tokens: Annotated[int, Field(ge=0)]
    output_tokens: Annotated[int, Field(ge=0)]
    cost_usd: Amount | None


class Failure(Record):
    """Why something did not succeed, and what to do."""

    kind: str = Field(description="exit, timeout, check, input, outside, sandbox, drift, model, superseded, …")
    message: str
    hint: str | None = None


class Call(Record):
    """One consultation of the planner."""

    format: Literal["agentfs/call-1"] = "agentfs/call-1"
    call: Counter
    revision: Annotated[int, Field(ge=0)] = Field(description="The revision it was called on; 0: none yet")
    trigger: Trigger
    step: StepId | None
    detail: str
    evidence: tuple[str, ...] = Field(description="Paths in the run's folder; a call spends what it lists")
    goal_sha256: Sha256
    base_sha256: Sha256 | None = Field(description="The plan it was called on")


class Answer(Record):
    """How a call settled."""

    format: Literal["agentfs/answer-1"] = "agentfs/answer-1"
    call: Counter
    verdict: Verdict
    plan: JsonObject | None = None
    answer: JsonValue = None
    error: Failure | None = None
    prompt_sha256: Sha256 | None = None
    usage: Usage | None = None
    duration_s: Amount


class Author(Record):
    """Who made a revision."""

    role: Role
    name: str
    model: str | None = None


class Change(Record):
    """One difference between two revisions, by meaning."""

    step: StepId | None = Field(description="null: the plan itself")
    what: str


class Revision(Record):
    """A numbered version of one plan: who made it, why, and what changed."""

    format: Literal["agentfs/revision-1"] = "agentfs/revision-1"
    revision: Counter
    call: Counter | None
    by: Author
    trigger: Trigger
    step: StepId | None
    detail: str
    evidence: tuple[str, ...]
    base_sha256: Sha256 | None
    plan_sha256: Sha256
    changes: tuple[Change, ...]
    at: Timestamp


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────


class Order(Record):
    """A step handed to the executor: inputs resolved, permission given."""

    format: Literal["agentfs/order-1"] = "agentfs/order-1"
    run: str
    step: StepId
    attempt: Counter
    revision: Counter
    key: Sha256 = Field(description="What the step does, hashed: a result counts while its key matches")
    after: dict[StepId, Annotated[int, Field(ge=0)]] = Field(description="The attempt of each dependency")
    description: str | None
    tool: str | None
    input: JsonObject
    tools: tuple[str, ...] | None
    model: str | None
    success_condition: str | None
    checks: tuple[ResolvedCheck, ...]
    expects: JsonObject | bool | None
    timeout_s: Seconds
    repeatable: bool
    issued_at: Timestamp


class CheckResult(Record):
    """What a check found."""

    kind: Literal["command", "file", "output", "http", "judge"]
    ok: bool
    detail: str


class Result(Record):
    """How an attempt settled."""

    format: Literal["agentfs/result-1"] = "agentfs/result-1"
    run: str
    step: StepId
    attempt: Counter
    revision: Counter
    key: Sha256
    after: dict[StepId, Annotated[int, Field(ge=0)]]
    status: ResultStatus
    output: JsonValue = None
    cut: bool = Field(default=False, description="The output is head and tail; the whole is in ID.N.output.txt")
    surprising: bool = False
    surprise: str | None = None
    error: Failure | None = None
    checks: tuple[CheckResult, ...] = ()
    evidence: tuple[str, ...] = ()
    sandbox: Sandbox
    usage: Usage | None = None
    started_at: Timestamp | None = Field(description="null: it never started")
    ended_at: Timestamp
    duration_s: Amount


class StepsByEnd(Record):
    """Ids of steps, by how they ended."""

    done: tuple[StepId, ...]
    failed: tuple[StepId, ...]
    skipped: tuple[StepId, ...]
    not_reached: tuple[StepId, ...]


class UsageByRole(Record):
    """What the models cost, by role."""

    planner: Usage | None
    executor: Usage | None


class Outcome(Record):
    """How a run ended."""

    format: Literal["agentfs/outcome-1"] = "agentfs/outcome-1"
    run: str
    status: Literal["done", "failed", "cancelled"]
    reason: Reason
    summary: str
    answer: JsonValue
    steps: StepsByEnd
    revisions: Annotated[int, Field(ge=0)]
    calls: Annotated[int, Field(ge=0)]
    usage: UsageByRole
    started_at: Timestamp
    ended_at: Timestamp

"""Everything that is written to disk, as frozen, closed, strict records. Pure: reads and writes nothing.

The JSON Schemas in `schemas/` are generated from these classes (`agentfs.core.schemas`); their descriptions
are written for the people who meet them in an editor.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
PARAM_NAME = r"[a-z][a-z0-9_]{0,31}"
ATTEMPT_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}(~[a-z0-9][a-z0-9-]{0,47})?$"
TIME_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"


def _whole(schema: dict[str, Any]) -> None:
    """Refuse a line break, which `$` alone lets through at the end in Python's dialect."""
    schema["not"] = {"pattern": "\\n"}


StepId = Annotated[str, Field(pattern=ID_PATTERN, json_schema_extra=_whole)]
ParamName = Annotated[str, Field(pattern=rf"^{PARAM_NAME}$", json_schema_extra=_whole)]
AttemptId = Annotated[str, Field(pattern=ATTEMPT_PATTERN, json_schema_extra=_whole)]  # a step, or one of its items
Timestamp = Annotated[str, Field(pattern=TIME_PATTERN, description="RFC 3339, UTC, microseconds")]
Sha256 = Annotated[str, Field(pattern=SHA256_PATTERN)]
Count = Annotated[int, Field(ge=0)]
Counter = Annotated[int, Field(ge=1)]  # of what is numbered from 1, or has to be there
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Pause = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]
JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Foreign:
    """Marks what tools, models and people write: secrets are masked in it, and in nothing else of a record."""

    form: type[BaseModel] | None = None  # it is not all foreign: it is in the form of this record


ForeignText = Annotated[str, Foreign()]
ForeignValue = Annotated[JsonValue, Foreign()]
ForeignObject = Annotated[JsonObject, Foreign()]

PlanStatus = Literal["draft", "paused", "approved", "cancelled"]
OnFailure = Literal["replan", "stop", "continue"]
ResultStatus = Literal["done", "failed", "blocked", "interrupted", "rejected", "skipped"]
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
    "steps_done",
    "replan_budget_exhausted",
    "step_failed",
    "impossible",
    "goal_checks_failed",
    "rejected",
    "unproven",
    "cancelled",
]
ProofLevel = Literal["checked", "judged", "claimed"]  # the strongest first


def absent_field(description: str) -> Any:
    """Return an optional field that is left out of its file where it says nothing: most records do not have it."""
    return Field(None, exclude_if=lambda value: value is None, description=description)


class Record(BaseModel):
    """Frozen: a fact does not change. Closed: an unknown field is a mistake. Strict: a type is what it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────


class CommandCheck(Record):
    """A command that must exit with 0, run in the working folder."""

    kind: Literal["command"] = Field(description="A command that must exit with 0")
    run: ForeignText = Field(min_length=1, description="Shell text; exit code 0 means the check holds")


class FileCheck(Record):
    """A file that must be there, and perhaps hold something."""

    kind: Literal["file"] = Field(description="A file that must be there")
    path: ForeignText = Field(min_length=1, description="Relative to the working folder")
    contains: ForeignText | None = Field(None, description="Text that must be in the file")
    matches: ForeignText | None = Field(
        None, description="A regular expression that must match somewhere in the file"
    )
    min_bytes: Count | None = Field(None, description="The least size of the file")


class OutputCheck(Record):
    """A JSON Schema that the step's output must satisfy."""

    kind: Literal["output"] = Field(description="A JSON Schema for the step's output")
    schema_: ForeignObject | bool = Field(alias="schema", description="A JSON Schema (draft 2020-12)")


class HttpCheck(Record):
    """An address that must answer."""

    kind: Literal["http"] = Field(description="An address that must answer")
    url: ForeignText = Field(min_length=1, description="http:// or https://; needs network = true under [tools]")
    status: Annotated[int, Field(ge=100, le=599)] | None = Field(None, description="The status to expect; 200")


class JudgeCheck(Record):
    """A condition in words that a model judges against the evidence."""

    kind: Literal["judge"] = Field(description="A condition that a model judges")
    condition: ForeignText = Field(min_length=1, description="What must be true, in words")


Check = Annotated[CommandCheck | FileCheck | OutputCheck | HttpCheck | JudgeCheck, Field(discriminator="kind")]


Condition = Annotated[CommandCheck | FileCheck, Field(discriminator="kind")]


class ResolvedCommandCheck(CommandCheck):
    """A command check whose references have become environment variables."""

    env: dict[str, str] | None = Field(None, description="The values of its references")


ResolvedCheck = Annotated[
    ResolvedCommandCheck | FileCheck | OutputCheck | HttpCheck | JudgeCheck, Field(discriminator="kind")
]


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────


class Limits(Record):
    """Bounds on one run, in the place of those in the settings. In plan.json a top-up is an edit here."""

    replans: Count | None = Field(None, description="Calls after a failure or surprise")
    attempts: Counter | None = Field(
        None, description="Tries at a step that is repeatable or done by a model; others have 1"
    )
    parallel: Counter | None = Field(None, description="Attempts at once")
    steps: Counter | None = Field(None, description="Steps a stepwise run may have")
    requests: Count | None = Field(None, description="Requests to models")
    tokens: Count | None = Field(None, description="Tokens, in and out, over all models")
    cost_usd: Amount | None = Field(None, description="Money spent on models")
    minutes: Amount | None = Field(None, description="Time in which a step ran or a model planned; waiting is free")
    items: Counter | None = Field(None, description="Items that one step may go through (each)")
    output_bytes: Annotated[int, Field(ge=256)] | None = Field(
        None, description="Output kept in a result; more goes to a file beside it"
    )

    def given(self) -> dict[str, float]:
        """Return the limits that are set."""
        return {name: value for name, value in self if value is not None}


SandboxWish = Literal["auto", "require", "off"]
Network = bool | Literal["agents"]  # agents: not the tools, but coding agents


class Tools(Record):
    """What the tools of one run may do, in the place of what it began with: as [tools] in the settings."""

    allow: tuple[str, ...] | None = Field(None, description="The tools this run may use")
    network: Network | None = Field(None, description="true: tools may use the network; agents: only agents may")
    sandbox: SandboxWish | None = Field(None, description="auto: bubblewrap where there is one; require; off")
    read: tuple[str, ...] | None = Field(None, description="Folders the tools may also read")
    env: tuple[str, ...] | None = Field(None, description="Variables the tools may see, by name")
    hosts: tuple[str, ...] | None = Field(None, description="Private or local hosts that http_get may reach")


class Step(Record):
    """One unit of a plan."""

    id: StepId = Field(description="Stable across revisions: lower case letters, digits and -, at most 63")
    description: ForeignText | None = Field(None, description="What the step does, in a line")
    why: ForeignText | None = Field(None, description="Why the step is in the plan")
    tool: str | None = Field(
        None, min_length=1, description="The tool it calls (agentfs tools lists them); absent: a model does the step"
    )
    agent: str | None = Field(
        None,
        min_length=1,
        description="The coding agent that does it, in the place of a tool (agentfs agents lists them)",
    )
    input: ForeignObject | None = Field(None, description="What the tool gets; may hold {{steps.ID.output}}")
    depends_on: tuple[StepId, ...] | None = Field(
        None, description="Ids of steps that come first; absent: the step before it; []: none"
    )
    success_condition: ForeignText | None = Field(None, description="When the step counts as done, in words")
    each: ForeignText | tuple[ForeignValue, ...] | None = Field(
        None,
        description="A list, or a reference to one: the step is done once per item, {{item}} in its other fields",
    )
    when: Condition | None = Field(
        None, description="A command or file check, looked at once before all else; it does not hold: skipped"
    )
    needs: tuple[Check, ...] | None = Field(None, description="Checks before it starts; one fails: blocked")
    checks: tuple[Check, ...] | None = Field(None, description="Checks after it; one fails: the step failed")
    expects: ForeignObject | bool | None = Field(
        None, description="JSON Schema of an unsurprising output; violated: done, and surprising"
    )
    gate: bool | None = Field(
        None, description="true: a person approves the order, shown in steps/ID.N.question.md, before it exists"
    )
    on_failure: OnFailure | None = Field(
        None, description="If it fails for good: replan (default), stop (the run ends) or continue (dependents run)"
    )
    timeout_s: Seconds | None = Field(None, description="Seconds before the attempt is killed; 600")
    max_attempts: Counter | None = Field(
        None, description="Tries; default: limits.attempts if it is repeatable or done by a model, else 1"
    )
    retry_wait_s: Pause | None = Field(
        None, description="Seconds before a failed try is made again; doubles with each; 0"
    )
    repeatable: bool | None = Field(
        None, description="false: once done or cut off, it runs again only with a person's permission"
    )
    skip: ForeignText | None = Field(
        None, min_length=1, description="Why a person left it out; what depends on it goes on"
    )
    model: ForeignText | None = Field(None, min_length=1, description="Another model for this step (no tool)")
    tools: tuple[str, ...] | None = Field(None, description="The tools a model may use for this step (no tool)")
    place: StepId | None = Field(None, description="Where it runs: a name of [places] in the settings; absent: here")


class Plan(Record):
    """The steps currently intended. Edit it at any time; a save is a revision."""

    schema_: str | None = Field(None, alias="$schema", description="Where editors find this schema")
    goal: ForeignText | None = Field(None, description="A title for people; never read back")
    status: PlanStatus = Field(
        description="The person's switch: draft, paused (nothing new starts), approved (it runs), cancelled (it ends)"
    )
    limits: Limits | None = Field(None, description="Overrides for this run; a top-up is an edit here")
    tools: Tools | None = Field(
        None, description="Overrides of what this run's tools may do; `agentfs resume --refresh-settings` writes it"
    )
    checks: tuple[Check, ...] | None = Field(
        None, description="What is true when the goal is met, written before the work; run before the run ends done"
    )
    steps: tuple[Step, ...] = Field(
        min_length=1, description="What is to be done; the order matters only where depends_on is absent"
    )


# ── goal ──────────────────────────────────────────────────────────────────────────────────────────────────


class ModelChoice(Record):
    """What a goal may say of a model: which, and how warm."""

    model: str | None = Field(None, min_length=1, description="Any name the endpoint knows")
    temperature: Amount | None = Field(None, description="Sent only if set")


class Goal(Record):
    """A goal file: its front matter, or its fields when it is YAML or JSON."""

    name: str | None = Field(None, min_length=1, description="The run's name; default: the file's")
    mode: Mode | None = Field(None, description="How the run is driven")
    approve: Approve | None = Field(None, description="When a person must approve plans; may only tighten")
    workdir: str | None = Field(None, min_length=1, description="The folder to work in; default: the run's files/")
    context: str | tuple[str, ...] | None = Field(None, description="Text or paths for the planner")
    isolate: Literal["worktree"] | None = Field(
        None, description="worktree: the run works in a worktree of its own, on a branch of its own"
    )
    checks: tuple[Check, ...] | None = Field(None, description="Run before the run may end done")
    protect: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        None, description="Paths and globs in the working folder that no model may change"
    )
    tools: tuple[str, ...] | None = Field(None, description="The tools allowed; may only tighten")
    limits: Limits | None = Field(None, description="May only tighten")
    planner: ModelChoice | None = Field(None, description="Another model to plan with")
    executor: ModelChoice | None = Field(None, description="Another model to do the steps with")
    params: dict[ParamName, JsonValue] | None = Field(
        None,
        max_length=100,
        description="What it takes: name -> type or JSON Schema; required without a default. With uses: the values",
    )
    uses: str | None = Field(
        None, min_length=1, description="A goal in runbooks/ to run with these params (YAML and JSON goals)"
    )
    schedule: str | None = Field(
        None, min_length=1, description="In schedules/: five cron fields, or every 6h; watch runs it then"
    )
    timezone: str | None = Field(None, min_length=1, description="Of the schedule; default: the local one")
    overlap: Literal["skip", "queue"] | None = Field(
        None, description="A time that comes while a run of the schedule is under way: skip (default) or queue"
    )
    catch_up: str | None = Field(
        None, min_length=1, description="How old a time may be that nothing watched: 6h, 2d; default: none"
    )
    goal: str | None = Field(None, description="What is asked, in the person's words (YAML and JSON goals)")
    status: PlanStatus | None = Field(None, description="With steps: the status the plan begins with")
    steps: tuple[Step, ...] | None = Field(None, min_length=1, description="A plan of the person's own")


# ── run, calls, revisions ─────────────────────────────────────────────────────────────────────────────────


ModelRole = Literal["planner", "executor"]


class Models(Record):
    """The models a run began with; addresses and keys are never stored."""

    planner: str | None = Field(None, description="The model that plans; null: there was none when the run began")
    executor: str | None = Field(
        None, description="The model that does steps without a tool; null: there was none when the run began"
    )
    named: tuple[str, ...] | None = Field(None, description="The models a planner may name in a step")
    planner_temperature: Amount | None = Field(None, description="Sent only if set")
    executor_temperature: Amount | None = Field(None, description="Sent only if set")
    commands: tuple[ModelRole, ...] | None = absent_field(
        "Which of the two are programs, that are only given a model's name; absent: none"
    )

    def called(self, role: ModelRole) -> str | None:
        """Return what people see of who plans, or does steps; None: there was none when the run began."""
        named: str | None = getattr(self, role)
        return "a command" if named and role in (self.commands or ()) else named


class Proof(Record):
    """[proof]: how much has to be shown before a run may end done."""

    acceptance: bool = Field(default=True, description="false: no acceptance checks for goals in words")
    require: ProofLevel | None = Field(
        None, description="The least proof; default: judged for goals in words, claimed for a person's own steps"
    )


Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Isolation(Record):
    """The worktree that a run works in."""

    repository: str = Field(description="The person's repository: where its files are")
    git_dir: str = Field(description="Where git keeps its own")
    base: Sha1 = Field(description="The person's HEAD when the run began")
    first: Sha1 | None = Field(None, description="What was not committed then, as the branch's first commit")
    branch: str = Field(description="The run's branch")
    left_behind: tuple[str, ...] = Field((), description="Files that were not committed, and are not in the worktree")


class Parent(Record):
    """The attempt of another run that a run is."""

    run: str = Field(description="day/name")
    step: AttemptId = Field(description="The step, or STEP~SLUG for one item of it")
    attempt: Counter = Field(description="Which try at it")


class Run(Record):
    """The settings of one run, resolved when it began."""

    format: Literal["agentfs/run-1"] = Field("agentfs/run-1", description="What kind of record this is")
    run: str = Field(description="day/name")
    mode: Mode = Field(description="How the run is driven")
    approve: Approve = Field(description="When a person must approve plans")
    replan: Literal["on_trigger", "every_step"] = Field(description="When the planner is called again")
    split_over: Counter = Field(description="In auto mode: more steps than this go to the planner")
    workdir: str = Field(description="The folder the tools work in: absolute, or relative to the run's folder")
    limits: Limits = Field(description="Bounds on this run")
    tools: tuple[str, ...] = Field(description="The tools this run may use")
    network: Network = Field(description="true: tools may use the network; agents: only coding agents may")
    sandbox: SandboxWish = Field(description="auto: bubblewrap where there is one; require; off")
    read: tuple[str, ...] = Field(description="Folders the tools may also read")
    env: tuple[str, ...] = Field(description="Variables the tools may see, by name")
    hosts: tuple[str, ...] = Field((), description="Private or local hosts that http_get may reach")
    models: Models = Field(description="The models the run began with")
    place: str | None = absent_field("Where steps run that do not say; null: where the driver runs")
    agent: str | None = absent_field("The coding agent that does steps without a tool; null: a model does")
    agents: tuple[str, ...] | None = absent_field("The coding agents that a planner may name in a step")
    isolation: Isolation | None = absent_field("The worktree the run works in; null: it works in its folder")
    repair: bool = Field(default=False, description="true: the executor's model may repair a tool step that failed")
    proof: Proof | None = Field(None, description="How much has to be shown; null: a run of the first release")
    source: str = Field(description="Where the goal came from: a path, text or stdin")
    goal_sha256: Sha256 | None = Field(
        None, description="The goal as it was judged, hashed; null: by an older release"
    )
    max_turns: Counter | None = absent_field("Turns of one step's loop; null: by an older release")
    context_from: tuple[str, ...] | None = Field(
        None, description="Folders whose files a dropped goal's context may name; null: a person's own goal"
    )
    params: JsonObject | None = Field(None, description="The value of each parameter; null: the goal takes none")
    uses: str | None = Field(None, description="The goal of runbooks/ that request.yaml asked for")
    request_sha256: Sha256 | None = Field(None, description="request.yaml as it was judged, hashed")
    schedule: str | None = Field(None, description="The file in schedules/, without its ending, that began the run")
    due: Timestamp | None = Field(None, description="The time of the schedule that it was begun for")
    parent: Parent | None = absent_field("The step of another run that began it; null: it is no run in a run")
    started_at: Timestamp

    def with_tools(self, own: Tools) -> "Run":
        """Return these settings with the other's entries about tools in place of these."""
        given = {name: value for name, value in own if value is not None and name != "allow"}
        return self.model_copy(update=given if own.allow is None else {**given, "tools": own.allow})


class Usage(Record):
    """What a model was asked and what it cost; a cost of null is unknown, never nothing."""

    role: Literal["planner", "executor", "judge"] = Field(description="Who asked the model")
    model: str | None = Field(description="The model's name; null: unknown")
    requests: Count = Field(description="Requests made")
    input_tokens: Count = Field(description="Tokens sent")
    cached_tokens: Count = Field(description="Tokens sent that the server had already")
    output_tokens: Count = Field(description="Tokens received")
    cost_usd: Amount | None = Field(description="What it cost; null: unknown, never nothing")


class Failure(Record):
    """Why something did not succeed, and what to do."""

    kind: str = Field(description="exit, timeout, check, input, outside, sandbox, drift, model, superseded, …")
    message: ForeignText = Field(description="What happened, in a line; below it the end of what a program printed")
    hint: ForeignText | None = Field(None, description="What to do about it")
    cause: Literal["crash", "no_reason"] | None = absent_field(
        "crash: agentfs itself was ended; no_reason: a person said no, and not why"
    )


class Call(Record):
    """One consultation of the planner."""

    format: Literal["agentfs/call-1"] = Field("agentfs/call-1", description="What kind of record this is")
    call: Counter = Field(description="Calls of one run are numbered from 1")
    revision: Count = Field(description="The revision it was called on; 0: none yet")
    trigger: Trigger = Field(description="Why the planner is called")
    step: StepId | None = Field(description="The step that caused it; null: none in particular")
    detail: str = Field(description="The same in words")
    evidence: tuple[str, ...] = Field(description="Paths in the run's folder; a call spends what it lists")
    goal_sha256: Sha256 = Field(description="The goal it was called on")
    base_sha256: Sha256 | None = Field(description="The plan it was called on")
    role: Literal["planner", "executor"] = Field(
        "planner", description="Who is asked; executor: to repair the input of one step"
    )
    edit_by: ForeignText | None = Field(
        None, description="Who proposed the edit that is its answer; null: nobody did. A person is asked about it"
    )


class CheckBefore(Record):
    """What an acceptance check found before the work."""

    sha256: Sha256 = Field(description="The check, hashed")
    ok: bool = Field(description="true: it held already, so that holding later proves nothing")
    detail: ForeignText = Field(description="What was found")


class FolderShown(Record):
    """The working folder as a planner was shown it."""

    entries: tuple[ForeignText, ...] = Field(description="A line for each entry; below some, how the file begins")
    complete: bool = Field(description="false: there is more than is listed")


class Answer(Record):
    """How a call ended."""

    format: Literal["agentfs/answer-1"] = Field("agentfs/answer-1", description="What kind of record this is")
    call: Counter = Field(description="The call that is answered")
    verdict: Verdict = Field(
        description="plan, keep, finished or impossible; failed or interrupted: there is no answer"
    )
    plan: Annotated[JsonObject | None, Foreign(form=Plan)] = Field(None, description="The plan as it was answered")
    answer: ForeignValue = Field(None, description="The answer to the goal, when the verdict is finished")
    error: Failure | None = Field(None, description="Why there is no answer")
    before: tuple[CheckBefore, ...] = Field((), description="What the acceptance checks found before the work")
    folder: FolderShown | None = absent_field("The working folder as the planner was shown it")
    prompt_sha256: Sha256 | None = Field(None, description="The prompt, hashed")
    usage: Usage | None = Field(None, description="What the call cost")
    started_at: Timestamp | None = Field(None, description="When it was asked; null: no model was")
    duration_s: Amount = Field(description="Seconds it took")


class Author(Record):
    """Who made a revision."""

    role: Role = Field(description="planner, person, runbook, or agentfs itself")
    name: str = Field(description="The person's name, or the role's")
    model: str | None = Field(None, description="The model that planned")


class Change(Record):
    """One difference between two revisions, by meaning."""

    step: StepId | None = Field(description="null: the plan itself")
    what: str = Field(description="What changed, in words")


class Revision(Record):
    """A numbered version of one plan: who made it, why, and what changed."""

    format: Literal["agentfs/revision-1"] = Field("agentfs/revision-1", description="What kind of record this is")
    revision: Counter = Field(description="Revisions of one plan are numbered from 1")
    call: Counter | None = Field(description="The call it came from; null: a person's edit")
    by: Author = Field(description="Who made it")
    trigger: Trigger = Field(description="Why it was made")
    step: StepId | None = Field(description="The step that caused it; null: none in particular")
    rejected: StepId | None = Field(None, description="The step that a person rejected, where that is why")
    detail: str = Field(description="The same in words")
    evidence: tuple[str, ...] = Field(description="Paths in the run's folder that it rests on")
    base_sha256: Sha256 | None = Field(description="The plan before it; null: there was none")
    plan_sha256: Sha256 = Field(description="This revision's plan")
    changes: tuple[Change, ...] = Field(description="What differs from the plan before")
    at: Timestamp


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────


class OfAttempt(Record):
    """What an order and its result share: which attempt they are of."""

    format: str
    run: str = Field(description="day/name")
    step: AttemptId = Field(description="The step's id, or STEP~SLUG for one item of it")
    attempt: Counter = Field(description="Tries at one step are numbered from 1")
    revision: Counter = Field(description="The revision the step was read from")
    key: Sha256 = Field(description="What the step does, hashed: a result counts while its key matches")
    after: dict[StepId, Count] = Field(description="The attempt of each dependency")

    def shared(self) -> dict[str, Any]:
        """Return the fields that say which attempt it is."""
        return {name: getattr(self, name) for name in OfAttempt.model_fields if name != "format"}


class Order(OfAttempt):
    """A step handed to the executor: inputs resolved, permission given."""

    format: Literal["agentfs/order-1"] = Field("agentfs/order-1", description="What kind of record this is")
    description: str | None = Field(description="What the step does")
    tool: str | None = Field(description="The tool to call; null: a model does the step")
    input: JsonObject = Field(description="What the tool gets, references resolved")
    agent: str | None = absent_field("The coding agent that does it, in its sandbox, with the network on")
    network: bool | None = absent_field("true: an agent does it, and may use the network")
    tools: tuple[str, ...] | None = Field(description="The tools a model may use; null: the step has a tool")
    model: str | None = Field(description="The model that does the step; null: the executor's")
    success_condition: str | None = Field(description="When the step counts as done, in words")
    checks: tuple[ResolvedCheck, ...] = Field(description="Run after the step; one fails: the step failed")
    expects: JsonObject | bool | None = Field(description="JSON Schema of an unsurprising output")
    timeout_s: Seconds = Field(description="Seconds before the attempt is killed")
    repeatable: bool = Field(description="false: never run twice without a person's permission")
    place: str | None = absent_field("Where it is to run, by name; null: where its driver runs")
    issued_at: Timestamp


class CheckResult(Record):
    """What a check found."""

    kind: Literal["command", "file", "output", "http", "judge"] = Field(description="The kind of check")
    ok: bool = Field(description="true: it holds")
    detail: ForeignText = Field(description="What was found; below its first line the end of what a command printed")
    run: ForeignText | None = Field(None, description="The command, as it was run")
    hint: ForeignText | None = Field(None, description="What to do about it")
    error: Literal["timeout", "sandbox"] | None = absent_field("Why it gave no verdict; absent: it did")


class Result(OfAttempt):
    """How an attempt ended."""

    format: Literal["agentfs/result-1"] = Field("agentfs/result-1", description="What kind of record this is")
    status: ResultStatus = Field(description="How the attempt ended")
    output: ForeignValue = Field(None, description="What the step gave back")
    cut: bool = Field(default=False, description="The output is head and tail; the whole is in ID.N.output.txt")
    surprising: bool = Field(default=False, description="true: it succeeded, but not as expected")
    surprise: ForeignText | None = Field(None, description="Why it is surprising")
    error: Failure | None = Field(None, description="Why it did not succeed")
    checks: tuple[CheckResult, ...] = Field((), description="What each check found")
    held_before: tuple[Sha256, ...] = Field(
        (), description="Checks, hashed, that held before the step was first tried: they prove nothing"
    )
    evidence: tuple[ForeignText, ...] = Field((), description="What the result rests on")
    sandbox: Sandbox = Field(description="What confined the step")
    agent: str | None = absent_field("The coding agent that did it")
    commit: Sha1 | None = absent_field("In an isolated run: the commit of what it changed; null: nothing")
    network: bool | None = absent_field("true: an agent that had the network did it")
    prompt_sha256: Sha256 | None = Field(None, description="The prompt its model was given, hashed")
    usage: Usage | None = Field(None, description="What the step's model cost")
    started_at: Timestamp | None = Field(description="null: it never started")
    ended_at: Timestamp
    duration_s: Amount = Field(description="Seconds it took")
    items: dict[str, Count] | None = absent_field("Of a step with `each`: each item's slug, and its attempt")
    when_sha256: Sha256 | None = absent_field("It was skipped: the condition that did not hold, hashed")
    child: str | None = absent_field("Of the tool `run`: the run it was; `usage` is what that one used")
    retry_at: Timestamp | None = Field(None, description="It failed: not tried again before that; null: at once")
    place: str | None = absent_field("Where the attempt ran, by name; null: where its driver ran")
    host: str | None = absent_field("The machine it ran on; null: that of its driver")


class StepsByEnd(Record):
    """Ids of steps, by how they ended."""

    done: tuple[StepId, ...] = Field(description="They succeeded")
    failed: tuple[StepId, ...] = Field(description="They failed, those that left the plan included")
    skipped: tuple[StepId, ...] = Field(description="They were left out")
    not_reached: tuple[StepId, ...] = Field(description="They never began")


class UsageByRole(Record):
    """What the models cost, by role."""

    planner: Usage | None = Field(description="What planning cost")
    executor: Usage | None = Field(description="What doing the steps cost")


class ProvenBy(Record):
    """How many checks hold, by whose they are."""

    person: Count = Field(description="Checks that a person wrote")
    planner: Count = Field(description="Checks that a model wrote, and that failed before")
    judge: Count = Field(description="Conditions that a judge says are met")


class ProofOfDone(Record):
    """What shows that a run is done."""

    level: ProofLevel = Field(description="checked: by code; judged: by a model; claimed: by nothing")
    by: ProvenBy = Field(description="How many checks hold, by whose they are")
    held_before: Count = Field(description="Checks that held before the work: they prove nothing")
    touched: tuple[ForeignText, ...] = Field(description="Files that a person's checks name and a step changed")
    shed: tuple[ForeignText, ...] = Field(description="Checks of earlier steps that no longer hold")
    unproven: tuple[StepId, ...] = Field(description="Done steps that no check or judge looked at")


class Outcome(Record):
    """How a run ended."""

    format: Literal["agentfs/outcome-1"] = Field("agentfs/outcome-1", description="What kind of record this is")
    run: str = Field(description="day/name")
    status: Literal["done", "failed", "cancelled"] = Field(description="How the run ended")
    reason: Reason = Field(description="Why it ended")
    summary: ForeignText = Field(description="The same in a line")
    answer: ForeignValue = Field(description="What the run found; null where it failed")
    steps: StepsByEnd = Field(description="Ids of steps, by how they ended")
    revisions: Count = Field(description="Revisions of the plan")
    calls: Count = Field(description="Calls of the planner")
    usage: UsageByRole = Field(description="What the models cost, by role")
    proof: ProofOfDone | None = Field(None, description="What shows that it is done; null: it is not")
    branch: str | None = absent_field("Of an isolated run: its branch")
    base: Sha1 | None = absent_field("Of an isolated run: where its branch began")
    commits: tuple[Sha1, ...] | None = absent_field("Of an isolated run: the commits of its steps, oldest first")
    blame: Literal["planning", "execution"] | None = Field(None, description="What failed; null: nothing did")
    started_at: Timestamp
    ended_at: Timestamp


class StepChecks(Record):
    """What the checks of a step found when they were run again at the end."""

    step: AttemptId = Field(description="The step, or STEP~SLUG for one item of it; it may have left the plan")
    checks: tuple[CheckResult, ...] = Field(description="What each check found")


class GoalChecks(Record):
    """What the goal's acceptance checks found once every step was done."""

    format: Literal["agentfs/checks-1"] = Field("agentfs/checks-1", description="What kind of record this is")
    revision: Counter = Field(description="The revision whose steps were all done")
    after: dict[StepId, Count] = Field(description="The attempt of every step they followed")
    checks: tuple[CheckResult, ...] = Field(description="What each check found; none if a judge could not be asked")
    steps: tuple[StepChecks, ...] = Field((), description="Checks of steps, run again")
    touched: tuple[ForeignText, ...] = Field((), description="Files that a person's checks name and a step changed")
    error: Failure | None = Field(None, description="Why a judge among them could not be asked")
    usage: Usage | None = Field(None, description="What the judge among them cost")

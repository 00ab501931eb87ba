"""The settings of a workspace as records, each key with its default. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from agentfs.core.records import Amount, Approve, Counter, JsonObject, Mode, Proof, Record, SandboxWish, Seconds

DEFAULT_TOOLS = (
    "shell",
    "python",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "search_files",
    "http_get",
    "web_search",
    "summarize",
    "ask",
    "note",
)

TOLD_ON_WAIT = ("AGENTFS_RUN", "AGENTFS_WHAT", "AGENTFS_FILE", "AGENTFS_WHY", "AGENTFS_HOW")  # to that command

ShellText = Annotated[str, Field(min_length=1)]
Words = Annotated[tuple[str, ...], Field(min_length=1)]


class GoalSettings(Record):
    """[goals]"""

    workdirs: tuple[str, ...] = Field((".",), description="Folders a dropped goal may work in")


class PriceSettings(Record):
    """price of [planner] or [executor]: USD per million tokens"""

    input: Amount = Field(description="Tokens sent")
    cached: Amount | None = Field(None, description="Tokens sent that the server had already; default: as input")
    output: Amount = Field(description="Tokens received")


class ModelSettings(Record):
    """What [planner] and [executor] share."""

    kind: Literal["model", "command"] = Field("model", description="command: any program, JSON in, JSON out")
    command: tuple[str, ...] | None = Field(None, description='The program and its arguments, kind = "command"')
    base_url: str = Field("", description="Any OpenAI-compatible server")
    api_key_env: str = Field("OPENAI_API_KEY", description="The variable that holds the key")
    temperature: Amount | None = Field(None, description="Sent only if set")
    extra_body: JsonObject | None = Field(None, description="Added to every request as it is")
    price: PriceSettings | None = Field(
        None, description="USD per million tokens; default: the list price, where one is known"
    )


class PlannerSettings(ModelSettings):
    """[planner]"""

    model: str = Field("gpt-5", min_length=1, description="Any name the endpoint knows")
    timeout_s: Seconds = Field(1800, description="Seconds one call may take, all its requests together")


class ExecutorSettings(ModelSettings):
    """[executor]"""

    model: str = Field("gpt-5-mini", min_length=1, description="Any name the endpoint knows")
    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Models that a planner may name in a step; default: the configured one only"
    )
    max_turns: Counter = Field(20, description="Turns of one step's loop")
    repair: bool = Field(
        default=True, description="A planner's tool step that failed: this model may change its input once"
    )


class LimitSettings(Record):
    """[limits]"""

    replans: Annotated[int, Field(ge=0)] = Field(3, description="Calls after a failure or surprise")
    attempts: Counter = Field(2, description="Tries at a step that is repeatable or done by a model; others have 1")
    parallel: Counter = Field(4, description="Attempts at once, over all runs one process drives")
    steps: Counter = Field(200, description="Steps a stepwise run may have")
    requests: Annotated[int, Field(ge=0)] = Field(300, description="Requests to models")
    tokens: Annotated[int, Field(ge=0)] = Field(2_000_000, description="Tokens, in and out, over all models")
    cost_usd: Amount = Field(5.0, description="Money spent on models")
    minutes: Amount = Field(120, description="Time in which a step ran or a model planned; waiting is free")
    output_bytes: Annotated[int, Field(ge=256)] = Field(
        65536, description="Output kept in a result; more goes to a file beside it"
    )


class WebSearchSettings(Record):
    """[tools.web_search]"""

    url: str = Field("", description="A SearXNG-compatible endpoint")


class ToolSettings(Record):
    """[tools]"""

    allow: tuple[str, ...] = Field(DEFAULT_TOOLS, description="The tools runs may use")
    network: bool = Field(default=False, description="true: tools may use the network")
    sandbox: SandboxWish = Field(
        "auto", description="auto: bubblewrap where there is one; require: nothing runs without it; off"
    )
    read: tuple[str, ...] = Field((), description="More folders the tools may read")
    env: tuple[str, ...] = Field((), description="Variables the tools may see, named in full")
    hosts: tuple[str, ...] = Field(
        (), description="Private or local hosts (host or host:port) that http_get may reach"
    )
    web_search: WebSearchSettings = Field(WebSearchSettings(), description="Where web_search asks")


def allowed_tools(settings: ToolSettings, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the tools that a run may use: those allowed, tightened to those its goal asks for."""
    return tuple(tool for tool in settings.allow if wanted is None or tool in wanted)


class LedgerSettings(Record):
    """[ledger]"""

    commit_logs: bool = Field(default=False, description="true: logs and files/ are committed too")


class Settings(Record):
    """agentfs.toml"""

    mode: Mode = Field("auto", description="How runs are driven")
    approve: Approve | None = Field(None, description="Default: plan under watch, never under run")
    replan: Literal["on_trigger", "every_step"] = Field(
        "on_trigger", description="on_trigger: when something calls for it; every_step: after each step"
    )
    split_over: Counter = Field(5, description="In auto mode: more steps than this go to the planner")
    on_wait: ShellText | Words | None = Field(
        None,
        description="Run once for each thing a run waits for a person with: shell text, or program and arguments",
    )
    goals: GoalSettings = Field(GoalSettings(), description="What dropped goals may do")
    planner: PlannerSettings = Field(PlannerSettings(), description="The model that plans")
    executor: ExecutorSettings = Field(ExecutorSettings(), description="The model that does steps without a tool")
    limits: LimitSettings = Field(LimitSettings(), description="Bounds on every run")
    tools: ToolSettings = Field(ToolSettings(), description="What tools may do")
    ledger: LedgerSettings = Field(LedgerSettings(), description="What is committed")
    proof: Proof = Field(Proof(), description="How much has to be shown before a run may end done")

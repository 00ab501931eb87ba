"""The settings of a workspace as records, each key with its default. Pure."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from agentfs.core.records import (
    ID_PATTERN,
    Amount,
    Approve,
    Count,
    Counter,
    JsonObject,
    Mode,
    Network,
    Proof,
    Record,
    SandboxWish,
    Seconds,
)

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

ON_WAIT_VARIABLES = ("AGENTFS_RUN", "AGENTFS_WHAT", "AGENTFS_FILE", "AGENTFS_WHY", "AGENTFS_HOW")
ON_END_VARIABLES = ("AGENTFS_RUN", "AGENTFS_STATUS", "AGENTFS_REASON", "AGENTFS_SUMMARY")

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


Speaks = Literal["codex", "claude", "opencode", "gemini", "goose", "text"]
AgentName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]


class AgentSettings(Record):
    """[agents.NAME]: a coding agent; what is not said is as in the preset of that name"""

    command: Words | None = Field(
        None,
        description="The program with {workdir} {schema} {model} {max_turns} {max_cost_usd} to be filled in",
    )
    speaks: Speaks | None = Field(None, description="How its stream is read; default: as the preset, else text")
    env: tuple[str, ...] | None = Field(None, description="Variables it gets, by name")
    read: tuple[str, ...] | None = Field(
        None, description="Single files of your home, copied into its own; long strings in them count as secrets"
    )
    model: str | None = Field(None, min_length=1, description="What {model} is; default: the agent's own choice")
    idle_s: Seconds | None = Field(None, description="Seconds without a word before it is ended; 120")
    fallback: tuple[AgentName, ...] | None = Field(
        None, description="Agents of the next attempts, one after the other, when this one failed"
    )


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

    kind: Literal["model", "command", "agent"] = Field(  # type: ignore[assignment]
        "model",
        description="command: any program, JSON in, JSON out; agent: a coding agent does steps without a tool",
    )
    model: str = Field("gpt-5-mini", min_length=1, description="Any name the endpoint knows")
    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Models that a planner may name in a step; default: the configured one only"
    )
    agent: AgentName | None = Field(
        None, description='The coding agent that does steps without a tool, kind = "agent"'
    )
    max_turns: Counter = Field(20, description="Turns of one step's loop")
    place: str | None = Field(None, description="Where steps run that do not say; default: here")
    repair: bool = Field(
        default=True, description="A planner's tool step that failed: this model may change its input once"
    )


class PlaceSettings(Record):
    """[places.NAME]"""

    kind: Literal["dask", "command"] = Field(
        description="A Dask cluster, or any command that starts `agentfs attempt`"
    )
    scheduler: str | None = Field(None, description='kind = "dask": the address of the scheduler')
    scheduler_file: str | None = Field(None, description='kind = "dask": the file that `dask scheduler` wrote')
    command: Words | None = Field(None, description='kind = "command": the program and its arguments')
    slots: Counter | None = Field(None, description="Attempts at once there; default: limits.parallel")
    insecure: bool = Field(default=False, description="true: a scheduler beyond this machine may do without TLS")


class LimitSettings(Record):
    """[limits]"""

    replans: Count = Field(3, description="Calls after a failure or surprise")
    attempts: Counter = Field(2, description="Tries at a step that is repeatable or done by a model; others have 1")
    parallel: Counter = Field(4, description="Attempts at once, over all runs one process drives")
    steps: Counter = Field(200, description="Steps a stepwise run may have")
    requests: Count = Field(300, description="Requests to models")
    tokens: Count = Field(2_000_000, description="Tokens, in and out, over all models")
    cost_usd: Amount = Field(5.0, description="Money spent on models")
    minutes: Amount = Field(120, description="Time in which a step ran or a model planned; waiting is free")
    day_usd: Amount | None = Field(
        None, description="Money that all runs together may spend on models from midnight to midnight; then they wait"
    )
    items: Counter = Field(1000, description="Items that one step may go through (each)")
    output_bytes: Annotated[int, Field(ge=256)] = Field(
        65536, description="Output kept in a result; more goes to a file beside it"
    )


class WebSearchSettings(Record):
    """[tools.web_search]"""

    url: str = Field("", description="A SearXNG-compatible endpoint")


class ToolSettings(Record):
    """[tools]"""

    allow: tuple[str, ...] = Field(DEFAULT_TOOLS, description="The tools runs may use")
    network: Network = Field(
        default=False, description="true: tools may use the network; agents: only coding agents may; false: none"
    )
    sandbox: SandboxWish = Field(
        "auto", description="auto: bubblewrap where there is one; require: nothing runs without it; off"
    )
    read: tuple[str, ...] = Field((), description="More folders the tools may read")
    env: tuple[str, ...] = Field((), description="Variables the tools may see, named in full")
    hosts: tuple[str, ...] = Field(
        (), description="Private or local hosts (host or host:port) that http_get may reach"
    )
    web_search: WebSearchSettings = Field(WebSearchSettings(), description="Where web_search asks")


class TelemetrySettings(Record):
    """[telemetry]"""

    url: str = Field("", description="Where `agentfs export --otlp` sends traces; default: as OTEL_… variables say")
    contents: bool = Field(default=False, description="true: with what was asked, given and answered")


class McpServerSettings(Record):
    """[mcp.NAME]"""

    read: tuple[str, ...] = Field((), description="Files and folders the server may read, relative to the workspace")
    write: tuple[str, ...] = Field((), description="Folders it may write")
    network: bool = Field(default=False, description="true: it may use the network")
    env: tuple[str, ...] = Field((), description="Variables it gets, named in full; they reach no other server")
    tools: tuple[str, ...] | None = Field(None, description="Those of its tools that steps may call; default: all")
    trust_hints: bool = Field(
        default=False,
        description="true: what it says of its tools counts; those that only read or may be repeated need no gate",
    )


class McpSettings(Record):
    """[mcp]"""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, McpServerSettings] = Field(init=False)

    servers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9](_?[A-Za-z0-9-])*$", max_length=32)], ...] = Field(
        (), description="The servers of .mcp.json whose tools steps may call"
    )

    def server(self, name: str) -> McpServerSettings:
        """Return what a server may touch."""
        return self.__pydantic_extra__.get(name) or McpServerSettings()

    def sections(self) -> set[str]:
        """Return the servers that have a section."""
        return {*self.__pydantic_extra__}


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
    on_end: ShellText | Words | None = Field(
        None, description="Run once for each end of a run: shell text, or program and arguments"
    )
    isolate: Literal["worktree"] | None = Field(
        None, description="worktree: runs work in a worktree of their own, on a branch of their own"
    )
    goals: GoalSettings = Field(GoalSettings(), description="What dropped goals may do")
    planner: PlannerSettings = Field(PlannerSettings(), description="The model that plans")
    executor: ExecutorSettings = Field(ExecutorSettings(), description="The model that does steps without a tool")
    agents: dict[AgentName, AgentSettings] = Field({}, description="Coding agents, by name")
    limits: LimitSettings = Field(LimitSettings(), description="Bounds on every run")
    tools: ToolSettings = Field(ToolSettings(), description="What tools may do")
    places: dict[Annotated[str, Field(pattern=ID_PATTERN)], PlaceSettings] = Field(
        {}, description="Where else attempts may run"
    )
    ledger: LedgerSettings = Field(LedgerSettings(), description="What is committed")
    mcp: McpSettings = Field(McpSettings(), description="MCP servers whose tools steps may call")
    telemetry: TelemetrySettings = Field(TelemetrySettings(), description="Where traces go")
    proof: Proof = Field(Proof(), description="How much has to be shown before a run may end done")


def setting_variables(
    record: type[Record] = Settings, path: tuple[str, ...] = ()
) -> list[tuple[str, tuple[str, ...]]]:
    """Return the variable of each setting, and where that is."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, field in record.model_fields.items():
        here = (*path, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Record):
            found += setting_variables(field.annotation, here)
        else:
            found.append(("AGENTFS_" + "_".join(here).upper(), here))
    return found

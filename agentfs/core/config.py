"""The settings of a workspace as records, each key with its default. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from agentfs.core.records import Amount, Approve, Counter, JsonObject, Mode, Record

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


class GoalSettings(Record):
    """[goals]"""

    workdirs: tuple[str, ...] = Field((".",), description="Folders a dropped goal may work in")


class ModelSettings(Record):
    """What [planner] and [executor] share."""

    kind: Literal["model", "command"] = Field("model", description="command: any program, JSON in, JSON out")
    command: tuple[str, ...] | None = Field(None, description='The program and its arguments, kind = "command"')
    base_url: str = Field("", description="Any OpenAI-compatible server")
    api_key_env: str = Field("OPENAI_API_KEY", description="The variable that holds the key")
    temperature: Amount | None = Field(None, description="Sent only if set")
    extra_body: JsonObject | None = Field(None, description="Added to every request as it is")


class PlannerSettings(ModelSettings):
    """[planner]"""

    model: str = Field("gpt-5", min_length=1, description="Any name the endpoint knows")


class ExecutorSettings(ModelSettings):
    """[executor]"""

    model: str = Field("gpt-5-mini", min_length=1, description="Any name the endpoint knows")
    max_turns: Counter = Field(20, description="Turns of one step's loop")


class LimitSettings(Record):
    """[limits]"""

    replans: Annotated[int, Field(ge=0)] = 3
    attempts: Counter = 2
    parallel: Counter = 4
    steps: Counter = 200
    requests: Annotated[int, Field(ge=0)] = 300
    tokens: Annotated[int, Field(ge=0)] = 2_000_000
    cost_usd: Amount = 5.0
    minutes: Amount = 120
    output_bytes: Annotated[int, Field(ge=256)] = 65536


class WebSearchSettings(Record):
    """[tools.web_search]"""

    url: str = Field("", description="A SearXNG-compatible endpoint")


class ToolSettings(Record):
    """[tools]"""

    allow: tuple[str, ...] = Field(DEFAULT_TOOLS, description="The tools runs may use")
    network: bool = Field(default=False, description="true: tools may use the network")
    sandbox: Literal["auto", "require", "off"] = "auto"
    read: tuple[str, ...] = Field((), description="More folders the tools may read")
    env: tuple[str, ...] = Field((), description="Variables the tools may see, named in full")
    web_search: WebSearchSettings = WebSearchSettings()


class LedgerSettings(Record):
    """[ledger]"""

    commit_logs: bool = Field(default=False, description="true: logs and files/ are committed too")


class Settings(Record):
    """agentfs.toml"""

    mode: Mode = "auto"
    approve: Approve | None = Field(None, description="Default: plan under watch, never under run")
    replan: Literal["on_trigger", "every_step"] = "on_trigger"
    split_over: Counter = 5
    goals: GoalSettings = GoalSettings()
    planner: PlannerSettings = PlannerSettings()
    executor: ExecutorSettings = ExecutorSettings()
    limits: LimitSettings = LimitSettings()
    tools: ToolSettings = ToolSettings()
    ledger: LedgerSettings = LedgerSettings()

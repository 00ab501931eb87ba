"""How each agent's stream is read: one small reader per format, from its JSON lines to events. Pure.

A reader never fails: an event that it does not know is `Unknown`, and the end of an attempt that cannot be read any
more is `Changed`. What lines mean was seen with the versions named in tests/recordings/agents.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from agentfs.agents.story import Began, Changed, Edited, Ended, Event, Noticed, Ran, Runs, Said, Unknown, Used
from agentfs.core.excerpts import as_text

Line = Mapping[str, Any]


class Reader(Protocol):
    """One attempt's stream, line by line."""

    def take(self, line: str) -> list[Event]: ...

    def end(self) -> list[Event]:
        """Return what the end of the stream means, where no event of its own says so."""
        ...


class JsonReader:
    """What readers of JSON lines share."""

    def take(self, line: str) -> list[Event]:
        """Return what a line means; one that is no JSON object is a banner, or a program's own words."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        try:
            return [*self.read(value)]
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            kind = str(value.get("type"))
            lost = Changed(f"its event {kind!r} is not as it was ({type(error).__name__}: {error})")
            return [lost] if self.is_terminal(value) else [Unknown(kind)]

    def read(self, event: Line) -> Iterator[Event]:
        raise NotImplementedError

    def is_terminal(self, event: Line) -> bool:
        """Whether it is an event without which nothing can be concluded."""
        raise NotImplementedError

    def end(self) -> list[Event]:
        return []


class Codex(JsonReader):
    """codex exec --json"""

    def is_terminal(self, event: Line) -> bool:
        return event.get("type") in ("turn.completed", "turn.failed")

    def read(self, event: Line) -> Iterator[Event]:
        match event["type"]:
            case "item.started" | "item.completed":
                yield from self._item(event["item"], completed=event["type"] == "item.completed")
            case "turn.completed":
                used = event["usage"]
                yield Used(
                    used["input_tokens"], used.get("cached_input_tokens", 0), used["output_tokens"], whole=True
                )
                yield Ended()
            case "turn.failed":
                yield Ended(error=str(event["error"]["message"]))
            case "error":
                yield Noticed(str(event["message"]))
            case "thread.started" | "turn.started" | "item.updated":
                pass
            case kind:
                yield Unknown(str(kind))

    def _item(self, item: Line, *, completed: bool) -> Iterator[Event]:
        match item["type"]:
            case "command_execution" if completed:
                yield Ran(_inner(item["command"]), item["aggregated_output"], item["status"] == "completed")
            case "command_execution":
                yield Runs(_inner(item["command"]))
            case "file_change" if completed and item["status"] == "completed":
                yield Edited(tuple(str(change["path"]) for change in item["changes"]))
            case "agent_message" if completed:
                yield Said(item["text"])
            case "error" if completed:
                yield Noticed(str(item["message"]))
            case "mcp_tool_call" | "web_search" | "collab_tool_call" as kind:
                what = " ".join(str(item[name]) for name in ("server", "tool", "query") if item.get(name)) or kind
                yield Ran(what, ok=item.get("status") != "failed") if completed else Runs(what)
            case "agent_message" | "file_change" | "error" | "reasoning" | "todo_list":
                pass
            case kind:
                yield Unknown(f"item {kind}")


def _inner(command: str) -> str:
    """Return what codex runs, without the shell that it runs everything in: /bin/bash -lc 'make'."""
    try:
        shell, flag, inner = shlex.split(command)
    except ValueError:
        return command
    return inner if flag == "-lc" and shell.endswith("sh") else command


class Claude(JsonReader):
    """claude -p --output-format stream-json --verbose"""

    ANSWER = "StructuredOutput"  # the tool that its schema becomes: no work

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}  # id -> what
        self._counted: set[str] = set()  # messages whose tokens are counted: one may come in several events
        self._ran = 0  # calls that were not refused

    def is_terminal(self, event: Line) -> bool:
        return event.get("type") == "result"

    def read(self, event: Line) -> Iterator[Event]:
        match event["type"]:
            case "system" if event["subtype"] == "init":
                yield Began(event.get("model"), event.get("claude_code_version"))
            case "system" if event["subtype"] == "api_retry":
                yield Noticed(f"retry {event['attempt']} of {event['max_retries']}: {event['error']}")
            case "assistant":
                message = event["message"]
                yield from self._tokens(message)
                for part in message["content"]:
                    yield from self._part(part)
            case "user":
                content = event["message"]["content"]
                for part in content if isinstance(content, list) else ():
                    if part["type"] == "tool_result" and part["tool_use_id"] in self._calls:
                        yield from self._read_result(part)
            case "result":
                yield from self._result(event)
            case "system" | "stream_event" | "rate_limit_event" | "tool_progress":
                pass
            case kind:
                yield Unknown(str(kind))

    def _tokens(self, message: Line) -> Iterator[Event]:
        if str(message.get("id")) not in self._counted:
            self._counted.add(str(message.get("id")))
            yield _anthropic(message["usage"], requests=1)

    def _part(self, part: Line) -> Iterator[Event]:
        if part["type"] == "text":
            yield Said(part["text"])
        elif part["type"] == "tool_use" and part["name"] == self.ANSWER:
            yield Said(as_text(part["input"]))
        elif part["type"] == "tool_use":
            self._calls[part["id"]], call = _call(part["name"], part["input"])
            yield call

    def _read_result(self, part: Line) -> Iterator[Event]:
        content = part.get("content") or ""
        texts = [one.get("text", "") for one in content] if isinstance(content, list) else [str(content)]
        ok = not part.get("is_error")
        self._ran += ok
        yield Ran(self._calls[part["tool_use_id"]], "\n".join(texts), ok)

    def _result(self, event: Line) -> Iterator[Event]:
        yield _anthropic(event["usage"], whole=True, cost=event["total_cost_usd"], requests=event["num_turns"])
        denied = event.get("permission_denials") or ()
        if event["is_error"] or event["subtype"] != "success":
            yield Ended(error=_claude_error(event))
        elif denied and not self._ran:
            yield Ended(error=f"it was not allowed to do anything: {len(denied)} calls were denied")
        elif event["num_turns"] == 0:
            yield Ended(error="it took no turn")
        else:
            yield Ended(answer=event.get("structured_output"))


def _claude_error(event: Line) -> str:
    words = event.get("result") or "; ".join(map(str, event.get("errors") or ()))
    kind = "" if event["subtype"] == "success" else str(event["subtype"])
    return ": ".join(one for one in (kind, words) if one) or "it reports an error and does not say which"


def _anthropic(usage: Line, *, requests: int, whole: bool = False, cost: float | None = None) -> Used:
    """Return what Anthropic counts; tokens that it had already are not among its input tokens."""
    cached = usage.get("cache_read_input_tokens") or 0
    sent = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
    return Used(sent, cached, usage["output_tokens"], cost, requests, whole)


class OpenCode(JsonReader):
    """opencode run --format json. It has no terminal event: a last step that finishes with `stop` is one."""

    def __init__(self) -> None:
        self._last: str | None = None  # why the last step finished
        self._error: str | None = None

    def is_terminal(self, event: Line) -> bool:
        return event.get("type") == "step_finish"

    def read(self, event: Line) -> Iterator[Event]:
        match event["type"]:
            case "step_start":
                self._last = None
            case "text":
                yield Said(event["part"]["text"])
            case "tool_use":
                yield from self._tool(event["part"])
            case "step_finish":
                part = event["part"]
                tokens, cache, self._last = part["tokens"], part["tokens"].get("cache", {}), str(part["reason"])
                cached = cache.get("read", 0)
                sent = tokens["input"] + cached + cache.get("write", 0)
                yield Used(sent, cached, tokens["output"], part.get("cost"), requests=1)
            case "error":
                error = event["error"]
                self._error = f"{error['name']}: {(error.get('data') or {}).get('message') or 'no message'}"
                yield Noticed(self._error)
            case "reasoning":
                pass
            case kind:
                yield Unknown(str(kind))

    def _tool(self, part: Line) -> Iterator[Event]:
        state = part["state"]
        ok = state["status"] == "completed" and (state.get("metadata") or {}).get("exit", 0) == 0
        what, call = _call(part["tool"], state.get("input") or {})
        yield call
        yield Ran(what, as_text(state.get("output") or state.get("error") or ""), ok)

    def end(self) -> list[Event]:
        if self._error:
            return [Ended(error=self._error)]
        if self._last in (None, "tool-calls"):
            return []
        return [Ended(error=None if self._last == "stop" else f"the model stopped: {self._last}")]


class Gemini(JsonReader):
    """gemini --output-format stream-json"""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}

    def is_terminal(self, event: Line) -> bool:
        return event.get("type") == "result"

    def read(self, event: Line) -> Iterator[Event]:
        match event["type"]:
            case "init":
                yield Began(event.get("model"))
            case "message":
                if event["role"] == "assistant":
                    yield Said(event["content"], part=bool(event.get("delta")))
            case "tool_use":
                self._calls[event["tool_id"]], call = _call(event["tool_name"], event.get("parameters") or {})
                yield call
            case "tool_result":
                what, failure = self._calls.get(event["tool_id"], ""), (event.get("error") or {}).get("message")
                yield Ran(what, str(event.get("output") or failure or ""), event["status"] == "success")
            case "error":
                yield Noticed(str(event["message"]))
            case "result":
                yield from self._result(event)
            case kind:
                yield Unknown(str(kind))

    def _result(self, event: Line) -> Iterator[Event]:
        stats = event.get("stats") or {}
        if event["status"] == "success":
            yield Used(stats["input_tokens"], stats.get("cached", 0), stats["output_tokens"], whole=True)
            yield Ended()
        else:
            yield Ended(error=str(event["error"]["message"]))


class Goose(JsonReader):
    """goose run --output-format stream-json"""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._said = ""
        self._error: str | None = None

    def is_terminal(self, event: Line) -> bool:
        return event.get("type") == "complete"

    def read(self, event: Line) -> Iterator[Event]:
        match event["type"]:
            case "message":
                message = event["message"]
                for part in message["content"]:
                    yield from self._part(part, message["role"])
            case "error":
                self._error = str(event["error"])
                yield Noticed(self._error)
            case "complete":
                sent, cached = event["input_tokens"], event.get("cache_read_input_tokens")
                yield Used(sent or 0, cached or 0, event["output_tokens"] or 0, whole=True)
                # A model that cannot be reached is exit 0 and words of goose's own: only the count tells.
                failed = self._error or (None if event["total_tokens"] else self._said or "no model was reached")
                yield Ended(error=failed)
            case "notification":
                pass
            case kind:
                yield Unknown(str(kind))

    def _part(self, part: Line, role: str) -> Iterator[Event]:
        match part["type"]:
            case "text" if role == "assistant":
                self._said = part["text"]
                yield Said(part["text"], part=True)
            case "toolRequest":
                value = part["toolCall"]["value"]
                self._calls[part["id"]], call = _call(value["name"], value.get("arguments") or {})
                yield call
            case "toolResponse":
                result = part["toolResult"]
                value = result.get("value") or {}
                shown = value.get("structuredContent") or {}
                output = f"{shown.get('stdout', '')}{shown.get('stderr', '')}" if shown else as_text(value)
                ok = result["status"] == "success" and not value.get("isError") and not shown.get("exit_code")
                yield Ran(self._calls.get(part["id"], ""), output, ok)


class Text:
    """Any program: what it prints is one message, and that it ends is its terminal event."""

    def __init__(self) -> None:
        self._any = False

    def take(self, line: str) -> list[Event]:
        if not line.strip() and not self._any:
            return []
        said = Said(f"{line}\n", part=self._any)
        self._any = True
        return [said]

    def end(self) -> list[Event]:
        return [Ended()]


EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit", "edit", "write", "patch", "write_file", "replace")


def _call(tool: str, given: Line) -> tuple[str, Runs | Edited]:
    """Return what a call is about, and the event that it is."""
    what = str(given.get("command") or f"{tool} {as_text(dict(given)) if given else ''}".strip())
    path = given.get("file_path") or given.get("filePath") or given.get("notebook_path")
    return what, Edited((str(path),)) if path and tool in EDITING else Runs(what)


READERS: Mapping[str, Callable[[], Reader]] = {
    "codex": Codex,
    "claude": Claude,
    "opencode": OpenCode,
    "gemini": Gemini,
    "goose": Goose,
    "text": Text,
}

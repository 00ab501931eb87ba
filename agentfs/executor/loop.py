"""The loop in which a model does one step: ask it, run what it calls, tell it what came of that, until it finishes.

    opening ──► model ──► calls ──► tools ──► what they gave back ──┐
                  ▲                   │                             │
                  └───────────────────┼─────────────────────────────┘
                                      └── finish, alone in its reply: the only way out by the model's own will

Everything else that ends it is code: the turn limit, a circle, the deadline, the stop sign, a limit of the run, or a
question to a person, with which it waits as files (`resume` goes on from there). Whether the step succeeded is
not decided here: what the model says is evidence for the checks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from agentfs.core.excerpts import as_text, head_and_tail
from agentfs.core.hashing import canonical
from agentfs.core.records import Failure, JsonObject
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson, json_value
from agentfs.executor import conversation
from agentfs.executor.attempt_log import Memory, Past
from agentfs.executor.checks import refute_claim
from agentfs.executor.conversation import (
    FAIL_AT,
    FINISH,
    FINISH_SPEC,
    HAND_OVER,
    OUTPUT_LENGTH,
    WARN_AT,
    WHOLE,
    Conversation,
    Finish,
    at_plan,
    finish_arguments,
    fit_arguments,
    hand_over_spec,
    is_plan,
    offers,
    opening,
    plan_shown,
    writes_plan,
)
from agentfs.executor.evidence import folder_of
from agentfs.executor.task import Asked, Task, failure_of, no_model
from agentfs.models.base import Model, ModelError, ModelSession, Reply, Request, ToolCall
from agentfs.models.text_protocol import PYTHON, find_tool, parse_object
from agentfs.storage.files import temp_name
from agentfs.tools.base import StepContext, Tool, ToolResult
from agentfs.tools.registry import input_problems

REPLY_LENGTH = 32_000  # characters of a person's answer
MOST_CALLS = 16  # in one reply
MOST_CLAIMS = 3  # to be done, that are sent back
ASK = "ask"
PROGRAMS = ("shell", "python")  # what a model may run only in a sandbox
KEPT_BYTES = 1024 * 1024  # of one output, before it is cut for the model

Ending = ToolResult | Asked


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call brought, as the model sees it."""

    text: str
    ok: bool
    sent_back: bool = False  # it would have ended the step with nothing done


def work(task: Task, context: StepContext) -> Ending:
    """Let a model do a step from its beginning."""
    return _work(task, context, None, "")


def go_on(task: Task, context: StepContext, memory: Memory, reply: str) -> Ending:
    """Let a model go on with a step that waited for a person, with their reply."""
    return _work(task, context, memory, reply)


def _work(task: Task, context: StepContext, memory: Memory | None, reply: str) -> Ending:
    if context.model is None or context.session is None:
        return ToolResult(failure=no_model(task.order.model))
    if task.loop.scratchpad and "write_file" not in (task.order.tools or ()):
        return ToolResult(failure=Failure(kind="input", message="without write_file there can be no PLAN.md"))
    messages, prompt = opening(task, context)
    loop = Loop(task, context, context.model, context.session, Conversation(messages))
    try:
        ended = loop.go_on_with(memory, reply) if memory else loop.run_to_the_end()
    except ModelError as error:
        ended = ToolResult(failure=failure_of(error, context))
    return ended if isinstance(ended, Asked) else replace(ended, usage=context.session.usage, prompt_sha256=prompt)


class Loop:
    """One attempt of a model at one step."""

    def __init__(
        self, task: Task, context: StepContext, model: Model, session: ModelSession, talk: Conversation
    ) -> None:
        order, rules, tools = task.order, task.loop, context.tools
        self._rules, self._context, self._model, self._session = rules, context, model, session
        self._talk, self._opening, self._repeats = talk, tuple(talk.messages), Repeats()
        self._tools = {name: tools[name] for name in order.tools or () if name in tools}
        self._specs: dict[str, ToolSpec] = {name: tool.spec for name, tool in self._tools.items()}
        self._specs |= {HAND_OVER: hand_over_spec(rules.split_over)} if rules.may_hand_over else {}
        self._specs |= {FINISH: FINISH_SPEC}
        self._before = folder_of(context) if rules.acceptance else None
        self._turn = 0
        self._refused = 0  # claims to be done that were sent back
        self._planned = not rules.scratchpad
        self._answerable = bool(order.input.keys() - WHOLE) or not self._tools  # by its input alone
        self._acted = False  # a tool has run, and did not fail
        self._sent_back = False  # it ended the step with nothing done, and that was not accepted
        self._printed = ""  # what the last tool gave back that did not fail
        self._notes: list[str] = []  # for the end of this turn
        self._ran = False  # a tool was called
        self._next = conversation.NEXT_FAILED  # how a model without native calls is asked to go on
        self._reply = Reply()

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────────

    def run_to_the_end(self) -> Ending:
        """Take turns until something ends them."""
        while self._turn < self._rules.max_turns:
            if failure := self._context.why_over():
                return ToolResult(failure=failure)
            if self._turn and self._turn == self._rules.max_turns - 1:
                self._talk.add_note(conversation.LAST_TURN)
            self._reply = self._understand(self._model.complete(self._request(), self._session))
            self._turn += 1
            if (ended := self._take(self._reply)) is not None:
                return ended
        return self._give_up(f"it took {self._turn} turns and did not finish")

    def _request(self) -> Request:
        messages = self._talk.fit()
        if self._rules.scratchpad and (plan := plan_shown(self._context)) is not None:
            messages = (*messages, {"role": "user", "content": conversation.plan_note(plan)})
        return Request("executor", messages, offers(self._specs))

    def _understand(self, reply: Reply) -> Reply:
        """Return a reply with its tools by their own names; of one that was cut short no call is taken."""
        calls = () if reply.finish == "length" else reply.tool_calls
        return replace(reply, tool_calls=tuple(replace(call, name=self._find_name(call.name)) for call in calls))

    def _find_name(self, name: str) -> str:
        return find_tool(name, self._specs) or name

    def _take(self, reply: Reply) -> Ending | None:
        if reply.restart:
            self._begin_again(reply)
            return None
        self._talk.add_message(reply.message())
        if not reply.tool_calls:
            return self._remind(reply)
        return self._carry_out(reply.tool_calls)

    def _begin_again(self, reply: Reply) -> None:
        """Forget the conversation so far: nothing was run, and from now on the model gets words alone."""
        self._context.log("told", {"turn": self._turn, "said": reply.text, "text": conversation.IN_WORDS})
        self._talk, self._notes = Conversation(self._opening), []

    def _remind(self, reply: Reply) -> Ending | None:
        """Answer mere words: they end nothing."""
        note = conversation.CUT if reply.finish == "length" else self._reminder()
        self._context.log("told", {"turn": self._turn, "said": reply.text, "text": note})
        ended = self._notice_repeats(Past(None, reply.text, note))
        if reply.spoken and not self._ran:
            self._talk = Conversation(self._opening)  # a small model repeats its own replies: it is not shown them
        self._end_turn(note)
        return ended

    def _reminder(self) -> str:
        """Return what mere words are answered with; of the end a small model hears only when something was done."""
        if not self._reply.spoken:
            return conversation.PROSE
        return conversation.NOTHING_RUN_OR_DONE if self._acted or self._answerable else conversation.NOTHING_RUN

    def _carry_out(self, calls: Sequence[ToolCall]) -> Ending | None:
        for call in calls:
            if (ended := self._one(call)) is not None:
                return ended
        self._end_turn(*self._spoken_note())
        return None

    def _spoken_note(self) -> tuple[str, ...]:
        """Return what a model without a visible `finish` gets after every result: how it goes on."""
        if not self._reply.spoken or not self._ran:
            return ()
        return (self._next,)

    def _end_turn(self, *first: str) -> None:
        for note in (*first, *self._notes):
            self._talk.add_note(note)
        self._notes = []

    def _give_up(self, why: str) -> ToolResult:
        """Return the end of a loop that got nowhere: the planner's business where there is none above it."""
        kind = "drift" if self._rules.may_hand_over else "model"
        return ToolResult(failure=Failure(kind=kind, message=why))

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────

    def _one(self, call: ToolCall) -> Ending | None:
        """Answer one call; return what ends the loop, if it does."""
        began = time.monotonic()
        answer = self._answer(call)
        if isinstance(answer, Asked):
            return answer
        result = answer if isinstance(answer, CallResult) else CallResult("", ok=answer.failure is None)
        ended = self._take_result(call, result, time.monotonic() - began)
        return answer if isinstance(answer, ToolResult) else ended

    def _take_result(self, call: ToolCall, result: CallResult, seconds: float) -> Ending | None:
        """Write down what a call brought, and show it to the model."""
        entry = {"tool": call.name, "arguments": call.arguments, "ok": result.ok, "result": result.text}
        entry |= {"sent_back": True} if result.sent_back else {}
        self._context.log("tool", {"turn": self._turn, "id": call.id, **entry, "seconds": round(seconds, 6)})
        self._talk.add_result(call.id, result.text)
        ended = self._notice_repeats(Past(call.name, call.arguments, result.text, result.ok, result.sent_back))
        failure = self._context.why_over()
        return ToolResult(failure=failure) if failure else ended

    def _notice_repeats(self, past: Past) -> ToolResult | None:
        """Look whether the loop goes in circles."""
        self._planned = self._planned or (past.ok and writes_plan(past.tool or "", past.arguments))
        self._sent_back = self._sent_back or past.sent_back
        if past.tool in self._tools:
            self._ran, self._next = True, conversation.NEXT if past.ok else conversation.NEXT_FAILED
            self._acted, self._printed = (True, past.result) if past.ok else (self._acted, self._printed)
        count = self._repeats.count(past.tool or "", past.arguments, past.result)
        if count == WARN_AT:
            self._notes.append(conversation.repeat_warning(past.tool or "", count))
        if count < FAIL_AT:
            return None
        what = f"called {past.tool} with the same arguments" if past.tool else "said the same"
        return self._give_up(f"it went in circles: it {what} {count} times, with the same result")

    def _answer(self, call: ToolCall) -> CallResult | Ending:
        if refused := self._refusal(call):
            return CallResult(refused, ok=False)
        spec, tool = self._specs[call.name], self._tools.get(call.name)
        try:
            arguments = parse_object(call.arguments)
        except NotJson as error:
            return CallResult(conversation.not_json(str(error)), ok=False)
        given = fit_arguments(spec, finish_arguments(arguments) if call.name == FINISH else arguments)
        if problems := input_problems(spec, given):
            return CallResult(conversation.wrong_arguments(problems), ok=False)
        if call.name == FINISH:
            return self._finish(Finish.of(given), has_output="output" in given)
        if call.name == HAND_OVER:
            return ToolResult(failure=Failure(kind="drift", message=str(given["why"])))
        if call.name == ASK or tool is None:
            return self._ask(call, str(given["question"]))
        in_plan = self._rules.scratchpad and is_plan(given)
        return call_tool(tool, given, at_plan(self._context) if in_plan else self._context)

    def _refusal(self, call: ToolCall) -> str | None:
        """Return why a call is not even looked at; None if it is."""
        if call in self._reply.tool_calls[MOST_CALLS:]:
            return conversation.MANY
        if call.name not in self._specs:
            return conversation.unknown(call.name, self._specs)
        if not self._planned and call.name != HAND_OVER and not writes_plan(call.name, call.arguments):
            return conversation.PLAN_FIRST
        if call.name in (FINISH, HAND_OVER) and len(self._reply.tool_calls) > 1:
            return conversation.ALONE  # it would claim what it has not seen
        confined = self._context.confinement.sandbox != "none" or self._rules.unconfined
        return conversation.UNCONFINED if call.name in PROGRAMS and not confined else None

    def _finish(self, claim: Finish, *, has_output: bool) -> CallResult | ToolResult:
        if claim.ok and claim.blocked:
            return CallResult(conversation.CONTRADICTION, ok=False)
        if claim.ok and not (self._acted or self._answerable or self._sent_back):
            nothing = conversation.NOTHING_RUN if self._reply.spoken else conversation.NOTHING_DONE
            return CallResult(nothing, ok=False, sent_back=True)
        if claim.ok and self._reply.spoken and not has_output:
            claim = replace(claim, output=self._printed)  # "DONE", and no more: the answer is what was printed
        if claim.ok and (wrong := refute_claim(self._rules.acceptance, self._before, self._context, claim.output)):
            return self._send_back(wrong)
        return claim.result("model", self._context)

    def _send_back(self, wrong: Sequence[str]) -> CallResult | ToolResult:
        """Send back a claim that the plan's checks do not bear out; one too many is drift."""
        self._refused += 1
        self._next = conversation.another_way(can_python=PYTHON in self._tools)  # what it claims is not offered again
        if self._refused > MOST_CLAIMS:
            return self._give_up(f"it claimed to be done against a failing check: {wrong[0]}")
        return CallResult(conversation.not_accepted(wrong), ok=False)

    # ── a person ────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: ToolCall, question: str) -> Asked:
        memory: JsonObject = {
            "turn": self._turn,
            "number": self._session.number,
            "id": call.id,
            "message": self._reply.message(),
            **({"spoken": True} if self._reply.spoken else {}),
        }
        return Asked(question, memory)

    def go_on_with(self, memory: Memory, reply: str) -> Ending:
        """Take up the conversation where it stopped, and go on."""
        self._talk, self._turn, self._reply = Conversation(_without_plan(memory)), memory.turn, memory.reply
        for past in memory.before:
            self._notice_repeats(past)
        self._notes = []  # those of earlier turns are in the messages
        self._talk.add_message(memory.reply.message())
        for call, past in zip(memory.reply.tool_calls, memory.now, strict=False):
            self._talk.add_result(call.id, past.result)
            self._notice_repeats(past)
        asked, *left = memory.reply.tool_calls[len(memory.now) :]
        text = self._context.mask.text(head_and_tail(reply.strip("\r\n"), REPLY_LENGTH))
        ended = self._take_result(asked, CallResult(text, ok=True), 0.0) or self._carry_out(left)
        return ended or self.run_to_the_end()


def _without_plan(memory: Memory) -> Sequence[JsonObject]:
    """Return the messages of the last request without the note about PLAN.md, which is made again every turn."""
    last = str(memory.messages[-1].get("content"))
    return memory.messages[:-1] if last.startswith(conversation.PLAN_NOTE) else memory.messages


# ── one call of a tool ─────────────────────────────────────────────────────────────────────────────────


def call_tool(tool: Tool, given: JsonObject, context: StepContext) -> CallResult:
    """Run a tool; what of its output does not fit into a message is kept nowhere."""
    spill = context.output_file.with_name(temp_name("output"))
    try:
        result = tool.call(given, replace(context, output_bytes=KEPT_BYTES, output_file=spill))
        whole = spill.stat().st_size if result.cut else 0
    finally:
        spill.unlink(missing_ok=True)
    text = _describe_failure(result.failure) if result.failure else as_text(result.output)
    return CallResult(head_and_tail(context.mask.text(text), OUTPUT_LENGTH, whole), ok=result.failure is None)


def _describe_failure(failure: Failure) -> str:
    hint = (
        f" ({failure.hint})" if failure.hint and failure.kind != "exit" else ""
    )  # of a program's end it says it all
    return f"It failed ({failure.kind}): {failure.message}{hint}"


# ── circles ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Repeats:
    """Sees that a loop goes in circles: the same call with the same result, again and again.

    Repeats are counted since the last call that brought something new, so that running the same tests after every
    edit is no circle, while A A A and A B A B A B are.
    """

    _seen: set[bytes] = field(default_factory=set)
    _since: dict[bytes, int] = field(default_factory=dict)  # how often each came since something was new

    def count(self, tool: str, arguments: str, result: str) -> int:
        """Take one more call, and return how often it has come, with this very result, since something was new."""
        mark = sha256("\0".join((tool, _same(arguments), result)).encode("utf-8", "replace")).digest()
        if mark not in self._seen:
            self._seen.add(mark)
            self._since.clear()
        self._since[mark] = self._since.get(mark, 0) + 1
        return self._since[mark]


def _same(arguments: str) -> str:
    """Return arguments so that those which mean the same are the same text."""
    try:
        return canonical(json_value(arguments)).decode("utf-8")
    except NotJson:
        return arguments

"""The loop in which a model does one step: ask it, run what it calls, tell it what came of that, until it finishes.

    opening ──► model ──► calls ──► tools ──► what they gave back ──┐
                  ▲                   │                             │
                  └───────────────────┼─────────────────────────────┘
                                      └── finish, alone in its reply: the only way out by the model's own will

Everything else that ends it is code: the turn limit, a circle, the deadline, the stop sign, a limit of the run, or a
question to a person, with which it waits as files (`rebuilding` goes on from there). Whether the step succeeded is
not decided here: what the model says is evidence for the checks.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentfs.core.excerpts import as_text, head_and_tail
from agentfs.core.records import Failure, JsonObject, Order
from agentfs.core.tool_spec import ToolSpec
from agentfs.core.values import NotJson
from agentfs.executor import words
from agentfs.executor.arguments import arguments_of, fitted
from agentfs.executor.calling import OUTPUT_LENGTH, Said, call_tool
from agentfs.executor.conversation import Conversation
from agentfs.executor.desk import Asked, Desk
from agentfs.executor.ends import failure_of, no_model, time_is_up
from agentfs.executor.offers import FINISH, FINISH_SPEC, HAND_OVER, Finish, finish_arguments, hand_over_spec, offers
from agentfs.executor.opening import WHOLE, opening
from agentfs.executor.rebuilding import Memory, Past
from agentfs.executor.repeats import FAIL_AT, WARN_AT, Repeats
from agentfs.executor.scratchpad import at_plan, is_plan, plan_shown, writes_plan
from agentfs.models.base import Model, ModelError, ModelSession, Reply, Request, ToolCall
from agentfs.models.text_protocol import find_tool
from agentfs.tools.base import Bench, Tool, ToolResult
from agentfs.tools.output import text_result, value_result
from agentfs.tools.registry import input_problems

REPLY_LENGTH = 32_000  # characters of a person's answer
MOST_CALLS = 16  # in one reply
MOST_CLAIMS = 3  # to be done, that are sent back
ASK = "ask"
PROGRAMS = ("shell", "python")  # what a model may run only in a sandbox


Ending = ToolResult | Asked


def work(order: Order, desk: Desk, tools: Mapping[str, Tool], bench: Bench) -> Ending:
    """Let a model do a step from its beginning."""
    return _worked(order, desk, tools, bench, None, "")


def go_on(order: Order, desk: Desk, tools: Mapping[str, Tool], bench: Bench, memory: Memory, reply: str) -> Ending:
    """Let a model go on with a step that waited for a person, with what they said."""
    return _worked(order, desk, tools, bench, memory, reply)


def _worked(
    order: Order, desk: Desk, tools: Mapping[str, Tool], bench: Bench, memory: Memory | None, reply: str
) -> Ending:
    if bench.model is None or bench.line is None:
        return ToolResult(failure=no_model(order.model))
    if desk.scratchpad and "write_file" not in (order.tools or ()):
        return ToolResult(failure=Failure(kind="input", message="without write_file there can be no PLAN.md"))
    messages, prompt = opening(order, desk, bench.mask)
    loop = Loop(order, desk, tools, bench, bench.model, bench.line, Conversation(messages))
    try:
        ended = loop.answered(memory, reply) if memory else loop.to_the_end()
    except ModelError as error:
        ended = ToolResult(failure=failure_of(error, bench))
    return ended if isinstance(ended, Asked) else replace(ended, usage=bench.line.usage, prompt_sha256=prompt)


class Loop:
    """One attempt of a model at one step."""

    def __init__(
        self,
        order: Order,
        desk: Desk,
        tools: Mapping[str, Tool],
        bench: Bench,
        model: Model,
        line: ModelSession,
        conversation: Conversation,
    ) -> None:
        self._desk, self._bench, self._model, self._line = desk, bench, model, line
        self._talk, self._opening, self._repeats = conversation, tuple(conversation.messages), Repeats()
        self._tools = {name: tools[name] for name in order.tools or () if name in tools}
        self._specs: dict[str, ToolSpec] = {name: tool.spec for name, tool in self._tools.items()}
        self._specs |= {HAND_OVER: hand_over_spec(desk.split_over)} if desk.may_hand_over else {}
        self._specs |= {FINISH: FINISH_SPEC}
        self._turn = 0
        self._refused = 0  # claims to be done that were sent back
        self._planned = not desk.scratchpad
        self._answerable = bool(order.input.keys() - WHOLE) or not self._tools  # by its input alone
        self._acted = False  # a tool has run, and did not fail
        self._sent_back = False  # it ended the step with nothing done, and was told
        self._printed = ""  # what the last tool gave back that did not fail
        self._notes: list[str] = []  # to be told at the end of this turn
        self._ran = False  # a tool was called
        self._last_ok = False  # the latest one did not fail
        self._reply = Reply()

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────────

    def to_the_end(self) -> Ending:
        """Take turns until something ends them."""
        while self._turn < self._desk.max_turns:
            if failure := time_is_up(self._bench):
                return ToolResult(failure=failure)
            if self._turn and self._turn == self._desk.max_turns - 1:
                self._talk.told(words.LAST_TURN)
            self._reply = self._understood(self._model.complete(self._request(), self._line))
            self._turn += 1
            if (ended := self._take(self._reply)) is not None:
                return ended
        return self._lost(f"it took {self._turn} turns and did not finish")

    def _request(self) -> Request:
        messages = self._talk.fitted()
        if self._desk.scratchpad and (plan := plan_shown(self._bench)) is not None:
            messages = (*messages, {"role": "user", "content": words.plan_note(plan)})
        return Request("executor", messages, offers(self._specs))

    def _understood(self, reply: Reply) -> Reply:
        """Return a reply with its tools by their own names; of one that was cut short no call is taken."""
        calls = () if reply.finish == "length" else reply.tool_calls
        return replace(reply, tool_calls=tuple(replace(call, name=self._known(call.name)) for call in calls))

    def _known(self, name: str) -> str:
        return find_tool(name, self._specs) or name

    def _take(self, reply: Reply) -> Ending | None:
        if reply.restart:
            self._begin_again(reply)
            return None
        self._talk.said(reply.message())
        if not reply.tool_calls:
            return self._remind(reply)
        return self._carry_out(reply.tool_calls)

    def _begin_again(self, reply: Reply) -> None:
        """Forget what was said so far: nothing was run, and from now on the model is spoken to in words alone."""
        self._bench.log("told", {"turn": self._turn, "said": reply.text, "text": words.IN_WORDS})
        self._talk, self._notes = Conversation(self._opening), []

    def _remind(self, reply: Reply) -> Ending | None:
        """Answer mere words: they end nothing."""
        note = words.CUT if reply.finish == "length" else self._reminder()
        self._bench.log("told", {"turn": self._turn, "said": reply.text, "text": note})
        ended = self._noticed(Past(None, reply.text, note))
        if reply.spoken and not self._ran:
            self._talk = Conversation(self._opening)  # a small model repeats what it once said: it is not shown it
        self._end_turn(note)
        return ended

    def _reminder(self) -> str:
        """Return what mere words are answered with; of the end a small model hears only when something was done."""
        if not self._reply.spoken:
            return words.PROSE
        return words.NOTHING_RUN_OR_DONE if self._acted or self._answerable else words.NOTHING_RUN

    def _carry_out(self, calls: Sequence[ToolCall]) -> Ending | None:
        for call in calls:
            if (ended := self._one(call)) is not None:
                return ended
        self._end_turn(*self._spoken_note())
        return None

    def _spoken_note(self) -> tuple[str, ...]:
        """Return what a model that has no `finish` to see is told after every result: how it goes on."""
        if not self._reply.spoken or not self._ran:
            return ()
        return (words.NEXT if self._last_ok else words.NEXT_FAILED,)

    def _end_turn(self, *first: str) -> None:
        for note in (*first, *self._notes):
            self._talk.told(note)
        self._notes = []

    def _lost(self, why: str) -> ToolResult:
        """Return the end of a loop that got nowhere: the planner's business where there is none above it."""
        kind = "drift" if self._desk.may_hand_over else "model"
        return ToolResult(failure=Failure(kind=kind, message=why))

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────

    def _one(self, call: ToolCall) -> Ending | None:
        """Answer one call; return what ends the loop, if it does."""
        began = time.monotonic()
        answer = self._answer(call)
        if isinstance(answer, Asked):
            return answer
        said = answer if isinstance(answer, Said) else Said("", ok=answer.failure is None)
        ended = self._brought(call, said, time.monotonic() - began)
        return answer if isinstance(answer, ToolResult) else ended

    def _brought(self, call: ToolCall, said: Said, seconds: float) -> Ending | None:
        """Write down what a call brought, and tell the model."""
        told = {"tool": call.name, "arguments": call.arguments, "ok": said.ok, "result": said.text}
        self._bench.log("tool", {"turn": self._turn, "id": call.id, **told, "seconds": round(seconds, 6)})
        self._talk.gave(call.id, said.text)
        ended = self._noticed(Past(call.name, call.arguments, said.text, said.ok))
        failure = time_is_up(self._bench)
        return ToolResult(failure=failure) if failure else ended

    def _noticed(self, past: Past) -> ToolResult | None:
        """Look whether the loop goes in circles."""
        self._planned = self._planned or (past.ok and writes_plan(past.tool or "", past.arguments))
        self._sent_back = self._sent_back or (
            past.tool == FINISH and past.result in (words.NOTHING_DONE, words.NOTHING_RUN)
        )
        if past.tool in self._tools:
            self._ran, self._last_ok = True, past.ok
            self._acted, self._printed = (True, past.result) if past.ok else (self._acted, self._printed)
        count = self._repeats.count(past.tool or "", past.arguments, past.result)
        if count == WARN_AT:
            self._notes.append(words.repeated(past.tool or "", count))
        if count < FAIL_AT:
            return None
        what = f"called {past.tool} with the same arguments" if past.tool else "said the same"
        return self._lost(f"it went in circles: it {what} {count} times, with the same result")

    def _answer(self, call: ToolCall) -> Said | Ending:
        if refused := self._refusal(call):
            return Said(refused, ok=False)
        spec, tool = self._specs[call.name], self._tools.get(call.name)
        try:
            said = arguments_of(call.arguments)
        except NotJson as error:
            return Said(words.not_json(str(error)), ok=False)
        given = fitted(spec, finish_arguments(said) if call.name == FINISH else said)
        if problems := input_problems(spec, given):
            return Said(words.wrong_arguments(problems), ok=False)
        if call.name == FINISH:
            return self._finish(Finish.of(given), has_output="output" in given)
        if call.name == HAND_OVER:
            return ToolResult(failure=Failure(kind="drift", message=str(given["why"])))
        if call.name == ASK or tool is None:
            return self._ask(call, str(given["question"]))
        in_plan = self._desk.scratchpad and is_plan(given)
        return call_tool(tool, given, at_plan(self._bench) if in_plan else self._bench)

    def _refusal(self, call: ToolCall) -> str | None:
        """Return why a call is not even looked at; None if it is."""
        if call in self._reply.tool_calls[MOST_CALLS:]:
            return words.MANY
        if call.name not in self._specs:
            return words.unknown(call.name, self._specs)
        if not self._planned and call.name != HAND_OVER and not writes_plan(call.name, call.arguments):
            return words.PLAN_FIRST
        if call.name in (FINISH, HAND_OVER) and len(self._reply.tool_calls) > 1:
            return words.ALONE  # it would claim what it has not seen
        confined = self._bench.confinement.sandbox != "none" or self._desk.unconfined
        return words.UNCONFINED if call.name in PROGRAMS and not confined else None

    def _finish(self, said: Finish, *, has_output: bool) -> Said | ToolResult:
        if said.ok and said.blocked:
            return Said(words.CONTRADICTION, ok=False)
        if said.ok and not (self._acted or self._answerable or self._sent_back):
            return Said(words.NOTHING_RUN if self._reply.spoken else words.NOTHING_DONE, ok=False)
        if said.ok and self._reply.spoken and not has_output:
            said = replace(said, output=self._printed)  # "DONE", and no more: the answer is what was printed
        if said.blocked:
            return ToolResult(blocked=said.blocked, evidence=said.evidence)
        if not said.ok:
            message = head_and_tail(as_text(said.output or "the model gave up and did not say why"), OUTPUT_LENGTH)
            return ToolResult(failure=Failure(kind="model", message=message), evidence=said.evidence)
        if wrong := self._desk.accept(self._bench, said.output) if self._desk.accept else ():
            return self._not_accepted(wrong)
        give = text_result if isinstance(said.output, str) else value_result
        return replace(give(said.output, self._bench), surprise=said.surprising, evidence=said.evidence)

    def _not_accepted(self, wrong: Sequence[str]) -> Said | ToolResult:
        """Send back a claim that the plan's checks do not bear out; one too many is drift."""
        self._refused += 1
        self._last_ok = False  # what it claimed is not offered to it again
        if self._refused > MOST_CLAIMS:
            return self._lost(f"it claimed to be done against a failing check: {wrong[0]}")
        return Said(words.not_accepted(wrong), ok=False)

    # ── a person ────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: ToolCall, question: str) -> Asked:
        memory: JsonObject = {
            "turn": self._turn,
            "number": self._line.number,
            "id": call.id,
            "message": self._reply.message(),
            **({"spoken": True} if self._reply.spoken else {}),
        }
        return Asked(question, memory)

    def answered(self, memory: Memory, reply: str) -> Ending:
        """Take up the conversation where it stopped, and go on."""
        self._talk, self._turn, self._reply = Conversation(_without_plan(memory)), memory.turn, memory.reply
        for past in memory.before:
            self._noticed(past)
        self._notes = []  # what was told in earlier turns is in the messages
        self._talk.said(memory.reply.message())
        for call, past in zip(memory.reply.tool_calls, memory.now, strict=False):
            self._talk.gave(call.id, past.result)
            self._noticed(past)
        asked, *left = memory.reply.tool_calls[len(memory.now) :]
        text = self._bench.mask.text(head_and_tail(reply.strip("\r\n"), REPLY_LENGTH))
        ended = self._brought(asked, Said(text, ok=True), 0.0) or self._carry_out(left)
        return ended or self.to_the_end()


def _without_plan(memory: Memory) -> Sequence[JsonObject]:
    """Return the messages of the last request without the note about PLAN.md, which is made anew every turn."""
    last = str(memory.messages[-1].get("content"))
    return memory.messages[:-1] if last.startswith(words.PLAN_NOTE) else memory.messages

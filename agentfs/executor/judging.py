"""Let a model judge a condition in words, and believe it only as far as it can quote.

It sees the condition and the evidence that code gathered, nothing else. That it is met counts only with quotes that
really are in the evidence: code looks. An answer of another form, or with a quote that does not, is sent back once;
then the condition is not met.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentfs.core.excerpts import fence_text, head_and_tail
from agentfs.core.proof import Piece
from agentfs.core.records import Failure, JsonObject
from agentfs.core.text import flatten, one_line
from agentfs.core.values import NotJson, json_value
from agentfs.executor.conversation import Message
from agentfs.executor.evidence import OUTPUT_WORDS
from agentfs.models.base import Form, Garbled, Refused, Request, Unreachable
from agentfs.models.text_protocol import parse_truth
from agentfs.prompts import load_prompt
from agentfs.tools.base import StepContext

EVIDENCE_LENGTH = 16_000  # characters, all of it together
SHORTEST_QUOTE = 12  # characters
QUOTE_SHOWN = 300
_FIELDS: JsonObject = {  # in this order: what is found before what is concluded from it
    "quote": {"type": "string", "maxLength": 2000},
    "because": {"type": "string", "maxLength": 1000},
    "met": {"type": "boolean"},
}
FORM = Form(
    "verdict",
    {"type": "object", "properties": _FIELDS, "required": list(_FIELDS), "additionalProperties": False},
)
EVIDENCE = "## The evidence\n\n"
NO_MODEL = Failure(
    kind="unreachable",
    message="there is no model to judge it",
    hint="set OPENAI_API_KEY, or base_url under [executor]",
)
NO_EVIDENCE = "there is nothing to judge it by: no output, no evidence"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition is met, and what was found."""

    met: bool
    detail: str


def judge(condition: str, evidence: Sequence[Piece], context: StepContext) -> Verdict:
    """Return what a model finds; raises LimitReached, Unreachable or Stopped when it cannot be asked."""
    pieces = [Piece(one.label, context.mask.text(one.body)) for one in _fit(evidence)]
    if not pieces:
        return Verdict(met=False, detail=NO_EVIDENCE)
    if context.model is None or context.session is None:
        raise Unreachable(NO_MODEL)
    messages: list[Message] = [
        {"role": "system", "content": load_prompt("judge", context.confinement.workspace).text},
        {"role": "user", "content": _case(context.mask.text(condition), pieces)},
    ]
    try:
        reply = context.model.complete(Request("judge", tuple(messages), form=FORM), context.session)
        found = _evaluate(reply.text, pieces)
        if isinstance(found, Verdict):
            return found
        messages += [reply.message(), {"role": "user", "content": f"{found.problem} {found.again}"}]
        reply = context.model.complete(Request("judge", tuple(messages), form=found.form), context.session)
    except (Refused, Garbled) as error:
        return Verdict(met=False, detail=f"it could not be judged: {error.failure.message}")
    found = _evaluate(reply.text, pieces, found.because)
    if isinstance(found, Verdict):
        return found
    return Verdict(met=False, detail=f"the judge gave no answer that counts. {found.problem}")


def _fit(evidence: Sequence[Piece]) -> list[Piece]:
    """Return the evidence within its bounds: what is short is shown whole, the rest shares what is left."""
    pieces = [piece for piece in evidence if piece.body.strip()]
    left, waiting = EVIDENCE_LENGTH, sorted(len(piece.body) for piece in pieces)
    most = 0
    while waiting and waiting[0] <= (most := left // len(waiting)):
        left -= waiting.pop(0)
    return [Piece(one.label, head_and_tail(one.body, max(most, 200)) if waiting else one.body) for one in pieces]


def _case(condition: str, pieces: Sequence[Piece]) -> str:
    shown = "\n\n".join(f"### {one.label}\n\n{fence_text(one.body)}" if one.label else one.body for one in pieces)
    return f"## The condition\n\n{fence_text(condition)}\n\n{EVIDENCE}{shown}\n"


@dataclass(frozen=True, slots=True)
class _SendBack:
    """What is wrong with an answer; `because`: it says that the condition is met, and only its quote is wrong."""

    problem: str
    because: str | None = None

    @property
    def again(self) -> str:
        if self.because is None:
            return "Answer again, in that form."
        return "Copy one whole line of the evidence that shows it, and reply with nothing else."

    @property
    def form(self) -> Form | None:
        return FORM if self.because is None else None


def _evaluate(text: str, evidence: Sequence[Piece], because: str | None = None) -> Verdict | _SendBack:
    """Return the verdict of an answer, or what is wrong with it. `because`: an answer that lacked a quote."""
    answer = _object_in(text)
    if answer is None:
        if because is None:
            return _SendBack("That was not one JSON object.")
        answer = {"met": True, "because": because, "quote": text.strip().strip("`").strip()}
    met, why, quote = parse_truth(answer.get("met")), answer.get("because"), answer.get("quote")
    if not isinstance(met, bool):
        return _SendBack('"met" must be true or false.')
    why = one_line(why, 1000) if isinstance(why, str) and why.strip() else "it gave no reason"
    if not met:
        return Verdict(met=False, detail=why)
    if problem := _quote_problem(quote, evidence):
        return _SendBack(problem, why)
    return Verdict(met=True, detail=f"{why} (it quotes: {one_line(str(quote), QUOTE_SHOWN)!r})")


def _quote_problem(quote: object, evidence: Sequence[Piece]) -> str | None:
    """Return why a quote does not count: each of its lines must be in the evidence, and say something."""
    if not isinstance(quote, str) or not any(sign.isalnum() for sign in quote):
        return "You say that it is met, and quote nothing from the evidence."
    bodies = [_words(piece.body) for piece in evidence]
    lines = [line for part in quote.splitlines() if _words(line := flatten(part))]
    quotes = [flatten(quote)] if any(_words(quote) in body for body in bodies) else lines
    if not all(any(_words(one) in body for body in bodies) for one in quotes):
        return "Your quote is not in the evidence."
    if all(len(one) < SHORTEST_QUOTE or _words(one) in _words(OUTPUT_WORDS) for one in quotes):
        return (
            f"Your quote is too short to show anything: quote at least {SHORTEST_QUOTE} characters of the evidence."
        )
    return None


def _words(text: str) -> str:
    """Return a text as its words: how they are set apart is no matter of truth."""
    return re.sub(r"[\s,;:.'\"`]+", " ", text).strip()


def _object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object that an answer is, or that is alone between words and fences."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json_value(text[start : end + 1])
    except NotJson:
        return None
    return value if isinstance(value, dict) else None

"""Let a model judge a condition in words, and believe it only as far as it can quote.

It sees the condition and the evidence, nothing else. That it is met counts only with a quote that really stands in
the evidence: code looks. An answer of another form, or with a quote that does not, is told so, once; then it is not
met.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentfs.core.cutting import fenced, head_and_tail, one_line
from agentfs.core.records import JsonObject
from agentfs.executor.conversation import Message
from agentfs.models.base import Form, Request
from agentfs.models.errors import Garbled, Refused
from agentfs.models.loose_json import truth_of
from agentfs.prompts import load_prompt
from agentfs.tools.base import Bench
from agentfs.tools.values import NotJson, json_value

EVIDENCE_LENGTH = 16_000  # characters, all of it together
TRIES = 2
QUOTE_SHOWN = 300
_FIELDS: JsonObject = {
    "met": {"type": "boolean"},
    "because": {"type": "string", "maxLength": 1000},
    "quote": {"type": "string", "maxLength": 2000},
}
FORM = Form(
    "verdict",
    {"type": "object", "properties": _FIELDS, "required": list(_FIELDS), "additionalProperties": False},
)
NO_MODEL = "there is no model to judge it: set OPENAI_API_KEY, or base_url under [executor]"
NO_EVIDENCE = "there is nothing to judge it by: no output, no evidence"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition is met, and what was found."""

    met: bool
    detail: str


def judge(condition: str, evidence: Sequence[str], bench: Bench) -> Verdict:
    """Return what a model finds; raises LimitReached, Unreachable or Stopped when it cannot be asked."""
    shown = bench.mask.text(_shown(evidence))
    if not shown.strip():
        return Verdict(met=False, detail=NO_EVIDENCE)
    if bench.model is None or bench.line is None:
        return Verdict(met=False, detail=NO_MODEL)
    messages: list[Message] = [
        {"role": "system", "content": load_prompt("judge", bench.confinement.workspace).text},
        {"role": "user", "content": _case(bench.mask.text(condition), shown)},
    ]
    problem = ""
    for _ in range(TRIES):
        try:
            reply = bench.model.complete(Request("judge", tuple(messages), form=FORM), bench.line)
        except (Refused, Garbled) as error:
            return Verdict(met=False, detail=f"it could not be judged: {error.failure.message}")
        found = _weighed(reply.text, shown)
        if isinstance(found, Verdict):
            return found
        problem = found
        messages += [reply.message(), {"role": "user", "content": f"{problem} Answer again, in that form."}]
    return Verdict(met=False, detail=f"the judge gave no answer that counts. {problem}")


def _shown(evidence: Sequence[str]) -> str:
    return head_and_tail("\n\n".join(piece for piece in evidence if piece.strip()), EVIDENCE_LENGTH)


def _case(condition: str, shown: str) -> str:
    return f"## The condition\n\n{fenced(condition)}\n\n## The evidence\n\n{fenced(shown)}\n"


def _weighed(text: str, evidence: str) -> Verdict | str:
    """Return the verdict of an answer, or what is wrong with the answer."""
    answer = _object_in(text)
    if answer is None:
        return "That was not one JSON object."
    met, because, quote = truth_of(answer.get("met")), answer.get("because"), answer.get("quote")
    if not isinstance(met, bool):
        return '"met" must be true or false.'
    because = one_line(because, 1000) if isinstance(because, str) and because.strip() else "it gave no reason"
    if not met:
        return Verdict(met=False, detail=because)
    if not isinstance(quote, str) or not any(sign.isalnum() for sign in quote):
        return "You say that it is met, and quote nothing from the evidence."
    if _flat(quote) not in _flat(evidence):
        return "Your quote does not stand in the evidence, word for word."
    return Verdict(met=True, detail=f"{because} (it quotes: {one_line(quote, QUOTE_SHOWN)!r})")


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object that an answer is, or that stands alone between words and fences."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json_value(text[start : end + 1])
    except NotJson:
        return None
    return value if isinstance(value, dict) else None

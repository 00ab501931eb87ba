"""A script in a file: what the models say, one reply after the other, in YAML or JSON.

- to: planner                       # or executor; absent: the next request
  plan: {steps: […]}                # one of: plan (JSON, in whatever form is asked for), calls, says
- to: executor
  when: solar                       # only for a request whose messages hold this
  says: Solar power has grown.
- to: executor
  calls:
    - [finish, {ok: true, output: …, surprising: null, blocked: null, evidence: []}]
"""

from pathlib import Path
from typing import Any

from agentfs.core.documents import Document, read_yaml
from agentfs.core.problems import Rejected
from agentfs.errors import BadFile, UserError
from agentfs.testing import replies
from agentfs.testing.replies import ScriptedReply
from agentfs.testing.server import ScriptedServer

MODELS = {"planner": "scripted-planner", "executor": "scripted-executor"}  # what the two are called in records
KINDS = ("plan", "calls", "says")


def load_script(path: Path, server: ScriptedServer) -> int:
    """Put the replies of a file into a server; return how many. UserError or BadFile if it is no script."""
    entries = _document(path).value
    if not isinstance(entries, list):
        raise UserError(f"{path}: a script is a list of replies")
    for number, entry in enumerate(entries, start=1):
        try:
            server.add(_reply(entry), to=MODELS.get(entry.get("to"), entry.get("to")), when=entry.get("when"))
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: reply {number} is none: {error}") from None
    return len(entries)


def _document(path: Path) -> Document:
    try:
        return read_yaml(path.read_bytes())
    except Rejected as rejected:
        raise BadFile(str(path), rejected.problems) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _reply(entry: dict[str, Any]) -> ScriptedReply:
    if unknown := sorted(entry.keys() - {"to", "when", *KINDS}):
        raise ValueError(f"there is no field {unknown[0]!r}: it may hold to, when and one of {', '.join(KINDS)}")
    match [(kind, entry[kind]) for kind in KINDS if kind in entry]:
        case [("plan", value)]:
            return replies.plan(value)
        case [("calls", [*wanted])]:
            return replies.calls(*((tool, given) for tool, given in wanted))
        case [("says", str() as text)]:
            return replies.says(text)
        case _:
            raise ValueError(f"it must hold one of {', '.join(KINDS)}")

"""For tests of one's own: a model that answers from a script, and a server that does so over HTTP.

    with ScriptedServer() as server:
        server.plan({"steps": […]})
        server.calls(("write_file", {"path": "a.txt", "content": "hello"}))
        server.calls(("finish", {"ok": True, …}))
        …                                   # base_url = server.url
        server.done()                       # nothing was asked beyond the script, and nothing of it is left

And a recorded run as a test: `replay(folder).departures == ()`.

Nothing of agentfs itself imports this.
"""

from agentfs.replay.recording import Departure, Unreplayable
from agentfs.replay.replay import Replayed, replay
from agentfs.testing.model import Scripted
from agentfs.testing.replies import ScriptedReply
from agentfs.testing.server import ScriptedServer

__all__ = ["Departure", "Replayed", "Scripted", "ScriptedReply", "ScriptedServer", "Unreplayable", "replay"]

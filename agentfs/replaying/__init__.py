"""Run a recorded run again, from its own files: no network, no program, no cost.

    recording   the files of a run, read: what was decided, and what came from outside
    saving      a copy of them for a test, with all that a replay needs
    tapes       its conversations: requests, replies, what the tools gave back
    timeline    in which order it all happened (pure)
    playback    how far all that has been played, and what was found to differ
    models      models that give what the recording says they gave (`requests`: whether they are asked the same)
    tools       tools and checks that do so
    hints       what the recorded process had that no record says (pure)
    stage       a fresh workspace, a world without an outside, and a driver that waits for its cue
    conductor   the timeline played on the real engine
    compare     where two recordings of one run differ (pure)

What decides is real: reader, derive, decide, deeds, the planner's parsing and weighing, the executor's loop,
verdicts. What comes from outside is the recording's: replies of models, results of tools and checks, and the acts of
people, each at its place. So a difference is a difference of agentfs, of a prompt, or of the recording.
"""

from agentfs.replaying.conductor import Replayed, replay
from agentfs.replaying.recording import Unreplayable

__all__ = ["Replayed", "Unreplayable", "replay"]

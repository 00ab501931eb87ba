"""Replay a recorded run from its own files: no network, no program, no cost, no change of the run.

    recording        the files of a run: its records, the order in which they appeared, its conversations
    playback         models, tools and checks that give what the recording says they gave
    recorded_world   a world made of them, and a driver that works in it
    replay           the fold: for every prefix of the files, what is decided must be what came next

Reader, derive, decide, perform, the planner and the executor's loop are the real ones. Replies of models, results of
tools and checks, and the acts of people come from the recording. So a difference is one of agentfs, of a prompt, or
of the recording.
"""

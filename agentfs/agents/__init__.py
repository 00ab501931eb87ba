"""Coding agents: programs with a loop and tools of their own that do a step. What they claim is never the verdict."""

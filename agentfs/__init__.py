"""agentfs: plans on disk, one step at a time, every revision in git."""

__version__ = "0.1.0"

"""The pure core: no files, no clock, no randomness, no environment."""

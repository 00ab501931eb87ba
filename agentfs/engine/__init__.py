"""Drives runs: read, derive, decide, perform; and everything a driver needs for it."""

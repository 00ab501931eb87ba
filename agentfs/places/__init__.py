"""Where attempts may run: on a Dask cluster, or through any command that starts `agentfs attempt` elsewhere.

    driver                                    the attempt, anywhere
      │ ── assignment ─────────────────────────►  the order, and what it needs
      │ ◄─ begin ──────────────────────────────   it would start now
      │    (creates the claim, once)
      │ ── go ─────────────────────────────────►  a second start of the same attempt gets none, and does nothing
      │ ◄─ append, put ────────────────────────   lines of its log, its result
      │ ── alive, stop ────────────────────────►  after 30 s without a word the attempt ends itself

The driver is the only writer of a run's files. No secret is sent: variables are named, and read there.
"""

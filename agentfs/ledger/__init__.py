"""The ledger: the git history of `runs/`. One commit per revision, one per outcome.

Owns `runs/.git` and nothing else: it never writes to a run's folder and never reads one. Objects and the branch
are written directly, so that no hook, filter or setting of a repository can run anything; git itself is only
asked to keep the index in step, to pack what is old, and for the commits of one run; agentfs works without it.

    ledger.py      Ledger: commit, committed, history, trouble
    objects.py     blobs, trees and commits on disk: durable, and sound before they are relied on
    packs.py       many objects in one file, git's and ours
    files.py       durable files
    trees.py       git's tree format, and one run's place in it (pure)
    refs.py        the branch `main`: read it, move it by compare-and-swap
    claims.py      locks that name their process, and taking turns between processes
    index.py       the index in step with the branch, without touching what a person staged
    history.py     commits, read back
    maintenance.py a ledger of many runs kept fast: packs, the commit-graph
    program.py     git as a program, with everything off that a repository could make it run
    setup.py       a new repository, its list of ignored files, what is wrong with one
    showing.py     a person's git shows plan.json by meaning
    identity.py    git's settings read as text, and who the person is
"""

from agentfs.ledger.errors import LedgerBroken, LedgerBusy, LedgerError
from agentfs.ledger.history import LedgerCommit
from agentfs.ledger.identity import person
from agentfs.ledger.ledger import Entry, Ledger, Still
from agentfs.ledger.maintenance import Maintenance
from agentfs.ledger.trees import committable

__all__ = [
    "Entry",
    "Ledger",
    "LedgerBroken",
    "LedgerBusy",
    "LedgerCommit",
    "LedgerError",
    "Maintenance",
    "Still",
    "committable",
    "person",
]

"""The ledger: the git history of `runs/`. One commit per revision, one per outcome.

Owns `runs/.git`. Git does the work, started so that no hook, filter or setting of a repository can run anything; runs
go on without it, and their commits follow once it is there.

    git.py         git through GitPython: a clean environment, settings, the person, fsck
    repository.py  a new repository, its list of ignored files, what is wrong with one
    claims.py      the branch `main`, locks that name their process, taking turns between processes
    index.py       the index in step with the branch, without touching what a person staged
    fast_import.py commits stored by git, many at a time
    ledger.py      Ledger: commit, committed, history
    committer.py   what a run's folder has that the ledger has not, committed in the background, many runs at a time
    maintenance.py a ledger of many runs kept fast: packs, the commit-graph; and when
    forget.py      runs taken out of the tree, and their files deleted
    verify.py      whether files and ledger agree; walk.py reads the commits for it
"""

from agentfs.ledger.git import LedgerBroken, LedgerBusy, LedgerError, person
from agentfs.ledger.ledger import Entry, Ledger, LedgerCommit, Still, blob_sha, committable

__all__ = [
    "Entry",
    "Ledger",
    "LedgerBroken",
    "LedgerBusy",
    "LedgerCommit",
    "LedgerError",
    "Still",
    "blob_sha",
    "committable",
    "person",
]

"""The ledger: the git history of `runs/`. One commit per revision, one per outcome.

Owns `runs/.git`. Git does the work, started so that no hook, filter or setting of a repository can run anything; runs
go on without it, and their commits follow once it is there.

    git.py          git through GitPython: a clean environment, settings, who the person is
    repository.py   a new repository, its list of ignored files, what is wrong with one
    branch.py       commits onto `main`: taking turns, locks, storing by git, the index in step
    ledger.py       Ledger: commit, what is committed, history
    committer.py    what a run's folder has that the ledger has not, committed in the background, many runs at a time
    maintenance.py  a ledger of many runs kept fast: packs, the commit-graph; and when
    forget.py       runs taken out of the tree, and their files deleted
    verify.py       whether files and ledger agree; history.py does it for the commits
    worktrees.py    the worktree of an isolated run, in a person's repository
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

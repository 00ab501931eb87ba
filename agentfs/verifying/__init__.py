"""Prove that the files of runs and the ledger agree, or say in which file they do not, and what to do.

    reading.py     one run's folder -> its records and hashes (core/agreement.py holds them against each other)
    holding.py     the folder held against what `main` holds of the run now
    chronicle.py   the commits of `main`, oldest first, with what each changed, as git tells it
    story.py       one commit per revision, in order, saying what the revision says; nothing rewritten
    verify.py      all of it, over one run or all of them

What is compared: a file that is written once with every commit it is in, a commit with the record it was made of (its
bytes are made again), a revision with the plan it tells of. Somebody who forges files and commits alike, and
consistently, leaves nothing to compare with; for that, keep the name of `main`'s last commit elsewhere.
"""

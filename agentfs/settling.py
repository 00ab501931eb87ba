"""Commit what many runs owe the ledger, in one go: in this process, or in one of its own while this one drives runs.

What is owed is derived from files, so it does not matter who commits it, nor whether somebody is cut off in between.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agentfs.errors import UserError
from agentfs.ledger import Entry, Ledger, LedgerBroken, LedgerBusy, Still
from agentfs.owed import entries_owed
from agentfs.ui.text import first_line

APART_SECONDS = 60.0
_PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
from agentfs.installation import import_from_installation; import_from_installation()
from agentfs.settling import main; main()
"""
_PACKAGES = str(Path(__file__).resolve().parents[1])
Owing = dict[Path, list[tuple[Entry, Still]]]


@dataclass(frozen=True, slots=True)
class Debts:
    """Whom runs owe, in whose name a person's edits are committed, and whether logs belong to it."""

    ledger: Ledger
    person: tuple[str, str]
    logs: bool = False


@dataclass(slots=True)
class Settled:
    """What came of it: the runs for which it has to be tried again, and what a person should know."""

    left: list[Path] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def settle(debts: Debts, folders: list[Path]) -> Settled:
    """Commit what these runs owe."""
    owing: Owing = {}
    settled = Settled()
    settled.left += [folder for folder in folders if not _gathered(debts, folder, owing, settled)]
    try:
        if entries := [entry for one in owing.values() for entry in one]:
            debts.ledger.commit_all(entries)
    except LedgerBusy as busy:
        return Settled(folders, [*settled.said, f"the ledger waits: {busy}"])
    except LedgerBroken as broken:
        if len(folders) > 1:  # it may be the fault of one of them
            return _one_by_one(debts, folders)
        return Settled(folders, [*settled.said, f"the ledger cannot be written: {broken}"])
    if owing and not _index_is_in_step(debts, owing, settled):
        settled.left += owing
    return settled


def _one_by_one(debts: Debts, folders: list[Path]) -> Settled:
    each = [settle(debts, [folder]) for folder in folders]
    return Settled([one for came in each for one in came.left], [words for came in each for words in came.said])


def _index_is_in_step(debts: Debts, folders: Iterable[Path], settled: Settled) -> bool:
    """Bring the index in step with what is committed of these runs; False: not now."""
    try:
        return debts.ledger.sync_index(*map(run_id, folders))
    except LedgerBroken as broken:
        settled.said.append(f"the ledger's index waits: {broken}")
        return False


def _gathered(debts: Debts, folder: Path, owing: Owing, settled: Settled) -> bool:
    """Add what a run owes, if only a look at the index; False: not now."""
    run = run_id(folder)
    try:
        owing[folder] = entries_owed(folder, run, debts.ledger, debts.person, logs=debts.logs)
    except FileNotFoundError as missing:
        if folder.is_dir():
            settled.said.append(f"the ledger passes over {run}: {missing.filename} is gone")
    except OSError as error:
        settled.said.append(f"the ledger waits: {error.strerror} ({error.filename})")
        return False
    except LedgerBroken as broken:
        settled.said.append(f"the ledger cannot be written: {broken}")
        return False
    except (ValueError, UserError) as error:  # one run whose files do not read keeps no other waiting
        settled.said.append(f"the ledger passes over {run}: {first_line(str(error))}")
    return True


def run_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────


def settled_apart(debts: Debts, folders: list[Path]) -> Settled | None:
    """The same, done by another process; None if that cannot be had, or does not come to its end."""
    asked = {
        "runs": str(debts.ledger.root.absolute()),
        "folders": [str(folder.absolute()) for folder in folders],
        "person": debts.person,
        "logs": debts.logs,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM, _PACKAGES],
            input=json.dumps(asked).encode(),
            capture_output=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
            start_new_session=True,  # a Ctrl-C is not meant for it
            timeout=APART_SECONDS,
            check=True,
        )
        told = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    back = {str(folder.absolute()): folder for folder in folders}
    return Settled([back[one] for one in told["left"]], told["said"])


def main() -> None:
    """Do for another process what it asks on standard input, and say on standard output what came of it."""
    asked = json.load(sys.stdin)
    debts = Debts(Ledger(Path(asked["runs"])), tuple(asked["person"]), logs=asked["logs"])
    settled = settle(debts, [Path(folder) for folder in asked["folders"]])
    json.dump({"left": [str(folder) for folder in settled.left], "said": settled.said}, sys.stdout)

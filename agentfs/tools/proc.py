"""Reads /proc: who runs, whose child it is, since when. Writes and signals nothing."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from agentfs.tools.base import ProcessMark


@dataclass(frozen=True, slots=True)
class Life:
    """One line of /proc/PID/stat, as far as it matters here."""

    pid: int
    state: str
    parent: int
    pgid: int
    session: int
    start_time: int
    threads: int = 1


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def life(pid: int) -> Life | None:
    """Return what /proc says of a process; None if there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold anything, spaces and ) too
    state, parent, pgid, session = fields[0].decode(), *map(int, fields[1:4])
    return Life(pid, state, parent, pgid, session, int(fields[19]), int(fields[17]))


def everyone() -> Iterator[Life]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := life(int(name))):
            yield found


def descendants(pid: int) -> list[Life]:
    """Return the children of a process and theirs, as far as their parents still live."""
    by_parent: dict[int, list[Life]] = {}
    for found in everyone():
        by_parent.setdefault(found.parent, []).append(found)
    family, parents = [], [pid]
    while parents:
        children = by_parent.pop(parents.pop(), [])
        family += children
        parents += [child.pid for child in children]
    return family


def mark_of(pid: int) -> ProcessMark | None:
    """Return what identifies a process for as long as this machine is up."""
    found = life(pid)
    return ProcessMark(pid, found.pgid, found.start_time, boot_id()) if found else None

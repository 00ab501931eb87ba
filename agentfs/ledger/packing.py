"""Git's pack format, written. Pure: objects in, the bytes of a pack and of its index out.

A tree that was made from another one of the same pack is written as the difference: of a day with ten thousand runs
every commit has a tree of half a megabyte, which differs from the one before in a single entry.
"""

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from agentfs.ledger.trees import NewObject

_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_REF_DELTA = 7
_MOST_COPIED = 0xFFFFFF  # bytes, by one instruction of a difference
_MOST_INSERTED = 127
_FAR = 1 << 31  # offsets from here on have a table of their own


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack and its index; the same name, the same bytes."""

    name: str
    content: bytes
    index: bytes


def pack(objects: Sequence[NewObject]) -> Pack:
    """Return a pack of these objects; what they were made from is among them, or they are written whole."""
    there = {one.sha for one in objects}
    parts = [struct.pack(">4sLL", b"PACK", 2, len(objects))]
    offset, places = len(parts[0]), list[tuple[bytes, int, int]]()  # sha, checksum, offset
    for one in objects:
        entry = _entry(one, there)
        places.append((bytes.fromhex(one.sha), zlib.crc32(entry), offset))
        parts.append(entry)
        offset += len(entry)
    content = b"".join(parts)
    checksum = _sha1(content)
    return Pack(checksum.hex(), content + checksum, _index(sorted(places), checksum))


def _entry(one: NewObject, there: set[str]) -> bytes:
    if one.base is None or one.base.sha not in there:
        return _header(_TYPES[one.kind], len(one.content)) + zlib.compress(one.content, 1)
    difference = delta(one.base.content, one.content)
    return _header(_REF_DELTA, len(difference)) + bytes.fromhex(one.base.sha) + zlib.compress(difference, 1)


def _header(kind: int, size: int) -> bytes:
    """Return what an entry begins with: four bits of its size beside its kind, then seven at a time."""
    found = bytearray((kind << 4 | size & 15,))
    size >>= 4
    while size:
        found[-1] |= 128
        found.append(size & 127)
        size >>= 7
    return bytes(found)


def _index(places: Sequence[tuple[bytes, int, int]], checksum: bytes) -> bytes:
    """Return the index of a pack, version 2: of its objects in the order of their names."""
    counts = [0] * 256
    for sha, _, _ in places:
        counts[sha[0]] += 1
    upto = [sum(counts[: first + 1]) for first in range(256)]
    far = [offset for _, _, offset in places if offset >= _FAR]
    near = [_FAR | far.index(offset) if offset >= _FAR else offset for _, _, offset in places]
    index = b"".join(
        (
            b"\377tOc",
            struct.pack(">L256L", 2, *upto),
            *(sha for sha, _, _ in places),
            struct.pack(f">{len(places)}L", *(crc for _, crc, _ in places)),
            struct.pack(f">{len(near)}L", *near),
            struct.pack(f">{len(far)}Q", *far),
            checksum,
        )
    )
    return index + _sha1(index)


def _sha1(content: bytes) -> bytes:
    return hashlib.sha1(content, usedforsecurity=False).digest()


# ── differences ───────────────────────────────────────────────────────────────────────────────────────────


def delta(old: bytes, new: bytes) -> bytes:
    """Return how to make `new` from `old`: what both begin with, what is new, what both end with."""
    begins = _same(old, new, min(len(old), len(new)), end=False)
    ends = _same(old, new, min(len(old), len(new)) - begins, end=True)
    return b"".join(
        (
            _number(len(old)),
            _number(len(new)),
            _copied(0, begins),
            _inserted(new[begins : len(new) - ends]),
            _copied(len(old) - ends, ends),
        )
    )


def _same(one: bytes, other: bytes, most: int, *, end: bool) -> int:
    """Return how many bytes are the same at the beginning, or at the end."""
    low, high = 0, most  # so many are the same; more than that cannot be
    while low < high:
        middle = (low + high + 1) // 2
        part = slice(-middle, -low or None) if end else slice(low, middle)
        if one[part] == other[part]:
            low = middle
        else:
            high = middle - 1
    return low


def _number(number: int) -> bytes:
    """Return a number seven bits at a time, the lowest first."""
    found = bytearray((number & 127,))
    while number := number >> 7:
        found[-1] |= 128
        found.append(number & 127)
    return bytes(found)


def _copied(offset: int, size: int) -> bytes:
    """Return the instructions to copy so much from there: after flags only the bytes that are not zero."""
    found = bytearray()
    for begin in range(offset, offset + size, _MOST_COPIED):
        few = min(_MOST_COPIED, offset + size - begin)
        given = [*begin.to_bytes(4, "little"), *few.to_bytes(3, "little")]
        found.append(128 | sum(1 << bit for bit, value in enumerate(given) if value))
        found += bytes(value for value in given if value)
    return bytes(found)


def _inserted(new: bytes) -> bytes:
    parts = (new[begin : begin + _MOST_INSERTED] for begin in range(0, len(new), _MOST_INSERTED))
    return b"".join(bytes((len(part),)) + part for part in parts)

"""Packs of ours are git's: it reads every object of them, and finds nothing wrong, differences included."""

import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs.ledger.packing import delta, pack
from agentfs.ledger.packs import Packs
from agentfs.ledger.trees import FILE, FOLDER, Leaf, NewObject, encode
from tests.ledgers import git


def chain_of_trees(count: int) -> list[NewObject]:
    """Return trees that each have one entry more than the one before, somewhere among the others."""
    entries, made = {b"m": Leaf(FILE, "0" * 39 + "1")}, list[NewObject]()
    for number in range(count):
        entries[b"%03d-%d" % (number * 7919 % 1000, number)] = Leaf(FOLDER, f"{number:040x}")
        made.append(encode(entries, made[-1] if made else None))
    return made


def test_git_reads_what_was_packed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    objects = [NewObject("blob", b""), NewObject("blob", b"x" * 5000), *chain_of_trees(60)]
    folder = tmp_path / ".git" / "objects" / "pack"
    packs = Packs(folder)
    packs.write(objects)
    (index,) = folder.glob("*.idx")
    told = git(tmp_path, "verify-pack", "-v", str(index))
    assert "chain length = 59: 1 object" in told
    for one in objects:
        content = subprocess.run(
            ["git", "-C", tmp_path, "cat-file", one.kind, one.sha], capture_output=True, check=True
        ).stdout
        assert (packs.read(one.sha), content) == ((one.kind, one.content), one.content)
    assert packs.read("0" * 40) is None
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < sum(len(one.content) for one in objects) / 4  # forty kilobytes of trees, nearly all the same


def test_what_it_was_made_from_is_elsewhere(tmp_path: Path) -> None:
    """Nothing in a pack may need an object that is not in it."""
    before, after = chain_of_trees(2)
    made = pack([after])
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    indexed = subprocess.run(
        ["git", "-C", tmp_path, "index-pack", "--stdin"], input=made.content, capture_output=True, check=True
    )
    assert indexed.stdout == f"pack\t{made.name}\n".encode()
    assert before.sha.encode() not in made.index


def applied(old: bytes, difference: bytes) -> bytes:
    """Apply a difference, by the letter of git's description of it."""
    at, sizes = 0, []
    for _ in range(2):
        size = shift = 0
        while True:
            byte, at = difference[at], at + 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        sizes.append(size)
    found = b""
    while at < len(difference):
        first, at = difference[at], at + 1
        if first < 128:
            assert first, "reserved"
            found, at = found + difference[at : at + first], at + first
            continue
        given_bytes = []
        for bit in range(7):
            given_bytes.append(difference[at] if first >> bit & 1 else 0)
            at += first >> bit & 1
        offset, size = int.from_bytes(given_bytes[:4], "little"), int.from_bytes(given_bytes[4:], "little") or 0x10000
        assert offset + size <= len(old)
        found += old[offset : offset + size]
    assert sizes == [len(old), len(found)]
    return found


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_a_difference_makes_the_new_from_the_old(begins: bytes, one: bytes, other: bytes, ends: bytes) -> None:
    old, new = begins + one + ends, begins + other + ends
    assert applied(old, delta(old, new)) == new


def test_a_difference_of_much_is_small_and_copies_in_pieces() -> None:
    old = bytes(range(256)) * 150_000  # 38 MB: more than one instruction can copy
    new = old[:20_000_000] + b"here" + old[20_000_000:]
    difference = delta(old, new)
    assert applied(old, difference) == new
    assert len(difference) < 50

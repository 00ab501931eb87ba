"""System calls that a confined program may not make, as a filter for the kernel. Makes bytes, no calls.

The kernel's keys know no namespaces: a program with a session keyring of its own still reaches its user's by number.
So none of the three calls that deal with keys is there, on any machine that the kernel can run programs of.
"""

import errno
import functools
import struct

_LOAD, _EQUAL, _AT_LEAST, _MORE_THAN, _AND, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x54, 0x06
_NUMBER, _MACHINE = 0, 4  # where they stand in what the kernel shows a filter
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OTHER_WIDTH = 0xBFFFFFFF  # x86's x32 has its own bit in the same numbers
_KEYS = {  # AUDIT_ARCH_… -> add_key; request_key and keyctl are the next two
    0xC000003E: 248,  # x86_64
    0x40000003: 286,  # i386
    0xC00000B7: 217,  # aarch64
    0x40000028: 309,  # arm
    0xC00000F3: 217,  # riscv64
    0xC0000102: 217,  # loongarch64
    0xC0000015: 269,  # ppc64le
    0x80000015: 269,  # ppc64
    0x80000016: 278,  # s390x
}


@functools.cache
def no_keys() -> bytes:
    """Return the filter: the calls for keys are answered as by a kernel that has none."""
    lines: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _MACHINE)]
    for machine, first in _KEYS.items():
        lines += [
            (_EQUAL, 0, 6, machine),  # another: on to the next
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, _OTHER_WIDTH),
            (_AT_LEAST, 0, 2, first),
            (_MORE_THAN, 1, 0, first + 2),
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
            (_RETURN, 0, 0, _ALLOW),
        ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)

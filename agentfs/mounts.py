"""On what kind of file system a file is: where others write unseen by this kernel, it can tell of nothing they do.

The kernel reports what is done through its own mount, and knows the writers it has itself. On a network or FUSE mount
somebody behind it writes too, of whom there is no event and no lease.
"""

import os
import sys

from agentfs.system import libc_call

_ROOM = 256  # bytes; struct statfs takes 120 at most, and begins with the number of the kind
_WRITTEN_BEHIND = {
    0x65735546: "FUSE",
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x01021997: "9P",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x786F4256: "VirtualBox",
    0xBACBACBC: "VMware",
}


def written_behind(path: "int | str | os.PathLike[str]") -> str | None:
    """Return the kind of a file system that others may write to behind this kernel's back; None for any other.

    A file that is open is given by its descriptor.
    """
    call = libc_call("fstatfs" if isinstance(path, int) else "statfs")
    if sys.platform != "linux" or call is None:
        return None  # elsewhere the record is another one, and larger
    import ctypes

    room = ctypes.create_string_buffer(_ROOM)
    if call(path if isinstance(path, int) else os.fsencode(path), room):
        return None
    return _WRITTEN_BEHIND.get(ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF)

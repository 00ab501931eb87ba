"""Python runs this when it starts, if its folder is on PYTHONPATH: files then take less than is written to them.

SHORT_WRITES=N: at most N bytes at a time. FULL_AT=N: half of the Nth write, then the disk is full, for that once.
"""

import errno
import itertools
import os
import stat
from typing import Any

_real, _numbers = os.write, itertools.count(1)
_most, _full = int(os.environ.get("SHORT_WRITES", "0")), int(os.environ.get("FULL_AT", "0"))


def _write(descriptor: int, content: Any) -> int:
    source = bytes(content)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return _real(descriptor, source)
    if next(_numbers) == _full:
        _real(descriptor, source[: len(source) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _real(descriptor, source[:_most] if _most else source)


os.write = _write

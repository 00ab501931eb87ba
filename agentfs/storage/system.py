"""What this operating system offers, found by looking, never by its name. Starts and changes nothing.

Reading commands use what is there and do without the rest. Driving a run needs all of `missing()`'s list: locks that
end with their process, and the means to find and end every process that a step has started.
"""

import functools
import os
from collections.abc import Callable

from agentfs.errors import UserError

CONTAINER = "the container (Dockerfile; docs/containers.md)"


def flags(*names: str) -> int:
    """Return flags of os.open, without those that this system does not know."""
    value = 0
    for name in names:
        value |= getattr(os, name, 0)
    return value


@functools.cache
def libc_call(name: str) -> Callable[..., int] | None:
    """Return a function of the C library, which keeps its errno; None where there is none of that name."""
    import ctypes

    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows loads no library without a name
        return None
    return found


def missing() -> tuple[str, ...]:
    """Return what driving a run needs and this system lacks; nothing on Linux."""
    wanted = {
        "/proc": os.path.exists("/proc/self/stat"),
        "flock": _has_flock(),
        "waitid": hasattr(os, "waitid"),
        "process groups": hasattr(os, "killpg"),
        "openat": os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW"),
    }
    return tuple(name for name, there in wanted.items() if not there)


def _has_flock() -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    return hasattr(fcntl, "flock")


def name() -> str:
    """Return what people call this system."""
    import platform

    return {"Darwin": "macOS"}.get(platform.system(), platform.system()) or "this system"


def require_linux(command: str) -> None:
    """Raise, in one line, where a command that drives runs or writes the ledger cannot work."""
    if lacks := missing():
        raise UserError(
            f"`{command}` needs Linux; {name()} lacks {', '.join(lacks)}. Use {CONTAINER}. "
            "Commands that only read, such as status, show, log and diff, work here"
        )

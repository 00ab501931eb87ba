"""Have the kernel make a folder's names durable while Python goes on. Where it cannot, it is done at once.

A thread would not do: it needs the interpreter to begin its fsync, and whoever could let it have it is busy.
"""

import ctypes
import errno
import functools
import os
import platform
import sys
import threading
from typing import Final

_NUMBERS: Final = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}  # of io_setup, io_submit, io_getevents
_FSYNC: Final = 2  # IOCB_CMD_FSYNC


class _Request(ctypes.Structure):
    """`struct iocb` of a machine with the low byte first."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("more", ctypes.c_int64),
    )


class _Kernel:
    """What is asked of the kernel's asynchronous I/O, by any thread."""

    def __init__(self, most: int = 64) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._at_once = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter: getting it back takes longer
        setup, self._submit, self._getevents = (ctypes.c_long(number) for number in _NUMBERS[platform.machine()])
        self._context = ctypes.c_ulong(0)
        self._came: dict[int, int] = {}  # what came of a descriptor, until its asker takes it
        self._lock = threading.Lock()
        if self._libc.syscall(setup, ctypes.c_long(most), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "no asynchronous I/O")

    def begin(self, descriptor: int) -> bool:
        """Let it be synced; False if the kernel does not take it."""
        request = _Request(data=descriptor, opcode=_FSYNC, descriptor=descriptor)
        asked = (ctypes.c_void_p * 1)(ctypes.addressof(request))
        return bool(self._at_once.syscall(self._submit, self._context, ctypes.c_long(1), asked) == 1)

    def result(self, descriptor: int) -> int:
        """Wait until it is synced; return 0, or what went wrong as a negative number."""
        with self._lock:
            self._hear(self._at_once, least=0)
            while descriptor not in self._came:
                self._hear(self._libc, least=1)
            return self._came.pop(descriptor)

    def _hear(self, libc: ctypes.CDLL, least: int) -> None:
        """Take in what has come; wait for `least` of it."""
        events = (_Event * 8)()
        came = libc.syscall(self._getevents, self._context, ctypes.c_long(least), ctypes.c_long(8), events, None)
        if came < 0 and ctypes.get_errno() != errno.EINTR:
            raise OSError(ctypes.get_errno(), "asynchronous I/O is lost")
        for event in events[: max(0, came)]:
            self._came[event.data] = event.result


@functools.cache
def _kernel() -> _Kernel | None:
    if platform.machine() not in _NUMBERS or sys.byteorder != "little" or sys.maxsize < 2**32:
        return None
    try:
        return _Kernel()
    except OSError:
        return None


os.register_at_fork(after_in_child=_kernel.cache_clear)  # a child begins without what its parent has asked for


class Syncing:
    """One folder at a time that is being made durable. For one thread; whoever begins must finish."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def begin(self, folder: str) -> None:
        """Begin to make the names in a folder durable."""
        self.finish()
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        kernel = _kernel()
        if kernel is not None and kernel.begin(descriptor):
            self._descriptor = descriptor
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Return once they are; OSError if they could not be."""
        descriptor, self._descriptor = self._descriptor, None
        kernel = _kernel()
        if descriptor is None or kernel is None:
            return
        try:
            code = kernel.result(descriptor)
        finally:
            os.close(descriptor)
        if code < 0:
            raise OSError(-code, os.strerror(-code))

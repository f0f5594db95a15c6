"""Writing to the disk as an ordinary user does, so that what a file system keeps for root stays root's (ext4: 5 %).

A file system goes by the fsuid of the thread that writes (setfsuid(2)); in passthrough, by the one that the daemon had when
it registered the file. Changing it there and back takes some microseconds, so it is done only where the disk is near its
end. The thread keeps its capabilities (``system.processes``), without which it could not reach users' files; where that is
impossible, or there is no CAP_DAC_OVERRIDE to keep, as in some containers, users may take what is root's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from holdfast.system.processes import keeps_capabilities, overrides_modes

_NOBODY = 65534
_NOT_A_USER = 0xFFFF_FFFF
"""An invalid user id, for which setfsuid(2) changes nothing and returns the present one."""
_PR_SET_DUMPABLE = 4
_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the lock of the interpreter: others would delay the way back
_libc.setfsuid.argtypes = (ctypes.c_uint32,)
_AS_BEFORE = nullcontext()


class OrdinaryUser:
    """Provides ``writes``, for data that users write. ``is_near_end`` says whether the disk is so full that it matters."""

    def __init__(self, is_near_end: Callable[[], bool]) -> None:
        self._is_near_end = is_near_end
        self.is_possible = os.geteuid() == 0 and overrides_modes() and keeps_capabilities() and _can_change()

    def writes(self) -> AbstractContextManager[None]:
        """Return a block, in which nothing may wait, whose thread takes nothing that is kept for root."""
        return _NOBODYS if self._is_near_end() and self.is_possible else _AS_BEFORE

    @property
    def is_wanted(self) -> bool:
        """True if a thread should write as an ordinary user, and can."""
        return self._is_near_end() and self.is_possible


class _Nobodys:
    """A block that runs as nobody. It is stateless, so one is enough for all threads."""

    __slots__ = ()

    def __enter__(self) -> None:
        _libc.setfsuid(_NOBODY)

    def __exit__(self, *problem: object) -> None:
        _libc.setfsuid(0)
        # To the kernel, who changes its fsuid is a set-uid program: root of a container would not see /proc/PID/fd.
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


_NOBODYS = _Nobodys()


def _can_change() -> bool:
    with _NOBODYS:
        return int(_libc.setfsuid(_NOT_A_USER)) == _NOBODY

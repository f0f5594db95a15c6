"""The capabilities that root's daemon keeps (capabilities(7)): those of systemd/holdfastd.service, however it is started.

They are dropped from the bounding set too, so no program that the daemon starts gets them back. Both belong to a thread and
are inherited: call ``keep_needed`` before there is a second one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from holdfast.system.processes import keep_capabilities

NEEDED = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_SETUID": 7,
    "CAP_LINUX_IMMUTABLE": 9,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_MKNOD": 27,
    "CAP_LEASE": 28,
    "CAP_SETFCAP": 31,
}
"""Names and numbers (linux/capability.h); docs/security.md says what each is for."""

_PR_CAPBSET_DROP = 24
_VERSION_3 = 0x2008_0522
_LAST = Path("/proc/sys/kernel/cap_last_cap")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """The kernel's three sets of capabilities, 32 bits of each (capset(2))."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def keep_needed() -> None:
    """Give up all capabilities but ``NEEDED``, if this is root. Raises ``OSError``.

    They stay when the fsuid of a thread changes (``store.ordinary_user``). Without CAP_SETPCAP, which some containers lack,
    they don't, and the bounding set stays as it is.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    keep_capabilities()
    for number in range(int(_LAST.read_text()) + 1):
        if number not in NEEDED.values():
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    _check(libc.capget(ctypes.byref(header), sets))
    for at, half in enumerate(sets):
        needed = sum(1 << number % 32 for number in NEEDED.values() if number // 32 == at)
        half.permitted &= needed
        half.effective &= needed
        half.inheritable = 0
    _check(libc.capset(ctypes.byref(header), sets))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""The secure bit by which a thread keeps its capabilities when its fsuid changes (capabilities(7), SECBIT_NO_SETUID_FIXUP).

It belongs to a thread, and later threads inherit it.
"""

from __future__ import annotations

import ctypes

_PR_GET_SECUREBITS, _PR_SET_SECUREBITS = 27, 28
_NO_SETUID_FIXUP = 1 << 2
_libc = ctypes.CDLL(None, use_errno=True)


def keep_capabilities() -> None:
    """Set the bit for this thread, if it may: that takes CAP_SETPCAP."""
    _libc.prctl(_PR_SET_SECUREBITS, _libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0) | _NO_SETUID_FIXUP, 0, 0, 0)


def keeps_capabilities() -> bool:
    """Say whether the bit is set."""
    bits = int(_libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0))
    return bits >= 0 and bool(bits & _NO_SETUID_FIXUP)

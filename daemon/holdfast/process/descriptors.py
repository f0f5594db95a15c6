"""The limit of the daemon's descriptors, and the kernel's table for them."""

from __future__ import annotations

import fcntl
import os
import resource

_EXPECTED = 131_072
"""Twice what one user may have open by default. A place in the table takes 8 bytes of the kernel's memory."""


def make_room() -> None:
    """Raise the limit as far as it may be, and grow the table to what is expected. Call it before there is a second thread.

    Later, each doubling of the table would stop the thread that opens a file until no processor can be using the old one
    (``expand_fdtable`` in the kernel's fs/file.c calls ``synchronize_rcu``): for 7 to 140 ms on a busy machine. A table
    never shrinks.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, min(hard, _EXPECTED) - 1))
    finally:
        os.close(fd)

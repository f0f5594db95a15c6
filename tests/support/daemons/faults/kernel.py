"""Faults about the kernel: what an older one can't do, and calls into this one that fail or wait."""

from __future__ import annotations

import errno
import os
import select
import time
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from holdfast.control import doors
from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.kernel import Connection, Invalidator, probe
from holdfast.mount import mount_calls
from tests.support.daemons.faults.crash_points import arm, reply_to
from tests.support.daemons.faults.switches import ARMED, disarm, replace

_NEVER = (10**6, 0)
"""A version that no kernel has yet."""
_POLL_SECONDS = 0.01
_LATE_SECONDS = 0.2


def no_prune() -> None:
    """Take the kernel for one that can't be asked to forget what nobody uses (FUSE_NOTIFY_PRUNE)."""
    probe._PRUNING_KERNEL = _NEVER


def no_takeover() -> None:
    """Take the kernel for one without passthrough and takeover."""
    probe._KERNEL = probe._PRUNING_KERNEL = _NEVER


def no_mount_beneath() -> None:
    """Take the kernel for one that can't put a mount beneath another (before Linux 6.5)."""

    def can_not(mount: int, path: str) -> bool:
        return False

    replace(mount_calls, "place_beneath", can_not)


def no_passrights() -> None:
    """Take the kernel for one on which users may send descriptors over any Unix socket (before Linux 6.16)."""
    doors.SO_PASSRIGHTS = 10**6  # ENOPROTOOPT


def data_by_python() -> None:
    """Leave all reads and writes that come to the daemon to Python."""

    def is_impossible(*_: object, **__: object) -> bool:
        return False

    replace(Connection, "serve_data", is_impossible)


def late_statvfs() -> None:
    """Let statfs(2) of the disk return late, so that what is deleted becomes free after the kernel has looked."""
    original = os.fstatvfs

    @wraps(original)
    def late(fd: int) -> os.statvfs_result:
        found = original(fd)
        time.sleep(_LATE_SECONDS)
        return found

    replace(os, "fstatvfs", late)


def no_invalidator() -> None:
    """Mount, and then fail to start the process that makes the kernel forget names: once, if the file ``ARMED`` is there."""
    original = Invalidator.__init__

    @wraps(original)
    def fails(self: Invalidator, device: int) -> None:
        if disarm():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        original(self, device)

    replace(Invalidator, "__init__", fails)


def dies_while_a_name_waits() -> None:
    """Die while the kernel is to forget a name, and waits for the lock of the directory that a request holds.

    The file ``ARMED`` has the inode number of a directory: while the next symbolic link there has been made and is not
    answered, the name ``a`` is to be forgotten. The file is removed when that waits; then the daemon kills itself.
    """
    original = Invalidation.__init__
    made: list[Invalidation] = []

    @wraps(original)
    def noted(self: Invalidation, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)

    def waits_for_lock() -> bool:
        armed = Path(os.environ[ARMED])
        if not armed.exists():
            return False
        made[0].invalidate(int(armed.read_text()), b"a")
        while not any(b"fuse_reverse_inval_entry" in stack for stack in _stacks(Path("/proc/self"))):
            select.select([], [], [], _POLL_SECONDS)
        return disarm()

    replace(Invalidation, "__init__", noted)
    for step in reply_to("symlink"):
        arm(step, waits_for_lock)


def _stacks(process: Path) -> list[bytes]:
    """Return where the threads of the process, and of its children, are in the kernel."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):  # a child that has ended meanwhile
        for thread in (process / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has
                found.append((thread / "stack").read_bytes())
                for child in (thread / "children").read_text().split():
                    found += _stacks(Path("/proc") / child)
    return found

"""holdfastd that dies while the kernel is to forget a name, and waits for the lock of the directory that a request holds.

``python -m tests.support.daemons.waiting_daemon`` takes holdfastd's arguments. The file ``HOLDFAST_TEST_CRASH_ARMED`` has
the inode number of a directory: while the next symbolic link there has been made and is not answered, the name ``a`` is to
be forgotten. The file is removed when that waits; then the daemon kills itself.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

from holdfast import daemon
from holdfast.fs.inodes.invalidation import Invalidation
from tests.support.daemons.crashing_daemon import ARMED, arm, disarm, reply_to

_POLL_SECONDS = 0.01
_presences: list[Invalidation] = []


def waits_for_lock(armed: str) -> bool:
    """Return True once the kernel waits, and has been asked to by this function; at once if that is not armed."""
    if not os.path.exists(armed):
        return False
    _presences[0].invalidate(int(Path(armed).read_text()), b"a")
    while not any(b"fuse_reverse_inval_entry" in stack for stack in _stacks(Path("/proc/self"))):
        select.select([], [], [], _POLL_SECONDS)
    return disarm(armed)


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


def _noted(self: Invalidation, *arguments: Any) -> None:
    _original(self, *arguments)
    _presences.append(self)


if __name__ == "__main__":
    _original = Invalidation.__init__
    Invalidation.__init__ = wraps(_original)(_noted)  # type: ignore[assignment, method-assign]
    for step in reply_to("symlink"):
        arm(step, partial(waits_for_lock, os.environ[ARMED]))
    sys.exit(daemon.main())

"""Faults of the event loop and of requests: they hang, end the daemon, are answered late, or are overtaken."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pyfuse3
import trio

from holdfast.fs.file_io import open_files, read_write
from holdfast.fs.fuse.immediate_replies import ImmediateReplies
from holdfast.fs.fuse.operations import Operations
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.namespace.create import Creation
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.system.waits import before_waiting
from tests.support.daemons.faults.switches import (
    ARMED,
    HELD,
    SWITCHES,
    exists,
    replace,
    wait_in_thread_until_gone,
    wait_until_gone,
)

BLOCKED = "the event loop is blocked"
OVERTAKING = b"root's alone"
"""The content of a file that comes while its name is created."""


def hang_on_signal() -> None:
    """Block the event loop for good on SIGUSR1; the log has ``BLOCKED`` then."""
    signal.signal(signal.SIGUSR1, block_event_loop)


def block_event_loop(*_: object) -> None:
    """Wait for what never happens, in the thread of the event loop, which runs Python's signal handlers."""
    os.write(2, f"{BLOCKED}\n".encode())
    threading.Event().wait()


def poisonous_names() -> None:
    """Let some names harm: a lookup of one hangs, or ends, the daemon that executes it, whichever daemon that is.

    A name that begins with ``hangs`` blocks the event loop for good, one with ``dies`` is a SIGKILL. With ``-late`` in it,
    it does so in the second step of the request's task. One with ``waits`` waits while the file ``HELD`` exists, without
    harm, and tells so by a file with the extension ``.waits`` beside it.
    """
    find, held = Lookup.find, Path(os.environ[HELD])

    @wraps(find)
    async def finding(self: Lookup, directory: Any, name: bytes, *arguments: Any) -> Any:
        if b"-late" in name or name.startswith(b"waits"):
            await before_waiting()
            await trio.lowlevel.checkpoint()
        _harm(name)
        if not name.startswith(b"waits"):
            return await find(self, directory, name, *arguments)
        held.with_suffix(".waits").touch()
        await wait_until_gone(held)
        return None

    replace(Lookup, "find", finding)


def _harm(name: bytes) -> None:
    if name.startswith(b"hangs"):
        threading.Event().wait()
    elif name.startswith(b"dies"):
        os.kill(os.getpid(), signal.SIGKILL)


def late_answers() -> None:
    """Carry out unlink, rmdir and rename at once, and answer when the file ``HELD`` does not exist any more.

    Who asked learns of its answer late on a busy machine too; here other requests are sure to be answered meanwhile. The
    handlers of pyfuse3's, which may wait, answer all requests of these kinds.
    """
    held = Path(os.environ[HELD])
    for handler in ("unlink", "rmdir", "rename"):
        replace(Operations, handler, _late(getattr(Operations, handler), held))
    for at_once in ("_unlink", "_rename", "_rename2"):
        replace(ImmediateReplies, at_once, _leave_it)


def _late(original: Callable[..., Any], held: Path) -> Callable[..., Any]:
    @wraps(original)
    async def late(*arguments: Any) -> None:
        await original(*arguments)
        await wait_until_gone(held)

    return late


async def _leave_it(*_: object) -> None:
    """Leave a request to pyfuse3's handler."""


def no_data_by_python() -> None:
    """Fail each READ and WRITE that Python gets to see; if ``ARMED`` is set, once that file is there."""
    armed = os.environ.get(ARMED)

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        async def refuse(*arguments: Any) -> Any:
            if armed is None or exists(Path(armed)):
                raise pyfuse3.FUSEError(errno.ENOTRECOVERABLE)
            return await original(*arguments)

        return refuse

    replace(Operations, "read", refusing(Operations.read))
    replace(Operations, "write", refusing(Operations.write))


def short_patience() -> None:
    """Wait for a file's lock a tenth of the time where the daemon waits longest, before writes and truncations."""
    for module in (open_files, read_write):
        vars(module)["LONG_PATIENCE_SECONDS"] /= 10


def no_settling() -> None:
    """Do not wait before a file's lock is taken, as if somebody took it again whenever it was free a moment ago."""

    async def settle(self: HotFiles, inode: int) -> None:
        return

    replace(HotFiles, "settle", settle)


def overtaken_creation() -> None:
    """Let a file of root's appear under the name ``overtaken`` when somebody is about to create it; it has ``OVERTAKING``.

    So it is when a fetch brings an object between the kernel's look at a name and its creation.
    """
    original = Creation._open_new

    @wraps(original)
    def open_overtaken(creation: Creation, name: Name, directory_fd: int, mode: int, **how: bool) -> tuple[int, bool]:
        if name.name == b"overtaken":
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with suppress(FileExistsError):
                fd = os.open(name.name, flags, 0o600, dir_fd=directory_fd)
                os.write(fd, OVERTAKING)
                os.close(fd)
        return original(creation, name, directory_fd, mode, **how)

    replace(Creation, "_open_new", open_overtaken)


def pausing_walk() -> None:
    """Pause after a directory that is to be renamed has been looked through, while ``pause`` is in ``SWITCHES``.

    The daemon tells so by a file ``paused`` there.
    """
    switches = Path(os.environ[SWITCHES])
    for owner, walk in ((FallbackGuard, "_holds_closed"), (DirectoryRenames, "_holds_others")):
        replace(owner, walk, _pausing(getattr(owner, walk), switches))


def _pausing(walk: Callable[..., bool], switches: Path) -> Callable[..., bool]:
    @wraps(walk)
    def pausing(*arguments: Any) -> bool:
        found = walk(*arguments)
        wait_in_thread_until_gone(switches / "pause", switches / "paused")
        return found

    return pausing

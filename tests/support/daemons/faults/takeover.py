"""Faults of a takeover: it is late, the mount has gone, files can't be opened again, the machine has been rebooted."""

from __future__ import annotations

import errno
import os
from functools import wraps
from pathlib import Path
from typing import NoReturn

from holdfast.fs.takeover import reopening
from holdfast.fs.takeover.reopening import Takeover
from holdfast.mount import mountpoint
from holdfast.session.handover import Handover, Inheritance
from holdfast.system import processes
from tests.support.daemons.faults.switches import HELD, disarm, exists, replace, wait_until_gone

BOOT_ID = "HOLDFAST_TEST_BOOT_ID"
"""Names a file with a boot id."""


def late_takeover() -> None:
    """Wait before the first request is read after a takeover while the file ``HELD`` exists.

    A daemon that waits tells so by a file with the extension ``.waits`` beside it.
    """
    original, held = Takeover.run, Path(os.environ[HELD])

    @wraps(original)
    async def late(self: Takeover) -> int:
        files = await original(self)
        exists(held, told=held.with_suffix(".waits"))
        await wait_until_gone(held)
        return files

    replace(Takeover, "run", late)


def unmounted_at_start() -> None:
    """Lose the mount when it has been found and not yet taken over: once, if the file ``ARMED`` is there."""
    original = Handover.find

    @wraps(original)
    def finds(self: Handover) -> Inheritance | None:
        found = original(self)
        if found is not None and disarm():
            mountpoint.detach(found.identity.mountpoint)
        return found

    replace(Handover, "find", finds)


def no_reopening() -> None:
    """Fail to open the files again that an earlier daemon had open, as if no more files might be opened (EMFILE)."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    replace(reopening, "open_local", refuse)


def rebooted() -> None:
    """Find the boot id in the file that ``BOOT_ID`` names, not the kernel's."""
    processes._BOOT_ID = Path(os.environ[BOOT_ID])

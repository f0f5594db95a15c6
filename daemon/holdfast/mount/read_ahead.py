"""The kernel's read-ahead in files whose data the daemon serves.

A mount begins with 128 KiB, and INIT can only agree on less. Each READ costs both sides a wake-up, so larger ones are
faster. Beyond 512 KiB they were not, and a program that touches single pages of a mapping would read more for nothing.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from holdfast.mount import mountpoint

READ_AHEAD_KIB = 512
_log = logging.getLogger("holdfast.mount")


def widen(path: str) -> None:
    """Let the kernel read ahead that far in the Holdfast mounted on ``path``, unless it reads further ahead already.

    Call it after INIT, whose answer limits it. Only root can do it, and not where /sys is read-only, as in most containers;
    then nothing changes. Does not touch the mount itself.
    """
    try:
        mount = mountpoint.mounted_on(path)
        if mount is None or not mount.is_holdfast:
            return
        setting = Path(f"/sys/class/bdi/{os.major(mount.device)}:{os.minor(mount.device)}/read_ahead_kb")
        if int(setting.read_text()) < READ_AHEAD_KIB:
            setting.write_text(str(READ_AHEAD_KIB))
    except (OSError, ValueError) as problem:
        _log.debug("the read-ahead of %s can't be set: %s", path, problem)

"""Which files are being executed: those must not be emptied.

The kernel sees to that by itself (ETXTBSY), but for an open that reads and truncates: of a FUSE file system it looks
only after that was opened, and so truncated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def is_executed(paths: Iterable[bytes]) -> bool:
    """Say whether any process runs the file with the tree paths ``paths``, wherever it sees the mount.

    It is known by its path alone: to look at the program itself would be a request to this daemon.
    """
    tails = tuple(b"/" + path for path in paths)
    for number in filter(bytes.isdigit, os.listdir(b"/proc")):
        with suppress(OSError):  # it has ended, or has no program of its own
            if os.readlink(b"/proc/%s/exe" % number).endswith(tails):
                return True
    return False

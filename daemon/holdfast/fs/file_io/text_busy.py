"""Detection of running programs, which must not be truncated.

The kernel does this itself (ETXTBSY), except for an open that reads and truncates: on a FUSE file system it checks only
after the open, which has already truncated the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def is_executed(paths: Iterable[bytes]) -> bool:
    """Say whether any process runs the file with the tree paths ``paths``, wherever it sees the mount.

    Only the path is compared: a stat of the program would be a request to this daemon.
    """
    tails = tuple(b"/" + path for path in paths)
    for number in filter(bytes.isdigit, os.listdir(b"/proc")):
        with suppress(OSError):  # it has exited, or has no program of its own
            if os.readlink(b"/proc/%s/exe" % number).endswith(tails):
                return True
    return False

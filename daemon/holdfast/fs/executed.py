"""Which files are being executed: those must not be emptied.

The kernel sees to that by itself (ETXTBSY), but for an open that reads and truncates: of a FUSE file system it looks
only after that was opened, and so truncated.
"""

from __future__ import annotations

import os
from contextlib import suppress


def is_executed(path: bytes) -> bool:
    """Say whether any process runs the file at the tree path ``path``, wherever it sees the mount."""
    tail = b"/" + path
    for number in filter(bytes.isdigit, os.listdir(b"/proc")):
        with suppress(OSError):  # it has ended, or has no program of its own
            if os.readlink(b"/proc/%s/exe" % number).endswith(tail):
                return True
    return False

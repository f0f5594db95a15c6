"""Which files this process has open: only below a directory, for other threads open and close theirs meanwhile."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """Return what the descriptors lead to that are open in ``directory``, itself and unlinked files included."""
    gc.collect()
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, and those of other threads
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(directory))]

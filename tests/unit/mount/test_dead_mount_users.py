"""The search for processes that use a dead mount looks at little of each process."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from holdfast.mount import dead_mount_users
from tests.support.users.privileges import needs_root

PAGES = 50


@needs_root
def test_one_mapped_file_of_each_file_system_is_looked_at() -> None:
    """For 20,000 of them, as the JVMs in a node's containers have together, that took 5 s."""
    with ExitStack() as closing:
        file = closing.enter_context(tempfile.NamedTemporaryFile(dir="/dev/shm"))
        os.truncate(file.name, 2 * PAGES * mmap.PAGESIZE)
        for page in range(PAGES):
            at = 2 * page * mmap.PAGESIZE  # neighbours would be one mapping
            closing.enter_context(mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ, offset=at))
        used = [os.readlink(name) for name, _ in dead_mount_users._used(Path("/proc/self")) if "/map_files/" in name]
        assert len([path for path in used if path.startswith("/dev/shm/")]) == 1

"""A disk for which writes have to wait, where the daemon serves the data."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_cached_pages import needs_c_module
from tests.support.daemons.node import wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.users.privileges import needs_root

FREEZE, THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW of linux/fs.h
LONG_SECONDS = 0.01
"""A wait that is long enough to be taken for one (``disk_waits.c``)."""


@contextmanager
def frozen(disk: Path) -> Iterator[None]:
    """Let every write to the disk's file system wait."""
    fd = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(fd, THAW, 0)
    finally:
        os.close(fd)


def waiting_threads(pid: int) -> set[int]:
    """Return the threads that wait for a file system to thaw."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name) for task in tasks if (task / "wchan").read_text() == "percpu_rwsem_wait"}


@needs_root
@needs_c_module
@pytest.mark.parametrize("length", [1, 1 << 20])
def test_while_writes_wait_for_the_disk_others_are_answered(make_node: NodeFactory, workspace: Path, length: int) -> None:
    """The first write to wait holds the daemon up, and teaches it: the next ones wait in threads, for a while."""
    data = bytes(length)
    with mounted_image("ext4", workspace / "disk", 64 << 20) as disk, ThreadPoolExecutor(1) as writer:
        node = make_node(mount__passthrough=False, store__directory=disk / "store").start()
        with (node.work / "file").open("wb", buffering=0) as file:

            def is_answered_meanwhile(is_there: Callable[[set[int]], bool]) -> bool:
                with frozen(disk):
                    write = writer.submit(os.pwrite, file.fileno(), data, 0)
                    wait_until(lambda: is_there(waiting_threads(node.pid)))
                    loop_waits = node.pid in waiting_threads(node.pid)
                    if loop_waits:
                        time.sleep(LONG_SECONDS)
                    else:
                        assert not os.path.lexists(node.work / "absent")
                        assert not write.done()
                assert write.result() == length
                return not loop_waits

            assert not is_answered_meanwhile(lambda threads: node.pid in threads)
            wait_until(lambda: is_answered_meanwhile(bool))  # not at once where a busy machine takes longer than the pause
        node.stop()

"""A disk for which writes have to wait, where the daemon serves the data."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_cached_pages import needs_c_module
from tests.support.daemons.node import wait_until
from tests.support.disks.mounts import mounted_image, shown_in_place
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


@needs_root
@needs_c_module
@pytest.mark.parametrize("length", [1, 1 << 20])
@pytest.mark.parametrize(("share_percent", "loop_writes"), [(74, True), (76, False)])
def test_before_the_machine_makes_writers_wait_not_even_the_first_write_holds_others_up(
    make_node: NodeFactory, workspace: Path, length: int, share_percent: int, loop_writes: bool
) -> None:
    """The daemon sees how much is to be written out: nobody waits below the mean of the kernel's two thresholds."""
    vmstat = workspace / "vmstat"
    vmstat.write_text(with_dirty_pages(Path("/proc/vmstat").read_text(), share_percent))
    with (
        mounted_image("ext4", workspace / "disk", 64 << 20) as disk,
        shown_in_place(vmstat, Path("/proc/vmstat")),
        ThreadPoolExecutor(1) as writer,
    ):
        node = make_node(mount__passthrough=False, store__directory=disk / "store").start()
        with (node.work / "file").open("wb", buffering=0) as file:
            with frozen(disk):
                write = writer.submit(os.pwrite, file.fileno(), bytes(length), 0)
                wait_until(lambda: bool(waiting_threads(node.pid)))
                assert (node.pid in waiting_threads(node.pid)) == loop_writes
                if not loop_writes:
                    assert not os.path.lexists(node.work / "absent")
                    assert not write.done()
            assert write.result() == length
        node.stop()


@pytest.mark.promise("local-busy")
@needs_root
@needs_c_module
@pytest.mark.parametrize(
    "change", [partial(os.chmod, mode=0o600), os.utime, os.unlink, lambda path: os.rename(path, f"{path} new")]
)
def test_who_changes_a_file_that_a_thread_writes_to_makes_nobody_else_wait(
    make_node: NodeFactory, workspace: Path, change: Callable[[Path], None]
) -> None:
    """The thread has the lock of the file for as long as the disk lets it wait."""
    vmstat = workspace / "vmstat"
    vmstat.write_text(with_dirty_pages(Path("/proc/vmstat").read_text(), 100))
    threads: list[int] = []

    def changed(path: Path) -> None:
        threads.append(threading.get_native_id())
        change(path)

    with (
        mounted_image("ext4", workspace / "disk", 64 << 20) as disk,
        shown_in_place(vmstat, Path("/proc/vmstat")),
        ThreadPoolExecutor(2) as others,
    ):
        node = make_node(mount__passthrough=False, store__directory=disk / "store").start()
        elsewhere = node.work / "other_1"
        elsewhere.mkdir()
        path = node.work / "file"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped:
            with frozen(disk):
                mapped[0] = 1
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # begins to write the page
                wait_until(lambda: bool(waiting_threads(node.pid)))
                made = others.submit(changed, path)
                wait_until(lambda: bool(threads) and waits_for_the_daemon(threads[0]))
                answered = others.submit(os.path.lexists, elsewhere / "absent")
                wait_until(answered.done)
                assert waiting_threads(node.pid)
            problem = made.exception()
        assert problem is None or (isinstance(problem, OSError) and problem.errno == errno.EBUSY), "busy after three seconds"
        node.stop()


def waits_for_the_daemon(thread: int) -> bool:
    """Say whether a thread of this process waits for a reply."""
    return Path(f"/proc/self/task/{thread}/wchan").read_text() == "request_wait_answer"


def with_dirty_pages(vmstat: str, share_percent: int) -> str:
    """Return the text of /proc/vmstat on a machine with so much to be written out, of what makes writers wait."""
    limit = sum(int(found) for found in re.findall(r"^nr_dirty(?:_background)?_threshold (\d+)$", vmstat, re.MULTILINE)) // 2
    dirty = re.sub(r"^nr_dirty \d+$", f"nr_dirty {limit * share_percent // 100}", vmstat, flags=re.MULTILINE)
    return re.sub(r"^nr_writeback \d+$", "nr_writeback 0", dirty, flags=re.MULTILINE)

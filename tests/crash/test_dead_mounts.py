"""A daemon dies before Linux 6.9: each kind of user of the mount, at once and after the next daemon has mounted."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until
from tests.support.disks.mounts import mounted

TOUCH_A_MAPPING = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
    print("mapped", flush=True)
    input()
    mapping[:1]
"""


def errno_of(action: Callable[[], object]) -> str:
    """Return the name of the error with which ``action`` fails; empty if it does not."""
    try:
        action()
    except OSError as problem:
        return errno.errorcode[problem.errno or 0]
    return ""


@pytest.mark.promise("dead-mount")
def test_what_is_open_stays_dead_and_what_was_closed_is_whole(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    node = make_node()
    node.faults, node.supervised = ["no_takeover"], True
    node.start()
    directory = node.work / "here"
    directory.mkdir()
    for name in ("closed", "fresh", "mapped"):
        (directory / name).write_bytes(name.encode())
    (node.checkpoints / "committed").write_bytes(b"committed")
    half = os.open(node.checkpoints / "half", os.O_RDWR | os.O_CREAT)
    held = os.open(directory / "held", os.O_RDWR | os.O_CREAT)
    read = os.open(node.checkpoints / "committed", os.O_RDONLY)
    os.write(held, b"h" * mmap.PAGESIZE * 2)
    os.fsync(held)
    command = [sys.executable, "-c", TOUCH_A_MAPPING, str(directory / "mapped")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory) as mapper:
        assert mapper.stdout is not None
        assert mapper.stdout.readline() == "mapped\n"
        under_way: list[Callable[[], object]] = [
            lambda: os.pwrite(held, b"lost", 0),
            lambda: os.fsync(half),
            lambda: os.listdir(node.checkpoints),
            lambda: os.open(directory / "fresh", os.O_RDONLY),
            lambda: os.mkdir(directory / "made"),
        ]
        with mounted("fusectl", workspace / "fusectl") as connections, ThreadPoolExecutor(len(under_way)) as threads:
            waiting = connections / str(os.minor(node.mountpoint.stat().st_dev)) / "waiting"
            pid = node.pid
            os.kill(pid, signal.SIGSTOP)
            asked = [threads.submit(errno_of, action) for action in under_way]
            wait_until(lambda: int(waiting.read_text()) >= len(under_way))
            node.kill_daemon()
            write, *others = [future.result() for future in asked]
            assert write in ("ECONNABORTED", "ENOTCONN")  # it waits for an attribute, and then fails as a request of its own
            assert others == ["ECONNABORTED"] * len(others)
        wait_until(node.answers)
        assert node.pid != pid
        dead: list[Callable[[], object]] = [
            lambda: os.pread(held, 10, 0),
            lambda: os.pwrite(held, b"x", 0),
            lambda: os.fsync(held),
            lambda: os.pread(read, 10, 0),
            lambda: os.fsync(half),
            lambda: os.listdir(f"/proc/{mapper.pid}/cwd"),
        ]
        assert [errno_of(action) for action in dead] == ["ENOTCONN"] * len(dead)
        mapper.communicate("\n")
        assert mapper.returncode == -signal.SIGBUS
    for fd in (half, held, read):
        errno_of(partial(os.close, fd))  # close(2) flushes, which nobody hears; the descriptor is free all the same
    assert (node.checkpoints / "committed").read_bytes() == b"committed"
    assert not (remote_files / "half").exists(), "nobody closed it"
    for name in ("closed", "fresh", "mapped"):
        assert (directory / name).read_bytes() == name.encode()
    assert (directory / "held").read_bytes() == b"h" * mmap.PAGESIZE * 2
    assert node.requests().get("GET", 0) == 0

"""A daemon dies before Linux 6.9: each kind of user of the mount, at once and after the next daemon has mounted."""

from __future__ import annotations

import errno
import json
import mmap
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.mount import dead_mount_users, mountpoint
from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until
from tests.support.disks.mounts import mounted
from tests.support.processes.programs import holdfast

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


def left_by(pid: int) -> str:
    """Return a process as commands name it."""
    return f"{pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"


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
            wait_until(lambda: int(waiting.read_text()) == 0)  # a release comes later than the close that has returned
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
        assert left_by(mapper.pid) in dead_mount_users.users()
        findings = json.loads(holdfast("doctor", "--json", "--socket", node.socket))
        (told,) = [finding for finding in findings if finding["check"] == "dead mounts"]
        assert left_by(mapper.pid) in told["found"]
        assert left_by(os.getpid()) in told["found"]
        mapper.communicate("\n")
        assert mapper.returncode == -signal.SIGBUS
    assert (
        holdfast("status", "--socket", node.socket).count("what is open in it fails from then on (no takeover: kernel") == 1
    )
    for fd in (half, held, read):
        errno_of(partial(os.close, fd))  # close(2) flushes, which nobody hears; the descriptor is free all the same
    assert left_by(os.getpid()) not in holdfast("doctor", "--json", "--socket", node.socket)
    assert (node.checkpoints / "committed").read_bytes() == b"committed"
    assert not (remote_files / "half").exists(), "nobody closed it"
    for name in ("closed", "fresh", "mapped"):
        assert (directory / name).read_bytes() == name.encode()
    assert (directory / "held").read_bytes() == b"h" * mmap.PAGESIZE * 2
    assert node.requests().get("GET", 0) == 0


@pytest.mark.promise("dead-mount")
def test_the_command_that_mounts_anew_names_who_uses_the_dead_mount(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    mount = ["mount", place, "--socket", control, "--store", workspace / "store", *stores]
    try:
        assert "still in use" not in holdfast(*mount)
        held = os.open(place / "checkpoints/file", os.O_WRONLY | os.O_CREAT)
        os.write(held, b"x")
        daemon = json.loads(holdfast("status", "--json", "--socket", control))["pid"]
        with os.fdopen(os.pidfd_open(daemon)) as ended:
            os.kill(daemon, signal.SIGKILL)
            select.select([ended], [], [])
        assert f"still in use by {left_by(os.getpid())}" in " ".join(holdfast(*mount).split())
        with suppress(OSError):  # if the kernel writes by itself, it goes on doing so
            os.write(held, b"y")
        assert errno_of(partial(os.fsync, held)) == errno_of(partial(os.close, held)) == "ENOTCONN", (
            "nobody is told of success"
        )
        assert not (workspace / "remote/checkpoints/file").exists()
        holdfast("umount", place, "--socket", control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))

"""Locks that a user without rights holds for as long as it likes, as it can where it may mount file systems.

A system call that writes to the caller's memory, or reads it, may hold the lock of a directory or file meanwhile. Here the
memory is the mapping of a file in a FUSE file system of the user's own, which never answers a read. Anybody may mount one by
fusermount3, and in a user namespace; one of the latter kind is no memory for the kernel's reads in the daemon's name.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import stat as stat_module
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.users.attackers import until_end
from tests.support.users.privileges import User

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
_DETACH = 2  # linux/fs.h
_GETDENTS64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _INIT, _INTERRUPT = 1, 2, 3, 14, 15, 26, 36  # linux/fuse.h
_NO_SUCH_CALL = -38
_HEADER = struct.Struct("=IIQQIIII")
_REPLY = struct.Struct("=IiQ")
_REQUEST_BYTES = 1 << 17
_APART_BYTES = 1 << 20
"""Between the places in the file that two calls use: each waits for a read of its own."""


@contextmanager
def held(user: User, directories: Sequence[Path], own: Path) -> Iterator[None]:
    """Hold the locks of ``directories`` (shared), by processes of ``user``, while the body runs. Needs root.

    ``own`` is a directory for the user's mount.
    """
    with held_up(user, [partial(_list, directory) for directory in directories], own):
        yield


@contextmanager
def held_up(user: User, calls: Sequence[Callable[[ctypes.c_void_p], object]], own: Path) -> Iterator[None]:
    """Let processes of ``user`` make system calls that all hang while the body runs. Needs root.

    Each of ``calls`` makes one, in a thread, with the address of memory that never comes. ``own`` is a directory for the
    user's mount.
    """
    os.chown(own, user.uid, user.gid)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={user.uid},group_id={user.gid}"
    _called(LIBC.mount(b"silent", os.fsencode(own), b"fuse", 0, options.encode()))  # as fusermount3 does for anybody

    def hold(told: int, end: int) -> None:
        _hold(device, calls, own, told, end)

    try:
        with until_end(user, hold) as is_held:
            os.close(device)
            device = -1
            assert is_held, "nothing hangs"
            yield
    finally:
        if device >= 0:
            os.close(device)
        _called(LIBC.umount2(os.fsencode(own), _DETACH))


def read_directly(file: Path, address: ctypes.c_void_p) -> None:
    """Read a file past the page cache: the kernel holds the lock of its inode (shared) until the memory is there."""
    LIBC.pread(os.open(file, os.O_RDONLY | os.O_DIRECT), address, 4096, ctypes.c_long(0))


def write(file: Path, address: ctypes.c_void_p) -> None:
    """Write to a file: the kernel holds the lock of its inode, once bytes were written, until the memory is there."""
    fd = os.open(file, os.O_RDWR)
    os.write(fd, b"written")
    LIBC.pwrite(fd, address, 4096, ctypes.c_long(0))


@contextmanager
def arriving(user: User, large: Path, calls: Sequence[Callable[[ctypes.c_void_p], object]]) -> Iterator[None]:
    """Let a process of ``user`` make system calls while the body runs, with a copy of the end of ``large`` as memory."""

    def call(told: int, end: int) -> None:
        os.write(told, b"1")
        pid = os.fork()
        if pid == 0:
            _call_with(large, calls, copied=True)
            os._exit(0)
        select.select([end], [], [])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    with until_end(user, call):
        yield


def _hold(device: int, calls: Sequence[Callable[[ctypes.c_void_p], object]], own: Path, told: int, end: int) -> None:
    """Serve the file system until ``end`` is closed; a child makes the calls with memory in it.

    Only this process has the device open: when it ends, the kernel gives up all requests, and with them the locks.
    """
    pid = os.fork()
    if pid == 0:
        os.close(device)
        _call_with(own / "memory", calls)
        os._exit(0)
    left = len(calls)
    caller = os.pidfd_open(pid)
    while select.select([device, end, caller], [], [])[0] == [device]:
        left -= _answer(device, len(calls) * _APART_BYTES)
        if not left:
            os.write(told, b"1")
            left = -1
    os.close(device)
    os.waitpid(pid, 0)


def _answer(device: int, size_bytes: int) -> bool:
    """Answer a request, but none to read; return whether it is one."""
    _, opcode, unique, node, *_ = _HEADER.unpack_from(os.read(device, _REQUEST_BYTES))
    if opcode in (_READ, _FORGET, _INTERRUPT):
        return bool(opcode == _READ)
    answers = {
        _INIT: struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 1, 1000, 1000, 4096, 1, 1, 0, 0),
        _LOOKUP: struct.pack("=QQQQII", 2, 0, 3600, 3600, 0, 0) + _attributes(2, size_bytes),
        _GETATTR: struct.pack("=QII", 3600, 0, 0) + _attributes(node, size_bytes),
        _OPEN: bytes(16),
    }
    answer = answers.get(opcode)
    head = _REPLY.pack(_REPLY.size + len(answer or b""), 0 if answer else _NO_SUCH_CALL, unique)
    os.write(device, head + (answer or b""))
    return False


def _attributes(node: int, size_bytes: int) -> bytes:
    mode = stat_module.S_IFDIR | 0o755 if node == 1 else stat_module.S_IFREG | 0o666
    return struct.pack("=QQQQQQIIIIIIIIII", node, size_bytes, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _call_with(file: Path, calls: Sequence[Callable[[ctypes.c_void_p], object]], *, copied: bool = False) -> None:
    """Make all calls with the file's memory, or a copy of its end, each in a thread; return when all have ended."""
    fd = os.open(file, os.O_RDONLY if copied else os.O_RDWR)
    size_bytes = len(calls) * _APART_BYTES
    size, at = ctypes.c_size_t(size_bytes), ctypes.c_long(os.fstat(fd).st_size - size_bytes if copied else 0)
    kind = mmap.MAP_PRIVATE if copied else mmap.MAP_SHARED
    start = LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, kind, fd, at)
    threads = []
    for number, call in enumerate(calls):
        threads.append(threading.Thread(target=call, args=(ctypes.c_void_p(start + number * _APART_BYTES),)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _list(directory: Path, address: ctypes.c_void_p) -> None:
    LIBC.syscall(_GETDENTS64, os.open(directory, os.O_RDONLY), address, 4096)


def _called(result: int) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""Directories whose locks a user without rights holds for as long as it likes, as it can where it may mount file systems.

getdents(2) holds the lock of the directory while it writes to the caller's memory. Here that is the mapping of a file in a
FUSE file system of the user's own, mounted in a user namespace, which never answers a read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import stat as stat_module
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.attackers import until_end
from tests.support.privileges import User

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_NEW_USER, _NEW_NS, _SET_DUMPABLE = 0x1000_0000, 0x0002_0000, 4  # linux/sched.h, linux/prctl.h
_GETDENTS64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _INIT, _INTERRUPT = 1, 2, 3, 14, 15, 26, 36  # linux/fuse.h
_NO_SUCH_CALL = -38
_HEADER = struct.Struct("=IIQQIIII")
_REPLY = struct.Struct("=IiQ")
_REQUEST_BYTES = 1 << 17
_APART_BYTES = 1 << 20
"""Between the places in the file to which two directories are listed: each waits for a read of its own."""


@contextmanager
def held(user: User, directories: Sequence[Path], own: Path) -> Iterator[None]:
    """Hold the locks of ``directories`` (shared), by processes of ``user``, while the body runs. Needs root.

    ``own`` is a directory for the user's mount.
    """
    os.chown(own, user.uid, user.gid)
    device = own.with_name(f"{own.name}-device")
    os.mknod(device, stat_module.S_IFCHR | 0o666, os.makedev(10, 229))  # /dev/fuse, with the mode that udev gives it
    device.chmod(0o666)

    def hold(told: int, end: int) -> None:
        _enter_namespace()
        _hold(device, directories, own, told, end)

    try:
        with until_end(user, hold) as is_held:
            assert is_held, "no lock can be held by a file system of one's own"
            yield
    finally:
        device.unlink()


def _enter_namespace() -> None:
    """Become root of a user namespace, which may mount."""
    uid, gid = os.getuid(), os.getgid()
    _called(_LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0))  # otherwise /proc/self is root's, since the process was root
    _called(_LIBC.unshare(_NEW_USER | _NEW_NS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _hold(device: Path, directories: Sequence[Path], own: Path, told: int, end: int) -> None:
    """Serve the file system until ``end`` is closed; a child lists the directories into it.

    Only this process has the device open: when it ends, the kernel gives up all requests, and with them the locks.
    """
    fd = os.open(device, os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    _called(_LIBC.mount(b"silent", os.fsencode(own), b"fuse", 0, options.encode()))
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        _list_into(own / "memory", directories)
        os._exit(0)
    left = len(directories)
    lister = os.pidfd_open(pid)
    while select.select([fd, end, lister], [], [])[0] == [fd]:
        left -= _answer(fd, len(directories) * _APART_BYTES)
        if not left:
            os.write(told, b"1")
            left = -1
    os.close(fd)
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


def _list_into(file: Path, directories: Sequence[Path]) -> None:
    """List all directories into the file's memory, each by a thread; return when all have failed."""
    fd = os.open(file, os.O_RDWR)
    size = ctypes.c_size_t(len(directories) * _APART_BYTES)
    start = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    threads = []
    for number, directory in enumerate(directories):
        where = ctypes.c_void_p(start + number * _APART_BYTES)
        arguments = (_GETDENTS64, os.open(directory, os.O_RDONLY), where, 4096)
        threads.append(threading.Thread(target=_LIBC.syscall, args=arguments))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _called(result: int) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

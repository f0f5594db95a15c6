"""The kernel's calls that make a mount before it has a place, and then put it there (fsopen(2), move_mount(2); Linux 5.2).

mount(2), and so libfuse, can't mount where the mount of a dead daemon is: it asks for the attributes of the place first.
These calls can. They also show a directory as it is below the mounts on it (open_tree(2)). All of them take CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# the same numbers on all architectures
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442

_AT_FDCWD = -100
_CLONE = 1
_CLOSE_ON_EXEC = 1
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6
_READ_ONLY, NO_SET_ID, NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_FROM_DESCRIPTOR = 0x4
_EMPTY_PATH = 0x1000
_BENEATH = 0x200
"""MOVE_MOUNT_BENEATH, since Linux 6.5."""
NOT_POSSIBLE = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENODEV)
"""The errors of these calls where the kernel, its version, or the process's rights don't allow them."""

_libc = ctypes.CDLL(None, use_errno=True)


def make(kind: str, options: Mapping[str, str | None], attributes: int) -> int:
    """Make a mount of the file system ``kind`` that has no place yet; return its descriptor. Raises ``OSError``.

    An option without a value has None. The mount ends with its descriptor, unless it was placed.
    """
    context = _call(_FSOPEN, kind.encode(), _CLOSE_ON_EXEC)
    try:
        for name, value in options.items():
            if value is None:
                _call(_FSCONFIG, context, _SET_FLAG, name.encode(), None, 0)
            else:
                _call(_FSCONFIG, context, _SET_STRING, name.encode(), value.encode(), 0)
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _CLOSE_ON_EXEC, attributes)
    finally:
        os.close(context)


def make_empty(source: str) -> int:
    """Make a mount of a directory that is empty and can't be written to, not even by root. Otherwise as ``make``."""
    options = {"source": source, "mode": "0555", "size": "4096", "nr_inodes": "2"}
    return make("tmpfs", options, _READ_ONLY | NO_SET_ID | NO_DEVICES | _NO_PROGRAMS)


def copy_of(directory: int, *, read_only: bool) -> int:
    """Return a mount of an open directory that has no place yet, as ``make`` does. Takes Linux 5.12. Raises ``OSError``."""
    mount = _call(_OPEN_TREE, directory, b"", _CLONE | os.O_CLOEXEC | _EMPTY_PATH)
    attributes = NO_SET_ID | NO_DEVICES | (_READ_ONLY if read_only else 0)
    try:
        changed = struct.pack("=4Q", attributes, 0, 0, 0)  # struct mount_attr
        _call(_MOUNT_SETATTR, mount, b"", _EMPTY_PATH, changed, len(changed))
    except OSError:
        os.close(mount)
        raise
    return mount


def place(mount: int, path: str) -> None:
    """Put a mount on ``path``, over whatever is mounted there. Raises ``OSError``."""
    _call(_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(path), _FROM_DESCRIPTOR)


def place_beneath(mount: int, path: str) -> bool:
    """Put a mount beneath the topmost one on ``path``, so that it is seen when that goes; say whether the kernel could."""
    try:
        _call(_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(path), _FROM_DESCRIPTOR | _BENEATH)
    except OSError as problem:
        if problem.errno not in NOT_POSSIBLE:
            raise
        return False
    return True


@contextmanager
def bare(path: str) -> Iterator[int]:
    """Open the directory ``path``, which has no symbolic links, as it is below all mounts on it. Raises ``OSError``."""
    parent, name = os.path.split(path)
    tree = _call(_OPEN_TREE, _AT_FDCWD, os.fsencode(parent), _CLONE | os.O_CLOEXEC)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=tree)
        try:
            yield fd
        finally:
            os.close(fd)
    finally:
        os.close(tree)


def _call(number: int, *arguments: int | bytes | None) -> int:
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = _libc.syscall(number, *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

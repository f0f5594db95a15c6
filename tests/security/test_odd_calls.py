"""System calls that few programs make, by a user without rights: none leads to what is others'."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat as stat_module
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import refused, workdir_of
from tests.support.daemons.node import Node
from tests.support.users.privileges import ALICE, MALLORY

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_USER, _NEW_NS = 0x1000_0000, 0x0002_0000  # linux/sched.h
_WHITEOUT, _AT_FDCWD = 4, -100
_SET_DUMPABLE = 4  # linux/prctl.h
_FAN_REPORT_FID, _FAN_ADD, _FAN_MOUNT, _FAN_FILESYSTEM = 0x200, 0x1, 0x10, 0x100  # linux/fanotify.h
_FAN_EVENTS = 0x3B
"""Read, changed, closed, opened."""
_SET_FLAGS, _SET_PROJECT = 0x4008_6602, 0x401C_5820  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR (linux/fs.h)
_ACL = struct.pack("<IHHIHHIHHIHHI", 2, 1, 7, 0xFFFFFFFF, 2, 7, MALLORY.uid, 16, 7, 0xFFFFFFFF, 32, 0, 0xFFFFFFFF)
SECRET = b"a secret of Alice's"
REFUSALS = (
    *(errno.EACCES, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.ERANGE, errno.ESTALE),
)
Way = Callable[[Path, Path, Path], object]


def called(result: int) -> int:
    """Return the result of a function of libc. Raises ``OSError``."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def by_handle(path: Path, mount: Path) -> bytes:
    """Read a file by its handle, as root of a user namespace, where newer kernels allow that in some mounts."""
    uid, gid = os.getuid(), os.getgid()
    called(_LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0))  # otherwise /proc/self is root's, since the process was root
    called(_LIBC.unshare(_NEW_USER | _NEW_NS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    handle = ctypes.create_string_buffer(136)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint))[0] = 128
    called(_LIBC.name_to_handle_at(_AT_FDCWD, os.fsencode(path), handle, ctypes.byref(ctypes.c_int()), 0))
    root = os.open(mount, os.O_RDONLY)
    return os.read(called(_LIBC.open_by_handle_at(root, handle, os.O_RDONLY)), 100)


def with_ioctl(path: Path, request: int, argument: bytes | int) -> object:
    fd = os.open(path, os.O_RDWR)
    return fcntl.ioctl(fd, request, argument)


def renamed_with_whiteout(path: Path) -> int:
    target = path.with_name("moved")
    return called(_LIBC.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(target), _WHITEOUT))


def watched(path: Path) -> int:
    """Watch a path with inotify(7)."""
    return called(_LIBC.inotify_add_watch(called(_LIBC.inotify_init()), os.fsencode(path), 0x0FFF))


def fan_watched(path: Path, kind: int = 0) -> int:
    """Watch a path, its mount or its file system with fanotify(7), as users may since Linux 5.13."""
    group = called(_LIBC.fanotify_init(_FAN_REPORT_FID, os.O_RDONLY))
    return called(_LIBC.fanotify_mark(group, _FAN_ADD | kind, ctypes.c_uint64(_FAN_EVENTS), _AT_FDCWD, os.fsencode(path)))


def through_path_descriptor(path: Path) -> bytes:
    """Open a file by way of descriptors that needed no rights to get."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    return Path(f"/proc/self/fd/{directory}/{path.name}").read_bytes()


def remounted(path: Path, mount: Path) -> bytes:
    """Read a file in a user namespace of one's own, in which all of the mount is mounted once more."""
    called(_LIBC.unshare(_NEW_USER | _NEW_NS))
    called(_LIBC.mount(os.fsencode(mount), b"/mnt", None, 4096 | 16384, None))
    return (Path("/mnt") / path.relative_to(mount)).read_bytes()


WAYS: dict[str, Way] = {
    "handle in a user namespace": lambda secret, _, mount: by_handle(secret, mount),
    "handle of what is one's own": lambda _, own, mount: by_handle(own, mount),
    "bind mount in a user namespace": lambda secret, _, mount: remounted(secret, mount),
    "O_PATH": lambda secret, *_: through_path_descriptor(secret),
    "O_PATH of the file": lambda secret, *_: os.open(secret, os.O_PATH),
    "inotify on another's directory": lambda secret, *_: watched(secret.parent),
    "inotify on another's file": lambda secret, *_: watched(secret),
    "fanotify on another's directory": lambda secret, *_: fan_watched(secret.parent),
    "fanotify on another's file": lambda secret, *_: fan_watched(secret),
    "fanotify on the mount": lambda _, __, mount: fan_watched(mount, _FAN_MOUNT),
    "fanotify on the file system": lambda _, __, mount: fan_watched(mount, _FAN_FILESYSTEM),
    "access list": lambda _, own, __: os.setxattr(own, "system.posix_acl_access", _ACL),
    "default access list": lambda _, own, __: os.setxattr(own.parent, "system.posix_acl_default", _ACL),
    "Holdfast's mark of a copy": lambda _, own, __: os.setxattr(own, "user.holdfast.copy", b""),
    "Holdfast's mark of what is to be sent": lambda _, own, __: os.setxattr(own, "user.holdfast.unsent", b"12345678"),
    "Holdfast's record of a directory": lambda _, own, __: os.setxattr(own.parent, "user.holdfast.workdir", b"x"),
    "trusted attribute": lambda _, own, __: os.setxattr(own, "trusted.x", b"x"),
    "capability": lambda _, own, __: os.setxattr(own, "security.capability", struct.pack("<IIIII", 0x2000001, 4, 0, 0, 0)),
    "attribute without a name": lambda _, own, __: called(_LIBC.setxattr(os.fsencode(own), b"", b"x" * 32, 32, 0)),
    "whiteout by rename": lambda _, own, __: renamed_with_whiteout(own),
    "device": lambda _, own, __: os.mknod(own.with_name("null"), stat_module.S_IFCHR | 0o666, os.makedev(1, 3)),
    "immutable": lambda _, own, __: with_ioctl(own, _SET_FLAGS, struct.pack("l", 0x10)),
    "project number": lambda _, own, __: with_ioctl(own, _SET_PROJECT, struct.pack("IIIII8x", 0, 0, 0, 7, 0)),
}


@pytest.fixture
def homes(make_node: NodeFactory) -> tuple[Node, Path, Path]:
    """A node, a file of Alice's in a closed directory, and one of Mallory's."""
    node = make_node().start()
    secret, own = workdir_of(node, ALICE, "driver_a") / "secret", workdir_of(node, MALLORY, "driver_m") / "own"
    ALICE.do(lambda: secret.write_bytes(SECRET))
    secret.parent.chmod(0o700)
    MALLORY.do(lambda: own.write_bytes(b"x"))
    return node, secret, own


def test_no_odd_call_leads_to_what_is_others(homes: tuple[Node, Path, Path]) -> None:
    node, secret, own = homes
    for name, way in WAYS.items():
        reader, writer = os.pipe()

        def tries(way: Way = way, writer: int = writer) -> None:
            os.write(writer, b"%d" % refused(lambda: way(secret, own, node.mountpoint)))

        MALLORY.do(tries)
        assert int(os.read(reader, 100)) in REFUSALS, name
        os.close(reader)
        os.close(writer)
    assert secret.read_bytes() == SECRET
    assert secret.stat().st_nlink == 1

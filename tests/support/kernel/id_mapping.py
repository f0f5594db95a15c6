"""A user namespace, and mounts with ids mapped to it, as containers have them for a pod with ``hostUsers: false``."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.mount.mount_calls import copy_of

_MOUNT_SETATTR, _EMPTY_PATH, _ID_MAPPED = 442, 0x1000, 0x00100000
_MAP = "0 100000 65536\n"
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def user_namespace() -> Iterator[int]:
    """Yield a descriptor of a user namespace whose root is the user 100000 outside."""
    command = ["unshare", "--user", "sh", "-c", "echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is in its namespace
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{kind}").write_text(_MAP)
        namespace = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            os.close(namespace)


def id_mapped(directory: Path, namespace: int) -> int:
    """Return a mount of a directory, without a place, whose ids are mapped to a user namespace. Raises ``OSError``."""
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = copy_of(opened, read_only=False)
    finally:
        os.close(opened)
    attributes = struct.pack("QQQQ", _ID_MAPPED, 0, 0, namespace)
    if _libc.syscall(_MOUNT_SETATTR, mount, b"", _EMPTY_PATH, attributes, len(attributes)) != 0:
        error = ctypes.get_errno()
        os.close(mount)
        raise OSError(error, os.strerror(error), str(directory))
    return mount

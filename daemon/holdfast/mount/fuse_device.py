"""``/dev/fuse``, without which nothing can be mounted, and what else a mount takes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_PATH = "/dev/fuse"
_NUMBER = os.makedev(10, 229)
_SETTINGS = Path("/etc/fuse.conf")
_TO_PASS_IT = "in a container, pass the device and CAP_SYS_ADMIN (docker run --device /dev/fuse --cap-add SYS_ADMIN)"


def why_unusable() -> tuple[str, str] | None:
    """Return why this process can't use the device, and what to do about it; None if it can."""
    try:
        fd = os.open(_PATH, os.O_RDWR | os.O_CLOEXEC)
    except OSError as problem:
        return f"{_PATH} can't be opened ({problem.strerror})", _mending(problem)
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != _NUMBER:
        return f"{_PATH} is something else than FUSE's device", f"remove it, then: mknod -m 666 {_PATH} c 10 229"
    return None


def lets_others_in() -> bool:
    """Say whether an ordinary user may mount with ``allow_other``, by the settings of fusermount3."""
    try:
        return any(line.strip() == "user_allow_other" for line in _SETTINGS.read_text().splitlines())
    except OSError:
        return False


def what_mounting_takes(path: str, *, allow_other: bool) -> str:
    """Say what this process lacks, most likely, if it may not mount on the directory ``path``."""
    if os.geteuid() == 0:
        return "mounting takes CAP_SYS_ADMIN, which a container is given by docker run --cap-add SYS_ADMIN"
    if os.stat(path).st_uid != os.geteuid() and not os.access(path, os.W_OK):
        return "an ordinary user mounts on a directory that it may write to; choose one of its own"
    if allow_other and not lets_others_in():
        return f"other users may not be let in; add user_allow_other to {_SETTINGS}, or set mount.allow_other = false"
    return "mounting takes root, or the setuid helper fusermount3 (package fuse3)"


def _mending(problem: OSError) -> str:
    if problem.errno == errno.EACCES:
        return f"chmod 666 {_PATH}, which is the mode that udev gives it, or run as root"
    if problem.errno == errno.EPERM:
        return f"this process may not use the device: {_TO_PASS_IT}"
    return f"load the module (modprobe fuse); {_TO_PASS_IT}"

"""``/dev/fuse``, without which nothing can be mounted."""

from __future__ import annotations

import errno
import os
import stat

_PATH = "/dev/fuse"
_NUMBER = os.makedev(10, 229)
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


def _mending(problem: OSError) -> str:
    if problem.errno == errno.EACCES:
        return f"chmod 666 {_PATH}, which is the mode that udev gives it, or run as root"
    if problem.errno == errno.EPERM:
        return f"this process may not use the device: {_TO_PASS_IT}"
    return f"load the module (modprobe fuse); {_TO_PASS_IT}"

"""Finds processes that still use a mount whose daemon has died: what they have open there fails until they end.

Such a mount was detached when the next one was made, so no table of mounts lists it. Descriptors, working directories and
mappings lead to it.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.mount.mountpoint import parsed
from holdfast.system.processes import for_child
from holdfast.system.text import printable, shown

_SECONDS = 20.0
_KILLED_SECONDS = 1.0
_MAPPED = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ \S+ (00:[0-9a-f]+) [1-9]\d* +/", re.MULTILINE)
"""A mapped file of a file system without a disk of its own, and the number of that, as in ``/proc/PID/maps``."""


def users() -> list[str]:
    """Return the processes but this one as ``4711 (java)``, as far as this user may see them.

    Another process looks: a mount of something else that hangs may hold it up. Raises ``TimeoutError`` if one does.
    """
    command = [sys.executable, "-P", "-m", __name__]
    looking = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=for_child(os.environ))
    try:
        told, _ = looking.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        looking.kill()
        with suppress(subprocess.TimeoutExpired):  # it may not be able to end before that mount has answered
            looking.wait(_KILLED_SECONDS)
        if looking.stdout is not None:
            looking.stdout.close()
        raise TimeoutError(f"looking at all processes took more than {_SECONDS:g} s") from None
    return told.decode().splitlines()


def _look() -> Iterator[str]:
    dead: dict[int, bool] = {}
    processes = sorted(int(path.name) for path in Path("/proc").glob("[0-9]*"))
    for pid in processes:
        if pid in (os.getpid(), os.getppid()):  # who asks, from a shell that is there, ends by itself
            continue
        process = Path(f"/proc/{pid}")
        with suppress(OSError):  # it has ended, or is another user's
            attached = {mount.number for mount in parsed((process / "mountinfo").read_bytes())}
            for link, number in _used(process):
                if number not in attached and number not in dead:
                    dead[number] = _is_dead(link)
                if dead.get(number):
                    yield f"{pid} ({printable(shown((process / 'comm').read_bytes()[:-1]))})"
                    break


def _used(process: Path) -> Iterator[tuple[str, int]]:
    """Yield the files that a process uses, and the number of the mount of each."""
    for name in os.listdir(process / "fd"):
        with suppress(OSError):  # closed meanwhile
            link = f"{process}/fd/{name}"
            if os.readlink(link).startswith("/"):
                yield link, _mount_number(process / "fdinfo" / name)
    seen = set()
    mapped = _MAPPED.findall((process / "maps").read_text(errors="replace"))
    for name, device in (("cwd", ""), *((f"map_files/{place}", device) for place, device in mapped)):
        if device in seen:  # one file of each file system tells; a JVM in a container has thousands
            continue
        with suppress(OSError):
            fd = os.open(process / name, os.O_PATH | os.O_CLOEXEC)
            seen.add(device)
            try:
                yield f"{process}/{name}", _mount_number(Path(f"/proc/self/fdinfo/{fd}"))
            finally:
                os.close(fd)


def _mount_number(fdinfo: Path) -> int:
    found = re.search(r"^mnt_id:\s*(\d+)$", fdinfo.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _is_dead(path: str) -> bool:
    try:
        os.statvfs(path)
    except OSError as problem:
        return problem.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


if __name__ == "__main__":
    sys.stdout.buffer.writelines(f"{user}\n".encode() for user in _look())

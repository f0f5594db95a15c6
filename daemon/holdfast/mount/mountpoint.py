"""Mountpoints: what is mounted where, whether its daemon answers, and unmounting."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from holdfast.errors import MountpointBusyError, MountpointError, NotMountedError, UnusableMountpointError
from holdfast.mount import mount_users
from holdfast.system.processes import for_child
from holdfast.system.text import is_utf8, printable

FILE_SYSTEM = "fuse.holdfast"
COVER = ("tmpfs", "holdfast-cover")
"""File system and source of the mount that lies over a directory which can't be protected otherwise."""
_MNT_DETACH = 2
_OPTIONAL_FIELDS = 6
"""Index of mountinfo's first optional field; a hyphen ends them."""

_ANSWER_SECONDS = 5.0
"""The time limit for an answer, which takes milliseconds; starting the process that asks can take tenths of a second."""
_KILLED_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_BUSY_TRIES = 20
_BUSY_PAUSE_SECONDS = 0.05
_MOST_NAMED = 5
_ASK = """import os, sys
try:
    os.statvfs(sys.argv[1])
    if sys.argv[2:]:
        os.listdir(sys.argv[1])
except OSError as problem:
    sys.exit(problem.errno)
"""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount, from ``/proc/self/mountinfo``."""

    mountpoint: str
    file_system: str
    device: int
    source: str
    number: int
    lies_on: int
    """The number of the mount that this one is mounted on."""

    @property
    def is_holdfast(self) -> bool:
        """True for a Holdfast, served or not."""
        return self.file_system == FILE_SYSTEM

    @property
    def is_cover(self) -> bool:
        """True for a mount that only keeps others from writing into the directory below."""
        return (self.file_system, self.source) == COVER


class Life(Enum):
    """The state of a mount's daemon: whether it answers."""

    ALIVE = auto()
    DEAD = auto()
    SILENT = auto()
    """Requests wait: the daemon hangs, or there is none now and somebody holds the mount for the next one."""


def mounts() -> list[Mount]:
    """Return all mounts of this process's namespace, in the order of mounting."""
    return parsed(Path("/proc/self/mountinfo").read_bytes())


def parsed(mountinfo: bytes) -> list[Mount]:
    """Parse the kernel's ``mountinfo`` (proc_pid_mountinfo(5)).

    In paths it escapes only space, tab, newline and backslash: other characters that end a line in text files may be part
    of a name.
    """
    found = []
    for line in os.fsdecode(mountinfo).split("\n"):
        if not line:
            continue
        fields = line.split(" ")
        major, _, minor = fields[2].partition(":")
        kind, source = fields[fields.index("-", _OPTIONAL_FIELDS) + 1 :][:2]
        device = os.makedev(int(major), int(minor))
        found.append(Mount(_unescaped(fields[4]), kind, device, _unescaped(source), int(fields[0]), int(fields[1])))
    return found


def mount_at(path: str) -> Mount | None:
    """Return the topmost mount whose mountpoint is ``path``; None if that is a cover. Does not wait for a daemon."""
    return mounted_on(real_path(path))


def real_path(path: str) -> str:
    """Return ``path`` without symbolic links. Unlike realpath(3), which asks for attributes, it waits for no daemon."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # using the path will give the same error
        return os.path.realpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def mounted_on(real_path: str) -> Mount | None:
    """Return the topmost mount on ``real_path``, which has no symbolic links; None if that is a cover.

    Does not wait for a daemon.
    """
    stack = stack_on(real_path)
    return stack[0] if stack and not stack[0].is_cover else None


def stack_on(real_path: str) -> list[Mount]:
    """Return the mounts on ``real_path``, which has no symbolic links, the topmost first."""
    here = {mount.number: mount for mount in mounts() if mount.mountpoint == real_path}
    covered = {mount.lies_on for mount in here.values() if mount.lies_on != mount.number}
    top = [mount for mount in here.values() if mount.number not in covered]
    found, mount = [], top[-1] if top else None
    while mount is not None:
        found.append(here.pop(mount.number))
        mount = here.get(mount.lies_on)
    return found


def is_mounted(real_path: str, device: int) -> bool:
    """Say whether the file system ``device`` is mounted on ``real_path``, even under another. Waits for no daemon."""
    return any((mount.mountpoint, mount.device) == (real_path, device) for mount in mounts())


def check(path: str) -> None:
    """Check that ``path`` can be mounted on: a directory that is free, or has the mount of a dead daemon.

    Raises ``MountpointError``, which says what to do.
    """
    if not path:
        raise UnusableMountpointError("no mountpoint: give one (holdfast mount /mnt/holdfast) or set mount.mountpoint")
    if not is_utf8(path) or not is_utf8(real_path(path)):
        raise UnusableMountpointError(f"the path of the mountpoint {printable(path)} is not UTF-8; choose another directory")
    mount = mount_at(path)
    if mount is None:
        _check_directory(path)
    else:
        _check_dead(path, mount)


def prepare(path: str) -> str:
    """Check ``path`` as ``check`` does, and return it without symbolic links.

    Once it is mounted, resolving it would wait for the daemon.
    """
    check(path)
    return real_path(path)


def clear(real_path: str) -> None:
    """Unmount what dead daemons left on a path that ``prepare`` has returned. Raises ``MountpointError``.

    Until the next mount everybody sees the directory underneath.
    """
    while mounted_on(real_path) is not None:
        detach(real_path)
        check(real_path)


def is_alive(path: str) -> bool:
    """Say whether the file system mounted at ``path`` has a daemon or waits for one. Raises as ``life``."""
    return life(path) is not Life.DEAD


def life(path: str, *, reads: bool = False) -> Life:
    """Find out whether the daemon of the mount at ``path`` answers statvfs(3), and with ``reads`` a listing of its root.

    Raises ``MountpointError`` for other errors.

    Another process makes the call. A process that waits for a FUSE daemon can't end before it has the answer. If this one
    were a new daemon that waits, it would keep a lock that the daemon which is to answer needs: a deadlock.
    """
    nowhere = subprocess.DEVNULL  # readers of this process's output must not wait for a child that can't end
    try:
        asking = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _ASK, path, *(["reads"] if reads else [])],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            env=for_child(os.environ),
        )
    except OSError as problem:
        raise MountpointError(f"can't start a process that asks the mount at {path}: {problem.strerror}") from None
    try:
        number = asking.wait(_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        asking.kill()
        with suppress(subprocess.TimeoutExpired):  # if a daemon has read the request, it ends only with the answer
            asking.wait(_KILLED_SECONDS)
        return Life.SILENT
    if number in (errno.ENOTCONN, errno.ECONNABORTED):
        return Life.DEAD
    if number:
        reason = os.strerror(number) if number > 0 else f"the process that asked was killed by signal {-number}"
        raise MountpointError(f"the mount at {path} does not answer: {reason}")
    return Life.ALIVE


def _check_dead(path: str, mount: Mount) -> None:
    if mount.file_system != FILE_SYSTEM:
        raise MountpointBusyError(
            f"{path} is in use: {mount.file_system} is mounted there; unmount it or choose another directory"
        )
    found = life(path)
    if found is Life.ALIVE:
        raise MountpointBusyError(f"{path} is in use: a running Holdfast is mounted there; 'holdfast umount {path}' ends it")
    if found is Life.SILENT:
        raise MountpointBusyError(
            f"{path} is in use: a Holdfast is mounted there that does not answer; if systemd or holdfast mount --supervise "
            f"holds it, its daemon is started again by itself; 'holdfast umount --lazy {path}' takes it away"
        )


def create(path: str) -> None:
    """Make the directory ``path`` if there is nothing. A mount that is on it is not asked: it may wait for its daemon.

    Raises ``MountpointError``.
    """
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError as problem:
        raise MountpointError(f"the mountpoint {path} can't be made: {problem.strerror}") from None


def _check_directory(path: str) -> None:
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise NotMountedError(f"the mountpoint {path} does not exist; create it: mkdir -p {path}") from None
    except NotADirectoryError:
        raise UnusableMountpointError(f"the mountpoint {path} is not a directory") from None
    except OSError as problem:
        raise MountpointError(f"the mountpoint {path} can't be used: {problem.strerror}") from None


class _BusyError(Exception):
    """Somebody uses the mount."""


def unmount(path: str) -> None:
    """Unmount ``path``. Raises ``MountpointError`` when files are open there, or nothing is mounted.

    A process that only looks at it, as the watchdog's does, keeps it busy for a moment: this waits for that.
    """
    for _ in range(_BUSY_TRIES):
        try:
            _umount(path, 0)
        except _BusyError:
            users = _users(path)
            if users:
                break
            time.sleep(_BUSY_PAUSE_SECONDS)
        else:
            return
    else:
        users = ""
    raise MountpointBusyError(f"{path} is in use{users}; end that first, or unmount with --lazy")


def detach(path: str) -> None:
    """Unmount lazily: the mountpoint is free at once; open files keep the file system alive."""
    _umount(path, _MNT_DETACH)


def detach_when_dead(path: str) -> None:
    """Wait until no Holdfast is mounted at ``path``; take a mount away that has no daemon, and that nobody holds for one.

    Raises ``MountpointError``.
    """
    pause_seconds = _LOOK_SECONDS
    while (mount := mount_at(path)) is not None and mount.is_holdfast:
        if life(path) is Life.DEAD and mount_at(path) == mount:
            with suppress(NotMountedError):  # somebody else has done it
                detach(path)
        else:
            time.sleep(pause_seconds)  # a daemon that is there may stay for ever
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)


def _umount(path: str, flags: int) -> None:
    if os.geteuid() != 0:
        _fusermount(path, flags)
        return
    if _libc.umount2(os.fsencode(path), flags) != 0:
        number = ctypes.get_errno()
        if number == errno.EBUSY:
            raise _BusyError
        if number == errno.EINVAL:
            raise NotMountedError(f"nothing is mounted at {path}")
        raise MountpointError(f"can't unmount {path}: {os.strerror(number)}")


def _fusermount(path: str, flags: int) -> None:
    helper = shutil.which("fusermount3")
    if helper is None:
        raise MountpointError("fusermount3 is missing (Debian package fuse3); without it only root can unmount")
    command = [helper, "-u", *(["-z"] if flags & _MNT_DETACH else []), real_path(path)]  # it knows no other name
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=for_child(os.environ))
    if result.returncode != 0:
        raise MountpointError(f"can't unmount {path}: {result.stderr.strip()}")


def _users(path: str) -> str:
    """Return a text that names processes with files open below ``path``, and mounts there."""
    prefix = real_path(path)
    inside = sorted({mount.mountpoint for mount in mounts() if mount.mountpoint.startswith(prefix + "/")})
    mounted = f"; mounted in it: {printable(', '.join(inside[:_MOST_NAMED]))}" if inside else ""
    return mount_users.below(prefix) + mounted


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field

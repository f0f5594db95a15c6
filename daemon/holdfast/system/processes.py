"""Facts from ``/proc`` about the processes that the daemon meets as callers and holders, and about this boot (proc(5)).

Also which variables a program gets that the daemon starts, and by which bit a thread keeps its capabilities.

The first line of ``/proc/PID/status`` has the program's name, which a process chooses. The kernel escapes line feeds in it,
but nothing else that Python's ``splitlines`` takes for the end of a line; so the fields are found by line feeds alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_THREE_ENTRIES_BYTES = 96
_THIRD_NAME = 2 * 24 + 19  # after . and .., and the head of an entry (getdents(2), linux_dirent64)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_REAL_ID, _FILE_SYSTEM_ID = 0, 3
"""Positions in the lines ``Uid`` and ``Gid``: real, effective, saved, file system."""
_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704
"""Questions about a namespace (ioctl_ns(2))."""
_NAMESPACE = os.O_RDONLY | os.O_CLOEXEC
_KEPT = ("PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH")
_PR_GET_SECUREBITS, _PR_SET_SECUREBITS = 27, 28
_NO_SETUID_FIXUP = 1 << 2
_CAP_DAC_OVERRIDE = 1


def boot_id() -> bytes:
    """Return the id of this boot of the machine; numbers and start times of processes are valid within one boot."""
    return _BOOT_ID.read_bytes().strip()


def leader_of(thread: int) -> int:
    """Return the process that a thread belongs to. Raises ``OSError`` or ``ValueError`` when there is none to be seen.

    It is the first of its threads. Their list is read up to there, unlike ``status``, which the kernel makes whole: for a
    process with 65,536 groups that takes tens of milliseconds.
    """
    fd = os.open(f"/proc/{thread}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        entries = ctypes.create_string_buffer(_THREE_ENTRIES_BYTES)
        length = _libc.getdents64(fd, entries, _THREE_ENTRIES_BYTES)
    finally:
        os.close(fd)
    return int(entries.raw[_THIRD_NAME:length].partition(b"\0")[0])  # -1 or too short if it has just ended: ValueError


@dataclass(frozen=True, slots=True)
class ListedNumbers:
    """Numbers in the kernel's text, each between spaces. Looking for one takes a hundredth of the time of parsing."""

    text: bytes

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and (b" %d " % number) in self.text


def supplementary_groups(thread: int, uid: int, gid: int) -> Container[int]:
    """Return the supplementary groups of a thread; none if it is not to be seen.

    A thread whose file-system ids are not ``uid`` and ``gid`` has none either: its number belongs to another one by now.
    """
    try:
        status = _status(thread)
        ids = _numbers(status, b"Uid")[_FILE_SYSTEM_ID], _numbers(status, b"Gid")[_FILE_SYSTEM_ID]
        return ListedNumbers(b" %s " % _field(status, b"Groups").strip()) if ids == (uid, gid) else frozenset()
    except (OSError, ValueError):
        return frozenset()


def answerable(thread: int, uid: int) -> tuple[int, int]:
    """Return who answers for a thread: ``uid`` and 0, or the owner of the outermost user namespace around it.

    A user with a range of subordinate ids (subuid(5)) has as many uids in a namespace as it likes, and makes others below
    that one in their names. Those that root has made, as for a container, answer for themselves: 0 and the number of the
    outermost. The daemon's own namespace, and those around it, don't count, nor does a thread that is not to be seen.
    """
    with suppress(OSError):
        own = os.stat("/proc/self/ns/user").st_ino
        namespace = os.open(f"/proc/{thread}/ns/user", _NAMESPACE)
        try:
            while (inode := os.fstat(namespace).st_ino) != own:
                parent = fcntl.ioctl(namespace, _NS_GET_PARENT)
                try:
                    if os.fstat(parent).st_ino == own:
                        return _owner_and_number(namespace, inode)
                finally:
                    os.dup2(parent, namespace, inheritable=False)
                    os.close(parent)
        finally:
            os.close(namespace)
    return uid, 0


def _owner_and_number(namespace: int, inode: int) -> tuple[int, int]:
    uid = ctypes.c_uint32()
    fcntl.ioctl(namespace, _NS_GET_OWNER_UID, uid)
    return uid.value, 0 if uid.value else inode


def real_ids(pid: int) -> tuple[int, int]:
    """Return real uid and gid of a process: of who started it, also if it runs a set-id program (credentials(7)).

    Raises ``OSError`` or ``ValueError`` when there is none to be seen.
    """
    status = _status(pid)
    return _numbers(status, b"Uid")[_REAL_ID], _numbers(status, b"Gid")[_REAL_ID]


def numbers_of(process: str) -> list[int]:
    """Return the numbers of a process, from the namespace of /proc down to the process's own (proc(5), NSpid).

    ``process`` is its number in the namespace of /proc, or ``self``. Raises as ``real_ids``.
    """
    return _numbers(_status(process), b"NSpid")


def _status(process: int | str) -> bytes:
    return Path(f"/proc/{process}/status").read_bytes()


def _numbers(status: bytes, key: bytes) -> list[int]:
    return [int(number) for number in _field(status, key).split()]


def _field(status: bytes, key: bytes) -> bytes:
    _, found, rest = status.partition(b"\n%s:" % key)
    if not found:
        raise ValueError(key)
    return rest.partition(b"\n")[0]


def for_child(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environment`` that a program started by the daemon gets: search paths, no credentials."""
    return {name: environment[name] for name in _KEPT if name in environment}


def keep_capabilities() -> None:
    """Let this thread, and those that it starts, keep its capabilities when its fsuid changes (SECBIT_NO_SETUID_FIXUP).

    Does nothing without CAP_SETPCAP.
    """
    _libc.prctl(_PR_SET_SECUREBITS, _libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0) | _NO_SETUID_FIXUP, 0, 0, 0)


def keeps_capabilities() -> bool:
    """Say whether ``keep_capabilities`` has taken effect on this thread."""
    bits = int(_libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0))
    return bits >= 0 and bool(bits & _NO_SETUID_FIXUP)


def overrides_modes() -> bool:
    """Say whether this process reads and writes files whatever their mode (CAP_DAC_OVERRIDE), which root may lack."""
    return bool(int(_field(_status("self"), b"CapEff"), 16) >> _CAP_DAC_OVERRIDE & 1)

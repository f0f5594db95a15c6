"""What ``/proc`` says of processes that the daemon meets as callers and holders, and of the boot they live in (proc(5))."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FILE_SYSTEM_ID = 3
"""Position after the real, effective and saved id in the lines ``Uid`` and ``Gid``."""


def boot_id() -> bytes:
    """Return the id of this boot of the machine; numbers and start times of processes are valid within one boot."""
    return _BOOT_ID.read_bytes().strip()


def leader_of(thread: int) -> int:
    """Return the process that a thread belongs to. Raises ``OSError`` or ``ValueError`` when there is none to be seen."""
    for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ValueError(thread)


def supplementary_groups(thread: int, uid: int, gid: int) -> frozenset[int]:
    """Return the supplementary groups of a thread; none if it is not to be seen.

    Nor of a thread whose file-system ids are not ``uid`` and ``gid``: the number belongs to another one by now.
    """
    fields: dict[str, list[str]] = {}
    try:
        for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            fields[key] = value.split()
        is_same = int(fields["Uid"][_FILE_SYSTEM_ID]) == uid and int(fields["Gid"][_FILE_SYSTEM_ID]) == gid
        return frozenset(map(int, fields["Groups"])) if is_same else frozenset()
    except (OSError, ValueError, KeyError, IndexError):
        return frozenset()

"""The children of a process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A command's prefix: the kernel kills it when the thread that has started it ends, however it does."""


def children_of(pid: int, program: bytes = b"") -> list[int]:
    """Return the processes that the first thread of ``pid`` has started and not waited for, with ``program`` in their
    command lines.
    """
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended, and its children have another parent
        return found
    for child in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has been waited for meanwhile
            if program in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def family_of(pid: int) -> list[int]:
    """Return a process and all that it, and they, have started."""
    return [pid, *(below for child in children_of(pid) for below in family_of(child))]

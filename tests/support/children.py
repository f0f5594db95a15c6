"""The children of a process."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int, program: bytes = b"") -> list[int]:
    """Return the processes that the first thread of ``pid`` has started and not waited for, with ``program`` in their
    command lines.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if program in Path(f"/proc/{child}/cmdline").read_bytes()]

"""What ``/proc`` says of processes that the daemon meets as callers and holders (proc(5))."""

from __future__ import annotations

from pathlib import Path


def leader_of(thread: int) -> int:
    """Return the process that a thread belongs to. Raises ``OSError`` or ``ValueError`` when there is none to be seen."""
    for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ValueError(thread)

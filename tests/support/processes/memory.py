"""The memory of a process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """``resident``: bytes in memory, shared ones too. ``own``: the bytes of these that no other process has."""

    resident: int
    own: int

    def __str__(self) -> str:
        return f"{self.resident / 1e6:.1f} MB, of which {self.own / 1e6:.1f} are its own"


def memory(pid: int, proc: Path = Path("/proc")) -> Memory:
    """Return what a process has in memory, by the ``/proc`` of its process namespace. Raises ``OSError`` if it has ended."""
    lines = (proc / f"{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    own = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return Memory(kilobytes["Rss"] * 1024, own * 1024)

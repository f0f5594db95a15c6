"""What a daemon's threads allocate is shared by all of them: memory that one gave back is used again by the others."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.daemons.node import Node

_ARENA_BYTES = 64 << 20
"""glibc reserves so much for an arena of a thread, aligned to its size (``HEAP_MAX_SIZE`` in malloc/arena.c)."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (?:rw-p|---p) 0+ 00:00 0 *$", re.MULTILINE)


def arenas(pid: int) -> list[int]:
    """Return the addresses of the arenas of a process beside its main one: two mappings, used and reserved, fill each."""
    found = [(int(begin, 16), int(end, 16)) for begin, end in _MAPPING.findall(Path(f"/proc/{pid}/maps").read_text())]
    ends = dict(found)
    return [begin for begin, end in found if begin % _ARENA_BYTES == 0 and ends.get(end) == begin + _ARENA_BYTES]


def test_threads_that_come_and_go_leave_no_arenas_behind(node: Node) -> None:
    def store(number: int) -> None:
        (node.checkpoints / f"{number}").write_bytes(bytes(300_000))

    with ThreadPoolExecutor(16) as programs:
        list(programs.map(store, range(64)))
    assert node.requests()["PUT"] == 64
    assert arenas(node.pid) == []

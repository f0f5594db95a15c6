"""A rebuild of the index on a disk that can't read all directories."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import trio

from holdfast.fs.integrity.index_rebuild import IndexRebuild


def test_what_the_disk_can_not_read_is_told_and_the_next_run_looks_again() -> None:
    """Gain: one directory ended the daemon at each start, and no unsent file was sent any more."""
    told: list[tuple[str, dict[str, Any]]] = []
    rebuilt: list[bool] = []

    def walk(path: bytes, *, unreadable: Callable[[bytes, OSError], object]) -> Iterator[tuple[bytes, Any]]:
        unreadable(b"checkpoints/bad", OSError(errno.EIO, os.strerror(errno.EIO)))
        yield b"checkpoints/gone", None

    def gone(path: bytes) -> int:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    tree = SimpleNamespace(walk=walk, open_file=gone)
    index = SimpleNamespace(is_to_be_rebuilt=lambda: True, note_rebuilt=lambda: rebuilt.append(True))
    events = SimpleNamespace(emit=lambda name, **more: told.append((name, more)))
    store = SimpleNamespace(tree=tree, others=SimpleNamespace(disks=[]))
    base: Any = SimpleNamespace(
        policy=SimpleNamespace(of_path=lambda _: None), parts=SimpleNamespace(events=events, store=store, index=index)
    )
    nobody: Any = None
    trio.run(IndexRebuild(base, nobody, nobody).run)
    assert [(name, more.get("path")) for name, more in told] == [
        ("rebuild-skipped", "checkpoints/bad"),
        ("rebuild-skipped", "checkpoints/gone"),
        ("index-rebuilt", None),
    ]
    assert rebuilt == []

"""Which temporary files are abandoned, and that a last look comes before one is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from holdfast.errors import FileBusyError
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.maintenance.abandoned_temporaries import AbandonedTemporaries
from holdfast.store import Tree
from holdfast.telemetry import EventLog
from holdfast.transfer import CachedCopies

LEFT = ".7.changelog.0a1b2c3d-0000-4000-8000-000000000000.tmp"
DAY = 86400


@dataclass
class Node:
    """A node's tree, in the place of its copies and of its open files."""

    root: Path
    now_ns: int
    open: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    sidecars: list[bytes] = field(default_factory=list)

    def is_open(self, inode: int) -> bool:
        return inode in self.open

    def drop(self, path: bytes, inode: int) -> bool:
        file = self.root / os.fsdecode(path)
        assert file.stat().st_ino == inode
        file.unlink()
        return True

    def drop_sidecar(self, path: bytes) -> None:
        self.sidecars.append(path)

    async def settle(self, inode: int) -> None:
        if inode in self.locked:
            raise FileBusyError("locked")

    def left(self, name: str) -> Path:
        """Return a new file."""
        file = self.root / "checkpoints/q/state" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"bytes")
        return file


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node a day and a half after anything that the test does."""
    (tmp_path / "checkpoints").mkdir()
    return Node(tmp_path, tmp_path.stat().st_ctime_ns + int(1.5 * DAY * 10**9))


@pytest.fixture
def events() -> EventLog:
    """The events of the node."""
    return EventLog(lambda: 0.0)


@pytest.fixture
def temporaries(node: Node, events: EventLog) -> Iterator[AbandonedTemporaries]:
    """What is tried."""
    fd = os.open(node.root, os.O_RDONLY | os.O_DIRECTORY)
    copies, hot = cast(CachedCopies, node), cast(HotFiles, node)
    yield AbandonedTemporaries(Tree(fd), copies, hot, events, (b"checkpoints",), DAY, now_ns=lambda: node.now_ns)
    os.close(fd)


async def test_what_a_killed_writer_has_left_is_removed(
    node: Node, events: EventLog, temporaries: AbandonedTemporaries
) -> None:
    left, kept = node.left(LEFT), [node.left(name) for name in ("7.changelog", "a.tmp", ".a.tmp", "7.changelog.tmp")]
    assert await temporaries.remove(b"checkpoints") == 1
    assert not left.exists()
    assert all(file.exists() for file in kept)
    assert node.sidecars == [b"checkpoints/q/state/" + LEFT.encode()]
    assert [(event.kind, event.fields) for event in events.since(0)] == [
        ("temporaries-removed", {"zone": "checkpoints", "files": 1})
    ]


async def test_what_is_young_open_or_locked_is_kept(node: Node, events: EventLog, temporaries: AbandonedTemporaries) -> None:
    file = node.left(LEFT)
    inode = file.stat().st_ino
    for in_use in (node.open, node.locked):
        in_use.add(inode)
        assert await temporaries.remove(b"checkpoints") == 0
        in_use.clear()
    node.now_ns -= DAY * 10**9
    assert await temporaries.remove(b"checkpoints") == 0
    assert file.exists()
    assert events.since(0) == []


@pytest.mark.parametrize("change", ["bytes", "names", "gone", "replaced"])
async def test_a_change_since_the_walk_is_seen(node: Node, temporaries: AbandonedTemporaries, change: str) -> None:
    file = node.left(LEFT)

    async def changed_meanwhile(inode: int) -> None:
        other = file.with_name("other")
        while change in ("bytes", "names") and file.stat().st_ctime_ns < before_ns:  # a clock of the kernel's may be coarse
            if change == "bytes":
                file.write_bytes(b"more")
            else:
                other.unlink(missing_ok=True)
                os.link(file, other)
        if change in ("gone", "replaced"):
            file.rename(other)
        if change == "replaced":
            file.write_bytes(b"another's")
            assert file.stat().st_ino != inode

    before_ns = file.stat().st_ctime_ns + 1
    node.settle = changed_meanwhile  # type: ignore[method-assign]
    node.now_ns = before_ns + DAY * 10**9
    assert await temporaries.remove(b"checkpoints") == 0
    assert file.exists() is (change != "gone")


async def test_an_hour_is_the_least_age(node: Node, temporaries: AbandonedTemporaries) -> None:
    file = node.left(LEFT)
    at_once = AbandonedTemporaries(
        temporaries.tree, temporaries.copies, temporaries.hot, temporaries.events, temporaries.zones, 0.0, temporaries.now_ns
    )
    node.now_ns = file.stat().st_ctime_ns + 3500 * 10**9
    assert await at_once.remove(b"checkpoints") == 0
    node.now_ns += 200 * 10**9
    assert await at_once.remove(b"checkpoints") == 1


async def test_a_zone_without_files_is_none_to_look_at(temporaries: AbandonedTemporaries) -> None:
    assert await temporaries.remove(b"blobs") == 0

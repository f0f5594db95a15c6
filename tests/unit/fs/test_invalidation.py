"""Files evicted without a request: what nodes and the kernel are told."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.config import Durability
from holdfast.fs.inodes.descriptor_cache import DescriptorCache
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.store import Tree
from holdfast.system.file_id import FileId, file_stat
from holdfast.zones import Fallbacks, ZoneMap
from tests.unit.fs.node_tables import NothingEarlier, node_table

FILE_MODE, DIRECTORY_MODE = stat_module.S_IFREG | 0o644, stat_module.S_IFDIR | 0o755


class Kernel:
    """Records the notifications. A mock of ``fuse.kernel_notifications``."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[int, bytes]] = []

    def invalidate(self, parent: int, name: bytes) -> None:
        self.forgotten.append((parent, name))

    def attributes_changed(self, node_id: int) -> None:
        raise AssertionError("nothing else was expected")

    def content_changed(self, node_id: int) -> None:
        raise AssertionError("nothing else was expected")

    def invalidate_content(self, node_id: int) -> None:
        raise AssertionError("nothing else was expected")

    def knows(self, node_id: int) -> bool:
        raise AssertionError("nothing else was expected")

    async def invalidate_now(self, names: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        raise AssertionError("nothing else was expected")

    def prune(self, nodes: Sequence[int]) -> bool:
        raise AssertionError("nothing else was expected")

    async def caught_up(self) -> None:
        raise AssertionError("nothing else was expected")


class HeldByTheKernel(NothingEarlier):
    """The kernel has nodes with any id from an earlier daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.is_loaded = True

    def holds(self, node_id: int) -> bool:
        return True


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield Tree(fd)
    os.close(fd)


def made(nodes: NodeTable, tree: Tree, kernel: Kernel) -> Invalidation:
    zones = ZoneMap({"checkpoints": Durability.COMMIT}, [b"work"], lambda _: Fallbacks(None, None))
    nothing: Any = None
    store: Any = SimpleNamespace(tree=tree, orphanage=None, implied_times=None)
    directories = Directories(nodes, store, zones, DescriptorCache(nothing), nothing, {})
    hot: Any = SimpleNamespace(rename_out=None)
    return Invalidation(nodes, directories, store, nothing, hot, kernel)


def test_a_copy_gets_another_id_while_the_kernel_has_something_gone_with_its_number(tree: Tree, tmp_path: Path) -> None:
    nodes = node_table(FileId(2), earlier=HeldByTheKernel())
    (tmp_path / "copy").touch()
    stat = file_stat(str(tmp_path / "copy"))
    made(nodes, tree, Kernel()).file_placed(b"copy", stat)
    assert nodes.local(nodes.root, b"copy", stat.st_ino, stat.st_mode).id != stat.st_ino


@pytest.mark.parametrize("zone", [b"checkpoints", b"configured-once"])
def test_an_evicted_file_keeps_its_name_whether_its_zone_is_configured_or_not(tree: Tree, zone: bytes) -> None:
    """The kernel knows files of a zone that is no longer configured from an earlier daemon; their copies are evicted too."""
    nodes, kernel = node_table(FileId(2)), Kernel()
    invalidation = made(nodes, tree, kernel)
    top = nodes.local(nodes.root, zone, FileId(10), DIRECTORY_MODE)
    job = nodes.local(top, b"job", FileId(11), DIRECTORY_MODE)
    file = nodes.local(job, b"cached", FileId(12), FILE_MODE)
    nodes.add_name(file, top, b"cached")
    invalidation.file_left(zone + b"/job/cached", FileId(12), same_object=True)
    assert kernel.forgotten == [(11, b"cached")]
    assert [(parent.id, name) for parent, name in file.names()] == [(10, b"cached")]
    invalidation.file_left(zone + b"/cached", FileId(12), same_object=True)
    assert kernel.forgotten[1:] == [(10, b"cached")]
    assert file.is_named
    assert file.backing == 0
    assert nodes.of_path(zone + b"/cached") is file

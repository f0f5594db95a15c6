"""The table of nodes: one node for a file or directory as long as anything leads to it, none afterwards."""

from __future__ import annotations

import stat

import pytest
import trio
import trio.testing

from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.system.file_id import FileId
from tests.unit.fs.node_tables import node_table

_ROOT_INODE, _FIRST_INODE, _SECOND_INODE, _FILE_INODE = FileId(2), FileId(10), FileId(11), FileId(12)


@pytest.fixture
def table() -> NodeTable:
    return node_table(_ROOT_INODE)


def known(table: NodeTable, parent: Node, name: bytes, inode: FileId, kind: int) -> Node:
    """Look a name up, as the kernel does."""
    node = table.local(parent, name, inode, kind)
    node.lookups += 1
    return node


def test_a_hard_link_outlives_the_kernels_memory_of_the_other_directory(table: NodeTable) -> None:
    first = known(table, table.root, b"first", _FIRST_INODE, stat.S_IFDIR)
    second = known(table, table.root, b"second", _SECOND_INODE, stat.S_IFDIR)
    file = known(table, first, b"a", _FILE_INODE, stat.S_IFREG)
    known(table, second, b"b", _FILE_INODE, stat.S_IFREG)
    table.forget(first.id, 1)
    again = known(table, table.root, b"first", _FIRST_INODE, stat.S_IFDIR)
    assert known(table, again, b"a", _FILE_INODE, stat.S_IFREG) is file
    table.drop_name(file, again, b"a")
    assert file.names() == [(second, b"b")]


def test_names_are_known_by_directory_whatever_comes_and_goes(table: NodeTable) -> None:
    first = known(table, table.root, b"first", _FIRST_INODE, stat.S_IFDIR)
    second = known(table, table.root, b"second", _SECOND_INODE, stat.S_IFDIR)
    file = known(table, first, b"a", _FILE_INODE, stat.S_IFREG)
    assert file.names_by_directory() == {first: [b"a"]}
    for parent, name in ((second, b"b"), (first, b"c")):
        table.add_name(file, parent, name)
    assert file.names_by_directory() == {first: [b"a", b"c"], second: [b"b"]}
    table.add_name(file, second, b"d")
    assert file.names_by_directory() == {first: [b"a", b"c"], second: [b"b", b"d"]}
    for name in (b"b", b"d"):
        table.drop_name(file, second, name)
    assert file.names_by_directory() == {first: [b"a", b"c"]}
    for name in (b"a", b"c"):
        table.drop_name(file, first, name)
    assert file.names_by_directory() == {}


def test_directories_leave_with_the_last_node_that_has_a_name_in_them() -> None:
    left: list[Node] = []
    table = node_table(_ROOT_INODE, left=left.append)
    outer = known(table, table.root, b"outer", _FIRST_INODE, stat.S_IFDIR)
    inner = known(table, outer, b"inner", _SECOND_INODE, stat.S_IFDIR)
    file = known(table, inner, b"file", _FILE_INODE, stat.S_IFREG)
    table.forget(outer.id, 1)
    table.forget(inner.id, 1)
    assert left == []
    table.forget(file.id, 1)
    assert left == [file, inner, outer]
    assert len(table) == 1


def test_a_deep_way_leaves_at_once_with_the_last_node_in_it(table: NodeTable) -> None:
    levels = 5000  # more than Python's stack has room for, and than a path may have
    node = table.root
    for inode in range(_FIRST_INODE, _FIRST_INODE + levels):
        node = known(table, node, b"d", FileId(inode), stat.S_IFDIR)
    for inode in range(_FIRST_INODE, _FIRST_INODE + levels - 1):
        table.forget(inode, 1)
    assert len(table) == levels + 1
    table.forget(node.id, 1)
    assert len(table) == 1


def test_a_directory_leaves_when_the_last_name_in_it_goes(table: NodeTable) -> None:
    directory = known(table, table.root, b"directory", _FIRST_INODE, stat.S_IFDIR)
    file = known(table, directory, b"file", _FILE_INODE, stat.S_IFREG)
    remote = table.remote(directory, b"object", b"directory/object", False)
    remote.lookups += 1
    table.forget(directory.id, 1)
    table.drop_name(file, directory, b"file")
    assert len(table) == 4
    table.drop_path(b"directory/object")
    assert len(table) == 3
    assert not remote.is_named


def test_a_new_file_gets_no_id_that_the_kernel_has_not_let_go_of() -> None:
    table = node_table(_ROOT_INODE, reserved={_FILE_INODE})
    first = known(table, table.root, b"first", _FILE_INODE, stat.S_IFREG)
    assert first.id != _FILE_INODE
    assert table.of_backing(_FILE_INODE) is first
    table.drop_name(first, table.root, b"first")
    table.forget(first.id, 1)
    table.forget(_FILE_INODE, 3)
    assert known(table, table.root, b"second", _FILE_INODE, stat.S_IFREG).id == _FILE_INODE


async def test_a_task_waits_until_there_are_more_nodes_than_so_many(table: NodeTable) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.wait_above, 2)
        known(table, table.root, b"first", _FIRST_INODE, stat.S_IFREG)
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        table.remote(table.root, b"second", b"second", False)
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
    await table.wait_above(2)

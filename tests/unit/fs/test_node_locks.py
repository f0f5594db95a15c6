"""Locks by node: free ones are taken at once, held ones are handed on in order, and none is left behind."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.node import Node
from holdfast.system.file_id import FileId


@pytest.fixture
def node() -> Node:
    return Node(7, None, b"file", FileId(7), False)


@pytest.fixture
def locks() -> NodeLocks:
    return NodeLocks()


async def test_a_free_lock_is_taken_without_a_checkpoint(locks: NodeLocks, node: Node) -> None:
    with trio.testing.assert_no_checkpoints():
        async with locks.of(node):
            assert locks.is_held(node)
        assert not locks.is_held(node)


async def test_locks_of_two_nodes_are_two(locks: NodeLocks, node: Node) -> None:
    other = Node(8, None, b"other", FileId(8), False)
    with trio.testing.assert_no_checkpoints():
        async with locks.of(node), locks.of(other):
            assert locks.is_held(other)


async def test_who_waits_longest_gets_it(locks: NodeLocks, node: Node) -> None:
    order = []

    async def take(name: str) -> None:
        async with locks.of(node):
            order.append(name)
            await trio.lowlevel.checkpoint()
            order.append(name)

    async with trio.open_nursery() as nursery, locks.of(node):
        for name in "abc":
            nursery.start_soon(take, name)
            await wait_all_tasks_blocked()
        assert order == []
    assert order == list("aabbcc")
    assert not locks.is_held(node)


async def test_who_gives_up_waiting_does_not_get_it(locks: NodeLocks, node: Node) -> None:
    async with trio.open_nursery() as nursery:

        async def take() -> None:
            async with locks.of(node):
                raise AssertionError("it was not to be had")

        async with locks.of(node):
            nursery.start_soon(take)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert not locks.is_held(node)


async def test_an_error_lets_it_go(locks: NodeLocks, node: Node) -> None:
    with pytest.raises(OSError, match="disk"):
        async with locks.of(node):
            raise OSError("disk")
    assert not locks.is_held(node)

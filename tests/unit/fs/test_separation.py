"""A thread that may have found a file by the object's name before it was separated is told once to look again."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import StaleNodeError
from holdfast.fs.file_io.separation import Separation
from holdfast.fs.inodes.node import Node
from holdfast.system.file_id import FileId

_NODE = Node(7, None, b"", FileId(7), False)
_OUTSIDE = 0
"""The number of every thread of another process namespace."""


@pytest.fixture
def separation() -> Separation:
    return Separation(MagicMock(), MagicMock())


async def is_told(separation: Separation, thread: int) -> bool:
    try:
        await separation.check_found_anew(_NODE, thread)
    except StaleNodeError:
        return True
    return False


async def test_each_thread_is_told_once(separation: Separation, autojump_clock: MockClock) -> None:
    separation._note(_NODE, 1)
    assert [await is_told(separation, thread) for thread in (1, 2, 2, 3)] == [False, True, False, True]
    await trio.sleep(20)
    assert not await is_told(separation, 4)


async def test_all_threads_of_other_process_namespaces_are_told_who_have_come_at_once(
    separation: Separation, autojump_clock: MockClock
) -> None:
    told: list[bool] = []

    async def come() -> None:
        told.append(await is_told(separation, _OUTSIDE))

    separation._note(_NODE, _OUTSIDE)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(come)
    assert told == [True] * 3
    assert not await is_told(separation, _OUTSIDE), "who tries again is let in: a kernel tries only once"

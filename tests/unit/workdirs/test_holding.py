"""Holders of working directories: the end of a process, and directories that are gone."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from holdfast.index import WorkdirRecord
from holdfast.workdirs.holder_process import Process
from holdfast.workdirs.holding import RETRY_SECONDS, Holding
from holdfast.zones import WorkdirName

PROCESS = Process(4711, 1, "job")


class _Records(dict[bytes, WorkdirRecord]):
    """Records in memory. Those of ``failing`` can't be written."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[bytes] = set()

    def get(self, path: bytes, default: Any = None) -> Any:
        """Return a copy, as a record that is read is one."""
        return copy(self[path]) if path in self else default

    def put(self, path: bytes, record: WorkdirRecord) -> None:
        if path in self.failing:
            raise OSError("the disk is full")
        self[path] = record

    def discard(self, path: bytes) -> None:
        self.pop(path, None)

    def listed(self) -> list[tuple[bytes, WorkdirRecord]]:
        return list(self.items())


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """The end of the process, which all wait for."""
    event = trio.Event()

    async def wait_end(_: Process) -> None:
        await event.wait()

    monkeypatch.setattr(Process, "wait_end", wait_end)
    monkeypatch.setattr(Process, "is_alive", lambda _: not event.is_set())
    return event


def _holding(records: _Records, released: list[object]) -> Holding:
    tree = SimpleNamespace(lease_inode=lambda _: 0, owner=lambda _: 1000, existing=list)
    events = SimpleNamespace(emit=lambda *_, **__: None)
    return Holding(cast(Any, records), cast(Any, tree), cast(Any, None), cast(Any, events), lambda: released.append(None))


def _hold(holding: Holding, number: int) -> bytes:
    path = b"work/job_%d" % number
    holding.hold(path, WorkdirName("job", str(number)), PROCESS)
    return path


async def test_an_ended_process_holds_nothing_and_what_fails_is_noted_later(
    end: trio.Event, autojump_clock: trio.testing.MockClock
) -> None:
    records, released = _Records(), list[object]()
    holding = _holding(records, released)
    async with trio.open_nursery() as nursery:
        await nursery.start(holding.run)
        first, second = _hold(holding, 1), _hold(holding, 2)
        records.failing.add(second)
        end.set()
        await trio.sleep(RETRY_SECONDS / 2)
        assert records[first].released_seconds
        assert len(released) == 1
        records.failing.clear()
        await trio.sleep(RETRY_SECONDS)
        assert records[second].released_seconds
        assert len(released) == 2
        nursery.cancel_scope.cancel()


async def test_a_directory_that_is_gone_is_forgotten(end: trio.Event) -> None:
    records, released = _Records(), list[object]()
    holding = _holding(records, released)
    async with trio.open_nursery() as nursery:
        await nursery.start(holding.run)
        for number in range(100):
            path = _hold(holding, number)
            holding.forget(path, records[path])
            records.discard(path)
        left = _hold(holding, 100)
        assert holding._paths == {PROCESS: {left}}
        end.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(released) == 1
        assert holding._paths == {}
        nursery.cancel_scope.cancel()

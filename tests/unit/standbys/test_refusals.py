"""A standby beside files of its own, and beside corrupt objects."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from holdfast.errors import HoldfastError, ObjectCorruptError
from holdfast.index import Entry, EntryState
from holdfast.remote import ObjectInfo
from holdfast.standbys import StandbyCopies

PATH = b"checkpoints/q/state/0/0/1.delta"
INFO = ObjectInfo("q/state/0/0/1.delta", 100, "etag", 1)


class Fetches:
    """A fetcher whose store answers with ``problem``."""

    def __init__(self, problem: HoldfastError | None) -> None:
        self.problem = problem
        self.begun = 0
        self.counters = SimpleNamespace(standby_bytes_fetched=0)

    def fetch(self, target: object, known: object) -> Fetches:
        self.begun += 1
        return self

    async def wait_whole(self) -> None:
        if self.problem is not None:
            raise self.problem


def copies_of(entry: Entry | None, fetches: Fetches, dropped: list[int]) -> StandbyCopies:
    inode = 0 if entry is None else 7
    cached: Any = SimpleNamespace(
        store=SimpleNamespace(tree=SimpleNamespace(inode=lambda path: inode, has_failed=lambda path: False)),
        index=SimpleNamespace(entries=SimpleNamespace(get=lambda inode: entry)),
        is_open=lambda inode: False,
        drop=lambda path, inode: dropped.append(inode),
    )
    anything: Any = SimpleNamespace(has_spare=lambda size: True, of_path=lambda path: path, object_of=lambda name: name)
    return StandbyCopies(cached, anything, anything, anything, fetches)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [EntryState.DIRTY, EntryState.UPLOADING, EntryState.OPEN])
async def test_what_a_job_has_written_meanwhile_stays(state: EntryState) -> None:
    dropped: list[int] = []
    fetches = Fetches(None)
    await copies_of(Entry(state, 5, 1, 1), fetches, dropped).fetch(PATH, INFO)
    assert (dropped, fetches.begun) == ([], 0)


async def test_a_corrupt_version_is_fetched_once_an_hour(mock_clock: MockClock) -> None:
    fetches = Fetches(ObjectCorruptError("bad"))
    copies = copies_of(None, fetches, [])
    for _ in range(3):
        await copies.fetch(PATH, INFO)
    assert fetches.begun == 1
    await copies.fetch(PATH, replace(INFO, etag="other"))
    mock_clock.jump(3601)
    await copies.fetch(PATH, INFO)
    assert fetches.begun == 3

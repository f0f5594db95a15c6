"""Threads that sync and answer by themselves: what they answer, and what happens when there is none."""

from __future__ import annotations

import errno
import os
import queue
import threading
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from holdfast.errors import LostBytesError
from holdfast.fs.fuse import later_replies
from holdfast.fs.fuse.later_replies import Syncs


@pytest.fixture
def replies() -> queue.Queue[tuple[int, int]]:
    return queue.Queue()


@pytest.fixture
def syncs(replies: queue.Queue[tuple[int, int]]) -> Syncs:
    return Syncs(
        lambda request, number: replies.put((request, number)),
        lambda zone, took_ns: None,
        lambda request, fd: replies.put((request, -fd)),
    )


@pytest.mark.parametrize("data_only", [False, True])
def test_a_file_is_synced_and_the_request_answered(
    syncs: Syncs, replies: queue.Queue[tuple[int, int]], tmp_path: Path, *, data_only: bool
) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert syncs.begin(7, file.fileno(), 0, data_only=data_only)
        assert replies.get(timeout=60) == (7, 0)


def test_an_error_is_the_answer(syncs: Syncs, replies: queue.Queue[tuple[int, int]]) -> None:
    reader, writer = os.pipe()
    assert syncs.begin(7, reader, 0, data_only=False)
    assert replies.get(timeout=60) == (7, errno.EINVAL)  # what fsync(2) says of a pipe
    os.close(reader)
    os.close(writer)


def test_a_file_that_has_lost_bytes_is_answered_by_another(
    syncs: Syncs, replies: queue.Queue[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, *, data_only: bool) -> NoReturn:
        raise LostBytesError

    monkeypatch.setattr(later_replies, "sync_bytes", refuse)
    for _ in range(100):  # each takes its turn
        assert syncs.begin(7, 5, 0, data_only=False)
        assert replies.get(timeout=60) == (7, -5)


def test_more_than_may_be_under_way_are_left_to_others(tmp_path: Path) -> None:
    gate = threading.Event()
    answered: queue.Queue[int] = queue.Queue()

    def reply(request: int, number: int) -> None:
        answered.put(request)

    syncs = Syncs(reply, lambda zone, took_ns: None, reply)
    taken = 0
    with pytest.MonkeyPatch.context() as patch, (tmp_path / "file").open("wb") as file:
        patch.setattr(os, "fsync", lambda fd: gate.wait(60))
        while syncs.begin(taken, file.fileno(), 0, data_only=False):
            taken += 1
            assert taken < 1000
        gate.set()
        assert {answered.get(timeout=60) for _ in range(taken)} == set(range(taken))
        assert syncs.begin(taken, file.fileno(), 0, data_only=False)
        assert answered.get(timeout=60) == taken


def test_without_a_thread_nothing_is_taken_on_and_nothing_is_lost(
    syncs: Syncs, replies: queue.Queue[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with (tmp_path / "file").open("wb") as file:
        with monkeypatch.context() as patch:
            patch.setattr(trio.lowlevel, "start_thread_soon", refuse)
            for _ in range(100):
                assert not syncs.begin(7, file.fileno(), 0, data_only=False)
        assert syncs.begin(8, file.fileno(), 0, data_only=False)
        assert replies.get(timeout=60) == (8, 0)

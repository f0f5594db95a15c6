"""Requests that are replied to by a task of their own."""

from __future__ import annotations

import errno
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from holdfast.errors import RemoteUnavailableError
from holdfast.fs.fuse.later_replies import LaterReplies
from holdfast.fs.fuse.request_observer import Request, RequestObserver
from holdfast.fs.inodes.caller import Caller
from holdfast.kernel import Connection, Opcode
from holdfast.telemetry import OBSERVED, SLOW_NS, Counters, Notes

_NUMBER, _PID, _UID = 7, 4711, 1000
_FLUSH = Request(Opcode.FLUSH, _NUMBER, 1, b"", Caller(_UID, _UID, _PID))
_RENAME = Request(Opcode.RENAME, _NUMBER, 1, (1).to_bytes(8, "little") + b"old\0new\0", Caller(_UID, _UID, _PID))


class _Connection:
    """Keeps the replies, in order, and the marks of what is executed."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, int, bytes]] = []
        self.marks: list[int] = []
        self.executing = self.marks.append

    def reply(self, request: int, error: int, body: bytes = b"") -> None:
        self.replies.append((request, error, body))


class _Replies:
    def __init__(self) -> None:
        self.connection, self.counters = _Connection(), Counters()
        nodes = cast(Any, SimpleNamespace(known=lambda _: None))
        self.observer = RequestObserver(nodes, cast(Any, None), cast(Connection, self.connection), {b"work": 1})
        self.later = LaterReplies(cast(Connection, self.connection), self.observer, self.counters)


async def _fails(problem: Exception) -> bytes:
    await trio.lowlevel.checkpoint()
    raise problem


@pytest.fixture
def replies() -> _Replies:
    return _Replies()


async def test_the_task_replies_and_marks_each_of_its_steps(replies: _Replies) -> None:
    noted: list[int] = []

    async def work() -> bytes:
        notes = OBSERVED.get()
        assert notes is not None
        noted.append(notes.thread)
        await trio.lowlevel.checkpoint()
        return b"body"

    async with replies.later.running():
        assert replies.later.begin(_FLUSH, work()) is True
        assert replies.connection.replies == [], "the caller's step comes first"
    assert replies.connection.replies == [(_NUMBER, 0, b"body")]
    assert noted == [_PID]
    assert replies.connection.marks == [_NUMBER, 0, _NUMBER, 0]
    counted = {each.operation: each.durations.total for each in replies.observer.times.all()}
    assert counted == {"flush": 1}


@pytest.mark.parametrize(
    ("problem", "number", "internal"),
    [
        (OSError(errno.ENOTEMPTY, "full"), errno.ENOTEMPTY, 0),
        (RemoteUnavailableError("the store is away"), errno.EIO, 0),
        (RuntimeError("a fault"), errno.EIO, 1),
    ],
)
async def test_every_error_becomes_an_errno(replies: _Replies, problem: Exception, number: int, internal: int) -> None:
    async with replies.later.running():
        replies.later.begin(_RENAME, _fails(problem))
    assert replies.connection.replies == [(_NUMBER, number, b"")]
    assert replies.counters.internal_errors == internal


async def test_an_answer_may_be_an_errno_or_an_entry_without_a_node(replies: _Replies) -> None:
    shown: list[Any] = []
    replies.observer.feed.follow(shown.append)

    async def answers(answer: bytes | int) -> bytes | int:
        return answer

    lookup = _FLUSH._replace(opcode=Opcode.LOOKUP, body=b"name\0")
    async with replies.later.running():
        for answer in (0, errno.ENOENT, bytes(128), b"\1" + bytes(127)):
            replies.later.begin(lookup, answers(answer))
            await trio.testing.wait_all_tasks_blocked()
    assert replies.connection.replies == [
        (_NUMBER, 0, b""),
        (_NUMBER, errno.ENOENT, b""),
        (_NUMBER, 0, bytes(128)),
        (_NUMBER, 0, b"\1" + bytes(127)),
    ]
    assert [each.errno for each in shown] == [0, errno.ENOENT, errno.ENOENT, 0]
    assert {(each.operation, each.path) for each in shown} == {("lookup", b"name")}


async def test_running_ends_when_all_have_their_replies(replies: _Replies) -> None:
    """A session that ends leaves nobody without an answer."""
    go_on = trio.Event()

    async def work() -> bytes:
        await go_on.wait()
        return b""

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        async with replies.later.running():
            replies.later.begin(_RENAME, work())
            task_status.started()
        assert replies.connection.replies == [(_NUMBER, 0, b"")]

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        await trio.testing.wait_all_tasks_blocked()
        assert replies.connection.replies == []
        go_on.set()


async def test_a_task_that_is_done_replies_to_the_next_request(replies: _Replies) -> None:
    tasks: list[trio.lowlevel.Task] = []
    noted: list[Notes | None] = []

    async def work() -> bytes:
        tasks.append(trio.lowlevel.current_task())
        noted.append(OBSERVED.get())
        await trio.lowlevel.checkpoint()
        return b""

    async with replies.later.running():
        for _ in range(2):
            replies.later.begin(_FLUSH, work())
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            replies.later.begin(_FLUSH, work())
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            replies.later.begin(_FLUSH, work())
    assert len(replies.connection.replies) == 42
    assert tasks[0] is tasks[1]
    assert len(set(tasks[2:22])) == 20, "each request that is under way has a task of its own"
    assert len(set(tasks[22:]) - set(tasks[:22])) == 20 - 16, "so many wait for one"
    assert len(set(map(id, noted))) == 42, "and notes of its own"


async def test_a_task_that_waits_keeps_nothing_of_the_request_before(replies: _Replies) -> None:
    async def work() -> bytes:
        return b""

    begun = work()
    kept = weakref.ref(begun)
    async with replies.later.running():
        replies.later.begin(_FLUSH, begun)
        del begun
        await trio.testing.wait_all_tasks_blocked()
        assert kept() is None


async def test_tasks_that_wait_for_a_request_can_be_cancelled(replies: _Replies) -> None:
    async def work() -> bytes:
        return b""

    with trio.CancelScope() as scope:
        async with replies.later.running():
            replies.later.begin(_FLUSH, work())
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    async with replies.later.running():
        replies.later.begin(_FLUSH, work())
    assert len(replies.connection.replies) == 2


async def test_slow_and_watched_requests_are_shown_with_both_names(
    replies: _Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10 * SLOW_NS, SLOW_NS))
    monkeypatch.setattr("holdfast.fs.fuse.request_observer.time.perf_counter_ns", lambda: next(clock))
    shown: list[Any] = []
    replies.observer.feed.follow(shown.append)

    async def work() -> bytes:
        return b""

    async with replies.later.running():
        replies.later.begin(_RENAME, work())
    (slow,) = replies.observer.slow.about(b"", 10)
    assert shown == [slow._replace(time_ns=shown[0].time_ns)]
    assert (slow.operation, slow.path, slow.target, slow.pid, slow.uid) == ("rename", b"old", b"new", _PID, _UID)
    assert (slow.duration_ns, slow.errno) == (SLOW_NS, 0)

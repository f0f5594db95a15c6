"""Requests that are begun where they are read: what is answered at once, what goes on in a task, what pyfuse3 gets."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import trio

from holdfast.fs.fuse.immediate_replies import ImmediateReplies
from holdfast.fs.fuse.request_observer import Request
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.kernel import Opcode
from holdfast.system.file_id import FileId
from holdfast.system.waits import before_waiting

_CALLER = Caller(1000, 1001, 4711)
_CREATE = bytes(16) + b"name\0"
_DIRECTORY, _FIRST, _SECOND = 1, 7, 8


class _Turn:
    """Notes the users that have a turn."""

    def __init__(self) -> None:
        self.users: list[int] = []

    def of(self, uid: int) -> _Turn:
        self.users.append(uid)
        return self

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aexit__(self, *problem: object) -> None:
        pass


class _Room:
    """A disk that is full for the first try of a change."""

    def __init__(self) -> None:
        self.tries = 0
        self.spared = 0

    async def with_room(self, change: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            self.tries += 1
            try:
                return await change()
            except OSError as problem:
                if problem.errno != errno.ENOSPC or self.tries > 1:
                    raise

    async def keep_spare(self) -> None:
        self.spared += 1
        await trio.lowlevel.checkpoint()


class _Requests:
    """The replies of a file system whose operations are functions here."""

    def __init__(self) -> None:
        directory = Node(_DIRECTORY, None, b"", FileId(2), True)
        directory.lookups = 1
        self.names, self.commits, self.room = _Turn(), _Turn(), _Room()
        self.later: list[tuple[Request, Coroutine[Any, Any, Any]]] = []
        self.files = MagicMock()
        base = MagicMock()
        base.nodes = SimpleNamespace(known={_DIRECTORY: directory}.get, get=lambda _: directory)
        base.rooms = SimpleNamespace(on=lambda _: self.room)
        turns: Any = SimpleNamespace(names=self.names, commits=self.commits)
        times: Any = SimpleNamespace(zone=[0], hand_over=print)
        later: Any = SimpleNamespace(begin=self._begin)
        self.replies = ImmediateReplies(base, self.files, MagicMock(), turns, times, later)

    def _begin(self, request: Request, work: Coroutine[Any, Any, Any]) -> bool:
        self.later.append((request, work))
        return True

    def answer(self, opcode: Opcode, unique: int, body: bytes) -> Any:
        """Answer a request as the C module asks for it."""
        return self.replies.answer(opcode, unique, _DIRECTORY, _CALLER.uid, _CALLER.gid, _CALLER.pid, body)


@pytest.fixture
def requests() -> _Requests:
    return _Requests()


def _unlinking(*, waits: bool, number: int = 0) -> Callable[..., Coroutine[Any, Any, None]]:
    async def unlink(*_: object) -> None:
        if waits:
            await before_waiting()
            await trio.lowlevel.checkpoint()
        if number:
            raise OSError(number, "as it was told")

    return unlink


def test_what_need_not_wait_is_answered_at_once(requests: _Requests) -> None:
    requests.files.unlinking.unlink = _unlinking(waits=False)
    assert requests.answer(Opcode.UNLINK, _FIRST, b"name\0") == 0
    requests.files.unlinking.unlink = _unlinking(waits=False, number=errno.EISDIR)
    assert requests.answer(Opcode.UNLINK, _FIRST, b"name\0") == errno.EISDIR
    assert requests.later == []


def test_what_finds_the_disk_full_at_once_is_left_to_the_handler_that_makes_room(requests: _Requests) -> None:
    requests.files.unlinking.unlink = _unlinking(waits=False, number=errno.ENOSPC)
    assert requests.answer(Opcode.UNLINK, _FIRST, b"name\0") is None


async def test_what_waits_goes_on_in_its_users_turn(requests: _Requests) -> None:
    requests.files.unlinking.unlink = _unlinking(waits=True)
    assert requests.answer(Opcode.UNLINK, _FIRST, b"name\0") is True
    ((request, rest),) = requests.later
    assert request == (Opcode.UNLINK, _FIRST, _DIRECTORY, b"name\0", _CALLER)
    assert requests.names.users == []
    assert await rest == 0
    assert (requests.names.users, requests.commits.users, requests.room.spared) == ([_CALLER.uid], [], 0)


async def test_a_change_of_names_that_can_not_be_tried_again_has_room_first(requests: _Requests) -> None:
    requests.files.renaming.rename = _unlinking(waits=True)
    assert requests.answer(Opcode.RENAME, _FIRST, bytes(8) + b"old\0new\0") is True
    assert await requests.later[0][1] == 0
    assert (requests.names.users, requests.room.spared) == ([_CALLER.uid], 1)


async def test_a_close_that_waits_has_a_turn_among_commits(requests: _Requests) -> None:
    requests.files.committer.commit = _unlinking(waits=True)
    requests.files.files.of_handle.return_value = SimpleNamespace(writer=0)
    assert requests.answer(Opcode.FLUSH, _FIRST, bytes(24)) is True
    assert await requests.later[0][1] == 0
    assert (requests.names.users, requests.commits.users) == ([], [_CALLER.uid])


async def test_a_creation_that_finds_the_disk_full_is_begun_anew_for_the_same_request(requests: _Requests) -> None:
    asked: list[int] = []

    async def create(directory: Node, name: bytes, mode: int, flags: int, request: int, caller: Caller) -> Any:
        asked.append(request)
        await before_waiting()
        await trio.lowlevel.checkpoint()
        raise OSError(errno.ENOSPC if len(asked) == 1 else errno.EEXIST, name)

    requests.files.creation.file = create
    assert requests.answer(Opcode.CREATE, _FIRST, _CREATE) is True
    requests.files.unlinking.unlink = _unlinking(waits=False)
    assert requests.answer(Opcode.UNLINK, _SECOND, b"name\0") == 0
    with pytest.raises(FileExistsError):
        await requests.later[0][1]
    assert (asked, requests.room.tries, requests.names.users) == ([_FIRST, _FIRST], 2, [_CALLER.uid])

"""Files that wait for their digests: whose turn it is, how many are hashed at once, and how many may wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from holdfast.fs.integrity import digest_queue
from holdfast.fs.integrity.digest_queue import DigestQueue

_LARGE_BYTES = 1 << 30
_AT_ONCE = 16


class Hashing:
    """Hashes one file after another, each when the test says so."""

    def __init__(self, size_bytes: Callable[[bytes], int] = lambda _: 1) -> None:
        self.begun: list[bytes] = []
        self.may_end = trio.Semaphore(0)
        self.queue = DigestQueue(self._digest, lambda path: (size_bytes(path), int(path.split(b"/")[0])))

    async def _digest(self, path: bytes) -> None:
        self.begun.append(path)
        await self.may_end.acquire()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.queue.run)
            yield
            nursery.cancel_scope.cancel()

    async def ended(self, count: int) -> None:
        """Let so many files be hashed, and return when the next ones have begun."""
        for _ in range(count):
            self.may_end.release()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_users_thousands_of_files_keep_nobody_elses_waiting() -> None:
    hashing = Hashing()
    async with hashing.running():
        for number in range(20_000):
            hashing.queue.add(b"7/%d" % number)
            if number % 1000 == 0:
                await trio.testing.wait_all_tasks_blocked()
        hashing.queue.add(b"8/a")
        hashing.queue.add(b"8/b")
        await trio.testing.wait_all_tasks_blocked()
        assert hashing.begun == [b"7/%d" % number for number in range(_AT_ONCE)]
        await hashing.ended(4)
        assert hashing.begun[_AT_ONCE:] == [b"7/16", b"8/a", b"7/17", b"8/b"]


async def test_large_files_wait_for_those_of_the_same_user_only() -> None:
    hashing = Hashing(lambda path: 1 if path.endswith(b"small") else _LARGE_BYTES)
    async with hashing.running():
        for path in (b"7/a", b"7/b", b"8/a", b"7/small"):
            hashing.queue.add(path)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(hashing.begun) == [b"7/a", b"7/small", b"8/a"]
        await hashing.ended(3)
        assert hashing.begun[3:] == [b"7/b"]


async def test_the_more_users_wait_the_fewer_files_each_may_have() -> None:
    hashing = Hashing()
    users, of_each = 100, 3000
    async with hashing.running():
        for user in range(users):
            for number in range(of_each):
                hashing.queue.add(b"%d/%d" % (user, number))
            await trio.testing.wait_all_tasks_blocked()
        waiting = sum(map(len, hashing.queue._waiting.values()))
        assert all(hashing.queue._waiting.values())
        assert len(hashing.queue._waiting) == users
        assert waiting < 5 * digest_queue._MOST_WAITING

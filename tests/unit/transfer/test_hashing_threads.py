"""Threads that hash: a few for each user, and none that a daemon which is to end has to wait for."""

from __future__ import annotations

import os
from pathlib import Path

import trio
import trio.testing

from holdfast.digest import Fingerprint
from holdfast.fs.integrity.verifier import HASH_UNLESS_CANCELLED
from holdfast.transfer import HashingThreads
from tests.support.users.privileges import ALICE, MALLORY, needs_root


async def test_hashing_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    path, begun = tmp_path / "huge", trio.Event()
    path.touch()
    os.truncate(path, 2**43)

    def hashes(fd: int) -> Fingerprint:
        trio.from_thread.run_sync(begun.set)
        return HASH_UNLESS_CANCELLED(fd)

    with path.open("rb") as file:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HashingThreads().run, hashes, file.fileno())
            await begun.wait()
            nursery.cancel_scope.cancel()


@needs_root
async def test_one_users_files_keep_nobody_elses_waiting(tmp_path: Path) -> None:
    threads, released = HashingThreads(), trio.Event()
    descriptors = {}
    for user in (ALICE, MALLORY):
        path = tmp_path / f"{user.uid}"
        path.touch()
        os.chown(path, user.uid, user.gid)
        descriptors[user] = os.open(path, os.O_RDONLY)

    def waits(fd: int) -> int:
        trio.from_thread.run(released.wait)
        return fd

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(threads.run, waits, descriptors[MALLORY])
        await trio.testing.wait_all_tasks_blocked()
        assert await threads.run(lambda fd: fd, descriptors[ALICE]) == descriptors[ALICE]
        released.set()
    for fd in descriptors.values():
        os.close(fd)

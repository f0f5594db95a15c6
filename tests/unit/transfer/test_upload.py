"""What is sent of a file, whatever its size and wherever its bytes lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.digest import digest_of
from holdfast.errors import LostBytesError
from holdfast.remote import RemoteStore, UploadSource, open_store
from holdfast.remote.obstore_store import ObstoreStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import HashingThreads, RemoteAccess, Uploader
from holdfast.transfer.remotes import Remote

LIMIT_BYTES = 2**20


@pytest.fixture
def store() -> RemoteStore:
    return open_store("memory://", {}, {}, request_timeout_seconds=1.0, connect_timeout_seconds=1.0)


@pytest.fixture
def remote(store: RemoteStore) -> Remote:
    events, counters = EventLog(lambda: 0.0), Counters()
    access = RemoteAccess(
        "blobs", store, deadline_seconds=1.0, parallel=1, events=events, counters=counters, clock=lambda: 0.0
    )
    return cast(Remote, SimpleNamespace(name="checkpoints", access=access))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def keys_sent(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch, then: Callable[[int], object] = lambda puts: None
) -> list[str]:
    """Return the keys of large objects, as they are put from now on. ``then`` gets the number of puts after each one."""
    sent: list[str] = []
    assert isinstance(store, ObstoreStore)
    put_parts = store.put_parts

    def put(key: str, source: UploadSource, metadata: dict[str, str]) -> None:
        put_parts(key, source, metadata)
        sent.append(key)
        then(len(sent))

    monkeypatch.setattr(store, "put_parts", put)
    return sent


@pytest.mark.parametrize("size_bytes", [0, 1, 2**16, 2**16 + 1, LIMIT_BYTES, LIMIT_BYTES + 1])
async def test_the_object_is_the_file(store: RemoteStore, remote: Remote, file: int, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    os.write(file, data)
    uploader = Uploader(LIMIT_BYTES, "node", HashingThreads(), Counters())
    info, fingerprint = await uploader.send(file, remote, "key", create_only=False)
    assert info.size_bytes == size_bytes
    assert fingerprint.digest == digest_of(data)
    body = store.read("key", 0, size_bytes, "")
    assert b"".join(bytes(buffer) for buffer in body.buffers) == data


async def test_a_file_that_is_not_in_the_page_cache_is_sent_too(store: RemoteStore, remote: Remote, file: int) -> None:
    os.write(file, b"cold")
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    info, _ = await Uploader(LIMIT_BYTES, "node", HashingThreads(), Counters()).send(file, remote, "key", create_only=False)
    assert info.size_bytes == 4
    assert b"".join(store.read("key", 0, 4, "").buffers) == b"cold"


@pytest.mark.parametrize("size_bytes", [1, 2**16 + 1, LIMIT_BYTES + 1])
async def test_a_file_that_has_lost_bytes_by_the_time_it_was_read_is_not_sent(
    store: RemoteStore, remote: Remote, file: int, size_bytes: int
) -> None:
    def lost(fd: int) -> None:
        assert fd == file
        raise LostBytesError

    os.write(file, os.urandom(size_bytes))
    uploader = Uploader(LIMIT_BYTES, "node", HashingThreads(), Counters(), lost)
    with pytest.raises(LostBytesError):
        await uploader.send(file, remote, "key", create_only=False)
    assert list(store.list_all("")) == []


async def test_a_large_object_is_not_created_from_a_file_that_loses_bytes_while_it_is_sent(
    store: RemoteStore, remote: Remote, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.write(file, os.urandom(LIMIT_BYTES + 1))
    sent = keys_sent(store, monkeypatch)

    def check(fd: int) -> None:
        if sent:
            raise LostBytesError

    with pytest.raises(LostBytesError):
        await Uploader(LIMIT_BYTES, "node", HashingThreads(), Counters(), check).send(file, remote, "key", create_only=True)
    assert list(store.list_all("")) == []


@pytest.mark.parametrize("changes", [0, 1, 2, 3])
async def test_a_large_object_is_not_created_from_a_file_that_was_written_to_meanwhile(
    store: RemoteStore, remote: Remote, file: int, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """A digest of other bytes would look as if another tool had rewritten the object: which of both is right?"""
    os.write(file, os.urandom(LIMIT_BYTES + 1))

    def write_meanwhile(puts: int) -> None:
        if puts <= changes:
            os.pwrite(file, os.urandom(10), 5)
            os.utime(file, ns=(0, puts))

    sent = keys_sent(store, monkeypatch, write_meanwhile)
    info, fingerprint = await Uploader(LIMIT_BYTES, "node", HashingThreads(), Counters()).send(
        file, remote, "key", create_only=True
    )
    assert len(sent) == min(changes, 2) + 1, "a file that is always written to is sent all the same, by a caller who looks"
    body = store.read("key", 0, info.size_bytes, "")
    found = digest_of(b"".join(bytes(buffer) for buffer in body.buffers))
    assert found == fingerprint.digest
    assert [each.key for each in store.list_all("")] == ["key"], "nothing staged is left"

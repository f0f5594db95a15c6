"""Objects for which an S3 server gives no etag, as versitygw for files that others put into its directory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.errors import ObjectChangedError, ObjectExistsError
from holdfast.remote import RemoteStore
from tests.support.stores.lying_s3 import LyingS3, Planted
from tests.support.stores.s3 import Versitygw
from tests.unit.remote.test_remote_contract import content, opened, replace

LATER = Planted(b"other", etag="", modified="Tue, 01 Jul 2025 10:00:07 GMT", modified_in_lists="2025-07-01T10:00:07.000Z")


@pytest.fixture
def server() -> Iterator[LyingS3]:
    with LyingS3() as running:
        running.objects = {"checkpoints/a": Planted(b"first", etag="")}
        yield running


@pytest.fixture
def store(server: LyingS3) -> RemoteStore:
    return opened(server.place.below("checkpoints").url, dict(server.place.options))


def versions(store: RemoteStore) -> set[tuple[str, int]]:
    """Return all etags and times that the store gives for the object."""
    read = store.read("a", 0, 5, "")
    assert b"".join(read.buffers) != b""
    infos = [store.head("a"), store.list_directory("").objects["a"], *store.list_tree(""), read.info]
    return {(info.etag, info.modified_ns) for info in infos}


@pytest.mark.parametrize("other", [LATER, Planted(b"longer than the first", etag="")])
def test_another_size_or_time_is_another_version(server: LyingS3, store: RemoteStore, other: Planted) -> None:
    ((etag, _),) = versions(store)
    assert etag
    assert content(store, "a", 0, 5, etag) == b"first"
    server.objects["checkpoints/a"] = other
    ((later, _),) = versions(store)
    assert later != etag
    for end in (0, 5):
        with pytest.raises(ObjectChangedError):
            content(store, "a", 0, end, etag)
    with pytest.raises(ObjectExistsError):
        replace(store, etag, b"in place of the first")
    replace(store, later, b"in place of the other")
    assert content(store, "a") == b"in place of the other"
    assert not {asked.headers["If-Match"] for asked in server.asked} - {None}, "the server knows none of these"


@pytest.mark.slow
def test_a_file_that_others_replace_in_the_directory_of_a_server_is_another_version(s3_versitygw: Versitygw) -> None:
    server = s3_versitygw.below("planted")
    store = opened(server.url, dict(server.options))
    server.directory.mkdir(parents=True, exist_ok=True)
    file = server.directory / "a"
    found: list[tuple[str, int]] = []
    for number, data in enumerate((b"first", b"other")):
        file.with_name("new").write_bytes(data)
        os.utime(file.with_name("new"), (10**9 + number, 10**9 + number))
        file.with_name("new").rename(file)
        found += versions(store)
        assert content(store, "a", 0, 5, found[-1][0]) == data
    assert len({etag for etag, _ in found}) == 2
    with pytest.raises(ObjectChangedError):
        content(store, "a", 0, 5, found[0][0])

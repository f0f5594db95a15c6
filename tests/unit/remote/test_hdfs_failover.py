"""An HDFS with several namenodes, of which another one becomes active: nothing is lost, and nothing old is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.errors import ObjectExistsError, RemoteUnavailableError
from holdfast.remote import RemoteStore, UploadSource, open_store
from tests.support.stores.ha_hdfs import HaHdfs
from tests.unit.remote.test_remote_contract import content, put

pytestmark = pytest.mark.slow

MIB = 2**20


def patient(ha_hdfs: HaHdfs, options: dict[str, str] | None = None) -> RemoteStore:
    """Open the store. A namenode that has just started loads its web server with the first request, which may take long."""
    url, given = ha_hdfs.url, options or ha_hdfs.options
    return open_store(url, given, {}, request_timeout_seconds=300, connect_timeout_seconds=10)


def read_as_soon_as_a_datanode_finds_it(store: RemoteStore, key: str) -> bytes:
    """Read an object; the namenode that a datanode asks may be the observer, which has not heard of it yet."""
    while True:
        with suppress(RemoteUnavailableError):
            return content(store, key)


def test_the_namenode_that_becomes_active_is_asked(ha_hdfs: HaHdfs) -> None:
    store = patient(ha_hdfs)
    changes = [["active 1"], ["active 0"], ["stop 0", "active 1"], ["start 0", "active 0"], ["stop 1"]]
    for number, commands in enumerate(changes):
        put(store, f"offsets/{number}", b"%d" % number, {"digest": f"{number}"}, create_only=True)
        for command in commands:
            ha_hdfs.tell(command)
        assert content(store, f"offsets/{number}") == b"%d" % number
        assert store.head(f"offsets/{number}").metadata == {"digest": f"{number}"}
        with pytest.raises(ObjectExistsError):
            put(store, f"offsets/{number}", b"another", create_only=True)
        assert store.list_directory("offsets").objects.keys() == {f"{each}" for each in range(number + 1)}
    ha_hdfs.tell("stop 0")
    with pytest.raises(RemoteUnavailableError) as caught:
        store.head("offsets/0")
    assert "refused" in str(caught.value)
    ha_hdfs.tell("start 1")
    with pytest.raises(RemoteUnavailableError) as caught:
        store.head("offsets/0")
    assert "refused" in str(caught.value)
    assert "no namenode is active" in str(caught.value)
    ha_hdfs.tell("active 1")
    store.delete([f"offsets/{each}" for each in range(len(changes))])
    assert not store.list_directory("offsets").objects


def test_an_observer_is_not_read(ha_hdfs: HaHdfs) -> None:
    """It answers, but may not have heard of what was stored a moment ago."""
    writing = patient(ha_hdfs)
    put(writing, "before")
    ha_hdfs.tell("observer 1")
    reading = patient(ha_hdfs, ha_hdfs.beginning_with(1))
    assert reading.list_directory("").objects.keys() == {"before"}
    put(writing, "after")
    assert "after" not in ha_hdfs.listed_by(1), "it is behind"
    assert read_as_soon_as_a_datanode_finds_it(patient(ha_hdfs, ha_hdfs.beginning_with(1)), "after") == b"bytes"
    assert reading.list_directory("").objects.keys() == {"before", "after"}
    put(patient(ha_hdfs, ha_hdfs.beginning_with(1)), "by way of the observer")
    assert reading.list_directory("").objects.keys() == {"before", "after", "by way of the observer"}


def test_a_large_object_is_written_and_read_across_a_failover(ha_hdfs: HaHdfs) -> None:
    """The datanode finds the namenode that is active by itself."""
    store = patient(ha_hdfs)
    block = bytes(range(256)) * (MIB // 256)
    has_begun, has_failed_over = threading.Event(), threading.Event()

    class Body(UploadSource):
        def buffers(self, what: str) -> Iterator[bytes]:
            yield block
            has_begun.set()
            has_failed_over.wait()
            for _ in range(31):
                yield block

    def fail_over() -> None:
        has_begun.wait()
        ha_hdfs.tell("active 1")
        has_failed_over.set()

    helper = threading.Thread(target=fail_over, daemon=True)  # or a write that fails keeps the whole run from ending
    helper.start()
    written = store.write("large", Body(32 * MIB), {"digest": "x"}, create_only=True)
    helper.join()
    body = store.read("large", 0, 32 * MIB, written.etag)
    buffers = iter(body.buffers)
    first = next(buffers)
    ha_hdfs.tell("active 0")
    assert first + b"".join(buffers) == block * 32
    assert store.head("large") == written

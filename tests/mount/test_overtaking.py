"""Names that change while a request for them is under way: the last word is the one that counts."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.mount.test_objects import TEMPORARY, commit
from tests.support.daemons.node import wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server

_REFUSALS = 6
"""So many that the pause before the next attempt is long enough for what happens in it."""


def stored(place: S3Server, name: str) -> bytes:
    key = place.below("checkpoints").key(name)
    body: bytes = place.client().get_object(Bucket=place.bucket, Key=key)["Body"].read()
    return body


def write_slowly(proxy: FaultProxy, path: Path, data: bytes) -> threading.Thread:
    """Write a file; return while its PUT waits for the next attempt."""
    before = len(proxy.requests("PUT", path.name))
    proxy.answer(503, times=_REFUSALS, method="PUT", matching=path.name)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    proxy.wait_requests(before + _REFUSALS, "PUT", path.name)
    return writer


def test_a_slow_put_does_not_undo_a_rename_onto_its_name(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint)).start()
    path = node.checkpoints / "report"
    path.write_bytes(b"zero")
    writer = write_slowly(proxy, path, b"one")
    commit(path, b"two")
    writer.join()
    assert stored(place, "report") == b"two"
    assert path.read_bytes() == b"two"


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_file_that_is_removed_while_it_is_sent_does_not_come_back(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, durability: str
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability=durability).start()
    path = node.checkpoints / "report"
    writer = write_slowly(proxy, path, b"one")
    path.unlink()
    writer.join()
    wait_until(lambda: len(proxy.requests("PUT", "report")) > _REFUSALS)
    wait_until(lambda: keys(place) == set())
    directory = os.open(node.checkpoints, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    assert keys(place) == set()
    assert not path.exists()
    assert node.status().cached_files == 0


def test_a_fetch_under_way_does_not_undo_a_rename_onto_its_name(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    writer = make_s3_node(place, "writer").start()
    node = make_s3_node(place.through(proxy.endpoint), "node").start()
    (writer.checkpoints / "report").write_bytes(b"old")
    path = node.checkpoints / "report"
    assert path.stat().st_size == 3
    temporary = path.with_name(TEMPORARY.format(path.name))
    temporary.write_bytes(b"new")
    proxy.delay_seconds = 1.0
    reader = threading.Thread(target=path.read_bytes)
    reader.start()
    proxy.wait_requests(1, "GET", "/report")
    proxy.delay_seconds = 0.0
    temporary.rename(path)
    reader.join()
    assert path.read_bytes() == b"new"
    assert stored(place, "report") == b"new"


def test_a_directory_with_a_file_that_waits_to_be_sent_is_copied(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async").start()
    (node.checkpoints / "a").mkdir()
    proxy.answer(503, times=1 << 30, method="PUT", matching="report")  # it waits until it is allowed
    (node.checkpoints / "a/report").write_bytes(b"safe")
    proxy.wait_requests(1, "PUT", "report")
    with pytest.raises(OSError, match="cross-device"):
        (node.checkpoints / "a").rename(node.checkpoints / "b")
    proxy.heal()
    wait_until(lambda: keys(place) == {"checkpoints/a/report"})


def test_a_write_waits_until_the_file_that_arrives_is_in_its_place(make_node: NodeFactory, remote_files: Path) -> None:
    (make_node("writer").start().checkpoints / "large").write_bytes(bytes(48 << 20))
    node = make_node("node", remote__read_while_arriving_bytes=1 << 20).start()
    path = node.checkpoints / "large"
    with path.open("r+b", buffering=0) as file, node.client() as client:
        file.write(b"X")
        wait_until(lambda: node.status().fetching == 0)
        assert client.entry(str(path)).state == "unsent"
        assert [step.problem for step in client.verify(None) if step.problem] == []
    assert (remote_files / "large").read_bytes()[:2] == b"X\0"


def test_a_link_does_not_hide_that_a_file_was_not_sent(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.1).start()
    path = node.checkpoints / "report"
    proxy.answer(503, times=1000, method="PUT", matching="report")
    with pytest.raises(OSError, match="Input/output"):
        path.write_bytes(b"precious")
    wait_until(lambda: node.status().unsent == [str(path)])
    os.link(path, node.checkpoints / "copy")
    assert keys(place) == {"checkpoints/copy"}
    assert node.status().unsent == [str(path)]
    proxy.heal()
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    assert keys(place) == {"checkpoints/copy", "checkpoints/report"}
    assert node.status().unsent == []


def test_a_file_whose_fetch_failed_may_be_closed_while_it_is_opened_again(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(
        place.through(proxy.endpoint),
        remote__retry_deadline_seconds=0.1,
        remote__metadata_ttl_seconds=0,
        remote__read_while_arriving_bytes=1,
    ).start()
    path = node.checkpoints / "large"
    thing = {"Bucket": place.bucket, "Key": place.below("checkpoints").key("large")}
    place.client().put_object(**thing, Body=b"data")
    proxy.answer(503, times=1000, method="GET", matching="/large")
    first = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="Input/output"):
        os.read(first, 4)
    proxy.heal()
    place.client().delete_object(**thing)
    assert os.listdir(node.checkpoints) == []  # so that the next open has to ask the store
    place.client().put_object(**thing, Body=b"data")
    by_inode = os.open(f"/proc/self/fd/{first}", os.O_PATH)
    asked = len(proxy.requests("GET"))
    proxy.delay_seconds = 1.0
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path(f"/proc/self/fd/{by_inode}").read_bytes()))
    reader.start()
    proxy.wait_requests(asked + 1, "GET")
    os.close(first)
    proxy.delay_seconds = 0.0
    reader.join()
    os.close(by_inode)
    assert read == [b"data"]


_PARTS = 3
_PART_BYTES = 8 << 20


@pytest.mark.promise("replaceable")
def test_an_object_that_is_replaced_before_it_is_read_is_read_in_its_new_version(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__read_while_arriving_bytes=1).start()
    path = node.checkpoints / "large"
    thing = {"Bucket": place.bucket, "Key": place.below("checkpoints").key("large")}
    place.client().put_object(**thing, Body=b"1" * _PARTS * _PART_BYTES)
    proxy.let_pass(method="GET", matching="/large")
    proxy.answer(503, times=1000, method="GET", matching="/large")  # one part comes, the others only of the new version
    with path.open("rb", buffering=0) as file:
        assert os.fstat(file.fileno()).st_size == _PARTS * _PART_BYTES
        proxy.wait_requests(2, "GET", "/large")
        place.client().put_object(**thing, Body=b"2" * (_PARTS + 1) * _PART_BYTES)
        proxy.heal()
        wait_until(lambda: node.status().fetching == 0)
        read = b"".join(iter(lambda: file.read(1 << 20), b""))
    assert len(read) == (_PARTS + 1) * _PART_BYTES
    assert set(read) == set(b"2")
    assert node.events("replaced-while-read") == []


@pytest.mark.promise("replaceable")
def test_versions_are_not_mixed_when_an_object_is_replaced_while_it_is_read(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__read_while_arriving_bytes=1).start()
    path = node.checkpoints / "large"
    thing = {"Bucket": place.bucket, "Key": place.below("checkpoints").key("large")}
    place.client().put_object(**thing, Body=b"1" * _PARTS * _PART_BYTES)
    proxy.let_pass(method="GET", matching="/large")
    proxy.answer(503, times=1000, method="GET", matching="/large")
    with path.open("rb", buffering=0) as file:
        assert file.read(10) == b"1" * 10
        place.client().put_object(**thing, Body=b"2" * 100)
        proxy.heal()
        with pytest.raises(OSError, match="Input/output"):
            os.pread(file.fileno(), 10, _PART_BYTES * (_PARTS - 1))
        assert node.events("replaced-while-read") == [{"path": "checkpoints/large"}]
        assert path.read_bytes() == b"2" * 100
        with pytest.raises(OSError, match="Input/output"):
            os.pread(file.fileno(), 10, _PART_BYTES * (_PARTS - 1))


def test_what_did_not_arrive_is_never_read_as_zeros(make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy) -> None:
    node = make_s3_node(
        place.through(proxy.endpoint), remote__read_while_arriving_bytes=1, remote__retry_deadline_seconds=0.1
    ).start()
    path = node.checkpoints / "large"
    key = place.below("checkpoints").key("large")
    place.client().put_object(Bucket=place.bucket, Key=key, Body=b"1" * _PARTS * _PART_BYTES)
    proxy.let_pass(method="GET", matching="/large")
    proxy.answer(503, times=1000, method="GET", matching="/large")
    with path.open("r+b", buffering=0) as file:
        wait_until(lambda: node.status().fetching == 0)
        assert file.read(10) == b"1" * 10, "this part is here"
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                os.pread(file.fileno(), 10, _PART_BYTES * (_PARTS - 1))
            with pytest.raises(OSError, match="Input/output"):
                os.ftruncate(file.fileno(), 20)
        proxy.heal()
        assert path.read_bytes() == b"1" * _PARTS * _PART_BYTES
        assert os.pread(file.fileno(), 10, _PART_BYTES * (_PARTS - 1)) == b"1" * 10


def test_a_rename_takes_the_version_that_there_is(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    node = make_s3_node(place, remote__metadata_ttl_seconds=60).start()
    path = node.checkpoints / "report"
    thing = {"Bucket": place.bucket, "Key": place.below("checkpoints").key("report")}
    place.client().put_object(**thing, Body=b"one")
    assert path.stat().st_size == 3
    place.client().put_object(**thing, Body=b"number two")
    path.rename(node.blobs / "kept")  # not in the same directory, whose LIST would tell
    assert (node.blobs / "kept").read_bytes() == b"number two"


def test_an_open_that_fails_leaves_no_descriptor_behind(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.1).start()
    path = node.checkpoints / f"1_{uuid.uuid4()}.zip"  # a name that the store need not be asked for
    path.write_bytes(b"data")
    node.stop()
    shutil.rmtree(node.store / "index")
    proxy.answer(503, times=1000, matching=path.name)
    node.start()
    node.wait_event("rebuild-skipped")

    def descriptors_here() -> list[str]:
        found = []
        for fd in os.listdir(f"/proc/{node.pid}/fd"):
            with suppress(FileNotFoundError):  # the daemon has closed another one meanwhile
                found.append(os.readlink(f"/proc/{node.pid}/fd/{fd}"))
        return [link for link in found if link.endswith(path.name)]

    with pytest.raises(OSError, match="Input/output"):
        path.read_bytes()
    assert descriptors_here() == []
    proxy.heal()
    assert path.read_bytes() == b"data"

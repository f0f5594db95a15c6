"""Copies that are evicted, or come to be here, while something that began before waits for the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server

_TRIES = 200
_SECONDS = 2.0


@pytest.fixture
def node(make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, workspace: Path) -> Iterator[Node]:
    """A node that asks the store at each lookup, on a disk of one group, which gives the lowest free inode number."""
    with mounted_image("ext4", workspace / "disk", 64 << 20, "-b", "4096") as disk:
        settings = {"store__directory": disk / "store", "remote__metadata_ttl_seconds": 0.01}
        node = make_s3_node(place.through(proxy.endpoint), **settings)
        node.store = disk / "store"
        yield node.start()
        node.stop()


def reuse(node: Node, inode: int) -> Path:
    """Make files in ``work/files`` until one has this inode number on the disk; return it."""
    for number in range(_TRIES):
        new = node.work / f"files/{number}"
        new.write_bytes(b"another file")
        if (node.store / "tree" / new.relative_to(node.mountpoint)).stat().st_ino == inode:
            return new
    raise AssertionError("the disk does not use the inode number again")


def test_a_copy_that_is_evicted_during_a_lookup_is_not_taken_for_the_next_file(
    node: Node, place: S3Server, proxy: FaultProxy
) -> None:
    (node.work / "files").mkdir()
    path = node.checkpoints / "state"
    path.write_bytes(b"object")
    inode = node.backing(path).stat().st_ino
    node.stop()
    node.start()  # the kernel knows nothing of it
    held: list[int] = []
    proxy.delay_seconds = _SECONDS
    before = len(proxy.requests("GET"))
    thread = threading.Thread(target=lambda: held.append(os.open(path, os.O_PATH)))  # a lookup, and nothing else
    thread.start()
    proxy.wait_requests(before + 1, "GET")
    with node.client() as client:
        assert [step.done for step in client.evict(str(node.checkpoints))][-1] == 1
    thread.join()
    proxy.heal()
    try:
        assert reuse(node, inode).read_bytes() == b"another file"
        assert path.read_bytes() == b"object"
        wait_until(lambda: node.status().unsent == [])
        stored = place.client().get_object(Bucket=place.bucket, Key=place.key("checkpoints/state"))
        assert stored["Body"].read() == b"object"
    finally:
        os.close(held.pop())


def test_a_prefetch_does_not_replace_what_came_to_be_here_meanwhile(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    for number in range(9):  # one more than are fetched at a time
        place.client().put_object(Bucket=place.bucket, Key=place.key(f"checkpoints/job/{number}"), Body=b"old")
    node = make_s3_node(place.through(proxy.endpoint), remote__metadata_ttl_seconds=3600).start()
    last = node.checkpoints / "job/8"
    proxy.delay_seconds = _SECONDS / 2
    with node.client() as client, ThreadPoolExecutor(1) as thread:
        prefetch = thread.submit(lambda: list(client.prefetch(str(node.checkpoints / "job"))))
        proxy.wait_requests(8, "GET", "checkpoints/job/")
        os.stat(last)
        Path("/proc/sys/vm/drop_caches").write_text("2")  # the kernel forgets it
        last.with_name("new.tmp").write_bytes(b"new")
        last.with_name("new.tmp").rename(last)
        inode = node.backing(last).stat().st_ino
        prefetch.result()
    assert node.backing(last).stat().st_ino == inode
    assert last.read_bytes() == b"new"
    node.stop()

"""rmdir in a zone over a store: what a directory leaves there and here, when it goes well and when it does not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server, Versitygw

PATIENT = {"remote__delete_delay_seconds": 3600, "remote__metadata_ttl_seconds": 3600}
"""Nothing is deleted, and nothing asked for anew, before a rmdir needs it."""


def refuse_deletions(proxy: FaultProxy) -> None:
    proxy.answer(403, times=1000, method="POST", matching="delete")
    proxy.answer(403, times=1000, method="DELETE")


def refuse_listings(proxy: FaultProxy) -> None:
    proxy.answer(403, times=1000, method="GET", matching="list-type")


def break_down(proxy: FaultProxy) -> None:
    proxy.down()


def put_marker(place: S3Server, directory: str) -> None:
    place.client().put_object(Bucket=place.bucket, Key=place.key(f"checkpoints/{directory}/"), Body=b"")


def make_anew(place: S3Server, name: str) -> None:
    """As another node does."""
    place.client().put_object(Bucket=place.bucket, Key=place.key(f"checkpoints/{name}"), Body=b"anew")


def shown(directory: Path) -> list[str]:
    """What a listing has, with attributes or without, and what a lookup of each of its names finds."""
    names = sorted(os.listdir(directory))
    assert sorted(entry.name for entry in os.scandir(directory) if entry.stat()) == names
    assert [name for name in names if (directory / name).exists()] == names
    return names


@pytest.mark.promise("rmdir")
@pytest.mark.parametrize("trouble", [refuse_deletions, refuse_listings, break_down])
def test_a_directory_that_the_store_did_not_let_go_can_be_removed_once_more(
    trouble: Callable[[FaultProxy], None], make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    through = place.through(proxy.endpoint)
    node = make_s3_node(through, remote__retry_deadline_seconds=0.3, **PATIENT).start()
    job = node.checkpoints / "job"
    job.mkdir()
    (job / "state").write_bytes(b"old")
    trouble(proxy)
    for _ in range(2):
        with pytest.raises(OSError, match="job") as problem:
            shutil.rmtree(job)
        assert problem.value.errno in {errno.EACCES, errno.EIO}
        assert os.listdir(job) == []
    proxy.heal()
    proxy.up()
    shutil.rmtree(job)
    assert keys(place) == set()
    assert os.listdir(node.checkpoints) == []
    make_anew(place, "job/state")
    wait_until((job / "state").exists)
    assert (job / "state").read_bytes() == b"anew"


def test_a_directory_that_holds_files_is_not_touched_in_the_store(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node().start()
    (remote_files / "job").mkdir()
    (node.checkpoints / "job/1.tmp").write_bytes(b"of this node")
    before = node.requests()
    with pytest.raises(OSError, match="not empty"):
        (node.checkpoints / "job").rmdir()
    assert node.requests().get("PRUNE", 0) == before.get("PRUNE", 0)
    assert (remote_files / "job").exists()
    assert os.listdir(node.checkpoints / "job") == ["1.tmp"]


@pytest.mark.promise("removed-directories")
def test_a_removed_tree_of_markers_is_hidden_until_there_is_something_in_it(
    make_s3_node: S3NodeFactory, place: S3Server
) -> None:
    for directory in ("job", "job/state", "job/state/0", "job/state/1"):
        put_marker(place, directory)
    node = make_s3_node(place, remote__metadata_ttl_seconds=0).start()
    job = node.checkpoints / "job"
    (job / "state/0/1.delta").write_bytes(b"old")
    shutil.rmtree(job)
    assert keys(place) == {f"checkpoints/job{below}/" for below in ("", "/state", "/state/0", "/state/1")}
    assert shown(node.checkpoints) == []
    node.stop()
    node.start()
    assert not job.exists()
    assert shown(node.checkpoints) == []
    make_anew(place, "job/state/1/1.delta")
    assert (job / "state/1/1.delta").read_bytes() == b"anew"
    assert (shown(node.checkpoints), shown(job), shown(job / "state")) == (["job"], ["state"], ["1"])


@pytest.mark.promise("removed-directories")
def test_a_listing_shows_what_others_have_put_into_a_removed_directory(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    put_marker(place, "job")
    node = make_s3_node(place, remote__metadata_ttl_seconds=0).start()
    (node.checkpoints / "job").rmdir()
    assert os.listdir(node.checkpoints) == []
    make_anew(place, "job/metadata")
    assert os.listdir(node.checkpoints) == ["job"]
    (node.checkpoints / "job/metadata").unlink()
    (node.checkpoints / "job").rmdir()
    assert shown(node.checkpoints) == []


@pytest.mark.promise("removed-directories")
def test_a_directory_that_is_made_over_a_marker_can_be_removed_again(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    put_marker(place, "job")
    node = make_s3_node(place, remote__metadata_ttl_seconds=0).start()
    job = node.checkpoints / "job"
    for _ in range(2):
        job.rmdir()
        assert shown(node.checkpoints) == []
        job.mkdir()
        assert shown(node.checkpoints) == ["job"]
    (node.checkpoints / "other").mkdir()
    job.rmdir()
    (node.checkpoints / "other").rename(job)
    job.rmdir()
    assert shown(node.checkpoints) == []


@pytest.mark.promise("removed-directories")
def test_a_directory_with_something_foreign_in_it_is_hidden_until_there_is_an_object(
    make_node: NodeFactory, remote_files: Path
) -> None:
    node, other = make_node("a", remote__metadata_ttl_seconds=0).start(), make_node("b").start()
    for name in ("job/state/1", "job/state/2"):
        (node.checkpoints / name).parent.mkdir(parents=True, exist_ok=True)
        (node.checkpoints / name).write_bytes(b"old")
    (remote_files / "job/state/foreign").symlink_to("elsewhere")
    shutil.rmtree(node.checkpoints / "job")
    assert objects(remote_files) == {}
    assert (remote_files / "job/state/foreign").is_symlink()
    assert shown(node.checkpoints) == []
    (other.checkpoints / "job/state").mkdir(parents=True, exist_ok=True)
    (other.checkpoints / "job/state/3").write_bytes(b"new")
    assert (node.checkpoints / "job/state/3").read_bytes() == b"new"
    assert shown(node.checkpoints) == ["job"]


def test_a_directory_made_over_a_hidden_one_takes_its_name_along(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node(remote__metadata_ttl_seconds=0).start()
    old, new = node.checkpoints / "old", node.checkpoints / "new"
    (remote_files / "old").mkdir(parents=True)
    (remote_files / "old/foreign").symlink_to("elsewhere")
    old.rmdir()
    old.mkdir()
    old.rename(new)
    assert shown(node.checkpoints) == ["new"]
    assert not old.exists()
    new.rename(old)
    old.rmdir()
    assert shown(node.checkpoints) == []


def test_a_directory_does_not_replace_one_that_has_objects_in_the_store_alone(node: Node, remote_files: Path) -> None:
    old, new = node.checkpoints / "old", node.checkpoints / "new"
    old.mkdir()
    (remote_files / "new").mkdir()
    (remote_files / "new/state").write_bytes(b"state")
    assert (new / "state").read_bytes() == b"state"
    with node.client() as client:
        assert list(client.evict(str(new)))[-1].done == 1
    with pytest.raises(OSError, match="Directory not empty"):
        old.rename(new)
    assert os.listdir(new) == ["state"]


def test_a_directory_that_only_the_store_has_is_moved_by_a_copy(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node().start()
    (remote_files / "old").mkdir(parents=True)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        (node.checkpoints / "old").rename(node.checkpoints / "new")
    subprocess.run(["mv", node.checkpoints / "old", node.checkpoints / "new"], check=True)
    assert shown(node.checkpoints) == ["new"]


def test_a_removed_directory_stays_hidden_while_an_async_zone_goes_on_without_its_store(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    put_marker(place, "job")
    through = place.through(proxy.endpoint)
    settings = {"remote__retry_deadline_seconds": 0.3, "checkpoints__durability": "async", **PATIENT}
    node = make_s3_node(through, **settings).start()
    job = node.checkpoints / "job"
    job.rmdir()
    assert not job.exists()
    proxy.down()
    assert not job.exists()
    job.mkdir()
    (job / "state").write_bytes(b"of this node")
    proxy.up()


def test_a_tree_is_removed_by_few_requests(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted, **PATIENT).start()
    for number in range(3):
        directory = node.checkpoints / f"job/{number}"
        directory.mkdir(parents=True)
        (directory / "state").write_bytes(b"old")
    before = counted.requests()
    shutil.rmtree(node.checkpoints / "job")
    requests = counted.requests() - before
    assert requests["DeleteObjects"] == 3
    assert requests["ListObjectsV2"] == 4, "one for each directory, to see that nothing is left in it"
    assert keys(counted) == set()

"""Zones over a real S3 server: requests, other tools' objects, refusals, and a server that is away."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.support.daemons.node import StartError, settle, wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server, Versitygw


def commit(directory: Path, name: str, data: bytes) -> None:
    """Write as Hadoop does: a temporary file, renamed, with a checksum file beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4()
    for temporary, final, content in (
        (f".{name}.{token}.tmp", name, data),
        (f"..{name}.{token}.tmp.crc", f".{name}.crc", b"crc"),
    ):
        (directory / temporary).write_bytes(content)
        (directory / temporary).rename(directory / final)


# --- requests of a restart ---------------------------------------------------------------------------------------------

_SST = "q/state/0/0/SSTs/000020-f6f97f90-299f-4ba3-8480-cc49015f5456.sst"


@pytest.mark.promise("lookups")
def test_a_file_that_is_linked_by_a_temporary_name_costs_its_put(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted).start()
    stored, private = node.checkpoints / _SST, node.work / "driver_1/000020.sst"
    private.parent.mkdir()
    private.write_bytes(b"state")
    stored.parent.mkdir(parents=True)
    temporary = stored.with_name(f".{stored.name}.{uuid.uuid4()}.tmp")
    counted.clear_log()
    temporary.hardlink_to(private)
    assert not stored.exists()
    temporary.rename(stored)
    assert counted.requests() == {"PutObject": 1}
    assert keys(counted) == {f"checkpoints/{_SST}"}


@pytest.mark.promise("lookups")
def test_a_driver_that_has_won_a_batch_is_told_at_once_what_metadata_of_an_operator_there_is(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    before, node = make_s3_node(counted, "before").start(), make_s3_node(counted).start()
    commit(before.checkpoints / "q/offsets", "0", b"v1")
    commit(before.checkpoints / "q/state/0/_metadata", "metadata", b"v1")
    metadata = node.checkpoints / "q/state/0/_metadata"
    assert os.listdir(metadata) == ["metadata"]
    commit(node.checkpoints / "q/offsets", "1", b"v1")
    counted.clear_log()
    assert not (metadata / "v2").exists()
    assert counted.requests() == {}
    commit(before.checkpoints / "q/state/0/_metadata/v2", "0", b"v2")
    with ThreadPoolExecutor(1) as another_thread:
        assert another_thread.submit((metadata / "v2").exists).result(), "only who writes the logs is the driver"


# --- deletions --------------------------------------------------------------------------------------------------------

HELD_BACK = {"remote__delete_delay_seconds": 3600}


@pytest.mark.promise("unlink-versions")
def test_a_deletion_leaves_alone_what_another_node_has_put_there(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    first, second = make_s3_node(counted, "a", **HELD_BACK).start(), make_s3_node(counted, "b").start()
    names = ("few/state", *(f"many/{number}" for number in range(20)))
    for name in names:
        (first.checkpoints / name).parent.mkdir(parents=True, exist_ok=True)
        (first.checkpoints / name).write_bytes(b"the same bytes")
        (first.checkpoints / name).unlink()
    for name in names[:10]:
        path = second.checkpoints / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name("x.tmp").write_bytes(b"the same bytes")
        path.with_name("x.tmp").rename(path)
    for directory in ("few", "many"):
        settle(first.checkpoints / directory)
    assert keys(counted) == {f"checkpoints/{name}" for name in names[:10]}
    assert (first.checkpoints / names[0]).read_bytes() == b"the same bytes"
    assert len(first.events("delete-superseded")) == 10


@pytest.mark.promise("unlink-versions")
def test_what_another_node_has_just_put_in_place_of_an_own_object_is_removed_once_it_was_seen(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    first, second = make_s3_node(counted, "a", remote__metadata_ttl_seconds=0).start(), make_s3_node(counted, "b").start()
    path = first.checkpoints / "report"
    path.write_bytes(b"own")
    (second.checkpoints / "report").write_bytes(b"another's")
    wait_until(lambda: path.read_bytes() == b"another's")
    path.unlink()
    settle(first.checkpoints)
    assert not path.exists()
    assert keys(counted) == set()
    assert first.events("delete-superseded") == []


@pytest.mark.promise("unlink-versions")
def test_a_directory_that_another_node_makes_anew_is_there_again(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    first, second = make_s3_node(counted, "a").start(), make_s3_node(counted, "b").start()
    (first.checkpoints / "job/state").mkdir(parents=True)
    (first.checkpoints / "job/state/1").write_bytes(b"old")
    shutil.rmtree(first.checkpoints / "job")
    assert keys(counted) == set()
    (second.checkpoints / "job/state").mkdir(parents=True)
    (second.checkpoints / "job/state/1").write_bytes(b"new")
    wait_until((first.checkpoints / "job/state/1").exists)
    assert (first.checkpoints / "job/state/1").read_bytes() == b"new"


def test_the_deletion_of_a_blob_spares_what_a_working_directory_stores_in_its_place(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    node = make_s3_node(counted, **HELD_BACK).start()
    (node.blobs / "job_1").mkdir()
    (node.blobs / "job_1/blob_p-1").write_bytes(b"jar")
    (node.work / "jm_1").mkdir()
    (node.work / "jm_1/blobStorage/job_1").mkdir(exist_ok=True)
    (node.blobs / "job_1/blob_p-1").unlink()
    (node.work / "jm_1/blobStorage/job_1/blob_p-1").write_bytes(b"jar")
    settle(node.blobs / "job_1")
    assert keys(counted) == {"blobs/job_1/blob_p-1"}
    assert (node.blobs / "job_1/blob_p-1").read_bytes() == b"jar"


@pytest.mark.promise("write-once-again")
def test_of_two_nodes_that_remove_a_write_once_name_and_create_it_anew_one_wins(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    nodes = [make_s3_node(counted, name, **HELD_BACK).start() for name in ("a", "b")]
    directory = "job/offsets"
    for number in range(5):
        commit(nodes[0].checkpoints / directory, str(number), b"stale")
    for node in nodes:
        assert {(node.checkpoints / directory / str(number)).read_bytes() for number in range(5)} == {b"stale"}
    for node in nodes:
        for number in range(5):
            (node.checkpoints / directory / str(number)).unlink()
    for number in range(5):
        commit(nodes[number % 2].checkpoints / directory, str(number), b"first")
        with pytest.raises(FileExistsError):
            commit(nodes[1 - number % 2].checkpoints / directory, str(number), b"second")
        for node in nodes:
            assert (node.checkpoints / directory / str(number)).read_bytes() == b"first"


@pytest.mark.promise("unlink-versions")
def test_a_node_that_comes_back_deletes_nothing_that_others_have_committed_meanwhile(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    first, second = make_s3_node(counted, "a", **HELD_BACK).start(), make_s3_node(counted, "b").start()
    commit(first.checkpoints / "job/commits", "5", b"{}")
    (first.checkpoints / "job/state").write_bytes(b"old")
    for name in ("job/commits/5", "job/state"):
        (first.checkpoints / name).unlink()
    first.kill()
    second.stop()
    wait_until(lambda: keys(counted) >= {"checkpoints/job/commits/5", "checkpoints/job/state"})
    second.start()
    (second.checkpoints / "job/commits/5").unlink()
    commit(second.checkpoints / "job/commits", "5", b"{}")
    (second.checkpoints / "job/state").write_bytes(b"new")
    first.start()
    wait_until(lambda: len(first.events("delete-superseded")) == 2)
    for node in (first, second):
        assert (node.checkpoints / "job/commits/5").read_bytes() == b"{}"
        assert (node.checkpoints / "job/state").read_bytes() == b"new"


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_commit_costs_one_request(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted, holdings__enabled=False).start()  # otherwise it tells what it holds, after some seconds
    counted.clear_log()
    for number in range(30):
        commit(node.checkpoints / "job/offsets", str(number), b"offset")
        commit(node.checkpoints / "job/commits", str(number), b"commit")
        for partition in range(2):
            commit(node.checkpoints / f"job/state/0/{partition}", f"{number}.changelog", b"changes")
    requests = counted.requests()
    objects = len(keys(counted))
    assert objects == 120
    assert requests["PutObject"] == objects
    assert sum(requests.values()) - requests["ListObjectsV2"] == objects
    assert requests["ListObjectsV2"] <= 0.2 * objects


def test_a_restart_costs_one_list_a_directory_and_one_get_a_file(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    writer, reader = make_s3_node(counted, "a").start(), make_s3_node(counted, "b").start()
    directories = [f"job/state/0/{partition}" for partition in range(4)]
    for directory in directories:
        for number in range(10):
            commit(writer.checkpoints / directory, f"{number}.changelog", b"changes")
    counted.clear_log()
    for directory in directories:
        assert len(list((reader.checkpoints / directory).iterdir())) == 10
        for number in range(10):
            assert not (reader.checkpoints / directory / f".{number}.changelog.crc").exists()
            assert (reader.checkpoints / directory / f"{number}.changelog").read_bytes() == b"changes"
    requests = counted.requests()
    assert requests["GetObject"] == 40
    assert requests["HeadObject"] == 0
    assert requests["ListObjectsV2"] <= len(directories) + 4  # the zone, and the directories above them


# --- other tools ------------------------------------------------------------------------------------------------------


def test_empty_directories_of_other_tools_are_seen_and_can_be_used(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    zone = place.below("checkpoints")
    client = place.client()
    client.put_object(Bucket=place.bucket, Key=zone.key("made/by/console/"), Body=b"")
    client.put_object(Bucket=place.bucket, Key=zone.key("made/file"), Body=b"seen")
    node = make_s3_node(place).start()
    assert sorted(os.listdir(node.checkpoints / "made")) == ["by", "file"]
    assert os.listdir(node.checkpoints / "made/by/console") == []
    assert (node.checkpoints / "made/file").read_bytes() == b"seen"
    (node.checkpoints / "made/by/console/new").write_bytes(b"written")
    assert client.get_object(Bucket=place.bucket, Key=zone.key("made/by/console/new"))["Body"].read() == b"written"


def test_an_object_that_another_tool_replaced_is_seen(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    node = make_s3_node(place, remote__metadata_ttl_seconds=0).start()
    (node.checkpoints / "state").write_bytes(b"ours")
    place.client().put_object(Bucket=place.bucket, Key=place.key("checkpoints/state"), Body=b"of another tool")
    assert (node.checkpoints / "state").read_bytes() == b"of another tool"


# --- a server that refuses --------------------------------------------------------------------------------------------


def test_refused_credentials_end_the_start(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted)
    node.environment["AWS_SECRET_ACCESS_KEY"] = "WrongSecretThatNobodyMaySee"
    with pytest.raises(StartError, match="the store refuses the credentials") as refused:
        node.start()
    assert "WrongSecretThatNobodyMaySee" not in str(refused.value) + node.log.read_text()


def test_a_bucket_that_does_not_exist_ends_the_start(make_node: NodeFactory, place: S3Server) -> None:
    node = make_node(checkpoints="s3://no-such-bucket/checkpoints")
    node.environment.update(place.environment)
    with pytest.raises(StartError, match="no-such-bucket"):
        node.start()


def test_secrets_are_in_no_log_and_no_message(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted, remote__retry_deadline_seconds=0.2).start()
    (node.checkpoints / "file").write_bytes(b"bytes")
    said = node.log.read_text() + str(node.status()) + (node.store / "events.jsonl").read_text()
    assert counted.secret_access_key not in said
    assert counted.access_key_id not in said


# --- objects that other tools have rewritten, with the metadata that a node gave them -------------------------------------

MIB = 2**20


def rewritten(place: S3Server, key: str, data: bytes, *, part_bytes: int = 0, **checksum: str) -> None:
    """Replace the bytes of an object and keep its metadata, as s3fs does; in parts if ``part_bytes``."""
    client, whole = place.client(), {"Bucket": place.bucket, "Key": place.key(key)}
    metadata = client.head_object(**whole)["Metadata"]
    assert "holdfast-digest" in metadata
    if not part_bytes:
        client.put_object(**whole, Body=data, Metadata=metadata)
        return
    upload = client.create_multipart_upload(**whole, Metadata=metadata, **checksum)["UploadId"]
    parts = []
    for number, start in enumerate(range(0, len(data), part_bytes), 1):
        body = data[start : start + part_bytes]
        algorithm = {name: value for name, value in checksum.items() if name == "ChecksumAlgorithm"}
        part = client.upload_part(**whole, UploadId=upload, PartNumber=number, Body=body, **algorithm)
        sums = {name: value for name, value in part.items() if name.startswith("ChecksumCRC") and algorithm}
        parts.append({"PartNumber": number, "ETag": part["ETag"], **sums})
    kind = {name: value for name, value in checksum.items() if name == "ChecksumType"}
    client.complete_multipart_upload(**whole, UploadId=upload, MultipartUpload={"Parts": parts}, **kind)


def flip_stored(counted: Versitygw, name: str, offset: int) -> None:
    with (counted.directory / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


@pytest.mark.promise("stale-digest")
@pytest.mark.parametrize("size_bytes", [15, 9 * MIB, 20 * MIB])
def test_an_object_that_was_rewritten_with_its_old_digest_is_served_where_its_etag_fits(
    make_s3_node: S3NodeFactory, counted: Versitygw, size_bytes: int
) -> None:
    writer, reader = make_s3_node(counted, "a").start(), make_s3_node(counted, "b").start()
    old, new = os.urandom(20 * MIB), os.urandom(size_bytes)
    for name in ("object", "spoilt"):
        (writer.checkpoints / name).write_bytes(old)
        rewritten(counted, f"checkpoints/{name}", new)
    flip_stored(counted, "checkpoints/spoilt", size_bytes - 1)
    assert (reader.checkpoints / "object").read_bytes() == new
    assert reader.wait_event("stale-digest") == {"object": "object", "store": "checkpoints"}
    assert not reader.events("corrupt-arrival")
    with pytest.raises(OSError, match="Input/output"):
        (reader.checkpoints / "spoilt").read_bytes()
    with reader.client() as client:
        list(client.evict(str(reader.checkpoints / "object")))
    assert (reader.checkpoints / "object").read_bytes() == new
    assert len(reader.events("stale-digest")) == 1
    reader.kill()
    shutil.rmtree(reader.store / "index")
    reader.start()
    assert (reader.checkpoints / "object").read_bytes() == new
    assert not reader.events("quarantined")


@pytest.mark.promise("stale-digest")
def test_one_that_was_rewritten_in_parts_is_served_if_the_store_has_a_checksum_of_the_whole(
    make_s3_node: S3NodeFactory, counted: Versitygw
) -> None:
    node = make_s3_node(counted).start()
    new = os.urandom(20 * MIB)
    full = {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "FULL_OBJECT"}
    for name, part_bytes, checksum in (
        ("whole", 5 * MIB, full),
        ("spoilt", 5 * MIB, full),
        ("of-parts", 5 * MIB, {"ChecksumAlgorithm": "CRC32", "ChecksumType": "COMPOSITE"}),
        ("as-a-node-sends-it", 16 * MIB, full),
    ):
        (node.checkpoints / name).write_bytes(b"old")
        rewritten(counted, f"checkpoints/{name}", new, part_bytes=part_bytes, **checksum)
    flip_stored(counted, "checkpoints/spoilt", 19 * MIB)
    for name in ("whole", "spoilt", "of-parts", "as-a-node-sends-it"):
        wait_until(lambda name=name: (node.checkpoints / name).stat().st_size == len(new))  # type: ignore[misc]
    assert (node.checkpoints / "whole").read_bytes() == new
    for name in ("spoilt", "of-parts", "as-a-node-sends-it"):
        with pytest.raises(OSError, match="Input/output"):
            (node.checkpoints / name).read_bytes()
    assert [event["object"] for event in node.events("stale-digest")] == ["whole"]


# --- a server that is away --------------------------------------------------------------------------------------------


@pytest.mark.promise("store-away")
def test_a_store_that_is_away(make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy) -> None:
    writer = make_s3_node(place, "writer").start()
    for name in ("cached", "missing"):
        commit(writer.checkpoints / "job", name, name.encode())
    reader = make_s3_node(place.through(proxy.endpoint), "reader", remote__retry_deadline_seconds=0.5).start()
    assert (reader.checkpoints / "job/cached").read_bytes() == b"cached"
    proxy.down()
    assert (reader.checkpoints / "job/cached").read_bytes() == b"cached"
    with pytest.raises(OSError, match="Input/output") as problem:
        (reader.checkpoints / "job/missing").read_bytes()
    assert problem.value.errno == errno.EIO
    assert "gave up after 0.5 s" in reader.wait_event("fetch-failed")["problem"]
    assert reader.wait_event("remote-down")["store"] == "checkpoints"
    proxy.up()
    assert (reader.checkpoints / "job/missing").read_bytes() == b"missing"
    reader.wait_event("remote-up", store="checkpoints")


@pytest.mark.promise("away-together")
@pytest.mark.parametrize("change", ["create", "rename", "mkdir", "stat"])
def test_those_who_wait_for_one_directory_hear_of_an_outage_together(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, change: str
) -> None:
    """Changes wait for the directory's lock in the kernel: each comes to the daemon when the one before has failed."""
    deadline_seconds, callers = 5.0, 5
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=deadline_seconds).start()
    directory = node.checkpoints / "job"
    directory.mkdir()
    for number in range(callers):
        (directory / f".{number}.tmp").write_bytes(b"new")
    proxy.down()
    changes: dict[str, Callable[[int], object]] = {
        "create": lambda number: (directory / f"created-{number}").open("xb"),
        "rename": lambda number: (directory / f".{number}.tmp").rename(directory / f"renamed-{number}"),
        "mkdir": lambda number: (directory / f"made-{number}").mkdir(),
        "stat": lambda number: (directory / f"absent-{number}").stat(),
    }

    def fail(number: int) -> None:
        with pytest.raises(OSError, match="Input/output"):
            changes[change](number)

    began = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(fail, range(callers)))
    assert time.monotonic() - began < 2 * deadline_seconds, "one after the other takes five times the deadline"


def test_a_file_that_can_not_be_checked_is_served_as_it_was_last_seen(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    through = place.through(proxy.endpoint)
    node = make_s3_node(through, remote__retry_deadline_seconds=0.3, remote__metadata_ttl_seconds=0).start()
    commit(node.checkpoints / "job", "1.zip", b"manifest")
    proxy.down()
    assert (node.checkpoints / "job/1.zip").read_bytes() == b"manifest"
    assert node.wait_event("served-unchecked")["path"].startswith("checkpoints/job")


def test_what_can_not_be_sent_is_an_error_of_close_and_stays_unsent(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.3).start()
    descriptor = os.open(node.checkpoints / "new", os.O_WRONLY | os.O_CREAT)
    proxy.down()
    os.write(descriptor, b"precious")
    with pytest.raises(OSError, match="Input/output"):
        os.close(descriptor)
    assert (node.checkpoints / "new").read_bytes() == b"precious"
    proxy.up()
    descriptor = os.open(node.checkpoints / "new", os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    assert place.client().get_object(Bucket=place.bucket, Key=place.key("checkpoints/new"))["Body"].read() == b"precious"


def test_a_rename_that_can_not_be_sent_leaves_the_temporary_file(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.3).start()
    temporary = node.checkpoints / ".1.delta.tmp"
    temporary.write_bytes(b"precious")
    proxy.down()
    with pytest.raises(OSError, match="Input/output"):
        temporary.rename(node.checkpoints / "1.delta")
    assert temporary.read_bytes() == b"precious"
    proxy.up()
    temporary.rename(node.checkpoints / "1.delta")
    assert keys(place) == {"checkpoints/1.delta"}


def test_a_store_that_does_not_answer_at_the_start_is_no_reason_not_to_start(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.3).start()
    commit(node.checkpoints / "job", "state", b"cached")
    node.stop()
    proxy.down()
    node.start()
    assert (node.checkpoints / "job/state").read_bytes() == b"cached"
    assert not any(remote.up for remote in node.status().remotes.values())
    proxy.up()
    (node.checkpoints / "job/new").write_bytes(b"sent")
    assert "checkpoints/job/new" in keys(place)


# --- async ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("async")
def test_async_close_answers_before_the_store_and_fsync_after(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async").start()
    assert os.listdir(node.checkpoints) == []
    proxy.down()
    (node.checkpoints / "later").write_bytes(b"later")
    assert keys(place) == set()
    descriptor = os.open(node.checkpoints / "now", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"now")
    synced = threading.Thread(target=os.fsync, args=(descriptor,))
    synced.start()
    node.wait_event("remote-down", store="checkpoints")
    assert synced.is_alive()
    proxy.up()
    synced.join()
    assert "checkpoints/now" in keys(place)
    os.close(descriptor)
    wait_until(lambda: keys(place) == {"checkpoints/now", "checkpoints/later"})


@pytest.mark.promise("async")
def test_an_async_backlog_survives_kill_and_a_lost_index(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async").start()
    assert os.listdir(node.checkpoints) == []
    proxy.down()
    for name in ("one", "two"):
        (node.checkpoints / name).write_bytes(name.encode())
    wait_until(lambda: len(node.status().unsent) == 2)
    node.kill()
    shutil.rmtree(node.store / "index")
    node.start()
    assert node.wait_event("index-rebuilt") == {"files": 2}
    assert (node.checkpoints / "one").read_bytes() == b"one"
    proxy.up()
    wait_until(lambda: keys(place) == {"checkpoints/one", "checkpoints/two"})
    wait_until(lambda: node.status().unsent == [])


@pytest.mark.promise("index-lost")
def test_a_rebuild_of_the_index_that_was_cut_off_begins_again(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async").start()
    (node.checkpoints / "asked-about-first").write_bytes(b"sent")
    wait_until(lambda: keys(place) == {"checkpoints/asked-about-first"} and not node.status().unsent)
    proxy.down()
    (node.checkpoints / "unsent").write_bytes(b"unsent")
    wait_until(lambda: len(node.status().unsent) == 1)
    node.kill()
    shutil.rmtree(node.store / "index")
    node.start()
    node.wait_event("remote-down", store="checkpoints")
    assert not node.events("index-rebuilt")
    node.kill()
    node.start()
    proxy.up()
    wait_until(lambda: keys(place) == {"checkpoints/asked-about-first", "checkpoints/unsent"})


def test_an_async_write_once_name_waits_for_the_store(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    first = make_s3_node(place, "first", checkpoints__durability="async").start()
    second = make_s3_node(place, "second", checkpoints__durability="async").start()
    commit(first.checkpoints / "job/offsets", "7", b"first")
    with pytest.raises(FileExistsError):
        commit(second.checkpoints / "job/offsets", "7", b"second")


def test_a_local_zone_over_a_store_sends_nothing(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    place.client().put_object(Bucket=place.bucket, Key=place.key("checkpoints/old"), Body=b"of the store")
    node = make_s3_node(place, checkpoints__durability="local").start()
    assert (node.checkpoints / "old").read_bytes() == b"of the store"
    commit(node.checkpoints / "job", "new", b"of this node")
    node.stop()
    node.start()
    assert (node.checkpoints / "job/new").read_bytes() == b"of this node"
    assert keys(place) == {"checkpoints/old"}


# --- checksums of the store's own -------------------------------------------------------------------------------------


def put_in_parts(server: S3Server, name: str, data: bytes) -> None:
    """Store an object as ``aws s3 cp`` does: in parts, so that its ETag is no MD5, with a CRC64NVME of all of its bytes."""
    client, where = server.client(), {"Bucket": server.bucket, "Key": server.key(name)}
    kind = {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "FULL_OBJECT"}
    where["UploadId"] = client.create_multipart_upload(**where, **kind)["UploadId"]
    parts = []
    for number, offset in enumerate(range(0, len(data), 5 * 2**20), 1):
        body = data[offset : offset + 5 * 2**20]
        sent = client.upload_part(**where, PartNumber=number, Body=body, ChecksumAlgorithm="CRC64NVME")
        parts.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumCRC64NVME": sent["ChecksumCRC64NVME"]})
    client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts}, ChecksumType="FULL_OBJECT")


@pytest.mark.promise("vouched-copies")
@pytest.mark.parametrize("spoilt", [False, True])
def test_a_copy_of_an_object_in_parts_is_known_by_the_checksum_that_s3_has_after_a_lost_index(
    make_s3_node: S3NodeFactory, counted: Versitygw, *, spoilt: bool
) -> None:
    node = make_s3_node(counted).start()
    data = os.urandom(12 * 2**20)
    put_in_parts(counted, "checkpoints/others", data)
    path = node.checkpoints / "others"
    assert path.read_bytes() == data
    backing = node.backing(path)
    os.removexattr(backing, "user.holdfast.digest")
    node.stop()
    shutil.rmtree(node.store / "index")
    if spoilt:
        modified_ns = backing.stat().st_mtime_ns
        with backing.open("r+b") as file:
            file.seek(6 * 2**20)
            file.write(bytes(4096))
        os.utime(backing, ns=(modified_ns, modified_ns))
    counted.clear_log()
    node.start()
    assert path.read_bytes() == data
    assert (counted.requests()["GetObject"] > 0) == spoilt
    assert not node.events("unproven-dropped")
    assert len(node.events("quarantined")) == spoilt

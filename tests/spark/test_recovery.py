"""The demo's job, killed and restarted: the answer stays right, and the store hears no more requests than it must."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_faults import flip
from tests.support.daemons.node import Node
from tests.support.spark.flights_job import ROWS_OF_A_FILE, Job
from tests.support.stores.s3 import Versitygw

BATCHES = 10
_NODES = "/.holdfast/nodes/"
_REFRESH_SECONDS = 60  # holdings.refresh_seconds
_RENEWED = 5
"""The directories that a driver lists when it begins: once more if that takes a while."""
_LOOKS_FOR_STATE = 1
"""The LIST of ``state`` that decides whether state is fetched from the start on; each partition has one more then."""
_PARTITION = re.compile(r"/state/[0-9]+/[0-9]+$")


@pytest.fixture
def make_s3_node(make_node: NodeFactory, place: Versitygw) -> Callable[[str], Node]:
    def make(name: str) -> Node:
        node = make_node(name, checkpoints=place.below("checkpoints").url, blobs=place.below("blobs").url)
        node.environment.update(place.environment)
        return node

    return make


def objects(server: Versitygw) -> dict[str, str]:
    """Return the directory of every checkpoint object."""
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=f"{server.prefix}/")
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    return {key: key.rpartition("/")[0] for key in keys}


def test_a_killed_job_comes_back_on_its_node_on_another_and_over_corruption(job: Job, make_node: NodeFactory) -> None:
    node = make_node("first").start()
    job.arrive(0, 2)
    job.run(node, 8, kill_in=2)
    state = node.backing(node.checkpoints / "flights/state/0")
    flip(max(state.glob("0/*.changelog"), key=lambda path: int(path.stem.partition("_")[0])), 20)
    job.arrive(3, 5)
    job.run(node, 8, kill_in=5)
    assert node.status().counters["corrupt_dropped"] == 1
    node.kill()
    node.lose_disk()
    other = make_node("other").start()
    job.arrive(6, 8)
    job.run(other, 8)
    assert other.status().counters["misses"] > 0
    with other.client() as client:
        told = client.batches("flights")
    assert {6, 7} <= {each.batch for each in told}  # the last one is told of in the second that a driver waits for it
    assert sum(each.misses for each in told) > 0  # the state of the other node
    assert all(each.seconds > 0 and each.commit_seconds > 0 for each in told if each.rows)
    answer = job.differences()
    assert answer["flights"] == ROWS_OF_A_FILE * 9
    assert (answer["missing"], answer["wrong"]) == (0, 0)


@pytest.mark.promise("batch-requests")
def test_the_store_hears_little(job: Job, place: Versitygw, make_s3_node: Callable[[str], Node]) -> None:
    node = make_s3_node("first").start()
    job.arrive(0, BATCHES - 1)
    place.clear_log()
    began = time.monotonic()
    job.run(node, BATCHES - 1)
    node.stop()
    minutes = (time.monotonic() - began) / _REFRESH_SECONDS
    requests, kept = place.requests(), objects(place)
    kept = {key: directory for key, directory in kept.items() if _NODES not in key}
    directories = {directory for key in kept for directory in _with_parents(key)}
    assert requests["PutObject"] - _reports(place) == len(kept), requests
    assert not [key for key in kept if key.endswith(".crc")], "Spark's checksum files would be 4 of 10 objects"
    assert _reports(place) <= 3 + minutes, "when there is state, as versions move on, and at the end"
    # For what is made once, and none for a batch.
    assert requests["ListObjectsV2"] <= 2 * len(directories) + _RENEWED + _LOOKS_FOR_STATE, requests
    assert sum(requests.values()) == requests["PutObject"] + requests["ListObjectsV2"], requests

    other = make_s3_node("other").start()
    job.arrive(BATCHES, BATCHES)
    before = objects(place)
    place.clear_log()
    job.run(other, BATCHES)
    other.stop()
    requests = place.requests()
    assert requests["HeadObject"] == 0
    assert _most_often(place, "GetObject") == 1
    assert requests["GetObject"] <= len(before)
    directories = {directory for key in before for directory in _with_parents(key)}
    written = {directory for key, directory in objects(place).items() if key not in before}
    partitions = {directory for directory in directories if _PARTITION.search(directory)}
    looks = _LOOKS_FOR_STATE + len(partitions)
    assert requests["ListObjectsV2"] <= len(directories) + len(written) + _RENEWED + looks, requests
    assert job.differences()["wrong"] == 0


def _reports(server: Versitygw) -> int:
    """Return how often a node has told what state it holds."""
    lines = server.access_log.read_text(errors="replace").splitlines()
    return sum("s3_PutObject" in line and _NODES in line for line in lines)


def _with_parents(key: str) -> set[str]:
    parts = key.split("/")[:-1]
    return {"/".join(parts[: depth + 1]) for depth in range(len(parts))}


def _most_often(server: Versitygw, operation: str) -> int:
    """Return how often the object was asked for that was asked for most."""
    lines = [line for line in server.access_log.read_text(errors="replace").splitlines() if f"s3_{operation}" in line]
    return max(Counter(line.split(operation, 1)[1].split()[0] for line in lines).values())

"""Two nodes over one store create the same write-once names at the same moment: of each, one is created.

``HOLDFAST_TEST_RACES=200`` is the number of names; without it there are a few.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import Versitygw
from tests.support.stores.two_nodes import create_once, place_at, two_nodes, winner

RACES = int(os.environ.get("HOLDFAST_TEST_RACES", "3"))

pytestmark = pytest.mark.timeout(600 + 10 * RACES)  # with the start of a server


@pytest.fixture(params=["azurite", "file", "gs-fake", "hdfs", "s3-ceph", "s3-versitygw"])
def place(request: pytest.FixtureRequest, workspace: Path) -> StoreServer | Hdfs | Versitygw:
    """A place at each server that creates a name once, and a directory."""
    if request.param == "file":
        return StoreServer(f"file://{workspace}/races")
    return place_at(request, request.param)


@pytest.fixture
def nodes(make_node: NodeFactory, place: StoreServer | Hdfs | Versitygw) -> list[Node]:
    return two_nodes(make_node, place)


def test_of_two_daemons_one_creates_a_name(nodes: list[Node]) -> None:
    directories = [node.checkpoints / "job/offsets" for node in nodes]
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    start = threading.Barrier(len(directories))

    def create(path: Path) -> bool:
        start.wait()
        return create_once(path)

    wins = [0, 0]
    with ThreadPoolExecutor(len(directories)) as threads:
        for number in range(RACES):
            paths = [directory / f"{number}" for directory in directories]
            won = list(threads.map(create, paths))
            wins[winner(paths, won)] += 1
    print(f"of {RACES} names, {wins[0]} and {wins[1]} were created by the nodes")

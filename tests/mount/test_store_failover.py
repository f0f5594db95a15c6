"""Two nodes over an HDFS of whose namenodes one comes, goes or becomes active with each write.

Jobs see no error, and of each name one is created.

``HOLDFAST_TEST_RACES=200`` is the number of names.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.stores.ha_hdfs import HaHdfs
from tests.support.stores.two_nodes import create_once, two_nodes, winner

NAMES = int(os.environ.get("HOLDFAST_TEST_RACES", "10"))
CHANGES = [["active 1"], ["stop 0"], ["start 0"], ["stop 1", "active 0"], ["start 1"]]

pytestmark = pytest.mark.timeout(400 + 20 * NAMES)


def test_of_two_daemons_one_creates_a_name_while_another_namenode_becomes_active(
    make_node: NodeFactory, ha_hdfs: HaHdfs
) -> None:
    nodes = two_nodes(make_node, ha_hdfs)
    directories = [node.checkpoints / "job/offsets" for node in nodes]
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    start = threading.Barrier(len(nodes) + 1)

    def fail_over(number: int) -> None:
        start.wait()
        for command in CHANGES[number % len(CHANGES)]:
            ha_hdfs.tell(command)

    def create(path: Path) -> bool:
        start.wait()
        return create_once(path)

    wins = [0, 0]
    with ThreadPoolExecutor(len(nodes) + 1) as threads:
        for number in range(NAMES):
            paths = [directory / f"{number}" for directory in directories]
            failing_over = threads.submit(fail_over, number)
            won = list(threads.map(create, paths))
            failing_over.result()
            wins[winner(paths, won)] += 1
    print(f"of {NAMES} names, {wins[0]} and {wins[1]} were created by the nodes")

"""A file that comes into a directory while somebody creates its name is not given to whoever creates it."""

from __future__ import annotations

import errno
import os

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import refused
from tests.support.daemons.faults.requests import OVERTAKING
from tests.support.daemons.node import Node
from tests.support.users.privileges import MALLORY


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    made = make_node(mount__passthrough=request.param)
    made.faults = ["overtaken_creation"]
    return made.start()


@pytest.mark.parametrize("zone", ["checkpoints", "work"])
def test_a_file_that_appears_under_a_name_stays_its_owners(node: Node, zone: str) -> None:
    directory = node.checkpoints / "open" if zone == "checkpoints" else node.work / "worker_1/tmp/open"
    directory.mkdir(parents=True)
    directory.chmod(0o1777)
    path = directory / "overtaken"

    def create() -> None:
        assert refused(lambda: os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)) == errno.EACCES

    MALLORY.do(create)
    assert path.stat().st_uid == 0
    assert path.read_bytes() == OVERTAKING

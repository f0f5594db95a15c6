"""Many SIGKILLs at random moments, under load from several processes: nobody fails, and nothing is lost."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.aftermath import assert_in_order
from tests.support.load.kills import KillTest

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "50"))
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))


@pytest.mark.promise("takeover")
@pytest.mark.timeout(24 * KILLS)  # each a start of a daemon, on a machine that has six more processes to run
def test_nobody_notices_fifty_kills(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    with KillTest(node, SEED) as test:
        for _ in range(KILLS):
            test.kill()
        done = test.stop(print)
    assert min(each.rounds for each in done) > KILLS // 25  # RocksDB does hundreds of requests in a round
    assert_in_order(node, partial(objects, remote_files))
    node.stop()

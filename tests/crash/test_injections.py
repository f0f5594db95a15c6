"""Faults at random in what a node keeps on its disk: no corrupt byte is served, and no attribute is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.disks.injections import Injections

FAULTS = int(os.environ.get("HOLDFAST_TEST_INJECTIONS", "300"))
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))


@pytest.mark.promise("disk-changes")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("passthrough", [True, False], ids=["passthrough", "daemon-io"])
def test_no_fault_of_the_disk_is_served(make_node: NodeFactory, remote_files: Path, *, passthrough: bool) -> None:
    node = make_node(mount__passthrough=passthrough, remote__metadata_ttl_seconds=0, remote__fallback_ttl_seconds=0).start()
    injections = Injections(node, remote_files, SEED)
    while sum(injections.done.values()) < FAULTS:
        injections.round()
        assert not injections.problems, "\n".join(injections.problems)
    print(dict(injections.done))

"""Temporary files that killed writers have left, in a running daemon."""

from __future__ import annotations

import os

import pytest

from tests.conftest import NodeFactory

LEFT = ".1_0a1b2c3d-0000-4000-8000-000000000000.sst.0a1b2c3d-0000-4000-8000-000000000001.tmp"
WRITTEN = ".2.changelog.0a1b2c3d-0000-4000-8000-000000000002.tmp"


@pytest.mark.promise("abandoned-temporaries")
def test_a_link_that_a_killed_process_has_not_renamed_goes_with_the_next_start(make_node: NodeFactory) -> None:
    """As Spark's state files are linked by ``holdfast-spark.jar``."""
    node = make_node(sweep__grace_seconds=0).start()
    work, state = node.mountpoint / "work/a", node.checkpoints / "q/state/0/0"
    work.mkdir()
    state.mkdir(parents=True)
    (work / "1.sst").write_bytes(b"state")
    for name in (LEFT, "by-hand.tmp"):
        os.link(work / "1.sst", state / name)
    (state / WRITTEN).write_bytes(b"half")
    (state / f".{LEFT}.crc").write_bytes(b"sum")
    node.kill()
    node.start()
    assert {LEFT, WRITTEN, "by-hand.tmp"} <= set(os.listdir(state)), "an hour is the least age"
    node.kill()
    node.faults = ["no_least_age"]
    node.start()
    assert node.wait_event("temporaries-removed") == {"zone": "checkpoints", "files": 2}
    assert os.listdir(state) == ["by-hand.tmp"]
    assert (work / "1.sst").read_bytes() == (state / "by-hand.tmp").read_bytes() == b"state"
    assert not (state / LEFT).exists()
    assert not (state / WRITTEN).exists()
    assert node.status().unsent == []
    state.joinpath("by-hand.tmp").unlink()
    state.rmdir()

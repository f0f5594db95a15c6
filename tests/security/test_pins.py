"""A flood of pins by a member of the control group, which may pin what is to stay on the node."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from holdfast.errors import HoldfastError
from holdfast.index.pins import Pins
from tests.security.stores import evict
from tests.support.daemons.node import Node
from tests.support.users.privileges import MALLORY

_PINS = [b"checkpoints/%04d/" % number + b"x" * 240 for number in range(4060)]
"""Not much less than may be pinned."""


def test_a_member_of_the_group_pins_no_more_than_the_daemon_keeps_with_ease(node: Node) -> None:
    """Gain: a file that is written anew with each pin and has no end, and memory for it."""
    node.stop()
    (node.store / "index/pins").write_bytes(msgspec.msgpack.encode(_PINS))
    node.start()
    os.chown(node.socket, 0, MALLORY.gid)
    directory = node.checkpoints / ("d" * 250)

    def pins(count: int) -> None:
        with node.client() as client:
            for number in range(count):
                client.pin(f"{directory}/{number}", future=True)

    def floods() -> None:
        pins(10)
        with pytest.raises(HoldfastError, match="so many pins that only root may add one"):
            pins(100)

    pins(1)  # which also imports what Mallory could not read
    MALLORY.do(floods)
    node.wait_event("limit-reached", uid=MALLORY.uid, what="pins")
    pins(30)
    (node.checkpoints / "file").write_bytes(b"x")
    evict(node, node.checkpoints / "file")


def test_many_pins_cost_an_eviction_no_more_than_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Gain: all requests wait while the daemon compares each file that it might evict with each pin."""
    pins = Pins(tmp_path_factory.mktemp("pins") / "pins")
    pins.add(b"blobs")

    def seconds() -> float:
        began = time.process_time()
        for number in range(2000):
            assert not pins.cover(b"checkpoints/a/b/c/%d" % number)
        return time.process_time() - began

    with_one = min(seconds() for _ in range(5))
    pins._write(_PINS)
    assert min(seconds() for _ in range(5)) < 10 * with_one

"""One user does everything wrong at once: another's operations end, and nothing is left. ``flood`` does it for minutes."""

from __future__ import annotations

import os

from tests.security import flood
from tests.support.daemons.node import Node, wait_until

_OF_ALICE = 120  # directories, and a hundred files in the store


def test_a_flood_of_everything_stops_nobody_else(node: Node) -> None:
    before = len(os.listdir(f"/proc/{node.pid}/fd"))
    known = node.status().known_nodes
    times, _ = flood.run(node, seconds=60, turns=2)
    assert min(map(len, times.values())) > 10
    assert node.status().counters["internal_errors"] == 0
    assert [path.name for path in node.work.iterdir()] == ["alice_1"]
    wait_until(lambda: node.status().known_nodes < known + _OF_ALICE)
    # Directories stay open for a while, and connections to the store: files and sockets of the flood do not.
    links = f"/proc/{node.pid}/fd"
    wait_until(lambda: len(os.listdir(links)) < before + 2048 + 64)

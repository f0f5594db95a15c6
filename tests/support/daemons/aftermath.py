"""What must be true of a node after its daemon was killed, wherever that was."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.support.daemons.node import Node, wait_until


def assert_in_order(node: Node, objects: Callable[[], dict[str, bytes]] | None = None) -> None:
    """The index agrees with the tree, and nothing is left over.

    With the store's ``objects``, everything was sent, and the store has what the mount shows.
    """
    with node.client() as client:
        assert [step.problem for step in client.verify(None) if step.problem] == []
    if objects is not None:
        wait_until(lambda: node.status().unsent == [])
        here = {
            str(path.relative_to(node.checkpoints)): path.read_bytes()
            for path in node.checkpoints.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
        wait_until(lambda: objects() == here)
    wait_until(lambda: not any(os.listdir(node.store / name) for name in ("fetching", "orphans")))

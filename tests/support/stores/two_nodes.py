"""Nodes over one store of any kind, and names for which they race."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons.node import Node
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.ha_hdfs import HaHdfs
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import Versitygw

Place = StoreServer | Hdfs | HaHdfs | Versitygw
"""A place at a server, with the URL and the options of a store there."""


def place_at(request: pytest.FixtureRequest, name: str) -> StoreServer | Hdfs | Versitygw:
    """Return a new place at the server ``name`` of the tests."""
    if name in ("hdfs", "s3-versitygw"):
        server: Hdfs | Versitygw = request.getfixturevalue(name.replace("-", "_"))
        return server.below(uuid.uuid4().hex)
    placed: StoreServer = request.getfixturevalue("store_server")(name)
    return placed


def node_at(make_node: Callable[..., Node], place: Place, node_name: str = "one", /, **settings: Any) -> Node:
    """Return a node that has its checkpoints at ``place``, to be started."""
    node = make_node(node_name, **{"checkpoints": place.url, "workdirs.blob_storage": "", **settings})
    node.settings |= {f"stores.checkpoints.options.{option}": value for option, value in place.options.items()}
    return node


def two_nodes(make_node: Callable[..., Node], place: Place) -> list[Node]:
    """Return two nodes that have their checkpoints at ``place``, started."""
    return [node_at(make_node, place, name).start() for name in ("one", "other")]


def create_once(path: Path) -> bool:
    """Create a write-once name, with its path as content; say whether no other node was faster."""
    try:
        with path.open("xb") as file:
            file.write(str(path).encode())
    except FileExistsError:
        return False
    return True


def winner(paths: Sequence[Path], won: Sequence[bool]) -> int:
    """Return which node has created the name, of which both have to read the same bytes."""
    assert won.count(True) == 1
    assert [path.read_bytes() for path in paths] == [str(paths[won.index(True)]).encode()] * 2
    return won.index(True)

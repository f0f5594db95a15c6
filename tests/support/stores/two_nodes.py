"""Two nodes over one store, and names for which they race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.daemons.node import Node
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.ha_hdfs import HaHdfs
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import Versitygw


def two_nodes(make_node: Callable[..., Node], place: StoreServer | Hdfs | HaHdfs | Versitygw) -> list[Node]:
    """Return two nodes that have their checkpoints at ``place``, started."""
    made = []
    for name in ("one", "other"):
        node = make_node(name, **{"checkpoints": place.url, "workdirs.blob_storage": ""})
        node.settings |= {f"stores.checkpoints.options.{option}": value for option, value in place.options.items()}
        made.append(node.start())
    return made


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

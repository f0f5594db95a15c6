"""Two nodes over one store."""

from __future__ import annotations

from collections.abc import Callable

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

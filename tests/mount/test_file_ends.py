"""When a query begins, the ends of its SSTs are read from the disk ahead of the tasks that open them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.kernel.page_cache import cached_pages, forget
from tests.support.spark.files import snapshot

PAGES = 1024
SIZE = PAGES * 4096
END = (SIZE // 64 + 2**16) // 4096
OLD, NEW = (f"00000{number}-{uuid.UUID(int=number)}.sst" for number in (1, 2))


def put_query(node: Node, stores: Iterable[str]) -> Path:
    """Put a query with two versions of state, each of an SST of its own in each store; return its directory."""
    query = node.checkpoints / "query"
    (query / "offsets").mkdir(parents=True)
    (query / "offsets/0").write_bytes(b"v1\n")
    (query / "metadata").write_bytes(b'{"id": "1"}')
    for store in stores:
        directory = query / "state" / store
        (directory / "SSTs").mkdir(parents=True)
        for version, name in enumerate((OLD, NEW), 9):
            (directory / "SSTs" / name).write_bytes(bytes(SIZE))
            (directory / f"{version}.zip").write_bytes(snapshot([name]))
    return query


def cold(node: Node, directory: Path, name: str) -> Path:
    """Return where an SST is on the disk, after its pages have left the page cache."""
    path = node.backing(directory / "SSTs" / name)
    forget(path)
    assert cached_pages(path) == 0
    return path


def test_the_ends_of_a_querys_ssts_are_read_when_it_begins(make_node: NodeFactory) -> None:
    node = make_node().start()
    stores = ["0/0", "0/1", "1/0/left-keyToNumValues"]
    query = put_query(node, stores)
    old, new = ([cold(node, query / "state" / store, name) for store in stores] for name in (OLD, NEW))
    (query / "metadata").read_bytes()
    wait_until(lambda: [cached_pages(path) for path in new] == [END] * 3)
    assert [cached_pages(path) for path in old] == [0] * 3


def test_those_of_a_snapshot_are_read_when_it_is_opened(make_node: NodeFactory) -> None:
    """As by the executors of a driver on another node."""
    node = make_node().start()
    query = put_query(node, ["0/0"])
    old, new = (cold(node, query / "state/0/0", name) for name in (OLD, NEW))
    (query / "state/0/0/10.zip").read_bytes()
    wait_until(lambda: cached_pages(new) == END)
    assert cached_pages(old) == 0

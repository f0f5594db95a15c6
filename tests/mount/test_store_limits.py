"""``stores.NAME.upload_bytes_per_second`` and the like: a store is used no faster, and a reader goes before a prefetch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until

MIB = 1 << 20


def test_uploads_and_downloads_keep_to_their_rates(make_node: NodeFactory, remote_files: Path) -> None:
    rates = {"checkpoints__upload_bytes_per_second": 2 * MIB, "checkpoints__download_bytes_per_second": 2 * MIB}
    node = make_node(**rates).start()
    began = time.monotonic()
    for number in range(4):
        (node.checkpoints / f"{number}").write_bytes(bytes(MIB))
    assert time.monotonic() - began >= 1.5, "the last one waits until the first three are paid for"
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))
    began = time.monotonic()
    for number in range(4):
        assert (node.checkpoints / f"{number}").read_bytes() == bytes(MIB)
    assert time.monotonic() - began >= 1.5


def test_a_reader_goes_before_a_prefetch(make_node: NodeFactory, remote_files: Path) -> None:
    remote_files.mkdir(parents=True)
    for number in range(20):
        (remote_files / f"state-{number:02}").write_bytes(bytes(MIB))
    (remote_files / "wanted").write_bytes(b"wanted")
    node = make_node(checkpoints__download_bytes_per_second=MIB).start()
    (node.checkpoints / "wanted").stat()

    def prefetch() -> None:
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))

    thread = threading.Thread(target=prefetch)
    thread.start()
    wait_until(lambda: node.status().fetching > 0)
    assert (node.checkpoints / "wanted").read_bytes() == b"wanted"
    fetched = node.status().counters["objects_fetched"]
    assert fetched < 10, "the prefetch is far from its end"
    thread.join()
    assert node.status().counters["objects_fetched"] == 21

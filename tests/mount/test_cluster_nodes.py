"""The nodes of ``./run cluster``: apart from each other, with one store, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.mount import mountpoint
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.cluster.settings import Settings
from tests.support.daemons.node import wait_until
from tests.support.processes.children import DIES_WITH_US

_DISK_BYTES = 64 * 2**20


@pytest.fixture(scope="module")
def cluster(disk: Path) -> Iterator[Cluster]:
    with Cluster.running(disk, Settings(nodes=2, cores=0, disk_bytes=_DISK_BYTES)) as running:
        yield running


def test_nodes_share_a_store_and_nothing_else(cluster: Cluster) -> None:
    first, second = cluster.nodes
    assert [node.run("hostname").strip() for node in cluster.nodes] == ["node1", "node2"]
    assert first.run("id", "--user", "--name").strip() == "spark"
    first.run("sh", "-c", "echo written on node1 >/run/mnt/holdfast/checkpoints/file && mkdir /run/mnt/holdfast/work/test_1")
    fetched = _fetched(second)
    assert second.run("cat", "/run/mnt/holdfast/checkpoints/file") == "written on node1\n"
    assert second.run("ls", "/run/mnt/holdfast/work") == ""
    assert _fetched(second) == fetched + 1
    assert not mountpoint.mount_at("/run/mnt/holdfast"), "nothing of it is seen outside"


def test_a_node_comes_back_with_its_disk_or_without(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    node.run("sh", "-c", "echo kept >/run/mnt/holdfast/checkpoints/kept")
    for fetched, lose in ((0, False), (1, True)):
        node.kill()
        assert not node.lives
        if lose:
            node.lose_disk()
        node.start()
        assert node.run("cat", "/run/mnt/holdfast/checkpoints/kept") == "kept\n"
        assert _fetched(node) == fetched


def test_a_line_that_is_cut_is_one_nodes_own(cluster: Cluster) -> None:
    first, second = cluster.nodes
    first.run("sh", "-c", "echo one >/run/mnt/holdfast/checkpoints/one")
    first.link.cut()
    with first.client() as client:
        cut_off = subprocess.Popen(first.command("cat", "/run/mnt/holdfast/checkpoints/two"), stdout=subprocess.PIPE)
        wait_until(lambda: not all(store.up for store in client.status().remotes.values()))
    second.run("sh", "-c", "echo two >/run/mnt/holdfast/checkpoints/two")
    first.link.open()
    assert cut_off.communicate()[0] == b"two\n", "it waits for the store"


def test_a_cluster_whose_maker_is_killed_is_gone_and_its_files_with_the_next(workspace: Path) -> None:
    with _made(workspace) as maker:
        (directory,) = workspace.iterdir()
        maker.kill()
    wait_until(lambda: not _mentioning(str(directory)))
    with _made(workspace) as maker:
        assert not directory.exists()
        maker.send_signal(signal.SIGTERM)
        assert maker.stdout is not None
        assert "nothing is left of it" in maker.stdout.read()
    assert not list(workspace.iterdir())


@contextmanager
def _made(base: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the verb with one node in a process of its own; yield it when the node is there."""
    command = [*DIES_WITH_US, sys.executable, "-m", "tests.cluster", "--nodes", "1", "--cores", "0"]
    environment = {**os.environ, "HOLDFAST_TEST_DIRECTORY": str(base)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as maker:
        try:
            assert maker.stdout is not None
            next(line for line in maker.stdout if "by hand" in line)
            yield maker
        finally:
            maker.kill()


def _fetched(node: ClusterNode) -> int:
    with node.client() as client:
        return int(client.status().counters["objects_fetched"])


def _mentioning(text: str) -> list[str]:
    """Return the processes with ``text`` in their command line."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found

"""Who holds what, told through the stores: each node learns it of all the others, within seconds, without a port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import HeldStoreInfo, HoldingsInfo, SweepRequest
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted
from tests.support.stores.s3 import S3Server

SST = "SSTs/000008-01234567-0123-0123-0123-0123456789ab.sst"
QUICK = {"holdings__interval_seconds": 0.05, "holdings__refresh_seconds": 0.1}
"""How soon the others are told of a new store, and that the files of a known one have become more."""


def write_state(node: Node, partition: int, *versions: int, query: str = "team/q") -> Path:
    directory = node.checkpoints / query / "state/0" / str(partition)
    (directory / "SSTs").mkdir(parents=True, exist_ok=True)
    (directory / SST).write_bytes(bytes(1000))
    for version in versions:
        (directory / f"{version}.changelog").write_bytes(bytes(10))
    return directory


def stores(info: HoldingsInfo) -> dict[int, tuple[int, int]]:
    return {store.partition: (store.version, store.size_bytes) for query in info.queries for store in query.stores}


def of(node: Node, name: str, path: str | None = None) -> dict[int, tuple[int, int]]:
    """Return what ``node`` says that the node ``name`` holds: version and bytes by partition."""
    with node.client() as client:
        found = client.holdings(path, all_nodes=True)
    assert found.problems == []
    return {key: value for info in found.nodes if info.node == name for key, value in stores(info).items()}


@pytest.fixture
def nodes(make_node: NodeFactory) -> tuple[Node, Node]:
    def started(name: str) -> Node:
        return make_node(name, holdings__node=name, **QUICK).start()

    return started("a"), started("b")


def test_a_node_learns_what_another_one_holds(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    write_state(a, 0, 1, 2)
    write_state(a, 1, 1)
    wait_until(lambda: of(b, "a") == {0: (2, 1020), 1: (1, 1010)})
    assert of(b, "b") == {}
    assert of(b, "a", str(b.checkpoints / "team")) == {0: (2, 1020), 1: (1, 1010)}
    assert of(b, "a", str(b.checkpoints / "other")) == {}


def test_holdings_follow_fetches_deletions_and_evictions(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    directory = write_state(a, 0, 1, 2)
    there = b.checkpoints / directory.relative_to(a.checkpoints)
    (there / "1.changelog").read_bytes()
    wait_until(lambda: of(a, "b") == {0: (1, 10)})
    (there / SST).read_bytes()
    wait_until(lambda: of(a, "b") == {0: (1, 1010)})
    (directory / "2.changelog").unlink()
    wait_until(lambda: of(b, "a") == {0: (1, 1010)})
    with a.client() as client:
        list(client.evict(str(a.checkpoints)))
    wait_until(lambda: of(b, "a") == {})


def test_a_node_that_ends_has_told_the_last(make_node: NodeFactory, remote_files: Path) -> None:
    with mounted("tmpfs", remote_files):  # the end does not wait for a busy disk
        a, b = (make_node(name, holdings__node=name).start() for name in "ab")
        directory = write_state(a, 0)
        wait_until(lambda: of(b, "a") == {0: (0, 1000)})
        (directory / "2.changelog").write_bytes(bytes(10))
        assert of(b, "a") == {0: (0, 1000)}, "versions alone are told once a minute"
        a.stop()
        assert of(b, "a") == {0: (2, 1010)}
        a.start()
        assert of(a, "a") == {0: (2, 1010)}, "counted again from the index"
        for node in (a, b):
            node.stop()


def test_a_drained_node_says_so(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    write_state(a, 0, 1)
    with a.client() as client:
        list(client.drain(10.0))

    def draining() -> bool:
        with b.client() as client:
            return [info.draining for info in client.holdings(all_nodes=True).nodes if info.node == "a"] == [True]

    wait_until(draining)


def test_reports_are_hidden_from_users_and_swept_when_their_node_is_gone(
    nodes: tuple[Node, Node], remote_files: Path
) -> None:
    a, b = nodes
    write_state(a, 0, 1)
    wait_until(lambda: of(b, "a") != {})
    assert sorted(os.listdir(a.checkpoints)) == ["team"]
    assert not (b.checkpoints / ".holdfast").exists()
    private = remote_files / ".holdfast/nodes"
    (private / "gone.00000000").write_bytes(b"")
    os.utime(private / "gone.00000000", (1, 1))
    with a.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(a.checkpoints)))
    assert [item.path for item in plan.items] == [str(a.checkpoints / ".holdfast/nodes/gone.00000000")]


def test_what_somebody_planted_and_what_is_stale_is_left_out(nodes: tuple[Node, Node], remote_files: Path) -> None:
    a, b = nodes
    write_state(a, 0, 1)
    wait_until(lambda: of(b, "a") != {})
    private = remote_files / ".holdfast/nodes"
    real = next(private.iterdir()).read_bytes()
    for name, data in {"junk": b"junk", "empty": b"", "large": bytes(3 * 2**20), "old": real, "young": real}.items():
        (private / name).write_bytes(data)
    (private / "huge").touch()
    os.truncate(private / "huge", 65 * 2**20)  # more than all reports together may have
    os.utime(private / "old", (1, 1))
    for name in ("young", "huge"):
        os.utime(private / name, (2**33, 2**33))
    with b.client() as client:
        found = client.holdings(all_nodes=True)
    held = [info.node for info in found.nodes if info.queries]
    assert held == ["a", "a"], "the real one, and one from the future, which makes no other stale"
    assert "is no report of a node's" in b.log.read_text()


def test_a_store_that_is_down_costs_the_others_news_only(nodes: tuple[Node, Node], remote_files: Path) -> None:
    a, _ = nodes
    write_state(a, 0, 1)
    remote_files.rename(remote_files.with_name("away"))
    with a.client() as client:
        found = client.holdings(all_nodes=True)
    remote_files.with_name("away").rename(remote_files)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("checkpoints: ")
    assert [stores(info) for info in found.nodes if info.queries] == [{0: (1, 1010)}]


def test_the_command_shows_a_line_for_each_operator(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    write_state(a, 0, 1, 2)
    write_state(a, 5, 3)
    wait_until(lambda: len(of(b, "a")) == 2)

    def command(*arguments: object) -> str:
        words = [sys.executable, "-m", "holdfast", "holdings", "--socket", str(b.socket), *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert command() == "no state is held\n"
    line = command("--all-nodes").splitlines()[1].split()
    assert line[:7] == ["a", str(b.checkpoints / "team/q"), "0", "2", "3", "2.0", "KiB"]
    found: dict[str, Any] = json.loads(command(b.checkpoints, "--all-nodes", "--json"))
    assert [node["node"] for node in found["nodes"]] == ["b", "a"]
    write_state(b, 7, 1)
    wait_until(lambda: len(of(a, "b")) == 1)
    shares = {"a": 100, "b": 49}  # 2,030 and 1,010 bytes
    preferred = json.loads(command(b.checkpoints, "--affinity"))["nodeAffinity"]
    assert preferred == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": weight,
                "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]},
            }
            for name, weight in shares.items()
        ]
    }
    assert command(b.checkpoints / "other", "--affinity").split() == [
        "{",
        '"nodeAffinity":',
        "{",
        '"preferredDuringSchedulingIgnoredDuringExecution":',
        "[]",
        "}",
        "}",
    ]


def test_the_public_socket_tells_nothing_of_it(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    with ControlClient(a.socket.with_name("status.sock")) as client, pytest.raises(RefusedError, match="not for everybody"):
        client.holdings()


def test_a_path_outside_the_stores_is_refused(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    with a.client() as client, pytest.raises(RefusedError, match="name a directory in"):
        client.holdings(str(a.work))


def test_news_travels_through_s3_too(make_s3_node: S3NodeFactory, place: S3Server) -> None:
    a, b = (make_s3_node(place, name, holdings__node=name, **QUICK).start() for name in "ab")
    write_state(a, 3, 7)
    wait_until(lambda: of(b, "a") == {3: (7, 1010)})
    info = HeldStoreInfo(operator=0, partition=3, store="default", version=7, size_bytes=1010)
    with b.client() as client:
        told = client.holdings(all_nodes=True).nodes
    assert [query.stores for node in told for query in node.queries] == [[info]]

"""Standby copies: what runs on one node is on another one too, before it is needed there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.control.messages import HeldQueryInfo, HeldStoreInfo
from holdfast.holdings.report import NodeReport, QueryState, StoreState, encoded
from tests.conftest import NodeFactory
from tests.support.checkpoints.hostile_zips import snapshot_of
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.processes.programs import holdfast

SST = "00000{}-01234567-0123-0123-0123-0123456789ab.sst"
QUICK = {
    "holdings__interval_seconds": 0.05,
    "holdings__refresh_seconds": 0.3,
    "stores__checkpoints__standbys": 1,
    "stores__checkpoints__standby_seconds": 0.05,
    "stores__checkpoints__standby_requests_per_second": 0,
    "remote__retry_deadline_seconds": 2,
}
PARTITIONS = range(6)


class Query:
    """A query that runs on ``node``: its state, as Spark writes it with RocksDB, below ``location``."""

    def __init__(self, node: Node, location: str = "team/q") -> None:
        self.node, self.location = node, location

    def directory(self, partition: int) -> Path:
        return self.node.checkpoints / self.location / f"state/0/{partition}"

    def snapshot(self, batch: int, *ssts: int) -> None:
        """Run a batch that leaves a snapshot of each partition; of its SSTs only those are written that are not there."""
        names = [SST.format(number) for number in ssts]
        for partition in PARTITIONS:
            (self.directory(partition) / "SSTs").mkdir(parents=True, exist_ok=True)
            for name in names:
                file = self.directory(partition) / "SSTs" / name
                if not file.exists():
                    file.write_bytes(name.encode() * 1000)
            (self.directory(partition) / f"{batch + 1}.zip").write_bytes(snapshot_of(names))
        self._commit(batch)

    def changes(self, batch: int) -> None:
        """Run a batch that leaves a changelog of each partition."""
        for partition in PARTITIONS:
            (self.directory(partition) / f"{batch + 1}.changelog").write_bytes(b"changes" * (batch + 1))
        self._commit(batch)

    def _commit(self, batch: int) -> None:
        commits = self.node.checkpoints / self.location / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(batch)).write_bytes(b"v1\n{}")

    def files(self, partition: int, node: Node) -> set[str]:
        """Return the files of a partition that ``node`` has on its disk."""
        backing = node.backing(node.checkpoints) / self.directory(partition).relative_to(self.node.checkpoints)
        return {str(file.relative_to(backing)) for file in backing.rglob("*") if file.is_file()}

    def read(self, partition: int, node: Node, *names: str) -> int:
        """Read files of a partition on ``node``; return how many bytes of them it did not have on its disk."""
        there = self.files(partition, node)
        directory = node.checkpoints / self.location / f"state/0/{partition}"
        return sum(len((directory / name).read_bytes()) for name in names if name not in there)


def holdings(node: Node) -> list[HeldQueryInfo]:
    """Return what ``node`` says of the state that it holds itself."""
    with node.client() as client:
        return [query for info in client.holdings().nodes for query in info.queries]


def told_by(node: Node) -> dict[int, HeldStoreInfo]:
    """Return what ``node`` says of the state that it holds itself, by partition."""
    return {store.partition: store for query in holdings(node) for store in query.stores}


def complete(node: Node, version: int) -> set[int]:
    """Return the partitions of which ``node`` has a complete standby copy of this version."""
    return {
        partition
        for partition, store in told_by(node).items()
        if store.copy and store.missing_bytes == 0 and store.version == version
    }


def metrics(node: Node) -> str:
    with node.client() as client:
        return client.metrics()


def metric(node: Node, name: str) -> float:
    line = next(line for line in metrics(node).splitlines() if line.startswith((f'{name}{{store="checkpoints"', f"{name} ")))
    return float(line.split()[-1])


@pytest.fixture
def nodes(make_node: NodeFactory) -> tuple[Node, Node, Node]:
    """Three nodes that have heard of each other: one that has not stands by for all partitions, and drops some later."""
    a, b, c = nodes = tuple(make_node(name, holdings__node=name, **QUICK).start() for name in "abc")
    wait_until(lambda: all(names_heard_by(node) == {"a", "b", "c"} for node in nodes))
    return a, b, c


def names_heard_by(node: Node) -> set[str]:
    with node.client() as client:
        return {info.node for info in client.holdings(all_nodes=True).nodes}


def covered(others: tuple[Node, ...], version: int) -> bool:
    """Say whether each partition has a complete copy on exactly one of the other nodes, and none of them wants another.

    A node that does not know of the others yet stands by for all partitions, and hands some of them over later.
    """
    found = [partition for node in others for partition in complete(node, version)]
    duties = sum(metric(node, "holdfast_standby_partitions") for node in others)
    return sorted(found) == list(PARTITIONS) and duties == len(PARTITIONS)


def test_each_partition_is_complete_on_another_node_after_a_commit(nodes: tuple[Node, Node, Node]) -> None:
    a, *others = nodes
    query = Query(a)
    query.snapshot(0, 1, 2)
    query.changes(1)
    wait_until(lambda: covered((*others,), 2))
    assert complete(a, 2) == set(), "what runs here is no copy"
    for node in others:
        for partition in complete(node, 2):
            names = ["1.zip", "2.changelog", f"SSTs/{SST.format(1)}", f"SSTs/{SST.format(2)}"]
            assert query.files(partition, node) == set(names)
            assert query.read(partition, node, *names) == 0


def test_the_command_shows_where_each_partition_runs_and_how_far_its_copy_is(nodes: tuple[Node, Node, Node]) -> None:
    a, b, c = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((b, c), 1))
    copies = {partition: name for name, node in (("b", b), ("c", c)) for partition in complete(node, 1)}
    path = str(c.checkpoints / "team/q")

    def lines() -> list[list[str]]:
        words = [sys.executable, "-m", "holdfast", "holdings", "--standbys", "--socket", str(c.socket)]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [line.split() for line in printed.splitlines()[1:]]

    wait_until(lambda: lines() == [[path, str(each), "a", "1", copies[each], "0", "0", "B"] for each in PARTITIONS])


def test_a_copy_follows_the_commits_and_drops_what_they_no_longer_need(nodes: tuple[Node, Node, Node]) -> None:
    a, *others = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((*others,), 1))
    query.changes(1)
    wait_until(lambda: covered((*others,), 2))
    query.snapshot(2, 2)
    wait_until(lambda: covered((*others,), 3))
    for node in others:
        for partition in complete(node, 3):
            wait_until(lambda: query.files(partition, node) == {"3.zip", f"SSTs/{SST.format(2)}"})  # noqa: B023 at once
    fetched = sum(metric(node, "holdfast_standby_fetched_bytes_total") for node in others)
    assert fetched == sum(file.stat().st_size for file in (a.checkpoints / "team/q/state").rglob("*") if file.is_file())


def test_a_reload_begins_and_ends_it(make_node: NodeFactory, workspace: Path) -> None:
    off = {key: value for key, value in QUICK.items() if key != "stores__checkpoints__standbys"}
    nodes = [make_node(name, holdings__node=name, **off) for name in "ab"]
    file = workspace / "holdfast.toml"
    for node in nodes:
        file.write_text("stores.checkpoints.standbys = 0\n")
        node.environment["HOLDFAST_CONFIG"] = str(file)
        node.start()
    a, b = nodes
    Query(a).snapshot(0, 1)
    for standbys in (1, 0):
        file.write_text(f"stores.checkpoints.standbys = {standbys}\n")
        for node in nodes:
            assert "in force now: stores.checkpoints.standbys" in holdfast("config", "reload", "--socket", node.socket)
        if standbys:
            wait_until(lambda: complete(b, 1) == set(PARTITIONS))
    wait_until(lambda: all(store.missing_bytes is None for store in told_by(b).values()))
    assert "holdfast_standby_partitions{" not in metrics(b)


def test_what_is_not_committed_is_not_fetched(nodes: tuple[Node, Node, Node]) -> None:
    a, *others = nodes
    query = Query(a)
    query.snapshot(0, 1)
    (query.directory(0) / "2.changelog").write_bytes(b"of a batch under way")
    wait_until(lambda: covered((*others,), 1))
    for node in others:
        assert "2.changelog" not in query.files(0, node)


def test_the_partitions_of_a_lost_node_run_on_and_get_new_standbys(nodes: tuple[Node, Node, Node]) -> None:
    a, b, c = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((b, c), 1))
    mine = complete(b, 1)
    a.kill()
    a.lose_disk()
    for partition in PARTITIONS:
        node = b if partition in mine else c
        names = ["1.zip", f"SSTs/{SST.format(1)}"]
        assert query.read(partition, node, *names) == 0, "a restore finds all of it"
        directory = node.checkpoints / "team/q/state/0" / str(partition)
        (directory / "2.changelog").write_bytes(b"changes")
    commits = b.checkpoints / "team/q/commits"
    (commits / "1").write_bytes(b"v1\n{}")
    wait_until(lambda: complete(c, 2) == mine, seconds=120)
    wait_until(lambda: complete(b, 2) == set(PARTITIONS) - mine)
    wait_until(lambda: metric(b, "holdfast_partitions_without_standby") == 0)


def test_a_standby_without_room_evicts_nothing_and_says_so(make_node: NodeFactory) -> None:
    a = make_node("a", holdings__node="a", **QUICK).start()
    b = make_node("b", holdings__node="b", cache__max_bytes=20_000, **QUICK).start()
    (b.blobs / "own").write_bytes(bytes(10_000))
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: metric(b, "holdfast_standby_missing_bytes") > 0)
    wait_until(lambda: metric(a, "holdfast_partitions_without_standby") == len(PARTITIONS))
    wait_until(lambda: "standby copies wait: the disk, or the cache, has no room" in b.log.read_text())
    assert b.status().counters["files_evicted"] == 0
    assert complete(b, 1) == set()
    b.stop()
    b.start(cache__max_bytes=0)
    wait_until(lambda: complete(b, 1) == set(PARTITIONS))
    wait_until(lambda: metric(a, "holdfast_partitions_without_standby") == 0)


def test_a_standby_whose_disk_is_full_waits_and_holds_nobody_up(make_node: NodeFactory, workspace: Path) -> None:
    a = make_node("a", holdings__node="a", **QUICK).start()
    with mounted_image("ext4", workspace / "small", 128 * 2**20) as small:
        b = make_node("b", holdings__node="b", cache__min_free_bytes=8 * 2**20, **QUICK)
        b.store = small / "store"
        b.settings["store.directory"] = b.store
        b.start()
        try:
            disk = os.statvfs(small)
            with (small / "filler").open("wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, disk.f_bavail * disk.f_frsize - 2**20)
            query = Query(a)
            query.snapshot(0, 1)
            wait_until(lambda: "standby copies wait: the disk, or the cache, has no room" in b.log.read_text())
            query.changes(1)
            wait_until(lambda: metric(a, "holdfast_partitions_without_standby") == len(PARTITIONS))
            assert (complete(b, 1), complete(b, 2)) == (set(), set())
            (small / "filler").unlink()
            wait_until(lambda: complete(b, 2) == set(PARTITIONS))
            assert b.status().counters["files_evicted"] == 0
        finally:
            b.clean_up()  # before its disk goes


def test_a_query_may_ask_for_more_copies_and_for_none(nodes: tuple[Node, Node, Node]) -> None:
    a, b, c = nodes
    more, none, plain = (Query(a, f"team/{name}") for name in ("more", "none", "plain"))
    for query, wish in ((more, b"2\n"), (none, b"0\n"), (plain, b"many")):
        (a.checkpoints / query.location).mkdir(parents=True)
        (a.checkpoints / query.location / "_standbys").write_bytes(wish)
        query.snapshot(0, 1)

    def copies(query: Query) -> int:
        path = f"/checkpoints/{query.location}"
        return sum(
            store.missing_bytes == 0
            for node in (b, c)
            for held in holdings(node)
            if held.path.endswith(path)
            for store in held.stores
        )

    wait_until(lambda: (copies(more), copies(plain)) == (2 * len(PARTITIONS), len(PARTITIONS)))
    assert copies(none) == 0
    (a.checkpoints / "team/none/_standbys").write_bytes(b"1")
    wait_until(lambda: copies(none) == len(PARTITIONS))


def test_a_copy_that_was_evicted_is_fetched_again(nodes: tuple[Node, Node, Node]) -> None:
    a, b, c = nodes
    Query(a).snapshot(0, 1)
    wait_until(lambda: covered((b, c), 1))
    before = metric(b, "holdfast_standby_fetched_bytes_total")
    with b.client() as client:
        list(client.evict(str(b.checkpoints)))
    wait_until(lambda: metric(b, "holdfast_standby_fetched_bytes_total") == 2 * before)
    wait_until(lambda: covered((b, c), 1))


def test_a_standby_that_is_killed_while_it_fetches_goes_on_with_what_it_has(make_node: NodeFactory) -> None:
    a = make_node("a", holdings__node="a", **QUICK).start()
    slow = {**QUICK, "stores__checkpoints__standby_bytes_per_second": 60_000}
    b = make_node("b", holdings__node="b", **slow).start()
    Query(a).snapshot(0, 1)
    wait_until(lambda: bool(complete(b, 1)))
    before = complete(b, 1)
    assert before != set(PARTITIONS)
    b.kill()
    b.start(stores__checkpoints__standby_bytes_per_second=0)
    wait_until(lambda: complete(b, 1) == set(PARTITIONS))
    state = sum(file.stat().st_size for file in (a.checkpoints / "team/q/state").rglob("*") if file.is_file())
    assert metric(b, "holdfast_standby_fetched_bytes_total") <= state - len(before) * state / len(PARTITIONS)


def test_a_standby_that_is_lost_with_its_disk_while_it_fetches_has_a_successor(make_node: NodeFactory) -> None:
    a = make_node("a", holdings__node="a", **QUICK).start()
    slow = {**QUICK, "stores__checkpoints__standby_bytes_per_second": 60_000}
    b = make_node("b", holdings__node="b", **slow).start()
    Query(a).snapshot(0, 1)
    wait_until(lambda: metric(b, "holdfast_standby_fetched_bytes_total") > 0)
    assert complete(b, 1) != set(PARTITIONS)
    b.kill()
    b.lose_disk()
    c = make_node("c", holdings__node="c", **QUICK).start()
    wait_until(lambda: complete(c, 1) == set(PARTITIONS), seconds=120)
    wait_until(lambda: metric(a, "holdfast_partitions_without_standby") == 0)


def test_with_two_copies_two_nodes_may_be_lost_at_once(make_node: NodeFactory) -> None:
    settings = {**QUICK, "stores__checkpoints__standbys": 2}
    a, b, c, d = (make_node(name, holdings__node=name, **settings).start() for name in "abcd")
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: sum(len(complete(node, 1)) for node in (b, c, d)) == 2 * len(PARTITIONS))
    for node in (a, b):
        node.kill()
        node.lose_disk()
    left = {partition: node for node in (c, d) for partition in complete(node, 1)}
    assert left.keys() == set(PARTITIONS)
    for partition, node in left.items():
        assert query.read(partition, node, "1.zip", f"SSTs/{SST.format(1)}") == 0


def test_a_store_that_is_away_is_waited_for(nodes: tuple[Node, Node, Node], remote_files: Path) -> None:
    a, *others = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((*others,), 1))
    query.changes(1)
    remote_files.rename(remote_files.with_name("away"))
    wait_until(lambda: all("standby copies wait: " in node.log.read_text() for node in others))
    for node in others:
        for partition in complete(node, 2) | complete(node, 1):
            assert query.read(partition, node, "1.zip") == 0
    remote_files.with_name("away").rename(remote_files)
    wait_until(lambda: covered((*others,), 2))


def test_a_planted_report_takes_no_copy_away(nodes: tuple[Node, Node, Node], remote_files: Path) -> None:
    a, b, c = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((b, c), 1))
    planted = NodeReport(
        node="mallory",
        cores=64,
        standbys=0,
        queries=[
            QueryState("team/q", [StoreState(0, partition, "default", 2**63 - 1, 1) for partition in PARTITIONS]),
            QueryState("no/such/query", [StoreState(0, 0, "default", 1, 1)]),
        ],
    )
    looks = [node.requests()["LIST"] for node in (b, c)]
    (remote_files / ".holdfast/nodes/mallory.00000000").write_bytes(encoded(planted))
    wait_until(lambda: all(node.requests()["LIST"] > before + 20 for node, before in zip((b, c), looks, strict=True)))
    query.changes(1)
    wait_until(lambda: covered((b, c), 2))
    assert complete(a, 2) == set()


def test_a_node_that_is_drained_hands_its_copies_over(nodes: tuple[Node, Node, Node]) -> None:
    a, b, c = nodes
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: covered((b, c), 1))
    with b.client() as client:
        list(client.drain(10.0))
    wait_until(lambda: complete(c, 1) == set(PARTITIONS))
    with b.client() as client:
        client.end_drain()
    wait_until(lambda: covered((b, c), 1))


def test_a_drain_that_waits_for_copies_begins_when_they_are_complete(make_node: NodeFactory) -> None:
    a = make_node("a", holdings__node="a", **QUICK).start()
    b = make_node("b", holdings__node="b", cache__max_bytes=20_000, **QUICK).start()
    Query(a).snapshot(0, 1)
    wait_until(lambda: len(told_by(a)) == len(PARTITIONS))

    def drain(timeout: int) -> subprocess.CompletedProcess[str]:
        words = ["drain", "--standbys", "--timeout", str(timeout), "--socket", str(a.socket)]
        return subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=False)

    refused = drain(0)
    assert refused.returncode != 0
    assert "6 partitions have no complete standby copy; this node is not drained" in refused.stderr
    assert not a.status().draining
    b.stop()
    b.start(cache__max_bytes=0)
    assert drain(60).returncode == 0
    assert a.status().draining
    assert complete(b, 1) == set(PARTITIONS)


def test_copies_are_in_another_rack(make_node: NodeFactory) -> None:
    racks = {"a": "east", "b": "east", "c": "west"}
    a, b, c = (make_node(name, holdings__node=name, holdings__rack=rack, **QUICK).start() for name, rack in racks.items())
    query = Query(a)
    query.snapshot(0, 1)
    wait_until(lambda: complete(c, 1) == set(PARTITIONS))
    assert complete(b, 1) == set()


def test_without_standbys_nothing_is_fetched(make_node: NodeFactory) -> None:
    settings = {**QUICK, "stores__checkpoints__standbys": 0}
    a, b = (make_node(name, holdings__node=name, **settings).start() for name in "ab")
    Query(a).snapshot(0, 1)
    wait_until(lambda: len(told_by(a)) == len(PARTITIONS))
    with b.client() as client:
        assert [info.standbys for info in client.holdings(all_nodes=True).nodes if info.zone == "checkpoints"] == [0, 0]
    assert "holdfast_standby_partitions{" not in metrics(b)
    assert told_by(b) == {}

"""Where partitions go: balanced, to the state's node, and the same each time."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoints.formats.interface import StatefulOperator
from holdfast.control.messages import HeldQueryInfo, HeldStoreInfo, HoldingsInfo, HoldingsReply
from holdfast.errors import DaemonUnreachableError
from holdfast_spark.placement.assignment import Held, assign
from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.driver import Executor, FurtherPlaces, Instance, StreamingQuery
from holdfast_spark.placement.further_places import NOWHERE
from holdfast_spark.placement.operators import (
    JOIN_STORES,
    operators_of_checkpoint,
    operators_of_plan,
    partitions_of_checkpoint,
)
from holdfast_spark.placement.query_events import QueryEvents
from holdfast_spark.placement.steering import Steering

QUERY = "3b7f2c1e"
NODES = st.dictionaries(st.sampled_from([f"node{number}" for number in range(12)]), st.integers(1, 16), min_size=1)
HELD = st.builds(Held, st.integers(0, 3), st.integers(0, 100), st.booleans(), st.none() | st.integers(0, 1))
HOLDINGS = st.dictionaries(
    st.integers(0, 60), st.dictionaries(st.sampled_from([f"node{number}" for number in range(14)]), HELD), max_size=40
)


def even(count: int) -> dict[str, int]:
    return dict.fromkeys((f"node{number}" for number in range(count)), 4)


@settings(deadline=None)
@given(
    partitions=st.integers(1, 60), cores=NODES, held=HOLDINGS, current=st.dictionaries(st.integers(0, 60), st.just("node1"))
)
def test_every_partition_gets_a_node_and_no_node_too_many(
    partitions: int, cores: dict[str, int], held: dict[int, dict[str, Held]], current: dict[int, str]
) -> None:
    placed = assign(QUERY, partitions, cores, held, current)
    assert len(placed) == partitions
    loads = Counter(placed)
    assert loads.keys() <= cores.keys()
    for name, count in cores.items():
        share = partitions * count / sum(cores.values())
        assert loads[name] <= max(math.ceil(share), math.floor(share * 1.25))
        assert loads[name] >= math.floor(share * 0.75)


@settings(deadline=None)
@given(partitions=st.integers(1, 60), cores=NODES, held=HOLDINGS)
def test_the_order_in_which_nodes_are_named_does_not_matter(
    partitions: int, cores: dict[str, int], held: dict[int, dict[str, Held]]
) -> None:
    other_way = dict(reversed(cores.items()))
    holders = {partition: dict(reversed(of_one.items())) for partition, of_one in reversed(held.items())}
    assert assign(QUERY, partitions, cores, held) == assign(QUERY, partitions, other_way, holders)


@settings(deadline=None)
@given(partitions=st.integers(1, 60), cores=NODES)
def test_what_runs_well_stays(partitions: int, cores: dict[str, int]) -> None:
    first = assign(QUERY, partitions, cores, {})
    held = {partition: {node: Held(7, 100)} for partition, node in enumerate(first)}
    assert assign("another query", partitions, cores, held) == first
    assert assign("another query", partitions, cores, {}, dict(enumerate(first))) == first


def test_a_new_query_is_even_from_the_first_batch() -> None:
    assert sorted(Counter(assign(QUERY, 12, even(3), {})).values()) == [4, 4, 4]
    assert Counter(assign(QUERY, 12, {"large": 8, "small": 4}, {})) == {"large": 8, "small": 4}
    assert assign(QUERY, 12, even(3), {}) != assign("another query", 12, even(3), {})


def test_the_newest_state_counts_before_the_most() -> None:
    held = {0: {"node0": Held(5, 1000), "node1": Held(6, 100)}, 1: {"node0": Held(5, 1000), "node2": Held(5, 100)}}
    assert assign(QUERY, 12, even(3), held)[:2] == ["node1", "node0"]


def test_who_has_read_one_new_file_does_not_hold_the_state() -> None:
    held = {0: {"node0": Held(5, 1000), "node1": Held(6, 10)}}
    assert assign(QUERY, 12, even(3), held)[0] == "node0"


def test_a_lopsided_start_is_evened_out_for_the_least_bytes() -> None:
    held = {
        partition: {"node0" if partition < 10 else f"node{partition - 9}": Held(3, 10 + partition)}
        for partition in range(12)
    }
    placed = assign(QUERY, 12, even(3), held)
    assert sorted(Counter(placed).values()) == [3, 4, 5]
    assert [partition for partition in range(12) if placed[partition] == "node0"] == [5, 6, 7, 8, 9], "the largest stay"


def test_when_a_node_leaves_only_its_share_moves_and_is_spread() -> None:
    first = assign(QUERY, 2000, even(40), {})
    held = {partition: {node: Held(7, 100)} for partition, node in enumerate(first)}
    fewer = {name: cores for name, cores in even(40).items() if name != "node7"}
    second = assign(QUERY, 2000, fewer, held)
    moved = [partition for partition in range(2000) if first[partition] != second[partition]]
    assert moved == [partition for partition in range(2000) if first[partition] == "node7"]
    assert max(Counter(second[partition] for partition in moved).values()) <= 2


def test_when_a_node_comes_it_gets_three_quarters_of_its_share() -> None:
    first = assign(QUERY, 2000, even(39), {})
    held = {partition: {node: Held(7, 100)} for partition, node in enumerate(first)}
    second = assign(QUERY, 2000, even(40), held)
    moved = [partition for partition in range(2000) if first[partition] != second[partition]]
    assert len(moved) == math.floor(50 * 0.75)
    assert {second[partition] for partition in moved} == {"node39"}


def test_a_node_that_is_not_there_holds_nothing() -> None:
    held = {partition: {"gone": Held(9, 1000)} for partition in range(12)}
    assert sorted(Counter(assign(QUERY, 12, even(3), held)).values()) == [4, 4, 4]


def standby(missing_bytes: int = 0) -> Held:
    return Held(7, 100, missing_bytes=missing_bytes)


def running(*loads: int) -> tuple[dict[int, str], dict[int, dict[str, Held]]]:
    """Let so many partitions run on each node; return where they do, and what is held."""
    nodes = [f"node{number}" for number, load in enumerate(loads) for _ in range(load)]
    return dict(enumerate(nodes)), {number: {node: Held(7, 100, ran_last=True)} for number, node in enumerate(nodes)}


def test_a_standby_that_has_its_fill_hands_a_partition_on_to_that_ones_standby() -> None:
    current, held = running(6, 5, 3)
    held[14] = {"node0": standby(), "node1": Held(5, 90)}
    held[2]["node2"] = standby()
    held[3]["node1"] = standby(missing_bytes=5)
    placed = assign(QUERY, 15, even(3), held, current)
    assert {number: node for number, node in enumerate(placed) if node != current.get(number)} == {2: "node2", 14: "node0"}
    held[2]["node2"] = standby(missing_bytes=1)
    placed = assign(QUERY, 15, even(3), held, current)
    assert {number: node for number, node in enumerate(placed) if node != current.get(number)} == {14: "node1"}, (
        "an older copy"
    )


def test_where_a_standby_has_its_fill_too_it_hands_on_one_of_its_own() -> None:
    current, held = running(6, 6, 6, 2)
    held[20] = {"node0": standby()}
    held[3]["node1"] = standby()
    held[4]["node0"] = standby()
    held[8]["node2"] = standby()
    held[13]["node3"] = standby()
    placed = assign(QUERY, 21, even(4), held, current)
    moved = {number: node for number, node in enumerate(placed) if node != current.get(number)}
    assert moved == {20: "node0", 3: "node1", 8: "node2", 13: "node3"}


def test_nothing_moves_if_the_last_standby_has_no_room_either() -> None:
    current, held = running(6, 6, 6, 1)
    for lost in (19, 20):
        held[lost] = {"node0": standby()}
    held[3]["node1"] = standby()
    held[8]["node2"] = standby()
    held[13]["node0"] = standby()
    placed = assign(QUERY, 21, even(4), held, current)
    moved = {number: node for number, node in enumerate(placed) if node != current.get(number)}
    assert moved == {19: "node3", 20: "node3"}


def test_nothing_moves_for_a_partition_that_another_standby_has_room_for() -> None:
    current, held = running(6, 5, 3)
    held[14] = {"node0": standby(), "node2": standby()}
    held[2]["node1"] = standby()
    placed = assign(QUERY, 15, even(3), held, current)
    assert {number: node for number, node in enumerate(placed) if node != current.get(number)} == {14: "node2"}


def test_nothing_moves_to_a_standby_that_holds_next_to_nothing() -> None:
    current, held = running(6, 5, 3)
    held[14] = {"node0": standby(), "node1": Held(5, 90)}
    held[2]["node2"] = Held(1, 1, missing_bytes=0)
    placed = assign(QUERY, 15, even(3), held, current)
    assert {number: node for number, node in enumerate(placed) if node != current.get(number)} == {14: "node1"}


def test_what_runs_somewhere_is_not_driven_away_by_what_is_larger() -> None:
    current, held = running(6, 5, 3)
    held[14] = {"node0": Held(7, 1000, missing_bytes=0)}
    placed = assign(QUERY, 15, even(3), held, current)
    assert {number: node for number, node in enumerate(placed) if node != current.get(number)} == {14: "node2"}


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_fewer_partitions_than_nodes(partitions: int) -> None:
    assert set(Counter(assign(QUERY, partitions, even(7), {})).values()) == {1}


# --- which operators keep state ---------------------------------------------------------------------------------------

JOIN_THEN_DEDUPLICATE = """\
~DeduplicateWithinWatermark [value#1L]
+- ~Join Inner, ((value#1L = v2#9L) AND (timestamp#0 >= t2#8))
   :- ~EventTimeWatermark timestamp#0, 10 seconds
   :  +- ~StreamingRelationV2 org.apache.spark.sql.execution.streaming.sources.RateStreamProvider@5ad52146, rate
   +- ~Project [timestamp#5 AS t2#8, value#6L AS v2#9L]
      +- ~StreamingRelationV2 org.apache.spark.sql.execution.streaming.sources.RateStreamProvider@5ad52146, rate
"""
JOIN_WITH_A_TABLE = """\
~Aggregate [v#3L], [v#3L, count(1) AS count#7L]
+- ~Join Inner, (value#1L = v#3L)
   :- ~StreamingRelationV2 org.apache.spark.sql.execution.streaming.sources.RateStreamProvider@5ad52146, rate
   +- Project [id#2L AS v#3L]
      +- Range (0, 10, step=1)
"""


def test_a_plan_tells_the_operators_from_its_top() -> None:
    assert operators_of_plan(JOIN_THEN_DEDUPLICATE, 6) == [
        StatefulOperator(0, 6, (b"default",)),
        StatefulOperator(1, 6, JOIN_STORES),
    ]
    assert operators_of_plan(JOIN_WITH_A_TABLE, 6) == [StatefulOperator(0, 6, (b"default",))]
    assert operators_of_plan("no plan at all\n~\n\x1b[2J", 6) == []


def test_spark_3_marks_no_streams_and_writes_no_metadata_of_operators(tmp_path: Path) -> None:
    for plan in (JOIN_THEN_DEDUPLICATE, JOIN_WITH_A_TABLE):
        assert operators_of_plan(plan.replace("~", ""), 6) == operators_of_plan(plan, 6)
    assert operators_of_plan("Aggregate [id#0L]\n+- Range (0, 10, step=1)\n", 6) == []
    assert partitions_of_checkpoint(tmp_path) == 0
    (tmp_path / "state/0/7").mkdir(parents=True)
    assert partitions_of_checkpoint(tmp_path) == 8
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/9").write_text('v1\n{"conf":{"spark.sql.shuffle.partitions":"12"}}\n{}')
    assert partitions_of_checkpoint(tmp_path) == 12


def write_operator(location: Path, name: str, operator: int, partitions: int) -> None:
    file = location / f"state/{operator}/_metadata" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    file.write_text("v2\n" + json.dumps({"operatorInfo": {"operatorId": operator}, "stateStoreInfo": [store]}))


def test_a_checkpoint_tells_the_operators_by_its_newest_metadata(tmp_path: Path) -> None:
    assert operators_of_checkpoint(tmp_path) == []
    write_operator(tmp_path, "metadata", 0, 5)
    write_operator(tmp_path, "v2/9", 1, 7)
    write_operator(tmp_path, "v2/10", 1, 8)
    (tmp_path / "state/1/_metadata/v2/11").write_text("v2\ndamaged")
    assert operators_of_checkpoint(tmp_path) == [
        StatefulOperator(0, 5, (b"default",)),
        StatefulOperator(1, 8, (b"default",)),
    ]

    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/9").write_text('v1\n{"conf":{"spark.sql.shuffle.partitions":"5"}}\n{}')
    (tmp_path / "offsets/10").write_text('v1\n{"conf":{"spark.sql.shuffle.partitions":"12"}}\n{}')  # repartitioned by Spark
    assert [operator.partitions for operator in operators_of_checkpoint(tmp_path)] == [12, 12]


# --- Spark's driver ---------------------------------------------------------------------------------------------------


class ScalaSequence(list[SimpleNamespace]):
    """A Scala sequence as py4j shows it."""

    def iterator(self) -> SimpleNamespace:
        left = list(self)
        return SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))


def registered(number: str, address: str, **attributes: str) -> SimpleNamespace:
    """An executor as Spark's status store has it."""

    def attribute(name: str) -> SimpleNamespace:
        return SimpleNamespace(isDefined=lambda: name in attributes, get=lambda: attributes[name])

    return SimpleNamespace(
        id=lambda: number,
        isActive=lambda: True,
        totalCores=lambda: 2,
        hostPort=lambda: address,
        attributes=lambda: SimpleNamespace(get=attribute),
    )


def test_an_executor_is_one_once_spark_tells_where_it_is() -> None:
    known = ScalaSequence([registered("driver", "h0:7000"), registered("0", ""), registered("1", "[::1]:7001")])
    known.append(registered("2", "10.88.0.7:7002", NODE="node-a"))
    nobody_leaves = SimpleNamespace(isDefined=lambda: False)
    spark_context = SimpleNamespace(
        statusStore=lambda: SimpleNamespace(executorList=lambda _: known),
        taskScheduler=lambda: SimpleNamespace(getExecutorDecommissionState=lambda _: nobody_leaves),
    )
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: spark_context))
    assert Cluster(cast(Any, SimpleNamespace(sparkContext=context))).executors() == [
        Executor("1", "::1", 2),
        Executor("2", "10.88.0.7", 2, "node-a"),
    ]


# --- steering ---------------------------------------------------------------------------------------------------------


class ScriptedCluster:
    """A driver whose executors a test names."""

    def __init__(self, location: Path, *hosts: str) -> None:
        self.location = f"file:{location}"
        self.told: list[dict[tuple[int, int], str]] = []
        self.hosts = list(hosts)
        self.nodes: dict[str, str] = {}
        self.first_id = 0
        self.told_executors: set[Executor] = set()
        self.age_seconds = 100.0
        self.jobs: set[str] = set()
        self.known: dict[tuple[int, int, str], str] = {}
        self.further: dict[str, FurtherPlaces] = {}

    def executors(self) -> list[Executor]:
        numbered = enumerate(self.hosts, self.first_id)
        return [Executor(str(number), host, 1, self.nodes.get(host, "")) for number, host in numbered]

    def seconds_since_start(self) -> float:
        return self.age_seconds

    def query(self, query_id: str) -> StreamingQuery | None:
        return StreamingQuery(query_id, self.location, f"{self.location}/state") if query_id == "q" else None

    def plan(self, query: StreamingQuery) -> str:
        return JOIN_WITH_A_TABLE

    def shuffle_partitions(self, query: StreamingQuery) -> int:
        return 6

    def has_jobs(self, run_id: str) -> bool:
        return run_id in self.jobs

    def tell(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        told = list(instances)
        self.told.append({(each.operator, each.partition): each.executor.host for each in told})
        self.told_executors = {each.executor for each in told}
        self.known.update({_store(each): each.executor.id for each in told})
        return len(told)

    def elsewhere(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        return sum(self.known[_store(each)] != each.executor.id for each in instances)

    def tell_further_places(self, run_id: str, further: FurtherPlaces) -> None:
        assert further.executors == (sorted(self.executors()) if further.places else ())
        self.further[run_id] = further

    def claim(self, partition: int) -> None:
        """Let a task that runs somewhere else take a partition's stores."""
        for operator, of_partition, store in list(self.known):
            if of_partition == partition:
                self.known[operator, partition, store] = "another"


def _store(instance: Instance) -> tuple[int, int, str]:
    return instance.operator, instance.partition, instance.store


class Steered:
    """A driver that is steered, the daemons' news, and what was fetched ahead."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.cluster = ScriptedCluster(location, "h1", "h2", "h3")
        self.nodes: list[HoldingsInfo] = []
        self.fetched: list[dict[str, list[int]]] = []
        self.problem: Exception | None = None
        self.unreachable = False
        self.lost_in_fetch = ""
        self.in_fetch: Callable[[], None] = lambda: None
        self.steering = Steering(self.cluster, self._ask, self._fetch)

    def hold(
        self,
        node: str,
        *partitions: int,
        draining: bool = False,
        version: int = 7,
        copy: bool = False,
        missing_bytes: int | None = None,
    ) -> None:
        stores = [
            HeldStoreInfo(
                operator=0,
                partition=partition,
                store="default",
                version=version,
                size_bytes=100,
                copy=copy,
                missing_bytes=missing_bytes,
            )
            for partition in partitions
        ]
        query = HeldQueryInfo(path=str(self.location), stores=stores)
        info = HoldingsInfo(
            zone="checkpoints",
            node=node,
            hosts=[node],
            cores=1,
            draining=draining,
            told=1.0,
            this_node=False,
            queries=[query],
        )
        self.nodes = [each for each in self.nodes if each.node != node] + [info]

    def hold_as_placed(self, placed: Mapping[tuple[int, int], str]) -> None:
        """Let each node hold what runs on it."""
        for host in sorted(set(placed.values())):
            self.hold(host, *(partition for (_, partition), where in placed.items() if where == host))

    def become(self, *hosts: str) -> dict[tuple[int, int], str]:
        """Let there be executors on these hosts; return what Spark has been told then."""
        self.cluster.hosts = list(hosts)
        self.steering.look_again("run", after_batch=True)
        return self.cluster.told[-1]

    def begin(self) -> dict[tuple[int, int], str]:
        self.steering.begin("q", "run", time.monotonic() + 60)
        return self.cluster.told[-1]

    def _ask(self, path: str) -> HoldingsReply:
        assert path == str(self.location)
        if self.unreachable:
            raise DaemonUnreachableError("nobody answers")
        return HoldingsReply(nodes=self.nodes)

    def _fetch(self, path: Path, by_host: Mapping[str, Sequence[int]]) -> int:
        self.fetched.append({host: list(partitions) for host, partitions in by_host.items()})
        assert not any(host in self.cluster.told[-1].values() for host in by_host), "told before it was fetched"
        if self.problem is not None:
            raise self.problem
        self.in_fetch()
        self.cluster.hosts = [host for host in self.cluster.hosts if host != self.lost_in_fetch]
        return 0


def standby_of(partition: int) -> HeldStoreInfo:
    return HeldStoreInfo(0, partition, "default", 7, 100, copy=True, missing_bytes=0)


@pytest.fixture
def steered(tmp_path: Path) -> Steered:
    return Steered(tmp_path)


def test_a_new_query_is_placed_by_its_plan_and_again_by_its_metadata(steered: Steered, tmp_path: Path) -> None:
    placed = steered.begin()
    assert sorted(placed) == [(0, partition) for partition in range(6)]
    assert sorted(Counter(placed.values()).values()) == [2, 2, 2]
    write_operator(tmp_path, "metadata", 0, 9)
    steered.steering.look_again("run", after_batch=True)
    assert sorted(Counter(steered.cluster.told[-1].values()).values()) == [3, 3, 3]
    steered.steering.look_again("run", after_batch=True)
    assert len(steered.cluster.told) == 2, "nothing has changed"


def test_partitions_go_where_their_state_is(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold("h1", 4, 5)
    steered.hold("h2", 0, 1)
    steered.hold("H3", 2, 3)
    assert steered.begin() == {(0, 4): "h1", (0, 5): "h1", (0, 0): "h2", (0, 1): "h2", (0, 2): "h3", (0, 3): "h3"}


PODS = {"10.88.0.7": "node-a", "10.88.0.8": "node-a", "10.88.1.9": "Node-B"}
"""The addresses of executors' pods, which are new at each start, with the nodes that they are on."""


def test_executors_in_pods_find_the_state_of_their_node(
    steered: Steered, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.placement")
    write_operator(tmp_path, "metadata", 0, 6)
    steered.cluster.hosts, steered.cluster.nodes = list(PODS), PODS
    steered.hold("node-a", 0, 2, 4, 5)
    steered.hold("node-b", 1, 3)
    placed = steered.begin()
    assert {PODS[placed[0, partition]] for partition in (0, 2, 4, 5)} == {"node-a"}
    assert {PODS[placed[0, partition]] for partition in (1, 3)} == {"Node-B"}
    assert Counter(placed.values()) == dict.fromkeys(PODS, 2), "the executors of a node share its partitions"
    assert caplog.messages == [f"{tmp_path}: 6 partitions on 2 nodes, 6 where their state is"]


def test_a_node_that_comes_with_pods_fetches_its_share_at_one_of_them(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 12)
    steered.cluster.hosts, steered.cluster.nodes = ["10.88.0.7", "10.88.0.8"], PODS
    steered.begin()
    steered.hold("node-a", *range(12))
    placed = steered.become(*PODS)
    moved = sorted(partition for (_, partition), where in placed.items() if where == "10.88.1.9")
    assert len(moved) == 3
    assert steered.fetched == [{"10.88.1.9": moved}]


def test_an_executor_whose_node_nobody_knows_is_found_by_its_host(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 2)
    steered.cluster.hosts, steered.cluster.nodes = ["h1", "h2"], {"h1": "a-node", "h2": "another"}
    steered.hold("h1", 1)
    steered.hold("h2", 0)
    assert steered.begin() == {(0, 0): "h2", (0, 1): "h1"}


def test_executors_that_belong_to_no_node_are_told_of_once(
    steered: Steered, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.placement")
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold("node-a", *range(6))
    steered.cluster.hosts = ["10.88.0.7"]
    steered.begin()
    steered.become("10.88.0.8")
    (said,) = [message for message in caplog.messages if "no executor" in message]
    assert "executors are on 10.88.0.7, and nodes are node-a" in said
    assert "SPARK_EXECUTOR_ATTRIBUTE_NODE" in said


def test_a_lost_executors_partitions_are_spread_at_once(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    first = steered.begin()
    steered.hold_as_placed(first)
    second = steered.become("h1", "h2")
    assert {key for key in first if first[key] != second[key]} == {key for key in first if first[key] == "h3"}
    assert Counter(second.values()) == {"h1": 3, "h2": 3}
    assert steered.fetched == [], "what must move at once can't be fetched ahead"


def test_in_the_middle_of_a_batch_a_lost_executors_partitions_go_to_their_standbys(steered: Steered, tmp_path: Path) -> None:
    """Spark may list the executor for a moment."""
    write_operator(tmp_path, "metadata", 0, 6)
    first = steered.begin()
    steered.hold_as_placed(first)
    lost = sorted(partition for (_, partition), host in first.items() if host == "h3")
    steered.hold("h1", *(partition for (_, partition), host in first.items() if host == "h1"))
    steered.nodes[-1].queries[0].stores.append(standby_of(lost[0]))
    steered.hold("h2", *(partition for (_, partition), host in first.items() if host == "h2"))
    steered.nodes[-1].queries[0].stores.append(standby_of(lost[1]))
    QueryEvents(steered.steering).executor_lost("2").join()
    _, second = steered.cluster.told
    assert {key: host for key, host in second.items() if first[key] != host} == {(0, lost[0]): "h1", (0, lost[1]): "h2"}
    assert steered.become("h1", "h2") == second
    assert len(steered.cluster.told) == 2, "after the batch there is nothing new"


def test_a_loss_while_a_start_is_placed_is_not_missed(
    steered: Steered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors have been asked for, and no run is known yet."""
    write_operator(tmp_path, "metadata", 0, 6)

    def seconds_since_start() -> float:
        QueryEvents(steered.steering).executor_lost("2").join()
        return 100.0

    monkeypatch.setattr(steered.cluster, "seconds_since_start", seconds_since_start)
    assert Counter(steered.begin().values()) == {"h1": 3, "h2": 3}


def test_a_loss_while_a_share_is_fetched_is_told_at_once_and_ends_that_move(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 12)
    first = steered.begin()
    steered.hold_as_placed(first)
    steered.in_fetch = lambda: QueryEvents(steered.steering).executor_lost("1").join()
    steered.become("h1", "h2", "h3", "h4")
    _, meanwhile, after_loss = steered.cluster.told
    assert meanwhile == first
    kept = {key for key, host in first.items() if host != "h2"}
    assert {key: after_loss[key] for key in kept} == {key: first[key] for key in kept}
    assert set(after_loss.values()) <= {"h1", "h3", "h4"}


def test_a_lost_nodes_partitions_go_to_their_standbys(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.cluster.hosts = ["h1", "h2", "h3"]
    steered.hold("h3", 0, 1, version=9)
    steered.hold("h1", 1, version=12, copy=True, missing_bytes=0)
    steered.hold("h2", 0, version=12, copy=True, missing_bytes=0)
    placed = steered.begin()
    assert (placed[0, 0], placed[0, 1]) == ("h3", "h3"), "it ran there last, though that was told long ago"
    second = steered.become("h1", "h2")
    assert (second[0, 0], second[0, 1]) == ("h2", "h1")
    assert steered.fetched == []


def test_sparks_scheduler_knows_the_standbys_before_a_node_is_lost(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 2)
    steered.cluster.hosts = ["h1", "h2"]
    steered.hold("h1", 0)
    steered.hold("h2", 1)
    steered.begin()
    assert steered.cluster.further["run"].places == [["h1"], ["h2"]]
    steered.hold("h3", 0, copy=True, missing_bytes=0)
    steered.become("h1", "h2", "h3")
    assert steered.cluster.further["run"].places == [["h1", "h3"], ["h2"]]
    steered.steering.forget("run")
    assert steered.cluster.further == {"run": NOWHERE}


def test_an_operator_that_is_not_divided_is_with_the_first_partition_of_the_others(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 1)
    write_operator(tmp_path, "metadata", 1, 6)
    steered.hold("h3", 0)
    placed = steered.begin()
    assert sorted(placed) == [(0, 0), *((1, partition) for partition in range(6))]
    assert placed[0, 0] == placed[1, 0] == "h3"
    assert steered.cluster.further["run"].counts == [1, 6]
    assert len(steered.cluster.further["run"].places) == 6


def test_a_run_that_ends_while_its_start_is_placed_is_forgotten(
    steered: Steered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_operator(tmp_path, "metadata", 0, 2)

    def seconds_since_start() -> float:
        steered.steering.forget("run")
        return 100.0

    monkeypatch.setattr(steered.cluster, "seconds_since_start", seconds_since_start)
    steered.begin()
    assert steered.cluster.further == {"run": NOWHERE}
    assert steered.steering.lost("2") == []


def test_a_run_that_ends_while_the_driver_is_told_of_it_is_forgotten(
    steered: Steered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_operator(tmp_path, "metadata", 0, 2)
    steered.begin()
    ending = threading.Thread(target=steered.steering.forget, args=("run",))
    tell = steered.cluster.tell

    def tell_as_it_ends(query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        ending.start()
        return tell(query, run_id, instances)

    monkeypatch.setattr(steered.cluster, "tell", tell_as_it_ends)
    steered.become("h1", "h2")
    ending.join()
    assert steered.cluster.further == {"run": NOWHERE}


def test_the_scheduler_hears_of_a_standby_that_comes_later(
    steered: Steered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_operator(tmp_path, "metadata", 0, 2)
    steered.cluster.hosts = ["h1", "h2"]
    placed = steered.begin()
    steered.hold_as_placed(placed)
    home = placed[0, 0]
    (other,) = {"h1", "h2"} - {home}
    steered.hold(other, 0, 1, copy=True, missing_bytes=0)
    steered.steering.look_again("run", after_batch=True)
    assert steered.cluster.further["run"].places[0] == [home], "nobody has been asked yet"
    monkeypatch.setattr(steered.steering._further, "is_due", lambda run_id: run_id == "run")
    steered.steering.look_again("run", after_batch=True)
    assert steered.cluster.further["run"].places[0] == [home, other]
    assert len(steered.cluster.told) == 1, "no partition moves"


def test_of_two_copies_the_complete_one_counts(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 2)
    steered.cluster.hosts = ["h1", "h2"]
    steered.hold("h1", 0, copy=True, missing_bytes=1)
    steered.hold("h2", 0, copy=True, missing_bytes=0)
    assert steered.begin()[0, 0] == "h2"


def test_a_partition_moves_to_an_incomplete_copy_once_the_rest_has_been_fetched(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 4)
    steered.cluster.hosts = ["h1"]
    first = steered.begin()
    steered.hold("h1", 0, 1, 2, 3)
    steered.hold("h2", 0, 1, 2, 3, copy=True, missing_bytes=5)
    steered.become("h1", "h2")
    _, meanwhile, second = steered.cluster.told
    assert meanwhile == first
    assert steered.fetched == [{"h2": sorted(partition for (_, partition), where in second.items() if where == "h2")}]
    assert steered.fetched[0]["h2"]


def test_a_complete_copy_is_moved_to_at_once(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 4)
    steered.cluster.hosts = ["h1"]
    steered.begin()
    steered.hold("h1", 0, 1, 2, 3)
    steered.hold("h2", 0, 1, 2, 3, copy=True, missing_bytes=0)
    assert "h2" in steered.become("h1", "h2").values()
    assert len(steered.cluster.told) == 2
    assert steered.fetched == []


def test_a_node_that_comes_gets_its_share_once_it_has_been_fetched(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 12)
    steered.cluster.hosts = ["h1", "h2"]
    first = steered.begin()
    steered.hold_as_placed(first)
    steered.become("h1", "h2", "h3")
    _, meanwhile, second = steered.cluster.told
    assert meanwhile == first
    moved = sorted(partition for (_, partition), where in second.items() if where == "h3")
    assert len(moved) == 3
    assert steered.fetched == [{"h3": moved}]


def test_what_tasks_claim_while_they_are_told_of_is_told_again_but_not_for_ever(steered: Steered, tmp_path: Path) -> None:
    """A task that was sent to the former executor claims its stores for it after the news."""
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold_as_placed(steered.begin())
    moved = steered.become("h1", "h2", "h3", "h4")
    told = len(steered.cluster.told)
    for claims in range(1, 10):
        steered.cluster.claim(5)
        steered.steering.look_again("run", after_batch=True)
        assert len(steered.cluster.told) == told + min(claims, 3), "an executor that is always busy is not waited for again"
        assert steered.cluster.told[-1] == moved


def test_while_a_query_is_idle_it_is_not_checked_where_its_tasks_went(steered: Steered, tmp_path: Path) -> None:
    """Its first data may come after any time."""
    write_operator(tmp_path, "metadata", 0, 6)
    steered.begin()
    for _ in range(10):
        steered.steering.look_again("run", after_batch=False)
    steered.cluster.claim(5)
    steered.steering.look_again("run", after_batch=True)
    assert len(steered.cluster.told) == 2


def test_what_has_moved_is_not_told_again(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold_as_placed(steered.begin())
    steered.become("h1", "h2", "h3", "h4")
    told = len(steered.cluster.told)
    steered.steering.look_again("run", after_batch=True)
    assert len(steered.cluster.told) == told


def test_when_nobody_says_who_holds_what_the_next_look_asks_again(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold_as_placed(steered.begin())
    steered.unreachable = True
    with pytest.raises(DaemonUnreachableError):
        steered.become("h1", "h2")
    steered.unreachable = False
    assert set(steered.become("h1", "h2").values()) == {"h1", "h2"}


def test_a_node_that_is_lost_while_its_share_is_fetched_gets_nothing(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold_as_placed(steered.begin())
    steered.lost_in_fetch = "h4"
    assert "h4" not in steered.become("h1", "h2", "h3", "h4").values()
    assert steered.fetched


def test_what_can_not_be_fetched_ahead_moves_all_the_same(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 12)
    steered.cluster.hosts = ["h1", "h2"]
    steered.hold_as_placed(steered.begin())
    steered.problem = ValueError("no Holdfast in the executors' Python")
    assert Counter(steered.become("h1", "h2", "h3").values())["h3"] == 3


def test_executors_that_register_late_are_told_of_once_they_are_there(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    for number, host in enumerate(("h1", "h2", "h3")):
        steered.hold(host, 2 * number, 2 * number + 1)
    steered.cluster.hosts = []
    assert steered.begin() == {}
    assert steered.become("h1", "h2", "h3") == {(0, number): f"h{number // 2 + 1}" for number in range(6)}
    assert steered.fetched == []


def test_a_query_whose_executors_were_all_released_finds_its_state_with_the_next(steered: Steered, tmp_path: Path) -> None:
    """As with dynamic allocation when nothing has arrived for a while."""
    write_operator(tmp_path, "metadata", 0, 6)
    first = steered.begin()
    steered.hold_as_placed(first)
    assert steered.become() == {}
    steered.cluster.first_id = 3
    assert steered.become("h1", "h2", "h3") == first
    assert {executor.id for executor in steered.cluster.told_executors} == {"3", "4", "5"}
    assert steered.fetched == []


def test_another_executor_on_the_same_node_takes_over_its_partitions(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    first = steered.begin()
    steered.hold_as_placed(first)
    steered.cluster.first_id = 3
    assert steered.become("h1", "h2", "h3") == first
    assert {executor.id for executor in steered.cluster.told_executors} == {"3", "4", "5"}


def test_a_node_that_is_drained_gets_nothing(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold("h1", 0, 1, 2, draining=True)
    assert Counter(steered.begin().values()) == {"h2": 3, "h3": 3}


def test_what_comes_late_is_told_while_the_run_has_no_jobs(steered: Steered) -> None:
    steered.steering.begin("q", "run", time.monotonic() - 1)
    assert Counter(steered.cluster.told[-1].values()) == {"h1": 2, "h2": 2, "h3": 2}


def test_what_comes_too_late_is_not_told_until_executors_change(steered: Steered) -> None:
    steered.cluster.jobs.add("run")
    steered.steering.begin("q", "run", time.monotonic() - 1)
    steered.steering.look_again("run", after_batch=True)
    assert steered.cluster.told == []
    steered.cluster.hosts = ["h1", "h2"]
    steered.steering.look_again("run", after_batch=True)
    assert Counter(steered.cluster.told[-1].values()) == {"h1": 3, "h2": 3}


def test_a_query_that_is_not_this_machines_is_left_alone(steered: Steered) -> None:
    steered.cluster.location = "s3a://bucket/q"
    steered.steering.begin("q", "run", time.monotonic() + 60)
    steered.steering.begin("unknown", "run", time.monotonic() + 60)
    assert steered.cluster.told == []


def test_a_young_application_waits_a_moment_for_the_nodes_with_its_state(steered: Steered, tmp_path: Path) -> None:
    write_operator(tmp_path, "metadata", 0, 6)
    steered.hold("late", *range(6))
    steered.cluster.age_seconds = 1.0
    began = time.monotonic()
    steered.steering.begin("q", "run", began + 60)
    assert 0.4 < time.monotonic() - began < 30
    assert Counter(steered.cluster.told[-1].values()) == {"h1": 2, "h2": 2, "h3": 2}


def test_no_fault_reaches_spark_or_holds_it_up(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    from holdfast_spark.placement.listener import PlacementListener

    class Faulty:
        def begin(self, query_id: str, run_id: str, deadline: float) -> None:
            if query_id == "slow":
                released.wait(60)
            raise ValueError("a fault\nat length")

    released = threading.Event()
    listener = PlacementListener(QueryEvents(cast(Steering, Faulty())))
    listener.onQueryStarted(SimpleNamespace(id="q", runId="r"))
    listener.onQueryStarted(SimpleNamespace(id="q", runId="r"))
    assert caplog.messages == ["Spark places partitions by itself: ValueError: a fault"]
    began = time.monotonic()
    listener.onQueryStarted(SimpleNamespace(id="slow", runId="r"))
    assert 0.8 < time.monotonic() - began < 30
    released.set()

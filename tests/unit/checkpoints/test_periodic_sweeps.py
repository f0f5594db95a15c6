"""Sweeps by the daemon itself: one node of all in each period, another when it has died, once more after a fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.periodic import PeriodicSweeps, Sweeper
from holdfast.errors import RemoteRefusedError
from tests.support.checkpoints.root_store import RootStore
from tests.support.checkpoints.roots import DAY, HOUR, SECOND, Root
from tests.support.checkpoints.sweeps import SweepsOver
from tests.unit.checkpoints.test_checkpoint_sweeps import GARBAGE, names, root

__all__ = ["root"]

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY)
ROOTS = [("checkpoints", "flink")]


@pytest.fixture
def store(root: Root) -> RootStore:
    root.now_ns -= root.now_ns % HOUR
    return RootStore(root)


@pytest.fixture
def nodes(store: RootStore, tmp_path: Path) -> list[SweepsOver]:
    return [SweepsOver(store, tmp_path / name) for name in "ab"]


def sweeps(
    node: SweepsOver, name: str = "a", roots: Sequence[tuple[str, str]] = ROOTS, every_seconds: float = 3600.0
) -> PeriodicSweeps:
    sweepers: dict[str, Sweeper] = {"checkpoints": node.sweeps}
    return PeriodicSweeps(node.stores, sweepers, node.sweeps.plan_leftovers, roots, POLICY, every_seconds, name, node.events)


def swept(node: SweepsOver) -> list[object]:
    return [event.fields["removed"] for event in node.events.since(0) if event.kind == "swept"]


async def test_one_node_sweeps_in_each_period(nodes: list[SweepsOver], store: RootStore, root: Root) -> None:
    a, b = (sweeps(node, name) for node, name in zip(nodes, "ab", strict=True))
    assert [await a.sweep_zone("checkpoints"), await b.sweep_zone("checkpoints")] == [True, False]
    assert not GARBAGE & names(root)
    root.now_ns += HOUR - SECOND
    assert [await b.sweep_zone("checkpoints"), await a.sweep_zone("checkpoints")] == [False, False]
    root.now_ns += SECOND
    assert [await b.sweep_zone("checkpoints"), await a.sweep_zone("checkpoints")] == [True, False]
    assert [swept(node) for node in nodes] == [[3], [0]]
    until = (root.now_ns + HOUR) // SECOND
    assert sorted(store.private) == [f"sweep-{root.now_ns // SECOND}", f"sweep-{until}"]
    assert store.private[f"sweep-{until}"] == b'{"node": "b", "until": %d}' % until


async def test_each_node_removes_what_ended_writers_have_left_there(nodes: list[SweepsOver]) -> None:
    for node in nodes:
        node.copies.left_here = {"flink/.x.tmp": 5, "elsewhere/.x.tmp": 5}
    a, b = (sweeps(node, name) for node, name in zip(nodes, "ab", strict=True))
    assert [await a.sweep_zone("checkpoints"), await b.sweep_zone("checkpoints")] == [True, False]
    assert [list(node.copies.left_here) for node in nodes] == [["elsewhere/.x.tmp"]] * 2
    assert [swept(node) for node in nodes] == [[4], [1]]


async def test_a_leader_that_dies_is_succeeded_in_the_next_period(
    nodes: list[SweepsOver], store: RootStore, root: Root
) -> None:
    store.failures = [RemoteRefusedError("the leader has lost its rights")]
    with pytest.raises(RemoteRefusedError):
        await sweeps(nodes[0]).sweep_zone("checkpoints")
    assert not await sweeps(nodes[1]).sweep_zone("checkpoints")
    root.now_ns += HOUR
    assert await sweeps(nodes[1]).sweep_zone("checkpoints")
    assert not GARBAGE & names(root)


async def test_several_roots_take_one_lease(nodes: list[SweepsOver], store: RootStore) -> None:
    periodic = sweeps(nodes[0], roots=[("checkpoints", "flink"), ("checkpoints", "elsewhere")])
    assert await periodic.sweep_zone("checkpoints")
    assert len(store.private) == 1
    assert swept(nodes[0]) == [3, 0]


@asynccontextmanager
async def running(periodic: PeriodicSweeps) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(periodic.run)
        yield
        nursery.cancel_scope.cancel()


async def next_event(node: SweepsOver, number: int) -> str:
    await node.events.wait_beyond(number)
    return node.events.since(number)[0].kind


async def test_it_goes_on_period_by_period(nodes: list[SweepsOver], store: RootStore, root: Root) -> None:
    periodic = sweeps(nodes[0], every_seconds=0.001)
    async with running(periodic):
        assert await next_event(nodes[0], 0) == "swept"
        root.now_ns += SECOND
        assert await next_event(nodes[0], 1) == "swept"
    assert len(store.private) >= 2


async def test_a_fault_is_an_event_and_not_the_end(nodes: list[SweepsOver], store: RootStore, root: Root) -> None:
    store.failures = [RemoteRefusedError("403")]
    async with running(sweeps(nodes[0], every_seconds=0.001)):
        assert await next_event(nodes[0], 0) == "remote-down"
        assert await next_event(nodes[0], 1) == "sweep-failed"
        root.now_ns += SECOND
        await nodes[0].events.wait_beyond(3)
        assert "swept" in [event.kind for event in nodes[0].events.since(2)]

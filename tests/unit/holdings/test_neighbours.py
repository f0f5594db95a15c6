"""What reports cost: a node asks about neighbours alone, reads what has changed, and tells versions ever more rarely."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from holdfast.config import HoldingsSection
from holdfast.errors import RemoteUnavailableError
from holdfast.holdings.report import DIRECTORY, NodeReport, QueryState, Standing, StoreState, encoded
from holdfast.holdings.ring import SPAN, Ring
from tests.support.load.reporting_nodes import ZONE, ReportingNode, Shelf, without_threads

SECTION = HoldingsSection()
PAGE_SECONDS = 2 * SECTION.refresh_seconds


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def threadless() -> Iterator[None]:
    with without_threads():
        yield


def report(node: str, partition: int, version: int = 1) -> bytes:
    return encoded(NodeReport(node=node, queries=[QueryState("q", [StoreState(0, partition, "default", version, 100)])]))


def fill(shelf: Shelf, nodes: int) -> list[str]:
    """Let so many nodes have reported; return the names of their objects."""
    names = [f"node{number}.0123abcd" for number in range(nodes)]
    for number, name in enumerate(names):
        shelf.place(f"{DIRECTORY}/{name}", report(f"node{number}", number))
    return names


async def test_a_question_about_neighbours_reads_no_others_however_many_there_are(
    shelf: Shelf, mock_clock: trio.testing.MockClock
) -> None:
    names = fill(shelf, 2500)
    node = ReportingNode("me", shelf, SECTION)
    found = await node.gathering.neighbours(ZONE)
    assert set(found.told) == {node.name, *Ring([node.name, *names]).neighbours(node.name)}
    assert found.told[node.name].is_this_node
    assert {name: told.report.node for name, told in found.told.items() if name != node.name} == {
        name: name.partition(".")[0] for name in found.told if name != node.name
    }
    assert shelf.counted == {"LIST": 3, "GET": 2 * SPAN}
    mock_clock.jump(3 * PAGE_SECONDS - 1)
    assert await node.gathering.neighbours(ZONE) is found
    assert shelf.counted == {"LIST": 3, "GET": 2 * SPAN}, "three pages are good for three times as long as one"
    mock_clock.jump(1)
    again = await node.gathering.neighbours(ZONE)
    assert again is not found
    assert shelf.counted == {"LIST": 6, "GET": 2 * SPAN}, "what has not changed is not read again"


async def test_when_changes_are_expected_the_store_is_asked_four_times_as_often(
    shelf: Shelf, mock_clock: trio.testing.MockClock
) -> None:
    fill(shelf, 3)
    node = ReportingNode("me", shelf, SECTION)
    found = await node.gathering.neighbours(ZONE, soon=True)
    mock_clock.jump(PAGE_SECONDS / 4 - 1)
    assert await node.gathering.neighbours(ZONE, soon=True) is found
    mock_clock.jump(1)
    assert await node.gathering.neighbours(ZONE) is found
    assert await node.gathering.neighbours(ZONE, soon=True) is not found
    assert shelf.counted == {"LIST": 2, "GET": 3}


async def test_candidates_are_the_nodes_after_one_on_the_ring(shelf: Shelf) -> None:
    names = fill(shelf, 200)
    node = ReportingNode("me", shelf, SECTION)
    found = await node.gathering.neighbours(ZONE)
    ring = Ring([node.name, *names])
    for before in ring.before(node.name):
        assert [told.name for told in found.candidates(before)] == ring.after(before)
        assert node.name in ring.after(before)


async def test_a_changed_neighbour_is_read_again_and_one_that_is_silent_for_long_is_none(
    shelf: Shelf, mock_clock: trio.testing.MockClock
) -> None:
    fill(shelf, 3)
    node = ReportingNode("me", shelf, SECTION)
    await node.gathering.neighbours(ZONE)
    mock_clock.jump(PAGE_SECONDS)
    shelf.place(f"{DIRECTORY}/node1.0123abcd", report("node1", 1, version=2))
    shelf.place(f"{DIRECTORY}/node2.0123abcd", report("node2", 2), age_seconds=1801)
    found = await node.gathering.neighbours(ZONE)
    versions = {name: told.report.queries[0].stores[0].version for name, told in found.told.items() if name != node.name}
    assert versions == {"node0.0123abcd": 1, "node1.0123abcd": 2}
    assert shelf.counted["GET"] == 4


async def test_a_report_that_cannot_be_read_hides_no_other_one(shelf: Shelf) -> None:
    names = fill(shelf, 3)
    node = ReportingNode("me", shelf, SECTION)
    shelf.failures[f".holdfast/{DIRECTORY}/{names[1]}"] = RemoteUnavailableError("GET: no answer")
    found = await node.gathering.gather([ZONE], all_nodes=True)
    assert [told.report.node for told in found.told] == ["me", "node0", "node2"]
    assert found.problems == [f"{ZONE}: GET: no answer; not all of the other nodes' holdings are known"]
    neighbours = await node.gathering.neighbours(ZONE)
    assert neighbours.told.keys() == {node.name, names[0], names[2]}


async def test_what_cannot_be_read_again_is_shown_as_it_was(shelf: Shelf) -> None:
    names = fill(shelf, 2)
    node = ReportingNode("me", shelf, SECTION)
    await node.gathering.gather([ZONE], all_nodes=True)
    shelf.place(f"{DIRECTORY}/{names[1]}", report("node1", 1, version=2))
    shelf.failures[f".holdfast/{DIRECTORY}/{names[1]}"] = RemoteUnavailableError("GET: no answer")
    found = await node.gathering.gather([ZONE], all_nodes=True)
    assert [told.report.queries[0].stores[0].version for told in found.told if told.report.queries] == [1, 1]
    assert len(found.problems) == 1


# --- telling ----------------------------------------------------------------------------------------------------------


async def test_versions_are_told_ever_more_rarely_until_a_store_comes(
    shelf: Shelf, threadless: None, autojump_clock: trio.testing.MockClock
) -> None:
    del threadless, autojump_clock
    node = ReportingNode("me", shelf, SECTION)
    times: list[int] = []
    with trio.move_on_after(3650):
        async with trio.open_nursery() as nursery:
            node.held.hold(1, version=1)
            nursery.start_soon(node.publishing.run)
            for second in range(1, 3650, 5):
                await trio.sleep_until(second)
                partitions = (1, 2) if second > 3400 else (1,)
                node.held.hold(*partitions, version=second)
                times += [second - 1] * (shelf.counted["PUT"] - len(times))
    assert times == [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300, 3405, 3465, 3585]


async def test_a_standby_says_every_other_minute_that_it_is_there_with_bytes_that_nobody_reads_again(
    shelf: Shelf, threadless: None, autojump_clock: trio.testing.MockClock
) -> None:
    del threadless, autojump_clock
    node = ReportingNode("me", shelf, SECTION)
    node.held.hold(1, version=1)
    node.publishing.stand_by(ZONE, Standing(copies=1))
    etags: dict[float, str] = {}
    with trio.move_on_after(1190):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.publishing.run)
            for second in range(1, 1190, 5):
                await trio.sleep_until(second)
                node.held.hold(1, version=second)
                info, _ = shelf.objects[f".holdfast/{node.object_name}"]
                etags[info.modified_ns / 1e9 - Shelf.EPOCH] = info.etag
    times = list(etags)
    assert times == [0, 60, 180, 300, 420, 540, 660, 780, 900, 1020, 1140]
    changed = [time for time, before in zip(times[1:], times, strict=False) if etags[time] != etags[before]]
    assert changed == [60, 180, 420, 900], "versions are told no more often than without standby copies"

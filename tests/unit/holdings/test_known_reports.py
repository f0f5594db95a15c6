"""The bound for what reports take in memory, whoever has written them."""

from __future__ import annotations

import tracemalloc

import pytest
import trio

from holdfast.config import HoldingsSection
from holdfast.holdings import gathering
from holdfast.holdings.known_reports import KnownReports, memory_of
from holdfast.holdings.report import DIRECTORY, NodeReport, QueryState, StoreState, decoded, encoded
from tests.support.load.reporting_nodes import ZONE, ReportingNode, Shelf


def report(node: str, stores: int) -> NodeReport:
    states = [
        StoreState(0, partition, f"store{partition}", 70_000 + partition, 10**9 + partition) for partition in range(stores)
    ]
    return NodeReport(node=node, queries=[QueryState("team/q", states)])


def test_the_estimate_is_no_less_than_what_a_report_takes() -> None:
    data = encoded(report("a", 20_000))
    tracemalloc.start()
    try:
        read = decoded(data)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= memory_of(read) <= 3 * taken


def test_what_goes_beyond_the_bound_is_left_out_and_read_again_when_others_have_gone() -> None:
    one = report("a", 100)
    known = KnownReports(most_bytes=2 * memory_of(one))
    for key in ("1", "2"):
        assert known.put(key, "etag", one) is one
    assert known.put("3", "etag", one) is None
    third = known.get("3")
    assert third is not None
    assert (third.etag, third.report) == ("etag", None), "it is not read again and again"
    assert known.put("1", "newer", one) is one, "a report takes the place of its former version"
    known.keep({"1", "2", "3"})
    assert known.get("3") == third
    known.keep({"1", "3"})
    assert known.get("2") is None
    assert known.get("3") is None, "there is room: it is read again"
    assert known.put("3", "etag", one) is one
    assert known.memory_bytes == 2 * memory_of(one)


def test_the_log_says_once_that_reports_are_left_out_until_all_have_room_again(caplog: pytest.LogCaptureFixture) -> None:
    one = report("a", 100)
    known = KnownReports(most_bytes=memory_of(one))
    planted = [str(number) for number in range(100)]
    for look in range(3):
        known.keep(planted)
        for key in planted:
            known.put(key, f"etag{look}", one)
    assert [record.getMessage() for record in caplog.records if "left out" in record.getMessage()] == [
        f"1, and perhaps others, is left out: the reports of this store take more than {memory_of(one)} bytes"
    ]
    known.keep(["0"])
    known.keep(["0"])
    known.put("2", "etag", one)
    assert "2, and perhaps others" in caplog.records[-1].getMessage()


async def test_reports_that_somebody_has_planted_take_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    small = report("honest", 10)
    most_bytes = memory_of(small) + 3 * memory_of(report("planted", 1000))
    monkeypatch.setattr(gathering, "KnownReports", lambda: KnownReports(most_bytes))
    shelf = Shelf()
    for number in range(20):
        shelf.place(f"{DIRECTORY}/planted{number:02}.0123abcd", encoded(report("planted", 1000)), age_seconds=10)
    shelf.place(f"{DIRECTORY}/honest.0123abcd", encoded(small))
    node = ReportingNode("me", shelf, HoldingsSection())
    for _ in range(2):
        found = await node.gathering.gather([ZONE], all_nodes=True)
        names = [told.report.node for told in found.told if not told.is_this_node]
        assert names == ["honest", *["planted"] * 3]
        assert shelf.counted["GET"] == 21
        await trio.lowlevel.checkpoint()

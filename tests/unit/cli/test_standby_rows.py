"""The table of partitions and their standby copies."""

from __future__ import annotations

from holdfast.cli.standby_rows import rows, uncovered_here
from holdfast.control.messages import HeldQueryInfo, HeldStoreInfo, HoldingsInfo, HoldingsReply


def node(name: str, *stores: HeldStoreInfo, draining: bool = False, this_node: bool = False) -> HoldingsInfo:
    return HoldingsInfo(
        zone="checkpoints",
        node=name,
        hosts=[name],
        cores=1,
        draining=draining,
        told=1.0,
        this_node=this_node,
        queries=[HeldQueryInfo("/m/checkpoints/q", list(stores))],
    )


def own(partition: int, version: int, store: str = "default") -> HeldStoreInfo:
    return HeldStoreInfo(0, partition, store, version, 100)


def copy(partition: int, version: int, missing_bytes: int | None, store: str = "default") -> HeldStoreInfo:
    return HeldStoreInfo(0, partition, store, version, 100, copy=True, missing_bytes=missing_bytes)


def test_each_copy_is_a_row_with_what_it_lacks() -> None:
    found = HoldingsReply(
        nodes=[
            node("a", own(0, 9), own(1, 9), own(2, 9)),
            node("b", copy(0, 7, 2048), own(1, 4)),
            node("c", copy(0, 9, 0), copy(1, 9, None), draining=True),
        ]
    )
    query = "/m/checkpoints/q"
    assert list(rows(found)) == [
        (query, "0", "a", "9", "b", "2", "2.0 KiB"),
        (query, "0", "a", "9", "c (draining)", "0", "0 B"),
        (query, "1", "a", "9", "–", "–", "–"),
        (query, "2", "a", "9", "–", "–", "–"),
    ]


def test_a_copy_is_as_far_as_the_store_that_is_farthest_behind() -> None:
    held = node("a", own(0, 9, "left"), own(0, 9, "right"))
    standby = node("b", copy(0, 9, 5, "left"), copy(0, 6, 5, "right"))
    assert [row[2:] for row in rows(HoldingsReply(nodes=[held, standby]))] == [("a", "9", "b", "3", "5 B")]


def test_a_copy_that_was_told_after_its_holder_is_not_ahead_of_it() -> None:
    assert [row[2:] for row in rows(HoldingsReply(nodes=[node("b", copy(0, 9, 0)), node("a", own(0, 7))]))] == [
        ("a", "7", "b", "0", "0 B")
    ]


def test_of_a_lost_holder_the_copies_are_left() -> None:
    assert [row[2:] for row in rows(HoldingsReply(nodes=[node("b", copy(0, 9, 0))]))] == [("–", "–", "b", "0", "0 B")]


def test_what_runs_here_without_a_complete_copy_is_counted() -> None:
    mine = [own(0, 9), own(1, 9), own(2, 9), own(3, 5), copy(4, 9, 0)]
    others = [node("b", copy(0, 9, 0), copy(1, 9, 1), own(3, 6)), node("c", own(4, 9), copy(2, 9, None))]
    assert uncovered_here(HoldingsReply(nodes=[node("a", *mine, this_node=True), *others])) == 2
    assert uncovered_here(HoldingsReply(nodes=[node("a", *mine), *others])) == 0

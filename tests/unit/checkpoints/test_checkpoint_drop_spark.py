"""Batches of a Spark query that are dropped on demand, and what there is to be dropped."""

from __future__ import annotations

import pytest

from holdfast.checkpoints.formats.spark.drop import batch_of
from holdfast.checkpoints.reachability import Phase, Plan, Reason, census, drop
from holdfast.errors import PlanError
from tests.support.checkpoints import samples
from tests.support.checkpoints.roots import Root, uuid
from tests.support.spark.restore import Checkpoint
from tests.unit.checkpoints.test_checkpoint_sweep_spark import SAMPLES, add_state, location


def dropped(root: Root, last: int, where: bytes = b"") -> Plan:
    name = b"%s/commits/%d" % (where, last) if where else b"commits/%d" % last
    return root.carry_out(drop(root.listing(), [name], root.now_ns))


def batches(root: Root, log: bytes) -> list[int]:
    numbers = (name.rpartition(b"/")[2] for name in root.files if name.startswith(log + b"/"))
    return sorted(int(number) for number in numbers if number.isdigit())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_batch_that_remains_of_a_real_query_can_still_be_restored(name: str) -> None:
    root = Root.of_sample(samples.sample(name))
    commits = batches(root, b"commits")
    last = commits[-3]
    before = Checkpoint(root).restorable()
    plan = dropped(root, last)
    assert plan.kept == ()
    assert plan.entries[0].phase is Phase.MANIFEST
    root.execute(plan)
    assert batches(root, b"commits") == batches(root, b"offsets")[:2] == commits[-2:]
    assert Checkpoint(root).restorable() == {each for each in before if each.version > last + 1} != set()
    assert dropped(root, last).entries == ()


def test_what_a_running_query_is_about_to_name_stays() -> None:
    root = location(range(10))
    add_state(root, *(f"{version}.zip" for version in range(1, 11)))
    young = root.write(f"q/state/0/0/SSTs/000007-{uuid(1)}.sst")
    writing = root.write(f"q/state/0/0/.11.zip.{uuid(1)}.tmp")
    plan = dropped(root, 5, b"q")
    assert not {young, writing} & {entry.name for entry in plan.entries}
    assert {entry.reason for entry in plan.entries} == {Reason.DROPPED, Reason.EXPIRED_VERSION}


@pytest.mark.parametrize("last", [8, 9, 10])
def test_what_spark_needs_to_start_can_not_be_dropped(last: int) -> None:
    with pytest.raises(PlanError, match="the newest two to start; batches up to 7 can"):
        dropped(location(range(10)), last, b"q")


def test_a_batch_that_is_under_way_counts() -> None:
    root = location(range(10))
    root.write("q/offsets/10")
    assert len(dropped(root, 8, b"q").entries) == 18


def test_there_must_be_a_query() -> None:
    with pytest.raises(PlanError, match="no checkpoint location of Spark at q2"):
        dropped(location(range(10)), 3, b"q2")


def test_a_batch_is_named_by_its_commit_or_its_offsets() -> None:
    assert batch_of(b"a/q/commits/12") == (b"a/q", 12)
    assert batch_of(b"offsets/0") == (b"", 0)
    assert batch_of(b"q/state/0") is None


def test_a_census_of_a_query_has_its_batches_in_order_and_its_state() -> None:
    root = location(range(9, 12))
    root.write("q/offsets/12")
    add_state(root, "10.zip", "11.zip")
    found = census(root.listing())
    assert [(each.name, each.what, each.is_complete) for each in found] == [
        (b"q/state", "state", True),
        (b"q/commits/9", "batch", True),
        (b"q/commits/10", "batch", True),
        (b"q/commits/11", "batch", True),
        (b"q/commits/12", "batch", False),
    ]
    assert found[0].files == 2

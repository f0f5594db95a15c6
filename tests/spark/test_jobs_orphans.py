"""The plan that Spark makes is the plan that one node makes, and a daemon executes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.plan_format import StoredPlan
from holdfast.remote import RemoteStore
from holdfast_spark.jobs import inventory, orphans
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.jobs.sweep_judges import Judge
from holdfast_spark.jobs.sweep_plan import swept
from holdfast_spark.stores import StoreAddress
from tests.spark.running import plan_of, run
from tests.support.checkpoints import garbage, samples
from tests.support.checkpoints.checkpoint_roots import JOB, below, job
from tests.support.checkpoints.roots import Root
from tests.support.checkpoints.sweeps import SweepsOver
from tests.support.checkpoints.toy_format import TOYS_GO, WITH_TOY, toys
from tests.support.daemons.node import Node

pytestmark = pytest.mark.timeout(1800)

DAY_NS = 86400 * 10**9
STRICT = Policy(grace_ns=DAY_NS, abandoned_ns=7 * DAY_NS, min_batches_to_retain=2)


def on_one_node(store: RemoteStore, root: str, policy: Policy, directory: Path, formats: Formats = FORMATS) -> StoredPlan:
    async def plan() -> StoredPlan:
        return await SweepsOver(store, directory, formats).sweeps.plan_sweep("checkpoints", root, policy)

    return trio.run(plan)


def assert_same(found: StoredPlan, expected: StoredPlan) -> None:
    assert [item.name for item in found.items] == [item.name for item in expected.items]
    assert found.items == expected.items
    ours, theirs = found.header, expected.header
    assert sorted((each.scope, each.why) for each in ours.kept) == sorted((each.scope, each.why) for each in theirs.kept)
    assert (ours.count, ours.size_bytes, ours.policy) == (theirs.count, theirs.size_bytes, theirs.policy)
    assert (ours.kind, ours.zone, ours.root, ours.store) == (theirs.kind, theirs.zone, theirs.root, theirs.store)


def test_the_same_plan_as_one_node_makes(spark: SparkSession, store_directory: Path, workspace: Path) -> None:
    garbage.fill(store_directory)
    url = f"file://{store_directory}"
    run(inventory, spark, url, workspace / "inventory")
    store = StoreAddress(url).open()

    expected = on_one_node(store, "good", STRICT, workspace / "plans")
    assert {item.phase for item in expected.items} == {"manifest", "file", "checksum", "directory"}
    assert len({item.reason for item in expected.items}) >= 6
    found = plan_of(spark, url, workspace / "inventory", workspace / "of-good", "--root", "good", "--min-batches", "2")
    assert_same(found, expected)

    expected = on_one_node(store, "", STRICT, workspace / "plans")
    assert {"staged_upload", "expired_version"} <= {item.reason for item in expected.items}
    assert any("nothing of Flink's below the root is judged" in each.why for each in expected.header.kept)
    assert_same(plan_of(spark, url, workspace / "inventory", workspace / "of-all", "--min-batches", "2"), expected)


def test_a_daemon_executes_the_plan(spark: SparkSession, node: Node, remote_files: Path, workspace: Path) -> None:
    gone = job(remote_files / JOB)
    before = below(remote_files / JOB)
    run(inventory, spark, f"file://{remote_files}", workspace / "inventory")
    (node.store / "plans").mkdir(mode=0o700, exist_ok=True)
    run(orphans, spark, f"file://{remote_files}", workspace / "inventory", "--plans", node.store / "plans")
    with node.client() as client:
        plans = client.plans()
        assert [(plan.kind, plan.state, plan.count) for plan in plans] == [("sweep", "waiting", len(gone))]
        steps = list(client.execute(plans[0].id))
        assert steps[-1].removed == len(gone)
    assert below(remote_files / JOB) == before - gone


def test_a_format_that_is_new_to_the_registry_is_divided_too(
    spark: SparkSession, store_directory: Path, workspace: Path
) -> None:
    garbage.write(toys(), store_directory / "good/toys")
    for name in samples.names()[:2]:
        garbage.write(Root.of_sample(samples.sample(name)), store_directory / "good" / name)
    run(inventory, spark, f"file://{store_directory}", workspace / "inventory")
    address = StoreAddress(f"file://{store_directory}")
    taken = Inventory(spark, str(workspace / "inventory"))
    judge = Judge(address, "good", STRICT, taken.about.began_ns, WITH_TOY)
    with swept(taken.listed("good"), judge) as plan:
        found = {row["name"]: row["reason"].lower() for row in plan.entries.collect()}
    expected = on_one_node(address.open(), "good", STRICT, workspace / "plans", WITH_TOY)
    assert found == {item.name: item.reason for item in expected.items}
    assert {f"toys/{name}" for name in TOYS_GO} <= set(found)
